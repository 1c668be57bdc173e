"""The ledger: reserve → start → prepare → commit, each one transaction.

    reserve   the budget is checked and charged, and a fresh release key is stored, before data is read
    start     the key is handed out: from here on, noise may exist, and the charge stays whatever happens
    prepare   the output is complete and its digest is recorded; nothing is visible yet
    commit    the output is visible; the key is erased

A release id is released once. `reserve` for an id that is under way gives the same reservation (with the same
key, without a second charge) to a run that asks for exactly the same; anything else is refused with the
difference named. While one run holds an id (a lease that it renews), a second one is refused.

Every sum is over rows whose seals were checked in the same transaction (`chain`), and nothing is reserved in
a ledger that is behind its witness.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import sqlalchemy as sa

from hushgram.accounting import RELATIONS, Budget, Event, Spending, fits, largest_scale, spending
from hushgram.accounting.composition import basic
from hushgram.errors import BudgetExceeded, LedgerError
from hushgram.exact.partition import UserPart
from hushgram.ledger import store
from hushgram.ledger.chain import Account
from hushgram.ledger.records import (
    PART_BY,
    Dataset,
    Release,
    Request,
    Reservation,
    Spent,
    check_name,
    spent_by_relation,
)
from hushgram.ledger.rows import (
    closed,
    context,
    dataset_of,
    event_rows,
    history_of,
    label,
    refundable,
    refuse_if_alive,
    refuse_if_changed,
    refuse_to_start,
    refuse_without_key,
    seen_of,
    values_of,
)
from hushgram.ledger.seals import Row, Sealer
from hushgram.ledger.secrets import fresh, open_pepper, unwrap, wrap
from hushgram.ledger.tables import datasets, now, releases
from hushgram.ledger.witness import Witness
from hushgram.noise.entropy import InteractiveKey, ReleaseKey
from hushgram.numbers import show
from hushgram.processes import Owner

__all__ = ["LEASE_SECONDS", "Ledger", "allowed", "check_part", "exceeded"]


LEASE_SECONDS = 120.0
"""How long a run that cannot be seen from here (on another machine) is believed to live without a sign."""

_OPEN = ("reserved", "running", "prepared")


class Ledger:
    """The budgets of some data sets, across processes and machines. Use as a context manager, or `close`."""

    def __init__(self, url: str | None = None, sealer: Sealer | None = None) -> None:
        self.store = store.Store(store.ledger_url(url), sealer)
        self.where = self.store.where
        self._chain = self.store.chain
        self.witness = Witness(self.store.path, self.store.sealer)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the connections back."""
        self.store.close()

    @classmethod
    def create(cls, url: str | None = None) -> Ledger:
        """Opens the ledger at `url`, making an empty one where there is none."""
        store.create(store.ledger_url(url))
        return cls(url)

    # Data sets

    def add_dataset(self, name: str, budget: Budget) -> bool:
        """Sets the budget of a data set, once and for all; False where it is there with the same one."""
        check_name("a data set's name", name)
        with self.store.write() as connection:
            self._lock_datasets(connection)
            found = [row for row in self._chain.datasets(connection) if row["name"] == name]
            if not found:
                row = {"name": name, "epsilon": str(budget.epsilon), "delta": str(budget.delta)}
                self._chain.add(connection, {**row, "composition": budget.rule, "created": now()})
                return True
        known = dataset_of(found[0])
        if known.budget != budget:
            raise LedgerError(
                f"data set {name} has {known.budget!r} since {known.created}; a budget is never changed, "
                "use another name for other data"
            )
        return False

    def datasets(self) -> list[Dataset]:
        """All data sets by name."""
        with self.store.read() as connection:
            return [dataset_of(row) for row in self._chain.datasets(connection)]

    def dataset(self, name: str) -> Dataset:
        """One data set; an error that names the others where there is none."""
        with self.store.read() as connection:
            return dataset_of(self.account(connection, name).dataset)

    def pepper(self) -> bytes:
        """The secret under which inputs are fingerprinted; a restored copy, which has none, gets a new one."""
        with self.store.read() as connection:
            stored = self._chain.pepper(connection)
        if stored is None:
            with self.store.write() as connection:
                self._lock_datasets(connection)
                stored = self._chain.pepper(connection) or self._chain.new_pepper(connection)
        return open_pepper(stored)

    # A release, from reservation to commit

    def check(self, request: Request) -> None:
        """Refuses what would not fit now. Takes no lock and charges nothing: for an early answer."""
        with self.store.read() as connection:
            account = self.account(connection, request.dataset)
        self._check(account, request)

    def look(self, request: Request) -> Release | None:
        """What `reserve` would find under this id, refusing what it would refuse; takes no lock, charges nothing."""
        with self.store.read() as connection:
            account = self.account(connection, request.dataset)
            row = account.latest(request.release)
            self._refuse_taken_target(connection, request)
            if row is not None and row["charged"]:
                self._refuse_if_behind(account)
                return self._found(connection, account, row, request)
        self._check(account, request)
        return None

    def reserve(self, request: Request, owner: Owner) -> Reservation:
        """Charges the request and stores a fresh key, or takes up what the id has under way.

        Raises BudgetExceeded where it does not fit, and LedgerError where the id was used for something else,
        was abandoned, or is being run by somebody else. Nothing is recorded in these cases.
        """
        with self.store.read() as connection:
            account = self.account(connection, request.dataset)
        row = account.latest(request.release)
        if row is None or not row["charged"]:
            self._check(account, request)  # slow sums before the lock is taken
        with self.store.write() as connection:
            account = self.account(connection, request.dataset, lock=True)
            self._refuse_if_behind(account)
            self._refuse_taken_target(connection, request)
            row = account.latest(request.release)
            if row is not None and row["charged"]:
                row = self._locked(connection, row["id"]) or row
                return self._take_up(connection, account, row, request, owner)
            dataset, spent = dataset_of(account.dataset), spent_by_relation(account.charges())
            check_part(account, request)
            if fits := allowed(dataset.budget, spent, request.events, request.users):
                attempt = 1 if row is None else row["attempt"] + 1
                reservation, link = self._insert(connection, account, request, owner, attempt)
        if not fits:  # what would fit takes a while
            raise exceeded(dataset, spent, request.events, request.users)
        self.witness.note(seen_of(account, link, request.events))
        return reservation

    def start(self, reservation: Reservation) -> ReleaseKey | InteractiveKey:
        """Hands out the key. From here on noise may exist: the charge stays, whatever happens."""
        with self.store.write() as connection:
            row = self._mine(connection, reservation, _OPEN)
            refuse_to_start(row)
            secret = unwrap(row["secret"], context(row["dataset"], row["name"], row["attempt"]))
            if row["status"] == "reserved":
                self._chain.update(connection, row, status="running")
        self.witness.note_start(row["link"])
        return ReleaseKey(secret) if row["resumable"] else InteractiveKey(secret)

    def renew(self, reservation: Reservation) -> None:
        """Says that the run is alive."""
        with self.store.write() as connection:
            row = self._mine(connection, reservation, _OPEN)
            self._chain.update(connection, row, lease=self.store.clock(connection) + LEASE_SECONDS)

    def prepare(self, reservation: Reservation, digest: str) -> None:
        """Records the digest of the complete output, before it becomes visible.

        A second run of the same id must come to the same bytes: same key, same data, same parameters.
        """
        with self.store.write() as connection:
            row = self._mine(connection, reservation, ("running", "prepared"))
            if row["digest"] is not None and row["digest"] != digest:
                raise LedgerError(
                    f"{label(row)}: this run made other bytes ({digest[:16]}…) than the one before it "
                    f"({row['digest'][:16]}…): its input or the program has changed; nothing was published. "
                    "`hushgram ledger abandon` it and release under another id"
                )
            self._chain.update(connection, row, status="prepared", digest=digest)

    def commit(self, reservation: Reservation) -> None:
        """The output is visible: closes the release and erases its key."""
        with self.store.write() as connection:
            row = self._mine(connection, reservation, ("prepared",))
            self._chain.update(connection, row, status="committed", **closed())

    def cancel(self, reservation: Reservation) -> bool:
        """Gives back a reservation whose key was never handed out; False where it was."""
        with self.store.write() as connection:
            self.account(connection, reservation.release.dataset, lock=True)
            row = self._mine(connection, reservation, _OPEN)
            if not refundable(row, self.witness):
                return False
            self._chain.update(connection, row, status="abandoned", charged=0, **closed())
        return True

    def let_go(self, reservation: Reservation) -> None:
        """Ends the lease of a run that failed, so that the next one need not wait."""
        with self.store.write() as connection:
            row = self._mine(connection, reservation, _OPEN)
            self._chain.update(connection, row, owner=None, lease=None)

    def abandon(self, name: str, dataset: str | None = None) -> Release:
        """Gives a release up for good. The charge stays unless it is certain that its key was never handed out."""
        with self.store.write() as connection:
            where = self._holder(connection, name, dataset)
            account = self.account(connection, where, lock=True)
            row = account.latest(name)
            row = None if row is None else self._locked(connection, row["id"])
            assert row is not None, "it was found before the lock, and rows are never removed"
            if row["status"] in ("committed", "abandoned"):
                raise LedgerError(
                    f"{label(row)} is {row['status']} since {row['finished']}; nothing to abandon"
                )
            refuse_if_alive(row, self.store.clock(connection))
            charged = int(not refundable(row, self.witness))
            after = self._chain.update(connection, row, status="abandoned", charged=charged, **closed())
            return Release.from_row(after, account.events.get(row["id"], ()))

    # Reading

    def find(self, dataset: str, release: str) -> Release | None:
        """The latest attempt at a release id."""
        with self.store.read() as connection:
            account = self.account(connection, dataset)
        row = account.latest(release)
        return None if row is None else Release.from_row(row, account.events.get(row["id"], ()))

    def history(self, dataset: str) -> list[Release]:
        """Every attempt at every release, oldest first."""
        with self.store.read() as connection:
            return history_of(self.account(connection, dataset))

    def spent(self, dataset: str, relation: str = "user") -> Spent:
        """All charged spending for one relation."""
        with self.store.read() as connection:
            return spent_by_relation(self.account(connection, dataset).charges())[relation]

    def behind(self, account: Account) -> str | None:
        """What is wrong where this ledger is older than its witness, else None."""
        name, held, seen = account.dataset["name"], len(account.releases), account.seen
        if seen is None or not seen.is_ahead_of(account.links):
            return None
        return (
            f"ledger {self.where} is older than what was released: {self.witness.path} saw {seen.count} "
            f"reservations of {name}, this ledger holds {held}"
            + (" of another history" if held >= seen.count else "")
            + f"; restore the newest backup, then `hushgram ledger recover {name}` charges what is missing"
        )

    # Inside a transaction

    def _lock_datasets(self, connection: sa.Connection) -> None:
        if not self.store.is_sqlite:
            connection.exec_driver_sql("LOCK TABLE datasets IN SHARE ROW EXCLUSIVE MODE")

    def account(self, connection: sa.Connection, name: str, lock: bool = False) -> Account:
        """All rows of a data set, verified; `lock` before a change of its sum."""
        if lock:
            wanted = sa.select(datasets.c.name).where(datasets.c.name == name).with_for_update()
            connection.execute(wanted).all()
        seen = self.witness.last(name)  # before the rows: what it saw is committed, and they must have it
        found = self._chain.read(connection, name)
        if found is None:
            others = [str(row["name"]) for row in self._chain.datasets(connection)]
            known = f"it has {', '.join(others[:10])}" if others else "it has none"
            raise LedgerError(
                f"ledger {self.where} has no data set {name!r} ({known}); "
                "hushgram ledger init --dataset NAME --epsilon … --delta …"
            )
        return replace(found, seen=seen)

    def _holder(self, connection: sa.Connection, name: str, dataset: str | None) -> str:
        """The data set that has a release of this name."""
        every = (
            [str(row["name"]) for row in self._chain.datasets(connection)] if dataset is None else [dataset]
        )
        found = [one for one in every if self.account(connection, one).latest(name) is not None]
        if not found:
            raise LedgerError(f"ledger {self.where} has no release {name!r}; see `hushgram ledger history`")
        if len(found) > 1:
            raise LedgerError(f"release {name!r} exists in data sets {', '.join(found)}; say --dataset")
        return found[0]

    def _insert(
        self, connection: sa.Connection, account: Account, request: Request, owner: Owner, attempt: int
    ) -> tuple[Reservation, str]:
        spends = event_rows(request.events)
        values = {
            **values_of(request, attempt),
            "status": "reserved",
            "secret": wrap(fresh(), context(request.dataset, request.release, attempt)),
            "owner": owner.write(),
            "lease": self.store.clock(connection) + LEASE_SECONDS,
        }
        row = self._chain.append(connection, account, values, spends)
        return Reservation(Release.from_row(row, spends), "new", owner.token), row["link"]

    def _take_up(
        self, connection: sa.Connection, account: Account, row: Row, request: Request, owner: Owner
    ) -> Reservation:
        """The id was used before: the same again goes on from there, anything else is refused."""
        found = self._found(connection, account, row, request)
        if found.status != "committed":
            lease = self.store.clock(connection) + LEASE_SECONDS
            self._chain.update(connection, row, owner=owner.write(), lease=lease, target=request.target)
        return Reservation(found, found.status, owner.token)

    def _found(self, connection: sa.Connection, account: Account, row: Row, request: Request) -> Release:
        """The release under an id that was used before, if this request may go on with it."""
        found = Release.from_row(row, account.events.get(row["id"], ()))
        if found.status == "abandoned":
            raise LedgerError(
                f"{label(row)} was abandoned at {found.finished}, and its charge kept; use another id"
            )
        if found.status in ("reserved", "running"):  # what is prepared may be visible, and is then committed
            refuse_without_key(row)
        refuse_if_changed(found, request)
        if found.status != "committed":
            refuse_if_alive(row, self.store.clock(connection))
        return found

    def _refuse_taken_target(self, connection: sa.Connection, request: Request) -> None:
        """Two releases cannot have one output: the second would be charged for nothing."""
        same = sa.select(releases).where(
            releases.c.target == request.target,
            releases.c.status.in_((*_OPEN, "committed")),
            sa.or_(releases.c.dataset != request.dataset, releases.c.name != request.release),
        )
        taken = connection.execute(same.limit(1)).mappings().one_or_none() if request.target else None
        if taken is not None:
            done = taken["status"] == "committed"
            remedy = "" if done else f", or finish that one or `hushgram ledger abandon {taken['name']}`"
            raise LedgerError(
                f"output {request.target} is that of {label(dict(taken))}, which is {taken['status']}; choose another "
                f"output.path{remedy} (nothing was charged)"
            )

    def _check(self, account: Account, wanted: Request) -> None:
        self._refuse_if_behind(account)
        check_part(account, wanted)
        found, spent = dataset_of(account.dataset), spent_by_relation(account.charges())
        if not allowed(found.budget, spent, wanted.events, wanted.users):
            raise exceeded(found, spent, wanted.events, wanted.users)

    def _refuse_if_behind(self, account: Account) -> None:
        if problem := self.behind(account):
            raise LedgerError(problem)

    def _mine(self, connection: sa.Connection, reservation: Reservation, allowed: Sequence[str]) -> Row:
        row = self._locked(connection, reservation.release.id)
        holder = Owner.read(row["owner"]).token if row is not None and row["owner"] else ""
        if row is None or row["status"] not in allowed or holder != reservation.token:
            state, lost = "gone" if row is None else row["status"], reservation.release
            raise LedgerError(
                f"release {lost.name} of {lost.dataset} was taken over by another run while this one was "
                f"silent (it is {state} now); this run stops and publishes nothing"
            )
        return row

    def _locked(self, connection: sa.Connection, key: int) -> Row | None:
        """One release, which nobody else changes until this transaction ends."""
        query = sa.select(releases).where(releases.c.id == key).with_for_update()
        found = connection.execute(query).mappings().one_or_none()
        if found is None:
            return None
        row = {str(name): value for name, value in found.items()}
        self._chain.check(row)
        return row


def check_part(account: Account, request: Request) -> None:
    """Refuses a part of another modulo, or by another `input.user`, than those before it: they share users."""
    if request.users is None:
        return
    dataset, by = request.dataset, request.parameters[PART_BY]
    wanted = UserPart.parse(dataset, request.users)
    for row in account.releases:
        if not row["charged"] or row["users"] is None:
            continue
        before, before_by = UserPart.parse(dataset, row["users"]), json.loads(row["parameters"]).get(PART_BY)
        if before_by != by:
            raise LedgerError(
                f"data set {dataset} has releases on {before.name} by input.user: {before_by or 'not recorded'}, which "
                f"may share users with {wanted.name} by input.user: {by}; write input.user as before, or leave "
                "user_partition out"
            )
        if before.modulo != wanted.modulo:
            raise LedgerError(
                f"data set {dataset} has releases on {before.name}, which shares users with {wanted.name}; "
                f"write user_partition: {{modulo: {before.modulo}, …}}, or leave it out"
            )


def allowed(budget: Budget, spent: Mapping[str, Spent], wanted: Sequence[Event], users: str | None) -> bool:
    """Whether every user whom the events touch stays within the budget, for each relation by itself."""
    return all(
        fits(world, budget)
        for relation, events in _by_relation(wanted)
        for world in spent[relation].with_events(spending(events), users).touched_by(users).values()
    )


def exceeded(
    dataset: Dataset, spent: Mapping[str, Spent], wanted: Sequence[Event], users: str | None
) -> BudgetExceeded:
    """The refusal, with what would fit instead."""
    budget = dataset.budget
    relation, events = next(
        (relation, events)
        for relation, events in _by_relation(wanted)
        if not allowed(budget, spent, events, users)
    )
    worlds = list(spent[relation].touched_by(users).values())
    epsilon, delta = basic(spending(events))
    need = f"ε = {show(epsilon)}" + (f", δ = {show(delta)}" if delta else "")
    about = "" if relation == "user" else f" (for {RELATIONS[relation]})"
    have = f"ε = {show(budget.epsilon)}, δ = {show(budget.delta)}"
    return BudgetExceeded(
        f"data set {dataset.name}: the release needs {need}{about}, and with what is spent that exceeds the budget "
        f"of {have}; {_remedy(budget, worlds, events)}. No data was read, nothing was charged. "
        "See `hushgram ledger show`"
    )


def _remedy(budget: Budget, worlds: Sequence[Spending], events: Sequence[Event]) -> str:
    epsilon, delta = basic(spending(events))
    if share := min(largest_scale(world, events, budget) for world in worlds):
        return f"the same release at ε = {show(epsilon * share)} would fit"
    if delta > budget.delta - budget.composition_delta - max(basic(world)[1] for world in worlds):
        kept = f" (of the budget's δ, {show(budget.composition_delta)} is kept for composition)"
        more = kept if budget.composition_delta else ""
        return f"its δ is too large for what is left; a release with δ = 0 may fit{more}"
    return "nothing of this kind fits any more"


def _by_relation(wanted: Sequence[Event]) -> Iterator[tuple[str, list[Event]]]:
    for relation in RELATIONS:
        if events := [event for event in wanted if event.relation == relation]:
            yield relation, events
