"""What is put in, taken out or turned."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

__all__ = ["Try", "mutated"]

Try = Callable[[random.Random, Path], None]
_PIECES = [
    b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b'"', b"'", b",", b";", b"\t", b"{", b"}", b"[", b"]", b":",
    b"1e400", b"-0", b"NaN", b"9" * 400, b"\\u0000", b"\\ud800", b"null", b"true", b"{date}", b"!!int", b"&a", b"*a",
    b"<<", b"%", b"_", b"(", b")", b" or ", b" and ", b" not ", b" in ", b" between ", b" like ", b" matches ", b"..",
    b"/", b"://",
    b"\xc3\x28", b"\xed\xa0\x80", b"x" * 300, b"0x10", b"1_000", b"--", b"#", b"|", b">", b"?",
]  # fmt: skip


def mutated(draws: random.Random, seed: bytes) -> bytes:
    """The seed with a few pieces put in, taken out, doubled or turned."""
    data = bytearray(seed)
    for _ in range(draws.randint(1, 6)):
        at = draws.randint(0, len(data))
        kind = draws.randint(0, 4)
        if kind == 0:
            data[at:at] = draws.choice(_PIECES)
        elif kind == 1:
            del data[at : at + draws.randint(1, 12)]
        elif kind == 2:
            data[at:at] = data[at : at + draws.randint(1, 40)]
        elif kind == 3 and data:
            data[at % len(data)] ^= 1 << draws.randint(0, 7)
        else:
            data[at:at] = draws.randbytes(draws.randint(1, 8))
    return bytes(data)
