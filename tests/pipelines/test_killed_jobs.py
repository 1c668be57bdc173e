"""Jobs that are killed at many points: what they leave is gone when they end, or when the next one begins."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.pipelines.sockets import tree
from tests.transforms.releases import records

pytestmark = pytest.mark.long

RELEASE = """
release: urls
input: {path: in.parquet, user: user, key: url}
privacy: {epsilon: 1, max_contributions: 4}
output: {path: out/urls.sketch}
"""
TOP = """
top: pages
input: {path: in.parquet, user: user, key: url}
privacy: {epsilon: 1, max_contributions: 4}
keys: keys.txt
count: 2
output: {path: out/top.jsonl}
"""
# The command, which sends itself a signal (or stops for us) when a function is called for the first time.
RUN = """
import importlib, os, signal, sys
number, module, name, *arguments = sys.argv[1:]
from hushgram.pipelines.cli import main
if module:
    place = importlib.import_module(module)
    *path, last = name.split(".")
    for part in path:
        place = getattr(place, part)
    real = getattr(place, last)
    def struck(*given, **named):
        setattr(place, last, real)
        os.kill(int(os.environ["HUSHGRAM_TEST_MAIN"]), int(number))
        if os.getpid() != int(os.environ["HUSHGRAM_TEST_MAIN"]):
            import time; time.sleep(60)
        return real(*given, **named)
    setattr(place, last, struck)
os.environ["HUSHGRAM_TEST_MAIN"] = str(os.getpid())
main(arguments)
"""
POINTS = {
    "the run begins": ("hushgram.publishing", "tempfile.gettempdir"),
    "stages are built": ("hushgram.pipelines.run.beam_runners", "new_pipeline"),
    "exact data lie on disk": ("hushgram.transforms.shuffle.coders", "SpilledBatch.read"),
    "a file of the result is written": ("hushgram.publishing", "os.replace"),
    "the result is about to appear": ("hushgram.publishing", "rename_new"),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    pq.write_table(records(2500, users=100), "in.parquet", row_group_size=500)
    Path("release.yaml").write_text(RELEASE)
    Path("top.yaml").write_text(TOP)
    Path("keys.txt").write_text("a\nb\nc\n")
    return tmp_path


def run(point: tuple[str, str], number: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN, str(number), *point, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )


def left(home: Path) -> list[str]:
    """What lies in TMPDIR, and beside the output."""
    found = [f"tmp/{name}" for name in os.listdir(home / "tmp")]
    return found + ([f"out/{name}" for name in os.listdir(home / "out")] if (home / "out").exists() else [])


@pytest.mark.parametrize("point", [*POINTS])
def test_sigterm_ends_a_job_and_leaves_nothing(point: str, home: Path) -> None:
    done = run(POINTS[point], signal.SIGTERM, "release", "release.yaml")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (143, "stopped"), done.stderr
    assert "Traceback" not in done.stderr
    assert left(home) == []


def test_after_sigkill_the_next_job_removes_what_is_left(home: Path) -> None:
    for point in POINTS.values():
        assert run(point, signal.SIGKILL, "release", "release.yaml").returncode == -signal.SIGKILL
        assert left(home), "something should lie there, or the test looks in the wrong place"
    assert (
        len(left(home)) == 2
    )  # each has removed what the one before it left in TMPDIR and beside the output
    done = run(("", ""), 0, "top", "top.yaml")  # another job, whatever it is
    assert done.returncode == 0, done.stderr
    assert left(home) == ["out/top.jsonl"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_with_two_workers(number: int, home: Path) -> None:
    job = subprocess.Popen(
        [sys.executable, "-m", "hushgram.pipelines", "release", "release.yaml", "--set", "workers=2"],
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 60
    while len(pids := tree(job.pid)) < 3:
        assert time.monotonic() < end
        time.sleep(0.01)
    job.send_signal(number)
    assert job.wait(60) == (143 if number == signal.SIGTERM else -number)
    while any(Path("/proc", str(pid)).exists() for pid in pids[1:]):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert bool(left(home)) == (number == signal.SIGKILL)
    assert run(("", ""), 0, "top", "top.yaml").returncode == 0
    assert left(home) == ["out/top.jsonl"]


def test_a_check_leaves_nothing(home: Path) -> None:
    """Its made-up sketch too."""
    point = ("hushgram.sketch.reader", "Sketch.open")
    assert run(point, signal.SIGTERM, "release", "release.yaml", "--check").returncode == 143
    assert left(home) == []
    assert run(point, signal.SIGKILL, "release", "release.yaml", "--check").returncode == -signal.SIGKILL
    assert len(left(home)) == 1
    assert run(("", ""), 0, "release", "release.yaml", "--check").returncode == 0
    assert left(home) == []
