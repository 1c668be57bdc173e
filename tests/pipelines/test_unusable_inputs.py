"""Input that cannot be meant is refused before anything is charged, by --check and by the run, in one line."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from hushgram.errors import HushgramError
from hushgram.ledger import Ledger, summarise
from hushgram.pipelines.cli import cli

URL = "sqlite:///ledger.db"
GOOD = b"user,key\n" + b"".join(b"u%d,/k%d\n" % (i, i % 5) for i in range(50))
JSON = b"".join(b'{"user": "u%d", "key": "k"}\n' % i for i in range(50))
LOG = b"".join(b'10.0.0.%d - - [10/Oct/2026:13:55:36 +0000] "GET /a HTTP/1.1" 200 5\n' % i for i in range(50))
PATTERN = r"user=(?P<user>\S+) key=(?P<key>\S+)"


def parquet(**columns: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(list(columns.values()), names=[n.rstrip("_") for n in columns]), sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data


USERS, KEYS = pa.array([f"u{i}" for i in range(50)]), pa.array(["k"] * 50)
TABLE = parquet(user=USERS, key=KEYS)

#: name: (file, content, options of the input group, what the message says)
CASES: dict[str, tuple[str, bytes, dict[str, Any], str]] = {
    # nothing there
    "no bytes": ("a.csv", b"", {}, "no records; set input.min_rows to 0"),
    "no bytes of JSON": ("a.jsonl", b"", {}, "no records"),
    "no bytes of a log": ("a.log", b"", {"pattern": PATTERN}, "no records"),
    "no bytes, packed": ("a.csv.gz", gzip.compress(b""), {}, "no records"),
    "header alone": ("a.csv", b"user,key\n", {}, "no records"),
    "blank lines": ("a.csv", b"\n\n\n", {}, "no records"),
    "blank JSON lines": ("a.jsonl", b"\n  \n", {}, "no records"),
    "no rows": ("a.parquet", parquet(user=USERS[:0], key=KEYS[:0]), {}, "no records"),
    "too few": ("a.csv", GOOD, {"min_rows": 51}, r"fewer records than input.min_rows \(51\)"),
    "too few rows": ("a.parquet", TABLE, {"min_rows": 51}, "fewer records than"),
    # another format than it is taken for
    "semicolons": ("a.csv", GOOD.replace(b",", b";"), {}, "separated by ';'; set input.csv.delimiter to ';'"),
    "tabs": ("a.tsv", GOOD.replace(b",", b"\t"), {}, r"separated by '\\t'; set input.csv.delimiter"),
    "bars": ("a.csv", GOOD.replace(b",", b"|"), {}, r"separated by '\|'"),
    "delimiter of the header alone": ("a.csv", GOOD.replace(b",", b";").replace(b";", b",", 1), {},
                                      "line 2 .*1 fields instead of 2"),
    "names given, other delimiter": ("a.csv", GOOD.replace(b",", b";"), {"csv": {"header": ["user", "key"]}},
                                     "line 1 .*1 fields instead of 2"),
    "a JSON array": ("a.json", b"[" + JSON.replace(b"\n", b",") + b"{}]", {}, "is a JSON array; write one object"),
    "a JSON array over lines": ("a.json", b"[\n" + JSON, {}, "is a JSON array"),
    "one object over lines": ("a.json", json.dumps({"user": "u", "key": "k"}, indent=1).encode(), {},
                              "no column 'user'"),
    "CSV as JSON": ("a.jsonl", GOOD, {}, "no column 'user'"),
    "JSON as CSV": ("a.csv", JSON, {}, "no column 'user'"),
    "JSON as CSV with names": ("a.csv", JSON + b"x\n", {"csv": {"header": ["user", "key", "n"]}},
                               "2 fields instead of 3"),
    "Parquet as CSV": ("a.csv", TABLE, {}, "is a Parquet file"),
    "CSV as Parquet": ("a.parquet", GOOD, {}, "not a readable Parquet file"),
    "UTF-16": ("a.csv", GOOD.decode().encode("utf-16"), {}, "is UTF-16 text"),
    "Latin-1": ("a.csv", GOOD.replace(b"/k", b"\xe9"), {}, "line 2 .*key is not UTF-8"),
    "returns alone": ("a.csv", GOOD.replace(b"\n", b"\r"), {}, "carriage return inside a line in the header"),
    "pages of a web server": ("a.jsonl", b"<html>\n<body>404</body>\n</html>\n", {}, "no column 'user'"),
    "packed as plain": ("a.csv", gzip.compress(GOOD), {}, "is compressed; give it the ending .gz"),
    "plain as packed": ("a.csv.gz", GOOD, {}, "cannot be read as gzip"),
    "half a gzip": ("a.csv.gz", gzip.compress(GOOD * 9)[:-20], {}, "cannot be read"),
    "half a bzip2": ("a.jsonl.bz2", bz2.compress(JSON)[:-20], {}, "cannot be read"),
    "unknown ending": ("a.dat", GOOD, {}, "cannot tell the format from the file name"),
    "half a Parquet": ("a.parquet", TABLE[:-50], {}, "not a readable Parquet file"),
    # other columns
    "no such column": ("a.csv", GOOD, {"key": "kex"}, "no column 'kex'; did you mean 'key'"),
    "no such JSON field": ("a.jsonl", JSON, {"key": "url"}, "no column 'url'"),
    "no such group": ("a.log", LOG, {"pattern": r"(?P<user>\S+) (?P<url>\S+)"}, "no column 'key'"),
    "a column twice": ("a.csv", GOOD.replace(b"user,key", b"key,key"), {"user": None}, "occurs 2 times"),
    "a Parquet column twice": ("a.parquet", parquet(user=USERS, key=KEYS, key_=KEYS), {}, "occurs 2 times"),
    "a header that is not closed": ("a.csv", GOOD.replace(b"key", b'"key', 1), {}, "quote is not closed in the header"),
    # other values
    "users are objects": ("a.jsonl", b'{"user": {"id": 1}, "key": "k"}\n' * 9, {},
                          "line 1 .*user is not a single value"),
    "users are fractions": ("a.jsonl", b'{"user": 1.5, "key": "k"}\n' * 9, {}, "with a fraction"),
    "keys are null": ("a.jsonl", JSON.replace(b'"k"', b"null"), {}, "line 1 .*key is null"),
    "users are empty": ("a.csv", b"user,key\n" + b",/k\n" * 50, {}, "line 2 .*user is null"),
    "Parquet users are null": ("a.parquet", parquet(user=pa.nulls(50, pa.string()), key=KEYS), {},
                               "row 1: user is null"),
    "users are floats": ("a.parquet", parquet(user=pa.array([1.5] * 50), key=KEYS), {}, "is double; a user or key"),
    "users are times": ("a.parquet", parquet(user=pa.array([1] * 50, pa.duration("s")), key=KEYS), {},
                        "is duration"),
    "users are lists": ("a.parquet", parquet(user=pa.array([[1]] * 50), key=KEYS), {}, "is list"),
    "no line matches": ("a.log", LOG, {"pattern": PATTERN}, "line 1 .*line does not match"),
    "no access log": ("a.log", b"user=1 key=2\n" * 50, {"preset": "access-log", "user": "ip", "key": "path"},
                      "line does not match"),
    "virtual hosts": ("a.log", LOG.replace(b"10.0", b"www.example.org:80 10.0"),
                      {"preset": "access-log", "user": "ip", "key": "path"}, "line 1 .*line does not match"),
    "no fields of W3C": ("a.log", LOG, {"preset": "w3c", "user": "c-ip", "key": "cs-uri-stem"}, "no line #Fields"),
    "half an xz": ("a.csv.xz", lzma.compress(GOOD)[:-20], {}, "cannot be read"),
    "every tenth line is bad": ("a.csv", GOOD + b"x\n" * 6, {}, "1 fields instead of 2"),
    "two objects on a line": ("a.jsonl", JSON + b'{"user":1}{"key":2}\n' * 5, {}, "not a JSON object"),
    # folders
    "a folder and the file give the key": ("key=x/a.csv", GOOD, {}, "in the file and in the name of its folder"),
    "a folder that is no number": ("hour=late/a.csv", GOOD, {"where": "hour > 5"}, "'late', which is not double"),
    "a folder without a value": ("c=__HIVE_DEFAULT_PARTITION__/a.csv", GOOD, {"key": "c"}, "line 2 .*c is null"),
    "nothing of the file is read": ("c=1/a.csv", GOOD, {"key": "c", "user": None}, "name one that the file holds too"),
    "folders that are no columns": ("c=1/a.csv", GOOD, {"key": "c", "folder_columns": False}, "no column 'c'"),
    "one field too many": ("a.csv", GOOD.replace(b"\n", b",x\n").replace(b"key,x", b"key", 1), {}, "3 fields"),
}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def call(*arguments: str) -> Exception | None:
    result = CliRunner().invoke(cli, list(arguments))
    problem = result.exception
    assert problem is None or isinstance(problem, HushgramError), problem
    return problem


def spent() -> tuple[Any, ...]:
    with Ledger(URL) as ledger:
        found = summarise(ledger, "people")
        return found.left_epsilon, [release.name for release in ledger.history("people")]


def config(folder: Path, path: str, **options: Any) -> str:
    group = {"path": path, "user": "user", "key": "key", **options}
    data = {
        "release": "r", "input": group, "privacy": {"epsilon": 1, "max_contributions": 2 if group["user"] else 1},
        "output": {"path": "out.sketch"}, "dataset": "people", "ledger": URL,
    }  # fmt: skip
    (folder / "c.yaml").write_text(yaml.safe_dump(data))
    return "c.yaml"


@pytest.mark.parametrize("case", CASES)
def test_unusable_input_is_refused_before_any_charge(
    case: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, content, options, message = CASES[case]
    monkeypatch.chdir(home)
    monkeypatch.delenv("HUSHGRAM_LEDGER", raising=False)
    if not Path("ledger.db").exists():
        assert call("ledger", "init", "--dataset", "people", "--epsilon", "5", "--ledger", URL) is None
    before = spent()
    folder = home / case.replace(" ", "-").replace(",", "")
    folder.mkdir()
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    written = config(home, f"{folder.name}/{name}", **options)
    for arguments in (("--check",), ("--quiet",)):
        problem = call("release", written, *arguments)
        assert isinstance(problem, HushgramError), f"{case} is accepted by {arguments}"
        assert problem.exit_code in (2, 3)
        assert "\n" not in str(problem)
        assert re.search(message, str(problem)), str(problem)
    assert spent() == before
    assert not Path("out.sketch").exists()


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 40
    assert {Path(name).suffixes[0] for name, *_ in CASES.values()} >= {".csv", ".jsonl", ".log", ".parquet"}


def test_rejected_records_behind_the_first_blocks_stop_the_release_before_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    good = b"".join(b"u%d,%s\n" % (i, b"k" * 100) for i in range(12_000))
    Path("a.csv").write_bytes(b"user,key\n" + good + b"x\n" * 2000)
    assert call("ledger", "init", "--dataset", "people", "--epsilon", "5", "--ledger", URL) is None
    written = config(tmp_path, "a.csv")
    problem = call("release", written, "--quiet")
    place = f"a.csv, line 12002 (byte {len(good) + 9}): "
    assert str(problem).startswith(
        f"{place}1 fields instead of 2; more than input.max_rejected_share (0.05) of the records"
    )
    assert not Path("out.sketch").exists()
    # the same release goes on once it is said that this is meant
    assert call("release", written, "--quiet", "--set", "input.max_rejected_share=0.2") is None
    assert Path("out.sketch").exists()


def test_an_empty_day_may_be_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_bytes(b"user,key\n")
    assert call("ledger", "init", "--dataset", "people", "--epsilon", "5", "--ledger", URL) is None
    assert call("release", config(tmp_path, "a.csv", min_rows=0), "--quiet") is None
