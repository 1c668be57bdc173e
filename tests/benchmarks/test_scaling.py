"""The script by which `benchmarks.scaling` measures a release runs on the stages as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import pipeline, scaling


def test_a_small_release_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "DATA", tmp_path / "bench")
    (tmp_path / "bench").mkdir()
    figures = scaling.run(1_000)
    assert figures["sent"]["ContributionsCoder"][1] > 0
    assert figures["counters"]["keys"] > 0
    assert {"Take", "BoundUsers", "SelectShards"} <= set(figures["stages"])
