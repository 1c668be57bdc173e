"""The command itself: `python -m hushgram`, and help without Beam."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.all_jobs import JOBS


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
