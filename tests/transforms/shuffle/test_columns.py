"""Records as columns: what is set aside before bounding."""

from __future__ import annotations

from typing import NamedTuple

import apache_beam as beam
import pyarrow as pa
import pytest

from hushgram.errors import InputError
from hushgram.exact.contributions import Bounds
from hushgram.noise.entropy import ReleaseKey
from hushgram.transforms.bound_contributions import BoundContributions, CountRecords
from hushgram.transforms.shuffle.columns import Fields, RowBuffer, columns_of


class View(NamedTuple):
    user: str
    url: str


def test_a_null_among_the_values_of_a_dictionary_is_set_aside() -> None:
    users = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0]), pa.array(["a", None]))
    found = columns_of(pa.table({"user": users, "key": ["k", "l", "m", "n"]}), Fields("user", "key"))
    assert found.users is not None
    assert (found.users.to_pylist(), found.keys.to_pylist(), found.bad) == (["a", "a"], ["k", "n"], 2)


def test_rows_of_a_schema_are_checked_when_the_pipeline_is_built() -> None:
    for records in ([beam.Row(user="a", url="/")], [View("a", "/")]):
        pipeline = beam.Pipeline()
        create = beam.Create(records)
        rows = pipeline | (create.with_output_types(View) if isinstance(records[0], View) else create)
        with pytest.raises(InputError, match="no field 'uri' in the records; the fields are user, url"):
            rows | BoundContributions(
                "user", "uri", ReleaseKey(bytes(32)), Bounds(1, 1), texts=True, shards=1
            )
        with pytest.raises(InputError, match="no field 'uri'"):
            rows | "Count" >> CountRecords("uri", texts=True)


def test_dicts_without_the_field_fail_with_the_first_batch() -> None:
    rows = RowBuffer(Fields("user", "uri"))
    rows.add({"user": "a", "url": "/"})
    with pytest.raises(InputError, match="no record has the fields 'user' and 'uri'; a record has user, url"):
        rows.take()


def test_a_single_dict_without_the_field_is_set_aside() -> None:
    rows = RowBuffer(Fields("user", "url"))
    for record in ({"user": "a"}, {"user": "b", "url": "/"}, {"user": "c", "url": None}):
        rows.add(record)
    assert rows.take()[1:3] == (pa.array([b"/"], pa.large_binary()), {"url is null": 2})
    later = RowBuffer(Fields("user", "url"), known=rows.known)
    later.add({"user": "a"})
    assert later.take().bad == 1
