"""The tables of the ledger.

    schema_version  the version of these tables; a ledger of any other is refused
    datasets        a budget for the people in some data; never changed once it is there
    releases        one row for each attempt at a release id: its status, what it was asked to do, who runs it
    events          what each release spends; append-only, enforced by triggers
    heads           for each data set the number of its releases and the last link of its chain
    settings        how rows are sealed (`seals`), the tag over all data sets, the key for input fingerprints
    totals          a cache of computed totals; may be emptied at any time

Status of a release:  reserved → running → prepared → committed,  or abandoned from any of the first three.
`secret` is the release key (wrapped where a wrapping key is set) and is NULL from commit or abandon on.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from hushgram.errors import LedgerError

__all__ = [
    "VERSION", "check_version", "create_tables", "datasets", "events", "heads", "now", "releases", "settings",
    "totals", "version_of",
]  # fmt: skip

#: Of the tables below; 1 and 2 were never published.
VERSION = 3
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
    *_texts("parameters", "inputs"),  # JSON, text to text
    *_texts("secret", "digest", "owner", "finished", nullable=True),
    *_texts("users", nullable=True),  # the part of the users, NULL for all
    *_texts("link", "seal"),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("charged", sa.Integer, nullable=False),  # 0: abandoned before anything was drawn
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
    *_texts("kind", "epsilon", "delta", "details"),
    *_texts("relation"),  # whom the event is about
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


def create_tables(connection: sa.Connection) -> None:
    """Create the tables, and triggers that keep events as they were written."""
    _meta.create_all(connection)
    refusal = "events of the ledger are append-only"
    if connection.dialect.name == "sqlite":
        statements = [
            f"CREATE TRIGGER events_no_{action.lower()} BEFORE {action} ON events "
            f"BEGIN SELECT RAISE(ABORT, '{refusal}'); END"
            for action in ("UPDATE", "DELETE")
        ]
    else:
        statements = [
            "CREATE FUNCTION hushgram_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{refusal}'; END $$",
            "CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON events "
            "FOR EACH STATEMENT EXECUTE FUNCTION hushgram_append_only()",
        ]
    for statement in statements:
        connection.exec_driver_sql(statement)
    connection.execute(schema_version.insert().values(version=VERSION, applied=now()))


def version_of(connection: sa.Connection) -> int:
    """The version of the ledger behind `connection`; 0 where there is none yet."""
    if not sa.inspect(connection).has_table("schema_version"):
        return 0
    found = connection.execute(sa.select(sa.func.max(schema_version.c.version))).scalar()
    if not isinstance(found, int | None):
        raise LedgerError("the ledger is damaged: its version is no number; restore it from a backup")
    return found or 0


def check_version(version: int, where: str) -> None:
    """Refuse a ledger of another version: its meaning is not known here."""
    if version != VERSION:
        remedy = "upgrade hushgram" if version > VERSION else "older ones are not read, create a new ledger"
        raise LedgerError(
            f"ledger {where} has version {version}, this hushgram knows version {VERSION}; {remedy} "
            "(nothing was changed, no release was started)"
        )


def now() -> str:
    """The present moment as it is written into the ledger."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
