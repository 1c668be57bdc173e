"""The exact-answer stage on Beam: the same answers however the data are cut, and zeros where there are none."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from hushgram.contributions.histogram import Histogram
from hushgram.mechanisms.svt.exact_answers import QueryPlan, pack_records
from hushgram.mechanisms.svt.queries import check_stream, parse_query
from hushgram.sensitivity import CONSTANT, Sensitivity, exact
from hushgram.transforms.shuffle.combining import SumAll, zero_vector
from hushgram.transforms.sparse_vector import RECORD, AnswerQueries, PackRecords

SCHEMA = pa.schema([("user", pa.string()), ("url", pa.string()), ("n", pa.int64())])
FIELDS = [
    {"key": "/a"},
    {"prefix": "/"},
    {"key": "/b"},
    {"column": "n", "between": [1, 2]},
    {"where": "url = '/a' and n > 1"},
]


def plan_of(fields):
    queries = check_stream([parse_query(f, 10 * i, f"query {i}") for i, f in enumerate(fields)], "test")
    return QueryPlan(queries, SCHEMA, "url"), np.array([q.sequence for q in queries])


def keep(element, path):
    Path(path, f"{element[0]}.pickle").write_bytes(pickle.dumps(element[1]))


def run(build, folder):
    with beam.Pipeline(runner="FnApiRunner", options=PipelineOptions([])) as pipeline:
        _ = build(pipeline) | beam.Map(keep, str(folder))
    return {path.stem: pickle.loads(path.read_bytes()) for path in Path(folder).glob("*.pickle")}


def table(rows):
    return pa.table(
        {
            "user": ["u"] * len(rows),
            "url": [r[0] for r in rows],
            "n": pa.array([r[1] for r in rows], pa.int64()),
        }
    )


@pytest.mark.parametrize("cuts", [1, 4])
def test_answers_add_up_over_parts(tmp_path, cuts):
    plan, numbers = plan_of(FIELDS)
    rows = [("/a", 1), ("/a", 2), ("/b", 3), ("c", 2), ("/a", None), ("/bb", 0)]
    parts = [table(rows[i::cuts]) for i in range(cuts)]
    keys = [Histogram.of_column(part["url"], texts=True) for part in parts]
    records = [Histogram.of_column(pack_records(part, plan.record_schema), texts=True) for part in parts]
    streams = [("first", numbers[:3]), ("second", numbers[3:])]

    def build(pipeline):
        collections = {
            "keys": pipeline | "Keys" >> beam.Create(keys),
            "records": pipeline | "Records" >> beam.Create(records),
        }
        return collections | AnswerQueries(plan, streams)

    found = run(build, tmp_path)
    assert found["first"][0].tolist() == [0, 10, 20]
    assert found["first"][1].values.tolist() == [3, 5, 1]
    assert found["second"][1].values.tolist() == [3, 1]
    assert {answers.sensitivity.unit for _, answers in found.values()} == {"record"}


def test_no_data_is_answered_with_zeros(tmp_path):
    plan, numbers = plan_of([{"key": "/a"}, {"key": "/b"}])
    found = run(
        lambda pipeline: {"keys": pipeline | beam.Create([])} | AnswerQueries(plan, [("s", numbers)]),
        tmp_path,
    )
    assert found["s"][1].values.tolist() == [0, 0]


def test_packed_records_keep_the_user(tmp_path):
    plan, _ = plan_of([{"where": "n = 1"}])
    batch = table([("/a", 1), ("/b", None)]).to_batches()[0]

    def build(pipeline):
        return (
            pipeline
            | beam.Create([batch])
            | PackRecords(plan.record_schema, "user")
            | beam.Map(lambda b: ("b", b))
        )

    packed = run(build, tmp_path)["b"]
    assert packed.schema.names == ["user", RECORD]
    assert packed[RECORD].equals(pack_records(batch, plan.record_schema))


def test_sum_of_vectors():
    fn = SumAll(partial(zero_vector, 3))
    total = fn.add_input(fn.create_accumulator(), exact([1, 2, 3], max_contributions=8))
    merged = fn.merge_accumulators([total, total, fn.create_accumulator()])
    assert fn.extract_output(merged).values.tolist() == [2, 4, 6]
    assert merged.sensitivity == total.sensitivity == Sensitivity(8, 8)
    none = fn.merge_accumulators([])
    assert (none.values.tolist(), none.sensitivity) == ([0, 0, 0], CONSTANT)
    with pytest.raises(AssertionError, match="parts of different bounds"):
        fn.add_input(total, exact([1, 2, 3], max_contributions=9))
