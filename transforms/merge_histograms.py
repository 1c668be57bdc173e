"""The exact histogram, complete in groups of noise shards.

In:  `Histogram` parts, in any order and number; tallies among them are checked (`CombineShards`).
Out: (group, Histogram) for each group, empty ones included: the sum of the parts. Exact and private.

`WholeCells` makes fewer groups of them where the plan's domain has fewer cells than there are groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from hushgram.contributions.histogram import NOISE_SHARDS, Histogram
from hushgram.sparse_histogram.steps import PlannedRelease
from hushgram.transforms.shuffle import MERGE_ROWS, ROWS_PER_PIECE
from hushgram.transforms.shuffle.coders import HistogramCoder, SpilledBatch, Spilling
from hushgram.transforms.shuffle.combining import (
    TALLIES,
    CombineParts,
    CombineShards,
    LocalResources,
    OneWindow,
    Tally,
    groups_at,
    in_global_window,
    operator_counter,
    split_groups,
)

__all__ = ["MergeHistograms", "SumHistograms", "WholeCells"]


class MergeHistograms(beam.PTransform):
    """Parts → the complete histogram of each of ``groups`` groups.

    ``local`` and ``counters`` are as in `ReleaseSparseHistogram`.
    """

    def __init__(
        self, groups: int, *, texts: bool, local: LocalResources | None = None, counters: bool = False
    ) -> None:
        super().__init__()
        self._groups, self._texts, self._counters = groups, texts, counters
        self._spill = None if local is None else local.spill

    def expand(self, parts: Any) -> Any:
        grouped = tuple[int, bytes if self._spill is None else SpilledBatch]  # type: ignore[misc, valid-type]
        nothing = _CODER.encode(Histogram.empty(texts=self._texts)) if self._spill is None else _NOTHING
        every = (
            parts.pipeline
            | "Once" >> beam.Create([self._groups], reshuffle=False)
            | "EveryGroup" >> beam.FlatMap(_every_group, nothing).with_output_types(grouped)
        )
        some = (
            parts
            | "AllTime" >> OneWindow()
            | "SplitGroups"
            >> beam.ParDo(_Split(self._groups, self._spill, self._counters)).with_output_types(grouped)
        )
        return (
            (some, every)
            | "WithEmpty" >> beam.Flatten().with_output_types(grouped)
            | "SumGroups" >> CombineShards(SumHistograms(texts=self._texts), Histogram)
        )


_CODER, _NOTHING = HistogramCoder(), SpilledBatch("", 0, 0)


def _every_group(groups: int, nothing: Any) -> Iterator[tuple[int, Any]]:
    return ((group, nothing) for group in range(groups))


class _Split(Spilling):
    """Histogram → (group, part or where it is spilled); counts the records, for the operator alone."""

    def __init__(self, groups: int, spill: str | None, counters: bool) -> None:
        super().__init__(spill)
        self._groups, self._counters = groups, counters
        # Small parts are summed before they are split: every piece that is sent costs some microseconds.
        self._split_rows = min(groups * ROWS_PER_PIECE, MERGE_ROWS)

    def setup(self) -> None:
        self._records = operator_counter("records", self._counters)

    def start_bundle(self) -> None:
        super().start_bundle()
        self._held: list[Histogram] = []
        self._rows = 0

    def process(self, part: Histogram | Tally) -> Iterator[tuple[int, Any]]:
        if isinstance(part, Tally):
            yield TALLIES, self.sent(part, _CODER)
            return
        self._records.inc(int(part.counts.sum()))
        self._held.append(part)
        self._rows += len(part)
        if self._rows >= self._split_rows:
            yield from self._split()

    def finish_bundle(self) -> Iterator[Any]:
        for piece in self._split():
            yield in_global_window(piece)
        super().finish_bundle()

    def _split(self) -> Iterator[tuple[int, bytes | SpilledBatch]]:
        held, self._held, self._rows = self._held, [], 0
        if held:
            whole = held[0] if len(held) == 1 else Histogram.merge(held)
            for group, part in split_groups(whole, self._groups):
                yield group, self.sent(part, _CODER)


class SumHistograms(CombineParts):
    """Parts of one group → their sum."""

    def __init__(self, *, texts: bool) -> None:
        self._texts = texts

    def load(self, element: bytes | Histogram | SpilledBatch) -> Histogram:
        nothing = element == _NOTHING if isinstance(element, SpilledBatch) else False
        return Histogram.empty(texts=self._texts) if nothing else _CODER.load(element)

    def merge(self, parts: list[Histogram]) -> Histogram:
        return Histogram.merge(parts)

    def finish(self, parts: list[Histogram]) -> Histogram:
        return Histogram.merge(parts) if parts else Histogram.empty(texts=self._texts)


class WholeCells(beam.PTransform):
    """(group, Histogram) → the same in groups that have whole cells of the planned domain (`groups_at`).

    A cell must be in one noise shard. A domain of fewer cells than groups has few keys, by released numbers, and those
    cross one more shuffle. The plan is the same for every number of groups, so that no sketch shows it.
    """

    def __init__(self, planned: Any, groups: int, *, texts: bool) -> None:
        super().__init__()
        self._planned, self._groups, self._texts = planned, groups, texts

    def expand(self, shards: Any) -> Any:
        if self._groups <= NOISE_SHARDS:  # no domain has fewer cells
            return shards
        planned, grouped = beam.pvalue.AsSingleton(self._planned), tuple[int, Histogram]
        many, few = (
            shards | label >> beam.FlatMap(_regrouped, self._groups, planned, few).with_output_types(grouped)
            for label, few in (("ManyCells", False), ("FewCells", True))
        )
        few = few | "SumCells" >> CombineShards(SumHistograms(texts=self._texts), Histogram)
        return (many, few) | "Either" >> beam.Flatten().with_output_types(grouped)


def _regrouped(
    shard: tuple[int, Histogram], groups: int, planned: PlannedRelease, few: bool
) -> Iterator[tuple[int, Histogram]]:
    fewer = groups_at(groups, planned.plan)
    if (fewer < groups) == few:
        yield shard[0] * fewer // groups, shard[1]
