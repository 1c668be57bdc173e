"""Files of Beam's file systems: listed, and opened as pyarrow files. Local paths, gs://, s3:// and others."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileSystem
from apache_beam.io.filesystems import FileSystems

from hushgram.errors import InputError
from hushgram.inputs import InputFile, open_local

__all__ = ["match_files", "missing_file_system", "open_file"]

# scheme → (a package that Beam needs for it, the extra that brings it)
_PACKAGES = {
    "gs": ("google.cloud.storage", "gcp"),
    "s3": ("boto3", "aws"),
    "azfs": ("azure.storage.blob", "azure"),
    "hdfs": ("hdfs", "hadoop"),
}
_PROBLEMS = (BeamIOError, OSError, ValueError)
_WILDCARD = re.compile(r"[*?\[]")
_HIDDEN = ("_", ".")


def missing_file_system(path: str) -> str | None:
    """Return why no file of such a path can be opened here, with the remedy; None if one can."""
    scheme = FileSystems.get_scheme(path)
    systems = [system for system in FileSystem.get_all_subclasses() if system.scheme() == scheme]
    if scheme is None:
        return None
    if scheme not in _PACKAGES:
        known = ", ".join(f"{s}://" for s in _PACKAGES)
        return None if systems else f"there is no file system for {scheme}://; use a local path, {known}"
    package, extra = _PACKAGES[scheme]
    registered = any(not system.__module__.startswith("apache_beam.") for system in systems)  # by the user
    if registered or _is_installed(package):
        return None
    owner = "hushgram" if extra in ("gcp", "aws") else "apache-beam"
    return f"there is no file system for {scheme}:// here; pip install '{owner}[{extra}]'"


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def open_file(path: str) -> Any:
    """Open a path as a seekable pyarrow file; local files without Python in between."""
    if FileSystems.get_scheme(path) is None:
        return open_local(path)
    if (missing := missing_file_system(path)) is not None:
        raise InputError(f"{path}: cannot be opened: {missing}")
    try:
        stream = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    except _PROBLEMS as problem:
        raise InputError(f"{path}: cannot be opened: {_reason(problem)}") from None
    return pa.PythonFile(stream, mode="r")


def match_files(paths: Iterable[str]) -> list[InputFile]:
    """Return the files that paths and patterns name.

    A directory means the files below it, ``~`` the user's home. Files and folders whose names begin with ``_`` or
    ``.`` are not data (Spark and Beam write such beside it) unless the pattern begins so too; ``_day=1`` is data.
    """
    found: dict[str, InputFile] = {}
    for path in (os.path.expanduser(path.removeprefix("file://")) for path in paths):
        here = _match(path)
        if not here and not _WILDCARD.search(path):
            here = _match(path.rstrip("/") + "/**")
        if _base(path)[:1] not in _HIDDEN:
            here = [file for file in here if not _is_hidden(file.path, path)]
        if not here:
            raise InputError(
                f"input.path {path!r} matches no file; check the pattern and the working directory"
            )
        found.update((file.path, file) for file in here)
    return list(found.values())


def _base(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1]


def _is_hidden(file: str, pattern: str) -> bool:
    """Return whether the file, or a folder between it and what the pattern states, is hidden."""
    stated = _WILDCARD.split(pattern)[0]
    stated = pattern if stated == pattern else stated[: stated.rfind("/") + 1]
    *folders, name = (file.removeprefix(stated) if file.startswith(stated) else _base(file)).split("/")
    return name[:1] in _HIDDEN or any(
        part[:1] == "." or (part[:1] == "_" and "=" not in part) for part in folders
    )


def _match(path: str) -> list[InputFile]:
    # Beam finds nothing for a pattern without a folder.
    here = "./" if "/" not in path and _WILDCARD.search(path) else ""
    if (missing := missing_file_system(path)) is not None:
        raise InputError(f"input.path {path!r} cannot be listed: {missing}")
    try:
        listed = FileSystems.match([here + path])[0].metadata_list
    except _PROBLEMS as problem:
        raise InputError(f"input.path {path!r} cannot be listed: {_reason(problem)}") from None
    local = FileSystems.get_scheme(path) is None
    return [
        InputFile(m.path.removeprefix(here), m.size_in_bytes, None if local else m.last_updated_in_seconds)
        for m in listed
        if not (local and os.path.isdir(m.path))
    ]


def _reason(problem: Exception) -> str:
    details = getattr(problem, "exception_details", None)
    first = str(next(iter(details.values())) if details else problem).strip().splitlines()
    return first[0][:200] if first else type(problem).__name__
