"""What a killed worker leaves on the disk is not in the sketch."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import pytest

from hushgram import ReleaseKey, ReleaseParams
from hushgram.pipelines.release import build_release, run_release
from hushgram.transforms import write_sketch as sketch_sink
from tests.engines.jobs import contents

PARAMS = ReleaseParams(epsilon="1", max_contributions=2)
SECRET = ReleaseKey(bytes(range(32)))


def views() -> beam.PTransform:
    return beam.Create([("ann", "/a"), ("bob", "/a"), ("bob", "/b")])


def run(path: Path) -> dict[str, bytes]:
    run_release(PARAMS, views(), user="user", key="url", path=path, release_key=SECRET)
    return contents(path)


@pytest.mark.parametrize("name", ["blocks-00000.bin.4711.part", "manifest.json.4711.part", "heavy.parquet"])
def test_leftovers_of_a_dead_attempt(tmp_path: Path, name: str) -> None:
    clean = run(tmp_path / "clean")
    target = tmp_path / "again"
    release = build_release(PARAMS, views(), user="user", key="url", path=target, release_key=SECRET)
    work = Path(release.target.work)
    work.mkdir()
    (work / name).write_bytes(b"half of a fi")
    assert run(target) == clean
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "clean"]


def test_the_sweep_is_what_keeps_them_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: without it the half-written file is published."""
    monkeypatch.setattr(sketch_sink, "_sweep", lambda directory: None)
    target = tmp_path / "again"
    release = build_release(PARAMS, views(), user="user", key="url", path=target, release_key=SECRET)
    work = Path(release.target.work)
    work.mkdir()
    (work / "blocks-00000.bin.4711.part").write_bytes(b"half of a fi")
    assert "blocks-00000.bin.4711.part" in run(target)
