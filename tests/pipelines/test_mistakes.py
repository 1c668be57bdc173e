"""Mistakes of newcomers, as a table: each ends with one line that names cause and remedy, and with its exit code.

Mistakes in input files are in test_unusable_inputs, odd configs in test_odd_configs, every field of a config in
test_config; these are the ones around them, at the command line.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hushgram as hg
from hushgram import errors
from hushgram.pipelines.cli import main

GOLDEN = Path(__file__).parents[1] / "golden/sketches/text.sketch"
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
    "example": (2, "Choose from: urls, "),
    "--verion": (2, "Did you mean '--version'?"),
    "release urls.yaml -- --no_such_option=3": (2, "after --, Beam has no option --no_such_option; leave it out"),
    "release urls.yaml -- --direct_num_worker=2": (
        2, "Beam has no option --direct_num_worker; did you mean --direct_num_"
    ),
    "release urls.yaml -- --runner=FlinkRunner --flink_mastr=h:1": (2, "did you mean --flink_master?"),
    "release urls.yaml -- --runner": (2, "after --, Beam does not understand its options: argument --runner"),
    "release urls.yaml -- --runner=FlinkRunner": (2, "add --environment_type=EXTERNAL"),
    "release urls.yaml --from 2026-11-20 --to 2026-11-01": (2, "the first one first"),
    "release urls.yaml --check --date yesterday": (2, "no field contains {date}; write it into release, input.path"),
    "demo --rows many": (2, "'many' is not a valid integer"),
    "explore": (2, "Missing argument 'SKETCHES...'"),
    "compare one.sketch": (2, "Missing argument"),
    "ledger history": (2, "Missing argument 'DATASET'"),
    # the config
    "release none.yaml": (2, "none.yaml: no such file; give the path of a YAML config"),
    "release in.csv --check": (2, "in.csv"),
    "release tabs.yaml --check": (2, "token (column 1); indent with blanks, not with tabs"),
    "release list.yaml --check": (2, "expected fields such as 'privacy: …', got list"),
    "release blank.yaml --check": (2, "empty; a config needs at least input, privacy and output"),
    "release twice.yaml --check": (2, "release is given twice (first at twice.yaml:1); keep one"),
    "release . --check": (2, "is a directory; give the path of a YAML config"),
    "top urls.yaml --check": (2, "urls.yaml is a config of another job; run hushgram release urls.yaml"),
    "release top.yaml": (2, "top.yaml is a config of another job; run hushgram top top.yaml"),
    "metrics top.yaml": (2, "run hushgram top top.yaml"),
    "release urls.yaml --check --set input.user=null": (
        2, "max_contributions is 2, but input.user names no column: add it to protect users, or leave"
    ),
    "top top.yaml --check --set input.user=null": (2, "to protect each record by itself"),
    "release urls.yaml --check --set input.user=usr": (3, "no column 'usr'; did you mean 'user'?"),
    "release urls.yaml --check --set input.key=link": (3, "The columns are: user, url, n"),
    "release urls.yaml --check --set privacy.max_contributions=many": (2, "must be a whole number, got 'many'"),
    "release urls.yaml --check --set privacy.delta=1": (2, "must be at least 0 and below 1, got 1; 0 or 1e-6 are"),
    "release urls.yaml --check --set privacy.encoding=zip": (2, "privacy.encoding is not a field of this config"),
    "release urls.yaml --check --set privacy.epsilon=1e-6 --set privacy.delta=1e-6": (
        2, "privacy.epsilon 0.000001 is too small for max_contributions 2: Gaussian noise would have"
    ),
    "release urls.yaml --check --set input.format=xlsx": (
        2, "must be one of auto, parquet, csv, jsonl, log, got 'xlsx'"
    ),
    "release urls.yaml --check --set input.path=book.xlsx": (
        3, "cannot tell the format from the file name; set input.form"
    ),
    "release urls.yaml --check --set input.path=fake.parquet": (3, "); write it again, or set input.format"),
    "release urls.yaml --check --set input.path=empty.csv": (3, "no records; set input.min_rows to 0 where an empty"),
    "release urls.yaml --check --set input.where=url=a": (2, "text goes in single quotes at character 5"),
    "release urls.yaml --check --set input.where=urll='a'": (3, "no column 'urll'; did you mean 'url'?"),
    "release urls.yaml --check --set input.key=url|hots": (2, "no step 'hots'; there are lower, strip_query"),
    "release urls.yaml --check --set input.value=n": (2, "privacy.max_value must be given with input.value"),
    "release urls.yaml --check --set privacy.max_value=5": (2, "goes with a value, the column of numbers to sum"),
    "release urls.yaml --check --set release=a/b": (2, "release must be a name of letters, digits and . _ : @ + -"),
    "release urls.yaml --check --set ledger=l.db --set dataset=p": (6, "is not a URL; write sqlite:///path/ledger.db"),
    "release urls.yaml --check --set ledger=mysql://x/y --set dataset=p": (6, "only sqlite:/// and postgresql:// are"),
    "top top.yaml --check --set count=9": (2, "count must be at most the 3 keys of keys.txt, got 9"),
    "top top.yaml --check --set keys=none.txt": (3, "keys none.txt: cannot be opened"),
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
    "query none.sketch a": (4, "no such sketch directory; check the path and the working directory"),
    "query https://example.org/x.sketch a": (4, "is not read over HTTP; copy it here first"),
    "query in.csv a": (4, "is a file; give the directory of a sketch"),
    "compare one.sketch two.sketch": (4, "one.sketch: no such sketch directory"),
    "series none-{date}.sketch --key a": (4, "no sketch matches none-{date}.sketch; check the pattern"),
    f"series {GOLDEN} --key a": (2, "no date in the name of the release or of the directory, such as urls-2026-11-18"),
    f"total {GOLDEN} a --by 1": (2, '--by 1 needs keys of at least 2 columns, such as ["FR","example.org"], got'),
    f"total {GOLDEN}": (2, "give one key or more, or --keys-file"),
    f"others {GOLDEN}": (2, "was stated, not released; leave sizes out of the config"),
    f"query {GOLDEN} --keys-file empty.csv": (3, "has no keys; write one key per line"),
    f"query {GOLDEN} a --estimator best": (2, "is not one of 'confidence', 'posterior', 'argmax', 'unbiased'"),
    f"report {GOLDEN} --ledger sqlite:///none.db": (6, "create one with `hushgram ledger init`"),
    "answer none --key a": (2, "--queries and --key need a directory of released answers, got none"),
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
    "ledger show --ledger none.db": (6, "is not a URL; write sqlite:///path/ledger.db or postgresql://host/database"),
    "ledger show --ledger sqlite:///in.csv": (6, "is not a ledger, or a damaged one; restore it from a backup"),
    "ledger forecast people --every fortnight": (2, "--every must be day, week, month or year, or several such as"),
    "plan --records 10 --keys 100": (2, "keys must be from 1 to the 10 records, got 100"),
    "plan --like none.sketch": (4, "no such sketch directory"),
    "calculate zcdp --rho x --delta 1e-6": (2, 'rho must be a finite number such as "0.5" or "1/3", got \'x\''),
    "init none.csv --yes": (3, "none.csv: no such file"),
    "init book.xlsx --yes": (3, "is not Parquet, CSV, JSON lines or a log of a known server; rename it"),
    "init empty.csv --yes": (3, "has no columns; is it empty?"),
    "init in.csv --yes --user usr": (2, "no column 'usr'; did you mean 'user'? The columns are: user, url"),
    "init in.csv --yes --user user --key url -o urls.yaml": (7, "urls.yaml already exists; choose another name"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    for name in ("HUSHGRAM_LEDGER", "HUSHGRAM_RELEASE_KEY_FILE", "HUSHGRAM_LOG", "HUSHGRAM_METRICS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "in.csv").write_text("user,url,n\n" + "".join(f"u{i},/{i % 7},1\n" for i in range(60)))
    (tmp_path / "keys.txt").write_text("/0\n/1\n/2\n")
    (tmp_path / "urls.yaml").write_text(CONFIG)
    (tmp_path / "top.yaml").write_text(TOP)
    (tmp_path / "tabs.yaml").write_text("release: urls\ninput:\n\tpath: in.csv\n")
    (tmp_path / "list.yaml").write_text("- a\n- b\n")
    (tmp_path / "blank.yaml").write_text("")
    (tmp_path / "twice.yaml").write_text(CONFIG + "release: other\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "fake.parquet").write_text("user,url\na,/b\n")
    (tmp_path / "book.xlsx").write_bytes(b"PK\x03\x04 a spreadsheet")
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


def test_a_group_without_a_command_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    for group in ("ledger", "calculate", "randomized-response"):
        assert end(group) == 2
        assert "\nCommands:\n" in capsys.readouterr().err


PARAMS = hg.ReleaseParams(epsilon="1", max_contributions=2)
FRAME = pa.table({"user": ["a", "b"], "url": ["/x", "/y"], "n": [1, -2]})
NAMED: dict[str, Any] = {"user": "user", "key": "url"}
SUMS = hg.ReleaseParams(epsilon="1", max_contributions=4, max_value=4, granularity=1)
#: what was tried in Python → (call, error, what its message holds)
IN_PYTHON: dict[str, tuple[Callable[[], Any], type[errors.HushgramError], str]] = {
    "no parameters": (lambda: hg.release(["a"], ["b"]), errors.ParameterError, "such as hg.ReleaseParams(epsilon="),
    "a dict for parameters": (
        lambda: hg.release(FRAME, params={"epsilon": 1}, **NAMED), errors.ParameterError, "got dict"  # type: ignore[arg-type]
    ),
    "epsilon 0": (lambda: hg.ReleaseParams(epsilon=0, max_contributions=1), errors.ParameterError, "must be above 0"),
    "columns of two lengths": (lambda: hg.release(["a"], ["b", "c"], PARAMS), errors.InputError, "the same length"),
    "a text for a column": (lambda: hg.release("ann", ["b"], PARAMS), errors.InputError, "must be one column"),
    "a frame by position": (
        lambda: hg.release(FRAME, "user", PARAMS), errors.ParameterError, "state everything by name: user=..."
    ),
    "a list of dicts": (
        lambda: hg.release([{"user": "a"}], params=PARAMS, **NAMED), errors.ParameterError, "name columns of a frame"
    ),
    "a wrong column": (
        lambda: hg.release(FRAME, user="usr", key="url", params=PARAMS), errors.InputError, "did you mean 'user'?"
    ),
    "negative values": (
        lambda: hg.release(FRAME, values="n", params=SUMS, **NAMED), errors.InputError, "leave these records out"
    ),
    "values without bounds": (
        lambda: hg.release(FRAME, values="n", params=PARAMS, **NAMED),
        errors.ParameterError, "max_value and granularity"
    ),
    "an output that exists": (
        lambda: hg.release(FRAME, params=PARAMS, path=".", **NAMED), errors.OutputError, "choose another name"
    ),
    "a data set without a name": (
        lambda: hg.release(FRAME, params=PARAMS, dataset="p", path="x", **NAMED), errors.ParameterError, "needs name"
    ),
    "no ledger": (
        lambda: hg.release(FRAME, params=PARAMS, dataset="p", name="n", path="x", **NAMED),
        errors.LedgerError, "create one with `hushgram ledger init`",
    ),
    "bytes for a key": (
        lambda: hg.release(FRAME, params=PARAMS, release_key=b"x" * 32, **NAMED),  # type: ignore[arg-type]
        errors.ParameterError, "release_key must be hg.ReleaseKey(secret), got bytes",
    ),
    "parameters for a metric": (
        lambda: hg.release_metrics(FRAME, metrics={"a": PARAMS}, path="m", **NAMED),  # type: ignore[dict-item]
        errors.ParameterError, "must be hg.Metric(params), got ReleaseParams",
    ),
    "metrics without a folder": (
        lambda: hg.release_metrics(FRAME, metrics={"a": hg.Metric(PARAMS)}, **NAMED),
        errors.ParameterError, "state path"
    ),
    "no public keys": (lambda: hg.release_public(FRAME, params=PARAMS, **NAMED), errors.InputError, "at least one key"),
    "negative counts": (lambda: hg.release_histogram(["a"], [-1], PARAMS), errors.InputError, "counts must be from 0"),
    "a file as a sketch": (lambda: hg.Sketch.open("in.csv"), errors.FormatError, "give the directory of a sketch"),
    "a level in percent": (
        lambda: hg.Sketch.open(GOLDEN).estimate("a", level=95), errors.ParameterError, "got 95; 0.95 means 95 %"
    ),
    "a float as a key": (lambda: hg.Sketch.open(GOLDEN).estimate(1.5), errors.InputError, "must be one column"),
    "a plan of nothing": (lambda: hg.plan(), errors.ParameterError, "state records and keys, or like=SKETCH"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", IN_PYTHON)
def test_a_mistake_in_python_is_said_in_a_line_with_its_remedy(mistake: str, home: Path) -> None:
    before = sorted(home.rglob("*"))
    call, kind, words = IN_PYTHON[mistake]
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert sorted(home.rglob("*")) == before


def test_the_table_is_long_enough() -> None:
    assert len(MISTAKES) + len(IN_PYTHON) >= 86


def test_a_second_run_of_one_config_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert end("release urls.yaml --quiet") == 0
    assert end("release urls.yaml --quiet") == 7
    told = capsys.readouterr().err
    assert "exists already and was written before, by an earlier run or by something else" in told
    assert "query it, remove it, or choose another output.path (with {date} for one per day)" in told


def test_a_release_that_noise_hides_and_a_large_delta_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "--set sizes.records=60 --set sizes.keys=7"  # stated: no noise decides what is said
    assert end(f"release urls.yaml --set privacy.epsilon=0.01 --set privacy.delta=0.01 {sizes}") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert (
        "delta 0.01 is large: a mechanism that publishes all records of one user in 100 satisfies it" in told
    )
    assert "the noise hides nearly every count of so little data: raise epsilon" in told


@pytest.mark.parametrize("how", ["--check", "", "--quiet"])
@pytest.mark.long
def test_a_guarantee_that_hardly_protects_is_said(how: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "--set sizes.records=60 --set sizes.keys=7"
    assert end(f"release urls.yaml {how} --set privacy.epsilon=50 --set privacy.delta=0.5 {sizes}") == 0
    told = " ".join("".join(capsys.readouterr()).split())
    assert "epsilon 50 is large: one user may change the probability of an output by a factor of e^50" in told
    assert "delta 0.5 is large: a mechanism that publishes all records of one user in 2 satisfies it" in told
    if how != "--check":
        return
    assert end("release urls.yaml --check --set privacy.epsilon=10 --set privacy.delta=1e-4") == 0
    assert "is large" not in "".join(capsys.readouterr())


def test_one_record_is_called_one_record(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    (home / "in.csv").write_text("user,url\nann,/a\n,/b\n")
    assert end("release urls.yaml --set input.max_rejected_share=1") == 0
    told = " ".join("".join(capsys.readouterr()).split())
    assert "read 1 record in " in told
    assert "rejected 1 record (" in told
    (home / "in.csv").write_text("user,url\nann,/a\n")
    (home / "one.jsonl").write_text('{"key": "/a"}\n')
    changes = ("sparse_vector=one", "stream.path=one.jsonl", "svt.threshold=1", "svt.cutoff=1")
    changes += ("output.path=out/one.jsonl",)
    (home / "one.yaml").write_text(CONFIG.replace("release: urls\n", ""))
    assert end(f"sparse-vector one.yaml {' '.join(f'--set {change}' for change in changes)}") == 0
    assert "of 1 record (" in " ".join("".join(capsys.readouterr()).split())


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
