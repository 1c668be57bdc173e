"""The command itself: old names, --json of before, `python -m hushgram`, and help without Beam."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.all_jobs import JOBS, write_home


def run(
    *words: str, module: str = "hushgram", folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=folder,
    )


@pytest.mark.parametrize(("old", "new"), [("queries", "sparse-vector"), ("linear", "randomized-response")])
def test_old_commands_say_their_new_name(old: str, new: str) -> None:
    done = run(old, "x.yaml")
    assert (done.returncode, done.stderr) == (2, f"error: hushgram {old} is now hushgram {new}\n")


@pytest.mark.parametrize(
    ("job", "old", "new"),
    [("sparse-vector", "queries", "sparse_vector"), ("randomized-response", "linear", "randomized_response")],
)
def test_old_config_fields_say_their_new_name(
    job: str, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_home(tmp_path)
    text = (tmp_path / f"{job}.yaml").read_text().replace(f"{new}: run", f"{old}: run")
    (tmp_path / "old.yaml").write_text(text)
    done = run(*JOBS[job][0], "old.yaml", folder=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"error: old.yaml:1: the field {old} is now called {new}\n")


def test_json_of_before_says_the_new_way() -> None:
    done = run("total", "x.sketch", "k", "--json")
    assert done.returncode == 2
    assert "--json is now --format json" in done.stderr


@pytest.mark.parametrize("module", ["hushgram", "hushgram.pipelines"])
def test_help_names_every_job_and_imports_no_beam(module: str) -> None:
    done = run("--help", module=module)
    assert done.returncode == 0
    assert all(job in done.stdout for job in JOBS)
    script = (
        "import sys; from hushgram.pipelines.cli import cli\n"
        "try: cli(['top', '--help'])\nfinally: print('apache_beam' in sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert told.stdout.splitlines()[-1] == "False"
