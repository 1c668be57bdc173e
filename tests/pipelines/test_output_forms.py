"""One output form: every command prints rows in the same formats, and never overwrites a file without --force."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import click
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from hushgram.pipelines.cli import cli
from hushgram.pipelines.run.outputs import digest_of
from hushgram.sketch.reader import Sketch
from tests.docs.test_commands import every_command

GOLDEN = Path(__file__).parents[1] / "golden/sketches"
TEXT = str(GOLDEN / "text.sketch")
PAGES = {"report", "explore"}  # they write or serve HTML

#: commands that read or calculate, with the fields of their rows
READERS: dict[str, set[str]] = {
    f"query {TEXT} /page/1 nobody": {"key", "estimate", "low", "high", "above_zero", "source", "among"},
    f"total {TEXT} /page/1 nobody": {"keys", "estimate", "low", "high", "level", "assumes"},
    f"heavy {TEXT}": {"key", "fingerprint", "value", "low", "high", "real", "among", "others"},
    f"verify {TEXT}": {"file", "bytes", "sha256", "status"},
    "doctor": {"status", "name", "message"},
    "example ages --rows 100": {"path", "created", "config", "next"},
    "ledger init --dataset people --epsilon 1": {"dataset", "epsilon", "delta", "ledger", "created"},
    "calculate pure-to-zcdp --epsilon 1": {"what", "value"},
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUSHGRAM_LEDGER", raising=False)


def call(text: str) -> bytes:
    result = CliRunner().invoke(cli, text.split(), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout_bytes


def options(words: str) -> set[str]:
    found: Any = cli
    for word in words.split():
        found = found.get_command(click.Context(found), word)
    return {name for param in found.params for name in param.opts}


@pytest.mark.parametrize("words", sorted(set(every_command(cli)) - PAGES))
def test_every_command_has_the_same_formats(words: str) -> None:
    assert {"--format", "--output", "--force"} <= options(words)


@pytest.mark.parametrize("command", READERS)
def test_all_formats_have_the_same_fields(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    for style in ("json", "csv", "parquet"):
        folder = tmp_path / style
        folder.mkdir()
        monkeypatch.chdir(folder)
        out = call(f"{command} --format {style}")
        if style == "json":
            told.append(set(json.loads(out.splitlines()[0])))
        else:
            read = csv.read_csv if style == "csv" else pq.read_table
            told.append(set(read(io.BytesIO(out)).column_names))
    assert told[0] == told[1] == told[2]
    assert told[0] >= READERS[command]


def test_fingerprints_are_hexadecimal_everywhere() -> None:
    sketch = Sketch.open(GOLDEN / "pure.sketch")
    in_python = sketch.heavy(all=True)["fingerprint"].to_pylist()
    rows = [json.loads(line) for line in call(f"heavy {GOLDEN}/pure.sketch --all --format json").splitlines()]
    shown = {row["fingerprint"] for row in rows if not row["others"]}
    assert shown
    assert shown <= set(in_python)
    assert all(len(text) == 16 and int(text, 16) >= 0 for text in in_python)


@pytest.mark.parametrize(
    "command", ["query {} a -o out", "verify {} -o out", "doctor -o out", "heavy {} -o out"]
)
def test_a_file_is_replaced_only_by_force(command: str) -> None:
    Path("out").write_text("precious")
    words = command.format(TEXT).split()
    refused = CliRunner().invoke(cli, words)
    assert "out already exists; choose another name, or replace it with --force" in str(refused.exception)
    assert Path("out").read_text() == "precious"
    call(f"{' '.join(words)} --force")
    assert Path("out").read_text() != "precious"


def test_a_release_tells_scripts_where_it_is_and_what_it_cost() -> None:
    Path("in.csv").write_text("user,url\n" + "".join(f"u{i},/{i % 7}\n" for i in range(60)))
    Path("urls.yaml").write_text(
        "release: urls\ninput: {path: in.csv, user: user, key: url}\nsizes: {records: 100, keys: 50}\n"
        "privacy: {epsilon: 1.0, max_contributions: 2}\noutput: {path: out.sketch}\n"
        "dataset: people\nledger: sqlite:///ledger.db\n"
    )
    call("ledger init --dataset people --epsilon 1 --ledger sqlite:///ledger.db")
    first = json.loads(call("release urls.yaml --format json"))
    assert first == {
        "release": "urls", "path": "out.sketch", "bytes": Sketch.open("out.sketch").size, "epsilon": "1", "delta": "0",
        "digest": digest_of("out.sketch"),
    }  # fmt: skip
    history = json.loads(call("ledger history people --ledger sqlite:///ledger.db --format json"))
    assert history["digest"] == first["digest"]
    assert json.loads(call("release urls.yaml --format json")) == first  # released before: the same row
