"""Lists of keys: a file with one key per line, read alike wherever a job or a command takes one.

A line ends with LF or CRLF; a byte-order mark at the beginning and empty lines are ignored; everything else of
a line is the key, blanks included. Keys are bytes: text in UTF-8 where it is text.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import pyarrow as pa

from hushgram.errors import InputError
from hushgram.inputs.source import Opener, first_line, open_local

__all__ = ["read_key_list", "read_text_keys"]

# A list is held in memory, by every worker too; a longer one is a key space rather than a list of known keys.
_MAX_BYTES = 1 << 30


def read_key_list(
    path: str, field: str, opener: Opener = open_local, *, repeated: bool = False
) -> list[bytes]:
    """Return the keys of a file, in its order.

    Args:
        path: the file; ``-`` is standard input.
        field: the config field or option that names the file, for messages.
        opener: opens a path for reading bytes.
        repeated: whether a key may be listed twice.
    """
    where = f"{field} {path}"
    content = _content(path, where, opener)
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"{where}: is UTF-16 text; convert it to UTF-8")
    lines = [line.removesuffix(b"\r") for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    keys = [line for line in lines if line]
    if not keys:
        raise InputError(f"{where}: has no keys; write one key per line")
    if not repeated and len(set(keys)) != len(keys):
        seen: set[bytes] = set()
        twice = next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InputError(
            f"{where}: lists {twice.decode('utf-8', 'replace')[:80]!r} twice; list each key once"
        )
    return keys


def read_text_keys(path: str, field: str, opener: Opener = open_local) -> list[str]:
    """Return the keys of a file where they must be text."""
    keys = read_key_list(path, field, opener)
    try:
        return [key.decode("utf-8") for key in keys]
    except UnicodeDecodeError:
        raise InputError(f"{field} {path}: is not UTF-8 text; convert it to UTF-8") from None


def _content(path: str, where: str, opener: Opener) -> bytes:
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else opener(path) as file:
            content = _up_to(_MAX_BYTES + 1, file)
    except InputError as problem:
        raise InputError(f"{where}: {str(problem).removeprefix(f'{path}: ')}") from None
    except (OSError, pa.ArrowException) as problem:
        raise InputError(f"{where}: cannot be read: {first_line(problem)}") from None
    if len(content) > _MAX_BYTES:
        raise InputError(f"{where}: is larger than 1 GiB; release a sketch of all keys instead of a list")
    return content


def _up_to(most: int, file: Any) -> bytes:
    """Return the content of a file up to `most` bytes, read in pieces: one read would allocate all of them."""
    content = bytearray()
    while len(content) < most and (piece := file.read(min(most - len(content), 1 << 20))):
        content += piece
    return bytes(content)
