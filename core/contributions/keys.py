"""Keys as columns: canonical bytes, public fingerprints, and their places in an encoding.

A value means the same from every format and from Python: whole numbers are their decimal text, text is UTF-8, bytes are
themselves, dates are ``YYYY-MM-DD`` and booleans ``true`` and ``false``, as a CSV file would spell them. So user 123 of
a CSV file, of a Parquet file and of a list are one user. Decimals are plain digits without trailing zeros (``1.5``, and
``123`` for 123.00), times are ``2026-11-18T09:30:00``, with a fraction of a second only where there is one and ``Z`` at
the end (in UTC) where they have a time zone, and UUIDs are their 36 characters in lower case. Floats and nested values
have no spelling of their own (is it 1, 1.0 or 1e0?) and are refused.

`fingerprints` are 64 bits of MurmurHash3 (x64, 128 bits, seed 0), which anyone can compute from a key. At δ = 0 the
fingerprint *is* the key: collisions cost accuracy, never privacy.

Hash functions that place keys are public, vectorised and strongly universal. For a fingerprint f with halves lo and hi,
pair-multiply-shift (Thorup 2015, §3.4)

    h(f) = ((a₁ + lo) · (a₂ + hi) + c mod 2^64) >> 32

is strongly universal into 32 bits for uniform 64-bit a₁, a₂, c; (h · s) >> 32 maps it to [0, s). The seeds are drawn
fresh for each release and stored whole in its manifest.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Set
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram.errors import InputError
from hushgram.noise.entropy import ReleaseKey

__all__ = [
    "ACCEPTED", "Encoded", "Packed", "array_of", "as_column", "canonical", "column_positions", "decoded", "draw_seeds",
    "encode", "fingerprints", "hash_bytes", "id_type", "is_text", "mix", "one_array", "plain_type", "python_text",
    "spelled", "to_id",
]  # fmt: skip

ACCEPTED = "text, bytes, whole numbers, decimals, dates, times, UUIDs or booleans"


# Decimals with more digits than any column type holds are refused: 1E+1000000000 would be as long as it says.
_MAX_DIGITS = 100


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column's values, also where they are coded by a dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def decoded(column: pa.Array) -> pa.Array:
    """Return a column without its dictionary."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def id_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type in which an identifier of type `kind` travels, or None where it has no canonical bytes."""
    kind = plain_type(kind)
    if pa.types.is_unsigned_integer(kind) and kind.bit_width == 64:
        return pa.uint64()
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return kind
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind) or str(kind) == "binary_view":
        return pa.binary()
    if pa.types.is_string(kind) or pa.types.is_null(kind) or str(kind) == "string_view":
        return pa.string()
    if _has_text(kind):
        return pa.string()
    return None


def _has_text(kind: pa.DataType) -> bool:
    """Return whether values of this type are identified by a text that stands for them."""
    return bool(
        pa.types.is_date(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
        or isinstance(kind, pa.UuidType)
    )


def to_id(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column as `kind` (see `id_type`, `common_type`): each value by itself, and none of them fails.

    What is not text becomes its text where `kind` is text; numbers are rounded where a float cannot hold them.
    """
    column = decoded(column)
    if column.type == kind:
        return column
    if pa.types.is_date64(column.type):
        column = column.cast(pa.date32(), safe=False)  # which may hold a part of a day
    if pa.types.is_timestamp(column.type):
        column = _times(column)
    if pa.types.is_decimal(column.type) or isinstance(column.type, pa.UuidType):
        column = pa.array(
            [None if value is None else python_text(value) for value in column.to_pylist()], pa.string()
        )
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    if is_text(kind) and not is_text(column.type):
        column = column.cast(pa.string())
    return column.cast(kind, safe=False)


def _times(column: pa.Array) -> pa.Array:
    """Return timestamps as text."""
    zone = "Z" if column.type.tz is not None else ""
    if zone:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    text = pc.strftime(column, format="%Y-%m-%dT%H:%M:%S", locale="C")
    text = pc.replace_substring_regex(text, pattern=r"(\.\d*[1-9])0+$|\.0+$", replacement=r"\1")
    return pc.binary_join_element_wise(text, zone, "")


def python_text(value: Any) -> str | None:
    """Return the text that identifies a decimal, a date, a time or a UUID; None for missing times and other values.

    >>> python_text(Decimal("1.50")), python_text(datetime.datetime(2026, 11, 18, 9, 30))
    ('1.5', '2026-11-18T09:30:00')
    """
    if isinstance(value, Decimal):
        if not value.is_finite() or abs(value.adjusted()) > _MAX_DIGITS:
            return None
        text = format(value, "f")
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return "0" if text == "-0" else text
    if isinstance(value, datetime.datetime):
        if value != value:  # NaT, which pandas has for a missing time
            return None
        zone = "Z" if value.tzinfo is not None else ""
        try:
            value = value.astimezone(datetime.UTC) if zone else value
        except Exception:  # before the year 1 or after 9999 in UTC, or whatever the zone's own code raises
            return None
        text = value.replace(tzinfo=None).isoformat()
        return f"{text.rstrip('0') if '.' in text else text}{zone}"
    if isinstance(value, datetime.date):
        return str(value.isoformat())
    return (
        str(value) if type(value).__module__ == "uuid" else None
    )  # not imported here: it draws random numbers


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of this type are text or bytes."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column without its chunks."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if not column.num_chunks:
        return pa.array([], column.type)
    try:
        whole = column.combine_chunks()
    except (
        pa.ArrowInvalid
    ):  # dictionaries with nulls, or with more values together than their codes can number
        return one_array(pa.chunked_array([decoded(chunk) for chunk in column.chunks]))
    if isinstance(whole, pa.ChunkedArray):  # more text than 32-bit offsets reach
        wide = pa.large_string() if pa.types.is_string(column.type) else pa.large_binary()
        whole = column.cast(wide).combine_chunks()
    return whole


def spelled(column: pa.Array) -> pa.Array | None:
    """Return an identifier column as text, bytes or whole numbers, or None where its type has no canonical bytes.

    A dictionary is kept for speed, unless a null is among its values, where null_count does not see it.
    """
    if pa.types.is_dictionary(column.type):
        if column.dictionary.null_count:
            return spelled(column.dictionary_decode())
        values = spelled(column.dictionary)
        if values is None or values is column.dictionary:
            return None if values is None else column
        return pa.DictionaryArray.from_arrays(column.indices, values)
    kind = id_type(column.type)
    if kind is None or not _has_text(column.type):
        return None if kind is None else column
    return to_id(column, kind)


@dataclass(frozen=True)
class Encoded:
    """A column as distinct canonical values and, for each row, the index of its value."""

    values: pa.LargeBinaryArray
    codes: NDArray[np.int64]


def as_column(column: Any, what: str = "keys") -> pa.Array:
    """Return an Arrow, numpy, pandas, polars or Python sequence as one Arrow array of text, bytes or whole numbers.

    Dates and booleans become their text; what has no canonical bytes is refused.
    """
    if isinstance(column, np.ndarray) and column.dtype.kind == "S":
        column = column.tolist()
    column = array_of(column, what)
    found = spelled(one_array(column))
    if found is None:
        raise InputError(
            f"{what}: values must be {ACCEPTED}, got {column.type}; cast the column to text first"
        )
    return found


def array_of(column: Any, what: str) -> pa.Array | pa.ChunkedArray:
    """Return a column as Arrow has it."""
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column
    single = isinstance(column, str | bytes | bytearray | memoryview | Mapping | Set)
    if single or getattr(column, "ndim", 1) != 1 or not hasattr(column, "__iter__"):
        raise InputError(
            f"{what}: must be one column (an Arrow or numpy array, or a list), got {type(column).__name__}"
        )
    try:
        to_arrow = getattr(
            column, "to_arrow", None
        )  # a polars series: its own buffers, which of objects are addresses
        found = pa.array(column) if to_arrow is None or str(column.dtype) == "Object" else to_arrow()
    except Exception:  # of Arrow, or whatever the code of the values raises
        found = None
    if str(getattr(column, "dtype", "object")).lower() == "object" and (
        found is None or pa.types.is_temporal(found.type)
    ):
        found = _one_by_one(list(column), found)
    if found is None:  # what went wrong quotes a value, which no message may
        raise InputError(f"{what}: values must be all text, all bytes or all whole numbers")
    return found


def _one_by_one(values: list[Any], found: pa.Array | None) -> pa.Array | None:
    """Return Python's dates and times as text, and numbers of any size; ``found`` where there are others.

    Arrow reads all dates and times of a list as it reads the first: with or without a zone, a day or a moment.
    """
    kinds = {type(value) for value in values if value is not None}
    if all(issubclass(kind, datetime.date) for kind in kinds):
        return pa.array([None if value is None else python_text(value) for value in values], pa.string())
    if kinds == {int}:
        try:
            return pa.array([None if value is None else Decimal(value) for value in values])
        except (pa.ArrowException, ArithmeticError, ValueError):  # more digits than a decimal has
            return None
    return found


def canonical(column: Any, what: str = "keys") -> pa.LargeBinaryArray:
    """Return the canonical value of each row; a null is an error that names its row."""
    array = _no_nulls(as_column(column, what), what)
    if pa.types.is_dictionary(array.type):  # its rows together may be more text than 32-bit offsets reach
        return _bytes(array.dictionary).take(array.indices)
    return _bytes(array)


def _bytes(array: pa.Array) -> pa.LargeBinaryArray:
    return (array.cast(pa.string()) if pa.types.is_integer(array.type) else array).cast(pa.large_binary())


def _no_nulls(array: pa.Array, what: str) -> pa.Array:
    if array.null_count:
        row = pc.index(array.is_null(), pa.scalar(True)).as_py()
        raise InputError(f"{what}: row {row} is null; drop or fill nulls first")
    return array


def encode(column: Any, what: str = "keys") -> Encoded:
    """Return distinct canonical values and codes; a null is an error that names its row."""
    array = _no_nulls(as_column(column, what), what)
    if pa.types.is_null(array.type):
        return Encoded(pa.array([], pa.large_binary()), np.zeros(0, np.int64))
    given = pa.types.is_dictionary(array.type)
    if not given:
        array = array.dictionary_encode()
    values = _bytes(array.dictionary)
    codes = array.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    if given:  # a dictionary that came from outside may repeat itself or hold unused values
        again = values.dictionary_encode()
        values, codes = again.dictionary, again.indices.to_numpy(zero_copy_only=False).astype(np.int64)[codes]
        used = np.zeros(len(values), np.bool_)
        used[codes] = True
        if not used.all():
            values, codes = values.filter(pa.array(used)), (np.cumsum(used) - 1)[codes]
    return Encoded(values, codes)


# Longer values are hashed one by one.
_MAX_BLOCKS = 16
# Where values are longer on average, it is faster to find the distinct ones first.
_SHORT = 40


def hash_bytes(values: pa.LargeBinaryArray) -> NDArray[np.uint64]:
    """Return the fingerprints of canonical values.

    >>> import pyarrow as pa
    >>> hex(hash_bytes(pa.array([b"hello"], pa.large_binary()))[0])
    '0xcbd8a7b341bd9b02'
    """
    packed = Packed(values)
    out = np.empty(len(packed), np.uint64)
    blocks = np.minimum(packed.lengths >> 4, _MAX_BLOCKS)
    for count in np.flatnonzero(np.bincount(blocks)).tolist():
        rows = np.flatnonzero(blocks == count)
        if count == _MAX_BLOCKS:
            digests = map(mmh3.mmh3_x64_128_digest, values.take(pa.array(rows)).to_pylist())
            out[rows] = np.frombuffer(b"".join(digests), "<u8")[::2]
        else:
            for start in range(0, len(rows), Packed.ROWS):
                some = rows[start : start + Packed.ROWS]
                out[some] = _murmur(packed, some, count)
    return out


def _murmur(packed: Packed, rows: NDArray[np.intp], blocks: int) -> NDArray[np.uint64]:
    """Return the first half of MurmurHash3 (x64, 128 bits, seed 0) of values with so many blocks of 16 bytes."""
    h1, h2 = np.zeros(len(rows), np.uint64), np.zeros(len(rows), np.uint64)
    for block in range(blocks):
        k1, k2 = packed.words(rows, 16 * block)
        h1 ^= _scrambled(k1, _C1, 31, _C2)
        h1 = (_rotated(h1, 27) + h2) * np.uint64(5) + np.uint64(0x52DCE729)
        h2 ^= _scrambled(k2, _C2, 33, _C1)
        h2 = (_rotated(h2, 31) + h1) * np.uint64(5) + np.uint64(0x38495AB5)
    k1, k2 = packed.words(rows, 16 * blocks)
    lengths = packed.lengths[rows].astype(np.uint64)
    h1 ^= _scrambled(k1, _C1, 31, _C2) ^ lengths
    h2 ^= _scrambled(k2, _C2, 33, _C1) ^ lengths
    h1 += h2
    return mix(h1) + mix(h1 + h2)


_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)


def _scrambled(k: NDArray[np.uint64], before: np.uint64, bits: int, after: np.uint64) -> NDArray[np.uint64]:
    return _rotated(k * before, bits) * after


def _rotated(x: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


class Packed:
    """The values of a LargeBinaryArray, for reading many of them 16 bytes at a time.

    >>> values = Packed(pa.array([b"a", b"bcdefghij"], pa.large_binary()))
    >>> [[hex(word) for word in half] for half in values.words(slice(0, 2), 0)]
    [['0x61', '0x6968676665646362'], ['0x0', '0x6a']]
    """

    #: Rows at a time: temporaries stay in the processor's cache.
    ROWS = 1 << 14

    def __init__(self, values: pa.LargeBinaryArray) -> None:
        offsets = np.zeros(1, np.int64)
        if len(values):
            offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset :][: len(values) + 1]
        low, high = int(offsets[0]), int(offsets[-1])
        data = np.zeros(high - low + 16, np.uint8)  # a value may end with the buffer
        if high > low:
            data[:-16] = np.frombuffer(values.buffers()[2], np.uint8)[low:high]
        self._blocks = np.ndarray(high - low + 1, "V16", data, strides=1)  # 16 bytes from any byte on
        self.starts = offsets[:-1] - low
        self.lengths = np.diff(offsets)

    def __len__(self) -> int:
        return len(self.lengths)

    def words(self, rows: slice | NDArray[np.intp], at: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return bytes [at, at + 16) of the values of ``rows`` as two little-endian words, zero beyond a value's end.

        ``at`` is within each of these values or at its end.
        """
        found = self._blocks[self.starts[rows] + at].view("<u8")
        left = self.lengths[rows] - at
        first, second = found[::2], found[1::2]
        if len(left) and int(left.min()) < 16:
            first = first & _MASKS.take(left, mode="clip")
            second = second & _MASKS.take(left - 8, mode="clip")
        return first, second


#: the low bytes of a word, by their number
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)


def fingerprints(column: Any, what: str = "keys") -> NDArray[np.uint64]:
    """Return the 64-bit fingerprint of each row.

    >>> fingerprints(["7", "7"]).tolist() == fingerprints([7, 7]).tolist()
    True
    """
    array = as_column(column, what)
    if is_text(array.type) and array.nbytes <= _SHORT * len(array):
        return hash_bytes(canonical(array, what))
    encoded = encode(array, what)
    return hash_bytes(encoded.values)[encoded.codes]


# --- hash functions ---------------------------------------------------------------------------------------------------

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def draw_seeds(release_key: ReleaseKey, columns: int) -> NDArray[np.uint64]:
    """Return (columns, 3) seeds a₁, a₂, c. They depend on the release key alone, never on data."""
    return release_key.source("column-seeds").words(3 * columns).reshape(columns, 3)


def column_positions(
    fingerprints: NDArray[np.uint64], seeds: NDArray[np.uint64], size: int
) -> NDArray[np.uint64]:
    """Return the position in [0, size) of each fingerprint in the column with these three seeds; 1 ≤ size ≤ 2^32.

    A cell is a small number, its upper half 0: of such numbers the hash function alone would be a line, so that
    consecutive cells would be spaced evenly. Hence numbers are mixed first.
    """
    a1, a2, c = seeds
    mixed = mix(fingerprints)
    h = (a1 + (mixed & _LOW)) * (a2 + (mixed >> _HALF)) + c
    out: NDArray[np.uint64] = ((h >> _HALF) * np.uint64(size)) >> _HALF
    return out


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the finaliser of MurmurHash3: a bijection of 64 bits that spreads every input bit."""
    x = values ^ (values >> np.uint64(33))
    x *= np.uint64(0xFF51AFD7ED558CCD)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xC4CEB9FE1A85EC53)
    x ^= x >> np.uint64(33)
    return x
