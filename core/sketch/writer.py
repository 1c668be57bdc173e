"""Writing a sketch: every file from released numbers alone, the manifest last, visible by one rename.

The functions that make the content of files are shared by the library and the Beam job, so that both write the same
bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hushgram.encodings import EncodedBlock
from hushgram.publishing import check_free, new_directory, put_file
from hushgram.sketch.heavy import heavy_bytes
from hushgram.sketch.manifest import (
    BLOCKS_PER_FILE,
    HEAVY_NAME,
    INDEX_NAME,
    MANIFEST_NAME,
    FileEntry,
    Manifest,
    blocks_name,
)
from hushgram.sparse_histogram.plan import Plan
from hushgram.sparse_histogram.threshold import Heavy

__all__ = ["BlockFile", "added_up", "write_sketch"]


@dataclass(frozen=True)
class BlockFile:
    """One file of blocks: its content, its part of the index, and its share of the released sums."""

    number: int
    content: bytes
    index: bytes
    sums: tuple[int, ...]

    @classmethod
    def of(cls, number: int, blocks: Sequence[EncodedBlock]) -> BlockFile:
        """The file that holds these blocks, in their order."""
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
) -> Path:
    """Write all files of a sketch into a temporary directory beside ``path``, then rename it."""
    target = check_free(path)
    with new_directory(target) as work:
        files = [_put(work, HEAVY_NAME, heavy_bytes(heavy))]
        index: list[bytes] = []
        sums: list[tuple[int, ...]] = []
        for file in _block_files(blocks):
            files.append(_put(work, blocks_name(file.number), file.content))
            index.append(file.index)
            sums.append(file.sums)
        if plan.space is not None:
            files.insert(1, _put(work, INDEX_NAME, b"".join(index)))
        manifest = Manifest(plan, seeds, added_up(sums), len(heavy), tuple(files), release)
        _put(work, MANIFEST_NAME, manifest.to_bytes())
    return target


def added_up(sums: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The sums of all files together."""
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
