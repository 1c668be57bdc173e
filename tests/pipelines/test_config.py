"""Configs: exact numbers, positions, overrides, dates, and a sentence for each mistake."""

from __future__ import annotations

import datetime
from fractions import Fraction
from pathlib import Path

import pytest
import yaml

from hushgram.inputs import Source
from hushgram.inputs.formats.csv import CsvOptions
from hushgram.inputs.plan import format_of
from hushgram.pipelines.config.models import ConfigError, JobConfig, load_config, resolve_date
from hushgram.pipelines.jobs.answer import AnswerConfig
from hushgram.pipelines.jobs.clip import ClipConfig
from hushgram.pipelines.jobs.metrics import MetricsConfig
from hushgram.pipelines.jobs.randomized_response import ResponseConfig
from hushgram.pipelines.jobs.release import ReleaseConfig
from hushgram.pipelines.jobs.sparse_vector import SparseVectorConfig
from hushgram.pipelines.jobs.top import TopConfig
from hushgram.sparse_histogram.params import ReleaseParams

TEXT = """\
release: urls-daily
input:
  path: data/*.parquet
  user: user_id
  key: url
privacy:
  epsilon: 0.1
  delta: 1e-6
  max_contributions: 8
output: {path: out/urls.sketch}
"""
CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "urls.yaml"
    path.write_text(TEXT)
    return path


def load(path: Path, *overrides: str, date: str | None = None) -> ReleaseConfig:
    return load_config(path, overrides, ReleaseConfig, date)


def message(path: Path, *overrides: str, date: str | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, *overrides, date=date)
    return str(caught.value).replace(f"{path}", "urls.yaml")


def test_numbers_are_exactly_what_was_written(file: Path) -> None:
    privacy = load(file).privacy
    assert (privacy.epsilon, privacy.delta) == (Fraction(1, 10), Fraction(1, 10**6))
    assert load(file, "privacy.epsilon=1/3").privacy.epsilon == Fraction(1, 3)
    assert load(file, "privacy.epsilon='0.30'").privacy.epsilon == Fraction(3, 10)
    assert load(file, "privacy.delta=1E-9").privacy.delta == Fraction(1, 10**9)


def test_becomes_release_parameters(file: Path) -> None:
    assert load(file).stated == ReleaseParams(epsilon="0.1", delta="1e-6", max_contributions=8)
    changes = (
        "privacy.delta=0",
        "privacy.bits_per_key=2.5",
        "privacy.preset=paper",
        "sizes={records: 1000, keys: 100}",
    )
    assert load(file, *changes).stated == ReleaseParams(
        epsilon="0.1",
        max_contributions=8,
        bits_per_key="2.5",
        preset="paper",
        sizes=(1000, 100),
    )


def test_record_level_privacy_needs_no_bound(file: Path) -> None:
    config = load(file, "input.user=null", "privacy.max_contributions=null")
    assert config.params().max_contributions == 1
    assert config.input.columns == ("url",)


MISTAKES = {
    "input.bad_records=a": "--set input.bad_records=a: input.bad_records is now called input.rejected_records",
    "privacy.epsilonn=1": "--set privacy.epsilonn=1: privacy.epsilonn is not a field of this config; "
    "did you mean epsilon?",
    "input.user_column=u": "--set input.user_column=u: input.user_column is not a field of this config; "
    "did you mean user?",
    "input.folder_column=u": "--set input.folder_column=u: input.folder_column is not a field of this config; "
    "did you mean folder_columns?",
    "epsilon=1": "--set epsilon=1: epsilon is not a field of this config; it belongs to privacy: "
    "write privacy.epsilon",
    "privacy.epsilon=0": "--set privacy.epsilon=0: privacy.epsilon must be above 0, got 0; "
    "1.0 is a common choice",
    "privacy.epsilon=lots": "--set privacy.epsilon=lots: privacy.epsilon must be a finite number such as "
    '"0.5" or "1/3", got \'lots\'',
    "privacy.epsilon=.nan": "--set privacy.epsilon=.nan: privacy.epsilon must be a finite number such as "
    '"0.5" or "1/3", got \'.nan\'',
    "privacy.max_contributions=1.5": "--set privacy.max_contributions=1.5: privacy.max_contributions must be "
    "a whole number, got 1.5",
    "privacy.max_contributions=null": "--set privacy.max_contributions=null: privacy.max_contributions is "
    "missing; say how many records of one user may count, such as 8 (the noise grows with it)",
    "privacy.max_per_key=9": "--set privacy.max_per_key=9: privacy.max_per_key must be at most "
    "max_contributions (8), got 9",
    "privacy.bits_per_keys=9": "--set privacy.bits_per_keys=9: privacy.bits_per_keys is not a field of this "
    "config; did you mean bits_per_key?",
    "privacy.encoding=alp": "--set privacy.encoding=alp: privacy.encoding is not a field of this config; "
    "allowed here: bits_per_key, delta, domain, epsilon, granularity, max_contributions, "
    "max_per_key, max_value, preset",
    "input.format=paruqet": "--set input.format=paruqet: input.format must be one of auto, parquet, csv, "
    "jsonl, log, got 'paruqet'; did you mean parquet?",
    "input.format=log": "--set input.format=log: input.format log needs preset: access-log, or a pattern "
    "with named groups",
    "input.path=[]": "--set input.path=[]: input.path must be a path, a pattern such as data/*.parquet, or a "
    "list of them, got []",
    "input.csv.delimiter=ab": "--set input.csv.delimiter=ab: input.csv.delimiter must be one ASCII character "
    "such as ',' or '\\t', got 'ab'",
    "input=3": "--set input=3: input must be a group of fields, got 3",
    "release=a b": "--set release=a b: release must be a name of letters, digits and . _ : @ + - (at most "
    "200), got 'a b'; such as urls-daily or urls-{date}",
    "workers=0": "--set workers=0: workers must be at least 1, got 0",
    "privacy": "--set privacy: expected field=value, such as --set privacy.epsilon=0.5",
    "release.x=1": "--set release.x=1: release is 'urls-daily', not a group of fields",
    "sizes.records=5": "urls.yaml: sizes.keys is missing; about how many distinct keys, from public "
    "knowledge",
    "input.path={date}/x.csv": "--set input.path={date}/x.csv: input.path contains {date}; say which with "
    "--date YYYY-MM-DD (or today, yesterday)",
}


@pytest.mark.parametrize("override", MISTAKES)
def test_each_mistake_has_its_sentence(file: Path, override: str) -> None:
    assert message(file, override) == MISTAKES[override]


def test_lines_of_the_file_are_named(file: Path) -> None:
    file.write_text(TEXT.replace("epsilon: 0.1", "epsilon: -1").replace("key: url", "kex: url"))
    assert message(file) == (
        "urls.yaml: 3 problems\n"
        "  urls.yaml:2: input.key is missing; the column whose values are counted, such as url\n"
        "  urls.yaml:5: input.kex is not a field of this config; did you mean key?\n"
        "  urls.yaml:7: privacy.epsilon must be above 0, got -1; 1.0 is a common choice"
    )


def test_a_ledger_url_is_never_repeated(file: Path) -> None:
    said = message(file, "ledger=[postgresql://me:hunter2@host/db]")
    assert said == "--set ledger=…: ledger must be text"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "urls.yaml: empty; a config needs at least input, privacy and output"),
        ("- 1\n", "urls.yaml: expected fields such as 'privacy: …', got list"),
        ("a: [1\nb: 2\n", "urls.yaml:2: not valid YAML: "),
        ("release: a\nrelease: b\n", "urls.yaml:2: release is given twice (first at urls.yaml:1); keep one"),
        ("a: &x [*x]\n", "urls.yaml"),
        ("[a]: 1\n", "urls.yaml:1: a field name must be plain text"),
        ("a: !!python/object:os.system 1\n", "urls.yaml:1: the tag"),
    ],
)
def test_files_that_are_no_config(file: Path, text: str, expected: str) -> None:
    file.write_text(text)
    assert message(file).startswith(expected)


def test_aliases_cannot_exhaust_memory(file: Path) -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    file.write_text("\n".join(rows))
    assert "too many or too deeply nested" in message(file)


def test_missing_directory_binary_and_huge_files(tmp_path: Path) -> None:
    for path, expected in (
        (tmp_path / "none.yaml", "no such file"), (tmp_path, "is a directory"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=expected):
            load(path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        load(tmp_path / "binary.yaml")
    (tmp_path / "huge.yaml").write_bytes(b"#" * (1 << 21))
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        load(tmp_path / "huge.yaml")


def test_dates(file: Path) -> None:
    dated = ["release=urls-{date}", "input.path=in/{date:%Y/%m/%d}/*.csv", "output.path=out/{date}.sketch"]
    config = load(file, *dated, date="2026-11-15")
    assert config.release == "urls-2026-11-15"
    assert config.input.path == ("in/2026/11/15/*.csv",)
    assert config.output.path == "out/2026-11-15.sketch"
    assert "was given but no field contains {date}" in message(file, date="2026-11-15")
    assert message(file, date="15.11.26") == "--date must be YYYY-MM-DD, today or yesterday, got '15.11.26'"
    today = resolve_date("today")
    assert today is not None
    assert resolve_date("yesterday") == today - datetime.timedelta(days=1)


@pytest.mark.parametrize("path", ["{path: in/{date}.csv}", "{path: {date}/a.csv}", "[in/{date:%Y/%m}/a.csv]"])
def test_a_date_inside_of_brackets_is_told_to_go_in_quotes(path: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(f"input: {path}\n")
    with pytest.raises(
        ConfigError, match=r"c\.yaml:1: not valid YAML: .*; text with {date} inside of .* goes in quotes"
    ):
        load_config(tmp_path / "c.yaml", [], ReleaseConfig, "2026-11-15")


def test_a_date_alone_is_told_to_go_in_quotes(tmp_path: Path) -> None:
    for text in ("input: {path: {date}}", "input:\n  path: {date}", "release: {date:%Y}"):
        (tmp_path / "c.yaml").write_text(f"{text}\n")
        with pytest.raises(ConfigError, match=r'{date} alone is a group to YAML; write "{date}" in quotes'):
            load_config(tmp_path / "c.yaml", [], ReleaseConfig, "2026-11-15")


def test_yaml_keeps_words_that_yaml_1_1_would_change(file: Path) -> None:
    config = load(file, "input.key=on", "input.user=no", "dataset=2026-11-16")
    assert (config.input.key, config.input.user, config.dataset) == ("on", "no", "2026-11-16")


def test_text_that_is_no_yaml_is_taken_as_it_is(file: Path) -> None:
    assert load(file, "input.path=*.csv").input.path == ("*.csv",)
    assert load(file, "input.path=[a.csv, b.csv]").input.path == ("a.csv", "b.csv")


def test_input_becomes_a_source(file: Path) -> None:
    config = load(
        file, "input.csv={delimiter: ';', header: [user_id, url]}", "input.rejected_records=rejected.jsonl"
    )
    source = config.input.source(["age"])
    assert source == Source(
        ids=("user_id", "url"),
        columns=("age",),
        options=(CsvOptions(delimiter=";", header=("user_id", "url")),),
        keep_rejected=True,
    )
    log = load(file, "input.preset=access-log", "input.user=ip", "input.key=path")
    assert format_of("a.txt", log.input.source())[0].name == "log"


def test_models_are_frozen_and_other_jobs_can_derive(file: Path) -> None:
    with pytest.raises(Exception, match="frozen"):
        load(file).privacy.epsilon = Fraction(5)  # type: ignore[misc]

    class Other(JobConfig):
        NAME = "other"
        other: str

    file.write_text(TEXT.replace("release: urls-daily", "other: x"))
    config = load_config(file, [], Other)
    assert config.job_name == "x"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_ready_configs_are_valid(path: Path) -> None:
    kinds = (
        ReleaseConfig, MetricsConfig, SparseVectorConfig, ClipConfig, AnswerConfig, TopConfig, ResponseConfig,
    )  # fmt: skip
    text = path.read_text()
    first = next(iter(yaml.safe_load(text)))  # a config begins with its kind and name
    model = next(kind for kind in kinds if first == kind.NAME)
    load_config(path, [], model, "2026-11-15" if "{date}" in text else None)
