"""Query kinds: reading them, their sensitivities, and exact answers against a plain count."""

from __future__ import annotations

import datetime
import json
import pickle
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgram.contributions.histogram import Histogram
from hushgram.errors import InputError, ParameterError
from hushgram.mechanisms.svt.exact_answers import QueryPlan, pack_records, unpack_records
from hushgram.mechanisms.svt.histogram import HistogramParams
from hushgram.mechanisms.svt.queries import (
    IntervalCounters,
    KeyQuery,
    check_stream,
    parse_query,
    read_queries,
    sensitivity,
)
from hushgram.sensitivity import CONSTANT, Sensitivity
from tests.exact_counts import exact_counts


def queries_of(*fields):
    return check_stream([parse_query(f, i, f"query {i}") for i, f in enumerate(fields)], "test")


# --- reading ----------------------------------------------------------------------------------------------


def test_order_and_names():
    lines = ['{"key": "b", "seq": 5}', "", '{"id": "x", "key": 7, "seq": 2}']
    queries = read_queries(lines, "q.jsonl")
    assert [(q.id, q.sequence) for q in queries] == [("x", 2), ("q5", 5)]
    assert queries[0].kind == KeyQuery("7")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"count": "x"}, "unknown query kind or field 'count'"),
        ({}, "exactly one of .* got none"),
        ({"key": "a", "prefix": "b"}, "got key and prefix"),
        ({"key": "a", "between": [1, 2]}, '"between" needs "column"'),
        ({"column": "age"}, "between must be two values"),
        ({"column": "age", "between": [3]}, "between must be two values"),
        ({"column": "age", "between": [5, 3]}, "begin with the smaller"),
        ({"column": "age", "between": [5, "x"]}, "two numbers or two texts"),
        ({"column": "age", "between": [True, 3]}, "must be numbers"),
        ({"column": "age", "between": [0, float("inf")]}, "must be numbers"),
        ({"where": "status ="}, "line 3: where: expected a value at character 9"),
        ({"key": 1.5}, "key must be text"),
        ({"key": "a", "seq": -1}, "seq must be a whole number"),
        ({"key": "a", "id": ""}, "id must be text"),
        ("key", "must be an object"),
        ({"key": "a\ud800"}, r"line 3: key must be Unicode text, got 'a\\ud800'"),
        ({"id": "\udfff", "key": "a"}, "id must be Unicode text"),
        ({"prefix": "\ud800"}, "prefix must be Unicode text"),
        ({"column": "\ud800", "between": [1, 2]}, "column must be Unicode text"),
        ({"column": "city", "between": ["a", "\ud800"]}, "between must be Unicode text"),
        ({"where": "city = '\ud800'"}, "line 3: where must be Unicode text"),
    ],
)
def test_bad_queries(fields, message):
    with pytest.raises(ParameterError, match=message) as refused:
        parse_query(fields, 0, "line 3")
    assert "\n" not in str(refused.value)
    with pytest.raises(
        ParameterError, match=message.replace("line 3", "f, line 1")
    ):  # a frequent form is read apart
        read_queries([json.dumps(fields)], "f")


def test_bad_streams():
    with pytest.raises(ParameterError, match="both have seq 1"):
        queries_of({"key": "a", "seq": 1}, {"key": "b"})
    with pytest.raises(ParameterError, match="two queries have the id 'x'"):
        queries_of({"key": "a", "id": "x"}, {"key": "b", "id": "x"})
    with pytest.raises(InputError, match="no queries"):
        read_queries([], "q.jsonl")
    with pytest.raises(InputError, match="line 3: not JSON"):
        read_queries(['{"key": "a"}', "", "{"], "q.jsonl")
    with pytest.raises(InputError, match="line 1: not JSON"):
        read_queries(['{"key": "a"}, {"key": "b"}'], "q.jsonl")
    with pytest.raises(InputError, match="line 1: not JSON"):  # two halves of one object
        read_queries(['{"key": "a"', '"id": "b"}, {"key": "c"}'], "q.jsonl")
    with pytest.raises(ParameterError, match="line 2: unknown query kind or field 'x'"):
        read_queries(['{"key": "a"}', '{"key": "a", "x": "y"}'], "q.jsonl")


def test_sensitivity_follows_kind_and_bounds():
    key, prefix, between, where = (
        {"key": "a"},
        {"prefix": "a"},
        {"column": "n", "between": [1, 2]},
        {"where": "n = 1"},
    )
    assert sensitivity(queries_of(key), 8, 1) == 1
    assert sensitivity(queries_of(key), 8, 3) == 3
    assert sensitivity(queries_of(key), 2, 3) == 2
    for other in (prefix, between, where):
        assert sensitivity(queries_of(key, other), 8, 3) == 8


# --- exact answers ----------------------------------------------------------------------------------------

SCHEMA = pa.schema([("user", pa.string()), ("url", pa.string()), ("n", pa.int64()), ("x", pa.float64())])
TEXTS = st.text(alphabet="ab/é\x1f\\N", max_size=5)


def read_off(plan: QueryPlan, total: np.ndarray) -> list[int]:
    """The answers as one stream."""
    (stream,) = plan.answers(exact_counts(total), [plan.size])
    return stream.values.tolist()


def answers(plan: QueryPlan, rows: list[tuple]) -> list[int]:
    """Answers in two parts, through a pickled plan, as workers would."""
    plan = pickle.loads(pickle.dumps(plan))
    total = plan.zeros()
    for part in (rows[::2], rows[1::2]):
        keys = pa.array([row[0] for row in part], pa.string())
        if plan.reads_keys:
            plan.add_keys(total, Histogram.of_column(keys, texts=plan.texts))
        if plan.reads_records:
            columns = [
                pa.array([row[i] for row in part], SCHEMA.field(name).type)
                for i, name in enumerate(("url", "n", "x"))
            ]
            table = pa.table(dict(zip(("url", "n", "x"), columns, strict=True)))
            records = Histogram.of_column(pack_records(table, plan.record_schema), texts=True)
            plan.add_records(total, unpack_records(records.texts, plan.record_schema), records.counts)
    return read_off(plan, total)


ROWS = st.lists(
    st.tuples(
        TEXTS,
        st.none() | st.integers(-5, 5),
        st.none() | st.sampled_from([-1.5, 0.0, 0.1, 2.5, float("nan")]),
    ),
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(
    ROWS,
    st.lists(TEXTS, min_size=1, max_size=4),
    st.lists(TEXTS, max_size=3),
    st.integers(-6, 6),
    st.integers(0, 4),
)
def test_answers_equal_a_plain_count(rows, keys, prefixes, low, width):
    keys = [key for key in keys if key] or ["a"]
    high = low + width
    fields = [{"key": key} for key in keys] + [{"prefix": prefix} for prefix in prefixes]
    fields += [{"column": "n", "between": [low, high]}, {"column": "n", "between": [low + 0.5, high + 0.5]}]
    fields += [{"column": "x", "between": [low / 2, high / 2]}, {"column": "url", "between": ["a", "b"]}]
    fields += [{"where": f"n >= {low} and x < 1"}]
    plan = QueryPlan(queries_of(*fields), SCHEMA, "url")
    expected = [sum(row[0] == key for row in rows) for key in keys]
    expected += [sum(row[0].startswith(prefix) for row in rows) for prefix in prefixes]
    numbers = [row[1] for row in rows if row[1] is not None]
    expected += [sum(low <= n <= high for n in numbers), sum(low + 0.5 <= n <= high + 0.5 for n in numbers)]
    expected += [sum(row[2] is not None and low / 2 <= row[2] <= high / 2 for row in rows)]
    expected += [sum("a" <= row[0] <= "b" for row in rows)]
    expected += [sum(None not in row[1:] and row[1] >= low and row[2] < 1 for row in rows)]
    assert answers(plan, rows) == expected


def test_key_queries_alone_use_fingerprints():
    plan = QueryPlan(queries_of({"key": "a"}, {"key": "b"}, {"key": "a"}), SCHEMA, "url")
    assert not plan.texts
    assert not plan.reads_records
    assert answers(plan, [("a", 1, 1.0), ("a", 2, 1.0), ("c", 2, 1.0)]) == [2, 0, 2]


def test_ends_of_the_ordered_types():
    schema = pa.schema(
        [
            ("k", pa.string()),
            ("t", pa.timestamp("ms")),
            ("d", pa.date32()),
            ("u", pa.uint64()),
            ("m", pa.decimal128(9, 2)),
        ]
    )
    fields = [
        {"column": "t", "between": ["2026-01-01", "2026-01-02T00:00:00"]},
        {"column": "d", "between": ["2026-01-01", "2026-01-31"]},
        {"column": "u", "between": [0, 2**64 - 1]},
        {"column": "u", "between": [2**63, 2**65]},
        {"column": "m", "between": [1, 2.5]},
        {"prefix": "\U0010ffff"},
        {"prefix": ""},
    ]
    plan = QueryPlan(queries_of(*fields), schema, "k")
    rows = pa.table(
        [
            pa.array(["", "\U0010ffff\U0010ffff", "z"]),
            pa.array(
                [datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 2), None], pa.timestamp("ms")
            ),
            pa.array([datetime.date(2026, 1, 31), datetime.date(2026, 2, 1), datetime.date(2026, 1, 1)]),
            pa.array([0, 2**63, 2**64 - 1], pa.uint64()),
            pa.array([1, 2, 3], pa.decimal128(9, 2)),
        ],
        schema=schema,
    )
    total = plan.zeros()
    plan.add_keys(total, Histogram.of_column(rows.column("k"), texts=True))
    packed = Histogram.of_column(pack_records(rows, plan.record_schema), texts=True)
    plan.add_records(total, unpack_records(packed.texts, plan.record_schema), packed.counts)
    assert read_off(plan, total) == [2, 2, 3, 2, 2, 1, 3]


def interval(kind: pa.DataType, low: object, high: object, values: list[object]) -> int:
    """How many of the values lie in the range, by a plan over one column of this type."""
    schema = pa.schema([("k", pa.string()), ("t", kind)])
    rows = pa.table([pa.array([str(i) for i in range(len(values))]), pa.array(values, kind)], schema=schema)
    plan = QueryPlan(queries_of({"column": "t", "between": [low, high]}), schema, "k")
    total = plan.zeros()
    records = unpack_records(pack_records(rows, plan.record_schema), plan.record_schema)
    plan.add_records(total, records, np.ones(len(values), np.int64))
    return read_off(plan, total)[0]


ZONED, LOCAL, DAY = pa.timestamp("us", tz="UTC"), pa.timestamp("ms"), pa.time64("us")


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (ZONED, "2026-01-01T00:00:00Z", "2026-01-01T01:00:00+12:00"),
        (ZONED, "2026-01-01 01:00:00Z", "2026-01-01T00:00:00Z"),
        (pa.timestamp("ns", tz="Europe/Paris"), "2026-01-01T00:00:00+01:00", "2026-01-01T00:59:59.5+02:00"),
        (LOCAL, "2026-01-01 05:00:00", "2026-01-01T04:00:00"),
        (LOCAL, "2026-01-01 00:00:01", "2026-01-01"),
        (DAY, "0930", "09:00"),
        (pa.time32("s"), "10:00", "T09:00"),
        (pa.date32(), "2026-01-02", "2026-01-01"),
        (pa.date64(), "2026-01-02", "2026-01-01"),
        (pa.string(), "b", "a"),
        (pa.binary(), "b", "a"),
    ],
    ids=str,
)
def test_a_range_that_ends_before_it_begins_is_refused_whatever_its_text(kind, low, high):
    """By instant, not as text: otherwise its answer would be minus a count, and its depth −1."""
    with pytest.raises(ParameterError, match="'t' must begin with the smaller value") as refused:
        interval(kind, low, high, [])
    assert repr(low) in str(refused.value)
    assert repr(high) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (ZONED, "2026-01-01T12:00:00+12:00", "2026-01-01T00:00:00Z"),
        (ZONED, "2026-01-01T00:00:00Z", "2026-01-01 12:00:00+12:00"),
        (LOCAL, "2026-01-01T00:00:00", "2026-01-01 00:00:00"),
        (LOCAL, "2026-01-01T00:00", "2026-01-01"),
    ],
)
def test_equal_instants_in_two_spellings_are_one_instant(kind, low, high):
    midnight = datetime.datetime(2026, 1, 1)
    around = [midnight + datetime.timedelta(milliseconds=step) for step in (-1, 0, 0, 1)]
    assert interval(kind, low, high, around) == 2


def test_times_of_day_are_compared_by_time():
    hours = [datetime.time(hour) for hour in (8, 9, 10)]
    assert interval(DAY, "0830", "09:00", hours) == 1
    assert interval(DAY, "T09", "09:00:00", hours) == 1
    for value in ("09:00+02:00", "09:00Z", "09:00:00.5"):  # nothing that the column cannot hold is left out
        with pytest.raises(ParameterError, match="is not a time32"):
            interval(pa.time32("s"), value, "23:00", [])


@pytest.mark.parametrize(
    ("kind", "between", "values", "inside"),
    [
        (pa.int64(), [2**63, 2**65], [0, 2**63 - 1], 0),
        (pa.int64(), [2**63 - 1, 2**63], [0, 2**63 - 1], 1),
        (pa.int64(), [-(2**65), -(2**63)], [-(2**63), 0], 1),
        (pa.int64(), [-(2**65), -(2**64)], [-(2**63), 0], 0),
        (pa.int32(), [2**63, 2**63], [0, 2**31 - 1], 0),
        (pa.uint64(), [2**64, 2**70], [0, 2**64 - 1], 0),
        (pa.uint64(), [2**64 - 1, 2**64], [0, 2**64 - 1], 1),
        (pa.int64(), [0.4, 0.6], [0, 1], 0),
        (pa.float64(), [10**400, 10**500], [0.0, 1.0], 0),
    ],
)
def test_bounds_beyond_the_numbers_of_a_column_count_what_is_there(kind, between, values, inside):
    assert interval(kind, *between, values) == inside
    last = "2262-04-11T23:47:16.854775807"  # 2^63 − 1 ns
    assert interval(pa.timestamp("ns"), "2026-01-01", last, [0, 2**63 - 1]) == 1


def test_answers_that_no_record_moves_say_so_and_no_depth_is_below_zero():
    bounds = Sensitivity(8, 1)
    empty = {"column": "n", "between": [0.4, 0.6]}
    plan = QueryPlan(
        queries_of(empty, {"column": "n", "between": [2**63, 2**65]}, {"key": "a"}), SCHEMA, "url"
    )
    assert plan.sensitivity(bounds, 0, 2) == plan.sensitivity(CONSTANT) == CONSTANT
    assert plan.sensitivity(bounds).max_per_key == 1
    with pytest.raises(ParameterError, match="answers which a unit moves"):
        HistogramParams(epsilon=1, threshold=1, sensitivity=plan.sensitivity(bounds, 0, 2))
    with pytest.raises(AssertionError, match="ends below its beginning"):
        IntervalCounters([(0, 2, 5), (1, 3, 1)], pa.int64(), "n")


def test_every_plain_type_can_be_queried():
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5)
    columns = {
        "f16": (pa.array(np.array([1.5, 9], np.float16)), [1, 2]),
        "f32": (pa.array([0.2, 0.3], pa.float32()), [0.1, 0.2]),
        "tz": (
            pa.array([moment, None], pa.timestamp("ns", tz="UTC")),
            ["2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"],
        ),
        "t": (
            pa.array([datetime.time(1, 2, 3), datetime.time(9)], pa.time64("us")),
            ["00:00:00", "02:00:00"],
        ),
        "d": (pa.array([datetime.date(2026, 1, 2), None], pa.date64()), ["2026-01-01", "2026-01-03"]),
        "fixed": (pa.array([b"ab", b"zz"], pa.binary(2)), ["aa", "bb"]),
        "view": (pa.array(["ab", "zz"], pa.string_view()), ["aa", "bb"]),
        "dict": (pa.array(["ab", "zz"]).dictionary_encode(), ["aa", "bb"]),
        "null": (pa.nulls(2), ["a", "b"]),
    }
    table = pa.table({"k": ["x", "y"], **{name: column for name, (column, _) in columns.items()}})
    fields = [{"column": name, "between": ends} for name, (_, ends) in columns.items()]
    plan = QueryPlan(queries_of(*fields), table.schema, "k")
    total = plan.zeros()
    records = unpack_records(pack_records(table, plan.record_schema), plan.record_schema)
    plan.add_records(total, records, np.ones(2, np.int64))
    assert read_off(plan, total) == [1, 1, 1, 1, 1, 1, 1, 1, 0]
    with pytest.raises(ParameterError, match="such as 2026-11-16T00:00:00Z"):
        QueryPlan(queries_of({"column": "tz", "between": ["x", "y"]}), table.schema, "k")
    with pytest.raises(ParameterError, match="such as 09:30:00"):
        QueryPlan(queries_of({"column": "t", "between": ["x", "y"]}), table.schema, "k")


def test_plans_refuse_what_does_not_fit():
    with pytest.raises(ParameterError, match="no column 'age'"):
        QueryPlan(queries_of({"column": "age", "between": [1, 2]}), SCHEMA, "url")
    with pytest.raises(ParameterError, match="no column 'm'"):
        QueryPlan(queries_of({"where": "m = 3"}), SCHEMA, "url")
    with pytest.raises(ParameterError, match="found text"):
        QueryPlan(queries_of({"column": "n", "between": ["a", "b"]}), SCHEMA, "url")
    with pytest.raises(ParameterError, match="ordered column"):
        QueryPlan(
            queries_of({"column": "b", "between": [0, 1]}),
            pa.schema([("url", pa.string()), ("b", pa.bool_())]),
            "url",
        )
    nested = pa.schema([("url", pa.string()), ("l", pa.list_(pa.int64()))])
    with pytest.raises(ParameterError, match="plain values"):
        QueryPlan(queries_of({"where": "l = 3"}), nested, "url")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | TEXTS,
            st.none() | st.binary(max_size=4),
            st.none() | st.floats(),
            st.none() | st.booleans(),
        )
    )
)
def test_records_survive_packing(rows):
    schema = pa.schema([("s", pa.string()), ("b", pa.binary()), ("f", pa.float64()), ("o", pa.bool_())])
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    table = pa.Table.from_arrays(columns, schema=schema)
    packed = pack_records(table, schema)
    again = unpack_records(packed, schema)
    assert again.drop_columns("f").equals(table.drop_columns("f"))
    for one, two in zip(table.column("f").to_pylist(), again.column("f").to_pylist(), strict=True):
        assert one == two or (one != one and two != two)
    assert len(set(packed.to_pylist())) <= len({repr(row) for row in rows})


def test_bounds_are_exact_fractions():
    assert parse_query({"column": "x", "between": [0.1, 0.2]}, 0, "q").kind.low == Fraction(1, 10)
    assert np.float64(Fraction(1, 10)) == 0.1
