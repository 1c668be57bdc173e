"""Bytes to blocks of whole lines: decompression, byte ranges, lines without end.

A byte range [start, stop) owns the lines that *begin* in it, so ranges that cover a file cover each line
once, wherever the cuts fall. What happens to a line follows from its own bytes, never from how the file is cut:
one of more than MAX_LINE_BYTES is rejected in every cut, and without being held in memory. So too a byte-order mark:
formats take it from the beginning of any line, not of the first one alone, which may be anybody's.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from hushgram.errors import InputError
from hushgram.inputs.source import MAX_LINE_BYTES, Opener, Rejects, WorkItem, first_line

__all__ = ["BOM", "COMPRESSIONS", "HEAD_BYTES", "Block", "line_blocks", "open_text", "read_head"]

COMPRESSIONS = {".gz": "gzip", ".gzip": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd", ".xz": "xz"}
BOM = b"\xef\xbb\xbf"
HEAD_BYTES = 1 << 20
_MAGIC = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".zst": b"\x28\xb5\x2f\xfd", ".xz": b"\xfd7zXZ"}
_TOO_LONG = "line is too long"


class Block(NamedTuple):
    """Whole lines: where they begin in the text, the bytes, and how far the file was read for them.

    Only the last line of a file may lack its newline.
    """

    offset: int
    data: bytes
    size: int


def open_text(path: str, compression: str | None, opener: Opener) -> tuple[Any, Any]:
    """Return (text stream, the file behind it), decompressed while it is read."""
    raw = opener(path)
    if compression == "xz":  # which pyarrow does not know
        return lzma.LZMAFile(raw), raw
    return (raw if compression is None else pa.CompressedInputStream(raw, compression)), raw


def read_head(path: str, compression: str | None, opener: Opener) -> bytes:
    """Return the first MiB of a text file; raise an `InputError` if it cannot be read or is not UTF-8 text."""
    try:
        stream, raw = open_text(path, compression, opener)
        with raw, stream:
            head = bytes(stream.read(HEAD_BYTES))
    except (pa.ArrowException, OSError, EOFError, lzma.LZMAError) as problem:
        kind = f"as {compression} " if compression else ""
        raise InputError(f"{path}: cannot be read {kind}({first_line(problem)})") from None
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"{path}: is UTF-16 text; convert it to UTF-8")
    for ending, magic in _MAGIC.items():
        if head.startswith(magic):
            raise InputError(f"{path}: is compressed; give it the ending {ending}, or unpack it")
    if head[:4] == b"PAR1":
        raise InputError(f"{path}: is a Parquet file; set input.format to parquet or give it that ending")
    return head.removeprefix(BOM)


def line_blocks(item: WorkItem, opener: Opener, block_bytes: int, rejects: Rejects) -> Iterator[Block]:
    """Yield all lines of the item, in blocks; lines that are too long are rejected."""
    stream, raw = open_text(item.path, item.compression, opener)
    with raw, stream:
        offset = _seek(stream, item)
        rest, skipping, seen = b"", False, 0
        for piece in _pieces(stream, item, offset, block_bytes):
            size = len(piece) if item.compression is None else raw.tell() - seen
            seen += size
            data = rest + piece if rest else piece
            if skipping:  # inside a line without end: on to its newline, holding nothing
                found = data.find(b"\n") + 1
                skipping = not found
                offset, data = offset + (found or len(data)), data[found:] if found else b""
            end = data.rfind(b"\n") + 1
            yield from _without_long(Block(offset, data[:end], size), rejects)
            offset, rest = offset + end, data[end:]
            if len(rest) > MAX_LINE_BYTES:
                rejects.add(_TOO_LONG, offset, rest[:4000])
                offset, rest, skipping = offset + len(rest), b"", True
        yield Block(offset, rest, 0)


def _without_long(block: Block, rejects: Rejects) -> Iterator[Block]:
    """Yield the block, or the parts of it around lines that are too long."""
    offset, data, size = block
    at = 0
    while len(data) - at > MAX_LINE_BYTES:
        end = data.rfind(b"\n", at, at + MAX_LINE_BYTES + 1) + 1
        if end:
            yield Block(offset + at, data[at:end], size)
            at, size = end, 0
        else:
            rejects.add(_TOO_LONG, offset + at, data[at : at + 4000])
            at = data.find(b"\n", at) + 1
    yield Block(offset + at, data[at:] if at else data, size)


def _seek(stream: Any, item: WorkItem) -> int:
    """Move to the first line that begins in the range; return its offset."""
    if item.start == 0:
        return 0
    stream.seek(item.start - 1)
    at: int = item.start - 1
    while piece := stream.read(1 << 16):
        found = bytes(piece).find(b"\n")
        if found >= 0:
            at += found + 1
            stream.seek(at)
            return at
        at += len(piece)
    return at


def _pieces(stream: Any, item: WorkItem, offset: int, block_bytes: int) -> Iterator[bytes]:
    """Yield the bytes from `offset` to the end of the last line that begins before item.stop."""
    if item.compression is not None or item.stop < 0:  # the whole stream: its length is not known
        while piece := stream.read(block_bytes):
            yield bytes(piece)
        return
    ended = True
    while offset < item.stop:
        piece = bytes(stream.read(min(block_bytes, item.stop - offset)))
        if not piece:
            return
        offset += len(piece)
        ended = piece.endswith(b"\n")
        yield piece
    while not ended and (piece := bytes(stream.read(1 << 16))):
        found = piece.find(b"\n") + 1
        ended = bool(found)
        yield piece[:found] if found else piece
