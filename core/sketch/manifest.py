"""The manifest of a sketch: what FORMAT.md specifies, and nothing else, is here.

A reader trusts no size before it is checked against the file, never unpickles, and names the field that is wrong.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.encodings import ENCODINGS
from hushgram.errors import FormatError, HushgramError, check_name, is_name
from hushgram.numbers import integer, show
from hushgram.sparse_histogram.plan import Plan

__all__ = [
    "BLOCKS_PER_FILE", "FORMAT", "INDEX_ENTRY", "INDEX_NAME", "KEYS_PER_FILE", "LARGEST_MANIFEST", "MANIFEST_NAME",
    "VERSION", "FileEntry", "Manifest", "blocks_name", "list_files", "list_names", "listed_bits",
]  # fmt: skip

FORMAT = "hushgram-sketch"
VERSION = 6
MANIFEST_NAME = "manifest.json"
INDEX_NAME = "blocks.index"
#: Blocks in one file: 128 MiB of ALP's.
BLOCKS_PER_FILE = 1024
#: Where more keys are listed, they are in several files, with at most so many on average. A power of two.
KEYS_PER_FILE = 1 << 21
#: Bytes of a block in the index: its length (8), its SHA-256 (32).
INDEX_ENTRY = 40
KEY_CANON = "text as UTF-8, bytes as they are, whole numbers as decimal text"
KEY_HASH = "MurmurHash3 x64 128, seed 0, first 64 bits little-endian"
#: No manifest needs more.
LARGEST_MANIFEST = 4 << 20
_LARGEST_FILE = 1 << 50
_SUM = 1 << 62
_HEX = re.compile(r"[0-9a-f]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def blocks_name(index: int) -> str:
    """Name of a file of blocks."""
    return f"blocks-{index:05d}.bin"


def list_files(rows: int) -> int:
    """Return in how many files so many listed keys are written: the least power of two with few enough in each.

    >>> list_files(0), list_files(1 << 21), list_files((1 << 21) + 1), list_files(10**8)
    (1, 1, 2, 64)
    """
    return 1 << max((rows - 1).bit_length() - (KEYS_PER_FILE.bit_length() - 1), 0)


def list_names(files: int, *, texts: bool) -> list[str]:
    """Names of so many files of listed keys, by whether these have texts."""
    suffix = "parquet" if texts else "bin"
    return [f"heavy.{suffix}"] if files == 1 else [f"heavy-{i:05d}.{suffix}" for i in range(files)]


def listed_bits(plan: Plan, *, cells: bool = False) -> int:
    """Return the bits of the number that identifies a listed key, or a cell in a list of cells beside texts."""
    if plan.domain_bits is None or (plan.selection.texts and not cells):
        return 64
    whole = None if plan.top is None else plan.top.domain_bits
    return plan.domain_bits if whole is None else whole + 1


@dataclass(frozen=True)
class FileEntry:
    """One file of the sketch: its name, size and SHA-256."""

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, name: str, content: bytes | memoryview) -> FileEntry:
        """Return the entry of a file with this content."""
        return cls(name, len(content), hashlib.sha256(content).hexdigest())


@dataclass(frozen=True)
class Manifest:
    """Everything that the manifest says."""

    plan: Plan
    seeds: NDArray[np.uint64]
    sums: tuple[int, ...]
    # how many keys each file of listed keys has, and each file of cells beside named keys (empty where there are none)
    list_rows: tuple[int, ...]
    cell_rows: tuple[int, ...]
    files: tuple[FileEntry, ...]  # those of listed keys first
    release: str = ""
    key_expression: str = ""  # how keys were made from columns; empty where a column was taken as it is

    def __post_init__(self) -> None:
        check_name(self.release, "the name of a release")

    @property
    def heavy_rows(self) -> int:
        """Return the number of listed keys."""
        return sum(self.list_rows)

    def to_bytes(self) -> bytes:
        """Return the file's content: canonical JSON with a checksum of itself."""
        body = self._body()
        body["checksum"] = _checksum(body)
        return (json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()

    def _body(self) -> dict[str, Any]:
        guarantee = self.plan.guarantee()
        return {
            "format": FORMAT,
            "version": VERSION,
            "release": self.release,
            "hashing": {"canonical": KEY_CANON, "hash": KEY_HASH}
            | ({"key_expression": self.key_expression} if self.key_expression else {}),
            "guarantee": {
                "epsilon": show(guarantee.epsilon),
                "delta": show(guarantee.delta),
                "unit": guarantee.unit,
                "relation": guarantee.relation,
                "parts": {part.kind: [show(part.epsilon), show(part.delta)] for part in guarantee.parts},
                "sentence": guarantee.sentence(),
            },
            "plan": self.plan.to_dict(),
            "seeds": [[f"{int(seed):016x}" for seed in row] for row in self.seeds],
            "sums": list(self.sums),
            "heavy": {"rows": self.heavy_rows}
            | ({"files": list(self.list_rows)} if len(self.list_rows) > 1 else {})
            | ({"cells": list(self.cell_rows)} if self.cell_rows else {}),
            "files": [{"name": f.name, "size": f.size, "sha256": f.sha256} for f in self.files],
        }

    @classmethod
    def from_bytes(cls, content: bytes, where: str) -> Manifest:
        """Read and check; ``where`` is named in errors."""
        try:
            body = json.loads(content.decode())
        except (ValueError, RecursionError):
            raise FormatError(
                f"{where}: manifest is not valid JSON; the file is damaged, copy the sketch again"
            ) from None
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise FormatError(f"{where}: this is not a hushgram sketch (field 'format')")
        version = body.get("version")
        if version != VERSION or type(version) is not int:
            raise FormatError(
                f"{where}: format version {str(version)[:40]!r} is not known here ({VERSION} is); use the"
                " hushgram that wrote it, or update this one"
            )
        try:
            stated, found = body.pop("checksum", None), _checksum(body)
        except (UnicodeEncodeError, RecursionError):
            stated = found = None
        if found is None or stated != found:
            raise FormatError(
                f"{where}: manifest does not match its checksum; it was altered or damaged, copy the sketch again"
            )
        try:
            return cls._from_body(body, where)
        except FormatError as error:
            raise FormatError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None
        except HushgramError as error:
            raise FormatError(f"{where}: a number in the manifest is wrong: {error}") from None
        except KeyError as error:
            raise FormatError(f"{where}: manifest field {error} is missing") from None
        except (TypeError, ValueError, AttributeError, ArithmeticError, IndexError) as error:
            reason = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
            raise FormatError(f"{where}: a field of the manifest is wrong: {reason}") from None

    @classmethod
    def _from_body(cls, body: Mapping[str, Any], where: str) -> Manifest:
        encoding = body["plan"]["encoding"]
        if encoding is not None and encoding not in ENCODINGS:
            raise FormatError(
                f"{where}: encoding {str(encoding)[:40]!r} is not known here ({', '.join(ENCODINGS)} can be"
                " read); update hushgram"
            )
        plan = Plan.from_dict(body["plan"])
        layout = plan.layout
        release = body["release"]
        if not is_name(release):
            raise FormatError(f"{where}: manifest field 'release' must be a name of printable characters")
        hashing = body.get("hashing", {})
        key_expression = hashing.get("key_expression", hashing.get("recipe", ""))  # its name before 0.3
        if not isinstance(key_expression, str) or (key_expression and not _is_key_expression(key_expression)):
            raise FormatError(
                f"{where}: manifest field 'hashing.key_expression' is not a key expression; update hushgram"
            )
        manifest = cls(
            plan,
            _seeds(body["seeds"], 0 if layout is None else layout.hashes),
            _sums(body["sums"], 0 if layout is None else layout.sums),
            (list_rows := _list_rows(body["heavy"])),
            _cell_rows(body["heavy"], plan, len(list_rows)),
            tuple(_entry(file) for file in body["files"]),
            release,
            key_expression,
        )
        if layout is not None:
            layout.check_sums(manifest.sums)
        manifest._check_files(where)
        return manifest

    def _check_files(self, where: str) -> None:
        if len(self.list_rows) > 1 << listed_bits(self.plan, cells=True):
            raise FormatError(f"{where}: manifest field 'heavy' states more files than the domain has cells")
        expected = self.expected_files()
        if [file.name for file in self.files] != list(expected):
            raise FormatError(f"{where}: manifest field 'files' must name {', '.join(expected)[:200]}")
        for file in self.files:
            if expected[file.name] not in (None, file.size):
                raise FormatError(
                    f"{where}: manifest says {file.size} bytes for {file.name},"
                    f" the encoding needs {expected[file.name]}"
                )

    def expected_files(self) -> dict[str, int | None]:
        """Return names, and sizes where the encoding fixes them, of all files but the manifest."""
        names = list_names(len(self.list_rows), texts=self.plan.selection.texts)
        out: dict[str, int | None] = dict.fromkeys(names)
        if self.cell_rows:
            out |= dict.fromkeys(list_names(len(self.cell_rows), texts=False))
        layout = self.plan.layout
        if layout is None:
            return out
        out[INDEX_NAME] = layout.blocks * INDEX_ENTRY
        lengths = layout.block_lengths()
        for start in range(0, layout.blocks, BLOCKS_PER_FILE):
            size = None if lengths is None else int(lengths[start : start + BLOCKS_PER_FILE].sum())
            out[blocks_name(start // BLOCKS_PER_FILE)] = size
        return out


def _is_key_expression(text: str) -> bool:
    from hushgram.inputs.key_expressions import (
        parse_key_expression,  # with all parsers, which few sketches need
    )

    return parse_key_expression(text) is not None


def _list_rows(heavy: Mapping[str, Any]) -> tuple[int, ...]:
    rows = integer(heavy["rows"], "rows", "heavy", low=0, high=1 << 40)
    files = heavy.get("files", [rows])
    found = tuple(integer(each, "files", "heavy", low=0, high=rows) for each in files)
    if sum(found) != rows or len(found).bit_count() != 1 or ("files" in heavy) != (len(found) > 1):
        raise ValueError("'heavy.files': a power of two of numbers that add up to 'heavy.rows' is needed")
    return found


def _cell_rows(heavy: Mapping[str, Any], plan: Plan, files: int) -> tuple[int, ...]:
    if plan.top is None or plan.sub_cells:
        return ()
    if not isinstance(heavy["cells"], list) or len(heavy["cells"]) != files:
        raise ValueError("'heavy.cells': a number for each file of listed keys is needed")
    return tuple(integer(each, "cells", "heavy", low=0, high=1 << 40) for each in heavy["cells"])


def _seeds(rows: Any, hashes: int) -> NDArray[np.uint64]:
    good = isinstance(rows, list) and len(rows) == hashes and all(len(row) == 3 for row in rows)
    if not good or not all(len(seed) == 16 and _HEX.fullmatch(seed) for row in rows for seed in row):
        raise ValueError(f"'seeds': {hashes} rows of three 16-digit hexadecimal numbers are needed")
    return np.array([[int(seed, 16) for seed in row] for row in rows], np.uint64).reshape(hashes, 3)


def _sums(numbers: Any, count: int) -> tuple[int, ...]:
    if not isinstance(numbers, list) or len(numbers) != count:
        raise ValueError(f"'sums': {count} whole numbers are needed")
    return tuple(integer(number, "sums", "manifest", low=-_SUM, high=_SUM) for number in numbers)


def _entry(file: Mapping[str, Any]) -> FileEntry:
    name, sha256 = file["name"], file["sha256"]
    if not isinstance(name, str) or not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ValueError("'files': names are text, digests 64 hexadecimal digits")
    return FileEntry(name, integer(file["size"], "size", "files", low=0, high=_LARGEST_FILE), sha256)


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(
        json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    ).hexdigest()
