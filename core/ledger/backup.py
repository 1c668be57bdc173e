"""Copying a ledger: for backups, and from one database to another.

The copy is a ledger of its own (by default an SQLite file), taken from one state of the original while jobs
go on. It holds no release keys: a backup that kept them would undo their erasure. A release that was under
way can therefore not be resumed from a backup; it can be abandoned, and its charge is kept. Nor does it hold
the secret under which inputs are fingerprinted: what a backup says about inputs can be compared with nothing.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from hushgram.errors import LedgerError
from hushgram.ledger.ledger import Ledger
from hushgram.ledger.tables import datasets, events, releases

__all__ = ["backup"]

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
