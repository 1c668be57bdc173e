"""The bytes of many short values at once, as 64-bit words.

A value of n bytes is read as little-endian words, the last filled up with zeros. Values lie one after another in
one buffer at any offset, so a word is put together from the two aligned words that it overlaps.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["Packed"]

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
