"""Parquet: row groups, types of identifiers, nulls, torn files."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushgram.contributions.keys import fingerprints, to_id
from hushgram.errors import InputError, ParameterError
from hushgram.inputs import read_item
from hushgram.inputs.columns import keep_good
from hushgram.inputs.conditions import parse
from tests.core.inputs.helpers import plan_of, read, read_all

ROOT = Path(__file__).parents[4]


def table(path: Path, users: Any, keys: Any, **options: Any) -> Path:
    pq.write_table(
        pa.table({"user": users, "key": keys, "extra": pa.array(range(len(keys)))}), path, **options
    )
    return path


def test_row_groups_are_items_and_only_needed_columns_are_read(tmp_path: Path) -> None:
    file = table(
        tmp_path / "a.parquet",
        pa.array(range(1000)),
        pa.array([f"/{i}" for i in range(1000)]),
        row_group_size=90,
    )
    plan = plan_of(file, item_bytes=1)
    assert len(plan.items) == 12
    assert plan.rows == 1000
    assert plan.schema == pa.schema({"user": pa.int64(), "key": pa.string()})
    rows, rejected, _ = read_all(plan)
    assert len(rows) == 1000
    assert not rejected


TEXTS = ["7", "8", "7"]


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([7, 8, 7], pa.int8()), pa.int64()),
        (pa.array([7, 8, 7], pa.uint64()), pa.uint64()),
        (pa.array(TEXTS, pa.large_string()), pa.large_string()),
        (pa.array(TEXTS).dictionary_encode(), pa.string()),
        (pa.array([b"7", b"8", b"7"]), pa.binary()),
        (pa.array([b"7", b"8", b"7"], pa.binary(1)), pa.binary()),
    ],
)
def test_identifiers_have_the_same_bytes_from_every_type(tmp_path: Path, column: Any, kind: Any) -> None:
    plan = plan_of(table(tmp_path / "a.parquet", column, pa.array(TEXTS)))
    assert plan.schema.field("user").type == kind
    batch = next(iter(read_item(plan.items[0], plan))).batch
    assert fingerprints(batch.column("user")).tolist() == fingerprints(TEXTS).tolist()


def test_dates_and_booleans_are_spelled_as_in_csv(tmp_path: Path) -> None:
    day = datetime.date(2026, 11, 16)
    rows, _ = read(table(tmp_path / "a.parquet", pa.array([day]), pa.array([True])))
    assert rows == [{"user": "2026-11-16", "key": "true"}]


@pytest.mark.parametrize("column", [pa.array([1.5]), pa.array([[1]]), pa.array([datetime.time(1)])])
def test_types_without_a_spelling_are_refused(tmp_path: Path, column: Any) -> None:
    with pytest.raises(
        InputError, match=r"a\.parquet: column 'user' is .*; a user or key must be text, bytes"
    ):
        plan_of(table(tmp_path / "a.parquet", column, pa.array(["k"])))


def test_files_of_different_types_share_one_schema(tmp_path: Path) -> None:
    files = [
        table(tmp_path / "a.parquet", pa.array([1], pa.int32()), pa.array(["k"])),
        table(tmp_path / "b.parquet", pa.array(["2"]), pa.array(["k"])),
        table(tmp_path / "c.parquet", pa.array([3], pa.uint64()), pa.array([b"k"])),
    ]
    rows, _ = read(files)
    assert sorted(row["user"] for row in rows) == ["1", "2", "3"]
    assert {row["key"] for row in rows} == {b"k"}


def test_nulls_and_broken_text_are_rejected(tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(pa.string(), 4, pa.array([b"a", b"\xff", b"c", b"d"]).buffers())
    plan = plan_of(table(tmp_path / "a.parquet", pa.array(["1", "2", None, "4"]), broken), keep_rejected=True)
    rows, rejected, bad = read_all(plan)
    assert [row["user"] for row in rows] == ["1", "4"]
    assert rejected == {"user is null": 1, "key is not UTF-8": 1}
    assert [row["record"] for row in bad] == [b'{"user": null, "key": "c"}', b'{"user": "2", "key": "\xff"}']


def test_many_rejected_records_are_counted_but_few_are_kept(tmp_path: Path) -> None:
    file = table(tmp_path / "a.parquet", pa.nulls(5000, pa.string()), pa.array(["k"] * 5000))
    rows, rejected, bad = read_all(plan_of(file, keep_rejected=True))
    assert (rows, rejected, len(bad)) == ([], {"user is null": 5000}, 1000)


def test_torn_empty_and_foreign_files_are_named(tmp_path: Path) -> None:
    whole = table(tmp_path / "a.parquet", pa.array(["1"] * 999), pa.array(["k"] * 999)).read_bytes()
    for number, data in enumerate((whole[:-100], whole[:50], b"", b"user,key\n1,2\n")):
        torn = tmp_path / f"torn{number}.parquet"
        torn.write_bytes(data)
        with pytest.raises(InputError, match=rf"torn{number}\.parquet: not a readable Parquet file"):
            plan_of(torn)


def test_damage_inside_is_an_input_error(tmp_path: Path) -> None:
    file = table(tmp_path / "a.parquet", pa.array([str(i) for i in range(999)]), pa.array(["k"] * 999))
    plan = plan_of(file)
    data = bytearray(file.read_bytes())
    data[4:3000] = b"\xee" * 2996
    file.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.parquet: damaged Parquet data"):
        list(read_item(plan.items[0], plan))


def test_wide_rows_make_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushgram.inputs.source.BATCH_BYTES", 100_000)
    keys = pa.array([f"{i:07d}" * 1500 for i in range(100)])
    plan = plan_of(table(tmp_path / "a.parquet", pa.array(range(100)), keys, use_dictionary=False))
    sizes = [chunk.batch.num_rows for chunk in read_item(plan.items[0], plan)]
    assert sum(sizes) == 100
    assert max(sizes) <= 20


@pytest.mark.long
def test_damaged_files_never_end_the_process() -> None:
    """1,000 mutants in a process of their own (the module runs any number)."""
    command = [sys.executable, "-m", "tests.core.inputs.formats.parquet_mutants", "0", "1000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"mutant {done.stderr.splitlines()[-1:]}"
    assert done.stdout.startswith("done"), done.stdout


def test_two_columns_of_one_name_are_refused_when_planned(tmp_path: Path) -> None:
    columns = [pa.array(["1"]), pa.array(["a"]), pa.array(["b"])]
    pq.write_table(pa.Table.from_arrays(columns, names=["user", "key", "key"]), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet: column 'key' occurs 2 times; rename one"):
        plan_of(tmp_path / "a.parquet")


def test_a_dictionary_may_hold_a_null() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    assert to_id(column, pa.string()).to_pylist() == ["a", None, None]


def test_places_of_bad_rows_count_from_the_beginning_of_the_file(tmp_path: Path) -> None:
    users = pa.array([None if i == 250 else str(i) for i in range(300)])
    file = table(tmp_path / "a.parquet", users, pa.array(["k"] * 300), row_group_size=100)
    _, _, bad = read_all(plan_of(file, keep_rejected=True, item_bytes=1))
    assert [row["at"] for row in bad] == [250]


def test_values_keep_the_type_of_their_file_and_their_exact_number(tmp_path: Path) -> None:
    columns = [
        pa.array([2**53 + 1, None]),
        pa.array([0.5, 2.0]),
        pa.nulls(2),
        pa.array([7, 7]).dictionary_encode(),
    ]
    files = []
    for number, column in enumerate(columns):
        files.append(tmp_path / f"{number}.parquet")
        pq.write_table(pa.table({"user": ["a", "b"], "key": ["k", "k"], "n": column}), files[-1])
    plan = plan_of(files, columns=("n",), values=("n",))
    found = {item.path: next(iter(read_item(item, plan))).batch.column("n") for item in plan.items}
    assert [found[str(path)].to_pylist() for path in files] == [
        [2**53 + 1, None],
        [0.5, 2.0],
        [None, None],
        [7, 7],
    ]


def test_text_that_is_not_utf8_is_rejected_also_beside_a_file_of_bytes(tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xc3\xa9", b"\xff"]).buffers())
    files = [
        table(tmp_path / "a.parquet", pa.array(["1", "2"]), broken),
        table(tmp_path / "b.parquet", pa.array(["3"]), pa.array([b"\xff"])),
    ]
    assert read(files[0])[1] == {"key is not UTF-8": 1}
    rows, rejected = read(files)
    assert (len(rows), rejected) == (2, {"key is not UTF-8": 1})
    assert len(read(files, where=parse("key LIKE '_'"))[0]) == 2  # one character of text, one of bytes


def test_a_record_that_cannot_be_converted_is_rejected_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As texts do that are together more than one array can hold: the batch is halved, whatever is in it."""

    def small(arrays: list[Any], *rest: Any, **options: Any) -> Any:
        if len(arrays[0]) > 3 or "7" in arrays[0].to_pylist():
            raise pa.ArrowInvalid("offset overflow while concatenating arrays, the value is 7")
        return keep_good(arrays, *rest, **options)

    monkeypatch.setattr("hushgram.inputs.formats.parquet.keep_good", small)
    users = pa.array([*map(str, range(20)), None])
    rows, rejected = read(table(tmp_path / "a.parquet", users, pa.array(["k"] * 21)))
    assert len(rows) == 19
    assert rejected == {"record cannot be converted": 1, "user is null": 1}


def test_a_condition_must_fit_the_types_of_every_file(tmp_path: Path) -> None:
    moment = datetime.datetime(2026, 11, 15, 10)
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, user, time in ((files[0], 1, moment), (files[1], "x", moment.date())):
        pq.write_table(pa.table({"user": [user], "key": ["k"], "t": [time]}), path)
    with pytest.raises(ParameterError, match=r"b\.parquet: where: '2026-11-15T10:00' is not a date32"):
        plan_of(files, where=parse("t = '2026-11-15T10:00'"))
    assert len(read(files, where=parse("t >= '2026-11-15'"))[0]) == 2
    assert len(read(files, where=parse("user = '1'"))[0]) == 1  # whole numbers beside text are their text


def test_batches_are_cut_by_the_values_that_come_out_of_every_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hushgram.inputs.source.BATCH_BYTES", 100_000)
    users, keys = [str(i) for i in range(3000)], [f"k{i % 7}" * (1 + 300 * (i % 3)) for i in range(3000)]
    found = []
    for encoding in (
        "dictionary",
        "small dictionary",
        "PLAIN",
        "DELTA_BYTE_ARRAY",
        "DELTA_LENGTH_BYTE_ARRAY",
    ):
        options: dict[str, Any] = {"use_dictionary": False, "column_encoding": {"key": encoding}}
        if "dictionary" in encoding:
            options = {"dictionary_pagesize_limit": 1 << 20 if encoding == "dictionary" else 1000}
        file = tmp_path / f"{encoding}.parquet"
        pq.write_table(pa.table({"user": users, "key": keys}), file, row_group_size=1100, **options)
        plan = plan_of(file)
        batches = [chunk.batch for item in plan.items for chunk in read_item(item, plan)]
        assert max(batch.nbytes for batch in batches) <= 130_000, encoding  # offsets, too
        found.append(sorted((row["user"], row["key"]) for batch in batches for row in batch.to_pylist()))
    assert found == [sorted(zip(users, keys, strict=True))] * 5
