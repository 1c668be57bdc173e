"""Temporary places and engines that fail a job: one line each, before the charge where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from hushgram.errors import HushgramError, OutputError, ParameterError
from hushgram.ledger import Ledger
from hushgram.pipelines.cli import cli
from hushgram.publishing import PREFIX
from hushgram.transforms.shuffle import coders as spill
from tests.transforms.releases import records

URL = "sqlite:///ledger.db"
CONFIG = f"""
release: urls
dataset: people
ledger: {URL}
input: {{path: in.parquet, user: user, key: url}}
privacy: {{epsilon: 1, max_contributions: 4}}
output: {{path: out/urls.sketch}}
"""
FLINK = [
    "--runner=FlinkRunner",
    "--flink_master=localhost:1",
    "--environment_type=EXTERNAL",
    "--environment_config=localhost:2",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("HUSHGRAM_LEDGER", "HUSHGRAM_RELEASE_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    pq.write_table(records(500, users=50), "in.parquet", row_group_size=100)
    Path("job.yaml").write_text(CONFIG)
    CliRunner().invoke(
        cli, ["ledger", "init", "--ledger", URL, "--dataset", "people", "--epsilon", "1", "--delta", "0"]
    )
    return tmp_path


def run(*beam_options: str) -> Result:
    return CliRunner().invoke(cli, ["release", "job.yaml", "--", *beam_options])


def charged() -> list[tuple[str, bool]]:
    with Ledger(URL) as ledger:
        return [(release.status, release.charged) for release in ledger.history("people")]


def nothing_left(folder: Path) -> bool:
    return not [path for place in ("out", "tmp") for path in (folder / place).glob("*")]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--runner=FlinkRuner"], "there is no runner 'FlinkRuner'"),
        ([*FLINK, "--flink_job_server_jar=/no/such.jar"], "/no/such.jar: there is no such file"),
    ],
)
def test_an_engine_that_is_not_there_costs_nothing(options: list[str], text: str, folder: Path) -> None:
    failed = run(*options)
    assert isinstance(failed.exception, ParameterError)
    assert text in str(failed.exception)
    assert charged() == []
    assert nothing_left(folder)


def test_a_temporary_directory_that_cannot_be_used_costs_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(folder / "none"))
    failed = run()
    assert isinstance(failed.exception, OutputError)
    assert "set TMPDIR to another one" in str(failed.exception)
    assert charged() == []


def test_a_temporary_directory_without_inodes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> tuple[int, str]:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(spill.tempfile, "mkstemp", _only_spill(spill.tempfile.mkstemp, full))
        failed = run()
    assert type(failed.exception) is OutputError, failed.exception
    assert "cannot be written: No space left on device; set TMPDIR" in str(failed.exception)
    assert charged() == [("running", True)]  # its key was in use
    assert nothing_left(folder)
    assert run().exit_code == 0
    assert charged() == [("committed", True)]


def _only_spill(real: Callable[..., object], other: Callable[..., object]) -> Callable[..., object]:
    return lambda **named: (other if named.get("prefix") == "spill-" else real)(**named)


def test_an_engine_that_does_not_answer_is_one_line(folder: Path) -> None:
    failed = run(*FLINK, "--job_endpoint=localhost:1", "--job_server_timeout=1")
    assert type(failed.exception) is HushgramError
    assert str(failed.exception).startswith(
        "FlinkRunner did not accept the job: no answer; see the engine's log"
    )
    assert not list((folder / "tmp").glob(f"{PREFIX}*"))


def test_a_key_of_ones_own_is_warned_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("key").write_text("ab" * 32)
    monkeypatch.setenv("HUSHGRAM_RELEASE_KEY_FILE", "key")
    assert "HUSHGRAM_RELEASE_KEY_FILE is ignored: the ledger has the key" in run().output
    alone = ["release", "job.yaml", "--quiet", "--set", "output.path=out/b", "--set", "dataset=null"]
    done = CliRunner().invoke(cli, [*alone, "--set", "ledger=null"])
    assert done.exit_code == 0, done.output
    assert (
        "WARNING: the release key comes from HUSHGRAM_RELEASE_KEY_FILE, and no ledger counts" in done.output
    )
    monkeypatch.delenv("HUSHGRAM_RELEASE_KEY_FILE")
    done = CliRunner().invoke(cli, [*alone, "--set", "ledger=null", "--set", "output.path=out/c"])
    assert "KEY_FILE" not in done.output
