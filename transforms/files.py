"""Files of Beam's file systems as pyarrow files: what readers of records have in common."""

from __future__ import annotations

import importlib.util
from typing import Any

import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileSystem
from apache_beam.io.filesystems import FileSystems

from hushgram.errors import InputError
from hushgram.inputs import open_local

__all__ = ["missing_file_system", "open_file", "reason"]

# scheme → (a package that Beam needs for it, the extra that brings it)
_PACKAGES = {
    "gs": ("google.cloud.storage", "gcp"),
    "s3": ("boto3", "aws"),
    "azfs": ("azure.storage.blob", "azure"),
    "hdfs": ("hdfs", "hadoop"),
}


def missing_file_system(path: str) -> str | None:
    """Why no file of such a path can be opened here, with the remedy; None where one can."""
    scheme = FileSystems.get_scheme(path)
    if scheme is None:
        return None
    package, extra = _PACKAGES.get(scheme, (None, None))
    if package is not None and not _is_there(package) and not _of_others(scheme):
        return f"there is no file system for {scheme}:// here; pip install 'apache-beam[{extra}]'"
    if package is None and scheme not in {system.scheme() for system in FileSystem.get_all_subclasses()}:
        return f"there is no file system for {scheme}://; use a local path, {', '.join(f'{s}://' for s in _PACKAGES)}"
    return None


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _of_others(scheme: str) -> bool:
    """Whether somebody has registered a file system of their own for a scheme of Beam's."""
    return any(
        system.scheme() == scheme and not system.__module__.startswith("apache_beam.")
        for system in FileSystem.get_all_subclasses()
    )


def open_file(path: str) -> Any:
    """A seekable pyarrow file over Beam's file systems; local files without Python in between."""
    if FileSystems.get_scheme(path) is None:
        return open_local(path)
    if (missing := missing_file_system(path)) is not None:
        raise InputError(f"{path}: cannot be opened: {missing}")
    try:
        stream = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    except (BeamIOError, OSError, ValueError) as problem:
        raise InputError(f"{path}: cannot be opened: {reason(problem)}") from None
    return pa.PythonFile(stream, mode="r")


def reason(problem: Exception) -> str:
    details = getattr(problem, "exception_details", None)
    first = str(next(iter(details.values())) if details else problem).strip().splitlines()
    return first[0][:200] if first else type(problem).__name__
