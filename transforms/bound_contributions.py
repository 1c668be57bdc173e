"""Contribution bounding: records to bounded histogram parts, one user at a time, before anything is summed.

In:  records of any form that `hushgram.transforms.shuffle.records` knows; or {"records": …, "tallies": …} with the
     tallies of their reader (`ReadRecords`), which are checked in the same shuffle.
Out: `Histogram` parts whose sum is the bounded histogram; where users are counted, {"main": these, "users": tallies of
     users by what they have}. Exact and private.

With a user column, each user counts at most C in all and L∞ for one key (`Contributions.bounded`): adding or
removing a user changes the sum by at most C in L1. Batches drop rows that cannot count before the shuffle, so
that a user with 10^8 records sends few rows per batch; after it, a shard of users is merged and pruned as
its parts stream in. What is dropped would not have counted (`Contributions.prune`), so neither batches nor shards
have an effect on the result.

Without one, a record is the privacy unit. It has one row, or as many as its reader bounded it to (`Columns.record`),
and values are still in grains (`Histogram.rounded`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc

from hushgram.contributions.bounding import BoundingSpec, Contributions
from hushgram.contributions.histogram import Histogram
from hushgram.errors import ParameterError
from hushgram.inputs import Check
from hushgram.sensitivity import ExactVector
from hushgram.sparse_histogram.params import Params
from hushgram.sparse_histogram.spec import ReleaseSpec
from hushgram.sparse_histogram.steps import tally_contributions
from hushgram.transforms.shuffle import KEPT_ROWS, ROWS_PER_PIECE, SHARDS_AT_ONCE, SPLIT_ROWS
from hushgram.transforms.shuffle.coders import ContributionsCoder, SpilledBatch, Spilling
from hushgram.transforms.shuffle.combining import (
    TALLIES,
    CombineParts,
    CombineShards,
    LocalResources,
    OneWindow,
    Tally,
    operator_counter,
    with_tallies,
)
from hushgram.transforms.shuffle.records import Columns, Fields, TakeBatches, check_fields

__all__ = ["BoundContributions", "BoundKept", "BoundUsers", "CountBounded"]

_CODER = ContributionsCoder()
# Batches that wait are split already, by ranges of so many shards: what is split at last fits a cache. With texts,
# whose tables would be split too, that does not pay.
_SHARDS_PER_RANGE = 64


class BoundContributions(beam.PTransform):
    """Records → parts of the bounded histogram.

    Args:
        spec: which columns are counted, and how much of one user.
        shards: groups of users in the shuffle; without an effect on the result.
        local: what the job may use where all workers share one machine; without an effect on the result.
        release: the release whose users are counted beside; left out, nobody is.
        keep: whether (shard, Contributions) of what can count come out, for a bound that is chosen later or for
            several metrics.
        check: the limits for rejected records; without users, the tallies travel with the parts and are checked by
            `MergeHistograms`.
        counters: as in `ReleaseSparseHistogram`.
    """

    def __init__(
        self,
        spec: BoundingSpec,
        shards: int = 16,
        local: LocalResources | None = None,
        *,
        release: ReleaseSpec | None = None,
        keep: bool = False,
        check: Check | None = None,
        counters: bool = False,
    ) -> None:
        super().__init__()
        self._spec, self._shards, self._local, self._keep = spec, shards, local or LocalResources(), keep
        self._release = release if release is not None and release.params.counts_users and not keep else None
        self._noted = {"check": check, "counters": counters}

    def expand(self, records: Any) -> Any:
        spec, local, tallies = self._spec, self._local, None
        if isinstance(records, dict):
            records, tallies = records["records"], records.get("tallies")
        check_fields(records.element_type, _fields(spec))
        if not records.is_bounded:
            raise ParameterError(
                f"{self.label}: the input is unbounded, and a release needs all of its data; write the stream to files "
                "and release each period from those"
            )
        records = records | "AllTime" >> OneWindow()
        if spec.user is None:
            count = beam.ParDo(_CountBatches(spec, local, **self._noted)).with_output_types(Histogram)
            parts = records | "Take" >> count  # Histogram
            return parts if tallies is None else _among(parts, tallies)
        sent = bytes if local.spill is None else SpilledBatch
        keyed, first = tuple[int, sent], min(self._shards, SHARDS_AT_ONCE)  # type: ignore[valid-type]
        prune = beam.ParDo(_PruneBatches(spec, first, local, **self._noted))
        parts = records | "Take" >> prune.with_output_types(keyed)
        if tallies is not None:
            parts = with_tallies(parts, tallies, _CODER.encode if local.spill is None else None)
        if first < self._shards:
            split = beam.ParDo(_SplitRanges(self._shards, local.spill)).with_output_types(keyed)
            parts = parts | "GroupRanges" >> beam.GroupByKey() | "SplitRanges" >> split
        output = Contributions if self._keep else Histogram
        users = BoundUsers(spec, keep=self._keep, release=self._release)
        beside = None if self._release is None else ("users", ExactVector)
        bound = CombineShards(users, output, threads=local.threads, together=not self._keep, beside=beside)
        shards = parts | "BoundUsers" >> bound  # (shard, Histogram or Contributions)
        if self._release is not None:
            main = shards["main"] | "DropShard" >> beam.Values().with_output_types(Histogram)
            return {"main": main, "users": shards["users"]}
        if self._keep:
            cut = beam.FlatMap(_cut, self._shards)
            return shards | "CutShards" >> cut.with_output_types(tuple[int, Contributions])
        return shards | "DropShard" >> beam.Values().with_output_types(Histogram)

    def display_data(self) -> dict[str, Any]:
        most = self._spec.bounds[0]
        return {"max_contributions": most.max_contributions, "max_per_key": most.max_per_key}


def _cut(element: tuple[int, Contributions], shards: int) -> Iterator[tuple[int, Contributions]]:
    """Yield a shard in parts of whole users with numbers of their own, the same in every attempt."""
    shard, rows = element
    return ((shard + i * shards, part) for i, part in enumerate(rows.cut_users(KEPT_ROWS)))


def _among(parts: Any, tallies: Any) -> Any:
    """Return parts and tallies as one collection, for `MergeHistograms`."""
    same = tallies | "NoteTallies" >> beam.Map(lambda tally: tally)
    whole = (parts, same) | "WithTallies" >> beam.Flatten()
    same.element_type = whole.element_type = parts.element_type
    return whole


class BoundKept(beam.PTransform):
    """(shard, Contributions) of all users → parts of the bounded histogram of one metric.

    ``params`` is a collection of the `Params` with C, or None where the specification states it.
    """

    def __init__(self, spec: ReleaseSpec, metric: int, params: Any = None) -> None:
        super().__init__()
        self._spec, self._metric, self._params = spec, metric, params

    def expand(self, kept: Any) -> Any:
        params = None if self._params is None else beam.pvalue.AsSingleton(self._params)
        bound = beam.Map(_bound_kept, self._spec, self._metric, params)
        return kept | "BoundKept" >> bound.with_output_types(Histogram)


def _bound_kept(
    shard: tuple[int, Contributions], spec: ReleaseSpec, metric: int, params: Params | None
) -> Histogram:
    return shard[1].metric(metric).bounded(spec.bounds(params))


class CountBounded(beam.PTransform):
    """Parts of the bounded histogram → the same; counts their records, for the operator alone.

    For jobs without `MergeHistograms`, which counts them too.
    """

    def expand(self, parts: Any) -> Any:
        return parts | "CountBounded" >> beam.ParDo(_CountBounded()).with_output_types(Histogram)


class _CountBounded(beam.DoFn):
    def setup(self) -> None:
        self._records = operator_counter("records", True)

    def process(self, part: Histogram) -> Iterator[Histogram]:
        self._records.inc(int(part.counts.sum()))
        yield part


class BoundUsers(CombineParts):
    """Contributions of one shard of users → its bounded histogram, or with ``keep`` what can count of them; for
    ``release`` the bounded histogram and the tally of its users."""

    def __init__(self, spec: BoundingSpec, *, keep: bool = False, release: ReleaseSpec | None = None) -> None:
        self._bounds, self._texts, self._keep, self._release = spec.bounds, spec.texts, keep, release

    def load(self, element: bytes | Contributions | SpilledBatch) -> Contributions:
        return _CODER.load(element)  # type: ignore[no-any-return]

    def merge(self, parts: list[Contributions]) -> Contributions:
        return self._whole(parts).prune(*self._bounds)

    def finish(self, parts: list[Contributions]) -> Contributions | Histogram | tuple[Histogram, ExactVector]:
        if self._keep:
            return self.merge(parts)
        if self._release is not None:
            rows = self.merge(parts)
            return rows.bounded(self._release.bounds()), tally_contributions(rows, self._release)
        if not parts:
            return Histogram.empty(texts=self._texts)
        return self._whole(parts).bounded(self._bounds[0])

    def _whole(self, parts: list[Contributions]) -> Contributions:
        """Return all rows of the parts, which are let go."""
        whole = Contributions.concat(parts)
        parts.clear()
        return whole


def _fields(spec: BoundingSpec) -> Fields:
    return Fields(spec.user, spec.key, spec.value_columns)


class _PruneBatches(TakeBatches, Spilling):
    """Records → (user shard, Contributions or the spilled batch that holds them), without rows that cannot count."""

    def __init__(self, spec: BoundingSpec, shards: int, local: LocalResources, **noted: Any) -> None:
        TakeBatches.__init__(self, _fields(spec), threads=local.threads, **noted)
        Spilling.__init__(self, local.spill)
        self._spec, self._shards = spec, shards
        self._split_rows = min(shards * ROWS_PER_PIECE, SPLIT_ROWS)
        self._ranges = 1 if spec.texts else max(1, shards // _SHARDS_PER_RANGE)

    def setup(self) -> None:
        super().setup()
        self._offered = operator_counter("offered", self._counters)

    def start_bundle(self) -> None:
        TakeBatches.start_bundle(self)
        Spilling.start_bundle(self)
        self._waiting: dict[int, list[Contributions]] = {}
        self._rows_waiting = 0

    def _accept(self, columns: Columns) -> Iterator[Any]:
        if self._counters:
            self._offered.inc(_offered(columns, self._spec))
        yield from super()._accept(columns)

    def finish_bundle(self) -> Iterator[Any]:
        yield from TakeBatches.finish_bundle(self)
        Spilling.finish_bundle(self)

    def send_tally(self, tally: Tally) -> tuple[int, Tally | bytes]:
        return TALLIES, self.sent(tally, _CODER)

    def work(self, columns: list[Columns]) -> tuple[bool, list[tuple[int, Contributions]]]:
        """Return the shards of a batch that is large enough; of others, what has to wait."""
        parts = [self._spec.contributions(part.users, part.keys, part.values) for part in columns]
        whole = Contributions.concat(parts).prune_if_many(*self._spec.bounds)
        if len(whole) >= self._split_rows:
            return True, whole.split_users(self._shards)
        return False, [(0, whole)] if self._ranges == 1 else whole.split_users(self._ranges)

    def send(
        self, result: tuple[bool, list[tuple[int, Contributions]]]
    ) -> Iterator[tuple[int, bytes | SpilledBatch]]:
        ready, parts = result
        for shard, part in parts:
            if ready:
                yield shard, self.sent(part, _CODER)
            else:
                self._waiting.setdefault(shard, []).append(part)
                self._rows_waiting += len(part)
        if self._rows_waiting >= self._split_rows:
            yield from self._split_waiting()

    def _last(self) -> Iterator[Any]:
        yield from super()._last()
        yield from self._split_waiting()

    def _split_waiting(self) -> Iterator[Any]:
        waiting, self._waiting, self._rows_waiting = self._waiting, {}, 0
        for parts in waiting.values():
            yield from self.send((True, Contributions.concat(parts).split_users(self._shards)))


class _SplitRanges(Spilling):
    """(range of user shards, its parts) → (user shard, its parts); tallies pass through."""

    def __init__(self, shards: int, spill: str | None) -> None:
        super().__init__(spill)
        self._shards = shards

    def process(self, group: tuple[int, Iterable[Any]]) -> Iterator[tuple[int, Any]]:
        number, parts = group
        held: list[Contributions] = []
        rows = 0
        for part in parts:
            if number == TALLIES:
                yield TALLIES, part
                continue
            held.append(_CODER.load(part))
            rows += len(held[-1])
            if rows >= SPLIT_ROWS:
                yield from self._split(held)
                held, rows = [], 0
        if held:
            yield from self._split(held)

    def _split(self, held: list[Contributions]) -> Iterator[tuple[int, Any]]:
        for shard, part in Contributions.concat(held).split_users(self._shards):
            yield shard, self.sent(part, _CODER)


# Counters have 64 bits, and no value may decide whether a job fails.
_MOST_OFFERED = 1 << 48


def _offered(columns: Columns, spec: BoundingSpec) -> int:
    """Return what records add before bounding: themselves, or their values in multiples. For the operator alone."""
    if spec.values[0] is None:
        return len(columns)
    name, grid = spec.values[0]
    values = columns.values[spec.value_columns.index(name)].cast(pa.float64(), safe=False)
    return int(min(float(pc.sum(values).as_py() or 0) / float(grid.granularity), _MOST_OFFERED))


class _CountBatches(TakeBatches):
    """Records → Histogram parts in which every record counts one, or its value in grains."""

    def __init__(self, spec: BoundingSpec, local: LocalResources, **noted: Any) -> None:
        super().__init__(_fields(spec), threads=local.threads, **noted)
        self._spec = spec

    def work(self, columns: list[Columns]) -> Histogram:
        return Histogram.merge(self._spec.histogram(part.keys, part.values, part.record) for part in columns)

    def send(self, result: Histogram) -> Iterator[Histogram]:
        yield result
