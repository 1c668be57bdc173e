"""Going on after a restore, and sealing a ledger under a key for the first time."""

from __future__ import annotations

import contextlib
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from hushgram.accounting import RELATIONS, Event
from hushgram.errors import LedgerError
from hushgram.ledger.chain import Chain
from hushgram.ledger.ledger import Ledger
from hushgram.ledger.records import Release, Request
from hushgram.ledger.rows import event_rows, seen_of, values_of
from hushgram.ledger.seals import Sealer
from hushgram.ledger.secrets import open_pepper
from hushgram.ledger.tables import datasets, events, now, releases

__all__ = ["backup", "recover", "seal"]


def recover(ledger: Ledger, dataset: str) -> Release | None:
    """Charges what the witness saw and a restored ledger lacks; None where nothing is missing.

    The charge is one event for each relation, of its missing sums of ε and δ on all users, which basic composition
    covers. Reservations of the copy do not count as known: they may have been given back since, and stay charged.
    """
    with ledger.store.write() as connection:
        account = ledger.account(connection, dataset, lock=True)
        seen = account.seen
        if seen is None or not seen.is_ahead_of(account.links):
            return None
        known = seen_of(account, "", lasting=True)
        shared = known if known.count < seen.count else None  # else it has gone another way
        sums = {relation: seen.beyond(shared, relation) for relation in RELATIONS}
        lost = {relation: cost for relation, cost in sums.items() if any(cost)} or {
            "user": (Fraction(0), Fraction(0))
        }
        about = {"releases": str(seen.count)}
        missing = [Event("restored", *cost, about, relation=relation) for relation, cost in lost.items()]
        name = f"restored after {known.count} of {seen.count} at {now()}"
        ended = {"status": "committed", "digest": "", "secret": None, "owner": None, "lease": None}
        values = {**values_of(Request(dataset, name, missing, "recover"), 1), **ended, "finished": now()}
        row = ledger.store.chain.append(connection, account, values, event_rows(missing))
    ledger.witness.note(seen_of(account, row["link"], missing), anew=True)
    return Release.from_row(row, event_rows(missing))


def seal(url: str | None = None) -> bool:
    """Seals a ledger without a key under the wrapping key that is set now; False where it is so already.

    All rows are checked first. Done once by the operator, never by itself: else whoever strips the key from a
    ledger would have their changes sealed with it.
    """
    keyed, plain = Sealer.configured(), Sealer(None)
    if keyed.form == plain.form:
        raise LedgerError("no wrapping key is set; set HUSHGRAM_KEY_FILE or HUSHGRAM_WRAP_KEY first")
    try:
        Ledger(url).close()
        return False
    except LedgerError:  # then it opens without the key, or says what is wrong with it
        pass
    with Ledger(url, plain) as ledger, ledger.store.write() as connection:
        chain = ledger.store.chain
        names = [str(row["name"]) for row in chain.datasets(connection)]
        for name in names:
            if problem := ledger.behind(ledger.account(connection, name, lock=True)):
                raise LedgerError(problem)
        stored = chain.pepper(connection)
        Chain(keyed, ledger.where).seal_all(connection, None if stored is None else open_pepper(stored))
    with Ledger(url) as ledger, ledger.store.read() as connection:
        for name in names:
            account = ledger.account(connection, name)
            ledger.witness.note(seen_of(account, account.links[-1]), anew=True)
    return True


# Copying a ledger: for backups, and from one database to another.
#
# The copy is a ledger of its own (by default an SQLite file), taken from one state of the original while jobs
# go on. It holds no release keys: a backup that kept them would undo their erasure. A release that was under
# way can therefore not be resumed from a backup; it can be abandoned, and its charge is kept. Nor does it hold
# the secret under which inputs are fingerprinted: what a backup says about inputs can be compared with nothing.

_BATCH = 1000


def backup(ledger: Ledger, target: str) -> dict[str, int]:
    """Copies all rows to `target`, a new file or the URL of an empty ledger; returns how many of each table.

    A file appears whole or not at all, and never replaces another.
    """
    if "://" in target and not target.startswith("sqlite:///"):
        return _copy_to(ledger, target)
    path = Path(target.removeprefix("sqlite:///"))
    if path.exists():
        raise LedgerError(f"backup {path} exists already; name a new file (a backup is never overwritten)")
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        draft.unlink(missing_ok=True)
        counts = _copy_to(ledger, f"sqlite:///{draft}")
        with contextlib.closing(os.fdopen(os.open(draft, os.O_RDONLY), "rb")) as file:
            os.fsync(file.fileno())
        os.link(draft, path)
        return counts
    except FileExistsError:
        raise LedgerError(f"backup {path} exists already; name a new file") from None
    except OSError as problem:
        raise LedgerError(f"backup {path} cannot be written: {problem.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _copy_to(ledger: Ledger, url: str) -> dict[str, int]:
    counts = {}
    with Ledger.create(url) as copy, ledger.store.read() as source, copy.store.write() as sink:
        if sink.execute(sa.select(sa.func.count()).select_from(datasets)).scalar_one():
            raise LedgerError(f"{copy.where} is not empty; a backup goes to a new ledger")
        for row in ledger.store.chain.datasets(source):
            ledger.store.chain.read(source, str(row["name"]))  # damage must not look whole in the copy
        for table in (datasets, releases, events):
            counts[table.name] = _copy_table(source, sink, table)
        if not copy.store.is_sqlite:
            for table in (releases, events):  # ids were given, so the counters stand at their start
                sink.exec_driver_sql(
                    f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), "
                    f"GREATEST((SELECT COALESCE(MAX(id), 1) FROM {table.name}), 1))"
                )
        copy.store.chain.seal_all(sink, None)
    return counts


def _copy_table(source: sa.Connection, sink: sa.Connection, table: sa.Table) -> int:
    blank: dict[str, Any] = {"secret": None, "owner": None, "lease": None} if table is releases else {}
    order = table.c.id if "id" in table.c else table.c.name
    rows, copied = source.execute(sa.select(table).order_by(order)), 0
    while batch := rows.mappings().fetchmany(_BATCH):
        sink.execute(table.insert(), [{**row, **blank} for row in batch])
        copied += len(batch)
    return copied
