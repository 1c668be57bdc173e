"""The black-box audit sees what is released, finds a breach, and its bounds are bounds. `make audit` runs it."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import hushgram as hg
from hushgram.contributions.bounding import Bounds, Contributions
from hushgram.contributions.histogram import Histogram
from hushgram.contributions.keys import fingerprints, hash_bytes
from hushgram.inputs import columns
from hushgram.mechanisms.domains import KeyDomain
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.run.job_runner import run_stages
from hushgram.sensitivity import ExactVector
from hushgram.transforms.shuffle.combining import LocalResources
from tests.neighbours.eager import eagerly
from tests.privacy import blackbox_files, blackbox_releases
from tests.privacy.blackbox import PAGE, TEETH, TITLE, Case, audited, cases, lower_bound, write
from tests.privacy.blackbox_files import FILES
from tests.privacy.blackbox_jobs import Seen, running
from tests.privacy.blackbox_releases import CELLS, KEY, PURE_LIST, QUARTERS, WORDS

JOBS = (*blackbox_releases.CASES, *blackbox_files.CASES)
RELEASE_KEY = ReleaseKey(bytes(range(32)))
_LEAST_RUNS = 4_000


def assert_seen(pair: Any, job: Any, path: Path, released: list[Any]) -> None:
    """What was seen of a release is what the job wrote."""
    if job.kind == "top":
        assert released == [job.released(str(path)).column("key").to_pylist()]
        return
    places = [path] if job.kind == "release" else [path / f"{name}.sketch" for name in job.metrics]
    for seen, place in zip(released, places, strict=True):
        sketch = hg.Sketch.open(place)
        assert isinstance(seen, Seen)
        assert seen.plan == sketch.plan
        assert pair.watched
        if sketch.plan.layout is None:
            listed = sketch.heavy()
            told = dict(zip(listed["key"].to_pylist(), listed["value"].to_pylist(), strict=True))
            assert {key: value for key in pair.watched if (value := seen.value(key)) is not None} == told
            continue
        for key in pair.watched:
            encoded = sketch._encode([key])
            values, above, found = sketch._look_up(hash_bytes(encoded.values), encoded.values)
            assert seen.value(key) == (int(values[0]) if above[0] else None)
            assert (seen.encoded(key) == found[0]).all()


@pytest.mark.parametrize("case", JOBS, ids=lambda case: case.name)
def test_what_is_seen_is_what_the_job_writes(case: Case, tmp_path: Path) -> None:
    pair: Any = case.draw
    job = pair.job(True, tmp_path)
    path = tmp_path / "written"
    with eagerly(random.Random(1)) as pipeline:
        job.build(pipeline, str(path), RELEASE_KEY, LocalResources())
    with running(pair.job(True, tmp_path), pair.watched, str(tmp_path / "not-written")) as runs:
        assert_seen(pair, job, path, runs.whole(RELEASE_KEY))
        if not pair.whole:
            runs.whole(ReleaseKey.generate())
            assert runs.same
            assert_seen(pair, job, path, runs.again(RELEASE_KEY))
    assert not (tmp_path / "not-written").exists()


@pytest.mark.parametrize("pair", [PURE_LIST, QUARTERS, CELLS], ids=["release", "sums", "top"])
def test_what_is_seen_is_what_a_runner_writes(pair: Any, tmp_path: Path) -> None:
    job = pair.job(True, tmp_path)
    run_stages(job, path=tmp_path / "written", release_key=RELEASE_KEY)
    with running(pair.job(True, tmp_path), pair.watched, str(tmp_path / "not-written")) as runs:
        assert_seen(pair, job, tmp_path / "written", runs.whole(RELEASE_KEY))


def test_releases_under_fresh_keys_differ() -> None:
    assert len(set(PURE_LIST(True, 60))) > 1


def test_a_pair_whose_exact_histogram_depends_on_the_key_must_run_whole() -> None:
    held = {name: getattr(QUARTERS, name) for name in QUARTERS.__dataclass_fields__}
    with pytest.raises(AssertionError, match="set whole"):
        list(type(QUARTERS)(**held | {"whole": False})(True, 60))


# --- code that was broken, put back ----------------------------------------------------------------------------------


def cut_by_rank(rows: Contributions, *bounds: Bounds) -> Contributions:
    """Cut users to C keys, also where keys round to nothing and C is in units."""
    held, first_of_user = rows._ordered(bounds[0].key_classes)
    starts = np.flatnonzero(first_of_user)
    rank = np.arange(len(held.keys)) - np.repeat(starts, np.diff(np.append(starts, len(held.keys))))
    return held._take(np.flatnonzero(rank < max(bound.max_contributions for bound in bounds)))


def every_row(keys: Any, _parents: Any, _most: int, _per_key: int) -> Any:
    """Bound no record."""
    return np.arange(len(keys))


def keep_keys(cells: KeyDomain, keys: Any) -> tuple[Any, None]:
    """Leave keys as they are, so that users are bounded by key and not by cell."""
    return np.isin(fingerprints(keys) >> np.uint64(64 - cells.bits), cells.prints), None


def count_by_cell(cells: KeyDomain, part: Histogram) -> ExactVector:
    """Add up keys by cell under the bound per key."""
    return ExactVector(part.reduced(cells.bits).counts_of(cells.prints), part.sensitivity)


#: what was broken: the pair that shows it, how many runs per side show it, and the code
BROKEN: dict[str, tuple[Any, int, dict[tuple[Any, str], Any]]] = {
    "sums cut by rank": (QUARTERS, 200, {(Contributions, "prune"): cut_by_rank}),
    "records of any number of words": (WORDS, 400, {(columns, "bound_record"): every_row}),
    "cells bounded by key": (
        CELLS,
        300,
        {(KeyDomain, "keep"): keep_keys, (KeyDomain, "count"): count_by_cell},
    ),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.long
def test_broken_code_put_back_is_above_its_claim(name: str) -> None:
    pair, runs, changes = BROKEN[name]
    (case,) = (case for case in JOBS if case.draw is pair)
    with ExitStack() as stack:
        for (owner, word), value in changes.items():
            stack.enter_context(mock.patch.object(owner, word, value))
        verdict = audited(case, {side: list(pair(side, runs)) for side in (True, False)})
    assert verdict.word == "BREACH"


def coin(high: float, low: float) -> Case:
    def draw(side: bool, runs: int) -> Iterator[Hashable]:
        draws = random.Random(side)
        return (draws.random() < (high if side else low) for _ in range(runs))

    return Case("coin", 1.0, draw)


def test_a_breach_is_found_and_an_honest_coin_is_not_one() -> None:
    honest, broken, dull = coin(0.5, 0.2), coin(0.5, 0.1), coin(0.5, 0.4)  # losses 0.92, 1.61 and 0.22
    words = [
        audited(case, {side: list(case.draw(side, 20_000)) for side in (True, False)}).word
        for case in (honest, broken, dull)
    ]
    assert words == ["ok", "BREACH", "weak"]


def test_the_bound_is_below_the_ratio() -> None:
    assert 0.9 < lower_bound(50_000, 18_394, 100_000, 0.0) < 1.0
    assert lower_bound(0, 10, 100, 0.0) == 0.0
    assert lower_bound(10, 0, 100_000, 0.01) == 0.0


@pytest.mark.parametrize("name", [name for name in cases() if "PMW" not in name])
@pytest.mark.long
def test_every_case_runs_and_none_is_above_its_claim(name: str) -> None:
    case = cases()[name]
    verdict = audited(case, {side: list(case.draw(side, 60)) for side in (True, False)})
    assert verdict.word != "BREACH"


def test_rows_of_other_cases_stay(tmp_path: Path) -> None:
    page, (first, second) = tmp_path / "audit.md", list(cases())[:2]
    page.write_text("# Exact audit\n\nrows\n")
    write({second: f"| {second} | 1 |"}, page)
    write({first: f"| {first} | 2 |"}, page)
    text = page.read_text()
    assert text.startswith("# Exact audit\n\nrows\n")
    assert text.index(f"| {first} | 2 |") < text.index(f"| {second} | 1 |")


@pytest.mark.parametrize("format", FILES)
def test_files_with_and_without_a_user_are_neighbours(format: str, tmp_path: Path) -> None:
    """Of the odd lines of one user, none touches another user's records, and one good line is among them."""
    (pair,) = (case.draw for case in blackbox_files.CASES if case.draw.format == format)  # type: ignore[attr-defined]
    sides = []
    for added in (False, True):
        with running(pair.job(added, tmp_path), (), str(tmp_path / "out")) as runs:  # type: ignore[attr-defined]
            runs.whole(RELEASE_KEY)
            sides.append(
                [tuple(map(str, row.values())) for batch in runs.batches or () for row in batch.to_pylist()]
            )
    without, added_rows = sides
    who = {"log": "2.2.2.2"}.get(format, "v")
    assert [row for row in added_rows if row[0] != who] == without
    assert (who, KEY) in added_rows


def test_every_pair_was_run_often_and_shows_most_of_its_claim() -> None:
    lines = PAGE.read_text().partition(TITLE)[2].splitlines()
    rows = {line.split(" | ")[0][2:]: line.split(" | ") for line in lines if line.startswith("| ")}
    for name in cases():
        runs, share = int(rows[name][1].replace(",", "")), int(rows[name][4].rstrip("%"))
        assert runs >= _LEAST_RUNS, name
        assert 100 * TEETH <= share <= 100, name
