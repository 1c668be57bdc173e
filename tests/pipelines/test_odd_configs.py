"""Configs at the edges: tags, endless numbers, odd dates, file systems without their packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from hushgram.errors import HushgramError, InputError, ParameterError
from hushgram.transforms.files import missing_file_system
from tests.pipelines.all_jobs import JOBS, call, exit_code, write_home

LONG = "9" * 5000


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUSHGRAM_LEDGER", raising=False)
    write_home(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "value",
    [
        "!!int abc", "!!int " + LONG, "!!float x", "!!bool maybe", "!!null 7", "!!binary aGk=", "!thing 1",
        "!!python/object:os.system x", "!!set {a, b}", "!!timestamp 2026-11-15", LONG, "1e" + LONG, f"0.{LONG}",
        "1e999999", "-" + LONG, f"1/{LONG}", f"{LONG}/1", ".inf", ".nan", "0x10", "{}", "[]", "", "null", "'1e'",
        "\\x00", "\u202e1", "'\\ud800'",
    ],
)  # fmt: skip
@pytest.mark.parametrize("field", ["privacy.epsilon", "privacy.max_contributions", "count", "top", "keys"])
def test_odd_values_are_one_line(home: Path, field: str, value: str) -> None:
    group, _, name = field.rpartition(".")
    text = (home / "top.yaml").read_text()
    if group:
        text = text.replace("epsilon: 1", f"epsilon: {value}" if name == "epsilon" else "epsilon: 1")
        text = text.replace(
            "max_contributions: 2", f"{name}: {value}" if name != "epsilon" else "max_contributions: 2"
        )
    else:
        text = (
            "".join(line for line in text.splitlines(True) if not line.startswith(f"{name}:"))
            + f"{name}: {value}\n"
        )
    (home / "odd.yaml").write_text(text, errors="replace")
    result = call("top", "--check", config="odd.yaml")
    if result.exception is not None:
        assert isinstance(result.exception, HushgramError)
        assert exit_code(result) in (2, 3)
        assert len(str(result.exception)) < 700 or field == "keys"  # a path is named whole
    by_hand = call("top", "--check", "--set", f"{field}={value}")
    assert by_hand.exception is None or exit_code(by_hand) in (2, 3)


@pytest.mark.parametrize("tag", ["!!int abc", "!!bool maybe", "!!null 7", "!thing 1", "!!set {a, b}"])
def test_tags_are_named(home: Path, tag: str) -> None:
    (home / "odd.yaml").write_text((home / "top.yaml").read_text().replace("epsilon: 1", f"epsilon: {tag}"))
    result = call("top", config="odd.yaml")
    assert f"the tag {tag.split()[0]} does not fit its value; leave it out" in str(result.exception)
    assert "odd.yaml:3" in str(result.exception)


@pytest.mark.parametrize("form", ["%", "%Q", "%-", "%10000000000d", "%E", "%\x01", "%s", "%n"])
def test_odd_dates(home: Path, form: str) -> None:
    result = call("top", "--date", "2026-11-15", "--set", f"top=run-{{date:{form}}}")
    assert isinstance(result.exception, ParameterError)
    assert "contains {date:" in str(result.exception)


def test_dates_in_other_forms(home: Path) -> None:
    result = call(
        "top", "--date", "2026-11-15", "--check", "--set", "top=run-{date:%G.%V.%u}", "--format", "json"
    )
    assert '"run-2026.46.7"' in result.output


@pytest.mark.parametrize("job", JOBS)
def test_file_systems_that_are_not_there(home: Path, job: str) -> None:
    told = "there is no file system for http://; use a local path, gs://, s3://"
    fields = {"input.path": 3, "output.path": 7, "input.rejected_records": 7}
    if job == "randomized-response":
        del fields["input.rejected_records"]  # it keeps no rejected records
    for field, code in fields.items():
        for how in ("--check", "--quiet"):
            result = call(job, how, "--set", f"{field}=http://bucket/name")
            assert exit_code(result) == code, (field, result.exception, result.output)
            assert told in str(result.exception)


def test_a_file_system_whose_package_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_file_system("s3://bucket/name") is None  # boto3 is installed for the tests
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    told = "there is no file system for s3:// here; pip install 'hushgram[aws]'"
    assert missing_file_system("s3://bucket/name") == told


@pytest.mark.parametrize("path", ["data.parquet", "./data.parquet", "."])
def test_records_rejected_never_replace_the_input(home: Path, path: str) -> None:
    before = (home / "data.parquet").read_bytes()
    for how in ("--check", "--quiet"):
        result = call("release", how, "--set", f"input.rejected_records={path}")
        assert isinstance(result.exception, ParameterError | InputError)
    assert (home / "data.parquet").read_bytes() == before
