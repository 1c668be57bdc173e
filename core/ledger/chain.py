"""Rows of the ledger, read with every seal checked and written with seals: the only way in and out.

`seals` says what is bound to what. Reading a data set reads all of its rows, because a sum that leaves out a
row is as wrong as one that adds up wrong amounts: some 20 µs for each release.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from hushgram.errors import LedgerError
from hushgram.ledger.seals import Row, Sealer
from hushgram.ledger.secrets import fresh, wrap_pepper
from hushgram.ledger.tables import datasets, events, heads, releases, settings
from hushgram.ledger.witness import Seen

__all__ = ["Account", "Chain", "damaged"]

Events = dict[int, list[Row]]


@dataclass(frozen=True)
class Account:
    """All rows of one data set, verified; `links[n]` is the chain's link after n releases.

    `seen` is what the witness had seen before the rows were read.
    """

    dataset: Row
    releases: Sequence[Row]
    events: Mapping[int, Sequence[Row]]
    links: Sequence[str]
    seen: Seen | None = None

    def charges(self, lasting: bool = False) -> Iterator[tuple[str | None, str, str, str]]:
        """Of each event that counts: the part of the users, ε, δ and the relation.

        `lasting` leaves out reservations, whose charge can be given back.
        """
        for row in self.releases:
            if row["charged"] and not (lasting and row["status"] == "reserved"):
                for event in self.events.get(row["id"], ()):
                    yield row["users"], event["epsilon"], event["delta"], event["relation"]

    def latest(self, name: str) -> Row | None:
        """The latest attempt at a release id."""
        return max(
            (row for row in self.releases if row["name"] == name), key=itemgetter("attempt"), default=None
        )


class Chain:
    """The sealed rows behind a connection."""

    def __init__(self, sealer: Sealer, where: str) -> None:
        self._sealer, self._where = sealer, where

    # Reading

    def open(self, connection: sa.Connection) -> None:
        """Refuses a ledger that is sealed in another way than this process can check."""
        found, mine = str(_settings(connection).get("seals")), self._sealer.form
        if found == mine:
            return
        if mine.startswith("sha256"):
            raise LedgerError(
                f"ledger {self._where} is sealed with a wrapping key; set HUSHGRAM_KEY_FILE or "
                "HUSHGRAM_WRAP_KEY to it (without it nobody can tell whether the rows are as written)"
            )
        if found.startswith("sha256"):
            raise LedgerError(
                f"ledger {self._where} is sealed without a key, and a wrapping key is set; if this is the "
                "first use of the key, run `hushgram ledger seal` once, else restore a backup"
            )
        raise LedgerError(f"ledger {self._where} is sealed with another wrapping key than the one set now")

    def datasets(self, connection: sa.Connection) -> list[Row]:
        """All data sets by name."""
        rows, own = _datasets(connection), _settings(connection)
        if own.get("datasets") != self._sealer.whole(str(own.get("seals")), own.get("pepper"), rows):
            raise damaged(self._where, "its list of data sets is not as it was written")
        return rows

    def pepper(self, connection: sa.Connection) -> str | None:
        """The secret under which inputs are fingerprinted, as stored; None in a copy."""
        self.datasets(connection)
        return _settings(connection).get("pepper")

    def read(self, connection: sa.Connection, name: str) -> Account | None:
        """One data set with all of its rows, or None where there is none of that name."""
        found = [row for row in self.datasets(connection) if row["name"] == name]
        if not found:
            return None
        sealer, dataset = self._sealer, found[0]
        mine, spends = _releases(connection, name), _events(connection, name)
        links = [sealer.first_link(dataset)]
        for row in mine:
            links.append(sealer.next_link(links[-1], row, spends.get(row["id"], ())))
            if links[-1] != row["link"] or sealer.seal(links[-1], row) != row["seal"]:
                raise damaged(self._where, f"release {row['name']!s:.80} of {name} is not as it was written")
        self._check_head(connection, name, links)
        return Account(dataset, mine, spends, links)

    def check(self, row: Row) -> None:
        """Refuses a release whose row is not as it was written."""
        if self._sealer.seal(row["link"], row) != row["seal"]:
            raise damaged(self._where, f"release {row['name']!s:.80} is not as it was written")

    # Writing

    def add(self, connection: sa.Connection, dataset: Row) -> None:
        """A new data set. The caller has locked the table of data sets."""
        self.datasets(connection)
        connection.execute(datasets.insert().values(**dataset))
        self._write_head(connection, dataset["name"], 0, self._sealer.first_link(dataset))
        self._write_list(connection)

    def append(
        self, connection: sa.Connection, account: Account, release: Row, spends: Sequence[Row]
    ) -> dict[str, Any]:
        """A new release with its events. The caller has locked the data set and read `account` since."""
        full: dict[str, Any] = {
            **release,
            "digest": release.get("digest"),
            "finished": release.get("finished"),
        }
        full["link"] = self._sealer.next_link(account.links[-1], full, spends)
        full["seal"] = self._sealer.seal(full["link"], full)
        insert = releases.insert().values(**full).returning(releases.c.id)
        full["id"] = connection.execute(insert).scalar_one()
        connection.execute(events.insert(), [{**event, "release_id": full["id"]} for event in spends])
        self._write_head(connection, full["dataset"], len(account.releases) + 1, full["link"])
        return full

    def new_pepper(self, connection: sa.Connection) -> str:
        """A pepper where there is none. The caller has locked the table of data sets."""
        stored = wrap_pepper(fresh())
        connection.execute(settings.update().where(settings.c.name == "pepper").values(value=stored))
        self._write_list(connection)
        return stored

    def update(self, connection: sa.Connection, row: Row, **values: Any) -> dict[str, Any]:
        """Changes the state of a release that was read, and locked, in this transaction."""
        self.check(row)
        after = {**row, **values}
        values["seal"] = after["seal"] = self._sealer.seal(row["link"], after)
        connection.execute(releases.update().where(releases.c.id == row["id"]).values(**values))
        return after

    def seal_all(self, connection: sa.Connection, pepper: bytes | None) -> None:
        """Seals all rows as they are: for a new ledger, a copy, or a new key."""
        connection.execute(settings.delete())
        stored = None if pepper is None else wrap_pepper(pepper)
        for name, value in (("seals", self._sealer.form), ("pepper", stored)):
            connection.execute(settings.insert().values(name=name, value=value))
        for dataset in _datasets(connection):
            link, count = self._sealer.first_link(dataset), 0
            spends = _events(connection, dataset["name"])
            for count, row in enumerate(_releases(connection, dataset["name"]), 1):  # noqa: B007
                link = self._sealer.next_link(link, row, spends.get(row["id"], ()))
                values = {"link": link, "seal": self._sealer.seal(link, row)}
                connection.execute(releases.update().where(releases.c.id == row["id"]).values(**values))
            self._write_head(connection, dataset["name"], count, link)
        self._write_list(connection)

    def _write_head(self, connection: sa.Connection, name: str, count: int, link: str) -> None:
        connection.execute(heads.delete().where(heads.c.dataset == name))
        seal = self._sealer.head(name, count, link)
        connection.execute(heads.insert().values(dataset=name, count=count, link=link, seal=seal))

    def _write_list(self, connection: sa.Connection) -> None:
        own = _settings(connection)
        tag = self._sealer.whole(str(own["seals"]), own["pepper"], _datasets(connection))
        connection.execute(settings.delete().where(settings.c.name == "datasets"))
        connection.execute(settings.insert().values(name="datasets", value=tag))

    def _check_head(self, connection: sa.Connection, name: str, links: Sequence[str]) -> None:
        rows = _rows(connection, sa.select(heads).where(heads.c.dataset == name))
        count, link = len(links) - 1, links[-1]
        expected = {
            "dataset": name,
            "count": count,
            "link": link,
            "seal": self._sealer.head(name, count, link),
        }
        if rows != [expected]:
            raise damaged(self._where, f"releases of {name} are missing at the end")


def damaged(where: str, what: str) -> LedgerError:
    """The one message about damage: what was found, and how to go on."""
    return LedgerError(
        f"ledger {where} is damaged: {what}; nothing is released from it, restore the newest backup "
        "(made by `hushgram ledger backup`) and see `hushgram ledger recover`"
    )


def _settings(connection: sa.Connection) -> dict[str, Any]:
    return {row.name: row.value for row in connection.execute(sa.select(settings))}


def _datasets(connection: sa.Connection) -> list[Row]:
    return sorted(_rows(connection, sa.select(datasets)), key=lambda row: str(row["name"]))


def _releases(connection: sa.Connection, dataset: str) -> list[Row]:
    return _rows(connection, sa.select(releases).where(releases.c.dataset == dataset).order_by(releases.c.id))


def _events(connection: sa.Connection, dataset: str) -> Events:
    query = (
        sa.select(events)
        .join(releases, releases.c.id == events.c.release_id)
        .where(releases.c.dataset == dataset)
        .order_by(events.c.release_id, events.c.position)
    )
    found: Events = {}
    for row in _rows(connection, query):
        found.setdefault(row["release_id"], []).append(row)
    return found


def _rows(connection: sa.Connection, query: sa.Select[Any]) -> list[Row]:
    """As plain dicts, which are made far faster than SQLAlchemy's own mappings."""
    result = connection.execute(query)
    names = tuple(result.keys())
    return [dict(zip(names, row, strict=True)) for row in result.all()]
