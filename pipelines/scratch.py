"""A private temporary directory that does not outlive its job by long.

It holds exact data, so it is removed when the job ends, and where the job was killed, by the next one: a job
holds a lock on a file in its directory, which the system gives up with the process, and a new job removes
every directory of the same user whose lock it can get.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["PREFIX", "scratch_directory"]

PREFIX = "hushgram-shuffle-"
_LOCK = "lock"


@contextmanager
def scratch_directory() -> Iterator[str]:
    """A fresh directory (mode 0700) under TMPDIR, gone afterwards."""
    _sweep()
    path, handle = _make()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


def _make() -> tuple[str, int]:
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX)
        handle = _lock(Path(path, _LOCK), create=True)
        if handle is not None:
            return path, handle


def _sweep() -> None:
    """Remove what jobs of this user left when they were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            if path.stat().st_uid != os.getuid():
                continue
            handle = _lock(path / _LOCK, create=False)
        except OSError:  # no lock yet, or gone already
            continue
        if handle is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(handle)


def _lock(path: Path, *, create: bool) -> int | None:
    """A handle that holds the lock, or None where another process has it."""
    handle = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle
