"""Private directories: gone when they are closed, and after a kill when the next one is made."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import hushgram as hg
from hushgram.errors import OutputError
from hushgram.publishing import PREFIX, PrivateDirectory

CHILD = """
import sys, time
from hushgram.publishing import PrivateDirectory
with PrivateDirectory() as path:
    (path / "data").write_text("exact")
    print(path, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def fail_inside() -> None:
    with PrivateDirectory() as path:
        assert os.stat(path).st_mode & 0o777 == 0o700
        Path(path, "data").write_text("exact")
        raise KeyboardInterrupt


def test_it_is_private_and_goes_when_it_is_closed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fail_inside()
    assert os.listdir(tmp_path) == []


def test_one_of_a_killed_process_is_removed_by_the_next_and_a_living_ones_is_not(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}someone").mkdir()  # without a lock: not ours to judge
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        theirs = child.stdout.readline().strip()
        with PrivateDirectory() as ours:
            assert Path(theirs, "data").exists()
            with PrivateDirectory():
                assert ours.exists()
    finally:
        child.kill()
        child.communicate()
    assert Path(theirs, "data").exists()
    with PrivateDirectory():
        assert not Path(theirs).exists()
    assert os.listdir(tmp_path) == [f"{PREFIX}someone"]


def test_a_link_under_its_name_leads_nowhere(tmp_path: Path) -> None:
    """Anybody can put one into a shared directory."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "lock").write_text("x")
    (tmp_path / f"{PREFIX}trap").symlink_to(precious)
    PrivateDirectory().close()
    assert (precious / "lock").exists()


def test_a_forked_child_does_not_take_it_away() -> None:
    directory = PrivateDirectory()
    if (child := os.fork()) == 0:
        directory.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert directory.path.exists()
    directory.close()
    assert not directory.path.exists()


def test_a_place_that_cannot_be_used_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    with pytest.raises(OutputError, match=r"/none \(TMPDIR\) is not a directory; set TMPDIR to another one"):
        PrivateDirectory()
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def full(*_: Any, **__: Any) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkdtemp", full)  # as where inodes have run out
    with pytest.raises(OutputError, match="cannot be written: No space left on device; set TMPDIR"):
        PrivateDirectory()


PARAMS = hg.ReleaseParams(epsilon="1", max_contributions=1)


def test_a_sketch_without_a_path_takes_its_files_along(tmp_path: Path) -> None:
    sketch = hg.release(["u", "v"], ["a", "b"], PARAMS)
    assert len(os.listdir(tmp_path)) == 1
    assert sketch.verify()
    assert len(sketch.estimate(["a"])) == 1
    del sketch
    gc.collect()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("end", ["", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_and_leaves_none_when_the_process_ends(end: str, tmp_path: Path) -> None:
    script = (
        "import hushgram as hg\n"
        "kept = hg.release(['u'], ['a'], hg.ReleaseParams(epsilon='1', max_contributions=1))\n"
        f"{end}"
    )
    subprocess.run([sys.executable, "-c", script], check=not end)
    PrivateDirectory().close()  # what the next one would do
    assert os.listdir(tmp_path) == []


def test_a_release_that_fails_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hushgram import release_in_memory

    def full(*_: Any) -> None:
        raise OutputError("no")

    monkeypatch.setattr(release_in_memory, "write_sketch", full)
    with pytest.raises(OutputError):
        hg.release(["u"], ["a"], PARAMS)
    assert os.listdir(tmp_path) == []
