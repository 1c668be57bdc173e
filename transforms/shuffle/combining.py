"""Group shards and combine each as it streams in.

Beam's own CombinePerKey puts a table of accumulators before the shuffle that is bounded in keys, not in bytes
(apache/beam #39754). Our keys are few and our accumulators large, so that table would hold a worker's whole
input. Here the stages combine before the shuffle by themselves, within a number of rows, and after it a
group's values are taken in one by one, so that the CombineFn can compact and nothing holds more than a shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from hushgram.transforms.shuffle.batching import OrderedPool

__all__ = ["CombineShards"]


class CombineShards(beam.PTransform):
    """(shard, part) → (shard, combined), of type ``output``: CombinePerKey without its table.

    ``threads`` shards are finished at a time, where more than one.
    """

    def __init__(self, fn: beam.CombineFn, output: type, *, threads: int = 1) -> None:
        super().__init__()
        self._combine = _Combine(fn, threads)
        self._output = output

    def expand(self, parts: Any) -> Any:
        return (
            parts
            | "Group" >> beam.GroupByKey()  # (shard, iterable of parts)
            | "Combine" >> beam.ParDo(self._combine).with_output_types(tuple[int, self._output])  # type: ignore[name-defined]
        )


class _Combine(beam.DoFn):
    def __init__(self, fn: beam.CombineFn, threads: int) -> None:
        self._fn, self._threads = fn, threads

    def start_bundle(self) -> None:
        self._pool = OrderedPool(self._finish, self._threads)

    def process(self, group: tuple[int, Iterable[Any]]) -> Iterator[tuple[int, Any]]:
        shard, parts = group
        held = self._fn.create_accumulator()
        for part in parts:
            held = self._fn.add_input(held, part)
        yield from self._pool.give((shard, held))

    def finish_bundle(self) -> Iterator[Any]:
        try:
            for result in self._pool.rest():
                yield WindowedValue(result, GlobalWindow().max_timestamp(), (GlobalWindow(),))
        finally:
            self._pool.close()

    def _finish(self, item: tuple[int, Any]) -> tuple[int, Any]:
        shard, held = item
        return shard, self._fn.extract_output(held)
