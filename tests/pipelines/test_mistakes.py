"""Mistakes of newcomers, as a table: each ends with one line that names cause and remedy, and with its exit code.

Mistakes in input files are in test_unusable_inputs, odd configs in test_odd_configs, every field of a config in
test_config; these are the ones around them, at the command line.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushgram.pipelines.cli import main

GOLDEN = Path(__file__).parents[1] / "golden/v2/text.sketch"
CONFIG = """\
release: urls
input: {path: in.csv, user: user, key: url}
privacy: {epsilon: 1.0, delta: 0, max_contributions: 2}
output: {path: out/urls.sketch}
"""
TOP = """\
top: best
input: {path: in.csv, user: user, key: url}
keys: keys.txt
count: 2
privacy: {epsilon: 1.0, max_contributions: 2}
output: {path: out/top}
"""

#: command line → (exit code, what the last line of the message holds)
MISTAKES: dict[str, tuple[int, str]] = {
    # the command
    "relase urls.yaml": (2, "No such command 'relase'. Did you mean 'release'?"),
    "qury s a": (2, "Did you mean 'query'?"),
    "ledger hstory people": (2, "Did you mean 'history'?"),
    "frobnicate": (2, "No such command 'frobnicate'."),
    "query": (2, "Missing argument 'SKETCH'."),
    "release": (2, "Missing argument 'CONFIG'."),
    "release urls.yaml --runner=FlinkRunner": (2, "Options of Beam come last, after --, such as: hushgram release"),
    "answer answer.yaml --runner=FlinkRunner": (2, "after --"),
    "release urls.yaml --chek": (2, "--check"),
    "release urls.yaml FlinkRunner": (2, "after --, expected Beam options such as --runner=FlinkRunner"),
    "release urls.yaml -- --runner=FlikRunner": (2, "there is no runner 'FlikRunner'; use FlinkRunner"),
    "release urls.yaml --check --set privacy.epsilon": (2, "--set"),
    "release urls.yaml --check --set privacy.epsilon=0": (2, "must be above 0, got 0; 1.0 is a common choice"),
    "release urls.yaml --check --set privacy.epsilon=one": (2, "privacy.epsilon"),
    "release urls.yaml --check --set privacy.delta=1e-6,": (2, "privacy.delta"),
    "release urls.yaml --check --date 15.11.2026": (2, "--date"),
    "release urls.yaml --format xml": (2, "'xml' is not one of"),
    "example url": (2, "is not one of"),
    # the config
    "release none.yaml": (2, "none.yaml: no such file; give the path of a YAML config"),
    "release in.csv --check": (2, "in.csv"),
    "release . --check": (2, "is a directory; give the path of a YAML config"),
    "top urls.yaml --check": (2, "urls.yaml is a config of another job; run hushgram release urls.yaml"),
    "release top.yaml": (2, "top.yaml is a config of another job; run hushgram top top.yaml"),
    "metrics top.yaml": (2, "run hushgram top top.yaml"),
    "release urls.yaml --check --set input.user=null": (
        2, "max_contributions is 2, but input.user names no column: add it to protect users, or leave"
    ),
    "top top.yaml --check --set input.user=null": (2, "to protect each record by itself"),
    "release urls.yaml --check --set input.user=usr": (3, "no column 'usr'; did you mean 'user'?"),
    "release urls.yaml --check --set input.key=link": (3, "The columns are: user, url"),
    "release urls.yaml --check --set input.kee=url": (2, "input.kee is not a field"),
    "release urls.yaml --check --set input.path=out.csv": (3, "matches no file; check the pattern and the working"),
    "release urls.yaml --check --set input.path=times.parquet --set input.key=[time,url]": (
        3, "would make nearly every record a key of its own; write time | truncate hour (or day, week)"
    ),
    "release urls.yaml --check --set output.path=in.csv": (7, "remove it, or choose another output.path"),
    "release urls.yaml --check --set dataset=people": (6, "no ledger at"),
    "bounds urls.yaml --set input.user=null": (2, "input.user is missing; bounds are about how much one user"),
    "bounds urls.yaml --epsilon 0": (2, "privacy.epsilon must be above 0, got 0"),
    "bounds urls.yaml --epsilon much": (2, "privacy.epsilon"),
    "bounds urls.yaml --set input.path=none.csv": (3, "matches no file"),
    "bounds top.yaml": (2, "top.yaml is a config of another job; run hushgram top top.yaml"),
    # sketches
    f"query {GOLDEN}/manifest.json a": (4, "is a file; give the directory of a sketch"),
    "query none.sketch a": (4, "no such sketch directory"),
    "query metrics a": (4, "it holds sketches (views.sketch, visits.sketch): name one of them"),
    "heavy .": (4, "this is not a finished sketch"),
    f"query {GOLDEN}": (2, "give one key or more, or --keys-file"),
    f"query {GOLDEN} a --keys-file keys.txt": (2, "give keys or --keys-file, not both"),
    f"query {GOLDEN} --keys-file none.txt": (3, "none.txt"),
    f"query {GOLDEN} a --level 95": (2, "95"),
    f"query {GOLDEN} a --safe-csv": (2, "--safe-csv needs --format csv"),
    f"query {GOLDEN} a -o in.csv": (7, "in.csv already exists; choose another name, or replace it with --force"),
    f"query {GOLDEN} a -o none/out": (7, "none/out cannot be written"),
    f"report {GOLDEN} -o in.csv": (7, "already exists"),
    # the ledger and the planner
    "ledger show": (6, "no ledger at sqlite:///hushgram-ledger.db"),
    "ledger init --dataset people --epsilon -1": (2, "epsilon"),
    "plan": (2, "say --records and --keys, --like SKETCH, or give a CONFIG"),
    "plan --records many --keys 5": (2, "'many' is not a number such as 5e6 or 5M"),
    "plan --records 1e5 --keys 1e3 --target soon": (2, '--target must read "error 20 at count 200"'),
    "plan --records 1e5 --keys 1e3 -o plan.png": (2, ".png is not written; use plan.svg"),
    "calculate sparse --queries 10": (2, "Missing option"),
    "init none.csv --yes": (3, "none.csv: no such file"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    for name in ("HUSHGRAM_LEDGER", "HUSHGRAM_RELEASE_KEY_FILE", "HUSHGRAM_LOG", "HUSHGRAM_METRICS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "in.csv").write_text("user,url\n" + "".join(f"u{i},/{i % 7}\n" for i in range(60)))
    (tmp_path / "keys.txt").write_text("/0\n/1\n/2\n")
    (tmp_path / "urls.yaml").write_text(CONFIG)
    (tmp_path / "top.yaml").write_text(TOP)
    for name in ("views", "visits"):
        (tmp_path / f"metrics/{name}.sketch").mkdir(parents=True)
        (tmp_path / f"metrics/{name}.sketch/manifest.json").write_text("{}")
    times = pa.array(range(9), pa.timestamp("us"))
    pq.write_table(
        pa.table({"user": ["u"] * 9, "time": times, "url": ["/a"] * 9}), tmp_path / "times.parquet"
    )
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    yield tmp_path
    for number, handler in before.items():
        signal.signal(number, handler)


def end(text: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(text.split())
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_said_in_a_line_with_its_remedy(
    command: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(home.rglob("*"))
    code, words = MISTAKES[command]
    assert end(command) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    last = err.rstrip("\n").splitlines()[-1]
    assert words in last
    assert last.startswith(("error: ", "Error: ", "  "))
    assert sorted(home.rglob("*")) == before


def test_a_second_run_of_one_config_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert end("release urls.yaml --quiet") == 0
    assert end("release urls.yaml --quiet") == 7
    told = capsys.readouterr().err
    assert "query it, remove it, or choose another output.path (with {date} for one per day)" in told


def test_a_release_that_noise_hides_and_a_large_delta_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "--set sizes.records=60 --set sizes.keys=7"  # stated: no noise decides what is said
    assert end(f"release urls.yaml --set privacy.epsilon=0.01 --set privacy.delta=0.01 {sizes}") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "delta 0.01 is large; choose it far below 1 / number of users" in told
    assert "the noise hides nearly every count of so little data: raise epsilon" in told


def test_negative_values_are_said_before_they_are_rejected(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    (home / "sales.csv").write_text(
        "user,item,paid\n" + "".join(f"u{i},/{i % 7},{i % 9}\n" for i in range(60))
    )
    changes = ("input.path=sales.csv", "input.key=item", "input.value=paid", "privacy.max_value=10")
    changes += ("privacy.max_contributions=20", "privacy.granularity=1")
    sets = " ".join(f"--set {change}" for change in changes)
    assert end(f"release urls.yaml --check {sets}") == 0
    assert "a negative one, such as a refund" in " ".join(capsys.readouterr().out.split())
