"""The witness: a small file outside of the ledger that remembers how far it had come.

Seals cannot tell an old copy of a whole ledger from the present one, and budget that is spent after a restore
would be spent twice. So each reservation adds a line to a file that a restore does not bring back:

    ledger.db.witness beside an SQLite ledger, or the file that HUSHGRAM_LEDGER_WITNESS names

with the number of releases of the data set, the link of its chain and the sums of ε and δ, in all and for each
relation. A ledger that is behind its witness, or has another history,
releases nothing until `hushgram ledger recover` has charged the difference. It is best effort: a restore of the
whole folder brings back the old witness too (keep it on another disk), and a PostgreSQL ledger has one only where
HUSHGRAM_LEDGER_WITNESS is set on all machines.

A line is added too for each release whose key is handed out, with its link: an old copy in which it is only
reserved must not give its charge back.

Lines are appended, each with a tag; a torn or altered line is passed over.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from hushgram.accounting import RELATIONS
from hushgram.ledger.seals import Sealer

__all__ = ["Seen", "Witness"]

_LIMIT = 1 << 26
"""A witness above 64 MiB (about 200,000 releases) is read from there on only."""


@dataclass(frozen=True)
class Seen:
    """How far a data set had come; `spent` are the sums of ε and δ for each relation."""

    dataset: str
    count: int
    link: str
    spent: Mapping[str, tuple[Fraction, Fraction]]

    @classmethod
    def read(cls, fields: Sequence[str]) -> Seen:
        """What `fields` wrote; a sum that names no relation may belong to any, and is charged to each."""
        named = list(fields[5:])
        if len(fields) == 5:
            named = [text for relation in RELATIONS for text in (relation, *fields[3:5])]
        triples = zip(named[::3], named[1::3], named[2::3], strict=True)
        spent = {relation: (Fraction(epsilon), Fraction(delta)) for relation, epsilon, delta in triples}
        return cls(fields[0], int(fields[1]), fields[2], spent)

    def beyond(self, known: Seen | None, relation: str) -> tuple[Fraction, Fraction]:
        """The ε and δ of a relation that `known` lacks."""
        nothing = Fraction(0), Fraction(0)
        loss, slack = self.spent.get(relation, nothing)
        has, has_slack = nothing if known is None else known.spent.get(relation, nothing)
        return max(Fraction(0), loss - has), max(Fraction(0), slack - has_slack)

    def is_ahead_of(self, links: Sequence[str]) -> bool:
        """Whether a chain with these links has not come as far, or has gone another way."""
        return self.count >= len(links) or links[self.count] != self.link

    def fields(self) -> list[str]:
        """As a line holds it."""
        sums = [text for name, (e, d) in self.spent.items() for text in (name, str(e), str(d))]
        total = [str(sum(each)) for each in zip(*self.spent.values(), strict=True)]
        return [self.dataset, str(self.count), self.link, *total, *sums]


class Witness:
    """The file beside a ledger; nothing happens where there is none."""

    def __init__(self, ledger: Path | None, sealer: Sealer) -> None:
        named = os.environ.get("HUSHGRAM_LEDGER_WITNESS")
        self.path = Path(named) if named else None if ledger is None else Path(f"{ledger}.witness")
        self._sealer = sealer

    def last(self, dataset: str) -> Seen | None:
        """The furthest state that was seen of a data set."""
        found: Seen | None = None
        for text in self._lines():
            with contextlib.suppress(ValueError, TypeError, KeyError, IndexError, ZeroDivisionError):
                line = json.loads(text)
                fields = [str(field) for field in line["seen"]]
                if line["tag"] != self._sealer.tag("witness", line["anew"], *fields):
                    continue
                seen = Seen.read(fields)
                if seen.dataset == dataset and (line["anew"] or found is None or seen.count >= found.count):
                    found = seen
        return found

    def note(self, seen: Seen, anew: bool = False) -> None:
        """Adds a line; `anew` where all earlier ones about this data set are settled."""
        tag = self._sealer.tag("witness", anew, *seen.fields())
        self._add({"seen": seen.fields(), "anew": anew, "tag": tag})

    def note_start(self, link: str) -> None:
        """Adds that the key of the release with this link is about to be handed out."""
        self._add({"started": link, "tag": self._sealer.tag("witness started", link)})

    def saw_start(self, link: str) -> bool:
        """Whether the key of the release with this link was handed out."""
        line = json.dumps({"started": link, "tag": self._sealer.tag("witness started", link)})
        return line in self._lines()

    def _add(self, fields: Mapping[str, object]) -> None:
        if self.path is None:
            return
        line = "\n" + json.dumps(fields)  # not after a torn one
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
            descriptor = os.open(self.path, flags, 0o600)
            try:
                os.write(descriptor, line.encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _lines(self) -> list[str]:
        if self.path is None:
            return []
        try:
            with open(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                state = os.fstat(file.fileno())
                if not stat.S_ISREG(state.st_mode):
                    return []
                file.seek(max(0, state.st_size - _LIMIT))
                return file.read().decode("utf-8", "replace").split("\n")
        except OSError:
            return []
