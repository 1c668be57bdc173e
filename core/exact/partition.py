"""Parts of the users: a rule that anyone can apply, so that two parts share no user.

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
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.exact.keys import encode, user_tokens
from hushgram.numbers import integer

__all__ = ["UserPart"]

_MOST_PARTS = 1 << 20
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
        integer(self.modulo, "modulo", "UserPart", low=2, high=_MOST_PARTS)
        integer(self.part, "part", "UserPart", low=0, high=self.modulo - 1)

    @classmethod
    def parse(cls, dataset: str, name: str) -> UserPart:
        """The part that a ledger names."""
        found = _NAME.fullmatch(name)
        if found is None:
            raise ParameterError(
                f"users must be a part that hushgram applies, such as 'part 3 of 12', got {name!r:.60}; a label that "
                "nobody checks is no part: write user_partition: {modulo: 12, part: 3}, or leave it out"
            )
        return cls(dataset, int(found[2]), int(found[1]))

    @property
    def name(self) -> str:
        """As the ledger stores it."""
        return f"part {self.part} of {self.modulo}"

    def keep(self, users: Any) -> NDArray[np.bool_]:
        """Which rows of a column of users are in this part."""
        encoded = encode(users, "users")
        key = hashlib.sha256(b"hushgram part of the users\0" + self.dataset.encode()).digest()
        high, _ = user_tokens(encoded.values, key)
        mine: NDArray[np.bool_] = high % np.uint64(self.modulo) == self.part
        return mine[encoded.codes]
