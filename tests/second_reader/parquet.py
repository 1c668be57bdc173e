"""Just enough of Parquet: flat columns of version 1 data pages, plain deltas, uncompressed or zstd."""

from __future__ import annotations

from typing import Any

from tests.second_reader.zstd import decompress

__all__ = ["read_columns"]

_WORD = 1 << 64
_DELTA, _DELTA_LENGTH = 5, 6
_CODECS = {0: lambda data: data, 6: decompress}


class _Thrift:
    """The compact protocol: structures become {field number: value}."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def varint(self) -> int:
        out = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            out |= (byte & 127) << shift
            if byte < 128:
                return out
            shift += 7

    def zigzag(self) -> int:
        n = self.varint()
        return (n >> 1) ^ -(n & 1)

    def value(self, kind: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            self.at += 1
            return self.data[self.at - 1]
        if kind in (4, 5, 6):
            return self.zigzag()
        if kind == 7:
            self.at += 8
            return None
        if kind == 8:
            size = self.varint()
            self.at += size
            return self.data[self.at - size : self.at]
        if kind in (9, 10):
            head = self.data[self.at]
            self.at += 1
            size = head >> 4 if head >> 4 < 15 else self.varint()
            return [self.value(head & 15) for _ in range(size)]
        if kind == 12:
            return self.struct()
        raise ValueError(f"parquet: thrift type {kind}")

    def struct(self) -> dict[int, Any]:
        out: dict[int, Any] = {}
        number = 0
        while True:
            head = self.data[self.at]
            self.at += 1
            if head == 0:
                return out
            number = number + (head >> 4) if head >> 4 else self.zigzag()
            out[number] = self.value(head & 15)


def _deltas(data: bytes, at: int) -> tuple[list[int], int]:
    """DELTA_BINARY_PACKED numbers modulo 2^64, and where they end."""
    reader = _Thrift(data, at)
    size, parts, count = reader.varint(), reader.varint(), reader.varint()
    out = [reader.zigzag() % _WORD]
    while len(out) < count:
        least = reader.zigzag()
        widths = data[reader.at : reader.at + parts]
        reader.at += parts
        for width in widths:
            if len(out) >= count:
                break
            each = size // parts
            number = int.from_bytes(data[reader.at : reader.at + each * width // 8], "little")
            reader.at += each * width // 8
            for i in range(min(each, count - len(out))):
                delta = number >> (i * width) & ((1 << width) - 1)
                out.append((out[-1] + least + delta) % _WORD)
    return out[:count], reader.at


def _texts(data: bytes, at: int) -> list[bytes]:
    lengths, at = _deltas(data, at)
    out = []
    for length in lengths:
        out.append(data[at : at + length])
        at += length
    return out


def _page(data: bytes, encoding: int) -> list[Any]:
    if encoding == _DELTA:
        return list(_deltas(data, 0)[0])
    if encoding == _DELTA_LENGTH:
        return list(_texts(data, 0))
    raise ValueError(f"parquet: encoding {encoding}")


def read_columns(data: bytes) -> dict[str, list[Any]]:
    """Column name → values; numbers are modulo 2^64."""
    if data[:4] != b"PAR1" or data[-4:] != b"PAR1":
        raise ValueError("parquet: not a Parquet file")
    size = int.from_bytes(data[-8:-4], "little")
    footer = _Thrift(data, len(data) - 8 - size).struct()
    optional = {element[4].decode(): element.get(3) == 1 for element in footer[2][1:]}
    out: dict[str, list[Any]] = {name: [] for name in optional}
    for group in footer[4]:
        for chunk in group[1]:
            meta = chunk[3]
            name, at, left = meta[3][0].decode(), meta[9], meta[5]
            while left:
                header = _Thrift(data, at)
                page = header.struct()
                content = _CODECS[meta[4]](data[header.at : header.at + page[3]])
                at = header.at + page[3]
                if optional[name]:
                    content = content[
                        4 + int.from_bytes(content[:4], "little") :
                    ]  # definition levels: no nulls
                out[name] += _page(content, page[5][2])
                left -= page[5][1]
    return out
