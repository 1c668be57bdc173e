"""Records as columns: what is rejected before bounding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
import pytest

from hushgram.contributions.bounding import BoundingSpec, Bounds
from hushgram.errors import InputError
from hushgram.inputs import Check, Limits, RecordCounts
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.run.beam_runners import new_pipeline, pipeline_options
from hushgram.pipelines.run.progress import run_pipeline
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.transforms.bound_contributions import BoundContributions
from hushgram.transforms.release_sparse_histogram import ReleaseSparseHistogram
from hushgram.transforms.shuffle.combining import Tally
from hushgram.transforms.shuffle.records import Columns, Fields, TakeBatches, columns_of


class View(NamedTuple):
    user: str
    url: str


class Visitor(NamedTuple):
    user: str


def test_a_null_among_the_values_of_a_dictionary_is_rejected() -> None:
    users = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0]), pa.array(["a", None]))
    found = columns_of(pa.table({"user": users, "key": ["k", "l", "m", "n"]}), Fields("user", "key"))
    assert found.users is not None
    assert (found.users.to_pylist(), found.keys.to_pylist(), found.rejected) == (["a", "a"], ["k", "n"], 2)


def test_rows_of_a_schema_are_checked_when_the_pipeline_is_built() -> None:
    for records in ([beam.Row(user="a", url="/")], [View("a", "/")]):
        pipeline = beam.Pipeline()
        create = beam.Create(records)
        rows = pipeline | (create.with_output_types(View) if isinstance(records[0], View) else create)
        with pytest.raises(InputError, match="no field 'uri' in the records; the fields are user, url"):
            rows | BoundContributions(
                BoundingSpec("user", "uri", ReleaseKey(bytes(32)), (Bounds(1, 1),), texts=True)
            )
        with pytest.raises(InputError, match="no field 'uri'"):
            rows | "Count" >> BoundContributions(
                BoundingSpec(None, "uri", ReleaseKey(bytes(32)), (Bounds(1, 1),), texts=True)
            )


GOOD = [{"user": str(i), "url": f"/{i % 5}"} for i in range(40)]
ODD: list[Any] = [
    {"user": "a"}, {"url": "/"}, {}, None, "text", ("a",), ("a", "b", "c"), 7, [1, 2], {"user": None, "url": "/"},
    {"user": "a", "url": 1.5}, pa.table({"user": ["a"]}), pa.table({"user": [1.5], "url": ["/"]}),
    Visitor("a"),
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=lambda record: type(record).__name__)
def test_one_odd_record_is_rejected_in_whatever_bundle_it_comes(odd: Any) -> None:
    fields = Fields("user", "url")
    alone, beside = _taken([odd], fields), _taken([*GOOD, odd], fields)
    assert (alone.rows, sum(alone.rejected.values())) == (0, 1)
    assert (beside.rows, beside.rejected) == (len(GOOD), alone.rejected)


def _taken(records: list[Any], fields: Fields) -> RecordCounts:
    """What one bundle of records is counted as."""
    step = CountBatches(fields)
    step.setup()
    step.start_bundle()
    for record in records:
        assert not list(step.process(record) or ())
    (tally,) = [element.value for element in step.finish_bundle() if isinstance(element.value, Tally)]
    return tally.counts


class CountBatches(TakeBatches):
    """Takes batches, and makes nothing of them."""

    def __init__(self, fields: Fields) -> None:
        super().__init__(fields, threads=1, check=Check(Limits()))

    def work(self, columns: list[Columns]) -> int:
        return sum(map(len, columns))

    def send(self, result: int) -> Iterator[int]:
        return iter(())


def test_a_few_odd_records_do_not_stop_a_release(tmp_path: Path) -> None:
    records = [*GOOD, *ODD]
    _run(records, tmp_path / "a", max_rejected_share="0.5")
    with pytest.raises(
        InputError, match=r"more than max_rejected_share \(0.05\) of the records would be rejected"
    ):
        _run(records, tmp_path / "b")


def test_a_field_that_no_record_has_is_refused_at_the_end(tmp_path: Path) -> None:
    records = [{"user": "a", "uri": "/"}] * 9
    with pytest.raises(
        InputError, match="the records: no field 'url' in the record; more than max_rejected_share"
    ):
        _run(records, tmp_path / "a")
    tables = [pa.table({"user": ["a"], "uri": ["/"]})] * 9
    with pytest.raises(InputError, match="the records: no column 'url'; more than max_rejected_share"):
        _run(tables, tmp_path / "b")


def _run(records: list[Any], path: Path, **options: Any) -> None:
    params = ReleaseParams(epsilon="1", max_contributions=2)
    pipeline = new_pipeline(pipeline_options())
    created = pipeline | beam.Create(records, reshuffle=False)
    _ = created | ReleaseSparseHistogram(params, user="user", key="url", path=path, **options)
    run_pipeline(pipeline, pipeline_options(), title="test", quiet=True)
