"""A temporary directory for its owner alone, which does not outlive its process by long.

It may hold exact data, so it is removed when it is closed, and where its process was killed, by the next process that
makes such a directory: each holds a lock on a file in its own, which the system gives up with the process, and a new
one removes every directory of the same user whose lock it can get.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

from hushgram.errors import OutputError

__all__ = ["PREFIX", "PrivateDirectory"]

PREFIX = "hushgram-run-"
_LOCK = "lock"


class PrivateDirectory:
    """A fresh directory (mode 0700) under TMPDIR, until it is closed; ``with`` gives its path."""

    def __init__(self) -> None:
        base = _base()
        try:
            _sweep(base)
            while True:
                self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
                handle = _lock(self.path / _LOCK, create=True)
                if handle is not None:  # else somebody swept between the two
                    break
        except OSError as problem:
            raise OutputError(
                f"temporary directory {base} cannot be written: {problem.strerror}; set TMPDIR to another place"
            ) from None
        self._handle: int | None = handle
        self._process = os.getpid()

    def close(self) -> None:
        """Removes it, if this is the process that made it: a forked child only lets go."""
        if self._handle is None:
            return
        if self._process == os.getpid():
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)
        self._handle = None

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def _base() -> Path:
    """Where TMPDIR says; what it names must be usable, as nobody expects exact data in a place of second choice."""
    named = os.environ.get("TMPDIR")
    if tempfile.tempdir is None and named:
        if not os.path.isdir(named):
            raise OutputError(
                f"temporary directory {named} (TMPDIR) is not a directory; set TMPDIR to another place"
            )
        return Path(named)
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        raise OutputError(
            "no temporary directory can be written (/tmp, /var/tmp); set TMPDIR to a directory that can"
        ) from None


def _sweep(base: Path) -> None:
    """Remove what processes of this user left when they were killed."""
    for path in base.glob(f"{PREFIX}*"):
        try:
            found = path.lstat()
            if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
                continue  # somebody else's, or a link that leads elsewhere
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
