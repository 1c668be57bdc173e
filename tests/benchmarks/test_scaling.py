"""The script by which `benchmarks.scaling` measures a release runs on the stages as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import pipeline, scaling
from hushgram.transforms.shuffle import Cost


def test_a_small_release_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "DATA", tmp_path / "bench")
    (tmp_path / "bench").mkdir()
    figures = scaling.run(1_000, 20)
    assert figures["sent"]["ContributionsCoder"][1] > 0
    assert figures["counters"]["keys"] > 0
    assert {"Take", "BoundUsers", "SelectShards"} <= set(figures["stages"])
    pieces, sent, *_ = figures["sent"]["ContributionsCoder"]
    predicted = scaling.cost(figures)
    assert pieces == predicted.pieces == 20
    assert 24_000 < sent <= predicted.first_shuffle
    assert 1 / 2 < predicted.memory / figures["memory"] < 2


def test_the_formulas_at_two_sizes() -> None:
    """Two shuffles above 4,096 shards; memory follows the rows of a shard."""
    few = Cost(rows=10**9, users=10**8, keys=10**7, shards=4_096, groups=256)
    many = replace(few, shards=65_536)
    assert few.pieces == 4_096 * 477
    assert few.first_shuffle == 24 * 10**9 + 100 * few.pieces
    assert many.first_shuffle > 2 * 24 * 10**9
    assert many.cpu_seconds > few.cpu_seconds
    assert replace(few, rows=10**11).memory > 130 * 10**11 / 4_096 > many.memory
