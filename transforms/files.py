"""Files of Beam's file systems as pyarrow files: what readers of records have in common."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from hushgram.errors import InputError
from hushgram.inputs import open_local

__all__ = ["open_file", "reason"]


def open_file(path: str) -> Any:
    """A seekable pyarrow file over Beam's file systems; local files without Python in between."""
    if FileSystems.get_scheme(path) is None:
        return open_local(path)
    try:
        stream = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    except (BeamIOError, OSError, ValueError) as problem:
        raise InputError(f"{path}: cannot be opened: {reason(problem)}") from None
    return pa.PythonFile(stream, mode="r")


def reason(problem: Exception) -> str:
    details = getattr(problem, "exception_details", None)
    first = str(next(iter(details.values())) if details else problem).strip().splitlines()
    return first[0][:200] if first else type(problem).__name__
