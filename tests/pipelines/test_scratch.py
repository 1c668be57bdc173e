"""The private directory of a job: gone when the job ends, and after a kill when the next one begins."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hushgram.pipelines.scratch import PREFIX, scratch_directory

CHILD = """
import sys, time
from hushgram.pipelines.scratch import scratch_directory
with scratch_directory() as path:
    open(path + "/data", "w").write("exact")
    print(path, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def fail_inside() -> None:
    with scratch_directory() as path:
        assert os.stat(path).st_mode & 0o777 == 0o700
        Path(path, "data").write_text("exact")
        raise KeyboardInterrupt


def test_it_is_private_and_goes_with_the_job(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fail_inside()
    assert os.listdir(tmp_path) == []


def test_a_killed_jobs_directory_is_removed_by_the_next_and_a_living_ones_is_not(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}someone").mkdir()  # without a lock: not ours to judge
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        theirs = child.stdout.readline().strip()
        with scratch_directory() as ours:
            assert Path(theirs, "data").exists()
            with scratch_directory():
                assert Path(ours).exists()
    finally:
        child.kill()
        child.communicate()
    assert Path(theirs, "data").exists()
    with scratch_directory():
        assert not Path(theirs).exists()
    assert os.listdir(tmp_path) == [f"{PREFIX}someone"]
