"""Zstandard decompression (RFC 8878), as much of it as Parquet pages use: frames without a dictionary."""

from __future__ import annotations

__all__ = ["decompress"]

_LITERAL_LENGTHS = (
    [(n, 0) for n in range(16)]
    + [(16, 1), (18, 1), (20, 1), (22, 1), (24, 2), (28, 2), (32, 3), (40, 3), (48, 4), (64, 6)]
    + [(128 << i, 7 + i) for i in range(10)]
)
_MATCH_LENGTHS = (
    [(n, 0) for n in range(3, 35)]
    + [(35, 1), (37, 1), (39, 1), (41, 1), (43, 2), (47, 2), (51, 3), (59, 3), (67, 4), (83, 4), (99, 5)]
    + [(131 + (128 * ((1 << i) - 1)), 7 + i) for i in range(10)]
)
_LL_DEFAULT = [
    4,
    3,
    2,
    2,
    2,
    2,
    2,
    2,
    2,
    2,
    2,
    2,
    2,
    1,
    1,
    1,
    2,
    2,
    2,
    2,
    2,
    2,
    2,
    2,
    2,
    3,
    2,
    1,
    1,
    1,
    1,
    1,
    -1,
    -1,
    -1,
    -1,
]
_ML_DEFAULT = [1, 4, 3, 2, 2, 2, 2, 2, 2] + [1] * 37 + [-1] * 7
_OF_DEFAULT = [1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1]


class _Backward:
    """Bits read from the end of a buffer; beyond its start come zeros."""

    def __init__(self, data: bytes) -> None:
        if not data or not data[-1]:
            raise ValueError("zstd: a bit stream has no end mark")
        self.number = int.from_bytes(data, "little")
        self.left = 8 * len(data) - (9 - data[-1].bit_length())

    def take(self, count: int) -> int:
        self.left -= count
        mask = (1 << count) - 1
        if self.left >= 0:
            return (self.number >> self.left) & mask
        return (self.number << -self.left) & mask


class _Fse:
    """A decoding table: symbol, bits to read and base of the next state, for each state."""

    def __init__(self, counts: list[int], log: int) -> None:
        size = 1 << log
        self.log = log
        symbols = [0] * size
        high = size - 1
        for symbol, count in enumerate(counts):
            if count == -1:
                symbols[high] = symbol
                high -= 1
        place, step, mask = 0, (size >> 1) + (size >> 3) + 3, size - 1
        for symbol, count in enumerate(counts):
            for _ in range(max(count, 0)):
                symbols[place] = symbol
                place = (place + step) & mask
                while place > high:
                    place = (place + step) & mask
        after = [1 if count == -1 else count for count in counts]
        self.rows = []
        for symbol in symbols:
            state = after[symbol]
            after[symbol] += 1
            bits = log - (state.bit_length() - 1)
            self.rows.append((symbol, bits, (state << bits) - size))

    @classmethod
    def one(cls, symbol: int) -> _Fse:
        self = cls.__new__(cls)
        self.log, self.rows = 0, [(symbol, 0, 0)]
        return self

    @classmethod
    def read(cls, data: bytes, at: int, most_symbols: int, most_log: int) -> tuple[_Fse, int]:
        """(table, where it ends), from its compressed description."""
        number, bit = int.from_bytes(data[at : at + 512], "little"), 4
        log = (number & 15) + 5
        if log > most_log:
            raise ValueError("zstd: a table is too large")
        left, counts = (1 << log) + 1, []
        while left > 1 and len(counts) < most_symbols:
            wide = left.bit_length()
            value = (number >> bit) & ((1 << wide) - 1)
            short = (1 << (wide - 1)) - 1
            threshold = (1 << wide) - 1 - left
            if (value & short) < threshold:
                bit, value = bit + wide - 1, value & short
            else:
                bit += wide
                if value > short:
                    value -= threshold
            counts.append(value - 1)
            left -= abs(value - 1)
            if value == 1:  # a probability of 0, and how many follow
                while True:
                    more = (number >> bit) & 3
                    bit += 2
                    counts += [0] * more
                    if more < 3:
                        break
        if left != 1:
            raise ValueError("zstd: a table does not add up")
        return cls(counts, log), at + (bit + 7) // 8


class _Huffman:
    """Codes of literals by prefix: (symbol, bits) for each value of `most` bits."""

    def __init__(self, weights: list[int]) -> None:
        total = sum(1 << (w - 1) for w in weights if w)
        self.most = total.bit_length()
        rest = (1 << self.most) - total
        if rest & (rest - 1):
            raise ValueError("zstd: weights do not add up")
        weights = [*weights, rest.bit_length()]
        self.table: list[tuple[int, int]] = []
        for weight in range(1, self.most + 1):
            for symbol, held in enumerate(weights):
                if held == weight:
                    self.table += [(symbol, self.most + 1 - weight)] * (1 << (weight - 1))
        if len(self.table) != 1 << self.most:
            raise ValueError("zstd: weights do not fill the table")

    @classmethod
    def read(cls, data: bytes, at: int) -> tuple[_Huffman, int]:
        head = data[at]
        at += 1
        if head >= 128:
            count = head - 127
            weights = [(data[at + i // 2] >> (4 if i % 2 == 0 else 0)) & 15 for i in range(count)]
            return cls(weights), at + (count + 1) // 2
        end = at + head
        fse, at = _Fse.read(data, at, 256, 6)
        bits = _Backward(data[at:end])
        states = [bits.take(fse.log), bits.take(fse.log)]
        weights = []
        turn = 0
        while True:
            symbol, more, base = fse.rows[states[turn]]
            weights.append(symbol)
            if bits.left - more < 0:  # the other state has one symbol left
                weights.append(fse.rows[states[1 - turn]][0])
                break
            states[turn] = base + bits.take(more)
            turn = 1 - turn
        return cls(weights), end

    def decode(self, data: bytes, count: int) -> bytes:
        bits, out, mask = _Backward(data), bytearray(), (1 << self.most) - 1
        state = bits.take(self.most)
        while len(out) < count:
            symbol, used = self.table[state]
            out.append(symbol)
            state = ((state << used) & mask) | bits.take(used)
        return bytes(out)


class _Block:
    """State that goes from block to block of a frame."""

    def __init__(self) -> None:
        self.huffman: _Huffman | None = None
        self.tables: list[_Fse | None] = [None, None, None]
        self.offsets = [1, 4, 8]
        self.out = bytearray()

    def compressed(self, data: bytes) -> None:
        literals, at = self._literals(data)
        count = data[at]
        at += 1
        if count >= 255:
            count, at = int.from_bytes(data[at : at + 2], "little") + 0x7F00, at + 2
        elif count >= 128:
            count, at = ((count - 128) << 8) + data[at], at + 1
        if count == 0:
            self.out += literals
            return
        modes = data[at]
        at += 1
        kinds = ((_LL_DEFAULT, 6, 36, 9), (_OF_DEFAULT, 5, 32, 8), (_ML_DEFAULT, 6, 53, 9))
        for i, (default, log, symbols, most_log) in enumerate(kinds):
            mode = modes >> (6 - 2 * i) & 3
            if mode == 0:
                self.tables[i] = _Fse(default, log)
            elif mode == 1:
                self.tables[i], at = _Fse.one(data[at]), at + 1
            elif mode == 2:
                self.tables[i], at = _Fse.read(data, at, symbols, most_log)
        self._sequences(_Backward(data[at:]), count, literals)

    def _literals(self, data: bytes) -> tuple[bytes, int]:
        kind, form = data[0] & 3, data[0] >> 2 & 3
        if kind < 2:
            wide = {0: 1, 2: 1, 1: 2, 3: 3}[form]
            size = int.from_bytes(data[:wide], "little") >> (3 if wide == 1 else 4)
            if kind == 1:
                return data[wide : wide + 1] * size, wide + 1
            return data[wide : wide + size], wide + size
        wide, each = ((3, 10), (3, 10), (4, 14), (5, 18))[form]
        head = int.from_bytes(data[:wide], "little") >> 4
        size, packed = head & ((1 << each) - 1), head >> each
        at, end = wide, wide + packed
        if kind == 2:
            self.huffman, at = _Huffman.read(data, at)
        assert self.huffman is not None
        if form == 0:
            return self.huffman.decode(data[at:end], size), end
        ends = [int.from_bytes(data[at + 2 * i : at + 2 * i + 2], "little") for i in range(3)]
        at += 6
        part, out = (size + 3) // 4, b""
        for i in range(4):
            stop = end if i == 3 else at + ends[i]
            out += self.huffman.decode(data[at:stop], part if i < 3 else size - 3 * part)
            at = stop
        return out, end

    def _sequences(self, bits: _Backward, count: int, literals: bytes) -> None:
        tables = [table for table in self.tables if table is not None]
        states = [bits.take(table.log) for table in tables]
        used = 0
        for i in range(count):
            rows = [table.rows[state] for table, state in zip(tables, states, strict=True)]
            code = rows[1][0]
            offset = (1 << code) + bits.take(code)
            base, more = _MATCH_LENGTHS[rows[2][0]]
            match = base + bits.take(more)
            base, more = _LITERAL_LENGTHS[rows[0][0]]
            length = base + bits.take(more)
            if i + 1 < count:
                for j in (0, 2, 1):
                    _, more, base = rows[j]
                    states[j] = base + bits.take(more)
            self.out += literals[used : used + length]
            used += length
            self._copy(self._offset(offset, length), match)
        self.out += literals[used:]

    def _offset(self, value: int, length: int) -> int:
        recent = self.offsets
        if value > 3:
            self.offsets = [value - 3, recent[0], recent[1]]
            return value - 3
        index = value - 1 + (length == 0)
        found = recent[0] - 1 if index == 3 else recent[index]
        if index:
            self.offsets = [found, recent[0], recent[2] if index == 1 else recent[1]]
        return found

    def _copy(self, offset: int, length: int) -> None:
        if not 0 < offset <= len(self.out):
            raise ValueError("zstd: an offset points before the beginning")
        while length > 0:
            piece = self.out[-offset : len(self.out) - offset + min(length, offset) or None]
            self.out += piece
            length -= len(piece)


def decompress(data: bytes) -> bytes:
    """The content of one frame."""
    if data[:4] != b"\x28\xb5\x2f\xfd":
        raise ValueError("zstd: no frame")
    head, at = data[4], 5
    single = head >> 5 & 1
    at += 1 - single  # the window
    at += (0, 1, 2, 4)[head & 3]
    at += ((1 if single else 0), 2, 4, 8)[head >> 6]
    block = _Block()
    while True:
        three = int.from_bytes(data[at : at + 3], "little")
        at += 3
        last, kind, size = three & 1, three >> 1 & 3, three >> 3
        if kind == 0:
            block.out += data[at : at + size]
        elif kind == 1:
            block.out += data[at : at + 1] * size
            size = 1
        else:
            block.compressed(data[at : at + size])
        at += size
        if last:
            return bytes(block.out)
