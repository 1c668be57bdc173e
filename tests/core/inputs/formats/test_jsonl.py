"""JSON lines: kinds of identifiers, lines that are not records, blocks and ranges."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.core.inputs.helpers import plan_of, read, read_all, write


def lines(*records: object) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def test_numbers_and_text_become_text(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.jsonl", lines({"user": 123, "key": "/a"}, {"user": 4, "key": "/é", "x": [1, {}]})
    )
    rows, rejected = read(file)
    assert rows == [{"user": "123", "key": "/a"}, {"user": "4", "key": "/é"}]
    assert not rejected


def test_mixed_kinds_huge_numbers_and_booleans(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.jsonl",
        lines({"user": "a", "key": 1}, {"user": 10**30, "key": True}, {"user": 5, "key": "x\u0000y"}),
    )
    rows, rejected = read(file)
    assert rows == [
        {"user": "1" + "0" * 30, "key": "true"}, {"user": "5", "key": "x\u0000y"}, {"user": "a", "key": "1"},
    ]  # fmt: skip
    assert not rejected


def test_bad_lines_are_rejected_with_their_place(tmp_path: Path) -> None:
    good = lines({"user": "1", "key": "/a"}).encode()
    bad = [
        b"nonsense\n", b"[1, 2]\n", b'{"user": "1"}\n', b'{"user": null, "key": "k"}\n',
        b'{"user": 1.5, "key": "k"}\n', b'{"user": "1", "key": {"a": 1}}\n',
        b'{"user": "\xff", "key": "k"}\n', b'{"user": "\\ud800", "key": "k"}\n',
    ]  # fmt: skip
    plan = plan_of(write(tmp_path / "a.jsonl", good + b"".join(bad) + b"\n  \n" + good), keep_rejected=True)
    rows, rejected, shown = read_all(plan)
    assert len(rows) == 2
    assert sum(rejected.values()) == len(bad) == len(shown)
    assert rejected == {
        "not a JSON object": 2, "key is null": 1, "user is null": 1, "user is a number with a fraction": 1,
        "key is not a single value": 1, "line is not UTF-8": 1, "user is not UTF-8": 1,
    }  # fmt: skip
    assert shown[0]["at"] == len(good)
    assert shown[0]["record"] == b"nonsense"


def test_object_over_two_lines_is_no_record_whatever_the_blocks(tmp_path: Path) -> None:
    text = (
        lines({"user": "1", "key": "/a"}) * 20
        + '{"user": "2",\n"key": "/b"}\n'
        + lines({"user": "3", "key": "/c"})
    )
    file = write(tmp_path / "a.jsonl", text)
    for size in (20, 100, 10_000):
        rows, rejected = read(file, block_bytes=size)
        assert (len(rows), rejected) == (21, {"not a JSON object": 2})


@pytest.mark.parametrize("item_bytes", [1, 13, 100, 10_000])
def test_ranges_and_compression(tmp_path: Path, item_bytes: int) -> None:
    text = lines(*({"user": i, "key": f"/{i}"} for i in range(50)))
    expected = sorted(str(i) for i in range(50))
    for name in ("a.jsonl", "a.ndjson", "a.jsonl.gz", "a.json.zst"):
        rows, rejected = read(write(tmp_path / name, text), item_bytes=item_bytes, block_bytes=64)
        assert sorted(row["user"] for row in rows) == expected
        assert not rejected


def test_other_columns_have_stated_types_or_are_text(tmp_path: Path) -> None:
    many = [{"user": 1, "key": "k", "age": 3, "w": 1, "ok": True, "t": "x"}] * 300
    rest = [{"user": 1, "key": "k", "age": "old"}, {"user": 1, "key": "k", "w": 2.5}]
    path = write(tmp_path / "a.jsonl", lines(*many, *rest))
    assert {row["age"] for row in read(path, columns=("age",))[0]} == {"3", "old", None}
    assert {row["ok"] for row in read(path, columns=("ok",))[0]} == {"true", None}
    plan = plan_of(path, columns=("age", "ok", "t"), types=(("age", pa.int64()), ("ok", pa.bool_())))
    assert [str(kind) for kind in plan.schema.types] == ["string", "string", "int64", "bool", "string"]
    rows, rejected, _ = read_all(plan)
    assert (len(rows), rejected) == (301, {"age is not int64": 1})
    assert {"user": "1", "key": "k", "age": 3, "ok": True, "t": "x"} in rows


def test_a_long_bad_line_behind_a_short_one_is_rejected(tmp_path: Path) -> None:
    """A block that pyarrow refuses is halved at a newline; there may be none but the one at its end."""
    good = b'{"user": "u", "key": "k"}\n'
    for tail in (b"\n", b""):
        path = write(tmp_path / "a.jsonl", good + b'{"user": "' + b"x" * 700_000 + b'", "key": 1.5}' + tail)
        assert read_all(plan_of(path))[:2] == (
            [{"user": "u", "key": "k"}],
            {"key is a number with a fraction": 1},
        )
