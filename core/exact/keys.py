"""Keys and users as columns: canonical bytes, public fingerprints, secret user tokens.

A value means the same wherever it came from (`identifiers`): user 123 of a CSV file, of a Parquet file and of a
list are one user.

* `fingerprints`: 64 bits of MurmurHash3 (x64, 128 bits, seed 0), which anyone can compute from a key. At δ = 0
  the fingerprint *is* the key: collisions cost accuracy, never privacy.
* `user_tokens`: 128 bits of a keyed pseudo-random function, AES-256-CBC-MAC over length ‖ bytes (a prefix-free
  code, for which CBC-MAC is a PRF: Bellare, Kilian, Rogaway 2000). Two users that share a token would be bounded
  as one, so a collision must not be something that anyone can arrange: the key is secret and the width 128 bits.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from hushgram.errors import InputError
from hushgram.exact.identifiers import ACCEPTED, one_array, spelled

__all__ = [
    "Encoded", "Packed", "as_column", "canonical", "encode", "fingerprints", "hash_bytes", "user_tokens",
]  # fmt: skip


# The bytes of many short values at once, as 64-bit words.
#
# A value of n bytes is read as little-endian words, the last filled up with zeros. Values lie one after another in
# one buffer at any offset, so a word is put together from the two aligned words that it overlaps.

# Rows at a time: temporaries stay in the processor's cache.
_ROWS = 1 << 14
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_WORD = np.uint64(64)


class Packed:
    """The values of a LargeBinaryArray, for reading them by words.

    >>> values = Packed(pa.array([b"a", b"bcdefghij"], pa.large_binary()))
    >>> [hex(word) for word in values.words(slice(0, 2), 0, 1)[0]]
    ['0x61', '0x6968676665646362']
    """

    def __init__(self, values: pa.LargeBinaryArray) -> None:
        count = len(values)
        offsets = np.zeros(1, np.int64)
        if count:
            offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + count + 1]
        low, high = int(offsets[0]), int(offsets[-1])
        self._words = np.zeros((high - low) // 8 + 2, np.uint64)  # a value may end with the buffer
        if high > low:
            data = np.frombuffer(values.buffers()[2], np.uint8)[low:high]
            self._words.view(np.uint8)[: high - low] = data
        self.starts = offsets[:-1] - low
        self.lengths = np.diff(offsets)

    def __len__(self) -> int:
        return len(self.lengths)

    def chunks(self) -> Iterator[slice]:
        """All rows, some at a time."""
        for start in range(0, len(self), _ROWS):
            yield slice(start, min(start + _ROWS, len(self)))

    def words(self, rows: slice | NDArray[np.intp], at: int, count: int) -> list[NDArray[np.uint64]]:
        """Bytes [at, at + 8·count) of the values of ``rows`` as ``count`` words, zero beyond a value's end.

        ``at`` is within each of these values or at its end.
        """
        start = self.starts[rows] + at
        left = (self.lengths[rows] - at) << 3
        shift = (start & 7).astype(np.uint64) << np.uint64(3)
        back = _WORD - shift
        start >>= 3
        first = self._words[start]
        out = []
        for _ in range(count):
            start += 1
            second = self._words[np.minimum(start, len(self._words) - 1)]
            value = first >> shift
            value |= second << back  # numpy shifts by 64 to zero
            value &= _ALL >> (64 - np.clip(left, 0, 64)).astype(np.uint64)
            out.append(value)
            first = second
            left -= 64
        return out


_BLOCK = 16
# Longer values enter the MAC by their HMAC-SHA256, so that one huge value does not mean a million rounds.
_LONG = 240


@dataclass(frozen=True)
class Encoded:
    """A column as distinct canonical values and, for each row, the index of its value."""

    values: pa.LargeBinaryArray
    codes: NDArray[np.int64]


def as_column(column: Any, what: str = "keys") -> pa.Array:
    """An Arrow, numpy, pandas, polars or Python sequence as one Arrow array of text, bytes or whole numbers.

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
    """A column as Arrow has it."""
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
        return pa.array(column) if to_arrow is None or str(column.dtype) == "Object" else to_arrow()
    except (pa.ArrowException, UnicodeEncodeError, TypeError, ValueError, LookupError):
        # what went wrong quotes a value, which no message may
        raise InputError(f"{what}: values must be all text, all bytes or all whole numbers") from None


def canonical(column: Any, what: str = "keys") -> pa.LargeBinaryArray:
    """The canonical value of each row; a null is an error that names its row."""
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
    """Distinct canonical values and codes; a null is an error that names its row."""
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


def hash_bytes(values: pa.LargeBinaryArray) -> NDArray[np.uint64]:
    """Fingerprints of canonical values.

    >>> import pyarrow as pa
    >>> hex(hash_bytes(pa.array([b"hello"], pa.large_binary()))[0])
    '0xcbd8a7b341bd9b02'
    """
    if not len(values):
        return np.zeros(0, dtype=np.uint64)
    joined = b"".join(map(mmh3.mmh3_x64_128_digest, values.to_pylist()))
    return np.frombuffer(joined, dtype="<u8")[::2].astype(np.uint64)


def fingerprints(column: Any, what: str = "keys") -> NDArray[np.uint64]:
    """The 64-bit fingerprint of each row; each distinct value is hashed once.

    >>> fingerprints(["7", "7"]).tolist() == fingerprints([7, 7]).tolist()
    True
    """
    encoded = encode(column, what)
    return hash_bytes(encoded.values)[encoded.codes]


def user_tokens(values: pa.LargeBinaryArray, key: bytes) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """128-bit tokens of canonical values under a 32-byte secret key, as two 64-bit halves."""
    values, tags = _shorten(values, key)
    packed = Packed(values)
    high, low = np.empty(len(packed), np.uint64), np.empty(len(packed), np.uint64)
    ecb = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # CBC-MAC, all messages side by side
    for rows in packed.chunks():
        state = _mac(packed, rows, tags[rows], ecb)
        high[rows], low[rows] = state[:, 0], state[:, 1]
    return high, low


def _mac(packed: Packed, rows: slice, tags: NDArray[np.uint8], ecb: Any) -> NDArray[np.uint64]:
    """CBC-MAC of length (7 bytes) ‖ tag (1 byte: whether shortened) ‖ bytes ‖ zeros, as two words a message."""
    lengths = packed.lengths[rows]
    state = np.empty((len(lengths), 2), dtype="<u8")
    state[:, 0] = lengths.astype(np.uint64) | (tags.astype(np.uint64) << np.uint64(56))
    state[:, 1] = packed.words(rows, 0, 1)[0]
    state = _permute(ecb, state)
    active = np.flatnonzero(lengths > 8)
    at = 8
    while len(active):
        block = state[active]
        for half, word in enumerate(packed.words(active + rows.start, at, 2)):
            block[:, half] ^= word
        state[active] = _permute(ecb, block)
        at += _BLOCK
        active = active[lengths[active] > at]
    return state


def _shorten(values: pa.LargeBinaryArray, key: bytes) -> tuple[pa.LargeBinaryArray, NDArray[np.uint8]]:
    """Values over the limit replaced by their HMAC, with a tag that keeps both kinds apart."""
    long = pc.greater(pc.binary_length(values), _LONG).to_numpy(zero_copy_only=False)
    tags = np.asarray(long, dtype=np.uint8)
    if tags.any():
        short = values.to_pylist()
        for i in np.flatnonzero(tags):
            short[i] = hmac.new(key, short[i], hashlib.sha256).digest()
        values = pa.array(short, pa.large_binary())
    return values, tags


def _permute(ecb: Any, blocks: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return np.frombuffer(ecb.update(blocks.tobytes()), dtype="<u8").reshape(blocks.shape).copy()
