"""Backups, recovery after a restore, and MACs under a new wrapping key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from hushgram.errors import LedgerError
from hushgram.ledger.hash_chain import write_macs
from hushgram.ledger.keys import PEPPER, Macs, unwrap
from hushgram.ledger.ledger import Ledger
from hushgram.ledger.records import ReleaseRecord, Request
from hushgram.ledger.store import datasets, events, new_file, now, releases

__all__ = ["add_key", "backup", "recover"]

_BATCH = 1000


def recover(ledger: Ledger, dataset: str) -> ReleaseRecord | None:
    """Charge what the rollback anchor recorded and a restored ledger lacks.

    The charge is one event: the missing sums of ε, δ and ρ on all users.
    Reservations in the copy do not count as known: they may have been refunded since, and stay charged.

    Returns:
        The charge, or None if nothing is missing.
    """
    with ledger.store.write() as connection:
        account = ledger.locked_account(connection, dataset)
        seen = account.seen
        if seen is None or not account.is_behind():
            return None
        known = account.entry("", lasting=True)
        shared = known if known.count < seen.count else None  # else the histories differ
        missing = [seen.lost(shared)]
        name = f"restored after {known.count} of {seen.count} at {now()}"
        request = Request(dataset, name, missing, "recover")
        ended = {"status": "committed", "digest": "", "secret": None, "owner": None, "lease": None}
        row = ledger.chain.append(
            connection, account, {**request.row(1), **ended, "finished": now()}, request.event_rows()
        )
    ledger.anchor.append(account.entry(row["link"], missing), anew=True)
    return ReleaseRecord.from_row(row, request.event_rows())


def add_key(url: str | None = None) -> bool:
    """Write the MACs of a ledger that has none with a key under the wrapping key that is set now.

    All rows are checked first. The operator does this once; it never happens automatically, or anyone who strips the
    key from a ledger would get MACs for their changes.

    Returns:
        False if its MACs are under this key already.
    """
    keyed, plain = Macs.configured(), Macs(None)
    if keyed.scheme == plain.scheme:
        raise LedgerError("no wrapping key is set; set HUSHGRAM_KEY_FILE or HUSHGRAM_WRAP_KEY first")
    try:
        Ledger(url).close()
        return False
    except LedgerError:  # then it opens without the key, or says what is wrong with it
        pass
    with Ledger(url, plain) as ledger, ledger.store.write() as connection:
        names = [str(row["name"]) for row in ledger.chain.datasets(connection)]
        for name in names:
            if problem := ledger.rollback_warning(ledger.locked_account(connection, name)):
                raise LedgerError(problem)
        stored = ledger.chain.pepper(connection)
        write_macs(connection, keyed, None if stored is None else unwrap(stored, PEPPER))
    with Ledger(url) as ledger, ledger.store.read() as connection:
        for name in names:
            account = ledger.chain.read(connection, name)
            ledger.anchor.append(account.entry(account.links[-1]), anew=True)
    return True


def backup(ledger: Ledger, target: str) -> dict[str, int]:
    """Copy all rows, from one state of the ledger while jobs continue.

    The copy is a ledger. It holds no release keys, since a backup with keys would undo their erasure: a release in
    progress cannot be resumed from it, only abandoned with its charge kept. Nor does it hold the secret under which
    inputs are fingerprinted. A file appears complete or not at all, and never replaces another.

    Args:
        ledger: the ledger to copy.
        target: a new file, or the URL of an empty ledger.

    Returns:
        How many rows were copied, per table.
    """
    if "://" in target and not target.startswith("sqlite:///"):
        return _copy_to(ledger, target)
    path = Path(target.removeprefix("sqlite:///"))
    try:
        if path.exists():
            raise FileExistsError
        with new_file(path) as draft:
            counts = _copy_to(ledger, f"sqlite:///{draft}")
            with draft.open("rb") as file:
                os.fsync(file.fileno())
        return counts
    except FileExistsError:
        raise LedgerError(f"backup {path} exists already; name a new file") from None
    except OSError as problem:
        raise LedgerError(f"backup {path} cannot be written: {problem.strerror}") from None


def _copy_to(ledger: Ledger, url: str) -> dict[str, int]:
    counts = {}
    with Ledger.create(url) as copy, ledger.store.read() as source, copy.store.write() as sink:
        if sink.execute(sa.select(sa.func.count()).select_from(datasets)).scalar_one():
            raise LedgerError(f"{copy.where} is not empty; a backup needs a new ledger")
        for row in ledger.chain.datasets(source):
            ledger.chain.read(source, str(row["name"]))  # damage must not look intact in the copy
        for table in (datasets, releases, events):
            counts[table.name] = _copy_table(source, sink, table)
            if (
                "id" in table.c and not copy.store.is_sqlite
            ):  # ids were given, so the counters are at their start
                sink.exec_driver_sql(
                    f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), "
                    f"GREATEST((SELECT COALESCE(MAX(id), 1) FROM {table.name}), 1))"
                )
        write_macs(sink, copy.macs, None)
    return counts


def _copy_table(source: sa.Connection, sink: sa.Connection, table: sa.Table) -> int:
    blank: dict[str, Any] = {"secret": None, "owner": None, "lease": None} if table is releases else {}
    order = table.c.id if "id" in table.c else table.c.name
    rows, copied = source.execute(sa.select(table).order_by(order)), 0
    while batch := rows.mappings().fetchmany(_BATCH):
        sink.execute(table.insert(), [{**row, **blank} for row in batch])
        copied += len(batch)
    return copied
