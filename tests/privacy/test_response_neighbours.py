"""A table of randomized responses tells nothing of a secret but its noisy bit: neighbours, byte for byte.

Files of all formats, cut into batches from one record to all of them, in any order (also sorted by the secret), with
one secret of one record replaced by every spelling that a column can hold, readable or not. With the noise forced:

* all released bits 0: the tables have the same bytes, so nothing but the released bits depends on a secret;
* no bit flipped: the tables differ in the released bit of this record alone, and it is what its own value says.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushgram.errors import InputError, ParameterError
from hushgram.inputs import InputFile, Source, plan_inputs
from hushgram.inputs.conditions import parse
from hushgram.inputs.formats import FORMATS
from hushgram.inputs.formats import parquet as parquet_format
from hushgram.inputs.formats.log import LogOptions
from hushgram.mechanisms.randomized_response import rows
from hushgram.mechanisms.randomized_response.mechanism import RandomizedResponseParams
from hushgram.mechanisms.randomized_response.rows import Rows
from hushgram.noise.entropy import ReleaseKey
from hushgram.transforms import randomize_responses
from hushgram.transforms.randomize_responses import RandomizeResponses, Secret

KEY = ReleaseKey(bytes(range(32)))
OTHERS = 9
SECRETS = {
    "column": Secret("bit", "ill"),
    "equals": Secret("bit", "ill", equals="yes"),
    "at least": Secret("bit", "ill", at_least=1.0),
    "number": Secret("bit", where=parse("ill >= 1")),
    "text": Secret("bit", where=parse("ill = 'yes' OR ill LIKE 'tr%'")),
    "boolean": Secret("bit", where=parse("ill = true")),
    "negated": Secret("bit", where=parse("NOT ill = 'yes'")),
    "missing": Secret("bit", where=parse("ill IS NULL OR ill MATCHES '^n'")),
}
TEXTS = [
    "true", "false", "True", "TRUE", "yes", "no", "y", "1", "0", "1.0", "-0", "1e999", "9" * 400, "nan", "inf", "", " ",
    "maybe", " true", "true ", "é", "\U0001f600", "\ufeff", "\u2028", "x" * 300, "a,b", 'say "yes"', "two\nlines",
    "\0", "null", "NULL", "[]", "{}", "-",
]  # fmt: skip
JSON = [
    *(json.dumps(text).encode() for text in TEXTS), '"é"'.encode(), '"\ufeff\u2028"'.encode(),
    b"true", b"false", b"null", b"1", b"0", b"-0", b"1.5", b"1e400", b"NaN", b"-Infinity", b"9" * 400, b"[1, 2]", b"[]",
    b'{"ill": true}', b"[" * 1100 + b"]" * 1100, b'"\\ud800"', b'"\\udc00x"', b'"\xff"', b'"\xc3("',
    b"true, \"ill\": false",
]  # fmt: skip
MISSING = object()


def csv_record(number: int, value: bytes) -> bytes:
    """As a correct writer writes it: quoted, with quotes doubled."""
    return b'%d,"%s",city %d\n' % (number, value.replace(b'"', b'""'), number % 2)


def json_record(number: int, value: Any) -> bytes:
    secret = b"" if value is MISSING else b'"ill": %s, ' % value
    return b'{"id": "%d", %s"city": "city %d"}\n' % (number, secret, number % 2)


def text_file(record: Callable[[int, Any], bytes], head: bytes) -> Callable[[list[tuple[int, Any]]], bytes]:
    return lambda held: head + b"".join(record(number, value) for number, value in held)


def parquet_file(kind: pa.DataType) -> Callable[[list[tuple[int, Any]]], bytes]:
    def write(held: list[tuple[int, Any]]) -> bytes:
        ids, values = zip(*held, strict=True)
        secret = pa.array(values, pa.binary()).cast(kind, safe=False) if pa.types.is_string(kind) else None
        columns = {"id": [str(i) for i in ids], "ill": pa.array(values, kind) if secret is None else secret}
        sink = io.BytesIO()
        pq.write_table(pa.table(columns | {"city": [f"city {i % 2}" for i in ids]}), sink, row_group_size=3)
        return sink.getvalue()

    return write


BYTES = [text.encode() for text in TEXTS] + [b"\xff", b"yes\xff", b"\xc3("]
#: kind of file → (its name, what writes it, the values that its secret column can hold, secrets that its type allows)
FILES: dict[str, tuple[str, Callable[[list[tuple[int, Any]]], bytes], list[Any], list[str]]] = {
    "csv": ("a.csv", text_file(csv_record, b"id,ill,city\n"), BYTES, list(SECRETS)),
    "jsonl": ("a.jsonl", text_file(json_record, b""), [*JSON, MISSING], list(SECRETS)),
    "parquet bool": ("a.parquet", parquet_file(pa.bool_()), [True, False, None], ["column", "boolean"]),
    "parquet int64": (
        "a.parquet", parquet_file(pa.int64()), [1, 0, None, 2**53 + 1, -(2**63)], ["column", "at least", "number"],
    ),
    "parquet double": (
        "a.parquet", parquet_file(pa.float64()), [1.0, 0.0, -0.0, None, float("nan"), float("inf")],
        ["column", "at least", "number"],
    ),
    "parquet text": (
        "a.parquet", parquet_file(pa.string()), [*BYTES, None],
        ["column", "equals", "at least", "text", "negated", "missing"],
    ),
    "parquet bytes": ("a.parquet", parquet_file(pa.binary()), [*BYTES, None], ["column", "equals", "at least"]),
}  # fmt: skip


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, bytes]]:
    """Runs the steps of the transform without a runner; returns the parts by their names."""
    monkeypatch.setattr(rows, "ROWS_PER_PART", 4)

    def run(files: dict[str, bytes], secret: Secret, noise: Any, **cut: Any) -> dict[str, bytes]:
        types = () if secret.where is None else tuple(secret.where.kinds.items())
        columns: Any = {"columns": ("id", "ill", "city"), "secrets": ("ill",), "types": types, "ids": ()}
        listed = [InputFile(name, len(content)) for name, content in files.items()]
        plan = plan_inputs(listed, Source(**columns, **cut), lambda path: pa.BufferReader(files[path]))
        monkeypatch.setattr(randomize_responses, "open_file", lambda path: pa.BufferReader(files[path]))
        monkeypatch.setattr(randomize_responses, "randomize", lambda bits, *_: noise(bits))
        out = tmp_path / "out"
        out.mkdir(exist_ok=True)
        for old in out.iterdir():
            old.unlink()
        params = RandomizedResponseParams(1)
        whole = RandomizeResponses(plan, [secret], ["id", "city"], params, path=str(out), release_key=KEY)
        return {name: (out / name).read_bytes() for name in steps(whole)}

    return run


def steps(whole: RandomizeResponses) -> Iterator[str]:
    """The stages of the pipeline, one after another."""
    step, groups, parts = whole._step, defaultdict(list), defaultdict(list)
    step.setup()
    for numbered in enumerate(whole._plan.items):
        for group, held in step.process(numbered, b"", [True]):
            groups[group].append(held)
    sums = {group: Rows.merge(held) for group, held in groups.items()}
    sizes = {group: int(held.counts.sum()) for group, held in sums.items()}
    for group in sums:
        for part, piece in randomize_responses._cut((group, sums[group]), sizes):
            parts[part].append(piece)
    for part in parts:
        yield randomize_responses._write_part((part, parts[part]), whole._path)[0]


def zero(bits: Any) -> Any:
    return np.zeros(len(bits), bool)


def same(bits: Any) -> Any:
    return bits


def content(parts: dict[str, bytes]) -> Counter[tuple[Any, ...]]:
    """The multiset of rows; every part but the last has as many as may be."""
    tables = [pq.read_table(io.BytesIO(parts[name])) for name in sorted(parts)]
    sizes = [table.num_rows for table in tables]
    assert all(size == rows.ROWS_PER_PART for size in sizes[:-1])
    return Counter(tuple(row.values()) for table in tables for row in table.to_pylist())


def cuts(name: str) -> list[dict[str, Any]]:
    if name.endswith("parquet"):
        return [{"item_bytes": 1}, {}]
    return [{"block_bytes": size} for size in (20, 50, 300)] + [{"block_bytes": 40, "item_bytes": 100}, {}]


@pytest.mark.parametrize(("file", "kind"), [(file, kind) for file in FILES for kind in FILES[file][3]])
@pytest.mark.long
def test_only_the_released_bit_of_a_record_depends_on_its_secret(file, kind, release, monkeypatch):
    name, write, values, _ = FILES[file]
    secret, rng = SECRETS[kind], np.random.default_rng(len(file) + len(kind))
    others = [(number, values[int(rng.integers(len(values)))]) for number in range(OTHERS)]
    of_others = content(release({name: write(others)}, secret, same))
    assert sum(of_others.values()) == OTHERS
    together = content(release({name: write(list(enumerate(values)))}, secret, same))
    bits = {int(number): bit for number, _, bit in together}
    assert len(bits) == len(values)
    reference = None
    for turn, value in enumerate(values):
        held = [*others, (OTHERS, value)]
        alone = Counter({(str(OTHERS), f"city {OTHERS % 2}", bits[turn]): 1})  # other company, the same bit
        if turn % 5 == 0:
            assert content(release({name: write([(OTHERS, value)])}, secret, same)) == alone
        cut = cuts(name)[turn % len(cuts(name))]
        order = rng.permutation(len(held))
        if turn % 3:
            order = sorted(order, key=lambda at: repr(held[at][1]))
        monkeypatch.setattr(parquet_format, "_BATCH_ROWS", int(rng.integers(1, 12)))
        data = {name: write([held[at] for at in order])}
        forced = release(data, secret, zero, **cut)
        reference = reference or forced
        assert forced == reference, (value, cut)
        assert content(release(data, secret, same, **cut)) == of_others + alone, (value, cut)


UNREADABLE: dict[str, list[Any]] = {
    "csv": [b"", b"\xff", b"yes\xff"],
    "jsonl": [MISSING, b"null", b"[1]", b"{}", b'"\\ud800"', b'"yes\xff"'],
    "parquet text": [None, b"\xff", b"yes\xff"],
}
#: what can be read as text, but not as a boolean or number
ODD = {"csv": [b"maybe", b" ", b"NaN,1"], "jsonl": [b'"maybe"', b'""'], "parquet text": [b"maybe", b""]}


@pytest.mark.parametrize(
    ("file", "kind"), [(file, kind) for file in UNREADABLE for kind in FILES[file][3] if kind != "missing"]
)
def test_a_secret_that_cannot_be_read_is_zero(file, kind, release):
    """Null, a missing field, another type, no UTF-8 or an odd spelling: the record stays."""
    name, write, _, _ = FILES[file]
    held = list(enumerate(UNREADABLE[file] + (ODD[file] if kind != "negated" else [])))
    found = content(release({name: write(held)}, SECRETS[kind], same))
    assert found == Counter({(str(number), f"city {number % 2}", False): 1 for number, _ in held})


def test_mixed_types_of_files_never_fail_on_a_value(release):
    """Whole numbers beside fractions, text beside bytes: one type for both, and no value that it cannot hold."""
    for first, second, values in [
        (pa.int64(), pa.float64(), ([2**53 + 1, 0, None], [0.5, 0.0, float("nan")])),
        (pa.string(), pa.binary(), ([b"yes", b"no", None], [b"yes", b"\xff", None])),
        (pa.bool_(), pa.string(), ([True, False, None], [b"true", b"\xff", b""])),
        (pa.uint64(), pa.int64(), ([2**64 - 1, 0, None], [-1, 0, None])),
    ]:
        files = {
            f"{at}.parquet": parquet_file(kind)(list(enumerate(values[at], 3 * at)))
            for at, kind in enumerate((first, second))
        }
        found = content(release(files, SECRETS["column"], same))
        assert sorted(int(number) for number, _, bit in found if bit) == [0, 3], (first, second)


def test_secrets_cannot_choose_records(tmp_path):
    """`where`, users, keys and values are refused where they are secret, hold a secret, or are a field of one."""
    for options in (
        {"ids": (), "where": parse("ill = 'yes' AND city = 'Rome'")},
        {"ids": ("ill",)},
        {"ids": ("ill | lower",)},
        {"ids": ("[city, ill]",)},
        {"ids": ("id", "ill.since")},
        {"ids": (), "values": ("ill",)},
    ):
        with pytest.raises(ParameterError, match="is secret, and must not decide which records are read"):
            Source(columns=("city", "ill"), secrets=("ill",), **options)
    with pytest.raises(ParameterError, match="'answers' is secret, and must not decide"):
        Source(ids=(), columns=("answers.ill",), secrets=("answers.ill",), where=parse("answers IS NULL"))


def test_a_pattern_and_a_folder_cannot_tell_a_secret():
    """A pattern may match some secrets only, and paths are no secrets."""
    line, secret = b"7 yes\n", {"ids": (), "columns": ("id", "ill"), "secrets": ("ill",)}
    pattern = LogOptions(pattern="^(?P<id>[0-9]+) (?P<ill>yes)$")
    with pytest.raises(
        InputError, match="'ill' is secret, and whether a line matches a pattern could reveal it"
    ):
        plan_inputs(
            [InputFile("a.log", 6)], Source(options=(pattern,), **secret), lambda _: pa.BufferReader(line)
        )
    path = "ill=yes/a.csv"
    with pytest.raises(InputError, match="a folder gives the secret column 'ill'") as problem:
        plan_inputs([InputFile(path, 4)], Source(**secret), lambda _: pa.BufferReader(b"id\n7\n"))
    assert "yes" not in str(problem.value)
    assert {kind.split()[0] for kind in FILES} | {"log"} == set(FORMATS)  # every format is here


def test_broken_twin_rows_in_the_order_of_the_input_are_seen(release, monkeypatch):
    """Without the canonical order the check above fails."""
    name, write, _, _ = FILES["csv"]
    orders = [[(0, b"yes"), (1, b"no")], [(1, b"no"), (0, b"yes")]]
    honest = [release({name: write(held)}, SECRETS["column"], zero) for held in orders]
    monkeypatch.setattr(Rows, "merge", classmethod(lambda cls, parts: next(iter(parts))))
    broken = [release({name: write(held)}, SECRETS["column"], zero) for held in orders]
    assert honest[0] == honest[1]
    assert broken[0] != broken[1]


def test_csv_is_what_a_writer_writes():
    """The records above are those of Python's own writer."""
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(["a", 'say "yes"'])
    assert out.getvalue().encode() == b'"a",' + csv_record(0, b'say "yes"').split(b",")[1] + b"\n"
