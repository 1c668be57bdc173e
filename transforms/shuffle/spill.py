"""Shard batches that wait on disk: on one machine the shuffle passes where they lie, not their bytes.

Beam's local runner keeps every element in memory and copies it several times on its way through a shuffle.
Where all workers share a machine, batches are appended to files of a private temporary directory instead, and
a `SpilledBatch` (path, offset, length) is shuffled. A bundle that is computed again writes new ones; the old
ones are never read.

The files hold exact, private data. The job makes the directory for itself alone (mode 0700) and removes it at
the end.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hushgram.errors import OutputError

__all__ = ["SpillWriter", "SpilledBatch"]


@dataclass(frozen=True)
class SpilledBatch:
    """Where a batch lies."""

    path: str
    offset: int
    size: int

    def read(self) -> bytes:
        """Its bytes."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            pieces, at = [], 0
            while at < self.size and (piece := os.pread(handle, self.size - at, self.offset + at)):
                pieces.append(piece)
                at += len(piece)
        finally:
            os.close(handle)
        if at != self.size:
            raise OutputError(
                f"temporary file {self.path} was cut short; nothing was released, run the job again"
            )
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class SpillWriter:
    """Appends batches to a file of its own in ``directory``."""

    def __init__(self, directory: str) -> None:
        try:
            self._handle, self._path = tempfile.mkstemp(prefix="spill-", dir=directory)
        except OSError as error:
            raise _cannot(directory, error) from None
        self._end = 0

    def put(self, buffers: Sequence[Any]) -> SpilledBatch:
        """Write the buffers one after another."""
        size = sum(len(buffer) for buffer in buffers)
        try:
            written = os.writev(self._handle, buffers)
            if written != size:  # a signal, or more than the system takes at once
                rest = memoryview(b"".join(buffers))
                while written < size:
                    written += os.write(self._handle, rest[written:])
        except OSError as error:
            raise _cannot(os.path.dirname(self._path), error) from None
        batch = SpilledBatch(self._path, self._end, size)
        self._end += size
        return batch

    def close(self) -> None:
        """Nothing more will be written."""
        os.close(self._handle)


def _cannot(directory: str, error: OSError) -> OutputError:
    return OutputError(
        f"temporary directory {directory} cannot be written: {error.strerror}; set TMPDIR to another place"
    )
