"""The plan: formats by name, missing columns, one schema, clear errors before anything is read."""

from __future__ import annotations

import datetime
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushgram.errors import InputError, ParameterError
from hushgram.inputs import Source, plan_inputs, read_item
from hushgram.inputs.conditions import parse
from hushgram.inputs.plan import format_of

from .helpers import plan_of, read, write

ANY = Source(ids=("user", "key"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.parquet", ("parquet", None)), ("A.PQ", ("parquet", None)), ("a.csv.gz", ("csv", "gzip")),
        ("gs://b/a.tsv.zst", ("csv", "zstd")), ("a.ndjson.bz2", ("jsonl", "bz2")), ("a.log", ("log", None)),
    ],
)  # fmt: skip
def test_format_from_the_name(name: str, expected: tuple[str, str | None]) -> None:
    format, compression = format_of(name, ANY)
    assert (format.name, compression) == expected


def test_unknown_ending_asks_for_the_format() -> None:
    with pytest.raises(
        InputError, match=r"part-0: cannot tell the format from the file name; set input\.format"
    ):
        format_of("part-0", ANY)
    format, compression = format_of("part-0.gz", Source(ids=("k",), format="jsonl"))
    assert (format.name, compression) == ("jsonl", "gzip")


def test_no_file_at_all() -> None:
    with pytest.raises(InputError, match="matches no file"):
        plan_inputs([], ANY)


def test_missing_column_names_what_there_is_and_the_nearest(tmp_path: Path) -> None:
    csv = write(tmp_path / "a.csv", "userid,key\n1,2\n")
    message = r"a\.csv: no column 'user'; did you mean 'userid'\?.*columns are: userid, key"
    with pytest.raises(InputError, match=message):
        plan_of(csv)
    jsonl = write(tmp_path / "a.jsonl", '{"user": 1, "uri": 2}\n')
    with pytest.raises(InputError, match=r"a\.jsonl: no column 'key'.*: user, uri"):
        plan_of(jsonl)
    parquet = tmp_path / "a.parquet"
    pq.write_table(pa.table({"user": [1], "Key": [2]}), parquet)
    with pytest.raises(InputError, match=r"a\.parquet: no column 'key'.*did you mean 'Key'"):
        plan_of(parquet)


def test_every_file_is_checked(tmp_path: Path) -> None:
    good = write(tmp_path / "a.csv", "user,key\n1,2\n")
    bad = write(tmp_path / "b.csv", "user,kex\n1,2\n")
    with pytest.raises(InputError, match=r"b\.csv: no column 'key'"):
        plan_of([good, bad])


def test_column_twice_in_the_header(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"column 'key' occurs 2 times in the header"):
        plan_of(write(tmp_path / "a.csv", "user,key,key\n1,2,3\n"))


def test_wrong_compression_utf16_and_disguised_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_text("user,key\n1,2\n")
    with pytest.raises(InputError, match=r"a\.csv\.gz: cannot be read as gzip"):
        plan_of(tmp_path / "a.csv.gz")
    (tmp_path / "b.csv").write_bytes("user,key\n".encode("utf-16"))
    with pytest.raises(InputError, match=r"b\.csv: is UTF-16 text"):
        plan_of(tmp_path / "b.csv")
    pq.write_table(pa.table({"user": [1], "key": [2]}), tmp_path / "c.csv")
    with pytest.raises(InputError, match=r"c\.csv: is a Parquet file"):
        plan_of(tmp_path / "c.csv")


def test_formats_may_be_mixed_and_identity_follows_the_files(tmp_path: Path) -> None:
    csv = write(tmp_path / "a.csv", "user,key\n1,/a\n")
    jsonl = write(tmp_path / "b.jsonl", '{"user": 2, "key": "/b"}\n')
    parquet = tmp_path / "c.parquet"
    pq.write_table(pa.table({"user": [3], "key": ["/c"]}), parquet)
    rows, _ = read([csv, jsonl, parquet])
    assert sorted(row["user"] for row in rows) == ["1", "2", "3"]
    pq.write_table(pa.table({"user": [b"3"], "key": ["/c"]}), parquet)
    rows, _ = read([csv, jsonl, parquet])
    assert sorted(row["user"] for row in rows) == [b"1", b"2", b"3"]


def test_plan_pickles_and_the_largest_items_come_first(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{n}.csv", "user,key\n" + "1,2\n" * n) for n in (1, 50, 9)]
    plan = plan_of(files)
    assert [item.size for item in plan.items] == sorted((item.size for item in plan.items), reverse=True)
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_source_checks_itself() -> None:
    with pytest.raises(ParameterError, match="format must be one of"):
        format_of("a.xml", Source(ids=("k",), format="xml"))
    with pytest.raises(ParameterError, match="name at least one column"):
        Source(ids=())


@pytest.mark.parametrize("ending", ["jsonl", "csv", "jsonl.gz"])
def test_a_file_without_records_has_the_types_of_one_with_records(tmp_path: Path, ending: str) -> None:
    """One person's only line in such a file once decided how the times of all others were compared."""
    times = pa.array([datetime.datetime(2026, 11, 16, hour) for hour in (9, 13)])
    pq.write_table(pa.table({"user": ["a", "b"], "key": ["k", "k"], "time": times}), tmp_path / "a.parquet")
    line = '{"user": "c", "key": "k", "time": "2026-11-16 09:00:00"}\n'
    if ending == "csv":
        line = "user,key,time\nc,k,2026-11-16 09:00:00\n"
    where = parse("time >= '2026-11-16 12:00:00'")
    found = []
    for number, content in enumerate((line, "", "\n \n")):
        files = [tmp_path / "a.parquet", write(tmp_path / f"{number}.{ending}", content)]
        plan = plan_of(files, where=where)
        found.append((plan.schema, plan.raw, [item.types for item in plan.items if "a.parquet" in item.path]))
        chunks = [chunk for item in plan.items for chunk in read_item(item, plan)]
        assert sorted(user for chunk in chunks for user in chunk.batch["user"].to_pylist()) == ["a", "b"]
    assert found[1] == found[0]
    assert found[2] == found[0]
