"""The tables of the ledger in their present form (`schema` has the steps that lead there).

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

import sqlalchemy as sa

__all__ = ["datasets", "events", "heads", "now", "releases", "schema_version", "settings", "totals"]

_meta = sa.MetaData()

schema_version = sa.Table(
    "schema_version", _meta, sa.Column("version", sa.Integer), sa.Column("applied", sa.Text)
)

datasets = sa.Table(
    "datasets",
    _meta,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("epsilon", sa.Text),
    sa.Column("delta", sa.Text),
    sa.Column("composition", sa.Text),
    sa.Column("created", sa.Text),
)

releases = sa.Table(
    "releases",
    _meta,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("dataset", sa.Text),
    sa.Column("name", sa.Text),
    sa.Column("attempt", sa.Integer),
    sa.Column("job", sa.Text),
    sa.Column("status", sa.Text),
    sa.Column("charged", sa.Integer),  # 0: abandoned before anything was drawn, the events do not count
    sa.Column("parameters", sa.Text),  # JSON, text to text
    sa.Column("inputs", sa.Text),  # JSON, text to text
    sa.Column("target", sa.Text),
    sa.Column("secret", sa.Text),
    sa.Column("digest", sa.Text),
    sa.Column("owner", sa.Text),
    sa.Column("lease", sa.Float),  # seconds since 1970 by the clock of the ledger
    sa.Column("reserved", sa.Text),
    sa.Column("finished", sa.Text),
    sa.Column("users", sa.Text),  # since version 2: the part of the users, NULL for all
    sa.Column("resumable", sa.Integer),  # since version 3, as are the next two: 0 for interactive mechanisms
    sa.Column("link", sa.Text),
    sa.Column("seal", sa.Text),
)

events = sa.Table(
    "events",
    _meta,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("release_id", sa.Integer),
    sa.Column("position", sa.Integer),
    sa.Column("kind", sa.Text),
    sa.Column("version", sa.Integer),
    sa.Column("epsilon", sa.Text),
    sa.Column("delta", sa.Text),
    sa.Column("details", sa.Text),
    sa.Column("relation", sa.Text),  # since version 3: whom the event is about
)

heads = sa.Table(
    "heads",
    _meta,
    sa.Column("dataset", sa.Text, primary_key=True),
    sa.Column("count", sa.Integer),
    sa.Column("link", sa.Text),
    sa.Column("seal", sa.Text),
)

settings = sa.Table(
    "settings", _meta, sa.Column("name", sa.Text, primary_key=True), sa.Column("value", sa.Text)
)

totals = sa.Table(
    "totals",
    _meta,
    sa.Column("dataset", sa.Text, primary_key=True),
    sa.Column("stamp", sa.Text),
    sa.Column("body", sa.Text),
)


def now() -> str:
    """The present moment as it is written into the ledger."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
