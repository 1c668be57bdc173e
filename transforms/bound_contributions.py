"""Contribution bounding: records to bounded histogram parts, one user at a time, before anything is summed.

In:  records of any form that `hushgram.transforms.shuffle.columns` knows.
Out: `Histogram` parts whose sum is the bounded histogram. Exact and private.

With a user column, each user counts at most C in all and L∞ for one key (`Contributions.bounded`): adding or
removing a user changes the sum by at most C in L1. Batches drop what cannot count before the shuffle, so
that a user with 10^8 records sends few rows per batch; after it, a shard of users is merged and cut as
its parts stream in. What is dropped would not have counted (`Contributions.cut`), so neither batches nor shards
have an effect on the result.

Without one, a record is the privacy unit. It has one row, or as many as its reader bounded it to (`Columns.record`).

Where values are added up, or several metrics are made of the same records, `Value`s say what each record counts; users
are then bounded in whole units (`hushgram.exact.weights`), and histograms without users are still in grains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam

from hushgram.exact.contributions import Bounds, Contributions
from hushgram.exact.histogram import Histogram, KeyTable
from hushgram.exact.weights import Grid
from hushgram.noise.entropy import ReleaseKey
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.steps import ChosenParams, bounds, count_records, only_public_keys
from hushgram.transforms.shuffle.batching import LocalResources, TakeBatches, Taken
from hushgram.transforms.shuffle.coders import ContributionsCoder, pack_buffers
from hushgram.transforms.shuffle.columns import Columns, Fields, check_fields
from hushgram.transforms.shuffle.combining import CombineShards
from hushgram.transforms.shuffle.spill import SpilledBatch, SpillWriter
from hushgram.transforms.shuffle.vectors import OneWindow

__all__ = ["BoundContributions", "BoundHeld", "BoundUsers", "CountRecords", "HoldContributions", "Value"]

#: What a record counts: a column of values with their grid, or None for one each.
Value = tuple[str, Grid] | None

_CODER = ContributionsCoder()
_ANYWHERE = LocalResources()
# An accumulator is cut when it has grown by this many rows, and by as much as it kept.
_ROWS_PENDING = 1 << 21


class BoundContributions(beam.PTransform):
    """Records → parts of the bounded histogram, with user-level privacy.

    ``release_key`` keys the users' tokens and the order in which a user's keys are kept. ``shards`` groups users
    for the shuffle and has no effect on the result. With ``public_keys``, records of other keys are left out first.
    ``values`` are the metrics, each with its ``bounds``; `expand` gives the first. ``taken`` tells what was set aside.
    """

    def __init__(
        self,
        user: str,
        key: str,
        release_key: ReleaseKey,
        *bounds: Bounds,
        texts: bool,
        shards: int,
        public_keys: KeyTable | None = None,
        values: Sequence[Value] = (None,),
        local: LocalResources = _ANYWHERE,
    ) -> None:
        super().__init__()
        self._fields = Fields(user, key, value_columns(values))
        self._cut = _CutUsers(
            self._fields,
            values,
            release_key,
            bounds,
            texts=texts,
            shards=shards,
            public_keys=public_keys,
            local=local,
        )
        self._threads = local.threads
        sent = Contributions if local.spill is None else SpilledBatch
        self.taken = Taken(self._cut, tuple[int, sent])  # type: ignore[valid-type]
        self._bound = BoundUsers(*bounds, texts=texts)
        self._shown = {"max_contributions": bounds[0].max_contributions, "max_per_key": bounds[0].max_per_key}

    def expand(self, records: Any) -> Any:
        shards = self.combined(records, keep=False)  # (shard, Histogram)
        return shards | "DropShard" >> beam.Values().with_output_types(Histogram)

    def combined(self, records: Any, *, keep: bool) -> Any:
        """(shard, bounded Histogram), or with ``keep`` (shard, Contributions) of what can count."""
        check_fields(records.element_type, self._fields)
        merge, out = (_KeepUsers(self._bound), Contributions) if keep else (self._bound, Histogram)
        return (
            records
            | "AllTime" >> OneWindow()
            | "CutBatches" >> self.taken
            | "BoundUsers" >> CombineShards(merge, out, threads=self._threads)
        )

    def display_data(self) -> dict[str, Any]:
        return dict(self._shown)


class HoldContributions(beam.PTransform):
    """Records → (shard, Contributions) of all users, cut to what can count: C is chosen later.

    Takes what `BoundContributions` takes. Exact and private.
    """

    def __init__(self, bounding: BoundContributions) -> None:
        super().__init__()
        self._bounding = bounding

    def expand(self, records: Any) -> Any:
        return self._bounding.combined(records, keep=True)


class BoundHeld(beam.PTransform):
    """(shard, Contributions) that `HoldContributions` kept → parts of the histogram of one metric, bounded.

    ``params`` are parameters, or a collection of one `ChosenParams`.
    """

    def __init__(self, params: Any, release_key: ReleaseKey, metric: int = 0) -> None:
        super().__init__()
        self._params, self._release_key, self._metric = params, release_key, metric

    def expand(self, held: Any) -> Any:
        stated = isinstance(self._params, ReleaseParams)
        chosen = self._params if stated else beam.pvalue.AsSingleton(self._params)
        step = beam.ParDo(_BoundHeld(self._release_key, self._metric), chosen=chosen)
        return held | "CutToChosen" >> step.with_output_types(Histogram)


class _BoundHeld(beam.DoFn):
    def __init__(self, release_key: ReleaseKey, metric: int) -> None:
        self._release_key, self._metric = release_key, metric

    def process(
        self, shard: tuple[int, Contributions], chosen: ChosenParams | ReleaseParams
    ) -> Iterator[Histogram]:
        params = chosen.params if isinstance(chosen, ChosenParams) else chosen
        yield shard[1].metric(self._metric).bounded(bounds(params, self._release_key))


class CountRecords(beam.PTransform):
    """Records → parts of the histogram in which every record counts one, or its value in grains."""

    def __init__(
        self,
        key: str,
        *,
        texts: bool,
        public_keys: KeyTable | None = None,
        value: Value = None,
        release_key: ReleaseKey | None = None,
        local: LocalResources = _ANYWHERE,
    ) -> None:
        super().__init__()
        self._fields = Fields(None, key, value_columns((value,)))
        count = _CountBatches(
            self._fields, value, release_key, texts=texts, public_keys=public_keys, local=local
        )
        self.taken = Taken(count, Histogram)

    def expand(self, records: Any) -> Any:
        check_fields(records.element_type, self._fields)
        whole = records | "AllTime" >> OneWindow()
        return whole | "CountBatches" >> self.taken


class BoundUsers(beam.CombineFn):
    """Contributions of one shard of users → its bounded histogram. Merges; order has no effect."""

    def __init__(self, *bounds: Bounds, texts: bool) -> None:
        self._bounds, self._texts = bounds, texts

    def create_accumulator(self) -> _Held:
        return _Held()

    def add_input(self, held: _Held, part: Contributions | SpilledBatch) -> _Held:
        held.add(_CODER.decode(part.read()) if isinstance(part, SpilledBatch) else part)
        if held.pending > max(_ROWS_PENDING, held.kept):
            held.cut(self._bounds)
        return held

    def merge_accumulators(self, accumulators: Any) -> _Held:
        out = _Held()
        for held in accumulators:
            for part in held.parts:
                out = self.add_input(out, part)
        return out

    def compact(self, held: _Held) -> _Held:
        held.cut(self._bounds)
        return held

    def extract_output(self, held: _Held) -> Histogram:
        if not held.parts:
            return Histogram.empty(texts=self._texts)
        return Contributions.concat(held.parts).bounded(self._bounds[0])


class _KeepUsers(BoundUsers):
    """The same, but the contributions themselves come out, cut to what can count."""

    def __init__(self, bound: BoundUsers) -> None:
        self.__dict__.update(bound.__dict__)

    def extract_output(self, held: _Held) -> Contributions:  # type: ignore[override]
        return Contributions.concat(held.parts).cut(*self._bounds)


class _Held:
    """Parts of a shard, some of them cut already."""

    def __init__(self) -> None:
        self.parts: list[Contributions] = []
        self.kept = self.pending = 0

    def add(self, part: Contributions) -> None:
        self.parts.append(part)
        self.pending += len(part.keys)

    def cut(self, bounds: Sequence[Bounds]) -> None:
        if self.parts:
            self.parts = [Contributions.concat(self.parts).cut(*bounds)]
            self.kept, self.pending = len(self.parts[0].keys), 0


class _CutUsers(TakeBatches):
    """Records → (user shard, Contributions or the spilled batch that holds them), cut to what can count."""

    def __init__(
        self,
        fields: Fields,
        values: Sequence[Value],
        release_key: ReleaseKey,
        bounds: Sequence[Bounds],
        *,
        texts: bool,
        shards: int,
        public_keys: KeyTable | None,
        local: LocalResources,
    ) -> None:
        super().__init__(fields, threads=local.threads)
        self._values, self._bounds = tuple(values), tuple(bounds)
        self._release_key, self._texts, self._shards = release_key, texts, shards
        self._public_keys, self._spill = public_keys, local.spill

    def start_bundle(self) -> None:
        super().start_bundle()
        self._writer = None if self._spill is None else SpillWriter(self._spill)

    def finish_bundle(self) -> Iterator[Any]:
        yield from super().finish_bundle()
        if self._writer is not None:
            self._writer.close()

    def work(self, columns: list[Columns]) -> list[tuple[int, Contributions]]:
        parts = []
        for part in columns:
            users, keys, found = _chosen(part, self._public_keys)
            values = [_of_value(value, self._fields, found) for value in self._values]
            parts.append(Contributions.of(users, keys, self._release_key, texts=self._texts, values=values))
        whole = Contributions.concat(parts)
        return whole.thinned(*self._bounds).split_users(self._shards)

    def send(
        self, result: list[tuple[int, Contributions]]
    ) -> Iterator[tuple[int, Contributions | SpilledBatch]]:
        for shard, part in result:
            if self._writer is None:
                yield shard, part
            else:
                yield shard, self._writer.put(pack_buffers(_CODER.to_arrays(part)))


class _CountBatches(TakeBatches):
    """Records → Histogram parts."""

    def __init__(
        self,
        fields: Fields,
        value: Value,
        release_key: ReleaseKey | None,
        *,
        texts: bool,
        public_keys: KeyTable | None,
        local: LocalResources,
    ) -> None:
        super().__init__(fields, threads=local.threads)
        self._value, self._release_key = value, release_key
        self._texts, self._public_keys = texts, public_keys

    def work(self, columns: list[Columns]) -> Histogram:
        return Histogram.merge(map(self._counted, columns))

    def _counted(self, columns: Columns) -> Histogram:
        _, keys, found = _chosen(columns, self._public_keys)
        weights = _of_value(self._value, self._fields, found)
        return count_records(keys, weights, self._release_key, texts=self._texts, rows=columns.record)

    def send(self, result: Histogram) -> Iterator[Histogram]:
        yield result


def value_columns(values: Sequence[Value]) -> tuple[str, ...]:
    """The columns of values, each once."""
    return tuple(dict.fromkeys(value[0] for value in values if value is not None))


def _of_value(value: Value, fields: Fields, columns: Sequence[Any]) -> tuple[Any, Grid] | None:
    return None if value is None else (columns[fields.values.index(value[0])], value[1])


def _chosen(columns: Columns, public_keys: KeyTable | None) -> tuple[Any, Any, Sequence[Any]]:
    """Users, keys, values; with a list, only records of listed keys: others use up nothing of a user's bounds."""
    if public_keys is None:
        return columns.users, columns.keys, columns.values
    keys, users, *values = only_public_keys(columns.keys, public_keys, columns.users, *columns.values)
    return users, keys, values
