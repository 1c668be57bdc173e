"""What tests leave behind is noticed: processes, also detached ones, and files outside of the clone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = """\
import sys
from tests import leftovers
leftovers._GRACE_SECONDS = leftovers._OTHERS_SECONDS = 0.3
sys.exit(leftovers.run(sys.argv[1:]))
"""
DETACHED = """\
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    subprocess.Popen([sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"])
    time.sleep(0.1)
    os._exit(0)
time.sleep(1)
"""
KEPT = """\
import os
path = os.environ["TMPDIR"] + "/pytest-of-me/pytest-0/test_it0"
os.makedirs(path)
raise SystemExit({code})
"""


def run(tmp_path: Path, *command: str, **more: str) -> tuple[int, str, str]:
    environment = {**os.environ, "HUSHGRAM_REQUIRE_ENGINES": "0", "TMPDIR": str(tmp_path), **more}
    program = [sys.executable, "-c", CODE, sys.executable, *command]
    done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "open(os.environ['TMPDIR'] + '/x', 'w')",
        "os.mkdir(os.path.expanduser('~/left'))",
        "sys.exit(3)",
        "",
    ],
)
def test_files(code: str, tmp_path: Path) -> None:
    exit_code, _, told = run(tmp_path, "-c", f"import os, sys; {code}")
    assert exit_code == (3 if "exit" in code else 1 if "left" in code else 0)
    assert told.count("left behind: file") == ("left" in code)
    assert not [*tmp_path.iterdir()]


def test_files_of_failed_tests_are_kept(tmp_path: Path) -> None:
    assert run(tmp_path, "-c", KEPT.format(code=0))[::2] == (0, "")
    assert not [*tmp_path.iterdir()]
    exit_code, _, told = run(tmp_path, "-c", KEPT.format(code=1))
    (kept,) = tmp_path.iterdir()
    assert (exit_code, told) == (1, f"files of failed tests: {kept}\n")


def test_a_detached_process(tmp_path: Path) -> None:
    exit_code, out, told = run(tmp_path, "-c", DETACHED)
    pid = out.strip()
    assert exit_code == 1
    assert f"left behind: process {pid}: " in told
    assert not os.path.exists(f"/proc/{pid}")


def test_in_ci_the_shared_directories_are_compared(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    code = f"open({str(tmp_path / '.cache/left')!r}, 'w')"
    (tmp_path / ".cache").mkdir()
    home = {"HOME": str(tmp_path)}
    exit_code, _, told = run(tmp_path / "shared", "-c", code, **home, HUSHGRAM_REQUIRE_ENGINES="1")
    assert exit_code == 1
    assert f"left behind: file {tmp_path}/.cache/left\n" in told
    (tmp_path / ".cache/left").unlink()
    assert run(tmp_path / "shared", "-c", code, **home)[::2] == (0, "")
