"""Seals: no row is changed, moved or lost unnoticed; an old copy of the ledger does not spend twice."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
import sqlalchemy as sa

from hushgram.accounting import Budget, Event
from hushgram.errors import BudgetExceeded, LedgerError
from hushgram.ledger import Ledger, Owner, Request, backup, recover, seal, summarise
from hushgram.ledger.chain import Chain
from hushgram.ledger.seals import Sealer
from tests.core.ledger import mutants

HALF = [Event("threshold", "0.3", "1e-9"), Event("alp", "0.2")]
KEY = "ab" * 32


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HUSHGRAM_WRAP_KEY", "HUSHGRAM_KEY_FILE", "HUSHGRAM_LEDGER_WITNESS"):
        monkeypatch.delenv(name, raising=False)


def release(ledger: Ledger, name: str) -> None:
    taken = ledger.reserve(Request("views", name, HALF), Owner.this())
    ledger.start(taken)
    ledger.prepare(taken, "d" * 64)
    ledger.commit(taken)


def fill(url: str) -> None:
    with Ledger.create(url) as ledger:
        ledger.add_dataset("views", Budget(10, "1e-6"))
        ledger.add_dataset("visits", Budget(10, "1e-6"))
        for name in ("monday", "tuesday", "wednesday"):
            release(ledger, name)
        ledger.reserve(Request("views", "thursday", HALF), Owner.this())
        summarise(ledger, "views")


@contextlib.contextmanager
def editing(url: str) -> Iterator[sa.Connection]:
    """What somebody with a database client can do."""
    from hushgram.ledger import store

    engine = store._engine(store._parse(url))
    with engine.begin() as connection:
        if connection.dialect.name == "sqlite":
            for action in ("update", "delete"):
                connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS events_no_{action}")
        else:
            connection.exec_driver_sql("ALTER TABLE events DISABLE TRIGGER USER")
        yield connection
    engine.dispose()


EDITS = {
    "an amount": "UPDATE events SET epsilon = '1/100' WHERE id = 2",
    "a delta": "UPDATE events SET delta = '0' WHERE id = 1",
    "no number": "UPDATE events SET epsilon = 'x' WHERE id = 2",
    "details that are no JSON": "UPDATE events SET details = '{' WHERE id = 2",
    "a relation": "UPDATE events SET relation = 'secret bit' WHERE id = 2",
    "an unknown kind": "UPDATE events SET kind = 'alq' WHERE id = 2",
    "an event gone": "DELETE FROM events WHERE id = 4",
    "an event moved": "UPDATE events SET release_id = 3, position = 9 WHERE id = 4",
    "charged": "UPDATE releases SET charged = 0, status = 'abandoned' WHERE name = 'tuesday'",
    "users": "UPDATE releases SET users = 'north' WHERE name = 'tuesday'",
    "another data set": "UPDATE releases SET dataset = 'visits' WHERE name = 'tuesday'",
    "another id": "UPDATE releases SET name = 'sunday' WHERE name = 'thursday'",
    "parameters": "UPDATE releases SET parameters = '[' WHERE name = 'tuesday'",
    "a secret": "UPDATE releases SET secret = 'plain:00' WHERE name = 'thursday'",
    "a lease": "UPDATE releases SET lease = lease + 1 WHERE name = 'thursday'",
    "an owner": "UPDATE releases SET owner = '{}' WHERE name = 'thursday'",
    "a budget": "UPDATE datasets SET epsilon = '1000' WHERE name = 'views'",
    "a rule": "UPDATE datasets SET composition = 'none' WHERE name = 'views'",
    "a head": "UPDATE heads SET count = 3 WHERE dataset = 'views'",
    "no head": "DELETE FROM heads WHERE dataset = 'views'",
    "a setting": "UPDATE settings SET value = NULL WHERE name = 'pepper'",
    "a setting gone": "DELETE FROM settings WHERE name = 'datasets'",
    "form of seals": "UPDATE settings SET value = 'hmac-1:00' WHERE name = 'seals'",
}


@pytest.mark.parametrize("what", EDITS)
def test_every_field_is_bound(url: str, what: str) -> None:
    fill(url)
    with editing(url) as connection:
        connection.exec_driver_sql(EDITS[what])
    for look in (
        lambda ledger: ledger.spent("views"),
        lambda ledger: ledger.find("views", "thursday"),
        lambda ledger: ledger.check("views", HALF),
        lambda ledger: ledger.reserve(Request("views", "friday", HALF), Owner.this()),
        lambda ledger: summarise(ledger, "views"),
        lambda ledger: ledger.abandon("thursday", "views"),
        lambda ledger: backup(ledger, f"{os.environ['PYTEST_TMP']}/copy.db"),
    ):
        with pytest.raises(LedgerError, match=r"damaged|sealed") as caught, Ledger(url) as ledger:
            look(ledger)
        assert "\n" not in str(caught.value)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_TMP", str(tmp_path))


def test_rows_missing_at_the_end_are_noticed_also_with_the_head_set_back(url: str) -> None:
    """The link of the row before is in the table for everybody to copy; the head has a seal of its own."""
    fill(url)
    with editing(url) as connection:
        connection.exec_driver_sql("DELETE FROM events WHERE release_id = 4")
        connection.exec_driver_sql("DELETE FROM releases WHERE id = 4")
        connection.exec_driver_sql(
            "UPDATE heads SET count = 3, link = (SELECT link FROM releases WHERE id = 3) WHERE dataset = 'views'"
        )
    with Ledger(url) as ledger, pytest.raises(LedgerError, match="missing at the end"):
        ledger.spent("views")


def test_a_run_under_way_notices_that_its_row_was_changed(url: str) -> None:
    fill(url)
    with Ledger(url) as ledger:
        taken = ledger.reserve(Request("views", "friday", HALF), Owner.this())
        with editing(url) as connection:
            connection.exec_driver_sql("UPDATE releases SET secret = 'plain:00' WHERE name = 'friday'")
        for step in (ledger.start, ledger.renew, ledger.let_go, ledger.cancel):
            with pytest.raises(LedgerError, match="not as it was written"):
                step(taken)


def test_a_cached_total_is_bound_too(url: str) -> None:
    fill(url)
    with Ledger(url) as ledger:
        true = summarise(ledger, "views")
        with editing(url) as connection:
            connection.exec_driver_sql("UPDATE totals SET body = replace(body, '\"2\"', '\"1\"')")
        assert summarise(ledger, "views") == true


def test_without_a_key_a_forger_can_seal_anew_and_with_one_not(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the two kinds of seal protect against, and what not."""

    def forge() -> None:
        with editing(sqlite_url) as connection:
            connection.exec_driver_sql("UPDATE events SET epsilon = '1/100'")
            Chain(Sealer(None), "").seal_all(connection, bytes(32))

    path = Path(sqlite_url.removeprefix("sqlite:///"))

    def anew() -> None:
        for one in (path, Path(f"{path}.witness")):
            one.unlink(missing_ok=True)
        fill(sqlite_url)

    anew()
    Path(f"{path}.witness").unlink()
    forge()
    with Ledger(sqlite_url) as ledger:
        assert ledger.spent("views").shared.keys() == {
            (Fraction(1, 100), HALF[0].delta),
            (Fraction(1, 100), 0),
        }
    monkeypatch.setenv("HUSHGRAM_WRAP_KEY", KEY)
    anew()
    forge()
    with pytest.raises(LedgerError, match="sealed without a key"):
        Ledger(sqlite_url)
    monkeypatch.setenv("HUSHGRAM_WRAP_KEY", "cd" * 32)
    anew()
    monkeypatch.setenv("HUSHGRAM_WRAP_KEY", KEY)
    with pytest.raises(LedgerError, match="another wrapping key"):
        Ledger(sqlite_url)
    monkeypatch.delenv("HUSHGRAM_WRAP_KEY")
    with pytest.raises(LedgerError, match="set HUSHGRAM_KEY_FILE"):
        Ledger(sqlite_url)


def test_a_ledger_is_sealed_under_a_key_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(url)
    with pytest.raises(LedgerError, match="no wrapping key"):
        seal(url)
    with Ledger(url) as ledger:
        before, pepper = ledger.history("views"), ledger.pepper()
    monkeypatch.setenv("HUSHGRAM_WRAP_KEY", KEY)
    assert seal(url)
    assert not seal(url)
    with Ledger(url) as ledger:
        assert ledger.history("views") == before
        assert ledger.pepper() == pepper
        release(ledger, "friday")
    with editing(url) as connection:
        connection.exec_driver_sql("UPDATE events SET epsilon = '1/100' WHERE id = 2")
    with Ledger(url) as ledger, pytest.raises(LedgerError, match="damaged"):
        ledger.spent("views")


def test_damage_is_not_sealed_under_the_key(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(url)
    with editing(url) as connection:
        connection.exec_driver_sql("UPDATE events SET epsilon = '1/100' WHERE id = 2")
    monkeypatch.setenv("HUSHGRAM_WRAP_KEY", KEY)
    with pytest.raises(LedgerError, match="damaged"):
        seal(url)


# An old copy in place of the ledger


def test_a_restored_ledger_is_noticed_and_charged_for_what_it_lacks(sqlite_url: str, tmp_path: Path) -> None:
    fill(sqlite_url)
    with Ledger(sqlite_url) as ledger:
        backup(ledger, str(tmp_path / "copy.db"))
        release(ledger, "friday")
        release(ledger, "saturday")
        spent = summarise(ledger, "views")
    shutil.copy(tmp_path / "copy.db", sqlite_url.removeprefix("sqlite:///"))
    with Ledger(sqlite_url) as ledger:
        with pytest.raises(
            LedgerError, match=r"saw 6 reservations of views, this ledger holds 4;.*recover views"
        ):
            ledger.reserve(Request("views", "sunday", HALF), Owner.this())
        with pytest.raises(LedgerError, match="older"):
            ledger.check("views", HALF)
        assert "older" in str(summarise(ledger, "views").warning)
        charged = recover(ledger, "views")
        assert charged is not None
        assert (charged.epsilon, charged.delta) == (1, 2 * HALF[0].delta)
        assert recover(ledger, "views") is None
        after = summarise(ledger, "views")
        assert (after.basic_epsilon, after.basic_delta) == (spent.basic_epsilon, spent.basic_delta)
        assert after.warning is None
        release(ledger, "sunday")
        with pytest.raises(BudgetExceeded):
            ledger.check("views", [Event("alp", 9)])
    with Ledger(sqlite_url) as ledger:
        release(ledger, "next monday")


def test_a_ledger_that_was_lost_and_made_anew_is_noticed(sqlite_url: str) -> None:
    fill(sqlite_url)
    Path(sqlite_url.removeprefix("sqlite:///")).unlink()
    with Ledger.create(sqlite_url) as ledger:
        ledger.add_dataset("views", Budget(10, "1e-6"))
        with pytest.raises(LedgerError, match="holds 0"):
            ledger.check("views", HALF)
        charged = recover(ledger, "views")
        assert charged is not None
        assert charged.epsilon == 2


def test_another_history_of_the_same_length_is_noticed(sqlite_url: str, tmp_path: Path) -> None:
    fill(sqlite_url)
    path, witness = Path(sqlite_url.removeprefix("sqlite:///")), Path(f"{sqlite_url[10:]}.witness")
    early = path.read_bytes()
    with Ledger(sqlite_url) as ledger:
        release(ledger, "friday")
    kept = witness.read_bytes()
    path.write_bytes(early)
    witness.unlink()
    with Ledger(sqlite_url) as ledger:
        release(ledger, "saturday")
    witness.write_bytes(kept)
    with Ledger(sqlite_url) as ledger:
        with pytest.raises(LedgerError, match="another history"):
            ledger.check("views", HALF)
        charged = recover(ledger, "views")
        assert charged is not None
        assert charged.epsilon == 2.5


def test_a_witness_elsewhere_and_for_a_server(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = tmp_path / "elsewhere"
    monkeypatch.setenv("HUSHGRAM_LEDGER_WITNESS", str(witness))
    fill(url)
    assert witness.stat().st_mode & 0o077 == 0
    content = witness.read_bytes()
    witness.write_bytes(content[:-30])  # torn in the middle of the last line: the one before counts
    with Ledger(url) as ledger:
        release(ledger, "friday")
        seen = ledger.witness.last("views")
        assert seen is not None
        assert seen.count == 5
    with editing(url) as connection:
        chain = Chain(Sealer(None), "")
        connection.exec_driver_sql("DELETE FROM events WHERE release_id > 3")
        connection.exec_driver_sql("DELETE FROM releases WHERE id > 3")
        chain.seal_all(connection, bytes(32))
    with Ledger(url) as ledger, pytest.raises(LedgerError, match="saw 5 reservations"):
        ledger.check("views", HALF)


def test_a_fifo_is_neither_a_ledger_nor_a_witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger(f"sqlite:///{tmp_path}/pipe")
    monkeypatch.setenv("HUSHGRAM_LEDGER_WITNESS", str(tmp_path / "pipe"))
    fill(f"sqlite:///{tmp_path}/ledger.db")


def test_bar_mutants(tmp_path: Path) -> None:
    """A share of what ``python -m tests.core.ledger.mutants`` does with 5,000."""
    ends, wrong, _ = mutants.run(150, tmp_path, seed=7)
    assert wrong == []
    assert sum(count for end, count in ends.items() if end.endswith("refused")) > 30
