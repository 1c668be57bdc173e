"""The files of a sketch, written and read.

Every file is made from released numbers alone, the manifest last, and the directory appears by one rename. The
functions that make the content of files are shared by the library and the Beam job, so that both write the same bytes.
A reader accepts regular files of the stated sizes, and uses nothing before its digest is checked: what is read whole
(manifest, listed keys, index) is checked whole, a block when a lookup first needs it.
"""

from __future__ import annotations

import atexit
import hashlib
import mmap
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.encodings import EncodedBlock
from hushgram.errors import FormatError
from hushgram.key_selection.threshold import Heavy
from hushgram.publishing import check_free, new_directory, put_file
from hushgram.sketch.heavy import file_of, heavy_bytes, list_parts, read_heavy
from hushgram.sketch.manifest import (
    BLOCKS_PER_FILE,
    INDEX_ENTRY,
    INDEX_NAME,
    LARGEST_MANIFEST,
    MANIFEST_NAME,
    FileEntry,
    Manifest,
    blocks_name,
    list_files,
    list_names,
)  # fmt: skip
from hushgram.sparse_histogram.plan import Plan

__all__ = ["BlockFile", "Storage", "added_up", "local_copy", "write_sketch"]


@dataclass(frozen=True)
class BlockFile:
    """One file of blocks: its content, its part of the index, and its share of the released sums."""

    number: int
    content: bytes
    index: bytes
    sums: tuple[int, ...]

    @classmethod
    def of(cls, number: int, blocks: Sequence[EncodedBlock]) -> BlockFile:
        """Return the file that holds these blocks, in their order."""
        contents = [block.content.tobytes() for block in blocks]
        index = (len(content).to_bytes(8, "little") + sha256(content).digest() for content in contents)
        sums = np.sum([block.sums for block in blocks], axis=0)
        return cls(number, b"".join(contents), b"".join(index), tuple(sums.tolist()))


def write_sketch(
    path: str | Path,
    plan: Plan,
    seeds: NDArray[np.uint64],
    heavy: Heavy,
    blocks: Iterable[EncodedBlock],
    release: str = "",
    key_expression: str = "",
) -> Path:
    """Write all files of a sketch into a temporary directory beside ``path``, then rename it."""
    target = check_free(path)
    with new_directory(target) as work:
        parts = list_parts(heavy, plan, list_files(heavy.rows))
        lists = list(zip(*(part.lists for part in parts.values()), strict=True))
        named = [
            (name, part)
            for each in lists
            for name, part in zip(list_names(len(parts), texts=each[0].texts is not None), each, strict=True)
        ]
        files = [_put(work, name, heavy_bytes(part, two_lists=plan.sub_cells)) for name, part in named]
        index: list[bytes] = []
        sums: list[tuple[int, ...]] = []
        for file in _block_files(blocks):
            files.append(_put(work, blocks_name(file.number), file.content))
            index.append(file.index)
            sums.append(file.sums)
        if plan.layout is not None:
            files.insert(len(named), _put(work, INDEX_NAME, b"".join(index)))
        numbers, *of_cells = (tuple(map(len, each)) for each in lists)
        manifest = Manifest(
            plan,
            seeds,
            added_up(sums),
            numbers,
            of_cells[0] if of_cells else (),
            tuple(files),
            release,
            key_expression=key_expression,
        )
        _put(work, MANIFEST_NAME, manifest.to_bytes())
    return target


def added_up(sums: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the sums of all files together."""
    return tuple(map(sum, zip(*sums, strict=True)))


def _block_files(blocks: Iterable[EncodedBlock]) -> Iterator[BlockFile]:
    held: list[EncodedBlock] = []
    number = 0
    for block in blocks:
        held.append(block)
        if len(held) == BLOCKS_PER_FILE:
            yield BlockFile.of(number, held)
            held, number = [], number + 1
    if held:
        yield BlockFile.of(number, held)


def _put(work: Path, name: str, content: bytes) -> FileEntry:
    put_file(work / name, content)
    return FileEntry.of(name, content)


# --- reading -----------------------------------------------------------------------------------------------------

_CHUNK = 1 << 24


def local_copy(uri: str) -> Path:
    """Download a sketch (s3://, gs://, webhdfs://) into a folder that is removed when the process ends.

    Credentials, region and endpoint are those that the environment states, as for other tools of the store.
    """
    from pyarrow import ArrowException

    if uri.startswith(("http://", "https://")):
        raise FormatError(f"{uri}: a sketch is a directory, which is not read over HTTP; copy it here first")
    folder = Path(tempfile.mkdtemp(prefix="hushgram-sketch-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        opened = _opener(uri.rstrip("/"))
        sizes = {MANIFEST_NAME: LARGEST_MANIFEST}
        while sizes:
            name, most = sizes.popitem()
            with opened(name) as file:
                content = file.read(most + 1)
            (folder / name).write_bytes(content)
            if name == MANIFEST_NAME:
                files = Manifest.from_bytes(content, f"{uri}/{name}").files
                sizes |= {entry.name: entry.size for entry in files}
    except FileNotFoundError:
        raise FormatError(f"{uri}: there is no such sketch") from None
    except (OSError, ArrowException) as problem:
        reason = (str(problem).strip().splitlines() or ["no reason given"])[0][:200]
        hint = "; without Hadoop's libhdfs read webhdfs://NAMENODE:9870/…" if uri.startswith("hdfs:") else ""
        raise FormatError(f"{uri}: cannot be downloaded: {reason}{hint}") from None
    return folder


def _opener(uri: str) -> Callable[[str], Any]:
    """Return a function that opens a file of a remote folder for reading; raise FileNotFoundError where it is none."""
    scheme, _, rest = uri.partition("://")
    if scheme not in ("webhdfs", "swebhdfs"):
        from pyarrow import fs

        system, root = fs.FileSystem.from_uri(uri)
        return lambda name: system.open_input_stream(f"{root}/{name}")
    from urllib import error, parse, request

    host, _, folder = rest.partition("/")
    http, user = "http" if scheme == "webhdfs" else "https", os.environ.get("HADOOP_USER_NAME")
    query = parse.urlencode({"op": "OPEN", **({"user.name": user} if user else {})})

    def opened(name: str) -> Any:
        try:
            path = parse.quote(f"{folder}/{name}")
            return request.urlopen(f"{http}://{host}/webhdfs/v1/{path}?{query}", timeout=60)
        except error.HTTPError as problem:
            raise FileNotFoundError(name) if problem.code == 404 else problem from None

    return opened


class Storage:
    """A sketch directory, opened: its manifest is read and the sizes of its files are right."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise FormatError(
                f"{path}: is a file; give the directory of a sketch"
                if path.exists()
                else f"{path}: no such sketch directory; check the path and the working directory"
            )
        self.path = path
        self._lists: dict[int, Heavy] = {}  # by file, those that were read
        try:
            self.manifest_content = _read(path / MANIFEST_NAME, most=LARGEST_MANIFEST)
        except FileNotFoundError:
            inside = sorted(p.name for p in path.glob("*/") if (p / MANIFEST_NAME).is_file())
            shown = f"{', '.join(inside[:5])}{', …' if len(inside) > 5 else ''}"
            hint = (
                f"it holds sketches ({shown}): name one of them"
                if inside
                else "this is not a finished sketch"
            )
            raise FormatError(f"{path}: there is no {MANIFEST_NAME}; {hint}") from None
        self.manifest = Manifest.from_bytes(self.manifest_content, str(path / MANIFEST_NAME))
        for entry in self.manifest.files:
            os.close(self._open(entry))

    @cached_property
    def heavy(self) -> Heavy:
        """The threshold part."""
        whole = self._listed(range(len(self.manifest.list_rows)))
        self._lists.clear()  # which it may be a copy of
        return whole

    def heavy_around(self, codes: Sequence[NDArray[np.uint64]]) -> Heavy:
        """Return the keys of the files in which keys with these codes are, if they are listed."""
        files = len(self.manifest.list_rows)
        if files == 1 or "heavy" in self.__dict__:
            return self.heavy
        numbers = np.unique(np.concatenate([file_of(code, self.manifest.plan, files) for code in codes]))
        return self._listed(numbers.tolist() or [0])

    def _listed(self, numbers: Sequence[int]) -> Heavy:
        manifest = self.manifest
        for number in numbers:
            if number not in self._lists:
                first, *cells = (
                    self._read_list(i * len(manifest.list_rows), number, rows[number])
                    for i, rows in enumerate((manifest.list_rows, manifest.cell_rows))
                    if rows
                )
                self._lists[number] = replace(first, cells=cells[0]) if cells else first
        parts = [self._lists[number] for number in numbers]
        return parts[0] if len(parts) == 1 else Heavy.concat(parts)

    def _read_list(self, first: int, number: int, rows: int) -> Heavy:
        """Return a file of listed keys; those of its list begin with the file ``first``."""
        manifest, name = self.manifest, self.manifest.files[first + number].name
        of = number, len(manifest.list_rows)
        return read_heavy(self._checked(name), manifest.plan, rows, self.path / name, *of)

    def block(self, index: int) -> NDArray[np.uint8]:
        """Return the released bytes of a block."""
        starts, digests = self._index
        file = index // BLOCKS_PER_FILE
        before = starts[file * BLOCKS_PER_FILE]
        content = self._block_files[file][starts[index] - before : starts[index + 1] - before]
        if not self._blocks_checked[index]:
            if hashlib.sha256(content.data).digest() != digests[index].tobytes():
                raise FormatError(
                    f"{self.path}: block {index} does not match its SHA-256; copy the sketch again"
                )
            self._blocks_checked[index] = True
        return content

    def verify(self) -> None:
        """Check every byte and every row."""
        for entry in self.manifest.files:
            state = hashlib.sha256()
            with open(self._open(entry), "rb") as file:
                while chunk := file.read(_CHUNK):
                    state.update(chunk)
            self._check_digest(entry, state.hexdigest())
        _ = self.heavy
        layout = self.manifest.plan.layout
        if layout is None:
            return
        sums = np.zeros(layout.sums, np.int64)
        for index in range(layout.blocks):
            sums += layout.block_sums(index, self.block(index))
        if tuple(sums.tolist()) != self.manifest.sums:
            raise FormatError(f"{self.path}: the blocks do not have the sums that the manifest states")

    # --- inside -------------------------------------------------------------------------------------------------

    @cached_property
    def _index(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Where each block begins, counted through all files, with the end of the last; and the digests of blocks."""
        layout = self.manifest.plan.layout
        assert layout is not None
        lengths = layout.block_lengths()
        rows = np.frombuffer(self._checked(INDEX_NAME), np.uint8).reshape(layout.blocks, INDEX_ENTRY)
        stated = np.ascontiguousarray(rows[:, :8]).view("<u8")[:, 0]
        sizes = [entry.size for entry in self._block_entries]
        if not _adds_up(stated, sizes) or (lengths is not None and bool(np.any(stated != lengths))):
            raise FormatError(f"{self.path / INDEX_NAME}: lengths of blocks are not those of the files")
        return np.concatenate([[0], np.cumsum(stated.astype(np.int64))]), rows[:, 8:]

    @cached_property
    def _blocks_checked(self) -> NDArray[np.bool_]:
        return np.zeros(len(self._index[0]) - 1, np.bool_)

    @property
    def _block_entries(self) -> list[FileEntry]:
        return [
            entry
            for entry in self.manifest.files[len(self.manifest.list_rows + self.manifest.cell_rows) :]
            if entry.name != INDEX_NAME
        ]

    @cached_property
    def _block_files(self) -> list[NDArray[np.uint8]]:
        """The files of blocks, memory-mapped."""
        return [self._mapped(entry) for entry in self._block_entries]

    def _mapped(self, entry: FileEntry) -> NDArray[np.uint8]:
        handle = self._open(entry)
        try:
            if entry.size == 0:
                return np.zeros(0, np.uint8)
            return np.frombuffer(mmap.mmap(handle, entry.size, access=mmap.ACCESS_READ), np.uint8)
        except (OSError, ValueError, OverflowError) as error:
            raise FormatError(f"{self.path / entry.name}: cannot be read: {error}") from None
        finally:
            os.close(handle)

    def _checked(self, name: str) -> bytes:
        """Return a file that is read whole, if its digest is right."""
        (entry,) = (entry for entry in self.manifest.files if entry.name == name)
        os.close(self._open(entry))
        content = _read(self.path / name, most=entry.size)
        self._check_digest(entry, hashlib.sha256(content).hexdigest())
        return content

    def _check_digest(self, entry: FileEntry, found: str) -> None:
        if found != entry.sha256:
            raise FormatError(
                f"{self.path / entry.name}: content does not match its SHA-256; copy the sketch again"
            )

    def _open(self, entry: FileEntry) -> int:
        """Open a file that exists with the stated size."""
        where = self.path / entry.name
        try:
            handle = _open_regular(where)
        except FileNotFoundError:
            raise FormatError(f"{where}: the file is missing; copy the sketch again") from None
        size = os.fstat(handle).st_size
        if size != entry.size:
            os.close(handle)
            raise FormatError(
                f"{where}: has {size} bytes, the manifest says {entry.size}; copy the sketch again"
            )
        return handle


def _adds_up(lengths: NDArray[np.uint64], sizes: list[int]) -> bool:
    """Return whether the blocks of each file are as long as the file."""
    if int(lengths.max(initial=0)) > 1 << 40:
        return False
    whole = lengths.astype(np.int64)
    parts = [int(whole[at : at + BLOCKS_PER_FILE].sum()) for at in range(0, len(whole), BLOCKS_PER_FILE)]
    return parts == sizes


def _open_regular(where: Path) -> int:
    """Open a regular file: a FIFO would wait for ever, a device may have no end."""
    try:
        if not stat.S_ISREG(os.stat(where).st_mode):
            raise FormatError(f"{where}: is not a regular file")
        handle = os.open(where, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FormatError(f"{where}: cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):  # pragma: no cover (replaced between the two looks)
        os.close(handle)
        raise FormatError(f"{where}: is not a regular file")
    return handle


def _read(where: Path, most: int) -> bytes:
    """Read all of a regular file of at most so many bytes."""
    handle = _open_regular(where)
    with open(handle, "rb") as file:
        size = os.fstat(handle).st_size
        if size > most:
            raise FormatError(f"{where}: has {size} bytes, more than any sketch needs")
        return file.read(most + 1)[:size]
