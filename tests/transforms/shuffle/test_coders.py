"""Coders: what goes in comes out, in few bytes; and records of every form become the same columns."""

from __future__ import annotations

import datetime
import os
import uuid
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.coders import registry
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgram.contributions.bounding import Bounds, Contributions
from hushgram.contributions.histogram import Histogram
from hushgram.contributions.keys import canonical
from hushgram.encodings import EncodedBlock
from hushgram.errors import InputError, OutputError, ParameterError
from hushgram.inputs import Check, Limits, RecordCounts
from hushgram.inputs.preflight import Place
from hushgram.key_selection.threshold import Heavy
from hushgram.sensitivity import UNBOUNDED
from hushgram.sparse_histogram.plan import Plan, expected_sizes, make_plan
from hushgram.sparse_histogram.sizing import Survey
from hushgram.sparse_histogram.steps import PlannedRelease
from hushgram.transforms.shuffle.coders import (
    BlockParts,
    ContributionsCoder,
    HeavyCoder,
    HistogramCoder,
    PlanCoder,
    SpilledBatch,
    SpillWriter,
    SurveyCoder,
    close_spill_files,
)
from hushgram.transforms.shuffle.combining import (
    OrderedPool,
    Shards,
    Tally,
    noise_parts,
    noise_shards,
    shards_for,
    split_groups,
)
from hushgram.transforms.shuffle.records import Fields, RowBuffer, columns_of
from tests.transforms.releases import KEY, SMALL, bounded, params, records, same, spec, words


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 2**47)), max_size=30))
@settings(max_examples=60, deadline=None)
def test_a_histogram_comes_back(rows: list[tuple[int, int]]) -> None:
    prints = np.array(sorted(key for key, _ in rows), np.uint64)
    value = Histogram(prints, np.array([count for _, count in rows], np.int64))
    same(HistogramCoder().decode(HistogramCoder().encode(value)), value)


@given(st.lists(st.binary(max_size=20), max_size=20), st.integers(0, 5), st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_texts_come_back_from_any_slice(texts: list[bytes], low: int, high: int) -> None:
    array = pa.array(texts, pa.large_binary())
    value = Histogram(np.arange(len(texts), dtype=np.uint64), np.full(len(texts), 300), array).part(
        low, max(low, high)
    )
    same(HistogramCoder().decode(HistogramCoder().encode(value)), value)


@pytest.mark.parametrize("texts", [False, True])
def test_contributions_come_back(texts: bool) -> None:
    table = records(500)
    value = Contributions.of(table["user"], table["url"], KEY, texts=texts).prune(Bounds(4, 2))
    back = ContributionsCoder().decode(ContributionsCoder().encode(value))
    for name in ("user_high", "user_low", "keys", "counts"):
        assert getattr(back, name).tolist() == getattr(value, name).tolist()
    if texts:
        assert back.table.texts.to_pylist() == value.table.texts.to_pylist()  # type: ignore[union-attr]
    same(back.bounded(Bounds(4, 2)), value.bounded(Bounds(4, 2)))


def test_a_row_of_ones_costs_24_bytes() -> None:
    table = records(2000)
    value = Contributions.of(table["user"], table["url"], KEY, texts=False)
    assert len(ContributionsCoder().encode(value)) <= 24 * 2000 + 100


def test_released_values_below_zero_come_back() -> None:
    value = Heavy(words(3), np.array([-5, 0, 1 << 40], np.int64)[: len(words(3))])
    back = HeavyCoder().decode(HeavyCoder().encode(value))
    assert back.values.tolist() == value.values.tolist()


def test_tally_and_plan_come_back() -> None:
    survey = Survey.of(enumerate(bounded(records(300), params()).shards()))
    back = SurveyCoder().decode(SurveyCoder().encode(survey))
    assert (back.records, back.profile.tolist()) == (survey.records, survey.profile.tolist())
    assert back.digests == survey.digests
    chosen = spec(params("1e-6", **SMALL)).params
    plan = make_plan(chosen, expected_sizes(chosen))  # type: ignore[arg-type]
    assert PlanCoder().decode(PlanCoder().encode(plan)) == plan
    ready, coder = PlannedRelease(plan, bytes(range(32))), registry.get_coder(PlannedRelease)
    assert coder.decode(coder.encode(ready)) == ready


def test_tallies_come_back_among_parts() -> None:
    counts = RecordCounts(3, {"no user": 2}, {"no user": Place("a.csv", 7, None, row=False)})
    tally = Tally(Check(Limits(Fraction(1, 3), 2), "a.csv", " (hint)", "input."), counts)
    for kind in (Tally, Contributions, Histogram, SpilledBatch):
        coder = registry.get_coder(kind)
        assert coder.decode(coder.encode(tally)) == tally


def test_batches_come_back_with_their_schema() -> None:
    schema = pa.schema([("user", pa.string()), ("n", pa.int64())], metadata={b"rows": b"2"})
    batch = pa.record_batch([pa.array(["a", None]), pa.array([1, 2])], schema=schema)
    coder = registry.get_coder(pa.RecordBatch)
    back = coder.decode(coder.encode(batch))
    assert back.equals(batch)
    assert back.schema.metadata == schema.metadata


def test_types_choose_their_coders() -> None:
    kinds = (
        Contributions, Histogram, Heavy, Survey, Plan, PlannedRelease, BlockParts, EncodedBlock, Tally, pa.RecordBatch,
    )  # fmt: skip
    for kind in kinds:
        coder = registry.get_coder(kind)
        assert coder.to_type_hint() is kind
        assert coder.is_deterministic()
    first, second = (
        (np.array(place, "<u4"), np.array(more)) for place, more in (([5, 9], [-1, 2]), ([7], [3]))
    )
    coder = registry.get_coder(BlockParts)
    back = coder.decode(coder.encode(BlockParts.of([(1, first), (3, second)], 5)))
    assert [[array.tolist() for array in back.at(place)] for place in range(5)] == [
        [[], []], [[5, 9], [-1, 2]], [[], []], [[7], [3]], [[], []],
    ]  # fmt: skip
    assert coder.decode(coder.encode(BlockParts.of([], 0))).arrays == ()
    block = EncodedBlock(3, np.array([7, 8], np.uint8), np.array([5, 0], np.int64))
    again = registry.get_coder(EncodedBlock).decode(registry.get_coder(EncodedBlock).encode(block))
    assert (again.index, again.content.tolist(), again.sums.tolist()) == (3, [7, 8], [5, 0])


class Visit(NamedTuple):
    user: Any
    url: Any


ROWS = [("ann", "/a"), ("7", "/b"), ("é", "/c")]


@pytest.mark.parametrize(
    "make",
    [
        lambda user, url: {"user": user, "url": url, "more": 1},
        lambda user, url: beam.Row(user=user, url=url),
        Visit,
        lambda user, url: (user, url),
    ],
)
def test_records_of_every_form_are_the_same(make: Any) -> None:
    rows = RowBuffer(Fields("user", "url"))
    for user, url in ROWS:
        rows.add(make(int(user) if user == "7" else user.encode(), url))
    taken = rows.take()
    assert taken.keys.to_pylist() == [url.encode() for _, url in ROWS]
    assert taken.users.to_pylist() == [user.encode() for user, _ in ROWS]  # type: ignore[union-attr]
    assert taken.rejected == 0
    assert len(rows.take()) == 0


class Unreadable(datetime.tzinfo):
    """A time zone, or a number, whose own code fails."""

    def utcoffset(self, _: Any) -> Any:
        raise RuntimeError

    def __float__(self) -> float:
        raise LookupError


def test_a_value_whose_own_code_fails_is_rejected() -> None:
    rows = RowBuffer(Fields("user", "url", ("n",)))
    for n in (Unreadable(), 1):
        rows.add(("u", "k", n))
    assert rows.take().rejected == 1
    with pytest.raises(InputError, match="row 0 is null"):
        canonical([datetime.datetime(2026, 1, 1, tzinfo=Unreadable())])


def test_records_without_canonical_bytes_are_rejected() -> None:
    rows = RowBuffer(Fields("user", "url"))
    bad = [
        None, 1.5, [1], "\udc80", datetime.time(1), Decimal("1E+999999"), np.longdouble(1),
        np.arange(2), 10**5000, object(), datetime.datetime(2026, 1, 1, tzinfo=Unreadable()),
    ]  # fmt: skip
    good = [
        True, datetime.date(2026, 1, 2), np.int64(5), b"\xff", 2**70, datetime.datetime(2026, 1, 1), Decimal("1.50"),
        uuid.UUID(int=5), bytearray(b"a"),
    ]  # fmt: skip
    for value in bad + good:
        rows.add(("u", value))
        rows.add((value, "k"))
    odd = [{"other": 1}, "just text", None, ("u",), ("u", "k", "v"), 7]
    for record in odd:
        rows.add(record)
    taken = rows.take()
    assert taken.rejected == 2 * len(bad) + len(odd)
    assert not any("text" in reason or "1.5" in reason for reason in taken.reasons)  # no values
    assert taken.keys.to_pylist()[::2] == [
        b"true", b"2026-01-02", b"5", b"\xff", str(2**70).encode(), b"2026-01-01T00:00:00", b"1.5",
        b"00000000-0000-0000-0000-000000000005", b"a",
    ]  # fmt: skip


def test_missing_times_of_pandas_are_null() -> None:
    pandas = pytest.importorskip("pandas")
    rows = RowBuffer(Fields("user", "url"))
    rows.add(("u", pandas.NaT))
    rows.add((pandas.NaT, "k"))
    rows.add(("u", pandas.Timestamp("2026-11-18 09:30")))
    taken = rows.take()
    assert taken.rejected == 2
    assert all("is null" in reason for reason in taken.reasons)
    assert taken.keys.to_pylist() == [b"2026-11-18T09:30:00"]


def test_arrow_columns_drop_nulls_and_whole_batches_without_the_column() -> None:
    table = pa.table({"user": [1, None, 3], "url": ["/a", "/b", None]})
    taken = columns_of(table, Fields("user", "url"))
    assert (taken.users.to_pylist(), taken.keys.to_pylist(), taken.rejected) == ([1], ["/a"], 2)  # type: ignore[union-attr]
    assert columns_of(table, Fields(None, "url")).rejected == 1
    assert columns_of(table, Fields("host", "url")).reasons == {"no column 'host'": 3}
    (reason,) = columns_of(pa.table({"x": [1.5]}), Fields(None, "x")).reasons
    assert reason.startswith("column 'x' is double and a user or key must be text")
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["k", "k"])
    assert columns_of(twice, Fields(None, "k")).reasons == {"column 'k' occurs 2 times": 1}
    missing = columns_of(pa.table({"k": ["a"], "v": [None]}), Fields(None, "k", ("v",)))
    assert (missing.rejected, missing.values[0].to_pylist()) == (
        0,
        [None],
    )  # adds nothing, as beside a number


def test_parcels_hold_what_was_put(tmp_path: Any) -> None:
    writer = SpillWriter(str(tmp_path))
    first, second = writer.put([b"abc", memoryview(b"defgh")]), writer.put([b"x" * 10])
    writer.close()
    assert (first.read(), second.read(), second.offset) == (b"abcdefgh", b"x" * 10, 8)
    with open(first.path, "r+b") as file:
        file.truncate(12)
    with pytest.raises(OutputError, match="was cut short"):
        second.read()
    opened = len(os.listdir("/proc/self/fd"))
    close_spill_files()
    assert len(os.listdir("/proc/self/fd")) < opened


def test_ahead_keeps_order_and_hands_on_errors() -> None:
    for threads in (1, 3):
        pool = OrderedPool(lambda item: 10 // item, threads)
        got = [result for item in (1, 2, 5, 10) for result in pool.give(item)]
        assert got + list(pool.rest()) == [10, 5, 2, 1]
        with pytest.raises(ZeroDivisionError):
            assert not list(pool.give(0)) + list(pool.rest())
        pool.close()


@pytest.mark.parametrize("groups", [1, 2, 16, 256, 1024])
def test_groups_are_whole_noise_shards(groups: int) -> None:
    histogram = Histogram(words(2000), np.ones(len(words(2000)), np.int64))
    number = max(groups, 256)
    expected, parts = histogram.shards(number), dict(split_groups(histogram, groups))
    empty = Histogram.empty(texts=False)
    seen = []
    for group in range(groups):
        for shard, piece in noise_parts(group, groups, parts.get(group, empty)):
            seen.append(shard)
            same(replace(piece, sensitivity=UNBOUNDED), expected[shard])
    assert seen == list(range(number))


def test_shards_follow_the_input() -> None:
    assert shards_for(1000) == Shards(4, 4)
    assert shards_for(1 << 30) == Shards(128, 128)
    assert shards_for(None, 5) == Shards(5, 4)
    with pytest.raises(ParameterError, match="groups must be a power of two"):
        Shards(4, 3)


def test_noise_shards_follow_the_bytes_of_the_input_alone() -> None:
    """Shards of users are chosen for memory, and a second attempt may have more of them."""
    for gib, expected in ((1, 256), (15, 256), (16, 512), (40, 1_024), (512, 16_384), (1 << 20, 16_384)):
        found = {noise_shards(shards_for(gib << 30, users).groups) for users in (None, 1, 16, 65_536)}
        assert found == {expected}
    assert shards_for(1 << 50) == Shards(65_536, 16_384)
    assert (Shards(4, 256).stated, Shards(4, 512).stated) == ({}, {"noise_shards": 512})
