"""Release of a public list of keys: Laplace noise on every one of them.

In:  (0, Histogram), the complete histogram of the keys in the list. Exact and private.
Out: (0, Heavy). Released: every key of the list with its noisy count, also those with count 0; ε-differentially
     private, see `hushgram.laplace_mechanism`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from hushgram.exact.histogram import Histogram, KeyTable
from hushgram.noise.entropy import ReleaseKey
from hushgram.sparse_histogram.plan import Plan
from hushgram.sparse_histogram.steps import heavy_of_list
from hushgram.sparse_histogram.threshold import Heavy
from hushgram.transforms.shuffle import coders as _coders  # noqa: F401 (registers the coders)

__all__ = ["ReleasePublicList"]


class ReleasePublicList(beam.PTransform):
    """Complete histogram → noisy counts of the public keys, in the order of the list."""

    def __init__(self, table: KeyTable, plan: Plan, release_key: ReleaseKey) -> None:
        super().__init__()
        self._release = _Release(table, plan, release_key)

    def expand(self, shards: Any) -> Any:
        return shards | "ReleaseList" >> beam.ParDo(self._release).with_output_types(tuple[int, Heavy])


class _Release(beam.DoFn):
    def __init__(self, table: KeyTable, plan: Plan, release_key: ReleaseKey) -> None:
        self._table, self._plan, self._release_key = table, plan, release_key

    def process(self, shard: tuple[int, Histogram]) -> Iterator[tuple[int, Heavy]]:
        group, histogram = shard
        yield group, heavy_of_list(histogram, self._table, self._plan, self._release_key)
