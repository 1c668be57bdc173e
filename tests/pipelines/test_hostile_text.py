"""Escape sequences, line breaks and bidirectional controls in names, keys, paths and values: never printed raw."""

from __future__ import annotations

import ast
import contextlib
import json
import logging
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import hushgram as hg
from hushgram.accounting import Budget
from hushgram.errors import FormatError, ParameterError
from hushgram.ledger import Ledger
from hushgram.pipelines.cli import main
from hushgram.pipelines.run.logs import JobLog, JsonFormatter
from hushgram.pipelines.terminal import EscapingFormatter, print_lines, print_records, print_table
from hushgram.sketch.manifest import _checksum
from hushgram.sketch.reader import Sketch

ROOT = Path(__file__).parents[2]
#: colour, bell, a line that looks like ours, carriage return, C1, both kinds of bidirectional controls, line separator
HOSTILE = "x\x1b[31m\x1b]0;title\x07\nerror: forged\r\x9b2J\u202ecod.exe\u2066\u2028\x7f"


def raw(text: str) -> list[str]:
    """What must not be there: controls, and a line that a stranger wrote."""
    found = [letter for letter in text if letter != "\n" and not letter.isprintable()]
    return found + [line for line in text.split("\n") if line.startswith("error: forged")]


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code, and both streams of a command."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out + told.err


@pytest.fixture(scope="module")
def sketch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys are data, and data may hold anything: here all heavy ones are hostile."""
    path = tmp_path_factory.mktemp("made") / "hostile.sketch"
    keys = [f"{HOSTILE}{i}" for i in range(20)] * 300
    params = hg.ReleaseParams(epsilon="2", delta="1e-6", max_contributions=1)
    hg.release(np.arange(len(keys)), keys, params, path, name="urls")
    return path


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every text of a manifest; names of fields are texts too."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:2]):
            yield from leaves(inner, (*path, number))
    else:
        yield path


def forged(sketch: Path, target: Path, *ways: tuple[Any, ...]) -> Path:
    """A copy whose texts at these places are hostile, under a right checksum."""
    shutil.copytree(sketch, target)
    body = json.loads((target / "manifest.json").read_text())
    del body["checksum"]
    for way in ways:
        inner = body
        for step in way[:-1]:
            inner = inner[step]
        inner[way[-1]] = HOSTILE
    body["checksum"] = _checksum(body)
    (target / "manifest.json").write_text(json.dumps(body, ensure_ascii=False))
    return target


READERS = (
    ("inspect",),
    ("inspect", "--format", "json"),
    ("inspect", "--format", "csv"),
    ("verify",),
    ("query", "KEY"),
    ("query", "KEY", "--format", "json"),
    ("heavy",),
    ("heavy", "--format", "json"),
    ("others",),
    ("total", "KEY"),
    ("total", "KEY", "--format", "json"),
)  # fmt: skip


def test_every_text_of_a_forged_manifest(
    sketch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = json.loads((sketch / "manifest.json").read_text())
    ways = [way for way in leaves(body) if way != ("checksum",)]
    assert ("release",) in ways
    assert len(ways) > 30
    opened = 0
    for number, way in enumerate(ways):
        path = forged(sketch, tmp_path / str(number), way)
        with contextlib.suppress(FormatError):
            Sketch.open(path)
            opened += 1
            for command, *options in READERS:
                _, told = said(capsys, command, str(path), *options)
                assert raw(told) == [], (way, command, options)
            continue
        code, told = said(capsys, "inspect", str(path))
        assert (code, raw(told)) == (4, []), way
    assert opened >= 5  # texts that nothing is derived from, such as the sentence


def test_a_forged_name_of_a_release_is_refused(sketch: Path, tmp_path: Path) -> None:
    path = forged(sketch, tmp_path / "named", ("release",))
    with pytest.raises(FormatError, match="'release' must be a name of printable characters"):
        Sketch.open(path)


@pytest.mark.parametrize("reader", READERS)
def test_hostile_keys_are_shown_with_escapes(
    reader: tuple[str, ...], sketch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *options = [HOSTILE if part == "KEY" else part for part in reader]
    code, told = said(capsys, command, str(sketch), *options)
    assert (code, raw(told)) == (0, [])


def test_the_report_shows_hostile_keys_with_escapes(
    sketch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = said(capsys, "report", str(sketch), "-o", str(tmp_path / "report.html"))
    assert (code, raw(told)) == (0, [])
    page = (tmp_path / "report.html").read_text()
    assert raw(page) == []
    assert "x\\x1b[31m" in page


def test_the_report_of_several_sketches_shows_hostile_names_and_keys_with_escapes(
    sketch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = HOSTILE.replace("\n", "")
    (tmp_path / "keys.txt").write_text(f"{line}\t{line}\n")
    paths = [str(shutil.copytree(sketch, tmp_path / f"{HOSTILE}2026-11-0{day}")) for day in (1, 2, 3)]
    asked = ("report", *paths, "-o", str(tmp_path / "report.html"), "--keys-file", str(tmp_path / "keys.txt"))
    code, told = said(capsys, *asked)
    assert (code, raw(told)) == (0, [])
    page = (tmp_path / "report.html").read_text()
    assert raw(page) == []
    assert "x\\x1b[31m" in page


def test_explore_shows_hostile_names_and_keys_with_escapes(sketch: Path, tmp_path: Path) -> None:
    paths = [str(shutil.copytree(sketch, tmp_path / name)) for name in (f"{HOSTILE}.sketch", "b.sketch")]
    command = [sys.executable, "-m", "hushgram.pipelines", "explore", *paths]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            with urllib.request.urlopen(address, timeout=20) as page:
                assert raw(page.read().decode()) == []
            for view in ("keys", "groups", "changes"):
                asked = urllib.parse.urlencode({"k": HOSTILE, "view": view, "every": 1})
                with urllib.request.urlopen(f"{address}?{asked}", timeout=20) as answer:
                    page = answer.read().decode()
                assert raw(page) == []
                assert "x\\x1b[31m" in page
            with urllib.request.urlopen(f"{address}names?q=", timeout=20) as answer:
                names = json.load(answer)["names"]
        finally:
            process.terminate()
    assert [raw(name["text"]) for name in names] == [[]] * len(names)


MISTAKES = {
    "a path": ("inspect", f"/nowhere/{HOSTILE}"),
    "a command": (HOSTILE,),
    "an option": ("query", f"--{HOSTILE}", "a"),
    "a choice": ("query", "a.sketch", "k", "--format", HOSTILE),
    "a number": ("query", "a.sketch", "k", "--level", HOSTILE),
    "a file of keys": ("query", "SKETCH", "--keys-file", f"nowhere{HOSTILE}"),
    "an output": ("query", "SKETCH", "k", "-o", f"nowhere{HOSTILE}/a"),
    "a page": ("report", "SKETCH", "-o", f"there{HOSTILE}"),
    "a config": ("release", f"nowhere{HOSTILE}.yaml"),
    "an override": ("release", "c.yaml", "--set", f"{HOSTILE}=1"),
    "a value of an override": ("release", "c.yaml", "--set", f"privacy.epsilon={HOSTILE}"),
    "several problems": ("release", "c.yaml", "--set", f"workers={HOSTILE}", "--set", f"privacy.delta={HOSTILE}"),
    "a date": ("release", "c.yaml", "--date", HOSTILE),
    "a data set to make": ("ledger", "init", "--dataset", HOSTILE, "--epsilon", "1", "--ledger", "sqlite:///l.db"),
    "a data set to show": ("ledger", "show", HOSTILE, "--ledger", "sqlite:///there.db"),
    "a ledger": ("ledger", "show", "--ledger", f"sqlite:///{HOSTILE}"),
    "a release to give up": ("ledger", "abandon", HOSTILE, "--ledger", "sqlite:///there.db"),
    "a target": ("plan", "--records", "1e4", "--keys", "1e3", "--target", HOSTILE),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_a_message_quotes_is_escaped(
    mistake: str,
    sketch: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(f"there{HOSTILE}").mkdir()
    Path("c.yaml").write_text(
        "release: a\ninput: {path: in/*.csv, user: user, key: url}\n"
        "privacy: {epsilon: 1, max_contributions: 2}\noutput: {path: out}\n"
    )
    with Ledger.create("sqlite:///there.db"):
        pass
    code, told = said(capsys, *(str(sketch) if part == "SKETCH" else part for part in MISTAKES[mistake]))
    assert code != 0
    assert told.strip()
    assert raw(told) == []


def test_several_problems_of_a_config_stay_several_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text("release: a\nworkers: none\nprivacy: {epsilon: 1}\n")
    code, told = said(capsys, "release", "c.yaml")
    assert code == 2
    first, *rest = told.rstrip("\n").split("\n")
    assert first.startswith("error: c.yaml")
    assert len(rest) >= 2
    assert all(line.startswith("  ") for line in rest)


def test_names_are_checked_where_they_are_made(tmp_path: Path) -> None:
    params = hg.ReleaseParams(epsilon="1", max_contributions=1)
    with pytest.raises(ParameterError, match="the name of a release must be printable"):
        hg.release(["u"], ["k"], params, tmp_path / "a.sketch", name=HOSTILE)
    assert not (tmp_path / "a.sketch").exists()
    with (
        Ledger.create(f"sqlite:///{tmp_path}/l.db") as ledger,
        pytest.raises(ParameterError, match="1 to 200 printable characters"),
    ):
        ledger.add_dataset(HOSTILE, Budget("1"))


@pytest.mark.parametrize("mode", ["text", "json"])
def test_log_lines_hold_no_control(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    with JobLog("release", mode, dataset=HOSTILE, release=HOSTILE) as out:
        out.write("read", f"reading {HOSTILE}", file=HOSTILE)
    told = capsys.readouterr().err
    assert raw(told) == []
    if mode == "json":
        first = json.loads(told.split("\n")[0])
        assert first["file"] == first["dataset"] == HOSTILE  # and reads back exactly


@pytest.mark.parametrize("formatter", [JsonFormatter(), EscapingFormatter()])
def test_records_of_pythons_logging_hold_no_control(formatter: logging.Formatter) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        record = logging.LogRecord("a", 30, "a.py", 1, "told %s", (HOSTILE,), sys.exc_info())
    assert raw(formatter.format(record)) == []


def test_tables_lines_and_records(capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({HOSTILE: [HOSTILE], "bytes": pa.array([HOSTILE.encode() + b"\xff"], pa.large_binary())})
    for style in ("table", "json"):
        print_table(table, style)
        print_lines([(HOSTILE, HOSTILE)], style)
        print_records([{HOSTILE: {HOSTILE: HOSTILE}}], style)
        assert raw(capsys.readouterr().out) == []


def test_csv_is_exact_in_a_file_and_escaped_on_a_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"key": [HOSTILE, "=1+1"]})
    print_table(table, "csv", str(tmp_path / "a.csv"))
    options = pa.csv.ParseOptions(newlines_in_values=True)
    assert pa.csv.read_csv(tmp_path / "a.csv", parse_options=options).equals(table)
    print_table(table, "json", str(tmp_path / "a.json"))
    with open(tmp_path / "a.json", newline="\n") as file:
        assert [json.loads(line)["key"] for line in file] == table["key"].to_pylist()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table(table, "csv")
    assert raw(capsys.readouterr().out) == []


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝"])
def test_safe_csv_keeps_texts_from_being_formulas(start: str, sketch: Path, tmp_path: Path) -> None:
    key, target = f"{start}cmd|' /C calc'!A0", tmp_path / "a.csv"
    for options, shown in (((), key), (("--safe-csv",), f"'{key}")):
        with pytest.raises(SystemExit) as ended:
            main(
                [
                    "query",
                    "-o",
                    str(target),
                    "--force",
                    "--format",
                    "csv",
                    *options,
                    str(sketch),
                    "--",
                    key,
                    "/a-b",
                ]
            )
        assert ended.value.code == 0
        found = pa.csv.read_csv(target, parse_options=pa.csv.ParseOptions(newlines_in_values=True))
        assert found["key"].to_pylist() == [shown, "/a-b"]
        assert pa.types.is_integer(found.schema.field("high").type)  # numbers stay numbers


def test_safe_csv_is_for_csv(sketch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = said(capsys, "query", str(sketch), "a", "--safe-csv")
    assert code == 2
    assert "--safe-csv needs --format csv" in told
    assert said(capsys, "ledger", "history", "--help")[1].count("--safe-csv") == 1
    assert said(capsys, "calculate", "laplace-error", "--help")[1].count("--safe-csv") == 1


def test_only_one_module_prints() -> None:
    """Whoever writes a line for people does so by the functions of `terminal`."""
    printers = {"click.echo", "click.secho", "print", "sys.stdout.write", "sys.stderr.write"}
    found = {
        (path.relative_to(ROOT).as_posix(), ast.unparse(node.func))
        for package in ("core", "transforms", "pipelines")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in printers
    }
    assert found == {
        ("pipelines/terminal.py", "click.echo"),  # what it has escaped, and rows for programs
        ("pipelines/run/worker_pool.py", "print"),  # its own host and port
    }
