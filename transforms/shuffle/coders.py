"""Shard batches as bytes: arrays side by side, no pickle.

A batch crosses the shuffle as its numpy buffers, one after another, behind a header that says how long each
is. Reading copies nothing: arrays are views of the bytes that came in. Counts travel in the narrowest integer
that holds them, and not at all where every one is 1, which is nearly always.

Importing this module registers the coders, so that a type hint such as ``tuple[int, Histogram]`` chooses
them.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam import coders
from numpy.typing import NDArray

from hushgram.exact.contributions import Contributions
from hushgram.exact.histogram import Histogram, KeyTable, text_buffers
from hushgram.sensitivity import UNITS, Sensitivity
from hushgram.sparse_histogram.plan import Plan
from hushgram.sparse_histogram.sizing import Survey
from hushgram.sparse_histogram.steps import PlannedRelease
from hushgram.sparse_histogram.threshold import Heavy

__all__ = [
    "ArraysCoder", "ContributionsCoder", "HeavyCoder", "HistogramCoder", "PlanCoder", "PlannedReleaseCoder",
    "SurveyCoder", "pack_arrays", "pack_buffers", "unpack_arrays",
]  # fmt: skip

_DTYPES = tuple(np.dtype(name) for name in ("<u1", "<u2", "<u4", "<u8", "<i8"))
_CODE = {dtype: code for code, dtype in enumerate(_DTYPES)}
_ENTRY = struct.Struct("<BxxxxxxxQ")
_COUNT = struct.Struct("<Q")

Array = NDArray[Any]


def pack_buffers(arrays: list[Array]) -> list[Any]:
    """Arrays of the types above as buffers to be written one after another, each aligned to eight bytes."""
    head = [_COUNT.pack(len(arrays))]
    body: list[Any] = []
    for array in arrays:
        head.append(_ENTRY.pack(_CODE[array.dtype], len(array)))
        if len(array):
            body.append(np.ascontiguousarray(array).data.cast("B"))
            body.append(bytes(-array.nbytes % 8))
    return [b"".join(head), *body]


def pack_arrays(arrays: list[Array]) -> bytes:
    """The same as one string of bytes."""
    return b"".join(pack_buffers(arrays))


def unpack_arrays(content: bytes) -> list[Array]:
    """What `pack_arrays` packed, as read-only views."""
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
    """In the narrowest unsigned type; empty where all are 1."""
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
    numbers = (value.max_contributions, value.max_per_key, UNITS.index(value.unit), value.monotone)
    return np.array([*numbers, value.classes], "<u8")


def _unpack_bounds(packed: Array) -> Sensitivity:
    most, per_key, unit, monotone, classes = packed.tolist()
    return Sensitivity(most, per_key, UNITS[unit], bool(monotone), classes)


class _KindCoder(coders.Coder):
    """A deterministic coder for one class."""

    kind: type = object

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> type:
        return self.kind


class ArraysCoder(_KindCoder):
    """A coder for a class that is a few arrays."""

    def to_arrays(self, value: Any) -> list[Array]:
        raise NotImplementedError

    def from_arrays(self, arrays: list[Array]) -> Any:
        raise NotImplementedError

    def encode(self, value: Any) -> bytes:
        return pack_arrays(self.to_arrays(value))

    def decode(self, encoded: bytes) -> Any:
        return self.from_arrays(unpack_arrays(encoded))


class ContributionsCoder(ArraysCoder):
    """24 bytes a row at δ = 0; 20 and each text once at δ > 0."""

    kind = Contributions

    def to_arrays(self, value: Contributions) -> list[Array]:
        counts = value.counts
        several = _narrow(counts) if counts.ndim == 1 else np.ascontiguousarray(counts, "<i8").ravel()
        arrays = [value.user_high, value.user_low, value.keys, several]
        if value.table is not None:
            arrays[2] = _index(value.keys)
            arrays += [value.table.fingerprints, *_pack_texts(value.table.texts)]
        return arrays

    def from_arrays(self, arrays: list[Array]) -> Contributions:
        high, low, keys, counts, *rest = arrays
        table = KeyTable(rest[0], _unpack_texts(rest[1], rest[2])) if rest else None
        each = counts.reshape(len(high), -1) if len(counts) > len(high) else _widen(counts, len(high))
        return Contributions(high, low, keys.astype(np.uint64, copy=False), each, table)


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
        return [value.fingerprints, _narrow(value.values), *texts]

    def from_arrays(self, arrays: list[Array]) -> Heavy:
        prints, values, *texts = arrays
        return Heavy(prints, _widen(values, len(prints)), _unpack_texts(*texts) if texts else None)


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
        held = tuple(zip(shards.tolist(), each, strict=True))
        return Survey(int(records[0]), profile, held, _unpack_bounds(bounds))


class PlanCoder(_KindCoder):
    """A plan as the JSON that the manifest holds."""

    kind = Plan

    def encode(self, value: Plan) -> bytes:
        return json.dumps(value.as_text(), sort_keys=True).encode()

    def decode(self, encoded: bytes) -> Plan:
        return Plan.from_text(json.loads(encoded))


class PlannedReleaseCoder(_KindCoder):
    """The digest, then the plan."""

    kind = PlannedRelease

    def encode(self, value: PlannedRelease) -> bytes:
        return value.data_digest + PlanCoder().encode(value.plan)

    def decode(self, encoded: bytes) -> PlannedRelease:
        return PlannedRelease(PlanCoder().decode(encoded[32:]), encoded[:32])


def _index(values: Array) -> Array:
    return values.astype("<u4") if not len(values) or values.max() < 1 << 32 else values


for _coder in (
    ContributionsCoder, HistogramCoder, HeavyCoder, SurveyCoder, PlanCoder, PlannedReleaseCoder,
):  # fmt: skip
    coders.registry.register_coder(_coder.kind, _coder)
