"""Hash chain and rollback anchor: every changed row is noticed, and an old copy of the ledger does not spend twice."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
import sqlalchemy as sa

from hushgram.accounting import RELATIONS, Budget, Event
from hushgram.accounting.composition import basic
from hushgram.errors import BudgetExceeded, LedgerError
from hushgram.ledger import Ledger, Owner, Request, Reservation, add_key, backup, recover, summarise
from hushgram.ledger.hash_chain import Account, write_macs
from hushgram.ledger.keys import Macs
from hushgram.ledger.store import releases
from tests.core.ledger import mutants

HALF = [Event("threshold", "0.3", "1e-9"), Event("alp", "0.2")]
KEY = "ab" * 32


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HUSHGRAM_WRAP_KEY", "HUSHGRAM_KEY_FILE", "HUSHGRAM_LEDGER_ANCHOR"):
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
    "scheme of MACs": "UPDATE settings SET value = 'hmac-1:00' WHERE name = 'seals'",
}


@pytest.mark.parametrize("what", EDITS)
@pytest.mark.long
def test_every_field_is_bound(url: str, what: str) -> None:
    fill(url)
    with editing(url) as connection:
        connection.exec_driver_sql(EDITS[what])
    for look in (
        lambda ledger: ledger.spent("views"),
        lambda ledger: ledger.find("views", "thursday"),
        lambda ledger: ledger.preflight(Request("views", "next", HALF)),
        lambda ledger: ledger.reserve(Request("views", "friday", HALF), Owner.this()),
        lambda ledger: summarise(ledger, "views"),
        lambda ledger: ledger.abandon("thursday", "views"),
        lambda ledger: backup(ledger, f"{os.environ['PYTEST_TMP']}/copy.db"),
    ):
        with pytest.raises(LedgerError, match=r"damaged|has MACs") as caught, Ledger(url) as ledger:
            look(ledger)
        assert "\n" not in str(caught.value)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_TMP", str(tmp_path))


def test_rows_missing_at_the_end_are_noticed_also_with_the_head_set_back(url: str) -> None:
    """The link of the row before is in the table for everybody to copy; the head has a MAC of its own."""
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
        for step in (ledger.start, ledger.renew, ledger.release_lease, ledger.cancel):
            with pytest.raises(LedgerError, match="not as it was written"):
                step(taken)


def test_a_cached_total_is_bound_too(url: str) -> None:
    fill(url)
    with Ledger(url) as ledger:
        true = summarise(ledger, "views")
        with editing(url) as connection:
            connection.exec_driver_sql("UPDATE totals SET body = replace(body, '\"2\"', '\"1\"')")
        assert summarise(ledger, "views") == true


def test_without_a_key_a_forger_can_recompute_macs_and_with_one_not(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MACs without a key detect accidents, with a key also forgery."""

    def forge() -> None:
        with editing(sqlite_url) as connection:
            connection.exec_driver_sql("UPDATE events SET epsilon = '1/100'")
            write_macs(connection, Macs(None), bytes(32))

    path = Path(sqlite_url.removeprefix("sqlite:///"))

    def anew() -> None:
        for one in (path, Path(f"{path}.anchor")):
            one.unlink(missing_ok=True)
        fill(sqlite_url)

    anew()
    Path(f"{path}.anchor").unlink()
    forge()
    with Ledger(sqlite_url) as ledger:
        assert {cost[:2] for cost in ledger.spent("views").shared} == {
            (Fraction(1, 100), HALF[0].delta),
            (Fraction(1, 100), 0),
        }
    monkeypatch.setenv("HUSHGRAM_WRAP_KEY", KEY)
    anew()
    forge()
    with pytest.raises(LedgerError, match="has MACs without a key"):
        Ledger(sqlite_url)
    monkeypatch.setenv("HUSHGRAM_WRAP_KEY", "cd" * 32)
    anew()
    monkeypatch.setenv("HUSHGRAM_WRAP_KEY", KEY)
    with pytest.raises(LedgerError, match="another wrapping key"):
        Ledger(sqlite_url)
    monkeypatch.delenv("HUSHGRAM_WRAP_KEY")
    with pytest.raises(LedgerError, match="set HUSHGRAM_KEY_FILE"):
        Ledger(sqlite_url)


def test_a_key_is_added_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(url)
    with pytest.raises(LedgerError, match="no wrapping key"):
        add_key(url)
    with Ledger(url) as ledger:
        before, pepper = ledger.history("views"), ledger.pepper()
    monkeypatch.setenv("HUSHGRAM_WRAP_KEY", KEY)
    assert add_key(url)
    assert not add_key(url)
    with Ledger(url) as ledger:
        assert ledger.history("views") == before
        assert ledger.pepper() == pepper
        release(ledger, "friday")
    with editing(url) as connection:
        connection.exec_driver_sql("UPDATE events SET epsilon = '1/100' WHERE id = 2")
    with Ledger(url) as ledger, pytest.raises(LedgerError, match="damaged"):
        ledger.spent("views")


def test_damage_gets_no_macs_under_a_new_key(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(url)
    with editing(url) as connection:
        connection.exec_driver_sql("UPDATE events SET epsilon = '1/100' WHERE id = 2")
    monkeypatch.setenv("HUSHGRAM_WRAP_KEY", KEY)
    with pytest.raises(LedgerError, match="damaged"):
        add_key(url)


# An old version of one row


def snapshot(url: str) -> dict[str, object]:
    with editing(url) as connection:
        return dict(
            connection.exec_driver_sql("SELECT * FROM releases WHERE name = 'friday'").mappings().one()
        )


def put_back(url: str, row: dict[str, object]) -> None:
    with editing(url) as connection:
        connection.execute(releases.update().where(releases.c.id == row["id"]).values(**row))


FRIDAY = Request("views", "friday", HALF)


@pytest.mark.parametrize("interactive", [False, True])
def test_an_old_version_of_a_row_refunds_no_release(url: str, interactive: bool) -> None:
    """Without a rollback anchor, the row as it was when only reserved made `abandon` refund a published release."""
    fill(url)
    wanted = replace(FRIDAY, resumable=not interactive)
    with Ledger(url) as ledger:
        taken = ledger.reserve(wanted, Owner.this())
        ledger.release_lease(taken)
        reserved = snapshot(url)
        finish(ledger, ledger.reserve(wanted, Owner.this()))
        without_anchor(ledger)
        put_back(url, reserved)
        for attempt in (
            lambda: ledger.abandon("friday", "views"),
            lambda: ledger.start(taken),
            lambda: ledger.reserve(wanted, Owner.this()),
            lambda: ledger.spent("views"),
        ):
            with pytest.raises(LedgerError, match=r"damaged: .* has the state of an earlier time"):
                attempt()


def test_a_refund_cannot_be_put_back_after_the_release(url: str) -> None:
    """Refunded, put back to reserved, released, and then put back to refunded."""
    fill(url)
    with Ledger(url) as ledger:
        taken = ledger.reserve(FRIDAY, Owner.this())
        ledger.release_lease(taken)
        reserved = snapshot(url)
        assert not ledger.abandon("friday", "views").charged
        refunded = snapshot(url)
        without_anchor(ledger)
        put_back(url, reserved)
        with pytest.raises(LedgerError, match="earlier time"):
            ledger.reserve(FRIDAY, Owner.this())
        put_back(url, refunded)
        finish(ledger, ledger.reserve(FRIDAY, Owner.this()))
        assert [row.charged for row in ledger.history("views")][-2:] == [False, True]


def test_every_step_leaves_a_head_that_fits(url: str) -> None:
    fill(url)
    with Ledger(url) as ledger:
        taken = ledger.reserve(FRIDAY, Owner.this())
        steps = (
            lambda: ledger.start(taken), lambda: ledger.renew(taken), lambda: ledger.prepare(taken, "d" * 64),
            lambda: ledger.commit(taken),
        )  # fmt: skip
        for step in steps:
            before = snapshot(url)
            step()
            assert ledger.find("views", "friday") is not None
            if before["status"] == "reserved":
                after = snapshot(url)
                put_back(url, before)
                with pytest.raises(LedgerError, match="earlier time"):
                    ledger.find("views", "friday")
                put_back(url, after)


def without_anchor(ledger: Ledger) -> None:
    if ledger.anchor.path is not None:
        ledger.anchor.path.unlink()


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
            ledger.preflight(Request("views", "next", HALF))
        assert "older" in str(summarise(ledger, "views").warning)
        charged = recover(ledger, "views")
        assert charged is not None
        # friday, saturday, and thursday: it was only reserved in the copy, and nobody knows what became of it
        assert (charged.epsilon, charged.delta) == (Fraction(3, 2), 3 * HALF[0].delta)
        assert recover(ledger, "views") is None
        after = summarise(ledger, "views")
        assert Fraction(after.basic_epsilon) == Fraction(spent.basic_epsilon) + Fraction(1, 2)
        assert after.warning is None
        release(ledger, "sunday")
        with pytest.raises(BudgetExceeded):
            ledger.preflight(Request("views", "next", [Event("alp", 9)]))
    with Ledger(sqlite_url) as ledger:
        release(ledger, "next monday")


def finish(ledger: Ledger, reservation: Reservation) -> None:
    ledger.start(reservation)
    ledger.prepare(reservation, "d" * 64)
    ledger.commit(reservation)


@pytest.mark.parametrize("way", ["backup", "backup, and no anchor", "plain copy of the file"])
def test_a_copy_taken_while_a_release_was_reserved_gives_nothing_back(
    sqlite_url: str, tmp_path: Path, way: str
) -> None:
    """The release is public, and the copy thinks that nothing was drawn: neither a rerun nor `abandon` refunds it."""
    path, copy = sqlite_url.removeprefix("sqlite:///"), str(tmp_path / "copy.db")
    with Ledger.create(sqlite_url) as ledger:
        ledger.add_dataset("views", Budget(1))
        wanted = Request("views", "monday", [Event("alp", 1)])
        reservation = ledger.reserve(wanted, Owner.this())
        if way.startswith("backup"):
            backup(ledger, copy)
        else:
            shutil.copy(path, copy)
        finish(ledger, reservation)
    shutil.copy(copy, path)
    if way.endswith("no anchor"):
        Path(f"{path}.anchor").unlink()
    with Ledger(sqlite_url) as ledger:
        if way.startswith("backup"):
            for attempt in (ledger.preflight, lambda request: ledger.reserve(request, Owner.this())):
                with pytest.raises(
                    LedgerError, match=r"its key is not here.*abandon` it \(its charge stays\)"
                ):
                    attempt(wanted)
        else:  # the key is there: the same bytes again cost nothing more, and leaving early gives nothing back
            assert not ledger.cancel(reservation)
            ledger.release_lease(reservation)
        assert ledger.abandon("monday").charged
        assert summarise(ledger, "views").left_epsilon == "0"
        with pytest.raises(BudgetExceeded):
            ledger.reserve(Request("views", "tuesday", [Event("alp", "0.1")]), Owner.this())


def test_a_prepared_release_of_a_restored_ledger_can_still_be_committed(
    sqlite_url: str, tmp_path: Path
) -> None:
    path = sqlite_url.removeprefix("sqlite:///")
    with Ledger.create(sqlite_url) as ledger:
        ledger.add_dataset("views", Budget(1))
        wanted = Request("views", "monday", [Event("alp", 1)])
        reservation = ledger.reserve(wanted, Owner.this())
        ledger.start(reservation)
        ledger.prepare(reservation, "d" * 64)
        backup(ledger, str(tmp_path / "copy.db"))
    shutil.copy(tmp_path / "copy.db", path)
    with Ledger(sqlite_url) as ledger:
        taken = ledger.reserve(wanted, Owner.this())
        with pytest.raises(LedgerError, match="its key is not here"):
            ledger.start(taken)
        assert not ledger.cancel(taken)
        ledger.commit(taken)
        assert summarise(ledger, "views").left_epsilon == "0"


def test_what_is_never_begun_is_still_given_back(sqlite_url: str) -> None:
    with Ledger.create(sqlite_url) as ledger:
        ledger.add_dataset("views", Budget(1))
        wanted = Request("views", "monday", [Event("alp", 1)])
        assert ledger.cancel(ledger.reserve(wanted, Owner.this()))
        ledger.release_lease(ledger.reserve(wanted, Owner.this()))
        assert not ledger.abandon("monday").charged
        assert summarise(ledger, "views").left_epsilon == "1"


def lose(url: str, tmp_path: Path, *lost: Event) -> None:
    """A ledger with one release, put back to before these events were released."""
    path = url.removeprefix("sqlite:///")
    with Ledger.create(url) as ledger:
        ledger.add_dataset("views", Budget(10, "1e-3"))
        kept = [Event("alp", 2, relation=lost[0].relation)]
        finish(ledger, ledger.reserve(Request("views", "kept", kept), Owner.this()))
        backup(ledger, str(tmp_path / "copy.db"))
        for number, event in enumerate(lost):
            finish(ledger, ledger.reserve(Request("views", f"lost-{number}", [event]), Owner.this()))
    shutil.copy(tmp_path / "copy.db", path)


@pytest.mark.parametrize("relation", RELATIONS)
def test_recover_charges_the_relation_of_what_was_lost(
    sqlite_url: str, tmp_path: Path, relation: str
) -> None:
    """Lost randomized response was booked as if it had been about users."""
    lose(sqlite_url, tmp_path, Event("rr", 3, "1e-5", relation=relation), Event("rr", 1, relation=relation))
    with Ledger(sqlite_url) as ledger:
        charged = recover(ledger, "views")
        assert charged is not None
        assert [event.relation for event in charged.events] == [relation]
        assert basic(ledger.spent("views").shared) == (6, Fraction(1, 10**5))
        assert _account(ledger).relations == [relation]
        assert ledger.rollback_warning(_account(ledger)) is None


def _account(ledger: Ledger) -> Account:
    with ledger.store.read() as connection:
        return ledger.chain.read(connection, "views")


def test_a_reservation_of_the_copy_does_not_stand_for_what_was_lost(sqlite_url: str, tmp_path: Path) -> None:
    """It was on one part of the users and was given back; what came after it was on all of them."""
    path = sqlite_url.removeprefix("sqlite:///")
    part = {"parameters": {"input.user": "id"}, "users": "part 0 of 2"}
    with Ledger.create(sqlite_url) as ledger:
        ledger.add_dataset("views", Budget(10))
        early = ledger.reserve(Request("views", "a", [Event("alp", 3)], **part), Owner.this())  # type: ignore[arg-type]
        backup(ledger, str(tmp_path / "copy.db"))
        ledger.cancel(early)
        finish(ledger, ledger.reserve(Request("views", "b", [Event("alp", 3)]), Owner.this()))
    shutil.copy(tmp_path / "copy.db", path)
    with Ledger(sqlite_url) as ledger:
        recover(ledger, "views")
        assert basic(ledger.spent("views").shared)[0] == 3


def test_a_ledger_that_was_lost_and_made_anew_is_noticed(sqlite_url: str) -> None:
    fill(sqlite_url)
    Path(sqlite_url.removeprefix("sqlite:///")).unlink()
    with Ledger.create(sqlite_url) as ledger:
        ledger.add_dataset("views", Budget(10, "1e-6"))
        with pytest.raises(LedgerError, match="holds 0"):
            ledger.preflight(Request("views", "next", HALF))
        charged = recover(ledger, "views")
        assert charged is not None
        assert charged.epsilon == 2


def test_another_history_of_the_same_length_is_noticed(sqlite_url: str, tmp_path: Path) -> None:
    fill(sqlite_url)
    path, anchor = Path(sqlite_url.removeprefix("sqlite:///")), Path(f"{sqlite_url[10:]}.anchor")
    early = path.read_bytes()
    with Ledger(sqlite_url) as ledger:
        release(ledger, "friday")
    kept = anchor.read_bytes()
    path.write_bytes(early)
    anchor.unlink()
    with Ledger(sqlite_url) as ledger:
        release(ledger, "saturday")
    anchor.write_bytes(kept)
    with Ledger(sqlite_url) as ledger:
        with pytest.raises(LedgerError, match="another history"):
            ledger.preflight(Request("views", "next", HALF))
        charged = recover(ledger, "views")
        assert charged is not None
        assert charged.epsilon == 2.5


def test_an_anchor_elsewhere_and_for_a_server(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anchor = tmp_path / "elsewhere"
    monkeypatch.setenv("HUSHGRAM_LEDGER_ANCHOR", str(anchor))
    fill(url)
    assert anchor.stat().st_mode & 0o077 == 0
    content = anchor.read_bytes()
    anchor.write_bytes(content[:-30])  # torn in the middle of the last line: the one before counts
    with Ledger(url) as ledger:
        release(ledger, "friday")
        seen = ledger.anchor.last("views")
        assert seen is not None
        assert seen.count == 5
    with editing(url) as connection:
        connection.exec_driver_sql("DELETE FROM events WHERE release_id > 3")
        connection.exec_driver_sql("DELETE FROM releases WHERE id > 3")
        write_macs(connection, Macs(None), bytes(32))
    with Ledger(url) as ledger, pytest.raises(LedgerError, match="saw 5 reservations"):
        ledger.preflight(Request("views", "next", HALF))


def test_a_fifo_is_neither_a_ledger_nor_an_anchor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger(f"sqlite:///{tmp_path}/pipe")
    monkeypatch.setenv("HUSHGRAM_LEDGER_ANCHOR", str(tmp_path / "pipe"))
    fill(f"sqlite:///{tmp_path}/ledger.db")


def test_bar_mutants(tmp_path: Path) -> None:
    """A share of what ``python -m tests.core.ledger.mutants`` does with 5,000."""
    ends, wrong, _ = mutants.run(150, tmp_path, seed=7)
    assert wrong == []
    assert sum(count for end, count in ends.items() if end.endswith("refused")) > 30
