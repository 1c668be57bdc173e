"""The exact histogram, complete in groups of noise shards.

In:  `Histogram` parts, in any order and number.
Out: (group, Histogram) for each group, empty ones included: the sum of the parts. Exact and private.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from hushgram.exact.histogram import Histogram
from hushgram.transforms.shuffle import coders as _coders  # noqa: F401 (registers the coders)
from hushgram.transforms.shuffle.combining import CombineShards
from hushgram.transforms.shuffle.sharding import split_groups
from hushgram.transforms.shuffle.vectors import OneWindow

__all__ = ["MergeHistograms", "SumHistograms"]

_KEYS_PENDING = 1 << 21


class MergeHistograms(beam.PTransform):
    """Parts → the complete histogram of each of ``groups`` groups."""

    def __init__(self, groups: int, *, texts: bool) -> None:
        super().__init__()
        self._groups, self._texts = groups, texts

    def expand(self, parts: Any) -> Any:
        held = tuple[int, Histogram]
        empty = [(group, Histogram.empty(texts=self._texts)) for group in range(self._groups)]
        every = parts.pipeline | "EveryGroup" >> beam.Create(empty, reshuffle=False).with_output_types(held)
        some = (
            parts
            | "AllTime" >> OneWindow()
            | "SplitGroups" >> beam.ParDo(_Split(self._groups)).with_output_types(held)
        )
        return (
            (some, every)
            | "WithEmpty" >> beam.Flatten().with_output_types(held)
            | "SumGroups" >> CombineShards(SumHistograms(texts=self._texts), Histogram)
        )


class _Split(beam.DoFn):
    """Histogram → (group, part); counts what is kept, for the operator alone."""

    def __init__(self, groups: int) -> None:
        self._groups = groups

    def setup(self) -> None:
        self._records = Metrics.counter("hushgram", "records")

    def process(self, part: Histogram) -> Iterator[tuple[int, Histogram]]:
        self._records.inc(int(part.counts.sum()))
        yield from split_groups(part, self._groups)


class SumHistograms(beam.CombineFn):
    """Parts of one group → their sum. Merges; order has no effect."""

    def __init__(self, *, texts: bool) -> None:
        self._texts = texts

    def create_accumulator(self) -> _Held:
        return _Held()

    def add_input(self, held: _Held, part: Histogram) -> _Held:
        if len(part):
            held.parts.append(part)
            held.pending += len(part)
        if held.pending > max(_KEYS_PENDING, held.kept):
            held = self.compact(held)
        return held

    def merge_accumulators(self, accumulators: Any) -> _Held:
        out = _Held()
        for held in accumulators:
            for part in held.parts:
                out = self.add_input(out, part)
        return out

    def compact(self, held: _Held) -> _Held:
        if len(held.parts) > 1:
            held.parts = [Histogram.merge(held.parts)]
        held.kept, held.pending = sum(map(len, held.parts)), 0
        return held

    def extract_output(self, held: _Held) -> Histogram:
        return Histogram.merge(held.parts) if held.parts else Histogram.empty(texts=self._texts)


class _Held:
    def __init__(self) -> None:
        self.parts: list[Histogram] = []
        self.kept = self.pending = 0
