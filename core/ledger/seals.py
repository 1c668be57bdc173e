"""Seals: every row of the ledger is bound, so that damage is noticed before a sum is believed.

For each data set there is a chain over its releases, in their order:

    link_0 = tag(name, ε, δ, rule, created)                             the data set itself
    link_n = tag(link_(n-1), what release n was asked to do, its events) never changes once written
    seal_n = tag(link_n, status, charged, key, digest, …)                anew with each change of the row
    head   = n, link_n, tag(n, link_n)                                   so that no row is missing at the end

and one tag over the list of all data sets. A changed, missing, added or moved row, amount or event breaks a
tag. An old copy of one row in place of a newer one (which needs a valid seal of that very row) cannot lower
the sum: a release is charged from its first state on, and "not charged" is a last state.

`tag` is HMAC-SHA-256 under a key derived from the wrapping key where the operator has one: then nobody
without that key can change a row unnoticed. Without one it is plain SHA-256, which finds accidents (a failing
disk, a copy cut short, an edit by hand) but not a forger who computes the tags anew. Neither can tell an old
copy of the whole ledger from the present one: that is what `witness` is for.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from hushgram.ledger.secrets import wrapping_key

__all__ = ["Sealer"]

_of_dataset = itemgetter("name", "epsilon", "delta", "composition", "created")
_fixed = itemgetter(
    "dataset", "name", "attempt", "job", "parameters", "inputs", "reserved", "users", "resumable"
)
_state = itemgetter("status", "charged", "target", "secret", "digest", "owner", "lease", "finished")
_of_event = itemgetter("position", "kind", "version", "epsilon", "delta", "details", "relation")

Row = Mapping[str, Any]


class Sealer:
    """Computes tags, with a key or without."""

    def __init__(self, key: bytes | None) -> None:
        self._key = None if key is None else hmac.digest(key, b"hushgram ledger seals 1", "sha256")

    @classmethod
    def configured(cls) -> Sealer:
        """By the wrapping key of this process's environment, if any."""
        return cls(wrapping_key())

    @property
    def form(self) -> str:
        """What the ledger notes about its tags: whether keyed, and by which key (a check value of it)."""
        return "sha256-1" if self._key is None else f"hmac-1:{self.tag('which key')[:16]}"

    def tag(self, purpose: str, *fields: object) -> str:
        """The tag of some fields, as 64 hexadecimal digits; no two lists of fields look alike as JSON."""
        content = json.dumps((purpose, *fields)).encode()
        if self._key is None:
            return hashlib.sha256(content).hexdigest()
        return hmac.digest(self._key, content, "sha256").hex()

    def first_link(self, dataset: Row) -> str:
        """link_0."""
        return self.tag("data set", *_of_dataset(dataset))

    def next_link(self, previous: str, release: Row, events: Sequence[Row]) -> str:
        """link_n after `previous`."""
        return self.tag("release", previous, _fixed(release), [_of_event(event) for event in events])

    def seal(self, link: str, release: Row) -> str:
        """The seal of a release's present state."""
        return self.tag("state", link, _state(release))

    def head(self, dataset: str, count: int, link: str) -> str:
        """The seal of a data set's head."""
        return self.tag("head", dataset, count, link)

    def whole(self, form: str, pepper: str | None, datasets: Sequence[Row]) -> str:
        """The tag over the ledger's own settings and the list of all data sets (sorted by name)."""
        return self.tag("ledger", form, pepper, [_of_dataset(row) for row in datasets])
