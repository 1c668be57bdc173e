"""One directory for a run: shared by what is inside of it, gone with the last, and TMPDIR as it was."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

import pytest

from hushgram.publishing import (
    active_directory,
    process_is_one_run,
    run_directory,
    temporary_files_of_a_run,
)


@pytest.fixture(autouse=True)
def _own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def test_runs_inside_and_beside_one_another_share_it(tmp_path: Path) -> None:
    begun, end = threading.Event(), threading.Event()

    def beside() -> None:
        with run_directory():
            begun.set()
            end.wait(60)

    other = threading.Thread(target=beside)
    with run_directory() as path:
        with run_directory() as same:
            assert same == path == active_directory()
        assert path.exists()
        other.start()
        assert begun.wait(60)
    assert path.exists()  # the other one still uses it
    end.set()
    other.join()
    assert active_directory() is None
    assert os.listdir(tmp_path) == []


def test_every_temporary_file_of_a_process_that_is_one_run(tmp_path: Path) -> None:
    assert not process_is_one_run()
    with temporary_files_of_a_run() as path:
        assert process_is_one_run()
        assert os.environ["TMPDIR"] == tempfile.gettempdir() == str(path)
        kept = tempfile.mkdtemp()
        assert Path(kept).parent == path
    assert not process_is_one_run()
    assert os.environ["TMPDIR"] == str(tmp_path)
    assert not Path(kept).exists()
