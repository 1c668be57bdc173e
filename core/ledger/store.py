"""The database of a ledger: its tables, safe opening, transactions, and errors in plain words.

    schema_version  the version of these tables; a ledger of any other version is refused
    datasets        the budget for the people in some data; never changed
    releases        one row per attempt at a release id: its status, its request, and who runs it
    events          what each release spends; append-only, enforced by triggers
    heads           per data set: the number of its releases and the last link of its hash chain
    settings        how rows are authenticated (`seals`), the MAC of all data sets, the key for input fingerprints
    totals          a cache of computed totals; may be emptied at any time

Status of a release: reserved → running → prepared → committed, or abandoned from any of the first three. `secret` is
the release key (wrapped if a wrapping key is set); it is NULL once a release is committed or abandoned.

SQLite: every transaction that writes begins with `BEGIN IMMEDIATE`, so that checking the budget and reserving it are
one step for all processes. A rollback journal with `synchronous = EXTRA` keeps reservations across power failures, and
`secure_delete` overwrites erased keys in the file.

PostgreSQL: a transaction that writes first locks the row of its data set (`FOR UPDATE`). All transactions take their
locks in this order, so that no deadlock is possible.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from hushgram.errors import LedgerError

__all__ = [
    "DEFAULT_URL", "VERSION", "Store", "create", "datasets", "events", "heads", "ledger_url", "new_file", "now",
    "releases", "schema_version", "settings", "totals",
]  # fmt: skip

DEFAULT_URL = "sqlite:///hushgram-ledger.db"
VERSION = 3

_BUSY_SECONDS = 60.0
_MAGIC = b"SQLite format 3\0"
_APPEND_ONLY = "events of the ledger are append-only"
_meta = sa.MetaData()


def _texts(*names: str, **options: Any) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, **{"nullable": False, **options}) for name in names]


def _id() -> sa.Column[int]:
    return sa.Column(
        "id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), primary_key=True
    )


schema_version = sa.Table(
    "schema_version", _meta, sa.Column("version", sa.Integer, nullable=False, unique=True), *_texts("applied")
)

datasets = sa.Table(
    "datasets",
    _meta,
    *_texts("name", primary_key=True),
    *_texts("epsilon", "delta", "composition", "created"),
)

releases = sa.Table(
    "releases",
    _meta,
    _id(),
    sa.Column("dataset", sa.Text, sa.ForeignKey("datasets.name"), nullable=False),
    *_texts("name", "job", "status", "target", "reserved"),
    *_texts("parameters", "inputs"),  # JSON objects of texts
    *_texts("secret", "digest", "owner", "finished", nullable=True),
    *_texts("users", nullable=True),  # the part of the users, NULL for all
    *_texts("link", "seal"),  # the link of the hash chain, and the MAC of the row's current state
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("charged", sa.Integer, nullable=False),  # 0: abandoned before its key was handed out
    sa.Column("resumable", sa.Integer, nullable=False),  # 0 for interactive mechanisms
    sa.Column("lease", sa.Double),  # seconds since 1970 by the clock of the ledger
    sa.CheckConstraint("status IN ('reserved', 'running', 'prepared', 'committed', 'abandoned')"),
    sa.CheckConstraint("secret IS NULL OR status IN ('reserved', 'running', 'prepared')"),
    sa.CheckConstraint("digest IS NOT NULL OR status <> 'committed'"),
    sa.CheckConstraint("charged = 1 OR (charged = 0 AND status = 'abandoned')"),
    sa.UniqueConstraint("dataset", "name", "attempt"),
    sqlite_autoincrement=True,
)

events = sa.Table(
    "events",
    _meta,
    _id(),
    sa.Column("release_id", sa.BigInteger, sa.ForeignKey("releases.id"), nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    *_texts("kind", "epsilon", "delta", "details", "relation"),
    sa.UniqueConstraint("release_id", "position"),
    sqlite_autoincrement=True,
)

heads = sa.Table(
    "heads",
    _meta,
    sa.Column("dataset", sa.Text, sa.ForeignKey("datasets.name"), primary_key=True),
    sa.Column("count", sa.Integer, nullable=False),
    *_texts("link", "seal"),
)

settings = sa.Table("settings", _meta, *_texts("name", primary_key=True), sa.Column("value", sa.Text))

totals = sa.Table("totals", _meta, *_texts("dataset", primary_key=True), *_texts("stamp", "body"))


def ledger_url(url: str | None = None) -> str:
    """Return the URL of the ledger to use: `url`, else HUSHGRAM_LEDGER, else a file in the working directory."""
    return url or os.environ.get("HUSHGRAM_LEDGER") or DEFAULT_URL


def now() -> str:
    """Return the current time as the ledger writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Store:
    """Open the database of a ledger after checking it. Opening writes nothing."""

    def __init__(self, url: str) -> None:
        parsed = _parse(url)
        self.where, self.path = parsed.render_as_string(hide_password=True), _sqlite_path(parsed)
        self.is_sqlite = self.path is not None
        if self.path is not None:
            _check_file(self.path, self.where)
        self._engine = _engine(parsed)
        with self.read() as connection:
            self._check_integrity(connection)
            found = _version(connection)
        if found == 0:
            raise LedgerError(f"{self.where} contains no ledger; create one with `hushgram ledger init`")
        _check_version(found, self.where)

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Open a transaction that sees one state of the ledger and writes nothing."""
        with self._transaction(begin="BEGIN", isolation="REPEATABLE READ") as connection:
            yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Open a transaction that writes all or nothing; on SQLite only one such transaction is open at a time."""
        with self._transaction(begin="BEGIN IMMEDIATE", isolation="READ COMMITTED") as connection:
            yield connection

    def lock_datasets(self, connection: sa.Connection) -> None:
        """Lock the list of data sets until the transaction ends."""
        if not self.is_sqlite:
            connection.exec_driver_sql("LOCK TABLE datasets IN SHARE ROW EXCLUSIVE MODE")

    def clock(self, connection: sa.Connection) -> float:
        """Return seconds since 1970 by the clock that all users of this ledger share."""
        if self.is_sqlite:
            return time.time()
        return float(connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar_one())

    def damaged(self, what: str) -> LedgerError:
        """Return the error for a damaged ledger: what was found and what to do."""
        return LedgerError(
            f"ledger {self.where} is damaged: {what}; nothing is released from it, restore the newest backup "
            "(made by `hushgram ledger backup`) and see `hushgram ledger recover`"
        )

    def close(self) -> None:
        """Close the connections."""
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
            raise self.damaged(f"a row cannot be read ({type(problem).__name__})") from problem

    def _check_integrity(self, connection: sa.Connection) -> None:
        if self.path is None:
            return
        found = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
        page = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
        if found != "ok" or self.path.stat().st_size % page:  # SQLite accepts a torn last page
            raise self.damaged("its pages do not fit together")


def create(url: str, fill: Callable[[sa.Connection], None]) -> bool:
    """Create an empty ledger at `url`.

    A file appears complete or not at all: it is built next to its path and linked there. A file that is not a ledger is
    never touched, since it may be what a broken disk left of one.

    Args:
        url: where the ledger goes.
        fill: writes the first rows, in the transaction that creates the tables.

    Returns:
        False if a ledger exists there already.
    """
    parsed = _parse(url)
    where, path = parsed.render_as_string(hide_password=True), _sqlite_path(parsed)
    if path is None:
        return _create_tables(parsed, where, fill)
    if path.exists():
        _check_file(path, where)
        return False
    try:
        with new_file(path) as draft:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # it will hold release keys
            _create_tables(parsed.set(database=str(draft)), where, fill)
    except FileExistsError:
        return False
    except OSError as problem:
        raise LedgerError(
            f"ledger {where} cannot be created: {problem.strerror}; check the folder and its permissions"
        ) from problem
    return True


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield the path of a draft, which is linked to `path` when it is complete; never replaces a file."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        draft.unlink(missing_ok=True)
        yield draft
        os.link(draft, path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _create_tables(url: sa.URL, where: str, fill: Callable[[sa.Connection], None]) -> bool:
    """Create tables and the triggers that keep events as they were written."""
    engine = _engine(url)
    try:
        with engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                triggers = [
                    f"CREATE TRIGGER events_no_{action.lower()} BEFORE {action} ON events "
                    f"BEGIN SELECT RAISE(ABORT, '{_APPEND_ONLY}'); END"
                    for action in ("UPDATE", "DELETE")
                ]
            else:
                connection.exec_driver_sql(
                    "SELECT pg_advisory_xact_lock(7813449402771)"
                )  # one creator at a time
                triggers = [
                    "CREATE FUNCTION hushgram_append_only() RETURNS trigger LANGUAGE plpgsql AS "
                    f"$$ BEGIN RAISE EXCEPTION '{_APPEND_ONLY}'; END $$",
                    "CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON events "
                    "FOR EACH STATEMENT EXECUTE FUNCTION hushgram_append_only()",
                ]
            if found := _version(connection):
                _check_version(found, where)
                return False
            _meta.create_all(connection)
            for statement in triggers:
                connection.exec_driver_sql(statement)
            connection.execute(schema_version.insert().values(version=VERSION, applied=now()))
            fill(connection)
            connection.commit()
            return True
    except sa.exc.DBAPIError as problem:
        raise _explain(problem, where) from problem
    finally:
        engine.dispose()


def _version(connection: sa.Connection) -> int:
    """Return the version of the tables; 0 if there are none."""
    if not sa.inspect(connection).has_table("schema_version"):
        return 0
    found = connection.execute(sa.select(sa.func.max(schema_version.c.version))).scalar()
    if not isinstance(found, int | None):
        raise LedgerError("the ledger is damaged: its version is not a number; restore it from a backup")
    return found or 0


def _check_version(version: int, where: str) -> None:
    """Raise for a ledger of another version, whose rows may mean something else."""
    if version != VERSION:
        remedy = "upgrade hushgram" if version > VERSION else "older ones are not read, create a new ledger"
        raise LedgerError(
            f"ledger {where} has version {version}, this hushgram reads version {VERSION}; {remedy} "
            "(nothing was changed, no release was started)"
        )


def _parse(text: str) -> sa.URL:
    try:
        url = sa.make_url(text)
        if not text.isprintable() or not str(url.database).isprintable():  # %00 cannot be part of a path
            raise ValueError
    except (sa.exc.ArgumentError, ValueError):
        raise LedgerError(
            "the ledger is not a URL; write sqlite:///path/ledger.db or postgresql://host/database"
        ) from None
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
            f"a PostgreSQL ledger needs the module {problem.name}; pip install 'hushgram[postgres]'"
        ) from None


def _set_up_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin explicitly, not by the driver's guess
    for pragma in ("foreign_keys = ON", "secure_delete = ON", "synchronous = EXTRA"):
        connection.execute(f"PRAGMA {pragma}")


def _check_file(path: Path, where: str) -> None:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a FIFO would block forever
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


_MESSAGES = (  # words of the database, and what they mean for the user
    (("readonly", "read-only"), "is read-only; make the file and its folder writable for this user"),
    (("is full", "no space"), "cannot grow: the disk is full; free some space and run again"),
    (("malformed", "not a database", "decode to utf-8"), "is damaged; restore it from a backup"),
    (("locked",), f"was busy for {_BUSY_SECONDS:.0f} s; run again when other jobs are done"),
    (("unable to open",), "cannot be opened; check the path and its permissions"),
    (("disk i/o",), "cannot be written: the disk refused it (full, over quota, or failing)"),
    (("append-only",), "refused to change an event; events are append-only"),
    (("password", "authentication"), "refused the login; check user and password"),
    (("connection", "connect"), "cannot be reached ({text}); is the server running?"),
)


def _explain(problem: sa.exc.DBAPIError, where: str) -> LedgerError:
    """Return an error of the database as one line with a remedy."""
    text = str(problem.orig).strip().splitlines()[0] if str(problem.orig).strip() else "unknown error"
    for signs, message in _MESSAGES:
        if any(sign in text.lower() for sign in signs):
            return LedgerError(f"ledger {where} {message.replace('{text}', text)}; nothing was recorded")
    return LedgerError(f"ledger {where}: {text}; nothing was recorded")
