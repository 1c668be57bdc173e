"""A new encoding is one module and one line of the registry: a toy works in memory, on Beam and by the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

import hushgram as hg
from hushgram import encodings
from hushgram.errors import FormatError, ParameterError
from hushgram.transforms.release_sparse_histogram import ReleaseSparseHistogram
from tests.transforms.releases import KEY, SMALL, contents, params, pieces, records, release_by_command

pytestmark = pytest.mark.long

TABLE = records()
CHOSEN = {**SMALL, "epsilon": "8"}


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(encodings.ENCODINGS, "toy-1", "tests.core.encodings.toy")
    yield
    encodings.encoding_of.cache_clear()


@pytest.mark.parametrize(
    ("delta", "selection", "listed"),
    [("0", "threshold", "threshold"), ("1e-6", "threshold", "threshold"), ("1e-6", "weighted", "selected")],
)
@pytest.mark.usefixtures("toy")
def test_a_toy_encoding_goes_all_the_way(delta: str, selection: str, listed: str, tmp_path: Path) -> None:
    chosen = params(delta, encoding="toy", key_selection=selection, **CHOSEN)
    sketch = hg.release(TABLE["user"], TABLE["url"], chosen, tmp_path / "library", release_key=KEY)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        made = pipeline | beam.Create(pieces(TABLE, [700, 1]))
        made | ReleaseSparseHistogram(chosen, user="user", key="url", path=tmp_path / "job", release_key=KEY)
    assert contents(tmp_path / "job") == contents(tmp_path / "library")
    sketch.verify()
    assert sketch.manifest_json["plan"]["encoding"] == "toy-1"
    first = ["threshold"] if selection == "threshold" else ["contributions", "weighted-selection"]
    assert [part.kind for part in sketch.guarantee.parts] == [*first, "toy"]  # sizes are stated
    answer = sketch.estimate([f"https://example.org/{k}" for k in (1, 2, 4000)])
    assert set(answer["source"].to_pylist()) == {listed, "toy"}
    lengths = {len(block) for block in map(sketch._storage.block, range(sketch.plan.layout.blocks))}  # type: ignore[union-attr]
    assert len(lengths) > 1


@pytest.mark.usefixtures("toy")
def test_the_command_takes_a_toy_encoding(tmp_path: Path) -> None:
    privacy = "{epsilon: 8, max_contributions: 4, encoding: toy, split: {size: 0, threshold: 0.5, toy: 0.5}}"
    said, path = release_by_command(tmp_path, TABLE, privacy)
    assert "threshold 4, toy 4" in said
    sketch = hg.Sketch.open(path)
    assert sketch.manifest_json["plan"]["encoding"] == "toy-1"
    assert sketch.estimate(["https://example.org/4000"])["source"].to_pylist() == ["toy"]


def test_an_encoding_that_is_not_registered_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ParameterError, match="encoding must be one of alp"):
        params(encoding="toy")
    with monkeypatch.context() as patch:
        patch.setitem(encodings.ENCODINGS, "toy-1", "tests.core.encodings.toy")
        hg.release(TABLE["user"], TABLE["url"], params(encoding="toy", **CHOSEN), tmp_path / "a")
    encodings.encoding_of.cache_clear()
    with pytest.raises(FormatError, match=r"encoding 'toy-1' is not known here \(alp-1"):
        hg.Sketch.open(tmp_path / "a")
