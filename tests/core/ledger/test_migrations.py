"""A ledger of version 1 opens under this version with everything that it held."""

from __future__ import annotations

from fractions import Fraction

import pytest
import sqlalchemy as sa

from hushgram.accounting import Event
from hushgram.errors import BudgetExceeded, LedgerError
from hushgram.ledger import Ledger, Owner, Request, schema, store, summarise, tables


def write_version_1(url: str) -> None:
    """What the first version of hushgram wrote, row for row."""
    engine = store._engine(store._parse(url))
    with engine.begin() as connection:
        schema.migrate(connection, url, upto=1)
        connection.exec_driver_sql(
            "INSERT INTO datasets VALUES ('views', '1', '1/1000000', 'basic', '2026-01-01T00:00:00Z')"
        )
        connection.exec_driver_sql(
            "INSERT INTO releases (dataset, name, attempt, job, status, charged, parameters, inputs, target, "
            "digest, reserved, finished) VALUES ('views', 'monday', 1, 'release', 'committed', 1, "
            "'{\"key\": \"url\"}', '{}', 'out', 'abc', '2026-01-01T00:00:00Z', '2026-01-01T00:01:00Z')"
        )
        connection.exec_driver_sql(
            "INSERT INTO events (release_id, position, kind, version, epsilon, delta, details) "
            "SELECT id, 1, 'alp', 1, '3/4', '0', '{}' FROM releases"
        )
    engine.dispose()


def test_version_1_is_brought_forward_with_all_its_rows(url: str) -> None:
    write_version_1(url)
    with Ledger(url) as ledger:
        with ledger.store.read() as connection:
            assert schema.version_of(connection) == schema.VERSION
        [release] = ledger.history("views")
        assert (release.name, release.digest, release.users) == ("monday", "abc", None)
        assert release.events == (Event("alp", Fraction(3, 4)),)
        assert summarise(ledger, "views").left_epsilon == "0.25"
        with pytest.raises(BudgetExceeded):
            ledger.reserve(Request("views", "tuesday", [Event("alp", "0.5")]), Owner.this())
        with pytest.raises(LedgerError, match="append-only"), ledger.store.write() as connection:
            connection.exec_driver_sql("DELETE FROM events")


def test_labels_of_older_versions_count_as_all_users(url: str) -> None:
    write_version_1(url)
    engine = store._engine(store._parse(url))
    with engine.begin() as connection:
        schema.migrate(connection, url, upto=2)
        connection.exec_driver_sql("UPDATE releases SET users = 'part 0 of 2'")
    engine.dispose()
    with Ledger(url) as ledger:
        assert ledger.history("views")[0].users == "label part 0 of 2"
        assert summarise(ledger, "views").spent_epsilon == "0.75"
        by = {"input.user": "id"}
        with pytest.raises(BudgetExceeded):
            ledger.check(Request("views", "b", [Event("alp", "0.5")], parameters=by, users="part 1 of 2"))


def test_what_is_brought_forward_is_sealed(url: str) -> None:
    write_version_1(url)
    Ledger(url).close()
    with Ledger(url) as ledger:
        with ledger.store.write() as connection:
            connection.exec_driver_sql("UPDATE releases SET users = 'north'")
        with pytest.raises(LedgerError, match="release monday of views is not as it was written"):
            ledger.spent("views")


def test_a_new_ledger_has_gone_through_every_version(url: str) -> None:
    with Ledger.create(url) as ledger, ledger.store.read() as connection:
        query = sa.select(tables.schema_version.c.version).order_by(tables.schema_version.c.version)
        assert connection.execute(query).scalars().all() == list(range(1, schema.VERSION + 1))


def test_a_migration_that_fails_changes_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_version_1(url)

    def broken(connection: sa.Connection) -> None:
        schema._second(connection)
        connection.exec_driver_sql("SELECT * FROM no_such_table")

    monkeypatch.setattr(schema, "_MIGRATIONS", (schema._first, broken))
    with pytest.raises(LedgerError):
        Ledger(url)
    monkeypatch.undo()
    with Ledger(url) as ledger:
        assert len(ledger.history("views")) == 1
