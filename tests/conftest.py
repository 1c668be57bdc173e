"""Temporary files are kept in memory where there is room: ledgers and releases write through to the disk, often."""

from __future__ import annotations

import os
import tempfile

_MEMORY, _ROOM = "/dev/shm", 6 << 30


def pytest_configure() -> None:
    """Choose the place of temporary files, also for processes that tests start; TMPDIR names another."""
    if "TMPDIR" in os.environ or not os.path.isdir(_MEMORY):
        return
    found = os.statvfs(_MEMORY)
    if found.f_bavail * found.f_frsize > _ROOM and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"], tempfile.tempdir = _MEMORY, None
