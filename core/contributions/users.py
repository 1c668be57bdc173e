"""Users: secret tokens that stand for them, and public parts of them.

`user_tokens` are 128 bits of a keyed pseudo-random function, AES-256-CBC-MAC over length ‖ bytes (a prefix-free code,
for which CBC-MAC is a PRF: Bellare, Kilian, Rogaway 2000). Two users that share a token would be bounded as one, so a
collision must not be something that anyone can arrange: the key is secret and the width 128 bits.

`UserPart` is a rule that anyone can apply, so that two parts share no user:

    UserPart("pageviews", modulo=12, part=3).keep(batch.column("user"))

A user belongs to the part (hash of the user's identifier) mod `modulo`, the same in all releases of a data set. The
hash is keyed by the data set's name, which is public: parts of two data sets are independent, and nobody needs a
secret to tell who is in which part. An identifier counts by its canonical bytes, as everywhere (`keys`).

Requirement. One person has one identifier in all inputs of the data set. A person with two of them is two users,
here as for every bound on contributions.

Guarantee. For each person at most one part sees their records, decided by the identifier alone and by no data; so
releases on different parts of one `modulo` compose in parallel (McSherry 2009, Theorem 4). The rule is applied as a
filter before contributions are bounded: a record's fate follows from its own user.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from hushgram.contributions.keys import Packed, encode
from hushgram.errors import ParameterError
from hushgram.numbers import integer

__all__ = ["UserPart", "user_tokens"]


_BLOCK = 16
# Longer values enter the MAC by their HMAC-SHA256, so that one huge value does not mean a million rounds.
_LONG = 240


def user_tokens(values: pa.LargeBinaryArray, key: bytes) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return 128-bit tokens of canonical values under a 32-byte secret key, as two 64-bit halves."""
    values, tags = _shorten(values, key)
    packed = Packed(values)
    high, low = np.empty(len(packed), np.uint64), np.empty(len(packed), np.uint64)
    ecb = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # CBC-MAC, all messages side by side
    for start in range(0, len(packed), Packed.ROWS):
        rows = slice(start, min(start + Packed.ROWS, len(packed)))
        state = _mac(packed, rows, tags[rows], ecb)
        high[rows], low[rows] = state[:, 0], state[:, 1]
    return high, low


def _mac(packed: Packed, rows: slice, tags: NDArray[np.uint8], ecb: Any) -> NDArray[np.uint64]:
    """Return the CBC-MAC of length (7 bytes) ‖ tag (1 byte: shortened?) ‖ bytes ‖ zeros, two words per message."""
    lengths = packed.lengths[rows]
    state = np.empty((len(lengths), 2), dtype="<u8")
    state[:, 0] = lengths.astype(np.uint64) | (tags.astype(np.uint64) << np.uint64(56))
    state[:, 1] = packed.words(rows, 0)[0]
    state = _permute(ecb, state)
    active = np.flatnonzero(lengths > 8)
    at = 8
    while len(active):
        block = state[active]
        for half, word in enumerate(packed.words(active + rows.start, at)):
            block[:, half] ^= word
        state[active] = _permute(ecb, block)
        at += _BLOCK
        active = active[lengths[active] > at]
    return state


def _shorten(values: pa.LargeBinaryArray, key: bytes) -> tuple[pa.LargeBinaryArray, NDArray[np.uint8]]:
    """Return values with those over the limit replaced by their HMAC, and a tag that says which."""
    long = pc.greater(pc.binary_length(values), _LONG).to_numpy(zero_copy_only=False)
    tags = np.asarray(long, dtype=np.uint8)
    if tags.any():
        short = values.to_pylist()
        for i in np.flatnonzero(tags):
            short[i] = hmac.new(key, short[i], hashlib.sha256).digest()
        values = pa.array(short, pa.large_binary())
    return values, tags


def _permute(ecb: Any, blocks: NDArray[np.uint64]) -> NDArray[np.uint64]:
    out = np.empty(blocks.nbytes + _BLOCK - 1, np.uint8)
    written = ecb.update_into(np.ascontiguousarray(blocks).view(np.uint8).data, out.data)
    return out[:written].view("<u8").reshape(blocks.shape)


# --- parts of the users ------------------------------------------------------------------------------------------

_MAX_PARTS = 1 << 20
_NAME = re.compile(r"part (\d{1,7}) of (\d{1,7})")


@dataclass(frozen=True)
class UserPart:
    """One of `modulo` disjoint parts of a data set's users, counted from 0.

    >>> UserPart("views", modulo=12, part=3).name
    'part 3 of 12'
    >>> UserPart.parse("views", "part 3 of 12") == UserPart("views", 12, 3)
    True
    """

    dataset: str
    modulo: int
    part: int

    def __post_init__(self) -> None:
        integer(self.modulo, "modulo", "UserPart", low=2, high=_MAX_PARTS)
        integer(self.part, "part", "UserPart", low=0, high=self.modulo - 1)

    @classmethod
    def parse(cls, dataset: str, name: str) -> UserPart:
        """Return the part that a ledger names."""
        found = _NAME.fullmatch(name)
        if found is None:
            raise ParameterError(
                f"users must be a part that hushgram applies, such as 'part 3 of 12', got {name!r:.60}; a label that "
                "nobody checks is not a part: write user_partition: {modulo: 12, part: 3}, or leave it out"
            )
        return cls(dataset, int(found[2]), int(found[1]))

    @property
    def name(self) -> str:
        """Return the name that the ledger stores."""
        return f"part {self.part} of {self.modulo}"

    def keep(self, users: Any) -> NDArray[np.bool_]:
        """Return which rows of a column of users are in this part."""
        encoded = encode(users, "users")
        key = hashlib.sha256(b"hushgram part of the users\0" + self.dataset.encode()).digest()
        high, _ = user_tokens(encoded.values, key)
        mine: NDArray[np.bool_] = high % np.uint64(self.modulo) == self.part
        return mine[encoded.codes]
