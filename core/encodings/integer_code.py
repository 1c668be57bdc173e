"""Whole numbers near a common centre in few bits: the bytes of one block of buckets.

Noisy counts are two-sided geometric or Gaussian around a common centre, with a few large ones. Each number v becomes
u = 2|v − centre| (less 1 where v is below it), then a class and fixed fields:

    q = ⌊u / 2^k⌋      class q where q < 6, else 6 + e with 2^e ≤ q − 5 < 2^(e+1)
    class c            c zeros and a one
    field              the k low bits of u; for c ≥ 6 also the e low bits of q − 5

All classes stand in one run of bits, all k-bit fields in another, all e-bit fields in a third: each run is decoded by
a few array operations. k is the one that takes the fewest bits. Within 0.1 to 0.2 bits a number of the entropy, and
large numbers cost twice their logarithm.

    byte 0       k
    bytes 1-8    centre, signed
    bytes 9-12   bytes of the run of classes
    then         classes, k-bit fields, e-bit fields, each filled up with zero bits to whole bytes

Bits are little-endian within a byte, numbers little-endian throughout. Numbers that are not negative
(`encode_unsigned`) are coded as u themselves, up to 2^64 − 1, and have no centre: bytes 1-4 are the bytes of the run
of classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import FormatError

__all__ = ["LARGEST", "decode", "decode_unsigned", "encode", "encode_unsigned"]

#: Numbers are from −LARGEST to LARGEST.
LARGEST = (1 << 60) - 1
_UNARY = 6
_HEADER, _SHORT_HEADER = 13, 5
_POWERS = np.uint64(1) << np.arange(64, dtype=np.uint64)

U64 = NDArray[np.uint64]
U8 = NDArray[np.uint8]


def encode(numbers: NDArray[np.int64]) -> U8:
    """Return the bytes of these numbers (a function of them alone).

    >>> decode(encode(np.array([3, -1, 0, 1000])), 4)
    array([   3,   -1,    0, 1000])
    """
    middle = len(numbers) // 2
    centre = int(np.partition(numbers, middle)[middle]) if len(numbers) else 0
    off = numbers - np.int64(centre)
    u = ((off << 1) ^ (off >> 63)).astype(np.uint64)
    k, (classes, *fields) = _runs(u)
    header = np.array([k], np.uint8), np.array([centre], "<i8"), np.array([len(classes)], "<u4")
    return np.concatenate([*(part.view(np.uint8) for part in header), classes, *fields])


def encode_unsigned(numbers: U64) -> U8:
    """Return the bytes of these numbers, none of which is negative.

    >>> decode_unsigned(encode_unsigned(np.array([3, 0, 1000], np.uint64)), 3)
    array([   3,    0, 1000], dtype=uint64)
    """
    k, (classes, *fields) = _runs(numbers)
    header = np.array([k], np.uint8), np.array([len(classes)], "<u4").view(np.uint8)
    return np.concatenate([*header, classes, *fields])


def _runs(u: U64) -> tuple[int, list[U8]]:
    """k, and the bytes of the three runs."""
    k = _fewest_bits(u)
    q = u >> np.uint64(k)
    extra = _extra_bits(q)
    classes = np.where(extra >= 0, _UNARY + extra, q.astype(np.int64))
    ends = np.cumsum(classes + 1)
    run = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    run[ends - 1] = 1
    long = np.flatnonzero(extra > 0)
    tail = q[long] - np.uint64(_UNARY - 1)
    return k, [np.packbits(run, bitorder="little"), _pack(u, k), _pack_long(tail, extra[long])]


def decode(content: U8, count: int) -> NDArray[np.int64]:
    """Return the ``count`` numbers whose bytes are ``content``; raise FormatError if there are none."""
    if len(content) < _HEADER:
        raise FormatError(f"a block of buckets has {len(content)} bytes, its header alone has {_HEADER}")
    centre, length = int(content[1:9].view("<i8")[0]), int(content[9:13].view("<u4")[0])
    if abs(centre) > LARGEST:
        raise FormatError("a block of buckets has a header that does not fit its bytes")
    u = _read_runs(content[_HEADER:], count, int(content[0]), length, 62)
    numbers: NDArray[np.int64] = (u >> np.uint64(1)).astype(np.int64) ^ -(u & np.uint64(1)).astype(np.int64)
    numbers += centre
    if len(numbers) and max(int(numbers.max()), -int(numbers.min())) > LARGEST:
        raise FormatError("a block of buckets has a number that is too large")
    return numbers


def decode_unsigned(content: U8, count: int) -> U64:
    """Return the ``count`` numbers that `encode_unsigned` wrote; FormatError where there are none."""
    if len(content) < _SHORT_HEADER:
        raise FormatError(f"a run of numbers has {len(content)} bytes, its header alone has {_SHORT_HEADER}")
    length = int.from_bytes(content[1:_SHORT_HEADER].tobytes(), "little")
    return _read_runs(content[_SHORT_HEADER:], count, int(content[0]), length, 63)


def _read_runs(content: U8, count: int, k: int, length: int, most: int) -> U64:
    """u of each number; none has more than ``most`` + 1 bits."""
    fields = -(-count * k // 8)
    if k > most or length + fields > len(content):
        raise FormatError("a block of buckets has a header that does not fit its bytes")
    classes = _classes(content[:length], count)
    low = _unpack(content[length:][:fields], k, count)
    extra = classes - _UNARY
    if len(extra) and int(extra.max()) + k > most:
        raise FormatError("a block of buckets has a number that is too large")
    long = np.flatnonzero(extra > 0)
    q = np.minimum(classes, _UNARY).astype(np.uint64)
    q[long] = _unpack_long(content[length + fields :], extra[long]) + np.uint64(_UNARY - 1)
    return (q << np.uint64(k)) | low


def _fewest_bits(u: U64) -> int:
    """Return the least k with the fewest bits in all, of those up to the length of the median.

    One more bit of k saves 2 bits or more in the class and long field of a number with q ≥ 3, and costs none there: as
    long as more than half of the numbers have that q, it is worth it.
    """
    if not len(u):
        return 0
    middles = [(len(u) - 1) // 2, len(u) // 2]
    low, high = np.partition(u, middles)[middles].tolist()
    least = next(k for k in range(65) if low >> k < 3)
    costs = []
    for k in range(least, high.bit_length() + 1):
        q = u >> np.uint64(k)
        extra = _extra_bits(q)
        bits = np.where(extra >= 0, _UNARY + 2 * extra, q.astype(np.int64))
        costs.append(k * len(u) + int(bits.sum()))
    return least + int(np.argmin(costs))


def _extra_bits(q: U64) -> NDArray[np.int64]:
    """Return e of each number of a class of 6 or more; −1 for the others."""
    out = np.full(len(q), -1, np.int64)
    long = np.flatnonzero(q >= _UNARY)
    out[long] = np.searchsorted(_POWERS, q[long] - np.uint64(_UNARY - 1), side="right") - 1
    return out


def _classes(run: U8, count: int) -> NDArray[np.int64]:
    bits = np.unpackbits(run, bitorder="little")
    ones = np.flatnonzero(bits)
    if len(ones) != count or (count and len(bits) - int(ones[-1]) > 8) or (not count and len(bits)):
        raise FormatError(f"a block of buckets does not hold {count} numbers")
    return np.diff(ones, prepend=-1) - 1


def _pack(numbers: U64, width: int) -> U8:
    """Pack the ``width`` low bits of each number, one after another."""
    words = numbers.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
    return np.packbits(np.unpackbits(words, axis=1, count=width, bitorder="little"), bitorder="little")


def _unpack(content: U8, width: int, count: int) -> U64:
    bits = np.unpackbits(content, bitorder="little")
    if bits[count * width :].any():
        raise FormatError("a block of buckets has bits after its last number")
    fields = bits[: count * width].reshape(count, width).astype(np.uint64)
    numbers: U64 = (fields << np.arange(width, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
    return numbers


def _pack_long(numbers: U64, widths: NDArray[np.int64]) -> U8:
    """Pack the ``widths[i]`` low bits of each number, one after another."""
    starts = np.cumsum(widths) - widths
    run = np.zeros(int(widths.sum()), np.uint8)
    for bit in range(int(widths.max()) if len(widths) else 0):
        held = np.flatnonzero(widths > bit)
        run[starts[held] + bit] = (numbers[held] >> np.uint64(bit) & np.uint64(1)).astype(np.uint8)
    return np.packbits(run, bitorder="little")


def _unpack_long(content: U8, widths: NDArray[np.int64]) -> U64:
    """Return numbers of at least 2^width whose low bits fill ``content``, one after another."""
    total = int(widths.sum())
    run = np.unpackbits(content, bitorder="little")
    if len(content) != -(-total // 8) or run[total:].any():
        raise FormatError("a block of buckets does not end with its last number")
    starts = np.cumsum(widths) - widths
    numbers = np.uint64(1) << widths.astype(np.uint64)
    for bit in range(int(widths.max()) if len(widths) else 0):
        held = np.flatnonzero(widths > bit)
        numbers[held] |= run[starts[held] + bit].astype(np.uint64) << np.uint64(bit)
    return numbers
