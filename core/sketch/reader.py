"""Reading a sketch: its files, checked. What they answer is in `answers`."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushgram.accounting.guarantee import Guarantee
from hushgram.errors import FormatError
from hushgram.sketch.answers import Answers, Total
from hushgram.sketch.manifest import BLOCKS_PER_FILE, HEAVY_NAME, MANIFEST_NAME, FileEntry, Manifest
from hushgram.sparse_histogram.kinds import TEXT
from hushgram.sparse_histogram.plan import Plan

__all__ = ["Sketch", "Total"]

_CHUNK = 1 << 24


class Sketch(Answers):
    """A released sketch on disk. `Sketch.open` checks its manifest and sizes; `verify` every byte.

    Blocks of the encoding stay on disk and are memory-mapped; the threshold part is read when first needed.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def open(cls, path: str | Path) -> Sketch:
        """Open the sketch directory at ``path``."""
        root = Path(path)
        if not root.is_dir():
            raise FormatError(f"{root}: no such sketch directory")
        try:
            content = (root / MANIFEST_NAME).read_bytes()
        except FileNotFoundError:
            raise FormatError(f"{root}: there is no {MANIFEST_NAME}; this is not a finished sketch") from None
        except OSError as error:
            raise FormatError(f"{root}: {MANIFEST_NAME} cannot be read: {error.strerror}") from None
        sketch = cls(root, Manifest.from_bytes(content, str(root / MANIFEST_NAME)))
        for entry in sketch.manifest.files:
            sketch._check_size(entry)
        return sketch

    @property
    def plan(self) -> Plan:
        """Every public number of the release."""
        return self.manifest.plan

    @property
    def guarantee(self) -> Guarantee:
        """ε, δ and their parts."""
        return self.plan.guarantee()

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(entry.size for entry in self.manifest.files) + (self.path / MANIFEST_NAME).stat().st_size

    def verify(self) -> list[FileEntry]:
        """Check the digest of every file, the released sums and the order of the heavy keys."""
        for entry in self.manifest.files:
            state = hashlib.sha256()
            with open(self.path / entry.name, "rb") as file:
                while chunk := file.read(_CHUNK):
                    state.update(chunk)
            if state.hexdigest() != entry.sha256:
                raise FormatError(
                    f"{self.path / entry.name}: content does not match its SHA-256; copy the sketch again"
                )
        sums = np.zeros(len(self.manifest.sums), np.int64)
        for block in range(0 if self.plan.space is None else self.plan.space.blocks):
            assert self.plan.space is not None
            sums += self.plan.space.check_block(block, self._block(block))
        if tuple(sums.tolist()) != self.manifest.sums:
            raise FormatError(f"{self.path}: the blocks do not have the sums that the manifest states")
        prints = self._heavy[0]
        if len(prints) > 1 and self.plan.kind is not TEXT and not bool(np.all(prints[1:] > prints[:-1])):
            raise FormatError(f"{self.path / HEAVY_NAME}: fingerprints are not sorted")
        return list(self.manifest.files)

    @cached_property
    def _heavy(self) -> tuple[NDArray[np.uint64], NDArray[np.int64], pa.LargeBinaryArray | None]:
        import pyarrow.parquet as pq

        where = self.path / HEAVY_NAME
        try:
            with pq.ParquetFile(where) as file:
                if file.metadata.num_rows != self.manifest.heavy_rows:
                    raise FormatError(
                        f"{where}: has {file.metadata.num_rows} rows, the manifest says {self.manifest.heavy_rows}"
                    )
                table = file.read()
        except (pa.ArrowException, OSError) as error:
            raise FormatError(
                f"{where}: cannot be read as Parquet ({str(error).splitlines()[0][:80]}); copy the sketch again"
            ) from None
        wanted = {"fingerprint": pa.uint64(), "value": pa.int64()}
        if self.plan.kind.texts:
            wanted["key"] = pa.binary()
        for name, kind in wanted.items():
            if name not in table.column_names or (table.schema.field(name).type != kind):
                raise FormatError(f"{where}: column {name!r} must be there as {kind}")
        prints, values = (table[name].to_numpy() for name in ("fingerprint", "value"))
        texts = table["key"].combine_chunks().cast(pa.large_binary()) if "key" in wanted else None
        return prints, values, texts

    @cached_property
    def _files(self) -> list[NDArray[np.uint8]]:
        """The files of blocks, memory-mapped."""
        names = [entry.name for entry in self.manifest.files if entry.name != HEAVY_NAME]
        return [np.memmap(self.path / name, dtype=np.uint8, mode="r") for name in names]

    @cached_property
    def _block_starts(self) -> NDArray[np.int64]:
        """Where each block begins, counted through all files, and where the last one ends."""
        space = self.plan.space
        lengths = [] if space is None else [space.block_length(block) or 0 for block in range(space.blocks)]
        return np.cumsum([0, *lengths])

    def _block(self, index: int) -> NDArray[np.uint8]:
        """The released bytes of a block."""
        file, starts = index // BLOCKS_PER_FILE, self._block_starts
        before = starts[file * BLOCKS_PER_FILE]
        return self._files[file][starts[index] - before : starts[index + 1] - before]

    def _check_size(self, entry: FileEntry) -> None:
        where = self.path / entry.name
        try:
            size = where.stat().st_size
        except OSError:
            raise FormatError(f"{where}: the file is missing; copy the sketch again") from None
        if size != entry.size:
            raise FormatError(
                f"{where}: has {size} bytes, the manifest says {entry.size}; copy the sketch again"
            )

    def __repr__(self) -> str:
        return f"Sketch({str(self.path)!r}, {self.manifest.heavy_rows} heavy keys, {self.plan.bits // 8} bytes encoded)"
