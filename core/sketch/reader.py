"""A released sketch on disk: `answers` says what it tells, `storage` reads and checks its files."""

from __future__ import annotations

import json
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushgram.accounting.guarantee import Guarantee
from hushgram.errors import FormatError, HushgramError
from hushgram.sketch.answers import Answers, Total
from hushgram.sketch.manifest import FileEntry
from hushgram.sketch.storage import Storage
from hushgram.sparse_histogram.plan import Plan

__all__ = ["Sketch", "Total"]


class Sketch(Answers):
    """A released sketch on disk. `Sketch.open` checks its manifest and sizes; `verify` every byte.

    Blocks of the encoding stay on disk and are checked when a lookup needs them; the threshold part is read, and
    checked, when first needed.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.path = storage.path
        self.manifest = storage.manifest

    @classmethod
    def open(cls, path: str | Path) -> Sketch:
        """Open the sketch directory at ``path``."""
        return cls(Storage(Path(path)))

    @property
    def plan(self) -> Plan:
        """Every public number of the release."""
        return self.manifest.plan

    @property
    def guarantee(self) -> Guarantee:
        """ε, δ and their parts."""
        try:
            return self.plan.guarantee()
        except (HushgramError, ArithmeticError) as error:
            raise FormatError(f"{self.path}: the manifest contradicts itself: {error}") from None

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(entry.size for entry in self.manifest.files) + len(self._storage.manifest_content)

    @property
    def manifest_json(self) -> dict[str, Any]:
        """The manifest as it stands in its file."""
        body: dict[str, Any] = json.loads(self._storage.manifest_content)
        return body

    def verify(self) -> list[FileEntry]:
        """Check the digest of every file, every row of the threshold part and the released sums."""
        self._storage.verify()
        return list(self.manifest.files)

    @cached_property
    def _heavy(self) -> tuple[NDArray[np.uint64], NDArray[np.int64], pa.LargeBinaryArray | None]:
        heavy = self._storage.heavy
        return heavy.fingerprints, heavy.values, heavy.texts

    def _block(self, index: int) -> NDArray[np.uint8]:
        return self._storage.block(index)

    def _repr_html_(self) -> str:
        """For notebooks: the guarantee, what was released, and from which count on it says something."""
        name = escape(self.manifest.release or self.path.name)
        lines = [self.guarantee.sentence(), self.sizes_in_words(), self.resolution().sentence()]
        rows = "".join(f"<li>{escape(line)}</li>" for line in lines)
        return f"<div><strong>hushgram sketch {name}</strong>, {self.size:,} bytes<ul>{rows}</ul></div>"

    def __repr__(self) -> str:
        return f"Sketch({str(self.path)!r}, {self.manifest.heavy_rows} heavy keys, {self.plan.bits // 8} bytes encoded)"
