"""Contribution bounding: records to bounded histogram parts, one user at a time, before anything is summed.

In:  records of any form that `hushgram.transforms.columns` knows.
Out: `Histogram` parts whose sum is the bounded histogram. Exact and private.

With a user column, each user counts at most C in all and L∞ for one key (`Contributions.bounded`): adding or
removing a user changes the sum by at most C in L1. Batches are cut to C keys a user before the shuffle, so
that a user with 10^8 records sends at most C rows a batch; after it, a shard of users is merged and cut as
its parts stream in. The rule looks at one user's records alone and merges, so neither batches nor shards have
an effect on the result.

Without one, a record is the unit of privacy, and each counts one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from hushgram.entropy import ReleaseKey
from hushgram.histogram import Contributions, Histogram
from hushgram.transforms import coders as _coders  # noqa: F401 (registers the coders)
from hushgram.transforms.columns import Columns, RowBuffer, columns_of
from hushgram.transforms.combining import CombineShards

__all__ = ["BoundContributions", "BoundUsers", "CountRecords"]

# Small batches are put together up to this many rows before they are cut and sent.
_ROWS_HELD = 1 << 17
# An accumulator is cut when it has grown by this many rows, and by as much as it kept.
_ROWS_PENDING = 1 << 21


class BoundContributions(beam.PTransform):
    """Records → parts of the bounded histogram, with user-level privacy.

    ``secret`` keys the users' tokens and the order in which a user's keys are kept. ``shards`` groups users
    for the shuffle and has no effect on the result.
    """

    def __init__(
        self,
        user: str,
        key: str,
        secret: ReleaseKey,
        *,
        most: int,
        most_per_key: int,
        texts: bool,
        shards: int,
    ) -> None:
        super().__init__()
        self._cut = _CutUsers(user, key, secret, most=most, texts=texts, shards=shards)
        self._bound = BoundUsers(most, most_per_key, texts=texts)
        self._shown = {"max_contributions": most, "max_per_key": most_per_key}

    def expand(self, records: Any) -> Any:
        return (
            records
            | "CutBatches" >> beam.ParDo(self._cut).with_output_types(tuple[int, Contributions])
            | "BoundUsers" >> CombineShards(self._bound, Histogram)  # (user shard, Histogram)
            | "DropShard" >> beam.Values().with_output_types(Histogram)
        )

    def display_data(self) -> dict[str, Any]:
        return dict(self._shown)


class CountRecords(beam.PTransform):
    """Records → parts of the histogram in which every record counts one."""

    def __init__(self, key: str, *, texts: bool) -> None:
        super().__init__()
        self._key, self._texts = key, texts

    def expand(self, records: Any) -> Any:
        return records | "CountBatches" >> beam.ParDo(
            _CountBatches(self._key, texts=self._texts)
        ).with_output_types(Histogram)


class BoundUsers(beam.CombineFn):
    """Contributions of one shard of users → its bounded histogram. Merges; order has no effect."""

    def __init__(self, most: int, most_per_key: int, *, texts: bool) -> None:
        self._most, self._most_per_key, self._texts = most, most_per_key, texts

    def create_accumulator(self) -> _Held:
        return _Held()

    def add_input(self, held: _Held, part: Contributions) -> _Held:
        held.add(part)
        if held.pending > max(_ROWS_PENDING, held.kept):
            held.cut(self._most)
        return held

    def merge_accumulators(self, accumulators: Any) -> _Held:
        out = _Held()
        for held in accumulators:
            for part in held.parts:
                out = self.add_input(out, part)
        return out

    def compact(self, held: _Held) -> _Held:
        held.cut(self._most)
        return held

    def extract_output(self, held: _Held) -> Histogram:
        if not held.parts:
            return Histogram.empty(texts=self._texts)
        return Contributions.concat(held.parts).bounded(self._most, self._most_per_key)


class _Held:
    """Parts of a shard, some of them cut already."""

    def __init__(self) -> None:
        self.parts: list[Contributions] = []
        self.kept = self.pending = 0

    def add(self, part: Contributions) -> None:
        self.parts.append(part)
        self.pending += len(part.keys)

    def cut(self, most: int) -> None:
        if self.parts:
            self.parts = [Contributions.concat(self.parts).cut(most)]
            self.kept, self.pending = len(self.parts[0].keys), 0


class _Batches(beam.DoFn):
    """Takes records of any form; a subclass takes columns in `take` and gives elements in `flush`."""

    def __init__(self, user: str | None, key: str) -> None:
        self._user, self._key = user, key

    def setup(self) -> None:
        self._bad = Metrics.counter("hushgram", "bad")

    def start_bundle(self) -> None:
        self._rows = RowBuffer(self._user, self._key)
        self._held: list[Any] = []
        self._count = 0

    def process(self, record: Any) -> Iterator[Any]:
        if isinstance(record, pa.RecordBatch | pa.Table):
            yield from self._accept(columns_of(record, self._user, self._key))
        elif self._rows.add(record):
            yield from self._accept(self._rows.take())

    def finish_bundle(self) -> Iterator[WindowedValue]:
        window = GlobalWindow()
        for element in (*self._accept(self._rows.take()), *self._flush()):
            yield WindowedValue(element, window.max_timestamp(), (window,))

    def _accept(self, columns: Columns) -> Iterator[Any]:
        if columns.bad:
            self._bad.inc(columns.bad)
        if len(columns):
            self._held.append(self.take(columns))
            self._count += len(columns)
        if self._count >= _ROWS_HELD:
            yield from self._flush()

    def _flush(self) -> Iterator[Any]:
        held, self._held, self._count = self._held, [], 0
        if held:
            yield from self.flush(held)

    def take(self, columns: Columns) -> Any:
        raise NotImplementedError

    def flush(self, held: list[Any]) -> Iterator[Any]:
        raise NotImplementedError


class _CutUsers(_Batches):
    """Records → (user shard, Contributions), cut to C keys a user."""

    def __init__(
        self, user: str, key: str, secret: ReleaseKey, *, most: int, texts: bool, shards: int
    ) -> None:
        super().__init__(user, key)
        self._secret, self._most, self._texts, self._shards = secret, most, texts, shards

    def take(self, columns: Columns) -> Contributions:
        return Contributions.of(columns.users, columns.keys, self._secret, texts=self._texts)

    def flush(self, held: list[Contributions]) -> Iterator[tuple[int, Contributions]]:
        yield from Contributions.concat(held).thinned(self._most).split_users(self._shards)


class _CountBatches(_Batches):
    """Records → Histogram parts."""

    def __init__(self, key: str, *, texts: bool) -> None:
        super().__init__(None, key)
        self._texts = texts

    def take(self, columns: Columns) -> Histogram:
        return Histogram.of_column(columns.keys, texts=self._texts)

    def flush(self, held: list[Histogram]) -> Iterator[Histogram]:
        yield Histogram.merge(held)
