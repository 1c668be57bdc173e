"""Everything temporary of a run lies in one private directory: spilled batches, progress, drafts, files of Beam's.

It goes when the run ends, and after a kill when the next one begins (`hushgram.private_directory`).
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hushgram.private_directory import PrivateDirectory

__all__ = ["active_directory", "process_is_one_run", "run_directory", "temporary_files_of_a_run"]


_turn = threading.Lock()
_open: list[PrivateDirectory] = []
_users = 0
_alone = False


@contextmanager
def run_directory() -> Iterator[Path]:
    """The directory of this run; runs inside of one another, or beside one another in threads, share theirs."""
    global _users
    with _turn:
        if not _open:
            _open.append(PrivateDirectory())
        path, _users = _open[0].path, _users + 1
    try:
        yield path
    finally:
        with _turn:
            _users -= 1
            if not _users:
                _open.pop().close()


def active_directory() -> Path | None:
    """The directory of a run that is under way."""
    return _open[0].path if _open else None


def process_is_one_run() -> bool:
    """Whether this process has nothing else to do than the run that is under way."""
    return _alone


@contextmanager
def temporary_files_of_a_run() -> Iterator[Path]:
    """The same, and every temporary file of this process and its children goes there: for a process that is one run."""
    global _alone
    with run_directory() as path:
        before = os.environ.get("TMPDIR"), tempfile.tempdir
        os.environ["TMPDIR"] = tempfile.tempdir = str(path)
        _alone = True
        try:
            yield path
        finally:
            _alone = False
            tempfile.tempdir = before[1]
            os.environ.pop("TMPDIR")
            if before[0] is not None:
                os.environ["TMPDIR"] = before[0]
