"""Shard batches as bytes: arrays side by side, no pickle; in memory, or spilled to files of one machine.

A batch crosses the shuffle as its numpy buffers, one after another, behind a header that says how long each
is. Reading copies nothing: arrays are views of the bytes that came in. Counts travel in the narrowest integer
that holds them, and not at all where every one is 1, which is nearly always.

Importing this module registers the coders, so that a type hint such as ``tuple[int, Histogram]`` chooses
them.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam import coders
from numpy.typing import NDArray

from hushgram.contributions.bounding import Contributions
from hushgram.contributions.histogram import Histogram, KeyTable, text_buffers
from hushgram.encodings import CellPart, EncodedBlock
from hushgram.errors import OutputError
from hushgram.inputs import Check, Limits, RecordCounts
from hushgram.inputs.preflight import Place
from hushgram.key_selection.threshold import Heavy
from hushgram.sensitivity import CONSTANT, PRIVACY_UNITS, Sensitivity
from hushgram.sparse_histogram.plan import Plan
from hushgram.sparse_histogram.sizing import Survey
from hushgram.sparse_histogram.steps import PlannedRelease
from hushgram.transforms.shuffle.combining import Tally

__all__ = [
    "ArraysCoder", "BatchCoder", "BlockParts", "ContributionsCoder", "HistogramCoder", "SpillWriter", "SpilledBatch",
    "Spilling", "SurveyCoder", "TallyCoder", "close_spill_files", "pack_arrays", "pack_buffers", "register",
    "unpack_arrays",
]  # fmt: skip

_DTYPES = tuple(np.dtype(name) for name in ("<u1", "<u2", "<u4", "<u8", "<i8"))
_CODE = {dtype: code for code, dtype in enumerate(_DTYPES)}
_ENTRY = struct.Struct("<BxxxxxxxQ")
_COUNT = struct.Struct("<Q")

Array = NDArray[Any]


def pack_buffers(arrays: list[Array]) -> list[Any]:
    """Return arrays of the types above as buffers to be written one after another, each aligned to eight bytes."""
    head = [_COUNT.pack(len(arrays))]
    body: list[Any] = []
    for array in arrays:
        head.append(_ENTRY.pack(_CODE[array.dtype], len(array)))
        if len(array):
            body.append(np.ascontiguousarray(array).data.cast("B"))
            body.append(bytes(-array.nbytes % 8))
    return [b"".join(head), *body]


def pack_arrays(arrays: list[Array]) -> bytes:
    """Return the arrays as one string of bytes."""
    return b"".join(pack_buffers(arrays))


def unpack_arrays(content: bytes) -> list[Array]:
    """Return the arrays that `pack_arrays` packed, as read-only views."""
    (count,) = _COUNT.unpack_from(content)
    at = _COUNT.size + count * _ENTRY.size
    out: list[Array] = []
    for i in range(count):
        code, length = _ENTRY.unpack_from(content, _COUNT.size + i * _ENTRY.size)
        array = np.frombuffer(content, _DTYPES[code], length, at) if length else np.zeros(0, _DTYPES[code])
        out.append(array)
        at += array.nbytes + -array.nbytes % 8
    return out


def _narrow(values: Array) -> Array:
    """Return values in the narrowest unsigned type; an empty array where all are 1."""
    if not len(values):
        return values.astype("<u1")
    least, most = int(values.min()), int(values.max())
    if least == most == 1:
        return np.zeros(0, "<u1")
    if least < 0:
        return values.astype("<i8", copy=False)
    return values.astype(next(dtype for dtype in _DTYPES if most <= np.iinfo(dtype).max), copy=False)


def _widen(values: Array, rows: int) -> NDArray[np.int64]:
    return values.astype(np.int64) if len(values) else np.ones(rows, np.int64)


def _pack_texts(texts: pa.LargeBinaryArray) -> list[Array]:
    lengths, data = text_buffers(texts)
    return [lengths.astype("<u8" if len(lengths) and lengths.max() >= 1 << 32 else "<u4"), data]


def _unpack_texts(lengths: Array, data: Array) -> pa.LargeBinaryArray:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(
        pa.large_binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _pack_bounds(value: Sensitivity) -> Array:
    numbers = (value.max_contributions, value.max_per_key, PRIVACY_UNITS.index(value.unit), value.monotone)
    return np.array([*numbers, value.classes, value.l2_bound or 0, value.l0_bound or 0, value.halves], "<u8")


def _unpack_bounds(packed: Array) -> Sensitivity:
    most, per_key, unit, monotone, classes, l2, l0, halves = packed.tolist()
    if not most:
        return CONSTANT
    bounds = (l2 or None, l0 or None, bool(halves))
    return Sensitivity(most, per_key, PRIVACY_UNITS[unit], bool(monotone), classes, *bounds)


class _KindCoder(coders.Coder):
    """A deterministic coder for one class."""

    kind: type = object

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> type:
        return self.kind


class BatchCoder(_KindCoder):
    """A batch of records, as an Arrow stream."""

    kind = pa.RecordBatch

    def estimate_size(self, value: pa.RecordBatch) -> int:
        return int(value.nbytes)  # without this, Beam encodes some batches only to measure them

    def encode(self, value: pa.RecordBatch) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as stream:
            stream.write_batch(value)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    def decode(self, encoded: bytes) -> pa.RecordBatch:
        with pa.ipc.open_stream(encoded) as stream:
            return stream.read_next_batch()


class TallyCoder(_KindCoder):
    """Limits and counts as JSON."""

    kind = Tally

    def encode(self, value: Tally) -> bytes:
        check, counts = value.check, value.counts
        share, rows = check.limits.max_rejected_share, check.limits.min_rows
        limits = [str(share), rows, check.subject, check.hint, check.group]
        return json.dumps([limits, counts.rows, counts.rejected, counts.places], sort_keys=True).encode()

    def decode(self, encoded: bytes) -> Tally:
        (share, least, *words), rows, rejected, places = json.loads(encoded)
        check = Check(Limits(Fraction(share), least), *words)
        found = {reason: Place(*place) for reason, place in places.items()}
        return Tally(check, RecordCounts(rows, rejected, found))


class ArraysCoder(_KindCoder):
    """A coder for a class that is a few arrays; tallies travel among them, behind a header of no arrays."""

    def to_arrays(self, value: Any) -> list[Array]:
        raise NotImplementedError

    def from_arrays(self, arrays: list[Array]) -> Any:
        raise NotImplementedError

    def load(self, kept: Any) -> Any:
        """Return a value that may be spilled, or bytes (`Spilling.sent`)."""
        kept = kept.read() if isinstance(kept, SpilledBatch) else kept
        return self.decode(kept) if isinstance(kept, bytes) else kept

    def encode(self, value: Any) -> bytes:
        if isinstance(value, Tally):
            return _COUNT.pack(0) + TallyCoder().encode(value)
        return pack_arrays(self.to_arrays(value))

    def decode(self, encoded: bytes) -> Any:
        if encoded[: _COUNT.size] == _COUNT.pack(0) and len(encoded) > _COUNT.size:
            return TallyCoder().decode(encoded[_COUNT.size :])
        return self.from_arrays(unpack_arrays(encoded))


class ContributionsCoder(ArraysCoder):
    """Encode 24 bytes per row at δ = 0; 20 and each text once at δ > 0. Users of ordered rows are encoded once each."""

    kind = Contributions

    def to_arrays(self, value: Contributions) -> list[Array]:
        counts = value.counts
        several = _narrow(counts) if counts.ndim == 1 else np.ascontiguousarray(counts, "<i8").ravel()
        marks = np.array([value.ordered], "<u1")
        users = [value.user_high, value.user_low]
        if value.ordered:
            starts = value.first_rows()
            users = [*(half[starts] for half in users), _narrow(np.diff(starts, append=len(value)))]
        if value.table is None:
            return [marks, *users, value.keys, several]
        table = [value.table.fingerprints, *_pack_texts(value.table.texts)]
        return [marks, *users, _index(value.keys), several, *table]

    def from_arrays(self, arrays: list[Array]) -> Contributions:
        marks, high, low, *rest = arrays
        if marks[0]:
            number, *rest = rest
            number = _widen(number, len(high))
            high, low = np.repeat(high, number), np.repeat(low, number)
        keys, counts, *rest = rest
        table = KeyTable(rest[0], _unpack_texts(rest[1], rest[2])) if rest else None
        each = counts.reshape(len(high), -1) if len(counts) > len(high) else _widen(counts, len(high))
        keys = keys.astype(np.uint64, copy=False)
        return Contributions(high, low, keys, each, table, bool(marks[0]))


class HistogramCoder(ArraysCoder):
    """A part of the exact histogram."""

    kind = Histogram

    def to_arrays(self, value: Histogram) -> list[Array]:
        texts = [] if value.texts is None else _pack_texts(value.texts)
        return [_pack_bounds(value.sensitivity), value.fingerprints, _narrow(value.counts), *texts]

    def from_arrays(self, arrays: list[Array]) -> Histogram:
        bounds, prints, counts, *packed = arrays
        texts = _unpack_texts(*packed) if packed else None
        return Histogram(prints, _widen(counts, len(prints)), texts, _unpack_bounds(bounds))


class HeavyCoder(ArraysCoder):
    """A part of the threshold release."""

    kind = Heavy

    def to_arrays(self, value: Heavy) -> list[Array]:
        texts = [] if value.texts is None else _pack_texts(value.texts)
        cells = [] if value.cells is None else self.to_arrays(value.cells)
        return [value.fingerprints, _narrow(value.values), *texts, *cells]

    def from_arrays(self, arrays: list[Array]) -> Heavy:
        prints, values, *texts = arrays
        cells = self.from_arrays(texts[2:]) if len(texts) > 2 else None
        return Heavy(prints, _widen(values, len(prints)), _unpack_texts(*texts[:2]) if texts else None, cells)


class SurveyCoder(ArraysCoder):
    """Exact sizes and digests of a part."""

    kind = Survey

    def to_arrays(self, value: Survey) -> list[Array]:
        shards = np.array([shard for shard, _ in value.digests], "<u2")
        digests = np.frombuffer(b"".join(digest for _, digest in value.digests), np.uint8)
        records, profile = np.array([value.records], "<i8"), value.profile.astype("<i8", copy=False)
        return [_pack_bounds(value.sensitivity), records, profile, shards, digests]

    def from_arrays(self, arrays: list[Array]) -> Survey:
        bounds, records, profile, shards, digests = arrays
        each = (row.tobytes() for row in digests.reshape(len(shards), -1))
        numbered = tuple(zip(shards.tolist(), each, strict=True))
        return Survey(int(records[0]), profile, numbered, _unpack_bounds(bounds))


class PlanCoder(_KindCoder):
    """A plan as the JSON that the manifest holds."""

    kind = Plan

    def encode(self, value: Plan) -> bytes:
        return json.dumps(value.to_dict(), sort_keys=True).encode()

    def decode(self, encoded: bytes) -> Plan:
        return _decoded_plan(encoded)


@lru_cache(maxsize=8)
def _decoded_plan(encoded: bytes) -> Plan:
    """Return a plan, parsed and checked once per process however many stages take it."""
    return Plan.from_dict(json.loads(encoded))


class PlannedReleaseCoder(_KindCoder):
    """The digest, then the plan."""

    kind = PlannedRelease

    def encode(self, value: PlannedRelease) -> bytes:
        return value.data_digest + PlanCoder().encode(value.plan)

    def decode(self, encoded: bytes) -> PlannedRelease:
        return PlannedRelease(PlanCoder().decode(encoded[32:]), encoded[:32])


def _index(values: Array) -> Array:
    return values.astype("<u4") if not len(values) or values.max() < 1 << 32 else values


@dataclass(frozen=True)
class BlockParts:
    """What one group adds to the blocks of a range, one after another in the same arrays. Exact and private."""

    ends: Array
    arrays: CellPart

    @classmethod
    def of(cls, parts: Sequence[tuple[int, CellPart]], blocks: int) -> BlockParts:
        """Return parts by the place of their block in the range, in order; no arrays where there are none."""
        lengths = np.zeros(blocks + 1, np.int64)
        for place, part in parts:
            lengths[place + 1] = len(part[0])
        every = zip(*(part for _, part in parts), strict=True)
        return cls(np.cumsum(lengths).astype("<u4"), tuple(np.concatenate(column) for column in every))

    def at(self, place: int) -> CellPart:
        """Return the part of one block."""
        low, high = self.ends[place : place + 2].tolist()
        return tuple(array[low:high] for array in self.arrays)


class BlockPartsCoder(ArraysCoder):
    """Where blocks end, and the arrays."""

    kind = BlockParts

    def to_arrays(self, value: BlockParts) -> list[Any]:
        return [value.ends, *value.arrays]

    def from_arrays(self, arrays: list[Any]) -> BlockParts:
        return BlockParts(arrays[0], tuple(arrays[1:]))


class EncodedBlockCoder(ArraysCoder):
    """Number, bytes and sums."""

    kind = EncodedBlock

    def to_arrays(self, value: EncodedBlock) -> list[Any]:
        return [np.array([value.index], "<i8"), value.content, value.sums]

    def from_arrays(self, arrays: list[Any]) -> EncodedBlock:
        return EncodedBlock(int(arrays[0][0]), arrays[1], arrays[2])


def register(*every: type[_KindCoder]) -> None:
    """Let type hints of these coders' classes choose them."""
    for coder in every:
        coders.registry.register_coder(coder.kind, coder)


register(
    ContributionsCoder, HistogramCoder, HeavyCoder, SurveyCoder, PlanCoder, PlannedReleaseCoder, BlockPartsCoder,
    EncodedBlockCoder, BatchCoder, TallyCoder,
)  # fmt: skip


# --- batches on disk ----------------------------------------------------------------------------------------------
#
# Beam's local runner keeps every element in memory and copies it several times on its way through a shuffle. Where all
# workers share a machine, batches are appended to files of a private temporary directory (mode 0700, removed at the
# end) instead, and a `SpilledBatch` is shuffled. A bundle that is computed again writes new ones.


@dataclass(frozen=True)
class SpilledBatch:
    """The place of a batch: path, offset and length."""

    path: str
    offset: int
    size: int

    def read(self) -> bytes:
        """Return its bytes."""
        file, pieces, at = _spill_file(self.path), [], 0
        while at < self.size and (piece := os.pread(file.handle, self.size - at, self.offset + at)):
            pieces.append(piece)
            at += len(piece)
        if at != self.size:
            raise OutputError(
                f"temporary file {self.path} was cut short; nothing was released, run the job again"
            )
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class _SpillFile:
    """A file that is open for reading as long as somebody refers to it."""

    def __init__(self, path: str) -> None:
        self.handle = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        os.close(self.handle)


# Opening a file for each of its batches took longer than reading them.
_spill_file = lru_cache(maxsize=64)(_SpillFile)


def close_spill_files() -> None:
    """Close the files of batches that were read: the directory is about to be removed."""
    _spill_file.cache_clear()


class SpilledBatchCoder(_KindCoder):
    """Offset, length and path; tallies travel among them, behind a place that no file has."""

    kind = SpilledBatch

    def encode(self, value: SpilledBatch | Tally) -> bytes:
        if isinstance(value, Tally):
            return _NO_PLACE + TallyCoder().encode(value)
        return _PLACE.pack(value.offset, value.size) + value.path.encode()

    def decode(self, encoded: bytes) -> SpilledBatch | Tally:
        if encoded[: _PLACE.size] == _NO_PLACE:
            return TallyCoder().decode(encoded[_PLACE.size :])
        offset, size = _PLACE.unpack_from(encoded)
        return SpilledBatch(encoded[_PLACE.size :].decode(), offset, size)


_PLACE = struct.Struct("<QQ")
_NO_PLACE = b"\xff" * _PLACE.size
register(SpilledBatchCoder)


class SpillWriter:
    """Appends batches to a file of its own in ``directory``."""

    def __init__(self, directory: str) -> None:
        try:
            self._handle, self._path = tempfile.mkstemp(prefix="spill-", dir=directory)
        except OSError as error:
            raise _cannot(directory, error) from None
        self._end = 0

    def put(self, buffers: Sequence[Any]) -> SpilledBatch:
        """Write the buffers one after another."""
        size = sum(len(buffer) for buffer in buffers)
        try:
            written = os.writev(self._handle, buffers)
            if written != size:  # a signal, or more than the system takes at once
                rest = memoryview(b"".join(buffers))
                while written < size:
                    written += os.write(self._handle, rest[written:])
        except OSError as error:
            raise _cannot(os.path.dirname(self._path), error) from None
        batch = SpilledBatch(self._path, self._end, size)
        self._end += size
        return batch

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


class Spilling(beam.DoFn):
    """A step whose results go to a file of the directory ``spill``, where workers share a machine."""

    def __init__(self, spill: str | None) -> None:
        self._spill = spill

    def start_bundle(self) -> None:
        self._writer = None if self._spill is None else SpillWriter(self._spill)

    def keep(self, value: Any, coder: ArraysCoder) -> Any:
        """Return the value, or where it is spilled."""
        return value if self._writer is None else self._writer.put(pack_buffers(coder.to_arrays(value)))

    def sent(self, value: Any, coder: ArraysCoder) -> Any:
        """Return what crosses a shuffle for a value or tally: bytes, or where it is spilled.

        Engines written in Java copy plain bytes once where they read or write them; what a coder that they do not know
        wrote, several times.
        """
        if self._spill is None:
            return coder.encode(value)
        return value if isinstance(value, Tally) else self.keep(value, coder)

    def finish_bundle(self) -> Any:
        if self._writer is not None:
            self._writer.close()


def _cannot(directory: str, error: OSError) -> OutputError:
    return OutputError(
        f"temporary directory {directory} cannot be written: {error.strerror}; set TMPDIR to another place"
    )
