"""The neighbour machine: no find on the code as it is, every field drawn, and each breach of old found again.

`HUSHGRAM_NEIGHBOUR_SECONDS` says how long it looks; `make neighbours` looks for hours.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from hushgram.accounting import Event
from hushgram.contributions import sums
from hushgram.contributions.bounding import Bounds, Contributions, _before
from hushgram.contributions.keys import fingerprints
from hushgram.errors import ParameterError
from hushgram.inputs import columns as input_columns
from hushgram.inputs import plan as input_plan
from hushgram.inputs.formats import parquet
from hushgram.inputs.key_expressions import KeyExpression
from hushgram.key_selection import rounds
from hushgram.key_selection.weighted import WHOLE
from hushgram.mechanisms.domains import KeyDomain
from hushgram.mechanisms.randomized_response.rows import to_bytes
from hushgram.mechanisms.svt import queries
from hushgram.pipelines.jobs import JOBS, job_class
from hushgram.sensitivity import ONE_RECORD, Exact, ExactVector
from hushgram.transforms import weigh_keys
from hushgram.transforms.shuffle import records as shuffle_columns
from tests.neighbours import __main__ as command
from tests.neighbours.data import draw_data
from tests.neighbours.draw import NEVER, draw_job, fields_of
from tests.neighbours.machine import Breach, Machine, Observed, Ran, _exact_half, _joined

SECONDS = float(os.environ.get("HUSHGRAM_NEIGHBOUR_SECONDS", "4"))


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    made = Machine()
    yield made
    made.close()


def test_the_first_pairs_of_neighbours_are_not_further_apart_than_stated(machine: Machine) -> None:
    for number in range(8):
        machine.try_one(number)


def test_batches_are_as_large_as_stated_once_their_values_are_decoded() -> None:
    with closing(Machine(("sparse-vector",))) as machine:
        machine.try_one(439)


@pytest.mark.long
def test_no_pair_of_neighbours_is_further_apart_than_stated(machine: Machine) -> None:
    first = random.SystemRandom().randrange(1 << 40)  # other pairs each time; a breach names its number
    until = time.monotonic() + SECONDS
    number = first
    while time.monotonic() < until or machine.ran.total() < 10:
        machine.try_one(number)
        number += 1
    assert machine.ran["refused"] < 0.5 * machine.ran.total() + 10  # it looked at something


@pytest.mark.long
def test_every_field_of_every_config_is_drawn(machine: Machine) -> None:
    """A field that is added to a config is drawn here, or this test says that it is not."""
    fields = {
        job: {f"{model.__name__}.{name}" for model, name in fields_of(job_class(job).Config)} for job in JOBS
    }
    assert set(NEVER) <= set().union(*fields.values())
    seen = Counter([*NEVER])
    for number in range(3000):
        left = [job for job in JOBS if not fields[job] <= seen.keys()]
        if not left:
            break
        rng = random.Random(number)
        draw_job(rng.choice(left), rng, machine._world(draw_data(rng)), seen)
    assert sorted(set().union(*fields.values()) - seen.keys()) == []


def test_what_the_machine_does_not_know_is_an_error() -> None:
    """A mechanism or a kind of exact value that nobody named here is not passed over in silence."""

    class Unknown(Exact):
        sensitivity = ONE_RECORD

    with pytest.raises(NotImplementedError, match="Unknown"):
        _joined([Unknown()])
    with (
        _exact_half(Observed(), {}, random.Random(0)),
        pytest.raises(NotImplementedError, match="name it there"),
    ):
        Unknown().admit(ONE_RECORD)


def test_stray_quotes_are_left_out_where_quoted_values_span_lines(machine: Machine) -> None:
    """guarantee.md: such a CSV file is promised to be well quoted. Try 40501727 was no breach but a broken promise."""
    machine.try_one(40501727)


# --- the breaches of 0.2, put back -----------------------------------------------------------------------------


def _cut_by_rank(self: Contributions, *bounds: Bounds) -> Contributions:
    """Breach 1: parts keep C keys per user, also where values round to nothing."""
    rows, first = self._ordered(bounds[0].key_classes)
    rank = _before(np.ones(len(rows.keys), np.int64), first)
    return rows._take(np.flatnonzero(rank < max(bound.max_contributions for bound in bounds)))


def _every_word_counts(keys: Any, parents: Any, most: int, per_key: int) -> Any:
    """Breach 2: a record counts once for each of its words."""
    return np.arange(len(parents))


def _keep_hashed(self: KeyDomain, keys: Any) -> Any:
    """Breach 3: candidates are cells, and users are bounded by key."""
    return np.isin(fingerprints(keys) >> np.uint64(64 - self.bits), self.prints), None


def _count_hashed(self: KeyDomain, part: Any) -> ExactVector:
    return ExactVector(part.reduced(self.bits).counts_of(self.prints), part.sensitivity)


def _float_limits(values: pa.Array, name: str) -> Any:
    """Breach 5: a bad value has the whole column compared as floats."""
    reals = values.cast(pa.float64(), safe=False)
    good = pc.and_(pc.greater_equal(reals, 0.0), pc.less(reals, float(sums.MAX_VALUE)))
    whole = pc.fill_null(good, True).to_numpy(zero_copy_only=False)
    if pa.types.is_integer(values.type):
        ends = pc.min_max(values).as_py()
        if (ends["min"] or 0) >= 0 and (ends["max"] or 0) < sums.MAX_VALUE:
            return
    if not whole.all():
        yield f"{name} is wrong", whole


class _UserEvent(Event):
    """Breach 6: whatever a release protects, it is charged as if it protected a user."""

    def __init__(self, *args: Any, relation: str = "user", **kwargs: Any) -> None:
        super().__init__(*args, relation="user", **kwargs)


_USER_WEIGHTS = rounds.user_weights


def _whole_weights(max_keys: int) -> Any:
    """Weigh each key of a user as if it were the only one: not a breach of 0.2, but of selection by weights."""
    return np.full_like(_USER_WEIGHTS(max_keys), WHOLE)


_BOUND = weigh_keys._bound


def _first_metric(element: Any, spec: Any, metric: int, chosen: Any) -> Iterator[Any]:
    """Count records where a metric sums values: every metric of a pass has the numbers of the first."""
    return _BOUND(element, spec, 0, chosen)


def _halves_by_themselves(self: Contributions, bounds: Bounds, named: Any) -> Any:
    """Breach 16: named keys and all others are bounded to C each, and get the noise of one vector."""
    of_named = named[self.keys.astype(np.int64)]
    apart = replace(bounds, key_classes=None)
    halves = self._take(of_named).bounded(apart), self._take(~of_named).bounded(bounds)
    moved = replace(bounds.sensitivity, halves=True)
    return tuple(replace(half, sensitivity=moved) for half in halves)


_RESPONSES = ("randomized-response",)


def _none(names: Any, secrets: Any) -> None:
    """Breach 4b: a condition may test a secret column."""


def _cut_by_group(numbered: tuple[int, Any], sizes: dict[int, int]) -> Iterator[Any]:
    """Breach 4a: how a table is cut follows from what is in it."""
    group, rows = numbered
    for _, at, held in rows.cut(0):
        yield group, (at, to_bytes(held))


_ARRAYS = input_columns.Texts.arrays


def _all_alike(self: input_columns.Texts, rejects: Any) -> Any:
    """Breach 4c: a secret that cannot be read removes its record."""
    self._plan = replace(self._plan, source=replace(self._plan.source, secrets=()))
    return _ARRAYS(self, rejects)


def _in_order_of_input(cls: Any, table: pa.Table, key: bytes) -> Any:
    """Breach 4d: rows keep the order in which they came."""
    rows = np.arange(table.num_rows, dtype=np.uint64)
    return cls(table, np.ones(len(rows), np.int64), np.zeros(len(rows), np.uint64), _NUMBERS.pop() + rows)


_READ_TYPES = input_plan._read_types


def _without_empty(name: str, source: Any, files: Any) -> Any:
    """Breach 12: a file without records has no say in how others are read."""
    found = _READ_TYPES(name, source, files)
    return {path: None if files[path].empty else kind for path, kind in found.items()}


def _nothing(self: KeyExpression, texts: list[pa.Array]) -> Any:
    """Breach 13: what a record gives is found out when it is there."""
    return np.zeros((2, len(texts[0])), np.int64)


def _by_footer(file: Any, raw: Any, item: Any, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Breach 14: batches of Parquet are as large as the footer says on average."""
    for group in item.groups:
        rows = parquet._batch_rows(file, group, names)
        yield from file.iter_batches(rows, row_groups=[group], columns=names)


_NUMBERS = [np.uint64(i << 20) for i in range(1 << 16, 0, -1)]


_HALF_OPEN, _DEPTHS = queries._half_open, queries.IntervalCounters.__init__


def _reversed_too(query: queries.RangeQuery, kind: pa.DataType) -> tuple[Any, Any]:
    """Breach 15: the ends of a range are compared as they are written, and taken as they are typed."""
    if query.low > query.high:  # type: ignore[operator]
        raise ParameterError(f"between must begin with the smaller value, got {query.low} above {query.high}")
    low, high = (_HALF_OPEN(replace(query, low=end, high=end), kind) for end in (query.low, query.high))
    return low[0], high[1]


def _any_order(self: Any, intervals: Any, ordered: pa.DataType, column: str | None) -> None:
    _DEPTHS(
        self,
        [(i, *sorted(both, key=lambda end: (end is None, end))) for i, *both in intervals],
        ordered,
        column,
    )
    falling = np.array([None not in both and both[0] > both[1] for _, *both in intervals])
    self._low, self._high = np.where(falling, [self._high, self._low], [self._low, self._high])


@contextmanager
def _patched(*patches: tuple[Any, str, Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, value in patches:
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


def _breaches() -> dict[str, tuple[tuple[str, ...], Callable[[], Any]]]:
    from hushgram.inputs import source
    from hushgram.pipelines.jobs import answer, clip, sparse_vector, top
    from hushgram.pipelines.jobs import randomized_response as response_job
    from hushgram.sparse_histogram import plan
    from hushgram.transforms import randomize_responses

    users = [(module, "Event", _UserEvent) for module in (plan, answer, clip, sparse_vector, top)]
    return {
        "1 sums cut per batch": (
            ("release", "metrics"),
            lambda: _patched((Contributions, "prune", _cut_by_rank)),
        ),
        "2 words without users": (
            ("release", "metrics", "top", "answer", "sparse-vector"),
            lambda: _patched(
                (input_columns, "bound_record", _every_word_counts),
                (shuffle_columns, "rows_per_record", lambda schema: ONE_RECORD),
            ),
        ),
        "3 top from a sketch of cells": (
            ("top",),
            lambda: _patched((KeyDomain, "keep", _keep_hashed), (KeyDomain, "count", _count_hashed)),
        ),
        "5 whole numbers near 2^62": (
            ("release", "metrics"),
            lambda: _patched((input_columns, "wrong_values", _float_limits)),
        ),
        "6 records charged as users": (
            tuple(job for job in JOBS if job != "randomized-response"),
            lambda: _patched(*users),
        ),
        "9 weights that ignore other keys": (
            ("release", "metrics"),
            lambda: _patched((rounds, "user_weights", _whole_weights)),
        ),
        "10 numbers of another metric": (
            ("metrics",),
            lambda: _patched((weigh_keys, "_bound", _first_metric)),
        ),
        "16 named keys and others bounded by themselves": (
            ("release", "metrics"),
            lambda: _patched((Contributions, "bounded_apart", _halves_by_themselves)),
        ),
        "15 ranges in the order of their text": (
            ("sparse-vector",),
            lambda: _patched(
                (queries, "_half_open", _reversed_too), (queries.IntervalCounters, "__init__", _any_order)
            ),
        ),
        "12 empty files decide types": (
            ("release", "metrics", "top", "answer"),
            lambda: _patched((input_plan, "_read_types", _without_empty)),
        ),
        "13 keys of a record without a bound": (
            ("release", "top", "answer"),
            lambda: _patched((KeyExpression, "expansion", _nothing)),
        ),
        "14 batches by the footer": (("release",), lambda: _patched((parquet, "_batches", _by_footer))),
        "4a parts by content": (_RESPONSES, lambda: _patched((randomize_responses, "_cut", _cut_by_group))),
        "4b conditions on secrets": (
            _RESPONSES,
            lambda: _patched((source, "overlapping", _none), (response_job, "overlapping", _none)),
        ),
        "4c unreadable secrets": (_RESPONSES, lambda: _patched((input_columns.Texts, "arrays", _all_alike))),
        "4d order of the input": (
            _RESPONSES,
            lambda: _patched((randomize_responses.Rows, "of", classmethod(_in_order_of_input))),
        ),
    }


BREACHES = _breaches()


# Where to begin to look, so that the test is short: a try by which a breach is found, from 0 on.
_FIRST = {
    "1 sums cut per batch": 839,
    "2 words without users": 134,
    "3 top from a sketch of cells": 31,
    "4a parts by content": 4,
    "4b conditions on secrets": 177,
    "4c unreadable secrets": 10,
    "4d order of the input": 0,
    "5 whole numbers near 2^62": 250,
    "6 records charged as users": 7,
    "9 weights that ignore other keys": 43,
    "10 numbers of another metric": 13,
    "12 empty files decide types": 28,
    "13 keys of a record without a bound": 35,
    "14 batches by the footer": 94,
    "15 ranges in the order of their text": 1350,
    "16 named keys and others bounded by themselves": 0,
}


def _found(machine: Machine, first: int) -> int:
    """Return the first try by which a breach is found."""
    for number in range(first, first + 2000):
        try:
            machine.try_one(number)
        except Breach:
            return number
    raise AssertionError("not found")


_SLOW = {"10 numbers of another metric"}


@pytest.mark.parametrize(
    "breach", [pytest.param(name, marks=[pytest.mark.long] * (name in _SLOW)) for name in sorted(BREACHES)]
)
def test_breaches_of_old_are_found(breach: str) -> None:
    """And nothing is found by the same try when they are taken out again."""
    jobs, put_back = BREACHES[breach]
    with closing(Machine(jobs)) as machine:
        with put_back():
            number = _found(machine, _FIRST[breach])
        machine.try_one(number)


def test_one_worker_runs_as_many_pairs_as_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It once ended after the first tasks wherever all workers had finished theirs at the same time."""
    monkeypatch.setattr(sys, "argv", ["neighbours", "--pairs", "35", "--workers", "1"])
    monkeypatch.setattr(command, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    monkeypatch.setattr(command, "run_tries", lambda _: Ran(Counter(release=10), Counter(), 50, {}))
    assert command.main() == 0
    assert "40 pairs of 200 jobs" in capsys.readouterr().out
