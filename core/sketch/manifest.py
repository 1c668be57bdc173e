"""The manifest of a sketch, version 1: what FORMAT.md specifies, and nothing else, is here.

A reader trusts no size before it is checked against the file, never unpickles, and names the field that is wrong.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.encodings import HOMES as ENCODINGS
from hushgram.errors import FormatError, HushgramError
from hushgram.numbers import show
from hushgram.sparse_histogram.plan import Plan

__all__ = [
    "BLOCKS_PER_FILE",
    "FORMAT",
    "HEAVY_NAME",
    "MANIFEST_NAME",
    "VERSION",
    "FileEntry",
    "Manifest",
    "bits_name",
]

FORMAT = "hushgram-sketch"
VERSION = 1
MANIFEST_NAME = "manifest.json"
HEAVY_NAME = "heavy.parquet"
#: Blocks of 2^20 bits in one bits file: 128 MiB.
BLOCKS_PER_FILE = 1024
KEY_CANON = "text as UTF-8, bytes as they are, whole numbers as decimal text"
KEY_HASH = "MurmurHash3 x64 128, seed 0, first 64 bits little-endian"
_LARGEST_MANIFEST = 64 << 20


def bits_name(index: int) -> str:
    """Name of a file of column bits."""
    return f"bits-{index:05d}.bin"


@dataclass(frozen=True)
class FileEntry:
    """One file of the sketch: its name, size and SHA-256."""

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, name: str, content: bytes | memoryview) -> FileEntry:
        """The entry of a file with this content."""
        return cls(name, len(content), hashlib.sha256(content).hexdigest())


@dataclass(frozen=True)
class Manifest:
    """Everything that the manifest says."""

    plan: Plan
    seeds: NDArray[np.uint64]
    sums: tuple[int, ...]
    heavy_rows: int
    files: tuple[FileEntry, ...]
    release: str = ""

    def to_bytes(self) -> bytes:
        """The file's content: canonical JSON with a checksum of itself."""
        body = self._body()
        body["checksum"] = _checksum(body)
        return (json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()

    def _body(self) -> dict[str, Any]:
        guarantee = self.plan.guarantee()
        return {
            "format": FORMAT,
            "version": VERSION,
            "encoding": "alp-1" if self.plan.space is None else self.plan.space.encoding,
            "release": self.release,
            "keys": {"canonical": KEY_CANON, "hash": KEY_HASH},
            "guarantee": {
                "epsilon": show(guarantee.epsilon),
                "delta": show(guarantee.delta),
                "parts": {part.name: [show(part.epsilon), show(part.delta)] for part in guarantee.parts},
                "sentence": guarantee.sentence(),
            },
            "plan": (plan := self.plan.as_text()),
            "columns": [
                {"bits": bits, "ones": ones, "seeds": [f"{int(seed):016x}" for seed in seeds]}
                for bits, ones, seeds in zip(plan["column_sizes"], self.sums, self.seeds, strict=True)
            ],
            "heavy": {"rows": self.heavy_rows},
            "files": [{"name": f.name, "size": f.size, "sha256": f.sha256} for f in self.files],
        }

    @classmethod
    def from_bytes(cls, content: bytes, where: str) -> Manifest:
        """Read and check; ``where`` is named in errors."""
        if len(content) > _LARGEST_MANIFEST:
            raise FormatError(f"{where}: manifest has {len(content)} bytes, more than any sketch needs")
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            raise FormatError(
                f"{where}: manifest is not valid JSON; the file is damaged, copy the sketch again"
            ) from None
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise FormatError(f"{where}: this is not a hushgram sketch (field 'format')")
        if body.get("version") != VERSION:
            raise FormatError(
                f"{where}: format version {body.get('version')!r} is not known here (version {VERSION} is);"
                " update hushgram to read it"
            )
        if body.get("encoding") not in ENCODINGS:
            raise FormatError(
                f"{where}: encoding {body.get('encoding')!r} is not known here ({', '.join(ENCODINGS)} can be read);"
                " update hushgram"
            )
        if body.pop("checksum", None) != _checksum(body):
            raise FormatError(
                f"{where}: manifest does not match its checksum; it was altered or damaged, copy the sketch again"
            )
        try:
            return cls._from_body(body, where)
        except FormatError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, HushgramError) as error:
            raise FormatError(f"{where}: manifest field {_shortly(error)} is missing or wrong") from None

    @classmethod
    def _from_body(cls, body: Mapping[str, Any], where: str) -> Manifest:
        plan = Plan.from_text(body["plan"], body["encoding"])
        sizes = plan.as_text()["column_sizes"]
        columns: Sequence[Mapping[str, Any]] = body["columns"]
        if [column["bits"] for column in columns] != sizes:
            raise FormatError(f"{where}: manifest field 'columns' disagrees with 'plan.column_sizes'")
        seeds = np.array([[int(seed, 16) for seed in column["seeds"]] for column in columns], dtype=np.uint64)
        ones = tuple(int(column["ones"]) for column in columns)
        if any(not 0 <= one <= size for one, size in zip(ones, sizes, strict=True)):
            raise FormatError(f"{where}: manifest field 'columns.ones' is larger than its column")
        files = tuple(FileEntry(str(f["name"]), int(f["size"]), str(f["sha256"])) for f in body["files"])
        manifest = cls(
            plan,
            seeds.reshape(len(columns), 3),
            ones,
            int(body["heavy"]["rows"]),
            files,
            str(body["release"]),
        )
        expected = manifest.expected_files()
        if [f.name for f in files] != list(expected):
            raise FormatError(f"{where}: manifest field 'files' must name {', '.join(expected)}")
        for entry in files:
            if expected[entry.name] not in (None, entry.size):
                raise FormatError(
                    f"{where}: manifest says {entry.size} bytes for {entry.name},"
                    f" the columns need {expected[entry.name]}"
                )
        return manifest

    def expected_files(self) -> dict[str, int | None]:
        """Names, and sizes where the encoding fixes them, of all files but the manifest."""
        out: dict[str, int | None] = {HEAVY_NAME: None}
        space = self.plan.space
        for start in range(0, 0 if space is None else space.blocks, BLOCKS_PER_FILE):
            assert space is not None
            blocks = range(start, min(start + BLOCKS_PER_FILE, space.blocks))
            lengths = [space.block_length(block) for block in blocks]
            known = [length for length in lengths if length is not None]
            out[bits_name(start // BLOCKS_PER_FILE)] = sum(known) if len(known) == len(lengths) else None
        return out


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(
        json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    ).hexdigest()


def _shortly(error: BaseException) -> str:
    return str(error).splitlines()[0][:100] if str(error) else type(error).__name__
