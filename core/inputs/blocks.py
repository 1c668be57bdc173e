"""Bytes to blocks of whole lines: decompression, byte ranges, byte-order marks, lines without end.

A byte range [start, stop) owns the lines that *begin* in it, so ranges that cover a file cover each line
once, wherever the cuts fall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from hushgram.errors import InputError
from hushgram.inputs.source import MAX_LINE_BYTES, Opener, Rejects, WorkItem, first_line

__all__ = ["COMPRESSIONS", "Block", "Cut", "last_line", "line_blocks", "open_text", "read_head"]

COMPRESSIONS = {".gz": "gzip", ".gzip": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd"}
_HEAD_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"

#: (bytes) -> length of the longest prefix of whole records, 0 where none ends
Cut = Callable[[bytes], int]


class Block(NamedTuple):
    """Whole lines: where they begin in the text, the bytes, and how far the file was read for them."""

    offset: int
    data: bytes
    size: int


def open_text(path: str, compression: str | None, opener: Opener) -> tuple[Any, Any]:
    """(text bytes, the file behind them), decompressed while it is read."""
    raw = opener(path)
    return (raw if compression is None else pa.CompressedInputStream(raw, compression)), raw


def read_head(path: str, compression: str | None, opener: Opener) -> bytes:
    """The first MiB of a text file; an `InputError` where it cannot be read or is no text of ours."""
    try:
        stream, raw = open_text(path, compression, opener)
        with raw, stream:
            head = bytes(stream.read(_HEAD_BYTES))
    except (pa.ArrowException, OSError, EOFError) as problem:
        kind = f"as {compression} " if compression else ""
        raise InputError(f"{path}: cannot be read {kind}({first_line(problem)})") from None
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"{path}: is UTF-16 text; convert it to UTF-8")
    if head[:4] == b"PAR1":
        raise InputError(f"{path}: is a Parquet file; set input.format to parquet or give it that ending")
    return head


def last_line(block: bytes) -> int:
    """Length of the prefix that ends with the last newline."""
    return block.rfind(b"\n") + 1


def line_blocks(
    item: WorkItem, opener: Opener, block_bytes: int, rejects: Rejects, cut: Cut = last_line
) -> Iterator[Block]:
    """All lines of the item, in blocks that end where `cut` says that a record ends.

    A record longer than MAX_LINE_BYTES is set aside without being held in memory.
    """
    stream, raw = open_text(item.path, item.compression, opener)
    with raw, stream:
        offset = _seek(stream, item)
        rest, skipping, seen = b"", False, 0
        for piece in _pieces(stream, item, offset, block_bytes):
            size = len(piece) if item.compression is None else raw.tell() - seen
            seen += size
            block = rest + piece if rest else piece
            if skipping:  # inside a line without end: on to its newline, holding nothing
                found = block.find(b"\n") + 1
                skipping = not found
                offset, block = offset + (found or len(block)), block[found:] if found else b""
            while not (end := cut(block)) and len(block) > MAX_LINE_BYTES:
                first = block.find(b"\n") + 1  # lines, but no record: a quote that is never closed
                rejects.add("line is too long" if not first else "quote is not closed", offset, block[:4000])
                skipping = not first
                offset, block = offset + (first or len(block)), block[first:] if first else b""
            yield Block(offset, _without_mark(block[:end], offset), size)
            offset, rest = offset + end, block[end:]
        yield Block(offset, _without_mark(rest, offset), 0)


def _without_mark(block: bytes, offset: int) -> bytes:
    return block[3:] if offset == 0 and block.startswith(_BOM) else block


def _seek(stream: Any, item: WorkItem) -> int:
    """Moves to the first line that begins in the range; returns its offset."""
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
    """The bytes from `offset` to the end of the last line that begins before item.stop."""
    if item.compression is not None or item.stop < 0:  # the whole stream: its length is not known
        while piece := stream.read(block_bytes):
            yield bytes(piece)
        return
    while offset < item.stop:
        piece = bytes(stream.read(min(block_bytes, item.stop - offset)))
        if not piece:
            return
        offset += len(piece)
        if offset == item.stop and not piece.endswith(b"\n"):
            piece += _to_line_end(stream)
        yield piece


def _to_line_end(stream: Any) -> bytes:
    pieces = []
    held = 0
    while held <= MAX_LINE_BYTES and (piece := bytes(stream.read(1 << 16))):
        found = piece.find(b"\n") + 1
        pieces.append(piece[:found] if found else piece)
        held += len(piece)
        if found:
            break
    return b"".join(pieces)
