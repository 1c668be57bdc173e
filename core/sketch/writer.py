"""Writing a sketch: every file from released numbers alone, the manifest last, visible by one rename.

The functions that make the content of files are shared by the library and the Beam job, so that both write the same
bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hushgram.encodings import EncodedBlock
from hushgram.publishing import check_free, new_directory, put_file
from hushgram.sketch.manifest import (
    BLOCKS_PER_FILE,
    HEAVY_NAME,
    MANIFEST_NAME,
    FileEntry,
    Manifest,
    bits_name,
)
from hushgram.sparse_histogram.plan import Plan
from hushgram.sparse_histogram.threshold import Heavy

__all__ = ["heavy_bytes", "write_sketch"]

_ROWS_PER_GROUP = 1 << 17


def heavy_bytes(heavy: Heavy) -> bytes:
    """The threshold part as Parquet: sorted fingerprints as packed differences, values packed, texts at δ > 0."""
    columns: dict[str, pa.Array] = {
        "fingerprint": pa.array(heavy.fingerprints.astype(np.uint64), pa.uint64()),
        "value": pa.array(heavy.values.astype(np.int64), pa.int64()),
    }
    encodings = {"fingerprint": "DELTA_BINARY_PACKED", "value": "DELTA_BINARY_PACKED"}
    if heavy.texts is not None:
        columns["key"] = heavy.texts.cast(pa.binary())
        encodings["key"] = "DELTA_BYTE_ARRAY"
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table(columns),
        sink,
        use_dictionary=False,
        column_encoding=encodings,
        compression="zstd",
        write_statistics=False,
        row_group_size=_ROWS_PER_GROUP,
        store_schema=False,
    )
    return bytes(sink.getvalue())


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
        sums = np.zeros(0 if plan.space is None else plan.space.sums, np.int64)
        for index, content in _block_files(blocks, sums):
            files.append(_put(work, bits_name(index), content))
        manifest = Manifest(plan, seeds, tuple(sums.tolist()), len(heavy), tuple(files), release)
        _put(work, MANIFEST_NAME, manifest.to_bytes())
    return target


def _block_files(blocks: Iterable[EncodedBlock], sums: NDArray[np.int64]) -> Iterator[tuple[int, bytes]]:
    """Contents of the files of blocks in order, adding up the released sums on the way."""
    held: list[bytes] = []
    index = 0
    for block in blocks:
        sums += block.sums
        held.append(block.content.tobytes())
        if len(held) == BLOCKS_PER_FILE:
            yield index, b"".join(held)
            held, index = [], index + 1
    if held:
        yield index, b"".join(held)


def _put(work: Path, name: str, content: bytes) -> FileEntry:
    put_file(work / name, content)
    return FileEntry.of(name, content)
