"""A new noise is one module and one line of the registry: a toy works in memory, on Beam and by the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest

import hushgram as hg
from hushgram.errors import FormatError, ParameterError
from hushgram.noise import noises
from hushgram.transforms.release_sparse_histogram import ReleaseSparseHistogram
from tests.transforms.releases import KEY, SMALL, contents, params, pieces, records, release_by_command

pytestmark = pytest.mark.long

TABLE = records()


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(noises.NOISES, "toy", "tests.core.noise.toy")
    yield
    noises.noise_of.cache_clear()


@pytest.mark.parametrize("encoding", ["alp", "buckets"])
@pytest.mark.usefixtures("toy")
def test_a_toy_noise_goes_all_the_way(encoding: str, tmp_path: Path) -> None:
    chosen = params("1e-3", noise="toy", encoding=encoding, split="auto", **{**SMALL, "epsilon": "8"})
    sketch = hg.release(TABLE["user"], TABLE["url"], chosen, tmp_path / "library", release_key=KEY)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        made = pipeline | beam.Create(pieces(TABLE, [700, 1]))
        made | ReleaseSparseHistogram(chosen, user="user", key="url", path=tmp_path / "job", release_key=KEY)
    assert contents(tmp_path / "job") == contents(tmp_path / "library")
    sketch.verify()
    assert sketch.manifest_json["plan"]["noise"] == "toy"
    exact = dict(zip(*np.unique(TABLE["url"].to_pylist(), return_counts=True), strict=True))
    heavy = sketch.heavy(all=True).to_pydict()
    assert len(heavy["key"]) > 2
    assert all(key in exact for key in heavy["key"])


@pytest.mark.parametrize("encoding", ["alp", "buckets"])
@pytest.mark.usefixtures("toy")
def test_the_command_takes_a_toy_noise(encoding: str, tmp_path: Path) -> None:
    privacy = f"{{epsilon: 8, delta: 0.001, max_contributions: 4, noise: toy, encoding: {encoding}}}"
    said, path = release_by_command(tmp_path, TABLE, privacy)
    assert ("alp 0.16" if encoding == "alp" else "toy 8") in said
    assert hg.Sketch.open(path).plan.noise_name == "toy"


def test_a_noise_that_is_not_registered_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="noise must be auto or one of laplace"):
        params("1e-3", noise="toy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(noises.NOISES, "toy", "tests.core.noise.toy")
        chosen = params("1e-3", noise="toy", **SMALL)
        hg.release(TABLE["user"], TABLE["url"], chosen, tmp_path / "a")
    noises.noise_of.cache_clear()
    with pytest.raises(FormatError, match="noise"):
        hg.Sketch.open(tmp_path / "a")
