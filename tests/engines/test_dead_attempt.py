"""What a killed worker leaves in the work directory of its attempt is not in the sketch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from hushgram import ReleaseKey, ReleaseParams
from hushgram.pipelines.jobs.release import run_release
from hushgram.transforms import write_sketch
from tests.engines.jobs import contents

PARAMS = ReleaseParams(epsilon="1", max_contributions=2)
SECRET = ReleaseKey(bytes(range(32)))


def views() -> beam.PTransform:
    return beam.Create([("ann", "/a"), ("bob", "/a"), ("bob", "/b")])


def run(path: Path) -> dict[str, bytes]:
    run_release(PARAMS, views(), user="user", key="url", path=path, release_key=SECRET)
    return contents(path)


def leave(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work directory of the next release holds half of a file already."""
    real = write_sketch.Target.of.__func__  # type: ignore[attr-defined]

    def of(cls: type, *given: Any) -> Any:
        target = real(cls, *given)
        Path(target.work).mkdir(exist_ok=True)
        Path(target.work, name).write_bytes(b"half of a fi")
        return target

    monkeypatch.setattr(write_sketch.Target, "of", classmethod(of))


@pytest.mark.parametrize(
    "name", ["blocks-00000.bin.4711.part", "manifest.json.4711.part", "heavy.bin", "heavy-00001.bin"]
)
def test_leftovers_of_a_dead_attempt(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clean = run(tmp_path / "clean")
    leave(name, monkeypatch)
    assert run(tmp_path / "again") == clean
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "clean"]


def test_the_sweep_is_what_keeps_them_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: without it the half-written file is published."""
    monkeypatch.setattr(write_sketch, "sweep", lambda *_: None)
    leave("blocks-00000.bin.4711.part", monkeypatch)
    assert "blocks-00000.bin.4711.part" in run(tmp_path / "again")
