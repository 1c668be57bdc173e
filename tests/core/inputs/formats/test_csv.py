"""CSV: quoting, blocks, ranges, bad records; every cut of a file gives the same records."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.inputs.helpers import plan_of, read, read_all, write


def rows_of(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return sorted(({"user": u, "key": k} for u, k in pairs), key=repr)


def test_plain_file_reads_identifiers_as_text(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "user,n,key\n007,1,/a\n8,2,/b\n")
    assert read(file) == (rows_of(("007", "/a"), ("8", "/b")), {})


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2", ".zst", ".xz"])
def test_compressed_files_read_alike(tmp_path: Path, ending: str) -> None:
    text = "user,key\n" + "".join(f"u{i % 7},/page/{i}\n" for i in range(2000))
    rows, rejected = read(write(tmp_path / f"a.csv{ending}", text), block_bytes=1000)
    assert len(rows) == 2000
    assert not rejected


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_quoted_newlines_delimiters_and_quotes(tmp_path: Path, end: str) -> None:
    text = f'user,key{end}1,"a{end}b"{end}2,"x,y"{end}3,"say ""hi"""{end}4,plain{end}'
    rows, rejected = read(write(tmp_path / "a.csv", text), block_bytes=5)
    assert rows == rows_of(("1", f"a{end}b"), ("2", "x,y"), ("3", 'say "hi"'), ("4", "plain"))
    assert not rejected


def test_byte_order_mark_spaces_in_header_and_no_final_newline(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", b"\xef\xbb\xbfuser,key\n1,/a\n2,/b")
    assert read(file)[0] == rows_of(("1", "/a"), ("2", "/b"))


def test_header_given_and_tab_delimiter(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "1\tx\t/a\n2\ty\t/b\n")
    rows, _ = read(file, header=("user", "other", "key"), delimiter="\t")
    assert rows == rows_of(("1", "/a"), ("2", "/b"))


def test_rejected_records_are_counted_and_shown(tmp_path: Path) -> None:
    text = b"user,key\n1,/a\n,/b\n2,\n3\n4,/c,extra\n5,\xff\n6,/d\n"
    plan = plan_of(write(tmp_path / "a.csv", text), keep_rejected=True)
    rows, rejected, bad = read_all(plan)
    assert rows == rows_of(("1", "/a"), ("6", "/d"))
    assert rejected == {
        "user is null": 1, "key is null": 1, "1 fields instead of 2": 1, "3 fields instead of 2": 1,
        "key is not UTF-8": 1,
    }  # fmt: skip
    assert len(bad) == 5
    assert {row["path"] for row in bad} == {str(tmp_path / "a.csv")}
    assert any(row["record"] == b"5,\xff" for row in bad)


def test_undecodable_record_with_too_few_fields(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", b"user,key\n1,/a\n\xff\n\xfe,/b\n2,/c\n")
    rows, rejected, bad = read_all(plan_of(file, keep_rejected=True))
    assert rows == rows_of(("1", "/a"), ("2", "/c"))
    assert rejected == {"1 fields instead of 2": 1, "user is not UTF-8": 1}
    assert [row["record"] for row in bad] == [b"\xff", b"\xfe,/b"]


def test_bad_record_in_one_block_leaves_the_others_alone(tmp_path: Path) -> None:
    text = b"user,key\n" + b"".join(b"%d,/a\n" % i for i in range(500)) + b"x,\xfe\xff\n" + b"7,/z\n" * 3
    rows, rejected = read(write(tmp_path / "a.csv", text), block_bytes=200)
    assert (len(rows), rejected) == (503, {"key is not UTF-8": 1})


def test_quotes_can_be_switched_off(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 'user,key\n1,"a\n2,b"\n')
    assert read(file, quote="")[0] == rows_of(("1", '"a'), ("2", 'b"'))


def test_stray_quote_inside_a_field_is_text(tmp_path: Path) -> None:
    text = "user,key\n" + '1,5" disk\n2,"a\nb"\n3,7" x\n' * 50
    rows, rejected = read(write(tmp_path / "a.csv", text), block_bytes=37)
    assert len(rows) == 150
    assert {row["key"] for row in rows} == {'5" disk', "a\nb", '7" x'}
    assert not rejected


def test_quote_that_is_never_closed_loses_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hushgram.inputs.blocks.MAX_LINE_BYTES", 2000)
    text = "user,key\n1,/a\n" + '2,"open\n' + "3,/c\n" * 2000
    rows, rejected = read(write(tmp_path / "a.csv", text), block_bytes=500)
    assert rejected.get("quote is not closed") == 1
    assert len(rows) == 2001


def test_line_without_end_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushgram.inputs.blocks.MAX_LINE_BYTES", 2000)
    text = "user,key\n1,/a\n" + "x" * 10_000 + "\n2,/b\n"
    for options in ({}, {"newlines_in_values": False, "item_bytes": 100_000}):
        rows, rejected = read(write(tmp_path / "a.csv", text), block_bytes=500, **options)
        assert (rows, rejected) == (rows_of(("1", "/a"), ("2", "/b")), {"line is too long": 1})


def test_other_columns_have_stated_types_or_are_text(tmp_path: Path) -> None:
    text = "user,key,age,city\n" + "1,/a,30,Ulm\n2,/b,,\n" * 60_000 + "3,/c,old,X\n"
    path = write(tmp_path / "a.csv", text)
    assert {row["age"] for row in read(path, columns=("age",))[0]} == {"30", None, "old"}
    plan = plan_of(path, columns=("age", "city"), types=(("age", pa.int64()),))
    rows, rejected, _ = read_all(plan)
    assert [str(kind) for kind in plan.schema.types] == ["string", "string", "int64", "string"]
    assert len(rows) == 120_000
    assert rejected == {"age is not int64": 1}
    assert rows[0] == {"user": "1", "key": "/a", "age": 30, "city": "Ulm"}
    assert rows[-1]["age"] is None


def test_empty_files_and_header_only(tmp_path: Path) -> None:
    files = [
        write(tmp_path / "a.csv", ""),
        write(tmp_path / "b.csv", "user,key\n"),
        write(tmp_path / "c.csv", "\n"),
    ]
    assert read(files) == ([], {})


FIELD = st.text(alphabet='ab,"\n\ré', max_size=5)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("xyz"), FIELD.filter(bool)), max_size=30), st.integers(1, 60))
def test_block_size_changes_nothing(tmp_path_factory: pytest.TempPathFactory, pairs: list, size: int) -> None:  # type: ignore[type-arg]
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(("user", "key"))
        writer.writerows(pairs)
    assert read(path, block_bytes=size) == read(path)
    assert read(path)[0] == rows_of(*pairs)


@pytest.mark.parametrize("item_bytes", [1, 2, 3, 7, 50, 10_000])
def test_byte_ranges_cover_each_line_once(tmp_path: Path, item_bytes: int) -> None:
    text = "user,key\n" + "".join(f"{i},{'k' * (i % 9)}x\n" for i in range(60))
    plan = plan_of(
        write(tmp_path / "a.csv", text), newlines_in_values=False, item_bytes=item_bytes, block_bytes=11
    )
    rows, rejected, _ = read_all(plan)
    assert sorted(int(row["user"]) for row in rows) == list(range(60))
    assert not rejected


def test_a_long_bad_record_behind_a_short_one_is_rejected(tmp_path: Path) -> None:
    """A block that pyarrow refuses is halved at a newline; there may be none but the one at its end."""
    for tail in (b"\n", b""):
        path = write(tmp_path / "a.csv", b"user,key\nu,k\n\xff," + b"x" * 700_000 + tail)
        assert read_all(plan_of(path))[:2] == ([{"user": "u", "key": "k"}], {"user is not UTF-8": 1})
