"""The hash chain over a ledger's rows, and the rollback anchor outside of it.

Each data set has a chain over its releases, in order:

    link_0 = mac(name, ε, δ, rule, created)                            the data set itself
    link_n = mac(link_(n-1), the request of release n, its events)     never changes once written
    seal_n = mac(link_n, status, charged, key, digest, …)              written anew with each change of the row
    head   = n, link_n, mac(n, link_n, charge_1, …, charge_n)          so that no row is missing at the end

where charge_i is whether release i may still be refunded, is charged for good, or was refunded. One MAC covers the list
of all data sets. A changed, missing, added or moved row, amount or event breaks a MAC. An old version of one row in
place of a newer one has a valid MAC of that very row, but where the two differ in their charge it does not fit the
head: a release whose key was handed out cannot look like one that may be refunded, or that was. `HashChain` is the only
way rows are read and written. Reading a data set reads all of its rows, because a sum that leaves out a row is as wrong
as one over wrong amounts; this takes about 20 µs per release.

MACs cannot distinguish an old copy of a whole ledger from the current one, and budget spent after a restore would be
spent twice. So each reservation appends a line to the rollback anchor, a file that a restore does not bring back:

    ledger.db.anchor next to an SQLite ledger, or the file that HUSHGRAM_LEDGER_ANCHOR names

with the number of releases of the data set, the last link of its chain, its relation and its sums of ε, δ and ρ. A
ledger that is behind its anchor, or has another history, releases nothing until `hushgram ledger recover` has charged
the difference. Each key that is handed out appends a line too: an old copy in which that release is only reserved must
not refund it. The anchor is best effort: restoring the whole folder restores the old anchor as well (keep it on
another disk), and a PostgreSQL ledger has one only if HUSHGRAM_LEDGER_ANCHOR is set on all machines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from hushgram.accounting import Cost, Event
from hushgram.errors import LedgerError
from hushgram.ledger.keys import PEPPER, Macs, Row, charge_of, new_secret, wrap
from hushgram.ledger.records import Dataset, ReleaseRecord, Spent, event_of, spent_on
from hushgram.ledger.store import Store, datasets, events, heads, releases, settings

__all__ = ["Account", "AnchorEntry", "HashChain", "RollbackAnchor", "write_macs"]

_ANCHOR = "HUSHGRAM_LEDGER_ANCHOR"
_ANCHOR_BYTES = 1 << 26
"""Only the last 64 MiB of an anchor (about 200,000 releases) are read."""


@dataclass(frozen=True)
class Account:
    """All rows of one data set, verified.

    `links[n]` is the link of the chain after n releases; `seen` is what the rollback anchor held before the rows were
    read.
    """

    dataset: Dataset
    releases: Sequence[Row]
    events: Mapping[int, Sequence[Row]]
    links: Sequence[str]
    seen: AnchorEntry | None

    def history(self) -> list[ReleaseRecord]:
        """Return every attempt at every release, oldest first."""
        return [self.record(row) for row in self.releases]

    def record(self, row: Row) -> ReleaseRecord:
        """Return a row of this account with its events."""
        return ReleaseRecord.from_row(row, self.events.get(row["id"], ()))

    def latest(self, name: str) -> Row | None:
        """Return the latest attempt at a release id."""
        return max(
            (row for row in self.releases if row["name"] == name), key=itemgetter("attempt"), default=None
        )

    @property
    def relations(self) -> list[str]:
        """The relations of the charged events: at most one, but for what was recovered from another history."""
        return sorted({relation for _, relation, _ in self._charges()})

    def spent(self) -> Spent:
        """Return the charged spending."""
        return spent_on((users, cost) for users, _, cost in self._charges())

    def entry(self, link: str, more: Sequence[Event] = (), lasting: bool = False) -> AnchorEntry:
        """Return what the rollback anchor records about this data set.

        Args:
            link: the last link of the chain.
            more: events of one release that was added after the rows were read.
            lasting: leave out what could be refunded: reservations whose key was not handed out.
        """
        charges = Counter(cost for _, _, cost in self._charges(lasting))
        charges.update(one.cost for one in more)
        sums = [
            sum((times * getattr(cost, name) for cost, times in charges.items()), Fraction(0))
            for name in ("epsilon", "delta", "rho")
        ]
        relation = next(iter([*(one.relation for one in more), *self.relations]), "user")
        return AnchorEntry(self.dataset.name, len(self.releases) + bool(more), link, relation, *sums)

    def is_behind(self) -> bool:
        """Return whether the ledger is older than its rollback anchor, or has another history."""
        seen, links = self.seen, self.links
        return seen is not None and (seen.count >= len(links) or links[seen.count] != seen.link)

    def _charges(self, lasting: bool = False) -> Iterator[tuple[str | None, str, Cost]]:
        known: dict[tuple[str, str, int, str], Cost] = {}  # a schedule repeats its events
        for row in self.releases:
            if row["charged"] and not (lasting and row["status"] == "reserved"):
                for event in self.events.get(row["id"], ()):
                    texts = event["epsilon"], event["delta"], event["version"], event["details"]
                    cost = known.get(texts) or known.setdefault(texts, event_of(event).cost)
                    yield row["users"], event["relation"], cost


class HashChain:
    """Read rows with every MAC checked, and write rows with MACs."""

    def __init__(self, store: Store, macs: Macs, anchor: RollbackAnchor) -> None:
        self._store, self._macs, self._anchor = store, macs, anchor
        with store.read() as connection:
            found, mine = str(_settings(connection).get("seals")), macs.scheme
        if found == mine:
            return
        reason = "has MACs under another wrapping key than the one set now"
        if mine.startswith("sha256"):
            reason = (
                "has MACs under a wrapping key; set HUSHGRAM_KEY_FILE or HUSHGRAM_WRAP_KEY to it "
                "(without it nobody can tell whether the rows are as written)"
            )
        elif found.startswith("sha256"):
            reason = (
                "has MACs without a key, and a wrapping key is set; if this is the first use of the key, run "
                "`hushgram ledger add-key` once, else restore a backup"
            )
        raise LedgerError(f"ledger {store.where} {reason}")

    def datasets(self, connection: sa.Connection) -> list[Row]:
        """Return the rows of all data sets, by name."""
        rows, own = _datasets(connection), _settings(connection)
        if own.get("datasets") != self._macs.settings(str(own.get("seals")), own.get("pepper"), rows):
            raise self._store.damaged("its list of data sets is not as it was written")
        return rows

    def pepper(self, connection: sa.Connection) -> str | None:
        """Return the secret under which inputs are fingerprinted, as stored; None in a restored copy."""
        self.datasets(connection)
        return _settings(connection).get("pepper")

    def read(self, connection: sa.Connection, name: str) -> Account:
        """Return one data set with all of its rows; raise LedgerError if there is none of that name."""
        seen = self._anchor.last(name)  # before the rows: what it holds was committed, and they must have it
        rows = {row["name"]: row for row in self.datasets(connection)}
        if name not in rows:
            known = f"it has {', '.join(list(rows)[:10])}" if rows else "it has none"
            raise LedgerError(
                f"ledger {self._store.where} has no data set {name!r} ({known}); "
                "hushgram ledger init --dataset NAME --epsilon … --delta …"
            )
        macs, mine, spends = self._macs, _releases(connection, name), _events(connection, name)
        links = [macs.first_link(rows[name])]
        for row in mine:
            links.append(macs.next_link(links[-1], row, spends.get(row["id"], ())))
            if links[-1] != row["link"] or macs.state(links[-1], row) != row["seal"]:
                raise self._store.damaged(f"release {row['name']!s:.80} of {name} is not as it was written")
        found = _rows(connection, sa.select(heads).where(heads.c.dataset == name))
        if found != [_head(macs, name, mine, links[-1])]:
            raise self._store.damaged(
                f"releases of {name} are missing at the end, or one has the state of an earlier time"
            )
        return Account(Dataset.from_row(rows[name]), mine, spends, links, seen)

    def locked(self, connection: sa.Connection, key: int) -> Row | None:
        """Return one release, checked and locked until the transaction ends."""
        rows = _rows(connection, sa.select(releases).where(releases.c.id == key).with_for_update())
        for row in rows:
            if self._macs.state(row["link"], row) != row["seal"]:
                raise self._store.damaged(f"release {row['name']!s:.80} is not as it was written")
        return rows[0] if rows else None

    def add(self, connection: sa.Connection, dataset: Row) -> None:
        """Add a data set. The caller has locked the table of data sets."""
        self.datasets(connection)
        connection.execute(datasets.insert().values(**dataset))
        _write_head(connection, self._macs, dataset["name"], [], self._macs.first_link(dataset))
        _write_settings(connection, self._macs)

    def append(
        self, connection: sa.Connection, account: Account, release: Row, spends: Sequence[Row]
    ) -> dict[str, Any]:
        """Add a release with its events. The caller has locked the data set and read `account` since."""
        full: dict[str, Any] = {"digest": None, "finished": None, **release}
        full["link"] = self._macs.next_link(account.links[-1], full, spends)
        full["seal"] = self._macs.state(full["link"], full)
        insert = releases.insert().values(**full).returning(releases.c.id)
        full["id"] = connection.execute(insert).scalar_one()
        connection.execute(events.insert(), [{**event, "release_id": full["id"]} for event in spends])
        _write_head(connection, self._macs, full["dataset"], [*account.releases, full], full["link"])
        return full

    def settle(self, connection: sa.Connection, account: Account, row: Row, **values: Any) -> dict[str, Any]:
        """Change the state of a release, and with it whether it may be refunded.

        The caller has locked the data set, read `account` since, and read the release by `locked`.
        """
        after = self._write(connection, row, values)
        rows = [after if one["id"] == row["id"] else one for one in account.releases]
        _write_head(connection, self._macs, row["dataset"], rows, account.links[-1])
        return after

    def update(self, connection: sa.Connection, row: Row, **values: Any) -> dict[str, Any]:
        """Change the state of a release that was read by `locked` in this transaction, but not its charge."""
        after = self._write(connection, row, values)
        assert charge_of(after) == charge_of(row), "what the head covers is changed by `settle`"
        return after

    def _write(self, connection: sa.Connection, row: Row, values: dict[str, Any]) -> dict[str, Any]:
        after = {**row, **values}
        values["seal"] = after["seal"] = self._macs.state(row["link"], after)
        connection.execute(releases.update().where(releases.c.id == row["id"]).values(**values))
        return after

    def new_pepper(self, connection: sa.Connection) -> str:
        """Store a new pepper and return it as stored. The caller has locked the table of data sets."""
        stored = wrap(new_secret(), PEPPER)
        connection.execute(settings.update().where(settings.c.name == "pepper").values(value=stored))
        _write_settings(connection, self._macs)
        return stored


def write_macs(connection: sa.Connection, macs: Macs, pepper: bytes | None) -> None:
    """Write the MACs of all rows as they are: for a new ledger, a copy, or a new key."""
    connection.execute(settings.delete())
    stored = None if pepper is None else wrap(pepper, PEPPER)
    for name, value in (("seals", macs.scheme), ("pepper", stored)):
        connection.execute(settings.insert().values(name=name, value=value))
    for dataset in _datasets(connection):
        name, link = dataset["name"], macs.first_link(dataset)
        rows, spends = _releases(connection, name), _events(connection, name)
        for row in rows:
            link = macs.next_link(link, row, spends.get(row["id"], ()))
            values = {"link": link, "seal": macs.state(link, row)}
            connection.execute(releases.update().where(releases.c.id == row["id"]).values(**values))
        _write_head(connection, macs, name, rows, link)
    _write_settings(connection, macs)


@dataclass(frozen=True)
class AnchorEntry:
    """How far a data set had come: the number of its releases, the last link, and the sums of what was charged."""

    dataset: str
    count: int
    link: str
    relation: str
    epsilon: Fraction
    delta: Fraction
    rho: Fraction

    @classmethod
    def from_fields(cls, fields: Sequence[str]) -> AnchorEntry:
        """Read what `fields` wrote."""
        dataset, count, link, relation, epsilon, delta, rho = fields
        return cls(dataset, int(count), link, relation, Fraction(epsilon), Fraction(delta), Fraction(rho))

    def fields(self) -> list[str]:
        """Return the fields of a line."""
        return [str(getattr(self, field.name)) for field in dataclasses.fields(self)]

    def lost(self, known: AnchorEntry | None) -> Event:
        """Return the event of the spending that `known` lacks.

        Of ρ all δ is charged: which events it belonged to is lost.
        """
        if known is not None and known.relation != self.relation:
            known = None
        epsilon, delta, rho = (
            max(Fraction(0), getattr(self, name) - (0 if known is None else getattr(known, name)))
            for name in ("epsilon", "delta", "rho")
        )
        about = {"releases": str(self.count)}
        return Event.concentrated(
            "restored", epsilon, delta, rho=rho, rho_delta=delta, relation=self.relation, details=about
        )


class RollbackAnchor:
    """The file of appended lines, each with a MAC; torn and altered lines are skipped. Without a path it is empty."""

    def __init__(self, ledger: Path | None, macs: Macs) -> None:
        self._macs, named = macs, os.environ.get(_ANCHOR)
        self.path = Path(named) if named else None if ledger is None else Path(f"{ledger}.anchor")

    def last(self, dataset: str) -> AnchorEntry | None:
        """Return the furthest state that was recorded for a data set."""
        found: AnchorEntry | None = None
        for text in self._lines():
            with contextlib.suppress(ValueError, TypeError, KeyError, IndexError, ZeroDivisionError):
                line = json.loads(text)
                fields = [str(field) for field in line["seen"]]
                if line["tag"] != self._macs.mac("witness", line["anew"], *fields):
                    continue
                entry = AnchorEntry.from_fields(fields)
                if entry.dataset == dataset and (line["anew"] or found is None or entry.count >= found.count):
                    found = entry
        return found

    def append(self, entry: AnchorEntry, anew: bool = False) -> None:
        """Append an entry; `anew` if it settles all earlier ones about this data set."""
        fields = entry.fields()
        self._append({"seen": fields, "anew": anew, "tag": self._macs.mac("witness", anew, *fields)})

    def append_start(self, link: str) -> None:
        """Append that the key of the release with this link is about to be handed out."""
        self._append({"started": link, "tag": self._macs.mac("witness started", link)})

    def has_start(self, link: str) -> bool:
        """Return whether the key of the release with this link was handed out."""
        line = json.dumps({"started": link, "tag": self._macs.mac("witness started", link)})
        return line in self._lines()

    def _append(self, fields: Mapping[str, object]) -> None:
        if self.path is None:
            return
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
            with open(os.open(self.path, flags, 0o600), "ab", buffering=0) as file:
                file.write(f"\n{json.dumps(fields)}".encode())  # on a line of its own, also after a torn one
                os.fsync(file.fileno())

    def _lines(self) -> list[str]:
        if self.path is None:
            return []
        try:
            with open(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                state = os.fstat(file.fileno())
                if not stat.S_ISREG(state.st_mode):
                    return []
                file.seek(max(0, state.st_size - _ANCHOR_BYTES))
                return file.read().decode("utf-8", "replace").split("\n")
        except OSError:
            return []


def _head(macs: Macs, name: str, rows: Sequence[Row], link: str) -> dict[str, Any]:
    return {"dataset": name, "count": len(rows), "link": link, "seal": macs.head(name, link, rows)}


def _write_head(connection: sa.Connection, macs: Macs, name: str, rows: Sequence[Row], link: str) -> None:
    connection.execute(heads.delete().where(heads.c.dataset == name))
    connection.execute(heads.insert().values(**_head(macs, name, rows, link)))


def _write_settings(connection: sa.Connection, macs: Macs) -> None:
    own = _settings(connection)
    mac = macs.settings(str(own["seals"]), own["pepper"], _datasets(connection))
    connection.execute(settings.delete().where(settings.c.name == "datasets"))
    connection.execute(settings.insert().values(name="datasets", value=mac))


def _settings(connection: sa.Connection) -> dict[str, Any]:
    return {row.name: row.value for row in connection.execute(sa.select(settings))}


def _datasets(connection: sa.Connection) -> list[Row]:
    return sorted(_rows(connection, sa.select(datasets)), key=lambda row: str(row["name"]))


def _releases(connection: sa.Connection, dataset: str) -> list[Row]:
    return _rows(connection, sa.select(releases).where(releases.c.dataset == dataset).order_by(releases.c.id))


def _events(connection: sa.Connection, dataset: str) -> dict[int, list[Row]]:
    query = (
        sa.select(events)
        .join(releases, releases.c.id == events.c.release_id)
        .where(releases.c.dataset == dataset)
        .order_by(events.c.release_id, events.c.position)
    )
    found: dict[int, list[Row]] = {}
    for row in _rows(connection, query):
        found.setdefault(row["release_id"], []).append(row)
    return found


def _rows(connection: sa.Connection, query: sa.Select[Any]) -> list[Row]:
    """Return plain dicts, which are created far faster than SQLAlchemy's own mappings."""
    result = connection.execute(query)
    names = tuple(result.keys())
    return [dict(zip(names, row, strict=True)) for row in result.all()]
