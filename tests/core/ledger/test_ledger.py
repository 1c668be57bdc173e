"""The ledger's rules, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
import sqlalchemy as sa

from hushgram.accounting import Budget, Event
from hushgram.errors import BudgetExceeded, LedgerError, ParameterError
from hushgram.ledger import Ledger, Owner, Request, Reservation, backup, recover, summarise
from hushgram.ledger import ledger as module
from hushgram.ledger.hash_chain import write_macs
from hushgram.ledger.keys import Macs
from hushgram.ledger.store import releases
from hushgram.ledger.summary import forecast

NORTH, SOUTH, WEST = (f"part {n} of 4" for n in range(3))
HALF = [Event("threshold", "0.3"), Event("alp", "0.2")]


@pytest.fixture
def ledger(url: str) -> Ledger:
    """A ledger with one data set that may spend ε = 1."""
    made = Ledger.create(url)
    made.add_dataset("views", Budget(1))
    return made


def reserve(ledger: Ledger, name: str = "monday", **changes: object) -> Reservation:
    values: dict[str, object] = {"dataset": "views", "release": name, "events": HALF, **changes}
    if "users" in changes:
        values.setdefault("parameters", {"input.user": "id"})
    return ledger.reserve(Request(**values), Owner.this())  # type: ignore[arg-type]


def release(ledger: Ledger, name: str, **changes: object) -> None:
    reservation = reserve(ledger, name, **changes)
    ledger.start(reservation)
    ledger.prepare(reservation, "d" * 64)
    ledger.commit(reservation)


def test_reserve_to_commit_charges_once_and_erases_the_key(ledger: Ledger) -> None:
    first = reserve(ledger)
    assert first.status == "new"
    key = ledger.start(first)
    ledger.release_lease(first)
    again = reserve(ledger)
    assert again.status == "running"
    assert ledger.start(again) == key
    ledger.prepare(again, "d" * 64)
    ledger.commit(again)
    assert reserve(ledger).done
    [row] = ledger.history("views")
    assert (row.status, row.epsilon, row.digest, row.owner) == ("committed", Fraction(1, 2), "d" * 64, None)
    assert ledger.spent("views").shared.total() == 2
    with ledger.store.read() as connection:
        assert connection.exec_driver_sql("SELECT secret FROM releases").scalar() is None


def test_what_does_not_fit_is_refused_with_what_would(ledger: Ledger) -> None:
    release(ledger, "monday")
    with pytest.raises(BudgetExceeded, match=r"needs ε = 0.75.*at ε = 0.5 would fit"):
        reserve(ledger, "tuesday", events=[Event("alp", "0.75")])
    release(ledger, "tuesday")
    with pytest.raises(BudgetExceeded, match="nothing of this kind fits"):
        reserve(ledger, "wednesday", events=[Event("alp", "1e-9")])
    assert len(ledger.history("views")) == 2


def test_other_parameters_or_inputs_under_the_same_id_are_refused_by_name(ledger: Ledger) -> None:
    first = reserve(ledger, parameters={"key": "url"}, inputs={"a.csv": "3 bytes"})
    ledger.release_lease(first)
    with pytest.raises(LedgerError, match="key was url, is host"):
        reserve(ledger, parameters={"key": "host"}, inputs={"a.csv": "3 bytes"})
    with pytest.raises(LedgerError, match=r"input a.csv has changed"):
        reserve(ledger, parameters={"key": "url"}, inputs={"a.csv": "4 bytes"})
    with pytest.raises(LedgerError, match=r"input b.csv is new"):
        reserve(ledger, parameters={"key": "url"}, inputs={"a.csv": "3 bytes", "b.csv": "1 bytes"})
    events = [HALF[0], Event("alp", "0.1")]
    with pytest.raises(LedgerError, match="epsilon 1/5, delta 0, is epsilon 1/10"):
        reserve(ledger, parameters={"key": "url"}, inputs={"a.csv": "3 bytes"}, events=events)
    assert reserve(ledger, parameters={"key": "url"}, inputs={"a.csv": "3 bytes"}).status == "reserved"


def test_missing_inputs_are_forgiven_only_after_the_commit(ledger: Ledger) -> None:
    release(ledger, "monday", inputs={"a.csv": "3 bytes"})
    assert reserve(ledger, "monday", inputs=None).done
    ledger.release_lease(reserve(ledger, "tuesday", inputs={"a.csv": "3 bytes"}))
    with pytest.raises(LedgerError, match=r"a.csv"):
        reserve(ledger, "tuesday", inputs=None)


def test_a_live_run_keeps_others_out_and_a_dead_one_does_not(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = reserve(ledger)
    with pytest.raises(LedgerError, match="is being run by process"):
        reserve(ledger)
    with pytest.raises(LedgerError, match="is being run by process"):
        ledger.abandon("monday")
    monkeypatch.setattr(Owner, "is_dead", lambda self: True)
    second = reserve(ledger)
    assert second.status == "reserved"
    for step in (ledger.start, ledger.renew, ledger.commit, ledger.cancel, ledger.release_lease):
        with pytest.raises(LedgerError, match="taken over"):
            step(first)
    with pytest.raises(LedgerError, match="taken over"):
        ledger.prepare(first, "d" * 64)
    ledger.start(second)


def test_a_run_on_another_machine_is_believed_until_its_lease_ends(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = Owner("elsewhere", "another boot", 1, "1", "token")
    ledger.reserve(Request("views", "monday", HALF), far)
    with pytest.raises(LedgerError, match="process 1 on elsewhere"):
        reserve(ledger)
    monkeypatch.setattr(module, "LEASE_SECONDS", -1.0)
    held = Reservation(ledger.history("views")[0], "reserved", "token")
    ledger.renew(held)
    assert reserve(ledger).status == "reserved"


def test_steps_out_of_order_are_refused(ledger: Ledger) -> None:
    reservation = reserve(ledger)
    with pytest.raises(LedgerError):
        ledger.prepare(reservation, "d" * 64)
    ledger.start(reservation)
    with pytest.raises(LedgerError):
        ledger.commit(reservation)


def test_a_second_run_must_make_the_same_bytes(ledger: Ledger) -> None:
    first = reserve(ledger)
    ledger.start(first)
    ledger.prepare(first, "a" * 64)
    ledger.release_lease(first)
    second = reserve(ledger)
    with pytest.raises(LedgerError, match="other bytes"):
        ledger.prepare(second, "b" * 64)
    ledger.prepare(second, "a" * 64)


def test_abandon_keeps_the_charge_once_noise_may_exist(ledger: Ledger) -> None:
    drawn = reserve(ledger, "monday")
    ledger.start(drawn)
    ledger.release_lease(drawn)
    assert ledger.abandon("monday").charged
    assert ledger.spent("views").shared.total() == 2
    with pytest.raises(LedgerError, match=r"abandoned.*use another id"):
        reserve(ledger, "monday")
    ledger.release_lease(reserve(ledger, "tuesday"))
    assert not ledger.abandon("tuesday").charged
    assert ledger.spent("views").shared.total() == 2
    assert reserve(ledger, "tuesday").release.attempt == 2
    with ledger.store.read() as connection:
        query = "SELECT secret IS NULL FROM releases ORDER BY id"
        erased = [bool(empty) for empty in connection.exec_driver_sql(query).scalars()]
    assert erased == [True, True, False]


def test_abandon_refuses_what_is_finished_or_unknown_or_ambiguous(ledger: Ledger) -> None:
    release(ledger, "monday")
    with pytest.raises(LedgerError, match="is committed since"):
        ledger.abandon("monday")
    with pytest.raises(LedgerError, match="no release 'sunday'"):
        ledger.abandon("sunday")
    ledger.add_dataset("clicks", Budget(1))
    ledger.release_lease(reserve(ledger, "monday", dataset="clicks"))
    with pytest.raises(LedgerError, match="add --dataset"):
        ledger.abandon("monday")
    assert not ledger.abandon("monday", "clicks").charged


def test_events_cannot_be_changed_even_by_sql(ledger: Ledger) -> None:
    release(ledger, "monday")
    for statement in ("UPDATE events SET epsilon = '0'", "DELETE FROM events"):
        with pytest.raises(LedgerError, match="append-only"), ledger.store.write() as connection:
            connection.exec_driver_sql(statement)
    assert ledger.history("views")[0].epsilon == Fraction(1, 2)


def test_impossible_states_are_refused_by_the_database(ledger: Ledger) -> None:
    release(ledger, "monday")
    for statement in (
        "UPDATE releases SET secret = 'x'",
        "UPDATE releases SET status = 'lost'",
        "UPDATE releases SET charged = 0",
        "UPDATE releases SET digest = NULL",
    ):
        with pytest.raises(sa.exc.IntegrityError), ledger.store._engine.begin() as connection:
            connection.exec_driver_sql(statement)


def test_disjoint_parts_of_the_users_compose_in_parallel(ledger: Ledger) -> None:
    for part in (NORTH, SOUTH):
        release(ledger, f"{part}-1", users=part)
        release(ledger, f"{part}-2", users=part)
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "north-3", users=NORTH)
    with pytest.raises(BudgetExceeded):  # all users would include those of north
        reserve(ledger, "all")
    summary = summarise(ledger, "views")
    assert (summary.spent_epsilon, summary.parts) == ("1", {NORTH: "1", SOUTH: "1"})
    assert any("disjoint" in line for line in summary.explain())
    assert reserve(ledger, "west-1", users=WEST).status == "new"


def test_what_concerns_all_users_counts_in_every_part(ledger: Ledger) -> None:
    release(ledger, "all-1")
    release(ledger, "north-1", users=NORTH)
    with pytest.raises(BudgetExceeded, match="nothing of this kind"):
        reserve(ledger, "north-2", users=NORTH)
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "all-2")
    assert summarise(ledger, "views").spent_epsilon == "1"


def test_without_a_declared_part_everything_adds_up(ledger: Ledger) -> None:
    """The broken twin of parallel composition: the same releases without the declaration must not fit."""
    release(ledger, "north-1")
    release(ledger, "south-1")
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "west-1")


def test_only_parts_that_are_applied_are_parts(ledger: Ledger) -> None:
    """Twelve releases under twelve labels cost one before; now a label is refused, and parts must fit together."""
    with pytest.raises(ParameterError, match=r"'north'.*modulo: 12, part: 3"):
        reserve(ledger, users="north")
    reserve(ledger, users=NORTH)
    with pytest.raises(LedgerError, match="part 0 of 4, which shares users with part 0 of 2"):
        reserve(ledger, "tuesday", users="part 0 of 2")
    with pytest.raises(ParameterError, match="part must be from 0 to 3"):
        reserve(ledger, "tuesday", users="part 4 of 4")


@pytest.mark.parametrize("by", ["id | lower", "name", None])
def test_parts_by_another_user_expression_are_refused(ledger: Ledger, by: str | None) -> None:
    """The hashes of `name` and of `name | lower` put one person into two parts."""
    reserve(ledger, "north-1", users=NORTH, parameters={"input.user": "id"}, events=[Event("alp", "0.1")])
    other = {} if by is None else {"input.user": by}
    wanted = (
        "needs 'input.user' among its parameters"
        if by is None
        else (
            r"part 0 of 4 by input.user: id, which may share users with part 1 of 4 by input.user: "
            + re.escape(by)
        )
    )
    with pytest.raises((LedgerError, ParameterError), match=wanted):
        reserve(ledger, "south-1", users=SOUTH, parameters=other)
    assert len(ledger.history("views")) == 1
    reserve(ledger, "south-1", users=SOUTH, parameters={"input.user": "id"})


def test_parts_of_an_older_ledger_that_do_not_say_by_what_are_refused(ledger: Ledger) -> None:
    """Rows of the library, which could leave the expression out."""
    reservation = reserve(ledger, "north-1", users=NORTH, events=[Event("alp", "0.1")])
    with ledger.store.write() as connection:
        bare = releases.update().where(releases.c.id == reservation.release.id)
        connection.execute(bare.values(parameters="{}"))
        write_macs(connection, Macs.configured(), bytes(32))
    with ledger.store.read() as connection:
        account = ledger.chain.read(connection, "views")
        ledger.anchor.append(account.entry(account.links[-1]), anew=True)
    with pytest.raises(LedgerError, match=r"by input\.user: not recorded"):
        reserve(ledger, "south-1", users=SOUTH)


def test_an_abandoned_part_that_was_not_charged_binds_nobody(ledger: Ledger) -> None:
    ledger.cancel(reserve(ledger, "north-1", users=NORTH))
    reserve(ledger, "south-1", users=SOUTH, parameters={"input.user": "name"})


@pytest.mark.parametrize(
    "name",
    [
        "a\nb",
        "\x1b[31mred",
        "a\tb",
        "\u202egnp.exe",
        "a\u2066b",
        "zero\u200bwidth",
        "\x7f",
        " ",
        "",
        "x" * 201,
    ],
)
def test_names_that_cannot_be_printed_are_refused_where_they_are_made(ledger: Ledger, name: str) -> None:
    with pytest.raises(ParameterError, match="printable characters, got") as refused:
        ledger.add_dataset(name, Budget(1))
    assert str(refused.value).isprintable()
    with pytest.raises(ParameterError, match="release must be 1 to 200 printable"):
        reserve(ledger, name)
    with pytest.raises(ParameterError, match="dataset must be 1 to 200 printable"):
        reserve(ledger, dataset=name)
    with pytest.raises(LedgerError) as unknown:
        ledger.history(name)
    assert str(unknown.value).isprintable()


@pytest.mark.parametrize("relation", ["record", "secret bit"])
def test_a_second_privacy_unit_is_refused(ledger: Ledger, relation: str) -> None:
    """A person with one record lost ε = 2 under a budget of 1: all of it for users, and all of it for records."""
    other = [Event("laplace", "0.4", relation=relation)]
    ledger.cancel(reserve(ledger, "given back", events=other))  # binds nobody
    release(ledger, "users", events=[Event("alp", "0.4")])
    said = rf"privacy unit is one user, and that of this release is one {relation}; .*nothing was charged"
    for ask in (ledger.preflight, lambda request: ledger.reserve(request, Owner.this())):
        with pytest.raises(LedgerError, match=said) as refused:
            ask(Request("views", "other", other))
        assert "\n" not in str(refused.value)
    with pytest.raises(ParameterError, match=rf"one relation, got {relation} and user"):
        Request("views", "both", [*HALF, *other])
    assert [row.name for row in ledger.history("views") if row.charged] == ["users"]
    assert summarise(ledger, "views").left_epsilon == "0.6"

    ledger.add_dataset("rows", Budget(1))
    release(ledger, "first", events=other, dataset="rows")
    with pytest.raises(
        LedgerError, match=rf"privacy unit is one {relation}, and that of this release is one user"
    ):
        reserve(ledger, "second", dataset="rows")
    with pytest.raises(BudgetExceeded, match=r"changed|removed"):
        reserve(ledger, "second", events=[Event("laplace", "0.7", relation=relation)], dataset="rows")
    release(ledger, "second", events=other, dataset="rows")
    summary = summarise(ledger, "rows")
    assert (summary.relation, summary.spent_epsilon) == (relation, "0.8")
    assert any("several records" in line for line in summary.explain())


def test_a_key_for_questions_as_they_come_is_handed_out_once(ledger: Ledger) -> None:
    first = reserve(ledger, resumable=False)
    ledger.release_lease(first)
    again = reserve(ledger, resumable=False)  # nothing was drawn: it can be taken up
    ledger.start(again)
    with pytest.raises(LedgerError, match=r"begun before.*average its noise away.*another id"):
        ledger.start(again)
    ledger.release_lease(again)
    with pytest.raises(LedgerError, match="begun before"):
        ledger.start(reserve(ledger, resumable=False))


def test_two_releases_never_have_one_target(ledger: Ledger) -> None:
    release(ledger, "monday", target="out/a", events=[Event("alp", "0.1")])
    for dataset in ("views", "other"):
        ledger.add_dataset("other", Budget(1))
        with pytest.raises(
            LedgerError, match=r"out/a is that of release monday of views.*nothing was charged"
        ):
            reserve(ledger, "tuesday", target="out/a", dataset=dataset)
    taken = reserve(ledger, "tuesday", target="out/b", events=[Event("alp", "0.1")])
    with pytest.raises(LedgerError, match="which is reserved"):
        reserve(ledger, "wednesday", target="out/b")
    ledger.start(taken)
    ledger.release_lease(taken)
    with pytest.raises(LedgerError, match="out/a is that of"):
        reserve(ledger, "tuesday", target="out/a", events=[Event("alp", "0.1")])
    moved = reserve(ledger, "tuesday", target="out/c", events=[Event("alp", "0.1")])
    assert moved.status == "running"
    assert ledger.history("views")[1].target == "out/c"
    ledger.cancel(reserve(ledger, "thursday", target="out/d", events=[Event("alp", "0.1")]))
    reserve(ledger, "friday", target="out/d", events=[Event("alp", "0.1")])  # given back: nobody has it


def test_budgets_are_set_once(ledger: Ledger) -> None:
    assert not ledger.add_dataset("views", Budget(1))
    with pytest.raises(LedgerError, match="never changed") as problem:
        ledger.add_dataset("views", Budget(2))
    assert "data set views has a budget of ε = 1, δ = 0 (filter) since" in str(problem.value)
    with pytest.raises(LedgerError, match=r"no data set 'vies'.*it has views"):
        reserve(ledger, dataset="vies")
    with pytest.raises(ParameterError, match="events"):
        reserve(ledger, events=[])


def test_summary_is_cached_and_follows_every_change(ledger: Ledger) -> None:
    assert summarise(ledger, "views").more is None
    release(ledger, "monday")
    summary = summarise(ledger, "views")
    assert (summary.spent_epsilon, summary.left_epsilon, summary.more) == ("0.5", "0.5", 1)
    assert summary.kinds["alp"] == {"events": 1, "epsilon": "0.2", "delta": "0"}
    assert summarise(ledger, "views") == summary
    ledger.cancel(reserve(ledger, "tuesday"))
    assert summarise(ledger, "views").statuses == {"committed": 1, "abandoned": 1}
    reserve(ledger, "tuesday")
    assert summarise(ledger, "views").left_epsilon == "0"


def test_backup_is_a_ledger_without_keys(ledger: Ledger, sqlite_url: str) -> None:
    target = sqlite_url.replace("ledger.db", "copy.db")
    release(ledger, "monday")
    ledger.start(reserve(ledger, "tuesday"))
    assert backup(ledger, target) == {"datasets": 1, "releases": 2, "events": 4}
    with pytest.raises(LedgerError, match="exists already"):
        backup(ledger, target)
    with Ledger(target) as copy:
        assert [(r.name, r.status) for r in copy.history("views")] == [
            ("monday", "committed"),
            ("tuesday", "running"),
        ]
        assert summarise(copy, "views").left_epsilon == "0"
        with pytest.raises(LedgerError, match="its key is not here"):
            reserve(copy, "tuesday")
        assert copy.abandon("tuesday").charged


@pytest.mark.engine
def test_backup_moves_a_ledger_to_another_database(sqlite_url: str, postgres_url: str) -> None:
    with Ledger.create(sqlite_url) as small:
        small.add_dataset("views", Budget(1))
        release(small, "monday")
        assert backup(small, postgres_url)["events"] == 2
        with pytest.raises(LedgerError, match="not empty"):
            backup(small, postgres_url)
    with Ledger(postgres_url) as large:
        assert large.history("views")[0].digest == "d" * 64
        release(large, "tuesday")  # new ids do not collide with copied ones
        assert summarise(large, "views").left_epsilon == "0"


def test_a_charge_is_given_back_only_while_the_key_is_in_the_ledger(ledger: Ledger) -> None:
    unused = reserve(ledger, "tuesday")
    assert ledger.cancel(unused)
    assert ledger.spent("views").shared.total() == 0
    used = reserve(ledger, "wednesday")
    ledger.start(used)  # noise may exist from here on
    assert not ledger.cancel(used)
    assert ledger.spent("views").shared.total() == 2


def gaussian(rho: str = "1/5000") -> Event:
    return Event.concentrated(
        "gaussian", Fraction(1), Fraction(1, 10**9), rho=Fraction(rho), rho_delta=Fraction(0)
    )


def test_releases_that_state_rho_are_charged_by_it(url: str) -> None:
    """Old events of the same data set keep their charge; a ledger read again has all of it."""
    with Ledger.create(url) as ledger:
        ledger.add_dataset("views", Budget(3, "1e-6"))
        release(ledger, "old", events=[Event("gaussian", "0.1", "1e-9")])
        for number in range(5):
            release(ledger, f"new {number}", events=[gaussian()])
        assert summarise(ledger, "views").proof == "zcdp"
    with Ledger(url) as ledger:
        spent = ledger.spent("views").shared
        assert spent == {gaussian().cost: 5, Event("gaussian", "0.1", "1e-9").cost: 1}
        assert sum(cost.rho * n for cost, n in spent.items()) == 5 * Fraction(1, 5000) + Fraction(1, 200)
        found = ledger.find("views", "new 1")
        assert found is not None
        assert found.events == (gaussian(),)
        assert forecast(ledger, "views").count > 600
        assert forecast(ledger, "views", "old").count < 31


def test_recovery_charges_lost_rho(sqlite_url: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with Ledger.create(sqlite_url) as ledger:
        ledger.add_dataset("views", Budget(3, "1e-6"))
        release(ledger, "first", events=[gaussian()])
        backup(ledger, str(copy))
        for number in range(5):
            release(ledger, f"lost {number}", events=[gaussian()])
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    path.write_bytes(copy.read_bytes())
    with Ledger(sqlite_url) as ledger:
        charged = recover(ledger, "views")
        assert charged is not None
        [event] = charged.events
        assert (event.kind, event.version, event.epsilon) == ("restored", 2, 5)
        assert (event.cost.rho, event.cost.rho_delta) == (5 * Fraction(1, 5000), 5 * Fraction(1, 10**9))
        release(ledger, "after", events=[gaussian()])
