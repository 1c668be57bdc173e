"""The listed keys of a sketch, written and read: heavy.parquet where keys have texts, heavy.bin where they have none,
and both where keys that are not named are listed by fingerprint.

Of more than 2^21 keys there are several files, by the first bits of what identifies a key; each is a list by itself.

heavy.bin takes about log₂(d/N) + 1.5 bits for a fingerprint (N of d cells are listed) and log₂(e·scale) + 0.1 for a
value: half of what Parquet takes. Both are released numbers, so that any code of them is free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushgram.encodings.integer_code import decode_unsigned, encode_unsigned
from hushgram.errors import FormatError
from hushgram.key_selection.threshold import Heavy
from hushgram.sketch.manifest import listed_bits
from hushgram.sparse_histogram.plan import Plan

__all__ = [
    "BYTE_ARRAY",
    "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
    "INT64",
    "Column",
    "contents_of",
    "file_of",
    "heavy_bytes",
    "list_parts",
    "read_heavy",
]


_ROWS_PER_GROUP = 1 << 17
# What a file may need in memory: so much at least, or so many times its own size.
_MIN_ROOM, _MAX_TIMES = 64 << 20, 1024
_LARGEST_VALUE = 1 << 62
_MAX_SHIFT = 56  # bits that all cells of a list beside a top list may share
_GROUP = 1 << 16  # entries of heavy.bin that are coded together
# A reader takes as many entries at most for a byte: each has a bit in two runs.
_ENTRIES_PER_BYTE = 4


def file_of(prints: NDArray[np.uint64], plan: Plan, files: int, *, cells: bool = False) -> NDArray[np.uint64]:
    """Return the number of the file of each key, by what identifies it in a list, or in that of ``cells`` beside it."""
    if files == 1:
        return np.zeros(len(prints), np.uint64)
    return prints >> np.uint64(listed_bits(plan, cells=cells) - (files.bit_length() - 1))


def list_parts(
    heavy: Heavy, plan: Plan, files: int, *, every: bool = True, cells: bool = False
) -> dict[int, Heavy]:
    """Return the keys of each file by its number; those without keys are left out unless ``every``."""
    numbers = file_of(heavy.fingerprints, plan, files, cells=cells)
    starts = np.flatnonzero(np.diff(numbers, prepend=np.uint64(files)))
    out = dict.fromkeys(range(files), heavy.part(0, 0)) if every else {}
    for low, high in pairwise([*starts.tolist(), len(heavy)]):
        out[int(numbers[low])] = heavy.part(low, high)
    if heavy.cells is None:
        return out
    beside, nothing = list_parts(heavy.cells, plan, files, every=every, cells=True), heavy.part(0, 0)
    return {
        number: replace(out.get(number, nothing), cells=beside.get(number, heavy.cells.part(0, 0)))
        for number in sorted(out.keys() | beside.keys())
    }


def heavy_bytes(heavy: Heavy, *, two_lists: bool = False) -> bytes:
    """Encode the file: Parquet with texts, else gaps of the sorted fingerprints and values above the smallest."""
    if heavy.texts is None:
        return _packed(heavy, two_lists=two_lists)
    content = _written(heavy, "zstd")
    # What compresses beyond all measure would look like an attack to the reader.
    memory = 16 * len(heavy) + int(heavy.texts.nbytes)
    return content if 2 * memory <= _room(len(content)) else _written(heavy, "none")


def _packed(heavy: Heavy, *, two_lists: bool) -> bytes:
    """One list, or (`listed_code`) the cells, divided by the power of 2 that they share, and then the top list."""
    if not two_lists:
        return _section(heavy)
    of_top = heavy.fingerprints & np.uint64(1) == 1
    codes = heavy.fingerprints[~of_top]
    every = int(np.bitwise_or.reduce(codes)) if len(codes) else 0
    shift = (every & -every).bit_length() - 1 if every else 0
    cells = Heavy(codes >> np.uint64(shift), heavy.values[~of_top])
    top = Heavy(heavy.fingerprints[of_top] >> np.uint64(1), heavy.values[of_top])
    return bytes([shift]) + len(top).to_bytes(8, "little") + _section(cells) + _section(top)


def _section(heavy: Heavy) -> bytes:
    least = int(heavy.values.min()) if len(heavy) else 0
    gaps = np.diff(heavy.fingerprints, prepend=np.uint64(0))
    gaps[1:] -= np.uint64(1)  # no cell is listed twice
    above = (heavy.values - least).astype(np.uint64)
    out = [least.to_bytes(8, "little", signed=True)]
    for start in range(0, len(heavy), _GROUP):
        codes = [encode_unsigned(part[start : start + _GROUP]).tobytes() for part in (gaps, above)]
        out += [len(code).to_bytes(4, "little") for code in codes] + codes
    return b"".join(out)


def _unpacked(content: bytes, rows: int, *, two_lists: bool) -> Heavy:
    if len(content) < 8 or rows > _ENTRIES_PER_BYTE * len(content):
        raise FormatError(f"does not hold the {rows} entries that the manifest states")
    if not two_lists:
        heavy, end = _read_section(content, 0, rows)
    else:
        shift, number = content[0], int.from_bytes(content[1:9], "little")
        if shift > _MAX_SHIFT or number > rows:
            raise FormatError("has a head that cannot be")
        cells, at = _read_section(content, 9, rows - number)
        top, end = _read_section(content, at, number)
        for each, bits in ((cells, shift), (top, 1)):
            if len(each) and int(each.fingerprints.max()) >> (64 - bits):
                raise FormatError("a fingerprint lies outside of the domain")
        codes = [cells.fingerprints << np.uint64(shift), (top.fingerprints << np.uint64(1)) | np.uint64(1)]
        found = np.concatenate(codes)
        order = np.argsort(found, kind="stable")
        heavy = Heavy(found[order], np.concatenate([cells.values, top.values])[order])
        _check_order(cells.fingerprints, strict=True)
        _check_order(top.fingerprints, strict=True)
    if end != len(content):
        raise FormatError("does not end with its last entry")
    return heavy


def _read_section(content: bytes, at: int, rows: int) -> tuple[Heavy, int]:
    """Return the list that begins at a byte, and the byte after it."""
    least, at = int.from_bytes(content[at : at + 8], "little", signed=True), at + 8
    parts: list[list[NDArray[np.uint64]]] = [[np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]]
    for start in range(0, rows, _GROUP):
        lengths = [int.from_bytes(content[at + i : at + i + 4], "little") for i in (0, 4)]
        at += 8
        for part, length in zip(parts, lengths, strict=True):
            code = np.frombuffer(content[at : at + length], np.uint8)
            part.append(decode_unsigned(code, min(_GROUP, rows - start)))
            at += length
    gaps, above = (np.concatenate(part) for part in parts)
    if len(above) and not (abs(least) <= _LARGEST_VALUE and int(above.max()) <= _LARGEST_VALUE):
        raise FormatError("a value is beyond 2^62")
    gaps[1:] += np.uint64(1)
    return Heavy(np.cumsum(gaps, dtype=np.uint64), above.astype(np.int64) + least), at


def _written(heavy: Heavy, compression: str) -> bytes:
    import pyarrow.parquet as pq

    assert heavy.texts is not None
    columns = [
        (
            pa.field("fingerprint", pa.uint64(), nullable=False),
            pa.array(heavy.fingerprints.astype(np.uint64)),
        ),
        (pa.field("value", pa.int64(), nullable=False), pa.array(heavy.values.astype(np.int64))),
        (pa.field("key", pa.binary(), nullable=False), heavy.texts.cast(pa.binary())),
    ]
    encodings = {
        "fingerprint": "DELTA_BINARY_PACKED",
        "value": "DELTA_BINARY_PACKED",
        "key": "DELTA_LENGTH_BYTE_ARRAY",
    }
    fields, arrays = zip(*columns, strict=True)
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table(list(arrays), schema=pa.schema(fields)),
        sink,
        use_dictionary=False,
        column_encoding=encodings,
        compression=compression,
        write_statistics=False,
        row_group_size=_ROWS_PER_GROUP,
        store_schema=False,
    )
    return bytes(sink.getvalue())


def read_heavy(
    content: bytes, plan: Plan, rows: int, where: object, number: int = 0, files: int = 1
) -> Heavy:
    """Read what `heavy_bytes` wrote, by the name that ``where`` ends in; check every row.

    ``number`` is that of the file among all ``files`` of listed keys.
    """
    try:
        cells = str(where).endswith(".bin")
        heavy = _unpacked(content, rows, two_lists=plan.sub_cells) if cells else _read(content, rows)
        _check(heavy, plan, cells=cells)
        if np.any(file_of(heavy.fingerprints, plan, files, cells=cells) != number):
            raise FormatError("a fingerprint is one of another file")
        return heavy
    except FormatError as error:
        raise FormatError(f"{where}: {error}") from None
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:80]
        raise FormatError(f"{where}: cannot be read ({reason}); copy the sketch again") from None


def _read(content: bytes, rows: int) -> Heavy:
    import pyarrow.parquet as pq

    columns = [Column(name, INT64, DELTA_BINARY_PACKED) for name in ("fingerprint", "value")]
    columns.append(Column("key", BYTE_ARRAY, DELTA_LENGTH_BYTE_ARRAY))
    room = _room(len(content))
    found_rows, uncompressed = contents_of(content, columns, min(rows, room // 16))
    if found_rows != rows:
        raise FormatError(f"has {found_rows} rows, the manifest says {rows}")
    if uncompressed > room:
        raise FormatError("needs more memory than a file of its size may")
    with pq.ParquetFile(pa.BufferReader(content), thrift_string_size_limit=1 << 20) as file:
        table = file.read(use_threads=False)
    wanted = {"fingerprint": pa.uint64(), "value": pa.int64(), "key": pa.binary()}
    for column in columns:
        found = table[column.name]
        if found.type != wanted[column.name] or found.null_count:
            raise FormatError(f"column {column.name!r} must be there as {wanted[column.name]}, without nulls")
    prints, values = (_numbers(table[name]) for name in ("fingerprint", "value"))
    texts = table["key"].cast(pa.large_binary()).combine_chunks()
    return Heavy(prints, values, texts if isinstance(texts, pa.LargeBinaryArray) else texts.chunk(0))


def _numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    """Convert like `to_numpy`, which would import pandas where it is installed."""
    kind = np.uint64 if column.type == pa.uint64() else np.int64
    parts = [
        np.frombuffer(chunk.buffers()[1] or b"", kind)[chunk.offset : chunk.offset + len(chunk)]
        for chunk in column.chunks
    ]
    return np.concatenate([np.zeros(0, kind), *parts]) if len(parts) != 1 else parts[0]


def _check(heavy: Heavy, plan: Plan, *, cells: bool) -> None:
    prints: NDArray[np.uint64] = heavy.fingerprints
    _check_order(prints, strict=cells)
    top, bits, width = plan.top, plan.domain_bits, listed_bits(plan, cells=cells)
    if top is not None and top.domain_bits is None:
        if cells and np.any(heavy.values >= top.threshold):
            raise FormatError("a value is not of its list")
    elif top is not None and bits is not None and top.domain_bits is not None:
        of_top = prints & np.uint64(1) == 1
        if np.any(prints[~of_top] & np.uint64((1 << (top.domain_bits - bits + 1)) - 1)):
            raise FormatError("a listed cell is none of the domain")
        if np.any((heavy.values >= top.threshold) != of_top):
            raise FormatError("a value is not of its list")
    if len(prints) and int(prints[-1]) >> width:
        raise FormatError("a fingerprint lies outside of the domain")
    least = plan.threshold if cells else plan.heavy_from
    least = least if plan.selection.by_count else -_LARGEST_VALUE
    if len(prints) and not least <= int(heavy.values.min()) <= int(heavy.values.max()) <= _LARGEST_VALUE:
        raise FormatError(f"a value is below {least} or above 2^62")


def _check_order(prints: NDArray[np.uint64], *, strict: bool) -> None:
    if not bool(np.all(prints[1:] > prints[:-1] if strict else prints[1:] >= prints[:-1])):
        raise FormatError("fingerprints are not sorted")


def _room(size: int) -> int:
    return max(_MIN_ROOM, _MAX_TIMES * size)


# The structure of a Parquet file, looked at before Arrow reads it: how much memory would it need?
#
# A few kilobytes can ask for gigabytes: pages that decompress without end, one page named by many row groups, values
# that repeat one another. Arrow believes what pages say, and its metadata objects abort the process on some files. So
# the footer and the page headers (Thrift, compact protocol) are read here first, strictly: only what hushgram itself
# writes is let through, and sizes are added up before anything is decompressed.
#
# The format is Apache Parquet's, `parquet.thrift`; numbers below are its field ids and enum values.

MAGIC = b"PAR1"
#: encodings of values
DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY = 5, 6
#: physical types: int64 and byte array
INT64, BYTE_ARRAY = 2, 6
# kinds of compression: none, zstd
_CODECS = (0, 6)
_DATA_PAGE = 0
# Footer bytes of the file itself, and of each row group of each column: more than Arrow has ever needed.
_FOOTER, _FOOTER_OF_CHUNK = 4096, 512
_DEEPEST = 12


@dataclass(frozen=True)
class Column:
    """A column that a file must have: its name, physical type and encoding."""

    name: str
    physical: int
    encoding: int


def contents_of(content: bytes, columns: list[Column], most_rows: int) -> tuple[int, int]:
    """Check that the file has these columns and no others; return its rows and the decompressed bytes of all pages.

    Raises FormatError with the reason alone; ``most_rows`` limits what is looked at.
    """
    try:
        return _contents(content, columns, most_rows)
    except (IndexError, KeyError, TypeError, ValueError, AttributeError):
        raise FormatError("its structure is damaged") from None


def _contents(content: bytes, columns: list[Column], most_rows: int) -> tuple[int, int]:
    length = int.from_bytes(content[-8:-4], "little")
    if len(content) < 12 or content[:4] != MAGIC or content[-4:] != MAGIC or length > len(content) - 12:
        raise FormatError("it is not a Parquet file")
    if length > _FOOTER + _FOOTER_OF_CHUNK * len(columns) * (1 + most_rows // 1000):
        raise FormatError("its footer is longer than its rows need")
    body = len(content) - 8 - length
    footer = _Thrift(content, body, len(content) - 8).struct()
    _check_schema(footer[2], columns)
    groups, rows = footer[4], footer[3]
    if type(rows) is not int or not 0 <= rows <= most_rows or sum(group[3] for group in groups) != rows:
        raise FormatError(f"it must have at most {most_rows} rows in its row groups")
    pages = [
        page
        for group in groups
        for chunk, column in zip(group[1], columns, strict=True)
        for page in _pages(content, body, chunk[3], column, group[3])
    ]
    return rows, sum(pages)


def _check_schema(schema: list[dict[int, Any]], columns: list[Column]) -> None:
    """Check the root and the columns, flat, in order. Fields: 1 type, 3 repetition, 4 name, 5 children."""
    names = [element[4].decode() for element in schema[1:]]
    if names != [column.name for column in columns] or schema[0][5] != len(columns):
        raise FormatError(f"its columns must be {', '.join(column.name for column in columns)}")
    for element, column in zip(schema[1:], columns, strict=True):
        if element[1] != column.physical or element.get(3, 0) not in (0, 1) or 5 in element:
            raise FormatError(f"column {column.name!r} is of another type")


def _pages(content: bytes, body: int, chunk: dict[int, Any], column: Column, rows: int) -> list[int]:
    """Decompressed sizes of the pages of a column chunk, which lie before ``body``.

    Fields: 4 codec, 5 values, 7 compressed size, 9 first data page, 11 dictionary page.
    """
    if chunk[4] not in _CODECS or chunk[1] != column.physical or chunk.get(11) or chunk[5] != rows:
        raise FormatError(f"column {column.name!r} is compressed or encoded in a way that is not read here")
    if rows == 0 and chunk[7] == 0:
        return []
    at, end = chunk[9], chunk[9] + chunk[7]
    if not 4 <= at <= end <= body:
        raise FormatError(f"column {column.name!r} lies outside of the file")
    sizes, seen = [], 0
    while at < end:
        reader = _Thrift(content, at, end)
        page = reader.struct()  # 1 kind, 2 decompressed size, 3 compressed size, 5 data page header
        head = page[5]  # 1 values, 2 encoding, 3 and 4 encodings of levels
        if page[1] != _DATA_PAGE or head[2] != column.encoding or head[1] < 1 or min(page[2], page[3]) < 0:
            raise FormatError(f"column {column.name!r} has a page that is not read here")
        sizes.append(page[2])
        seen += head[1]
        at = reader.at + page[3]
        if seen > rows:
            break
    if at != end or seen != rows:
        raise FormatError(f"column {column.name!r} has pages that do not add up")
    return sizes


class _Thrift:
    """A reader of Thrift's compact protocol: structs as dictionaries by field id."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Read fields up to the stop byte."""
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        out: dict[int, Any] = {}
        field = 0
        while (head := self._byte()) != 0:
            field = field + (head >> 4) if head >> 4 else self._zigzag()
            out[field] = self._value(head & 15, depth)
        return out

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind == 7:
            return self._bytes(8)
        if kind == 8:
            return self._bytes(self._varint())
        if kind in (9, 10):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            if count > self.end - self.at:
                raise ValueError("a list is longer than the file")
            inner = head & 15
            return [self._byte() == 1 if inner in (1, 2) else self._value(inner, depth) for _ in range(count)]
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError("unknown type")  # maps are not used by Parquet

    def _byte(self) -> int:
        if self.at >= self.end:
            raise ValueError("cut short")
        self.at += 1
        return self.data[self.at - 1]

    def _bytes(self, count: int) -> bytes:
        if count > self.end - self.at:
            raise ValueError("cut short")
        self.at += count
        return self.data[self.at - count : self.at]

    def _varint(self) -> int:
        out = shift = 0
        while True:
            byte = self._byte()
            out |= (byte & 127) << shift
            if byte < 128:
                return out
            shift += 7
            if shift > 63:
                raise ValueError("a number is too long")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
