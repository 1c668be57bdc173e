"""Files of Beam's file systems: listed, opened as pyarrow files, written; key lists that workers read from a file.

Local paths, gs://, s3:// and others.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileSystem
from apache_beam.io.filesystems import FileSystems
from numpy.typing import NDArray

from hushgram.contributions.histogram import KeyTable
from hushgram.errors import InputError, OutputError
from hushgram.inputs import InputFile, open_local
from hushgram.publishing import output_errors, put_file
from hushgram.sketch.manifest import list_files, list_names

__all__ = ["SharedKeys", "create_file", "match_files", "missing_file_system", "open_file", "write_file"]

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
# Key lists up to this size travel in the graph of the pipeline, a few times; Dataflow takes graphs of up to 10 MB.
_MAX_IN_GRAPH = 1 << 16


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


def create_file(path: str, **options: Any) -> Any:
    """Open a file for writing, in place of an earlier one."""
    system = FileSystems.get_filesystem(path)
    if system.scheme() is not None and system.has_dirs() and system.exists(path):
        system.delete([path])  # HDFS replaces no file
    return FileSystems.create(path, **options)


def write_file(directory: str, name: str, content: bytes) -> None:
    """Write a file whole or not at all; an earlier one of the same name is replaced."""
    path = f"{directory}/{name}"
    with output_errors(directory):
        if FileSystems.get_scheme(path) is not None:
            with create_file(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
                file.write(content)
        else:
            os.makedirs(directory, mode=0o700, exist_ok=True)  # nothing in there is released yet
            put_file(path, content)


class SharedKeys(KeyTable):
    """Public keys that workers read from a file: in the graph of a pipeline there is only its path.

    The file is in the directory that the output is written to, which all workers share, and each process reads it once.
    What is in it follows from the list alone. `remove` it when all stages have run. An engine may compute a stage again
    after that; then the keys come from the released list of public keys in ``released``.
    """

    #: the name of the file
    NAME = "key-list.parquet"

    def __init__(self, places: tuple[tuple[str, ...], ...], content: str) -> None:
        object.__setattr__(self, "_file", (places, content))

    @classmethod
    def write(cls, table: KeyTable, directory: str, released: str | None = None) -> KeyTable:
        """Write the table to a file of ``directory`` unless it is small; return what to give to workers."""
        if table.texts.nbytes <= _MAX_IN_GRAPH:
            return table
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        columns = {"fingerprint": pa.array(table.fingerprints), "key": table.texts}
        pq.write_table(pa.table(columns), sink, use_dictionary=False, compression="zstd", store_schema=False)
        write_file(directory, cls.NAME, sink.getvalue().to_pybytes())
        places: list[tuple[str, ...]] = [(f"{directory}/{cls.NAME}",)]
        if released is not None:
            names = list_names(list_files(len(table.texts)), texts=True)
            places.append(tuple(f"{released}/{name}" for name in names))
        return cls(tuple(places), table.digest().hex())

    @property
    def fingerprints(self) -> NDArray[Any]:
        return _read_keys(*self._file).fingerprints  # type: ignore[attr-defined]

    @property
    def texts(self) -> pa.LargeBinaryArray:
        return _read_keys(*self._file).texts  # type: ignore[attr-defined]

    def __reduce__(self) -> Any:
        return SharedKeys, self._file  # type: ignore[attr-defined]


@lru_cache(maxsize=2)
def _read_keys(places: tuple[tuple[str, ...], ...], content: str) -> KeyTable:
    """Return the table from the first of the places that has it, in one file or several."""
    for paths in places:
        try:
            found = pa.concat_tables([_keys_of_file(path) for path in paths])
        except (InputError, OSError, pa.ArrowException):
            continue
        prints, texts = (pa.concat_arrays(column.chunks) for column in found.columns)
        table = KeyTable(prints.to_numpy(), texts)
        if table.digest().hex() == content:
            return table
    path = places[0][0]
    raise OutputError(f"key list {path} is not visible here; give an output path that all workers share")


def _keys_of_file(path: str) -> pa.Table:
    import pyarrow.parquet as pq

    with open_file(path) as file:
        found = pq.read_table(file, columns=["fingerprint", "key"])
    return found.cast(pa.schema([("fingerprint", pa.uint64()), ("key", pa.large_binary())]))


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
