"""The database behind a ledger: opening it safely, transactions, and errors in the user's words.

SQLite: `BEGIN IMMEDIATE` for every transaction that writes, so that the check of the budget and the
reservation are one step for all processes; a rollback journal with `synchronous = EXTRA`, so that what was
reserved stays reserved when the power fails; `secure_delete`, so that an erased key leaves zeros in the file.

PostgreSQL: a transaction that writes takes the row of its data set `FOR UPDATE` before anything else. All
take their locks in this one order, so there is no deadlock.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from hushgram.errors import LedgerError
from hushgram.ledger.chain import Chain, damaged
from hushgram.ledger.seals import Sealer
from hushgram.ledger.secrets import fresh
from hushgram.ledger.tables import check_version, create_tables, version_of

__all__ = ["DEFAULT_URL", "Store", "create", "ledger_url"]

DEFAULT_URL = "sqlite:///hushgram-ledger.db"

_BUSY_SECONDS = 60.0
_MAGIC = b"SQLite format 3\0"


def ledger_url(url: str | None = None) -> str:
    """The ledger to use: the one named, else HUSHGRAM_LEDGER, else a file in the working directory."""
    return url or os.environ.get("HUSHGRAM_LEDGER") or DEFAULT_URL


class Store:
    """A ledger's database, checked. Opening writes nothing."""

    def __init__(self, url: str, sealer: Sealer | None = None) -> None:
        self._url = _parse(url)
        self.where = self._url.render_as_string(hide_password=True)
        self.path = _sqlite_path(self._url)
        if self.path is not None:
            _check_file(self.path, self.where)
        self._engine = _engine(self._url)
        with self.read() as connection:
            self._verify(connection)
            found = version_of(connection)
        if found == 0:
            raise LedgerError(f"{self.where} holds no ledger; create one with `hushgram ledger init`")
        check_version(found, self.where)
        self.sealer = Sealer.configured() if sealer is None else sealer
        self.chain = Chain(self.sealer, self.where)
        with self.read() as connection:
            self.chain.open(connection)

    @property
    def is_sqlite(self) -> bool:
        """Whether this is a file on this machine."""
        return self._url.get_backend_name() == "sqlite"

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A transaction that sees one state of the ledger and writes nothing."""
        with self._transaction(begin="BEGIN", isolation="REPEATABLE READ") as connection:
            yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A transaction that writes: all or nothing, and on SQLite the only one."""
        with self._transaction(begin="BEGIN IMMEDIATE", isolation="READ COMMITTED") as connection:
            yield connection

    def clock(self, connection: sa.Connection) -> float:
        """Seconds since 1970 by the clock that all users of this ledger share."""
        if self.is_sqlite:
            return time.time()
        return float(connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar_one())

    def close(self) -> None:
        """Gives the connections back."""
        self._engine.dispose()

    @contextlib.contextmanager
    def _transaction(self, begin: str, isolation: Any) -> Iterator[sa.Connection]:
        try:
            with self._engine.connect() as connection:
                if self.is_sqlite:
                    connection.exec_driver_sql(begin)
                else:
                    connection = connection.execution_options(isolation_level=isolation)
                with contextlib.ExitStack() as undo:
                    undo.callback(connection.rollback)
                    yield connection
                    connection.commit()
                    undo.pop_all()
        except sa.exc.DBAPIError as problem:
            raise _explain(problem, self.where) from problem
        except (sa.exc.SQLAlchemyError, ValueError, TypeError, LookupError, ArithmeticError) as problem:
            raise damaged(self.where, f"a row cannot be read ({type(problem).__name__})") from problem

    def _verify(self, connection: sa.Connection) -> None:
        if not self.is_sqlite:
            return
        found = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
        page = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
        whole = self.path is None or self.path.stat().st_size % page == 0  # SQLite forgives a torn last page
        if found != "ok" or not whole:
            raise damaged(self.where, "its pages do not fit together")


def create(url: str) -> bool:
    """Makes an empty ledger at `url`; False where there is one already.

    A file appears whole or not at all: it is built beside its place and linked there. A file that is there
    and is no ledger is never touched: it may be what a broken disk left of one.
    """
    parsed = _parse(url)
    where, path = parsed.render_as_string(hide_password=True), _sqlite_path(parsed)
    if path is None:
        return _create_in_server(parsed, where)
    if path.exists():
        _check_file(path, where)
        return False
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        draft.unlink(missing_ok=True)
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # it will hold release keys
        engine = _engine(parsed.set(database=str(draft)))
        try:
            with engine.connect() as connection:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                _fill(connection)
                connection.commit()
        finally:
            engine.dispose()
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError as problem:
        raise LedgerError(
            f"ledger {where} cannot be created: {problem.strerror}; check the folder and its permissions"
        ) from problem
    except sa.exc.DBAPIError as problem:
        raise _explain(problem, where) from problem
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
    return True


def _create_in_server(url: sa.URL, where: str) -> bool:
    engine = _engine(url)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7813449402771)")  # one creator at a time
            if found := version_of(connection):
                check_version(found, where)
                return False
            _fill(connection)
            return True
    except sa.exc.DBAPIError as problem:
        raise _explain(problem, where) from problem
    finally:
        engine.dispose()


def _fill(connection: sa.Connection) -> None:
    create_tables(connection)
    Chain(Sealer.configured(), "").seal_all(connection, fresh())


def _parse(text: str) -> sa.URL:
    if "://" not in text or not text.isprintable():
        raise LedgerError(
            f"ledger {text!r} is no URL; write sqlite:///path/ledger.db or postgresql://host/database"
        )
    try:
        url = sa.make_url(text)
        if not str(url.database).isprintable():  # %00 is a byte that no path has
            raise ValueError
    except (sa.exc.ArgumentError, ValueError):
        raise LedgerError("the ledger is no URL; write sqlite:///path or postgresql://host/db") from None
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise LedgerError(
            f"ledger {url.render_as_string(hide_password=True)!r}: "
            "only sqlite:/// and postgresql:// are supported"
        )
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise LedgerError("a ledger in memory would forget what was spent; write sqlite:///path/ledger.db")
    return url


def _sqlite_path(url: sa.URL) -> Path | None:
    return Path(str(url.database)) if url.get_backend_name() == "sqlite" else None


def _engine(url: sa.URL) -> sa.Engine:
    if url.get_backend_name() == "sqlite":
        engine = sa.create_engine(
            url, connect_args={"timeout": _BUSY_SECONDS}, poolclass=sa.pool.NullPool, hide_parameters=True
        )
        sa.event.listen(engine, "connect", _set_up_sqlite)
        return engine
    try:
        return sa.create_engine(
            url, connect_args={"connect_timeout": 10}, pool_pre_ping=True, hide_parameters=True
        )
    except ModuleNotFoundError as problem:
        raise LedgerError(
            f"a PostgreSQL ledger needs the module {problem.name}; pip install 'hushgram[postgresql]'"
        ) from None


def _set_up_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions are begun here, not guessed by the driver
    for pragma in ("foreign_keys = ON", "secure_delete = ON", "synchronous = EXTRA"):
        connection.execute(f"PRAGMA {pragma}")


def _check_file(path: Path, where: str) -> None:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a FIFO would wait for ever
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            head = file.read(len(_MAGIC)) if regular else b"not a file"
    except FileNotFoundError:
        raise LedgerError(f"there is no ledger at {where}; create one with `hushgram ledger init`") from None
    except OSError as problem:
        raise LedgerError(f"ledger {where} cannot be read: {problem.strerror}") from None
    if head != _MAGIC:
        state = "is empty" if not head else "is not a ledger, or a damaged one"
        raise LedgerError(
            f"the file at {where} {state}; restore it from a backup (`hushgram ledger backup`), "
            "no release was started"
        )


def _explain(problem: sa.exc.DBAPIError, where: str) -> LedgerError:
    """What the database complained about, as one line with a remedy."""
    text = str(problem.orig).strip().splitlines()[0] if str(problem.orig).strip() else "unknown error"
    low = text.lower()
    for signs, message in (
        (("readonly", "read-only"), "is read-only; make the file and its folder writable for this user"),
        (("is full", "no space"), "cannot grow: the disk is full; free some space and run again"),
        (("malformed", "not a database", "decode to utf-8"), "is damaged; restore it from a backup"),
        (("locked",), f"was busy for {_BUSY_SECONDS:.0f} s; run again when other jobs are done"),
        (("unable to open",), "cannot be opened; check the path and its permissions"),
        (("disk i/o",), "cannot be written: the disk refused it (full, over quota, or failing)"),
        (("append-only",), "refused to change an event that was written; events are append-only"),
        (("password", "authentication"), "refused the login; check user and password"),
        (("connection", "connect"), f"cannot be reached ({text}); is the server running?"),
    ):
        if any(sign in low for sign in signs):
            return LedgerError(f"ledger {where} {message}; nothing was recorded")
    return LedgerError(f"ledger {where}: {text}; nothing was recorded")
