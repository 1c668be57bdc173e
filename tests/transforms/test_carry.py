"""Carried keys: counted whatever the data are, left out of selection, and the same bytes in job and library."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from click.testing import CliRunner

import hushgram as hg
from hushgram.contributions.histogram import KeyTable
from hushgram.contributions.keys import encode
from hushgram.errors import HushgramError, ParameterError
from hushgram.key_selection import rounds
from hushgram.key_selection.rounds import OPEN, SELECTED, carried_states
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.cli import cli
from hushgram.transforms.release_sparse_histogram import ReleaseSparseHistogram

KEY = ReleaseKey(bytes(range(32)))
PARAMS = hg.ReleaseParams(epsilon="2", delta="1e-4", max_contributions=4, selection=hg.Weights(10))
CARRY = ["/1", "/2", "/nobody has this"]


def views(rows: int = 6000, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(seed)
    users, keys = draws.integers(0, 800, rows), draws.zipf(1.3, rows) % 300
    return users, np.array([f"/{key}" for key in keys])


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_carried_keys_are_named_also_where_nobody_has_them(tmp_path: Path) -> None:
    users, keys = views()
    plain = hg.release(users, keys, PARAMS, release_key=KEY)
    carried = hg.release(users, keys, PARAMS, release_key=KEY, carry=CARRY)
    named = set(carried.heavy()["key"].to_pylist())
    assert set(CARRY) <= named
    row = carried.estimate(["/nobody has this"]).to_pylist()[0]
    assert row["source"] == "selected"
    assert row["low"] <= 0 <= row["high"]
    assert "/nobody has this" not in set(plain.heavy()["key"].to_pylist())
    nothing = hg.release(users[:0], keys[:0], PARAMS, release_key=KEY, carry=CARRY)
    assert set(nothing.heavy(all=True)["key"].to_pylist()) == set(CARRY)  # no data at all: the same list


def test_job_and_library_write_the_same_bytes(tmp_path: Path) -> None:
    users, keys = views()
    hg.release(users, keys, PARAMS, tmp_path / "library", release_key=KEY, carry=CARRY)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        records = pipeline | beam.Create(list(zip(map(str, users), map(str, keys), strict=True)))
        _ = records | ReleaseSparseHistogram(
            PARAMS, user="user", key="key", path=tmp_path / "job", release_key=KEY, carry=CARRY
        )
    assert files(tmp_path / "job") == files(tmp_path / "library")


def test_users_do_not_weigh_carried_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what they weigh keeps its sensitivity: a user with one other key gives it all of the weight."""
    seen = []
    weigh = rounds.weigh

    def watched(*arguments: object) -> object:
        seen.append(weigh(*arguments))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr("hushgram.release_in_memory.weigh", watched)
    hg.release(["a", "a", "a", "b"], ["/1", "/2", "/x", "/1"], PARAMS, carry=CARRY)
    first = seen[0]
    assert first.texts.to_pylist() == [b"/x"]
    assert first.counts.tolist() == [rounds.WHOLE]
    table, _ = KeyTable.build(encode(["/1", "/x"]).values)
    states = carried_states(table, KeyTable.build(encode(CARRY).values)[0])
    assert states is not None
    assert dict(zip(table.texts.to_pylist(), states.tolist(), strict=True)) == {b"/1": SELECTED, b"/x": OPEN}


def test_other_carried_keys_have_other_noise(tmp_path: Path) -> None:
    users, keys = views()
    asked = ["/1", "/2", "/3"]
    one, two = (
        hg.release(users, keys, PARAMS, release_key=KEY, carry=carry).estimate(asked)["estimate"].to_pylist()
        for carry in (CARRY, CARRY[:2])
    )
    assert one != two


def test_named_keys_of_a_sketch_are_carried_day_by_day(tmp_path: Path) -> None:
    users, keys = views()
    first = hg.release(users, keys, PARAMS)
    carried = first.named_keys()
    assert set(carried) <= set(first.heavy()["key"].to_pylist())
    second = hg.release(*views(seed=2), PARAMS, carry=carried)
    assert set(carried) <= set(second.heavy(all=True)["key"].to_pylist())


CONFIG = """\
release: urls-{{date}}
input: {{path: "{folder}/views.csv", user: user, key: url}}
privacy: {{epsilon: 2, delta: 0.0001, max_contributions: 4}}
sizes: {{records: 6000, keys: 300}}
carry: "{folder}/urls-{{yesterday}}.sketch"
output: {{path: "{folder}/urls-{{date}}.sketch"}}
shards: 1
"""


def run(folder: Path, *arguments: str) -> str:
    done = CliRunner().invoke(cli, ["release", str(folder / "config.yaml"), *arguments])
    if isinstance(done.exception, HushgramError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.long
def test_config(tmp_path: Path) -> None:
    users, keys = views()
    rows = "".join(f"{user},{key}\n" for user, key in zip(users, keys, strict=True))
    (tmp_path / "views.csv").write_text(f"user,url\n{rows}")
    (tmp_path / "config.yaml").write_text(CONFIG.format(folder=tmp_path))
    said = " ".join(run(tmp_path, "--date", "2026-11-01", "--check").split())
    assert "urls-2026-10-31.sketch does not exist, all keys are selected anew" in said
    run(tmp_path, "--date", "2026-11-01", "--quiet")
    first = hg.Sketch.open(tmp_path / "urls-2026-11-01.sketch")
    said = " ".join(run(tmp_path, "--date", "2026-11-02", "--check").split())
    assert f"carried {len(first.named_keys())} keys of" in said
    run(tmp_path, "--date", "2026-11-02", "--quiet")
    second = hg.Sketch.open(tmp_path / "urls-2026-11-02.sketch")
    assert set(first.named_keys()) <= set(second.heavy(all=True)["key"].to_pylist())
    with pytest.raises(HushgramError, match="carry needs delta above 0"):
        run(tmp_path, "--date", "2026-11-02", "--check", "--set", "privacy.delta=0")


def test_carry_needs_weights() -> None:
    users, keys = views(100)
    with pytest.raises(ParameterError, match="carry needs delta above 0"):
        hg.release(users, keys, hg.ReleaseParams(epsilon=1, max_contributions=2), carry=CARRY)
