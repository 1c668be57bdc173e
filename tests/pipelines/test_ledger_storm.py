"""The small storm, in a process of its own: it forks, and this one may have threads of other libraries by now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "name",
    [
        "test_killed_releases_resume_to_the_same_bytes",
        "test_a_killed_backfill_charges_each_day_once",
        "test_the_storm_sees_what_is_wrong",
    ],
)
def test_storm(name: str) -> None:
    checks = Path(__file__).with_name("storm_checks.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{checks}::{name}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
