"""The sensitivity that queries and clipping state, on neighbouring data: one user more changes no answer by more."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgram.contributions.bounding import Bounds, Contributions
from hushgram.contributions.histogram import Histogram
from hushgram.mechanisms.clipping import ClipParams, ClipTally, count_cells, to_multiples
from hushgram.mechanisms.svt.exact_answers import QueryPlan, pack_records, unpack_records
from hushgram.mechanisms.svt.queries import check_stream, parse_query, sensitivity
from hushgram.noise.entropy import ReleaseKey
from hushgram.sensitivity import CONSTANT, Exact, ExactVector, Sensitivity

KEY = ReleaseKey(bytes(range(32)))
SCHEMA = pa.schema([("user", pa.string()), ("url", pa.string()), ("n", pa.int64())])
FIELDS = [
    {"key": "a"},
    {"key": "ab"},
    {"prefix": "a"},
    {"prefix": ""},
    {"column": "n", "between": [0, 2]},
    {"where": "n >= 1 or url = 'a'"},
    {"where": "not n = 1"},
]
ROWS = st.lists(
    st.tuples(st.sampled_from("uvw"), st.sampled_from(["a", "ab", "b", "c"]), st.none() | st.integers(-1, 3)),
    max_size=25,
)
HEAVY = st.lists(
    st.tuples(st.just("x"), st.sampled_from(["a", "ab", "b", "c"]), st.none() | st.integers(-1, 3)),
    min_size=1,
    max_size=25,
)


def table(rows):
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.Table.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def bounded(data, keys, most, per_key, texts):
    if not data.num_rows:
        return Histogram.empty(texts=texts)
    return Contributions.of(data["user"], keys, KEY, texts=texts).bounded(Bounds(most, per_key))


def exact(plan, rows, most, per_key):
    data = table(rows)
    total = plan.zeros()
    by_key = bounded(data, data["url"], most, per_key, plan.texts)
    plan.add_keys(total, by_key)
    packed = pack_records(data, plan.record_schema)
    records = bounded(data, packed, most, per_key, True)
    plan.add_records(total, unpack_records(records.texts, plan.record_schema), records.counts)
    counted = ExactVector(total, Exact.shared([by_key, records]))
    streams = plan.answers(counted, [1] * plan.size)  # each query as a stream of its own
    return np.concatenate([stream.values for stream in streams]), [stream.sensitivity for stream in streams]


@settings(max_examples=60, deadline=None)
@given(ROWS, HEAVY, st.integers(1, 5), st.integers(1, 3))
def test_one_user_changes_an_answer_by_at_most_its_sensitivity(rows, heavy, most, per_key):
    queries = check_stream([parse_query(f, i, "q") for i, f in enumerate(FIELDS)], "test")
    plan = QueryPlan(queries, SCHEMA, "url")
    after, carried = exact(plan, rows + heavy, most, per_key)
    change = after - exact(plan, rows, most, per_key)[0]
    assert (change >= 0).all()  # monotone: counts only grow when a user is added
    for query, by, stated in zip(queries, change.tolist(), carried, strict=True):
        assert stated.monotone
        assert by <= stated.max_per_key == stated.max_contributions == sensitivity([query], most, per_key)


def test_the_bound_is_attained_and_unbounded_data_break_it():
    heavy = [("x", "a", i) for i in range(9)] + [("x", "ab", i) for i in range(9)]
    queries = check_stream([parse_query(f, i, "q") for i, f in enumerate(FIELDS)], "test")
    plan = QueryPlan(queries, SCHEMA, "url")
    change, _ = exact(plan, heavy, 4, 2)
    assert change[:4].tolist() == [2, 2, 4, 4]
    unbounded, _ = exact(plan, heavy, 10**6, 10**6)
    assert any(by > sensitivity([q], 4, 2) for q, by in zip(queries, unbounded.tolist(), strict=True))


VALUES = st.lists(st.tuples(st.sampled_from("uvw"), st.integers(-5, 300)), max_size=20)


def tally(rows, params):
    if not rows:
        return ClipTally.of_vector(
            ExactVector(np.zeros(3 * (len(params.bounds) + 1), np.int64), CONSTANT), params
        )
    schema = pa.schema([("v", pa.int64())])
    values = pa.table({"v": pa.array([row[1] for row in rows], pa.int64())})
    most = params.max_contributions
    held = Contributions.of([row[0] for row in rows], pack_records(values, schema), KEY, texts=True).bounded(
        Bounds(most, most)
    )
    units = to_multiples(unpack_records(held.texts, schema).column(0).combine_chunks(), params)
    return ClipTally.of_vector(count_cells(units, held.counts, params, held.sensitivity), params)


@settings(max_examples=60, deadline=None)
@given(VALUES, st.lists(st.integers(-5, 300), min_size=1, max_size=20), st.integers(1, 4))
def test_one_user_changes_a_clipped_tally_within_its_scales(rows, extra, most):
    params = ClipParams(epsilon="1", max_contributions=most, stop=200)
    before, after = tally(rows, params), tally(rows + [("x", value) for value in extra], params)
    assert after.sensitivity == Sensitivity(most, most)
    assert 0 <= after.count - before.count <= most
    for b, one, two, s, t in zip(
        params.bounds, before.above, after.above, before.sums, after.sums, strict=True
    ):
        assert 0 <= two - one <= most
        assert 0 <= t - s <= most * b
