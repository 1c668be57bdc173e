"""A record's fate follows from its own bytes: whatever lines stand beside it, however the file is cut.

Generated files with odd lines, in all formats and through all steps that shape keys (1,500 of them, 10,000 and more by
`make neighbours`), each with and without the lines of one user: what the others contribute is the same, and the whole
is what its lines give one by one. For CSV whose values may hold newlines this is promised where every line of the file
is quoted well; for anything else the damage is bounded. Tables of Arrow and Parquet files likewise: users, keys and
values of every type, at the edges of what the types can hold, cut into any batches and beside files of other types.
"""

from __future__ import annotations

import ast
import bz2
import csv
import datetime
import decimal
import io
import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushgram.contributions.bounding import Bounds, Contributions
from hushgram.contributions.keys import as_column, canonical, decoded, one_array
from hushgram.contributions.sums import Grid, wrong_values
from hushgram.errors import InputError, ParameterError
from hushgram.inputs import InputFile, blocks, plan_inputs, read_item
from hushgram.inputs.conditions import parse
from hushgram.inputs.formats import FORMATS, parquet
from hushgram.inputs.formats import csv as csv_format
from hushgram.inputs.key_expressions import STEPS, parse_key_expression
from hushgram.noise.entropy import ReleaseKey
from hushgram.transforms.shuffle.records import Fields, columns_of
from tests.core.inputs.helpers import source_of

FILES = int(os.environ.get("HUSHGRAM_NEIGHBOUR_FILES", "500"))

TEXTS = [
    "a",
    "",
    "é",
    '"',
    '""',
    ",",
    "\r",
    "\0",
    "\x0b",
    "\u2028",
    "\ufeff",
    " ",
    "\\",
    "NaN",
    "x" * 40,
    "0",
    "-0",
    '5" disk',
]
RAW = [b"\xff", b"\xc3", b"\0", b"\r", b'"', b",", b"{", b"}", b"\xef\xbb\xbf", b" ", b"\x1a", b"-"]


def junk(rng: random.Random) -> bytes:
    """Bytes without a newline, mostly of the kind that parsers trip over."""
    return b"".join(rng.choice([*RAW, b"a", b"1", b'"a"', b",b"]) for _ in range(rng.randrange(8)))


def csv_line(rng: random.Random) -> bytes:
    kind = rng.randrange(6)
    if kind == 0:
        return junk(rng)
    fields = [rng.choice(TEXTS) for _ in range(rng.choice([2, 2, 2, 3, 1]))]
    if kind == 1:
        return b",".join(field.encode() for field in fields)  # as it comes, also with quotes that stay open
    out = io.StringIO()
    csv.writer(out, lineterminator="", quoting=rng.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL])).writerow(
        fields
    )
    return out.getvalue().encode() + rng.choice([b"", b"", b"\r", b'"', b" "])


NUMBER = (("n", pa.float64()),)


def number_line(rng: random.Random) -> bytes:
    return csv_line(rng) + rng.choice(
        [b",1", b", 7 ", b',"8"', b",x", b",", b",9" * 9, b",1.5", b",nan", b",1e999", b",0x1"]
    )


JSON_VALUES = [
    '"a"', '"b"', "1", "-0", "0", "12345678901234567890", "1" * 5000, "1.0", "1e3", "NaN", "-NaN", "Inf", "-Infinity",
    "true", "null", "[]", '{"user": 1}', '"\\u0000"', '"\\ud800"', '"\\udc00"', '"\\ud83d\\ude00"', '"\t"', '"\\x"',
    "01", "1.", "+1", "nul", "", '"é"', '"\\u00e9"', '"x"y', "1e400", "Infx",
]  # fmt: skip

DEEP = ["[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000, "[" * 3000 + "]" * 2999]


def json_line(rng: random.Random) -> bytes:
    kind = rng.randrange(8)
    if kind == 0:
        return junk(rng)
    pairs = [
        (rng.choice(["user", "key", "us\\u0065r", "n"]), rng.choice(JSON_VALUES))
        for _ in range(rng.randrange(4))
    ]
    pairs += [("user", '"u"'), ("key", rng.choice(['"k"', "7", '"k"']))] if rng.random() < 0.7 else []
    rng.shuffle(pairs)
    line = "{" + ",".join(f'"{name}":{value}' for name, value in pairs) + "}"
    ends = ["", "", "", "", "\r", " ", ",", "}", "{", line, "\0", '{"user":"z","key":"z"}', "\x0c"]
    return (rng.choice(["", "", "", "", " ", "\ufeff", "\t"]) + line + rng.choice(ends)).encode()


def plain_json_line(rng: random.Random) -> bytes:
    """Lines that pyarrow likes, with now and then one that it does not."""
    user = rng.choice(["1", "2", '"u"', '"1"']) if rng.random() < 0.2 else str(rng.randrange(9))
    return (
        f'{{"user": {user}, "key": "k{rng.randrange(5)}", "x": {rng.choice(JSON_VALUES)}}}'.encode()
        if (rng.random() < 0.1)
        else f'{{"user": {user}, "key": "k{rng.randrange(5)}"}}'.encode()
    )


def log_line(rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        return junk(rng)
    ip, path = rng.choice(["1.2.3.4", "::1", "-", "é"]), rng.choice(["/", "/a b", "-", '/\\"x', "/\r", ""])
    size = rng.choice(["5", "-", "9" * 30, "x"])
    tail = rng.choice(["", ' "-" "agent"', ' "r" "a\\"b"', "\r"])
    return f'{ip} - - [10/Oct/2000:13:55:36 -0700] "GET {path} HTTP/1.0" 200 {size}{tail}'.encode()


class Reader:
    """Reads bytes as a file of one kind, with one plan for all of them."""

    def __init__(self, name: str, header: bytes, head: bytes, **options: Any) -> None:
        self.name, self.header = name, header
        self.whole = name.endswith(".bz2") or (".csv" in name and options.get("newlines_in_values", True))
        self.data = self._packed(head)
        file = InputFile(name, len(self.data))
        self.plan = plan_inputs([file], source_of(**options), lambda path: pa.BufferReader(self.data))

    def _packed(self, content: bytes) -> bytes:
        data = self.header + content
        return bz2.compress(data) if self.name.endswith(".bz2") else data

    def read(
        self, content: bytes, block_bytes: int = 1 << 20, item_bytes: int = 1 << 20
    ) -> tuple[Counter[Any], int]:
        """(rows, how many records were rejected)."""
        self.data = self._packed(content)
        plan = replace(self.plan, source=replace(self.plan.source, block_bytes=block_bytes))
        size = len(self.data)
        rows: Counter[Any] = Counter()
        bad = 0
        for start in range(0, size, size if self.whole else item_bytes):
            stop = size if self.whole else min(size, start + item_bytes)
            item = replace(self.plan.items[0], start=start, stop=stop)
            for chunk in read_item(item, plan, lambda path: pa.BufferReader(self.data)):
                rows.update(map(repr, chunk.batch.to_pylist()))
                bad += sum(chunk.rejected.values())
        return rows, bad


class TableReader(Reader):
    """The same for Parquet: a line is a row, its values in hexadecimal digits, - for null."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def read(
        self, content: bytes, block_bytes: int = 1 << 20, item_bytes: int = 1 << 20
    ) -> tuple[Counter[Any], int]:
        rows = [line.split() for line in content.splitlines()]
        table = pa.table(
            {name: odd_text([row[at] for row in rows]) for at, name in enumerate(("user", "key", "n"))}
        )
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=item_bytes)
        data = sink.getvalue().to_pybytes()
        opener = lambda path: pa.BufferReader(data)  # noqa: E731
        plan = plan_inputs(
            [InputFile("c=D%25/a.parquet", len(data))], source_of(item_bytes=1, **self.options), opener
        )
        found: Counter[Any] = Counter()
        bad = 0
        for item in plan.items:
            for chunk in read_item(item, plan, opener):
                found.update(map(repr, chunk.batch.to_pylist()))
                bad += sum(chunk.rejected.values())
        return found, bad


def odd_text(values: list[bytes]) -> pa.Array:
    """A column of text that need not be UTF-8."""
    raw = pa.array(
        [None if value == b"-" else bytes.fromhex(value[1:].decode()) for value in values], pa.binary()
    )
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def row(rng: random.Random) -> bytes:
    values = (
        rng.choice([junk(rng), rng.choice(TEXTS).encode(), rng.choice(URLS).encode()]) for _ in range(3)
    )
    return b" ".join(b"-" if rng.random() < 0.1 else b"x" + value.hex().encode() for value in values)


URLS = [
    "https://Example.org/a/b?c#d", "//h/é/?", "http://u@[::1]:80/x", "http://", "/a//b/..", "?#?", "#?#", "https://h:/?\n",
    "2026-11-15T09:30:00Z", "2026-02-30", "[10/Oct/2026:13:55:36", "31/Feb/2026:00", "2026-11-15 25:00", "9999-12-31",
    "10.1.2.3", "10.1.2.300", "::ffff:1.2.3.4", "2001:db8::1", "1.2.3.4/8", "Ünï cödé, wörds", "İ", "ß\u0301",
    "a\u0000b", "word", "two words", "\U0001f600 x", "", " ", "'", "%2F", "ǅ",
]  # fmt: skip


def url_line(rng: random.Random) -> bytes:
    """A CSV line of texts that are hard to shape."""
    if rng.random() < 0.2:
        return csv_line(rng)
    texts = [
        "".join(rng.choice(URLS) for _ in range(rng.choice([1, 1, 1, 2]))).replace("\n", "") for _ in range(2)
    ]
    out = io.StringIO()
    csv.writer(out, lineterminator="", quoting=csv.QUOTE_ALL).writerow(texts)
    return out.getvalue().encode()


def url_json(rng: random.Random) -> bytes:
    if rng.random() < 0.2:
        return json_line(rng)
    return json.dumps({"user": rng.choice([*URLS, 7]), "key": rng.choice(URLS)}).encode()


#: key_expressions in which every step occurs
KEY_EXPRESSIONS = [
    "key | lower", "key | strip_query", "key | strip_fragment | substring 1 5", "key | host", "key | path 2",
    "key | truncate hour", "key | truncate day", "[key | truncate week, user]", "key | ip_prefix 20 40",
    "[user | host, key | words]", "key | lower | ngrams 2",
]  # fmt: skip
CSV = b"user,key\n"
KINDS: dict[str, tuple[Callable[[], Reader], Callable[[random.Random], bytes], float]] = {
    "csv": (lambda: Reader("a.csv", CSV, b"", newlines_in_values=False), csv_line, 0.2),
    "csv.bz2": (lambda: Reader("a.csv.bz2", CSV, b"", newlines_in_values=False), csv_line, 0.05),
    "csv with numbers": (
        lambda: Reader("a.csv", b"user,key,n\n", b"", newlines_in_values=False, columns=("n",), types=NUMBER),
        number_line, 0.1,
    ),
    "csv with a column": (
        lambda: Reader("a.csv", b"user,key,n\n", b"u,k,1\n" * 9, newlines_in_values=False, columns=("n",)),
        number_line, 0.05,
    ),
    "csv in folders": (
        lambda: Reader("day=5/c=D%25/a.csv", CSV, b"", newlines_in_values=False, ids=("user", "[c, key]"),
                       where=parse("day > 4 AND key != 'a'")), csv_line, 0.05,
    ),
    "csv without quotes": (lambda: Reader("a.csv", CSV, b"", quote=""), csv_line, 0.05),
    "jsonl": (lambda: Reader("a.jsonl", b"", b'{"user": "u", "key": "k"}\n'), json_line, 0.2),
    "jsonl of numbers": (lambda: Reader("a.jsonl", b"", b'{"user": 1, "key": "k"}\n'), plain_json_line, 0.1),
    "jsonl with a column": (
        lambda: Reader("a.jsonl", b"", b'{"user": 1, "key": "k", "n": 1}\n', columns=("n",)), json_line, 0.1,
    ),
    "jsonl with numbers": (
        lambda: Reader("a.jsonl", b"", b'{"user": 1, "key": "k", "n": 1}\n', columns=("n",), types=NUMBER),
        json_line, 0.05,
    ),
    "csv in words": (
        lambda: Reader("a.csv", CSV, b"", newlines_in_values=False, ids=("user | lower", "[user, key | words]")),
        csv_line, 0.05,
    ),
    "jsonl by ways": (
        lambda: Reader("a.jsonl", b"", b'{"user": {"user": 1}, "key": "k"}\n', ids=("user.user", "key | ngrams 1")),
        lambda rng: json_line(rng).replace(b'"u"', rng.choice([b'{"user":"u"}', b'{"user":1,"b":[]}', b'{"user":{}}'])),
        0.1,
    ),
    "filtered": (
        lambda: Reader("a.csv", CSV, b"", newlines_in_values=False, where=parse("key MATCHES 'a' OR user > 'b'")),
        csv_line, 0.05,
    ),
    "access log": (
        lambda: Reader("a.log", b"", b"x", ids=("ip", "path"), columns=("bytes",), preset="access-log"), log_line, 0.05,
    ),
    "log": (lambda: Reader("a.log", b"", b"x", pattern=r"(?P<user>\S+) (?P<key>[^\]]*)"), log_line, 0.05),
    "log with numbers": (
        lambda: Reader("a.log", b"", b"x", pattern=r"(?P<user>\S+) (?P<key>.*) (?P<n>\S+)", columns=("n",),
                       types=NUMBER), log_line, 0.02,
    ),
    "parquet": (TableReader, row, 0.05),
    "parquet shaped": (
        lambda: TableReader(ids=("user | lower", "[c, key | words]"), where=parse("n != 'a'")), row, 0.05,
    ),
    "jsonl shaped": (
        lambda: Reader("a.jsonl", b"", b'{"user": 1, "key": "k"}\n',
                       ids=("user | truncate day", "[user, key | path 1]")), url_json, 0.03,
    ),
    **{text: (
        lambda text=text: Reader("a.csv", CSV, b"", newlines_in_values=False, ids=("user", text)), url_line, 0.02,
    ) for text in KEY_EXPRESSIONS},
}  # fmt: skip


def test_every_format_and_every_step_is_among_them() -> None:
    names = {kind.split(" ")[0].split(".")[0] for kind in KINDS}
    assert names >= set(FORMATS)
    key_expressions = [
        key_expression
        for key_expression in map(parse_key_expression, KEY_EXPRESSIONS)
        if key_expression is not None
    ]
    assert {
        step.name
        for key_expression in key_expressions
        for part in key_expression.parts
        for step in part.steps
    } == set(STEPS)
    assert sum(share for *_, share in KINDS.values()) >= 1  # 10,000 files are so many


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.long
def test_a_line_gives_the_same_whatever_stands_beside_it(kind: str) -> None:
    make, line_of, share = KINDS[kind]
    reader, rng = make(), random.Random(kind)
    alone: dict[bytes, tuple[Counter[Any], int]] = {}
    for _ in range(int(FILES * share)):
        lines = [line_of(rng) for _ in range(rng.randrange(1, 12))]
        for line in lines:
            if line not in alone:
                alone[line] = reader.read(line + b"\n")
        whole = reader.read(b"\n".join(lines) + b"\n")
        assert whole[0] == sum((alone[line][0] for line in lines), Counter()), lines
        assert whole[1] == sum(alone[line][1] for line in lines), lines
        if rng.random() < 0.1:  # and however the file is cut
            cuts = {"block_bytes": rng.randrange(1, 60), "item_bytes": rng.randrange(1, 60)}
            assert reader.read(b"\n".join(lines) + b"\n", **cuts) == whole, (lines, cuts)


def values_of(text: str) -> list[Any]:
    """The values of a row that `Reader.read` gives."""
    return list(ast.literal_eval(re.sub(r": -?(nan|inf)\b", ": None", text)).values())


def bounded(rows: Counter[Any]) -> Counter[Any]:
    """The bounded histogram of rows as `Reader.read` gives them."""
    pairs = [values_of(text)[:2] for text in rows.elements()]
    users, keys = pa.array([u for u, _ in pairs], pa.string()), pa.array([k for _, k in pairs], pa.string())
    found = Contributions.of(users, keys, ReleaseKey(bytes(32)), texts=True).bounded(Bounds(3, 2))
    return Counter(dict(zip(found.texts.to_pylist(), found.counts.tolist(), strict=True)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.long
def test_without_one_user_the_bounded_histogram_lacks_what_that_user_gives(kind: str) -> None:
    make, line_of, share = KINDS[kind]
    reader, rng = make(), random.Random(kind + "?")
    for _ in range(int(FILES * share) // 8 + 1):
        lines = [line_of(rng) for _ in range(rng.randrange(8, 20))]
        given = {line: {values_of(row)[0] for row in reader.read(line + b"\n")[0]} for line in lines}
        users = sorted(set().union(*given.values()))
        if not users:
            continue
        user = rng.choice(users)
        own = [line for line in lines if given[line] == {user}]
        others = [line for line in lines if given[line] != {user}]
        parts = [bounded(reader.read(b"\n".join(part) + b"\n")[0]) for part in (lines, own, others) if part]
        assert parts[0] == sum(parts[1:], Counter()), (lines, user)


@pytest.mark.parametrize("kind", KINDS)
def test_without_one_user_the_others_contribute_the_same(kind: str) -> None:
    make, line_of, share = KINDS[kind]
    reader, rng = make(), random.Random(kind + "!")
    for _ in range(int(FILES * share) // 4):
        others = [line_of(rng) for _ in range(rng.randrange(1, 12))]
        with_user = list(others)
        own = [line_of(rng) for _ in range(rng.randrange(1, 4))]
        for line in own:
            with_user.insert(rng.randrange(len(with_user) + 1), line)
        rows, _ = reader.read(b"\n".join(with_user) + b"\n")
        theirs, _ = reader.read(b"\n".join(own) + b"\n")
        assert rows - theirs == reader.read(b"\n".join(others) + b"\n")[0], (others, own)


@pytest.mark.parametrize(
    "kind", ["csv with a column", "csv with numbers", "jsonl with a column", "jsonl with numbers"]
)
def test_what_a_column_holds_does_not_follow_from_the_first_lines(kind: str) -> None:
    make, line_of, _ = KINDS[kind]
    fixed, rng = make(), random.Random(kind)
    options = {"columns": ("n",), **({"types": NUMBER} if "numbers" in kind else {})}
    if fixed.name == "a.csv":
        options["newlines_in_values"] = False
    planned = 0
    for _ in range(FILES // 20):
        lines = [line_of(rng) for _ in range(rng.randrange(1, 12))]
        if fixed.name == "a.jsonl":
            lines.insert(0, f'{{"user":"u","key":"k","n":{rng.choice(JSON_VALUES)}}}'.encode())
        content = b"".join(line + b"\n" for line in lines)
        try:
            anew = Reader(fixed.name, fixed.header, content, **options)  # planned from these very lines
        except InputError:  # JSON in which no line has the column
            continue
        planned += 1
        assert anew.read(content) == fixed.read(content), content
    assert planned > FILES // 100


def well_quoted(rng: random.Random) -> bytes:
    out = io.StringIO()
    fields = ["".join(rng.choice([*TEXTS, "\n", "\r\n"]) for _ in range(rng.randrange(3))) for _ in range(2)]
    writer = csv.writer(out, lineterminator=rng.choice(["\n", "\r\n"]), quoting=csv.QUOTE_ALL)
    writer.writerow(fields)
    return out.getvalue().encode()


def test_well_quoted_records_may_hold_newlines() -> None:
    reader, rng = Reader("a.csv", CSV, b""), random.Random(1)
    for _ in range(FILES // 20):
        records = [well_quoted(rng) for _ in range(rng.randrange(1, 8))]
        whole = reader.read(b"".join(records))
        parts = [reader.read(record) for record in records]
        assert whole[0] == sum((part[0] for part in parts), Counter()), records
        cuts = {"block_bytes": rng.randrange(1, 60)}
        assert reader.read(b"".join(records), **cuts) == whole, (records, cuts)


def test_badly_quoted_files_read_the_same_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_format, "MAX_SPAN_BYTES", 50)
    reader, rng = Reader("a.csv", CSV, b""), random.Random(2)
    for _ in range(FILES // 20):
        content = b"\n".join(rng.choice([csv_line, well_quoted])(rng) for _ in range(rng.randrange(1, 12)))
        content += rng.choice([b"", b"\n"])
        whole = reader.read(content)
        cuts = {"block_bytes": rng.randrange(1, 90)}
        assert reader.read(content, **cuts) == whole, (content, cuts)


def test_a_quote_that_stays_open_costs_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{i},k{i % 7}\n".encode() for i in range(20_000)]
    lines[5] = b'5,"open\n'
    for options in ({}, {"newlines_in_values": False}, {"newlines_in_values": False, "item_bytes": 1000}):
        reader = Reader("a.csv", CSV, b"", **options)  # type: ignore[arg-type]
        for content in (
            b"".join(lines),
            b"".join(lines[:100]),
            b"".join([*lines[:50], b'50,"x"\n', *lines[51:]]),
        ):
            rows, bad = reader.read(content)
            assert bad == 1
            assert sum(rows.values()) == content.count(b"\n") - 1
    # with a quote further on that closes it, lines between the two are lost: bounded
    monkeypatch.setattr(csv_format, "MAX_SPAN_BYTES", 1000)
    lines[500] = b'500,close"\n'
    rows, bad = Reader("a.csv", CSV, b"").read(b"".join(lines))
    assert (sum(rows.values()), bad) == (len(lines) - 1, 1)
    lines[500], lines[20] = b"500,a\n", b'20,close"\n'
    rows, bad = Reader("a.csv", CSV, b"").read(b"".join(lines))
    assert sum(rows.values()) == len(lines) - 15


def test_lines_that_are_too_long_are_so_in_every_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MAX_LINE_BYTES", 100)
    rng = random.Random(3)
    for options in ({}, {"newlines_in_values": False}):
        reader = Reader("a.csv", CSV, b"", **options)  # type: ignore[arg-type]
        for _ in range(300):
            lines = [
                b"u," + b"x" * rng.choice([1, 50, 97, 98, 99, 150, 500]) for _ in range(rng.randrange(1, 9))
            ]
            long = sum(len(line) > 100 for line in lines)
            content = b"\n".join(lines) + rng.choice([b"", b"\n"])
            rows, bad = reader.read(content, rng.randrange(1, 300), rng.randrange(1, 300))
            assert (sum(rows.values()), bad) == (len(lines) - long, long)


# --- columns of Arrow: every type, in tables and in Parquet files of different types -------------------------

EDGES = [0, 1, 7, 255, 2**53 - 1, 2**53, 2**53 + 1, *(2**62 + k for k in (-600, -512, -256, -255, -1, 0, 1, 256)),
         2**63 - 1, 2**63, 2**64 - 1, -1, -(2**63)]  # fmt: skip
REALS = [0.0, -0.0, 5e-324, 2.0**-60, 0.1, 0.5, 1.0, 2.0**62, 2.0**62 - 512, 1e308, -1e-300, -1.0,
         float("nan"), float("inf"), float("-inf")]  # fmt: skip
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
DECIMALS = [
    *(pa.decimal128(*size) for size in ((5, 2), (18, 0), (19, 0), (38, 0), (38, 18), (38, 38))),
    pa.decimal256(76, 30),
]
IDS = ["a", "b", "é", "", "a\0", "\0", "7", "-1", "x" * 300, "true", "2026-11-16"]
RAWS = [
    b"a",
    b"7",
    b"\xff",
    b"a\0b",
    b"\xed\xa0\x80",
    b"\xc3",
]  # not all of them UTF-8: half a surrogate pair, too
TEXT = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]


def dictionary(kind: pa.DataType) -> pa.DataType:
    return pa.dictionary(pa.int32(), kind)


VALUES = [*INTEGERS, *FLOATS, *DECIMALS, dictionary(pa.int64()), dictionary(pa.float64()), pa.null()]
NAMES = [*TEXT, pa.int8(), pa.int64(), pa.uint64(), pa.date32(), pa.bool_(), dictionary(pa.string()),
         dictionary(pa.int64()), pa.null()]  # fmt: skip


def one_value(kind: pa.DataType, rng: random.Random) -> Any:
    """A value that the type can hold, mostly at the edge of something."""
    if pa.types.is_null(kind) or rng.random() < 0.1:
        return None
    if pa.types.is_dictionary(kind):
        return one_value(kind.value_type, rng)
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        return rng.choice([n for n in EDGES if limits.min <= n <= limits.max])
    if pa.types.is_floating(kind):
        with np.errstate(over="ignore"):
            return kind.to_pandas_dtype()(rng.choice([*REALS, *map(float, EDGES)]))
    if pa.types.is_decimal(kind):
        top = 10**kind.precision - 1
        edges = [n * 10**kind.scale + extra for n in EDGES for extra in (-1, 0, 1)]
        digits = rng.choice([n for n in [0, 1, -1, top, -top, rng.randrange(top), *edges] if abs(n) <= top])
        return decimal.Decimal((int(digits < 0), [int(d) for d in str(abs(digits))], -kind.scale))
    if pa.types.is_date(kind):
        return datetime.date(2026, 11, 16)
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    text = rng.choice([*IDS, *RAWS])
    return text.encode() if isinstance(text, str) else text


def arrow(values: list[Any], kind: pa.DataType) -> pa.Array:
    """A column of any type; text need not be UTF-8."""
    if pa.types.is_dictionary(kind):
        plain = arrow(values, kind.value_type)
        codes = pa.array([None if value is None else at for at, value in enumerate(values)], pa.int32())
        return pa.DictionaryArray.from_arrays(codes, plain)  # repeats itself, and may hold nulls
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        raw = pa.array(values, pa.binary() if pa.types.is_string(kind) else pa.large_binary())
        return pa.Array.from_buffers(kind, len(raw), raw.buffers())
    return pa.array(values, kind)


Kinds = tuple[pa.DataType, pa.DataType, pa.DataType]


def some_kinds(rng: random.Random) -> Kinds:
    return rng.choice(NAMES), rng.choice(NAMES), rng.choice(VALUES)


def some_rows(kinds: Kinds, rng: random.Random) -> list[tuple[Any, ...]]:
    return [tuple(one_value(kind, rng) for kind in kinds) for _ in range(rng.randrange(1, 9))]


def table_of(rows: list[tuple[Any, ...]], kinds: Kinds) -> pa.Table:
    return pa.table(
        {
            name: arrow([row[at] for row in rows], kind)
            for at, (name, kind) in enumerate(zip(("user", "key", "n"), kinds, strict=True))
        }
    )


FIELDS = Fields("user", "key", ("n",))
GRIDS = [Grid(Fraction(1), 1 << 20), Grid(Fraction(1, 1000), 16), Grid(Fraction(10**12), 1 << 20)]


def contributed(batch: pa.Table | pa.RecordBatch) -> Counter[Any]:
    """User, key and grains of each record that is accepted, by their bytes."""
    taken = columns_of(batch, FIELDS)
    draws = np.full(len(taken), 1 << 62, np.uint64)
    grains = [grid.grains(taken.values[0], lambda: draws).tolist() for grid in GRIDS]
    users, keys = canonical(taken.users).to_pylist(), canonical(taken.keys).to_pylist()
    found = Counter(zip(users, keys, *grains, strict=True))
    found["rejected"] = taken.rejected
    return found


def test_a_record_of_a_table_is_accepted_and_counted_by_its_own_values() -> None:
    rng = random.Random(11)
    for _ in range(FILES // 2):
        kinds = some_kinds(rng)
        rows = some_rows(kinds, rng)
        table = table_of(rows, kinds)
        alone = sum((contributed(table_of([row], kinds)) for row in rows), Counter())
        assert contributed(table) + Counter() == alone, (kinds, rows)
        cut = rng.randrange(len(rows) + 1)
        parts = [table.slice(0, cut), table.slice(cut)]
        assert sum(map(contributed, parts), Counter()) == alone, (kinds, rows, cut)
        chunks = pa.concat_tables([table_of(rows[:cut], kinds), table_of(rows[cut:], kinds)])
        assert contributed(chunks) + Counter() == alone, (kinds, rows, cut)


#: conditions that hold for numbers, and for text; a file whose types do not fit is refused, whatever stands in it
CONDITIONS = [
    None, None, "n >= 4611686018427387903", "n = 9007199254740993 OR n < 0.5", "n IS NOT NULL", "key LIKE '_'",
    "key MATCHES '^.$' OR user > 'a'", "user > 6",
]  # fmt: skip


def read_files(tables: list[pa.Table], rows: int, **options: Any) -> Counter[Any]:
    """What the records of Parquet files contribute that are planned together."""
    files = {}
    for number, table in enumerate(tables):
        sink = pa.BufferOutputStream()
        for at, column in enumerate(table.columns):
            if pa.types.is_dictionary(column.type):  # a file may not have nulls among its values
                table = table.set_column(
                    at, table.schema.names[at], decoded(one_array(column)).dictionary_encode()
                )
        pq.write_table(table, sink, row_group_size=rows)
        files[f"{number}.parquet"] = sink.getvalue().to_pybytes()
    opener = lambda path: pa.BufferReader(files[path])  # noqa: E731
    source = source_of(**{"columns": ("n",), **options}, values=("n",), item_bytes=1)
    plan = plan_inputs([InputFile(path, len(data)) for path, data in files.items()], source, opener)
    found: Counter[Any] = Counter()
    for item in plan.items:
        for chunk in read_item(item, plan, opener):
            found += contributed(pa.table(chunk.batch.columns[:3], ["user", "key", "n"]))
            found["rejected"] += sum(chunk.rejected.values())
    return found + Counter()


def test_a_record_of_a_file_is_taken_alike_whatever_stands_in_other_rows_and_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 3)
    rng, compared = random.Random(12), 0
    for _ in range(FILES // 6):
        options: dict[str, Any] = {}
        if rng.random() < 0.3:
            options["ids"] = ("user | lower", "[key, user]")
        if (condition := rng.choice(CONDITIONS)) is not None:
            options["where"] = parse(condition)
        tables = []
        for _ in range(rng.randrange(1, 4)):
            kinds = some_kinds(rng)
            tables.append(table_of(some_rows(kinds, rng), kinds))
        single = [table.slice(row, 1) for table in tables for row in range(table.num_rows)]
        try:
            alone = [read_files([row], 1, **options) for row in single]
        except ParameterError:  # the condition does not fit the types of one of them
            continue
        together = read_files(tables, rng.randrange(1, 9), **options)
        assert together == sum(alone, Counter()), (tables, options)
        compared += 1
    assert compared > FILES // 30


def test_without_one_user_the_records_of_all_others_are_the_same() -> None:
    rng = random.Random(13)
    for _ in range(FILES // 8):
        tables, others = [], []
        for _ in range(rng.randrange(1, 4)):
            kinds = some_kinds(rng)
            rows, own = some_rows(kinds, rng), some_rows(kinds, rng)
            others.append(table_of(rows, kinds))
            for row in own:
                rows.insert(rng.randrange(len(rows) + 1), row)
            tables.append(table_of(rows, kinds))
            if rng.random() < 0.2:  # a file with records of this user alone
                tables.append(table_of(own, kinds))
        added = read_files(tables, rng.randrange(1, 9))
        assert not read_files(others, rng.randrange(1, 9)) - added, (tables, others)


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.decimal128(38, 0)])
def test_large_whole_numbers_are_good_beside_a_bad_one(kind: pa.DataType) -> None:
    """One user with a bad value once moved a sum from 4,000 to 10."""
    large = [2**62 - 1 - k for k in range(256)]
    bad = 2**62 if kind == pa.uint64() else -1
    ((reason, good),) = wrong_values(pa.array([*large, bad, None], kind), "n")
    assert reason == ("n is too large" if kind == pa.uint64() else "n is negative")
    assert good.tolist() == [True] * 256 + [False, True]


def test_no_message_quotes_a_value_of_a_record(tmp_path: Any) -> None:
    secret = 9007199254740993
    tables = [
        pa.table({"user": ["a"], "key": ["k"], "n": [secret]}),
        pa.table({"user": ["b"], "key": ["k"], "n": [0.5]}),
    ]
    assert sum(read_files(tables, 1).values()) == 2  # it once failed, with the number in its message
    for column in (["a", secret], [secret, "a"], ["\udc80"], [object()], [1, b"x", "secret"]):
        with pytest.raises(InputError) as caught:
            as_column(column)
        assert str(caught.value) == "keys: values must be all text, all bytes or all whole numbers"


def test_a_moment_that_python_has_no_object_for_is_no_reason_to_fail() -> None:
    far = pa.array([2**40, 1], pa.timestamp("s"))
    tables = [pa.table({"user": pa.array([None, "a"]), "key": ["k", "k"], "n": [1, 1], "t": far})]
    for keep in (False, True):
        found = read_files(tables, 9, keep_rejected=keep, columns=("n", "t"))
        assert found["rejected"] == 1
        assert sum(found.values()) == 2
