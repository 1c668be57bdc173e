"""The first DoFn of a job: records of any form in, work on columns of a good size."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindow
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type
from apache_beam.utils.windowed_value import WindowedValue

from hushgram.inputs import Tally
from hushgram.transforms.shuffle.columns import Columns, Fields, RowBuffer, columns_of

__all__ = ["LocalResources", "OrderedPool", "TakeBatches", "Taken"]


class OrderedPool:
    """Calls ``work`` on what is given, ``threads`` at a time, and hands results back in order.

    With one thread the work is done at once and in the caller's thread.
    """

    def __init__(self, work: Callable[[Any], Any], threads: int) -> None:
        self._work, self._threads = work, threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._waiting: deque[Future[Any]] = deque()

    def give(self, item: Any) -> Iterator[Any]:
        """Take one item; yield what is ready, waiting only where too much is under way."""
        if self._pool is None:
            yield self._work(item)
            return
        self._waiting.append(self._pool.submit(self._work, item))
        while len(self._waiting) > self._threads:
            yield self._waiting.popleft().result()

    def rest(self) -> Iterator[Any]:
        """Everything that is under way."""
        while self._waiting:
            yield self._waiting.popleft().result()

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


# Small batches are put together up to this many rows, and large tables taken in pieces of so many.
_ROWS_LEAST, _ROWS_MOST = 1 << 17, 1 << 20


@dataclass(frozen=True)
class LocalResources:
    """What a job may use where all workers share one machine. None of it has an effect on the result.

    ``threads`` work on batches beside the one that reads them; ``spill`` is a private directory for batches
    that are shuffled by reference.
    """

    threads: int = 1
    spill: str | None = None


class TakeBatches(beam.DoFn):
    """Collects records into columns; a subclass does `work` on some of them (in any thread) and `send`s the
    result.

    Records that cannot be counted are set aside under the counter ``bad``; what was taken in a bundle is told on the
    output ``tally`` (`Taken`).
    """

    def __init__(self, fields: Fields, *, threads: int) -> None:
        self._fields, self._threads = fields, threads

    def work(self, columns: list[Columns]) -> Any:
        """Something made from one or more batches of columns; called in any thread."""
        raise NotImplementedError

    def send(self, result: Any) -> Iterator[Any]:
        """The elements of a result."""
        raise NotImplementedError

    def setup(self) -> None:
        self._bad = Metrics.counter("hushgram", "bad")

    def start_bundle(self) -> None:
        self._rows = RowBuffer(self._fields)
        self._held: list[Columns] = []
        self._count = 0
        self._tally = Tally()
        self._pool = OrderedPool(self.work, self._threads)

    def process(self, record: Any) -> Iterator[Any]:
        if isinstance(record, pa.RecordBatch | pa.Table):
            for start in range(0, record.num_rows, _ROWS_MOST):
                piece = record.slice(start, _ROWS_MOST)
                yield from self._accept(columns_of(piece, self._fields))
        elif self._rows.add(record):
            yield from self._accept(self._rows.take())

    def finish_bundle(self) -> Iterator[Any]:
        try:
            for element in self._last():
                yield _in_global_window(element)
            yield beam.pvalue.TaggedOutput("tally", _in_global_window(self._tally))
        finally:
            self._pool.close()

    def _last(self) -> Iterator[Any]:
        yield from self._accept(self._rows.take())
        if self._held:
            yield from self._do()
        for result in self._pool.rest():
            yield from self.send(result)

    def _accept(self, columns: Columns) -> Iterator[Any]:
        self._tally.add(len(columns), columns.reasons)
        if columns.bad:
            self._bad.inc(columns.bad)
        if len(columns):
            self._held.append(columns)
            self._count += len(columns)
        if self._count >= _ROWS_LEAST:
            yield from self._do()

    def _do(self) -> Iterator[Any]:
        held, self._held, self._count = self._held, [], 0
        for result in self._pool.give(held):
            yield from self.send(result)


def _in_global_window(element: Any) -> WindowedValue:
    return WindowedValue(element, GlobalWindow().max_timestamp(), (GlobalWindow(),))


class Taken(beam.PTransform):
    """Records → what a `TakeBatches` makes of them, of type ``output``; then ``tallies`` is what it took."""

    def __init__(self, take: TakeBatches, output: Any) -> None:
        super().__init__()
        self._take, self._output = take, output
        self.tallies: Any = None

    def expand(self, records: Any) -> Any:
        taken = records | "Take" >> beam.ParDo(self._take).with_outputs("tally", main="taken")
        taken.taken.element_type = convert_to_beam_type(self._output)
        self.tallies = taken.tally
        return taken.taken
