"""Every exit code of docs/operations.md happens here, with the charge that the table says it leaves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hushgram.ledger import Ledger
from hushgram.pipelines.cli import main
from tests.pipelines.all_jobs import LEDGER, write_home

DOCS = Path(__file__).parents[2] / "docs/operations.md"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("HUSHGRAM_LEDGER", "HUSHGRAM_RELEASE_KEY_FILE", "HUSHGRAM_LOG", "HUSHGRAM_METRICS"):
        monkeypatch.delenv(name, raising=False)
    write_home(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def _signals() -> Any:
    """`main` takes over SIGTERM and SIGHUP: give them back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def end(*words: str) -> int:
    """`hushgram WORDS` in this process; its exit code."""
    with pytest.raises(SystemExit) as caught:
        main(list(words))
    assert isinstance(caught.value.code, int)
    return caught.value.code


def run(*words: str) -> int:
    return end("top", "top-tracked.yaml", "--quiet", *words)


def status() -> list[tuple[str, bool]]:
    with Ledger(LEDGER) as ledger:
        return [(row.status, row.charged) for row in ledger.history("people")]


def strike(monkeypatch: pytest.MonkeyPatch, where: str, what: Callable[[], None]) -> None:
    """Something happens when a function is first called, and never again."""
    module, _, name = where.rpartition(".")
    home = __import__(module, fromlist=[name])
    real = getattr(home, name)

    def struck(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(home, name, real)
        what()
        return real(*given, **named)

    monkeypatch.setattr(home, name, struck)


WRITE = "hushgram.pipelines.jobs.top.write_lines"  # in the last stage, long after the key was handed out
EARLY = "hushgram.pipelines.run.beam_runners.new_pipeline"  # before it


def bug() -> None:
    raise KeyError("a mistake of ours")


def full() -> None:
    raise OSError(28, "No space left on device")


def test_0_released_and_released_before(home: Path) -> None:
    assert (run(), run(), status()) == (0, 0, [("committed", True)])


def test_1_a_bug_keeps_the_charge_and_can_be_run_again(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    strike(monkeypatch, WRITE, bug)
    with pytest.raises(Exception, match="a mistake of ours"):  # the interpreter prints it and ends with 1
        main(["top", "top-tracked.yaml", "--quiet"])
    assert "ε = 1 stays charged" in capsys.readouterr().err
    assert status() == [("running", True)]
    assert (run(), status()) == (0, [("committed", True)])


def test_2_a_wrong_config_costs_nothing(home: Path) -> None:
    assert (run("--set", "privacy.epsilon=0"), status()) == (2, [])


def test_3_missing_input_costs_nothing(home: Path) -> None:
    assert (run("--set", "input.path=none/*"), status()) == (3, [])


def test_3_input_that_is_gone_half_way_can_be_put_back(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    strike(monkeypatch, "hushgram.pipelines.run.progress.is_local", lambda: os.rename("data.parquet", "gone"))
    assert (run(), status()) == (3, [("running", True)])
    told = capsys.readouterr().err.splitlines()
    assert "ε = 1 stays charged" in told[0]
    assert told[1].startswith("error: ")
    assert "data.parquet" in told[1]
    assert len(told) == 2
    os.rename("gone", "data.parquet")
    assert (run(), status()) == (0, [("committed", True)])


def test_4_a_torn_sketch(home: Path) -> None:
    assert end("release", "release.yaml", "--quiet") == 0
    path = home / "out/result/heavy.bin"
    path.write_bytes(path.read_bytes()[:-1])
    assert end("verify", "out/result") == 4


def test_5_a_spent_budget(home: Path) -> None:
    assert (run("--set", "privacy.epsilon=6"), status()) == (5, [])


def test_6_a_ledger_that_is_not_there_and_an_id_used_before(home: Path) -> None:
    assert run("--set", "ledger=sqlite:///none.db") == 6
    assert run() == 0
    assert run("--set", "count=2") == 6
    assert status() == [("committed", True)]


def test_7_output_in_the_way_costs_nothing(home: Path) -> None:
    (home / "out").mkdir()
    (home / "out/result").write_text("x")
    assert (run(), status()) == (7, [])


def test_7_a_full_disk_at_the_end_can_be_emptied(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    strike(monkeypatch, WRITE, full)
    assert (run(), status()) == (7, [("running", True)])
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: the job cannot write its files: No space left on device"
    )
    assert (run(), status()) == (0, [("committed", True)])


def test_7_a_failure_before_the_key_gives_the_charge_back(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hushgram.errors import OutputError

    def refuse() -> None:
        raise OutputError("there is no room for temporary files")

    strike(monkeypatch, EARLY, refuse)
    assert (run(), status()) == (7, [("abandoned", False)])
    assert "its charge of ε = 1 was refunded" in capsys.readouterr().err
    assert (run(), status()) == (0, [("abandoned", False), ("committed", True)])


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
@pytest.mark.parametrize(("where", "left"), [(EARLY, ("abandoned", False)), (WRITE, ("running", True))])
@pytest.mark.long
def test_signals(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
    code: int,
    where: str,
    left: tuple[str, bool],
) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:  # the tests run in the background, or under nohup
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    strike(monkeypatch, where, lambda: os.kill(os.getpid(), number))
    assert (run(), status()) == (code, [left])
    assert capsys.readouterr().err.splitlines()[-1] == "stopped"
    assert run() == 0
    assert status()[-1] == ("committed", True)


@pytest.mark.long
def test_137_killed(home: Path) -> None:
    script = (
        "import os, signal, sys\nfrom hushgram.pipelines.jobs import top\nfrom hushgram.pipelines.cli import main\n"
        "top.write_lines = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\nmain(sys.argv[1:])"
    )
    command = [sys.executable, "-c", script, "top", "top-tracked.yaml", "--quiet"]
    assert subprocess.run(command, capture_output=True, check=False, timeout=120).returncode == -9
    assert status() == [("running", True)]
    assert (run(), status()) == (0, [("committed", True)])


def test_metrics_that_cannot_be_written_at_the_end_do_not_replace_the_exit_code(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "folder").mkdir()
    strike(monkeypatch, WRITE, lambda: (home / "folder").rename(home / "elsewhere") and None)
    assert (run("--metrics", "folder/m.prom"), status()) == (0, [("committed", True)])
    assert "warning: --metrics folder/m.prom cannot be written" in capsys.readouterr().err
    assert run("--metrics", "m.prom") == 0


def test_the_table_in_the_docs_has_these_codes() -> None:
    table = DOCS.read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    codes = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.M) for code in row.split(",")}
    assert codes == {0, 1, 2, 3, 4, 5, 6, 7, 129, 130, 137, 143}
