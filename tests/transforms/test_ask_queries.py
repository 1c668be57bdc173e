"""Queries as a collection, bounded and unbounded: the answers of a file of the same queries."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.testing.util import assert_that

from hushgram.contributions.bounding import BoundingSpec, Bounds
from hushgram.errors import ParameterError
from hushgram.mechanisms.svt import ABOVE, BELOW, HALTED, HistogramParams, SvtParams
from hushgram.noise.entropy import InteractiveKey, ReleaseKey
from hushgram.sensitivity import Sensitivity
from hushgram.transforms.bound_contributions import BoundContributions
from hushgram.transforms.sparse_vector import RECORD, AskQueries, PackRecords, SparseVector

KEY = ReleaseKey(bytes(range(32)))
SCHEMA = pa.schema([("url", pa.string()), ("n", pa.int64())])
QUERIES = [
    {"seq": 1, "prefix": "/"},
    {"seq": 0, "key": "/a"},
    {"seq": 3, "where": "n > 1 and url = '/a'"},
    {"seq": 2, "column": "n", "between": [1, 2]},
]
EXACT = [600, 900, 600, 300]


def table():
    """300 users: two records of /a with n = 1 and 2, one of /b with n = 3."""
    users = [f"u{i}" for i in range(300) for _ in range(3)]
    return pa.table(
        {"user": users, "url": ["/a", "/a", "/b"] * 300, "n": pa.array([1, 2, 3] * 300, pa.int64())}
    )


def parts(pipeline):
    batches = pipeline | "Read" >> beam.Create(table().to_batches(max_chunksize=100)).with_output_types(
        pa.RecordBatch
    )
    packed = batches | PackRecords(SCHEMA, "user")
    by_key, by_record = (
        BoundingSpec("user", name, KEY, (Bounds(8, 2),), texts=True) for name in ("url", RECORD)
    )
    return {
        "keys": batches | "BoundKeys" >> BoundContributions(by_key, 2),
        "records": packed | "BoundRecords" >> BoundContributions(by_record, 2),
    }


def numbered(answers):
    return [
        (int(n), *rest)
        for _, one in answers
        for n, *rest in zip(one.sequence, one.outcome, one.value, strict=True)
    ]


def test_a_bounded_collection_is_answered_at_once():
    params = HistogramParams(epsilon=1000, threshold=500, sensitivity=Sensitivity(8 * 4, 8))

    def check(answers):
        found = sorted(numbered(answers))
        assert [n for n, *_ in found] == [0, 1, 2, 3]
        assert max(abs(value - exact) for (_, _, value), exact in zip(found, EXACT, strict=True)) <= 1
        assert [outcome for _, outcome, _ in found] == [ABOVE, ABOVE, ABOVE, BELOW]

    with beam.Pipeline(runner="FnApiRunner", options=PipelineOptions([])) as pipeline:
        queries = pipeline | beam.Create([("alerts", query) for query in QUERIES])
        answers = {"queries": queries, **parts(pipeline)} | AskQueries(SCHEMA, "url")
        assert_that(answers | SparseVector({"alerts": params}, release_key=KEY), check)


def test_an_unbounded_collection_is_answered_as_it_comes():
    """Out of order, and one query twice; the stream halts after two answers above."""
    params = SvtParams(epsilon=1000, threshold=700, cutoff=1, sensitivity=8, monotone=True)
    arrivals = TestStream()
    for query in (QUERIES[0], QUERIES[1], QUERIES[1], QUERIES[3], QUERIES[2]):
        arrivals = arrivals.add_elements([("alerts", query)])

    def check(answers):
        found = sorted((n, outcome) for n, outcome, _ in numbered(answers))
        assert found == [(0, BELOW), (0, BELOW), (1, ABOVE), (2, HALTED), (3, HALTED)]

    with beam.Pipeline(
        runner="BundleBasedDirectRunner", options=PipelineOptions(["--streaming"])
    ) as pipeline:
        queries = pipeline | arrivals.advance_watermark_to_infinity()
        answers = {"queries": queries, **parts(pipeline)} | AskQueries(SCHEMA, "url")
        released = answers | SparseVector({"alerts": params}, release_key=InteractiveKey(bytes(32)))
        assert_that(released, check)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"key": "/a"}, "has no seq"),
        ({"seq": 0, "where": "m = 1"}, "no column"),
        ({"seq": 0, "what": 1}, "unknown query kind"),
    ],
)
def test_a_wrong_query_is_refused(query, message):
    from hushgram.transforms.sparse_vector import _CountQueries

    with pytest.raises(ParameterError, match=message):
        list(_CountQueries(SCHEMA, "url").process(("alerts", [query]), [], []))


def test_data_that_were_not_given_are_named():
    from hushgram.transforms.sparse_vector import _CountQueries

    with pytest.raises(ParameterError, match="asks for records, and no records were given"):
        list(_CountQueries(SCHEMA, "url").process(("alerts", [QUERIES[2]]), [], None))
    ((_, (numbers, answers)),) = _CountQueries(SCHEMA, "url").process(("alerts", QUERIES), [], [])
    assert numbers.tolist() == [0, 1, 2, 3]
    assert np.array_equal(answers.values, np.zeros(4))
