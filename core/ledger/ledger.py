"""The ledger: reserve → start → prepare → commit, each one transaction.

    reserve   check the budget, charge it and store a fresh release key, before data is read
    start     hand out the key: from here on noise may exist, and the charge stays whatever happens
    prepare   record the digest of the complete output; nothing is visible yet
    commit    the output is visible; erase the key

A release id is released once. `reserve` for an id in progress returns the same reservation (with the same key,
without a second charge) to a run that requests exactly the same; anything else is refused with the difference named.
While one run holds an id (a lease that it renews), a second one is refused.

Every sum is over rows whose MACs were checked in the same transaction (`hash_chain`), and nothing is reserved in a
ledger that is behind its rollback anchor.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import sqlalchemy as sa

from hushgram.accounting import RELATIONS, Budget, Event, Spending, fits, largest_scale, spending
from hushgram.accounting.composition import basic
from hushgram.contributions.users import UserPart
from hushgram.errors import BudgetExceeded, LedgerError
from hushgram.ledger import store
from hushgram.ledger.hash_chain import Account, HashChain, RollbackAnchor, write_macs
from hushgram.ledger.keys import PEPPER, Macs, Row, new_secret, unwrap, wrap
from hushgram.ledger.records import (
    PART_BY,
    Dataset,
    ReleaseRecord,
    Request,
    Reservation,
    Spent,
    check_name,
    refuse_if_changed,
)
from hushgram.ledger.store import datasets, now, releases
from hushgram.noise.entropy import InteractiveKey, ReleaseKey
from hushgram.numbers import show
from hushgram.processes import Owner

__all__ = ["LEASE_SECONDS", "Ledger", "RunRefused", "renew_until"]


LEASE_SECONDS = 120.0
"""How long a run on another machine is believed to be alive without renewing its lease."""

_OPEN = ("reserved", "running", "prepared")


class RunRefused(LedgerError):
    """A run may not publish: another one has taken its release over, or has made other bytes before."""


def renew_until(stop: threading.Event, renew: Callable[[], None]) -> RunRefused | None:
    """Renew a lease four times in its length, until `stop` is set; return why it cannot be renewed any more."""
    while not stop.wait(LEASE_SECONDS / 4):
        try:
            renew()
        except RunRefused as problem:
            return problem
        except LedgerError:
            pass  # may pass before the lease runs out
    return None


class Ledger:
    """The budgets of data sets, shared by processes and machines. Use it as a context manager, or call `close`.

    Args:
        url: the ledger; by default HUSHGRAM_LEDGER, else a file in the working directory.
        macs: how rows are authenticated; by default under the wrapping key of the environment, if any.
    """

    def __init__(self, url: str | None = None, macs: Macs | None = None) -> None:
        self.store = store.Store(store.ledger_url(url))
        self.where = self.store.where
        self.macs = Macs.configured() if macs is None else macs
        self.anchor = RollbackAnchor(self.store.path, self.macs)
        self.chain = HashChain(self.store, self.macs, self.anchor)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.store.close()

    @classmethod
    def create(cls, url: str | None = None) -> Ledger:
        """Open the ledger at `url`; create an empty one if there is none."""
        store.create(
            store.ledger_url(url),
            lambda connection: write_macs(connection, Macs.configured(), new_secret()),
        )
        return cls(url)

    # Data sets

    def add_dataset(self, name: str, budget: Budget) -> bool:
        """Set the budget of a data set, which never changes afterwards.

        Returns:
            False if the data set exists with the same budget.

        Raises:
            LedgerError: it exists with another budget.
        """
        check_name("a data set's name", name)
        with self.store.write() as connection:
            self.store.lock_datasets(connection)
            found = [row for row in self.chain.datasets(connection) if row["name"] == name]
            if not found:
                row = {"name": name, "epsilon": str(budget.epsilon), "delta": str(budget.delta)}
                self.chain.add(connection, {**row, "composition": budget.rule, "created": now()})
                return True
        known = Dataset.from_row(found[0])
        if known.budget != budget:
            raise LedgerError(
                f"data set {name} has a budget of ε = {show(known.budget.epsilon)}, δ = {show(known.budget.delta)}"
                f" ({known.budget.rule}) since {known.created}; a budget is never changed, "
                "use another name for other data"
            )
        return False

    def datasets(self) -> list[Dataset]:
        """Return all data sets, by name."""
        with self.store.read() as connection:
            return [Dataset.from_row(row) for row in self.chain.datasets(connection)]

    def pepper(self) -> bytes:
        """Return the secret under which inputs are fingerprinted; a restored copy has none and gets a new one."""
        with self.store.read() as connection:
            stored = self.chain.pepper(connection)
        if stored is None:
            with self.store.write() as connection:
                self.store.lock_datasets(connection)
                stored = self.chain.pepper(connection) or self.chain.new_pepper(connection)
        return unwrap(stored, PEPPER)

    # A release, from reservation to commit

    def preflight(self, request: Request) -> ReleaseRecord | None:
        """Return what `reserve` would find under this id, and raise what it would raise.

        Takes no lock and charges nothing.
        """
        with self.store.read() as connection:
            account = self.chain.read(connection, request.dataset)
            found = self._examine(connection, account, request, account.latest(request.release))
        spent = account.spent()
        if found is None and not _allowed(account.dataset.budget, spent, request.events, request.users):
            raise _exceeded(account.dataset, spent, request.events, request.users)
        return found

    def reserve(self, request: Request, owner: Owner) -> Reservation:
        """Charge the request and store a fresh key, or resume what the id has in progress.

        Args:
            request: what the run is about to release.
            owner: the process that runs it.

        Returns:
            The reservation, which the next steps take.

        Raises:
            BudgetExceeded: the request does not fit the budget.
            LedgerError: the id was used for something else, was abandoned, or is being run by another process.
                Nothing is recorded in either case.
        """
        self.preflight(request)  # slow sums before the lock is taken
        with self.store.write() as connection:
            account = self.locked_account(connection, request.dataset)
            row = account.latest(request.release)
            if row is not None:  # a run that renews or commits it locks the release only
                row = self.chain.locked(connection, row["id"])
            found = self._examine(connection, account, request, row)
            if found is not None and row is not None:
                if found.status != "committed":
                    lease = self.store.clock(connection) + LEASE_SECONDS
                    job = Owner.read(row["owner"]).job if row["owner"] else ""
                    holder = replace(owner, job=job).write()
                    self.chain.update(connection, row, owner=holder, lease=lease, target=request.target)
                return Reservation(found, found.status, owner.token)
            spent = account.spent()
            if allowed := _allowed(account.dataset.budget, spent, request.events, request.users):
                attempt = 1 if row is None else row["attempt"] + 1
                reservation, link = self._insert(connection, account, request, owner, attempt)
        if not allowed:  # finding out what would fit takes a while
            raise _exceeded(account.dataset, spent, request.events, request.users)
        self.anchor.append(account.entry(link, request.events))
        return reservation

    def start(self, reservation: Reservation) -> ReleaseKey | InteractiveKey:
        """Hand out the key. From here on noise may exist, and the charge stays whatever happens."""
        with self.store.write() as connection:
            account = self.locked_account(connection, reservation.release.dataset)
            row = self._mine(connection, reservation, _OPEN)
            _refuse_without_key(row)
            if row["status"] != "reserved":
                _refuse_interactive(row)
            secret = unwrap(row["secret"], _context(row["dataset"], row["name"], row["attempt"]))
            if row["status"] == "reserved":
                self.chain.settle(connection, account, row, status="running")
        self.anchor.append_start(row["link"])
        return ReleaseKey(secret) if row["resumable"] else InteractiveKey(secret)

    def renew(self, reservation: Reservation, job: str | None = None) -> None:
        """Renew the lease of a run that is alive; with `job`, record its job on an engine (`Owner.job`)."""
        with self.store.write() as connection:
            row = self._mine(connection, reservation, _OPEN)
            owner = row["owner"] if job is None else replace(Owner.read(row["owner"]), job=job).write()
            lease = self.store.clock(connection) + LEASE_SECONDS
            self.chain.update(connection, row, lease=lease, owner=owner)

    def prepare(self, reservation: Reservation, digest: str) -> None:
        """Record the digest of the complete output before it becomes visible.

        A second run of the same id must write the same bytes: same key, same data, same parameters.
        """
        with self.store.write() as connection:
            row = self._mine(connection, reservation, ("running", "prepared"))
            if row["digest"] is not None and row["digest"] != digest:
                raise RunRefused(
                    f"{_label(row)}: this run made other bytes ({digest[:16]}…) than the one before it "
                    f"({row['digest'][:16]}…): its input or the program has changed; nothing was published. "
                    "`hushgram ledger abandon` it and release under another id"
                )
            self.chain.update(connection, row, status="prepared", digest=digest)

    def commit(self, reservation: Reservation) -> None:
        """Close a release whose output is visible, and erase its key."""
        with self.store.write() as connection:
            row = self._mine(connection, reservation, ("prepared",))
            self.chain.update(connection, row, status="committed", **_closed())

    def cancel(self, reservation: Reservation) -> bool:
        """Refund a reservation whose key was never handed out; return False if it was."""
        with self.store.write() as connection:
            account = self.locked_account(connection, reservation.release.dataset)
            row = self._mine(connection, reservation, _OPEN)
            if not self._refundable(row):
                return False
            self.chain.settle(connection, account, row, status="abandoned", charged=0, **_closed())
        return True

    def release_lease(self, reservation: Reservation) -> None:
        """End the lease of a run that failed, so that the next one need not wait; a job that may run stays known."""
        with self.store.write() as connection:
            row = self._mine(connection, reservation, _OPEN)
            owner = row["owner"] if Owner.read(row["owner"]).job else None
            self.chain.update(connection, row, owner=owner, lease=None)

    def abandon(self, name: str, dataset: str | None = None) -> ReleaseRecord:
        """Give up a release permanently. It is refunded only if its key was certainly never handed out.

        Args:
            name: the release id.
            dataset: needed if several data sets have a release of this id.

        Returns:
            The release as it is now.
        """
        with self.store.write() as connection:
            account = self.locked_account(connection, self._holder(connection, name, dataset))
            latest = account.latest(name)
            row = None if latest is None else self.chain.locked(connection, latest["id"])
            assert row is not None, "it was found before the lock, and rows are never removed"
            if row["status"] not in _OPEN:
                raise LedgerError(
                    f"{_label(row)} is {row['status']} since {row['finished']}; nothing to abandon"
                )
            self._refuse_if_alive(connection, row)
            charged = int(not self._refundable(row))
            ended = {"status": "abandoned", "charged": charged, **_closed()}
            after = self.chain.settle(connection, account, row, **ended)
            return account.record(after)

    # Reading

    def find(self, dataset: str, release: str) -> ReleaseRecord | None:
        """Return the latest attempt at a release id, or None."""
        with self.store.read() as connection:
            account = self.chain.read(connection, dataset)
        row = account.latest(release)
        return None if row is None else account.record(row)

    def history(self, dataset: str) -> list[ReleaseRecord]:
        """Return every attempt at every release, oldest first."""
        with self.store.read() as connection:
            return self.chain.read(connection, dataset).history()

    def spent(self, dataset: str) -> Spent:
        """Return all charged spending."""
        with self.store.read() as connection:
            return self.chain.read(connection, dataset).spent()

    def rollback_warning(self, account: Account) -> str | None:
        """Return what is wrong if this ledger is older than its rollback anchor, else None."""
        name, held, seen = account.dataset.name, len(account.releases), account.seen
        if seen is None or not account.is_behind():
            return None
        return (
            f"ledger {self.where} is older than what was released: {self.anchor.path} saw {seen.count} "
            f"reservations of {name}, this ledger holds {held}"
            + (" of another history" if held >= seen.count else "")
            + f"; restore the newest backup, then `hushgram ledger recover {name}` charges what is missing"
        )

    # Inside a transaction

    def locked_account(self, connection: sa.Connection, name: str) -> Account:
        """Lock a data set before its sum changes, and return all of its rows, verified."""
        wanted = sa.select(datasets.c.name).where(datasets.c.name == name).with_for_update()
        connection.execute(wanted).all()
        return self.chain.read(connection, name)

    def _holder(self, connection: sa.Connection, name: str, dataset: str | None) -> str:
        """Return the data set that has a release of this name."""
        known = [dataset] if dataset else [str(row["name"]) for row in self.chain.datasets(connection)]
        found = [one for one in known if self.chain.read(connection, one).latest(name) is not None]
        if not found:
            raise LedgerError(f"ledger {self.where} has no release {name!r}; see `hushgram ledger history`")
        if len(found) > 1:
            raise LedgerError(f"release {name!r} exists in data sets {', '.join(found)}; add --dataset")
        return found[0]

    def _insert(
        self, connection: sa.Connection, account: Account, request: Request, owner: Owner, attempt: int
    ) -> tuple[Reservation, str]:
        spends = request.event_rows()
        values = {
            **request.row(attempt),
            "status": "reserved",
            "secret": wrap(new_secret(), _context(request.dataset, request.release, attempt)),
            "owner": owner.write(),
            "lease": self.store.clock(connection) + LEASE_SECONDS,
        }
        row = self.chain.append(connection, account, values, spends)
        return Reservation(ReleaseRecord.from_row(row, spends), "new", owner.token), row["link"]

    def _examine(
        self, connection: sa.Connection, account: Account, request: Request, row: Row | None
    ) -> ReleaseRecord | None:
        """Return the release that `row` has in progress or finished, or None; raise unless this request may go on."""
        if problem := self.rollback_warning(account):
            raise LedgerError(problem)
        found = None if row is None or not row["charged"] else account.record(row)
        if found is None:
            _check_relation(account, request)
            _check_part(account, request)
        self._refuse_taken_target(connection, request)
        if found is None or row is None:
            return None
        if found.status == "abandoned":
            raise LedgerError(
                f"{found.label} was abandoned at {found.finished}, and its charge kept; use another id"
            )
        if found.status in ("reserved", "running"):  # a prepared one may be visible, and is then committed
            _refuse_without_key(row)
        refuse_if_changed(found, request)
        if found.status == "running":
            _refuse_interactive(row)
        if found.status != "committed":
            self._refuse_if_alive(connection, row)
        return found

    def _refuse_if_alive(self, connection: sa.Connection, row: Row) -> None:
        """Raise if the run that holds a release may still be at work."""
        if row["owner"] is None or row["lease"] is None:
            return
        holder, left = Owner.read(row["owner"]), row["lease"] - self.store.clock(connection)
        if left > 0 and not holder.is_dead():
            raise LedgerError(
                f"{_label(row)} is being run by {holder}; wait for it, or if that machine is lost, "
                f"try again in {left:.0f} s"
            )

    def _refuse_taken_target(self, connection: sa.Connection, request: Request) -> None:
        """Raise if another release has this output: the second one would be charged for nothing."""
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
                f"output {request.target} is that of {_label(dict(taken))}, which is {taken['status']}; choose another "
                f"output.path{remedy} (nothing was charged)"
            )

    def _refundable(self, row: Row) -> bool:
        """Return whether the key of this release was certainly never handed out.

        An old version of this row alone does not fit the head. An old copy of the ledger does not know what became of
        a reservation: a backup has no keys, and any other copy is older than the rollback anchor (if there is one),
        which records every key before it is handed out.
        """
        unused = row["status"] == "reserved" and row["secret"] is not None
        return unused and not self.anchor.has_start(row["link"])

    def _mine(self, connection: sa.Connection, reservation: Reservation, allowed: Sequence[str]) -> Row:
        """Return the row of a reservation, locked; raise if another run has taken it over."""
        row = self.chain.locked(connection, reservation.release.id)
        holder = Owner.read(row["owner"]).token if row is not None and row["owner"] else ""
        if row is None or row["status"] not in allowed or holder != reservation.token:
            state = "gone" if row is None else row["status"]
            raise RunRefused(
                f"{reservation.release.label} was taken over by another run while this one was "
                f"silent (it is {state} now); this run stops and publishes nothing"
            )
        return row


def _label(row: Row) -> str:
    return f"release {row['name']} of {row['dataset']}"


def _context(dataset: str, release: str, attempt: int) -> str:
    """Return what a wrapped key is bound to."""
    return f"release {release} of {dataset}, attempt {attempt}"


def _closed() -> dict[str, str | None]:
    """Return the columns of a release that has ended."""
    return {"secret": None, "owner": None, "lease": None, "finished": now()}


def _refuse_without_key(row: Row) -> None:
    """Raise for a release of a restored ledger: it may have been released since the copy was taken."""
    if row["secret"] is None:
        raise LedgerError(
            f"{_label(row)}: its key is not here (the ledger was restored from a backup, which holds no keys); "
            "`hushgram ledger abandon` it (its charge stays) and release under another id"
        )


def _refuse_interactive(row: Row) -> None:
    """Raise for an interactive release that was begun: its key is handed out once."""
    if not row["resumable"]:
        raise LedgerError(
            f"{_label(row)} answers interactive queries and was begun before: it is never run again, since under the "
            "same key other queries would average its noise away; `hushgram ledger abandon` it (its charge stays) and "
            "release under another id"
        )


def _check_part(account: Account, request: Request) -> None:
    """Raise for a part of another modulo, or by another `input.user`, than earlier parts: they share users."""
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


def _check_relation(account: Account, request: Request) -> None:
    """Raise for another privacy unit than that of the data set's releases: their losses have no common sum."""
    wanted = request.events[0].relation
    for before in account.relations:
        if before != wanted:
            raise LedgerError(
                f"data set {request.dataset} has releases whose privacy unit is one {before}, and that of this release "
                f"is one {wanted}; a budget covers one privacy unit, so keep it, or name another data set (whoever is "
                "in both loses both budgets); nothing was charged"
            )


def _allowed(budget: Budget, spent: Spent, wanted: Sequence[Event], users: str | None) -> bool:
    """Return whether every user whom the events affect stays within the budget."""
    totals = spent.with_events(spending(wanted), users).affected(users)
    return all(fits(total, budget) for total in totals.values())


def _exceeded(dataset: Dataset, spent: Spent, wanted: Sequence[Event], users: str | None) -> BudgetExceeded:
    """Return the error for a request that does not fit, with what would fit instead."""
    budget, relation = dataset.budget, wanted[0].relation
    epsilon, delta = basic(spending(wanted))
    need = f"ε = {show(epsilon)}" + (f", δ = {show(delta)}" if delta else "")
    about = "" if relation == "user" else f" (for {RELATIONS[relation]})"
    totals = list(spent.affected(users).values())
    return BudgetExceeded(
        f"data set {dataset.name}: the release needs {need}{about}, and with what is spent that exceeds the budget "
        f"of ε = {show(budget.epsilon)}, δ = {show(budget.delta)}; {_remedy(budget, totals, wanted)}. No data was "
        "read, nothing was charged. See `hushgram ledger show`"
    )


def _remedy(budget: Budget, totals: Sequence[Spending], events: Sequence[Event]) -> str:
    epsilon, delta = basic(spending(events))
    if share := min(largest_scale(total, events, budget) for total in totals):
        return f"the same release at ε = {show(epsilon * share)} would fit"
    if delta > budget.delta - budget.composition_delta - max(basic(total)[1] for total in totals):
        kept = f" (of the budget's δ, {show(budget.composition_delta)} is kept for composition)"
        more = kept if budget.composition_delta else ""
        return f"its δ is too large for what is left; a release with δ = 0 may fit{more}"
    return "nothing of this kind fits any more"
