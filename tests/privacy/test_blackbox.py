"""The black-box audit sees what is released, finds a breach, and its bounds are bounds. `make audit` runs it."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hushgram as hg
from hushgram.exact.keys import hash_bytes
from hushgram.noise.entropy import ReleaseKey
from tests.privacy.blackbox import PAGE, RUNS, TEETH, TITLE, Case, audited, cases, lower_bound, write
from tests.privacy.blackbox_files import columns_of
from tests.privacy.blackbox_releases import CASES, KEY, Seen, observing

RELEASES = [case for case in CASES if case.name != "a public list"]


@pytest.mark.parametrize("case", RELEASES, ids=lambda case: case.name)
def test_what_is_seen_is_what_is_released(case: Case, tmp_path: Path) -> None:
    pair: Any = case.draw
    params, release_key = hg.ReleaseParams(**pair.params), ReleaseKey(bytes(range(32)))
    users, keys = pair.columns(True)
    more: Any = {} if pair.value is None else {"values": [pair.value] * len(users)}
    sketch = hg.release(users, keys, params, tmp_path / "s", release_key=release_key, **more)
    with observing(pair.watched):
        seen: Any = hg.release(users, keys, params, release_key=release_key, **more)
    assert isinstance(seen, Seen)
    assert seen.plan == sketch.plan
    for key in pair.watched:
        encoded = sketch._encode([key])
        values, listed, found = sketch._look_up(hash_bytes(encoded.values), encoded.values)
        assert seen.value(key) == (int(values[0]) if listed[0] else None)
        assert (seen.encoded(key) == found[0]).all()


def test_releases_under_fresh_keys_differ() -> None:
    (case,) = (case for case in CASES if case.name == "δ = 0, list and ALP")
    assert len(set(case.draw(True, 60))) > 1


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


@pytest.mark.parametrize("format", ["csv", "tsv", "jsonl", "log", "parquet"])
def test_files_with_and_without_a_user_are_neighbours(format: str) -> None:
    """Of the odd lines of one user, none touches another user's records, and one good line is among them."""
    without, added = (list(zip(*columns_of(format, side), strict=True)) for side in (False, True))
    who = {"log": "2.2.2.2"}.get(format, "v")
    assert [row for row in added if row[0] != who] == without
    assert (who, KEY) in added


def test_every_pair_was_run_often_and_shows_most_of_its_claim() -> None:
    lines = PAGE.read_text().partition(TITLE)[2].splitlines()
    rows = {line.split(" | ")[0][2:]: line.split(" | ") for line in lines if line.startswith("| ")}
    for name in cases():
        runs, share = int(rows[name][1].replace(",", "")), int(rows[name][4].rstrip("%"))
        assert runs >= RUNS, name
        assert 100 * TEETH <= share <= 100, name
