"""Threshold release of the complete histogram.

In:  (group, Histogram) of all groups, exact and private; the planned release as a side input.
Out: (group, Heavy). Released: ε- or (ε, δ)-differentially private, see `hushgram.sparse_histogram.threshold`.

Noise is drawn for each of the fixed noise shards of a group, empty ones included.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from hushgram.exact.histogram import Histogram
from hushgram.noise.entropy import ReleaseKey
from hushgram.sparse_histogram.steps import PlannedRelease, heavy_of_shard
from hushgram.sparse_histogram.threshold import Heavy
from hushgram.transforms.shuffle import coders as _coders  # noqa: F401 (registers the coders)
from hushgram.transforms.shuffle.sharding import noise_parts

__all__ = ["ReleaseThreshold"]


class ReleaseThreshold(beam.PTransform):
    """Complete histogram → the keys whose noisy count reaches the threshold."""

    def __init__(self, planned: Any, release_key: ReleaseKey, *, groups: int) -> None:
        super().__init__()
        self._planned, self._release_key, self._groups = planned, release_key, groups

    def expand(self, shards: Any) -> Any:
        release = beam.ParDo(
            _Release(self._release_key, self._groups), planned=beam.pvalue.AsSingleton(self._planned)
        )
        return shards | "ReleaseShards" >> release.with_output_types(tuple[int, Heavy])


class _Release(beam.DoFn):
    """Counts the distinct keys too, for the operator alone."""

    def __init__(self, release_key: ReleaseKey, groups: int) -> None:
        self._release_key, self._groups = release_key, groups

    def setup(self) -> None:
        self._keys = Metrics.counter("hushgram", "keys")

    def process(self, shard: tuple[int, Histogram], planned: PlannedRelease) -> Iterator[tuple[int, Heavy]]:
        group, histogram = shard
        self._keys.inc(len(histogram))
        parts = noise_parts(group, self._groups, histogram)
        yield group, Heavy.concat([heavy_of_shard(i, part, planned, self._release_key) for i, part in parts])
