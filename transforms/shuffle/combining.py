"""Shards of a shuffle, and how they are combined: groups, sums, digests, one window, and the check of what was read.

A group of the shuffle is a range of whole noise shards. The number of groups follows the size of the input. Noise must
not depend on the runner: up to `NOISE_SHARDS` groups, that many noise shards are fixed. Above that, for input of 16 GiB
and more, each group is a noise shard, so that no element has more than some tens of MB.

Beam's own CombinePerKey puts a table of accumulators before the shuffle that is bounded in keys, not in bytes
(apache/beam #39754). Our keys are few and our accumulators large, so that table would hold a worker's whole input. Here
the stages combine before the shuffle by themselves, within a number of rows, and after it a group's values are taken in
one by one, so that the CombineFn can compact and nothing holds more than a shard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import FixedWindows, GlobalWindow, GlobalWindows, Sessions
from apache_beam.utils.windowed_value import WindowedValue

from hushgram.contributions.histogram import NOISE_SHARDS, Histogram, KeyTable, range_ends
from hushgram.errors import ParameterError
from hushgram.inputs import Check, RecordCounts
from hushgram.key_selection.threshold import Heavy
from hushgram.noise.entropy import digest
from hushgram.sensitivity import CONSTANT, ExactVector
from hushgram.sparse_histogram.plan import Plan
from hushgram.sparse_histogram.sizing import Survey
from hushgram.transforms.files import open_file

__all__ = [
    "TALLIES", "CheckTallies", "CombineParts", "CombineShards", "DigestAll", "DigestShards", "LocalResources",
    "OneWindow", "OrderedPool", "Shards", "SumAll", "SumParts", "Tally", "groups_at", "in_global_window", "no_survey",
    "noise_parts", "noise_shards", "operator_counter", "shards_for", "split_groups", "survey_group", "with_tallies",
    "zero_vector",
]  # fmt: skip

#: Rows that wait to be merged.
MAX_PENDING = 1 << 21
# Shards that are combined together have this many rows: few passes over arrays that still fit a cache.
_TOGETHER = 1 << 16
# One shard of users per this many bytes of input keeps a shard near half a million rows.
_BYTES_PER_SHARD = 8 << 20
_MIN_SHARDS, _MAX_SHARDS = 4, 1 << 16
# One group per four of those, where that is more than NOISE_SHARDS.
_BYTES_PER_GROUP, _MAX_GROUPS = 4 * _BYTES_PER_SHARD, 1 << 14


_Rows = TypeVar("_Rows", Histogram, Heavy, KeyTable)


@dataclass(frozen=True)
class Shards:
    """Shards of the shuffles: of users, and groups of noise shards (a power of two up to 16,384).

    Neither has an effect on the result up to 256 groups. More groups are as many noise shards: other noise is drawn.
    """

    users: int = 16
    groups: int = 16

    def __post_init__(self) -> None:
        if not 1 <= self.users <= _MAX_SHARDS:
            raise ParameterError(f"Shards: users must be from 1 to {_MAX_SHARDS}, got {self.users}")
        if not 1 <= self.groups <= _MAX_GROUPS or _MAX_GROUPS % self.groups:
            raise ParameterError(
                f"Shards: groups must be a power of two from 1 to {_MAX_GROUPS}, got {self.groups}"
            )

    @property
    def stated(self) -> dict[str, int]:
        """Return what of it can change the output, for the ledger to compare."""
        return {} if self.groups <= NOISE_SHARDS else {"noise_shards": self.groups}


def shards_for(input_bytes: int | None, users: int | None = None) -> Shards:
    """Return shards for an input of this many bytes (None: not known), or for ``users`` shards as asked for.

    The number of noise shards follows from the bytes alone.
    """
    size = 128 << 20 if input_bytes is None else input_bytes
    if users is None:
        users = min(max(-(-size // _BYTES_PER_SHARD), _MIN_SHARDS), _MAX_SHARDS)
    large = min(size // _BYTES_PER_GROUP, _MAX_GROUPS)
    return Shards(
        users, 1 << ((large if large > NOISE_SHARDS else min(users, NOISE_SHARDS)).bit_length() - 1)
    )


def noise_shards(groups: int) -> int:
    """Return the number of noise shards of so many groups."""
    return max(groups, NOISE_SHARDS)


def groups_at(groups: int, plan: Plan) -> int:
    """Return the number of groups of which each has whole cells of the plan's domain (`WholeCells`)."""
    return groups if plan.domain_bits is None else min(groups, max(1 << plan.domain_bits, NOISE_SHARDS))


def split_groups(whole: _Rows, groups: int) -> Iterator[tuple[int, _Rows]]:
    """Yield the groups that are not empty, each with its part."""
    ends = range_ends(whole.fingerprints, range(groups), groups)
    for group, (low, high) in enumerate(pairwise(ends)):
        if high > low:
            yield group, whole.part(low, high)


def noise_parts(group: int, groups: int, whole: _Rows) -> Iterator[tuple[int, _Rows]]:
    """Yield the noise shards of a complete group, empty ones included."""
    number = noise_shards(groups)
    each = number // groups
    shards = range(group * each, (group + 1) * each)
    for shard, (low, high) in zip(
        shards, pairwise(range_ends(whole.fingerprints, shards, number)), strict=True
    ):
        yield shard, whole.part(low, high)


@dataclass(frozen=True)
class LocalResources:
    """What a job may use where all workers share one machine. None of it has an effect on the result.

    ``threads`` work on batches beside the one that reads them; ``spill`` is a private directory for batches
    that are shuffled by reference.
    """

    threads: int = 1
    spill: str | None = None


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
        while len(self._waiting) >= self._threads:
            yield self._waiting.popleft().result()

    def rest(self) -> Iterator[Any]:
        """Yield everything that is under way."""
        while self._waiting:
            yield self._waiting.popleft().result()

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


class CombineParts(beam.CombineFn):
    """Combines parts in bounded memory: they are merged when their rows have grown by `MAX_PENDING` and have doubled.

    A subclass says how parts are merged and what comes out. Merging is associative, and order has no effect.
    """

    def load(self, element: Any) -> Any:
        """Return the part that an element stands for."""
        return element

    def merge(self, parts: list[Any]) -> Any:
        """Return the parts as one."""
        raise NotImplementedError

    def finish(self, parts: list[Any]) -> Any:
        """Return the result of all parts."""
        raise NotImplementedError

    def create_accumulator(self) -> _Parts:
        return _Parts()

    def add_input(self, found: _Parts, element: Any) -> _Parts:
        part = self.load(element)
        if len(part) or not found.parts:
            found.parts.append(part)
            found.pending += len(part)
        return self.compact(found) if found.pending > max(MAX_PENDING, found.merged) else found

    def merge_accumulators(self, accumulators: Iterable[_Parts]) -> _Parts:
        out = _Parts()
        for found in accumulators:
            for part in found.parts:
                out = self.add_input(out, part)
        return out

    def compact(self, found: _Parts) -> _Parts:
        if found.parts:
            found.parts = [self.merge(found.parts)]
            found.merged, found.pending = len(found.parts[0]), 0
        return found

    def extract_output(self, found: _Parts) -> Any:
        return self.finish(found.parts)


class _Parts:
    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.merged = self.pending = 0


class CombineShards(beam.PTransform):
    """(shard, part) → (shard, combined), of type ``output``: CombinePerKey without its table.

    ``threads`` shards are finished at a time, where more than one. With ``together`` small shards are combined with
    those that come after them, under the number of the last: a shard costs some tenths of a millisecond even where it
    is small. Parts of the shard `TALLIES` are tallies
    (`with_tallies`): where they are beyond their limits, the stage fails with an `InputError`, and so nothing that
    follows from its output is ever complete.

    With ``beside``, a tag and a type, ``fn`` returns two results, and the second of each shard comes out under the tag;
    the first under "main".
    """

    def __init__(
        self,
        fn: CombineParts,
        output: type,
        *,
        threads: int = 1,
        together: bool = False,
        beside: tuple[str, type] | None = None,
    ) -> None:
        super().__init__()
        tag = None if beside is None else beside[0]
        self._combine = _Combine(fn, threads, _TOGETHER if together else 0, tag)
        self._output, self._beside = output, beside

    def expand(self, parts: Any) -> Any:
        grouped = parts | "Group" >> beam.GroupByKey()  # (shard, iterable of parts)
        combine, output = beam.ParDo(self._combine), tuple[int, self._output]  # type: ignore[name-defined]
        if self._beside is None:
            return grouped | "Combine" >> combine.with_output_types(output)
        tag, second = self._beside
        found = grouped | "Combine" >> combine.with_outputs(tag, main="main")
        # Beam's outputs of several kinds have no types of their own.
        found["main"].element_type, found[tag].element_type = output, second
        return {"main": found["main"], tag: found[tag]}


class _Combine(beam.DoFn):
    def __init__(self, fn: CombineParts, threads: int, least: int, beside: str | None = None) -> None:
        self._fn, self._threads, self._least, self._beside = fn, threads, least, beside

    def start_bundle(self) -> None:
        self._pool = OrderedPool(self._finish, self._threads)
        self._held: tuple[int, Any] | None = None

    def process(self, group: tuple[int, Iterable[Any]]) -> Iterator[tuple[int, Any]]:
        shard, parts = group
        if shard == TALLIES:
            check_tallies(map(self._fn.load, parts))
            return
        found = self._fn.create_accumulator() if self._held is None else self._held[1]
        for part in parts:
            found = self._fn.add_input(found, part)
        self._held = shard, found
        if found.merged + found.pending >= self._least:
            yield from self._give()

    def _give(self) -> Iterator[Any]:
        held, self._held = self._held, None
        if held is not None:
            for result in self._pool.give(held):
                yield from self._outputs(result)

    def _outputs(self, result: tuple[int, Any]) -> Iterator[Any]:
        if self._beside is None:
            yield result
        else:
            shard, (first, second) = result
            yield shard, first
            yield beam.pvalue.TaggedOutput(self._beside, second)

    def finish_bundle(self) -> Iterator[Any]:
        try:
            rest = (each for result in self._pool.rest() for each in self._outputs(result))
            for each in (*self._give(), *rest):
                yield in_global_window(each)
        finally:
            self._pool.close()

    def _finish(self, item: tuple[int, Any]) -> tuple[int, Any]:
        shard, found = item
        return shard, self._fn.extract_output(found)


def in_global_window(element: Any) -> Any:
    """Return an element of `finish_bundle`, which must say its window; of a tagged output inside its tag."""
    if isinstance(element, beam.pvalue.TaggedOutput):
        return beam.pvalue.TaggedOutput(element.tag, in_global_window(element.value))
    return WindowedValue(element, GlobalWindow().max_timestamp(), (GlobalWindow(),))


class SumAll(beam.CombineFn):
    """Sum of parts that add up with ``+``; ``zero()`` where there are none. Side inputs are for subclasses."""

    def __init__(self, zero: Callable[[], Any]) -> None:
        self._zero = zero

    def create_accumulator(self, *_: Any) -> Any:
        return self._zero()

    def add_input(self, total: Any, part: Any, *_: Any) -> Any:
        return total + part

    def merge_accumulators(self, totals: Iterable[Any], *_: Any) -> Any:
        return sum(totals, self._zero())

    def compact(self, total: Any, *_: Any) -> Any:
        return total

    def extract_output(self, total: Any, *_: Any) -> Any:
        return total


class SumParts(beam.PTransform):
    """Exact vectors of ``size`` counters, in any windows → their sum: one element, also where there are none."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def expand(self, parts: Any) -> Any:
        total = SumAll(partial(zero_vector, self._size))
        return parts | "Together" >> OneWindow() | "Sum" >> beam.CombineGlobally(total)


def zero_vector(size: int) -> ExactVector:
    """Return ``size`` zeros, which no user moves."""
    return ExactVector(np.zeros(size, dtype=np.int64), CONSTANT)


class DigestShards(beam.PTransform):
    """(group, Histogram) of all groups → one digest of all noise shards; exact and private.

    ``histogram`` takes it out of elements that hold more.
    """

    def __init__(self, groups: int, histogram: Callable[[Any], Histogram] | None = None) -> None:
        super().__init__()
        self._groups, self._histogram = groups, histogram

    def expand(self, shards: Any) -> Any:
        survey = beam.Map(_digests, self._groups, self._histogram).with_output_types(Survey)
        return (
            shards
            | "Survey" >> survey
            | "Digest" >> beam.CombineGlobally(_DigestSurveys(noise_shards(self._groups))).without_defaults()
        )


def survey_group(shard: tuple[int, Histogram], groups: int) -> Survey:
    """Return sizes and digests of the noise shards of a complete group."""
    return Survey.of(noise_parts(shard[0], groups, shard[1]))


def _digests(shard: tuple[int, Any], groups: int, histogram: Callable[[Any], Histogram] | None) -> Survey:
    group, held = shard
    return Survey.of_digests(noise_parts(group, groups, held if histogram is None else histogram(held)))


def no_survey() -> Survey:
    """Return the survey of nothing."""
    return Survey.of([])


class _DigestSurveys(SumAll):
    def __init__(self, shards: int) -> None:
        super().__init__(no_survey)
        self._shards = shards

    def extract_output(self, total: Survey, *_: Any) -> bytes:
        return total.data_digest(self._shards)


class DigestAll(beam.PTransform):
    """Digests of parts, in any order → one digest of them all; exact and private."""

    def expand(self, digests: Any) -> Any:
        return digests | "Gather" >> beam.combiners.ToList() | "Digest" >> beam.Map(_digest_sorted)


def _digest_sorted(digests: list[bytes]) -> bytes:
    return digest(*sorted(digests))


# One window for everything: a release has no windows.
#
# A mechanism that ran once for each window would spend its ε in each of them, bounds on a user's contributions
# would hold in each of them alone, and equal windows would get equal noise. So every stage that adds up or
# draws noise puts its input into the global window first, whatever windows and triggers it came with. Windows
# that overlap are refused: Beam repeats an element for each of its windows, and one record would count twice.

#: Window functions that give every element exactly one window.
_DISJOINT = (GlobalWindows, FixedWindows, Sessions)


class OneWindow(beam.PTransform):
    """The same elements in the global window, with the default trigger."""

    def expand(self, elements: Any) -> Any:
        windows = elements.windowing.windowfn
        if not isinstance(windows, _DISJOINT):
            raise ParameterError(
                f"{self.label}: the input is in {type(windows).__name__}, where a record may count several "
                "times; release from data that are not in overlapping windows"
            )
        if elements.windowing.is_default():
            return elements
        whole = elements | "AllTime" >> beam.WindowInto(GlobalWindows())
        whole.element_type = elements.element_type
        return whole


@dataclass(frozen=True)
class Tally:
    """How many records were accepted and rejected somewhere, and the limits for all of them together."""

    check: Check
    counts: RecordCounts


#: The shard of tallies among parts.
TALLIES = -1


def with_tallies(parts: Any, tallies: Any, encode: Callable[[Tally], bytes] | None) -> Any:
    """Return (shard, part) and the tallies of what was read as one collection, for `CombineShards`.

    ``encode`` is for parts that are bytes.
    Engines write all outputs of a stage once per output (Flink), so the stage that reads records has only one.
    """
    noted = tallies | "NoteTallies" >> beam.Map(_noted, encode)
    noted.element_type = parts.element_type
    whole = (parts, noted) | "WithTallies" >> beam.Flatten()
    whole.element_type = parts.element_type
    return whole


def _noted(tally: Tally, encode: Callable[[Tally], bytes] | None) -> tuple[int, Tally | bytes]:
    return TALLIES, tally if encode is None else encode(tally)


def check_tallies(tallies: Iterable[Tally]) -> None:
    """Raise an `InputError` where tallies with the same limits are together beyond them."""
    whole: dict[Check, RecordCounts] = {}
    for tally in tallies:
        counts = tally.counts
        whole.setdefault(tally.check, RecordCounts()).add(counts.rows, counts.rejected, counts.places)
    for check, counts in whole.items():
        check(counts, open_file)


class CheckTallies(beam.PTransform):
    """Counts of parts → one element once all of them are within the limits; an `InputError` where they are not.

    What is published waits for that element. It says nothing else.
    """

    def __init__(self, check: Check) -> None:
        super().__init__()
        self._check = check

    def expand(self, tallies: Any) -> Any:
        whole = tallies | "AddUp" >> beam.CombineGlobally(SumAll(RecordCounts))
        return whole | "Check" >> beam.Map(_checked, self._check).with_output_types(bool)


def _checked(counts: RecordCounts, check: Check) -> bool:
    check_tallies([Tally(check, counts)])
    return True


def operator_counter(name: str, wanted: bool) -> Any:
    """Return a counter of an exact figure, for whoever sees the job on its engine; unwanted, it counts nothing."""
    return Metrics.counter("hushgram", name) if wanted else _NoCounter()


class _NoCounter:
    def inc(self, by: int = 1) -> None:
        pass
