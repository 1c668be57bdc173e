"""``hushgram ledger`` as a person or a script uses it, and the log of a job."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from hushgram.accounting import Budget, Event
from hushgram.errors import BudgetExceeded, HushgramError, LedgerError, OutputError
from hushgram.ledger import Ledger, Owner, Request, summarise
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.cli import cli
from hushgram.pipelines.run.logs import JobLog, log_options


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HUSHGRAM_LEDGER", "HUSHGRAM_LOG", "HUSHGRAM_METRICS"):
        monkeypatch.delenv(name, raising=False)


def call(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, ["ledger", *arguments])
    if isinstance(result.exception, HushgramError):
        raise result.exception
    return result


def release(name: str, *events: Event, url: str | None = None, upto: str = "commit") -> None:
    with Ledger(url) as ledger:
        taken = ledger.reserve(Request("pageviews", name, events, target=f"out/{name}"), Owner.this())
        if upto in ("start", "commit"):
            ledger.start(taken)
        if upto == "commit":
            ledger.prepare(taken, "0123456789abcdef" * 4)
            ledger.commit(taken)
        else:
            ledger.release_lease(taken)


@pytest.mark.parametrize("composition", ["filter", "basic", "best"])
@pytest.mark.parametrize("delta", ["1e-3", "0.01", "0.5"])
def test_a_fresh_data_set_is_shown_at_a_large_delta(delta: str, composition: str) -> None:
    """Its spent ε was negative, and writing that number never ended."""
    call("init", "--dataset", "d", "--epsilon", "3", "--delta", delta, "--composition", composition)
    shown = call("show", "d").output
    assert re.search(r"spent\s+0\s+0\s", shown)
    assert re.search(rf"left\s+3\s+{delta.replace('1e-3', '0.001')}\s", shown)


def test_init_show_history(tmp_path: Path) -> None:
    out = call("init", "--dataset", "pageviews", "--epsilon", "10", "--delta", "1e-6").output
    assert "ε = 10, δ = 0.000001" in out
    assert (tmp_path / "hushgram-ledger.db").exists()
    release("urls-2026-11-15", Event("threshold", "0.5"), Event("alp", "0.5"))
    shown = call("show", "pageviews").output
    assert re.search(r"budget\s+10\s+1e-06", shown)
    assert re.search(r"spent\s+1\s+0", shown)
    assert re.search(r"left\s+9\s", shown)
    assert "more releases like urls-2026-11-15" in shown
    assert shown.endswith("  releases: 1 committed\n\n")  # a literal \\n was printed before
    assert "sums: ε = 1 at δ = 0" in shown
    assert "composition filter: the budget holds also where each release and its ε are chosen after" in shown
    listed = call("history", "pageviews").output
    assert re.search(r"urls-2026-11-15\s+release\s+all\s+1\s+0\s+committed.*0123456789abcdef", listed)


def test_json_for_programs() -> None:
    call("init", "--dataset", "pageviews", "--epsilon", "3", "--delta", "1e-6", "--composition", "best")
    release("monday", *[Event("laplace", "0.1", details={"queries": "prefix"})] * 29)
    one = json.loads(call("show", "--format", "json").output)
    assert one == json.loads(call("show", "pageviews", "--format", "json").output)
    assert (one["basic_epsilon"], one["proof"], one["budget_epsilon"]) == ("2.9", "distributions", "3")
    assert 2.2 < float(one["spent_epsilon"]) < 2.4
    assert float(one["spent_epsilon"]) + float(one["left_epsilon"]) == pytest.approx(3)
    assert one["kinds"] == {"laplace": {"events": 29, "epsilon": "2.9", "delta": "0"}}
    assert "people" not in call("show", "--format", "csv").output
    assert call("history", "pageviews", "--format", "csv").output.startswith('"release","attempt","job"')
    found = json.loads(call("history", "pageviews", "--format", "json").output)
    assert found["events"][0]["details"] == {"queries": "prefix"}
    assert found["events"][0]["meaning"] == "discrete Laplace on a vector of bounded L1 sensitivity"
    assert "secret" not in json.dumps(found)


def test_the_url_comes_from_option_environment_or_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/other.db"
    call("init", "--dataset", "pageviews", "--epsilon", "1", "--ledger", url)
    with pytest.raises(LedgerError, match=r"no ledger at sqlite:///hushgram-ledger\.db"):
        call("show")
    monkeypatch.setenv("HUSHGRAM_LEDGER", url)
    assert "pageviews" in call("show").output


def test_abandon_and_backup(tmp_path: Path) -> None:
    call("init", "--dataset", "pageviews", "--epsilon", "3")
    release("drawn", Event("alp", 1), upto="start")
    release("waiting", Event("alp", 1), upto="reserve")
    assert "its charge of ε = 1 stays" in call("abandon", "drawn").output
    assert "ε = 1 is refunded" in call("abandon", "waiting", "--dataset", "pageviews").output
    with Ledger() as ledger:
        assert summarise(ledger, "pageviews").left_epsilon == "2"
    assert "copied 1 data set, 2 releases, 2 events to " in call("backup", "copy.db").output
    assert "drawn" in call("history", "pageviews", "--ledger", f"sqlite:///{tmp_path}/copy.db").output
    with pytest.raises(LedgerError, match="exists already"):
        call("backup", "copy.db")


def test_the_composition_rule_is_part_of_the_budget() -> None:
    call("init", "--dataset", "pageviews", "--epsilon", "3", "--delta", "1e-6", "--composition", "basic")
    release("monday", *[Event("laplace", "0.1")] * 29)
    shown = call("show", "pageviews").output
    assert re.search(r"spent\s+2\.9\s", shown)
    assert "composition basic: the budget holds also where" in shown
    assert "1 more release like" in shown or "0 more releases like" in shown
    assert " if ε and δ were added up alone" in shown


def test_exit_codes_of_the_real_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hushgram.pipelines.cli"], capture_output=True, text=True, check=False
    )
    code = "from hushgram.pipelines.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "ledger", "show", "none"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 6
    assert done.stderr.startswith("error: there is no ledger at")
    assert "Traceback" not in done.stderr


def test_names_are_no_markup_and_a_terminal_need_not_know_greek() -> None:
    with Ledger.create() as ledger:
        ledger.add_dataset("[/red]", Budget(1))
        ledger.reserve(Request("[/red]", "[bold]day[/", [Event("alp", "0.5")]), Owner.this())
    code = (
        "from hushgram.pipelines.cli import cli\n"
        "for command in ('show', 'history'):\n"
        "    cli(['ledger', command, '[/red]'], standalone_mode=False)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("[/red]") >= 2
    assert done.stdout.count("[bold]day[/") >= 2


def test_abandoning_a_visible_release_says_so(tmp_path: Path) -> None:
    from hushgram.pipelines.run.outputs import digest_of

    call("init", "--dataset", "pageviews", "--epsilon", "3")
    (tmp_path / "out").write_text("result")
    with Ledger() as ledger:
        request = Request("pageviews", "seen", [Event("alp", 1)], target=str(tmp_path / "out"))
        taken = ledger.reserve(request, Owner.this())
        ledger.start(taken)
        ledger.prepare(taken, digest_of(str(tmp_path / "out")))
        ledger.release_lease(taken)
    shown = call("abandon", "seen").output
    assert "is visible; it stays published" in shown
    assert "its charge of ε = 1 stays" in shown


def test_short_numbers_are_rounded_to_the_safe_side() -> None:
    from hushgram.ledger.summary import brief

    for text in ("100.000001", "123456.789", "99999.999999", "1234567/3", "0.000123456789", "2/3"):
        assert Fraction(brief(text)) >= Fraction(text) >= Fraction(brief(text, up=False))


def test_looking_keys_up_imports_no_ledger() -> None:
    code = (
        "import sys, hushgram.pipelines.commands.query, hushgram.sketch\n"
        "assert not {'sqlalchemy', 'hushgram.ledger', 'dp_accounting', 'apache_beam'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("command", [[], ["init"], ["show"], ["history"], ["abandon"], ["backup"]])
def test_help(command: list[str]) -> None:
    assert "Usage:" in call(*command, "--help").output


# Logs and metrics of a job


@click.command()
@log_options
@click.option("--fail", is_flag=True)
def _job(log: str, metrics: str | None, notify: str | None, fail: bool) -> None:
    with JobLog("release", log, metrics, notify=notify, dataset="pageviews", release="monday") as out:
        out.write("budget", "reserved ε = 1")
        logging.getLogger("apache_beam").warning("a line of %s", "Beam")
        if fail:
            raise BudgetExceeded("too much")
        out.write("written", f"key {ReleaseKey(bytes(32))}", rows=3)
        with Ledger.create() as ledger:
            ledger.add_dataset("pageviews", Budget(4))
            out.result(summarise(ledger, "pageviews"))
        out.finish(output="out/urls.sketch")


def test_json_lines_on_standard_error() -> None:
    result = CliRunner().invoke(_job, ["--log", "json"])
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert [line["event"] for line in lines] == ["budget", "log", "written", "finished"]
    assert lines[0]["release"] == "monday"
    assert lines[0]["time"].endswith("Z")
    assert lines[1]["message"] == "a line of Beam"
    assert lines[2]["message"] == "key ReleaseKey(secret)"
    assert result.stdout == ""


def test_errors_are_json_too_and_keep_their_exit_code() -> None:
    result = CliRunner().invoke(_job, ["--log", "json", "--fail"])
    last = json.loads(result.stderr.splitlines()[-1])
    assert (result.exit_code, last["event"], last["exit_code"]) == (5, "error", 5)
    assert last["message"] == "too much"
    plain = CliRunner().invoke(_job, ["--fail"])
    assert isinstance(plain.exception, BudgetExceeded)  # the command line prints it


def test_metrics_file(tmp_path: Path) -> None:
    path = tmp_path / "hushgram.prom"
    assert CliRunner().invoke(_job, ["--metrics", str(path)]).exit_code == 0
    values = dict(re.findall(r'^(\w+)\{job="release",dataset="pageviews"\} (\S+)$', path.read_text(), re.M))
    assert values["hushgram_last_run_success"] == "1"
    assert values["hushgram_budget_epsilon_left"] == "4.0"
    assert float(values["hushgram_last_run_duration_seconds"]) >= 0
    success = values["hushgram_last_success_timestamp_seconds"]
    CliRunner().invoke(_job, ["--metrics", str(path), "--fail"])
    after = dict(re.findall(r"^(\w+)\{[^}]*\} (\S+)$", path.read_text(), re.M))
    assert after["hushgram_last_run_success"] == "0"
    assert after["hushgram_last_run_exit_code"] == "5"
    assert after["hushgram_last_success_timestamp_seconds"] == success
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    for line in path.read_text().splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) \w+ .+|\w+\{[^}]*\} \S+", line)


def test_metrics_that_cannot_be_written_are_an_error() -> None:
    result = CliRunner().invoke(_job, ["--metrics", "/no/such/folder/x.prom"])
    assert isinstance(result.exception, OutputError)


def test_recover_says_what_was_charged_and_for_which_privacy_unit(tmp_path: Path) -> None:
    call("init", "--dataset", "pageviews", "--epsilon", "10")
    call("backup", "copy.db")
    release("survey", Event("rr", "2", relation="secret bit"))
    (tmp_path / "copy.db").replace(tmp_path / "hushgram-ledger.db")
    said = call("recover", "pageviews").output
    assert "was charged ε = 2 (for one secret bit) for" in said
    shown = call("show", "pageviews").output
    assert re.search(r"spent\s+2\s+0\s", shown)
    assert "privacy unit: one secret bit of one record changed" in shown
    row = json.loads(call("history", "pageviews", "--format", "json").output)
    assert [(event["relation"], event["epsilon"]) for event in row["events"]] == [
        ("secret bit", "2"),
    ]


def test_forecast_says_until_when_a_schedule_lasts() -> None:
    call("init", "--dataset", "pageviews", "--epsilon", "3")
    with pytest.raises(LedgerError, match="no charged release yet"):
        call("forecast", "pageviews")
    release("monday", Event("laplace", "0.1"))
    release("tuesday", Event("laplace", "0.9"))
    said = call(
        "forecast", "pageviews", "--like", "monday", "--every", "month", "--from", "2027-01-31"
    ).output
    assert "lasts for 20 of them, until 2028-08-31" in said
    assert (
        "2 of them, until 2027-01-15"
        in call("forecast", "pageviews", "--every", "2 weeks", "--from", "2027-01-01").output
    )
    told = json.loads(call("forecast", "pageviews", "--from", "2027-01-01", "--format", "json").output)
    assert (told["releases"], told["last"]) == (2, "2027-01-02")
    release("wednesday", Event("laplace", "1.5"))
    assert "no more release like wednesday" in call("forecast", "pageviews").output
    for wrong in (("--every", "moon"), ("--every", "0 days"), ("--from", "soon"), ("--like", "sunday")):
        with pytest.raises(HushgramError):
            call("forecast", "pageviews", *wrong)
