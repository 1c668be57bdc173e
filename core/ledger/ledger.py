"""The ledger: reserve → start → prepare → commit, each one transaction.

    reserve   the budget is checked and charged, and a fresh release key is stored, before data is read
    start     the key is handed out: from here on, noise may exist, and the charge stays whatever happens
    prepare   the output is complete and its digest is recorded; nothing is visible yet
    commit    the output is visible; the key is erased

A release id is released once. `reserve` for an id that is under way gives the same reservation (with the same
key, without a second charge) to a run that asks for exactly the same; anything else is refused with the
difference named. While one run holds an id (a lease that it renews), a second one is refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import sqlalchemy as sa

from hushgram.accounting import Budget, Event, Spending
from hushgram.errors import LedgerError
from hushgram.ledger import limits, schema, store
from hushgram.ledger.records import Dataset, Release, Request, Reservation, Spent, differences
from hushgram.ledger.schema import datasets, events, releases
from hushgram.ledger.secrets import unwrap, wrap
from hushgram.noise.entropy import ReleaseKey
from hushgram.processes import Owner

__all__ = ["LEASE_SECONDS", "Ledger"]

LEASE_SECONDS = 120.0
"""How long a run that cannot be seen from here (on another machine) is believed to live without a sign."""

_OPEN = ("reserved", "running", "prepared")


class Ledger:
    """The budgets of some data sets, across processes and machines. Use as a context manager, or `close`."""

    def __init__(self, url: str | None = None) -> None:
        self.store = store.Store(store.ledger_url(url))
        self.where = self.store.where

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
        if not name.strip() or len(name) > 200:
            raise LedgerError(f"a data set's name must have 1 to 200 characters, got {name!r:.60}")
        with self.store.write() as connection:
            self._lock_all(connection)
            found = self._dataset(connection, name)
            if found is None:
                connection.execute(
                    datasets.insert().values(
                        name=name,
                        epsilon=str(budget.epsilon),
                        delta=str(budget.delta),
                        composition=budget.rule,
                        created=schema.now(),
                    )
                )
                return True
        if found.budget != budget:
            raise LedgerError(
                f"data set {name} has {found.budget!r} since {found.created}; a budget is never changed, "
                "use another name for other data"
            )
        return False

    def datasets(self) -> list[Dataset]:
        """All data sets by name."""
        with self.store.read() as connection:
            rows = connection.execute(sa.select(datasets).order_by(datasets.c.name)).all()
        return [_dataset(row) for row in rows]

    def dataset(self, name: str) -> Dataset:
        """One data set; an error that names the others where there is none."""
        with self.store.read() as connection:
            return self._need(connection, name)

    # A release, from reservation to commit

    def check(self, dataset: str, wanted: Sequence[Event], users: str | None = None) -> None:
        """Refuses what would not fit now. Takes no lock and charges nothing: for an early answer."""
        with self.store.read() as connection:
            found, spent = self._need(connection, dataset), self._spent(connection, dataset)
        if not limits.allowed(found.budget, spent, wanted, users):
            raise limits.exceeded(found, spent, wanted, users)

    def reserve(self, request: Request, owner: Owner) -> Reservation:
        """Charges the request and stores a fresh key, or takes up what the id has under way.

        Raises BudgetExceeded where it does not fit, and LedgerError where the id was used for something else,
        was abandoned, or is being run by somebody else. Nothing is recorded in these cases.
        """
        found = self.find(request.dataset, request.release)
        if found is None or not found.charged:
            self.check(request.dataset, request.events, request.users)  # slow sums before the lock is taken
        with self.store.write() as connection:
            dataset = self._need(connection, request.dataset, lock=True)
            row = self._latest(connection, request.dataset, request.release)
            if row is not None and row.charged:
                return self._take_up(connection, row, request, owner)
            spent = self._spent(connection, request.dataset)
            if limits.allowed(dataset.budget, spent, request.events, request.users):
                return self._insert(connection, request, owner, 1 if row is None else row.attempt + 1)
        raise limits.exceeded(dataset, spent, request.events, request.users)  # what would fit takes a while

    def start(self, reservation: Reservation) -> ReleaseKey:
        """Hands out the key. From here on noise may exist: the charge stays, whatever happens."""
        with self.store.write() as connection:
            row = self._mine(connection, reservation, _OPEN)
            if row.secret is None:
                raise LedgerError(
                    f"{_label(row)}: its key is not here (the ledger was restored from a backup, which holds "
                    "no keys); `hushgram ledger abandon` it and release under another id"
                )
            key = unwrap(row.secret, _context(row.dataset, row.name, row.attempt))
            if row.status == "reserved":
                self._set(connection, reservation, status="running")
        return key

    def renew(self, reservation: Reservation) -> None:
        """Says that the run is alive."""
        with self.store.write() as connection:
            self._mine(connection, reservation, _OPEN)
            self._set(connection, reservation, lease=self.store.clock(connection) + LEASE_SECONDS)

    def prepare(self, reservation: Reservation, digest: str) -> None:
        """Records the digest of the complete output, before it becomes visible.

        A second run of the same id must come to the same bytes: same key, same data, same parameters.
        """
        with self.store.write() as connection:
            row = self._mine(connection, reservation, ("running", "prepared"))
            if row.digest is not None and row.digest != digest:
                raise LedgerError(
                    f"{_label(row)}: this run made other bytes ({digest[:16]}…) than the one before it "
                    f"({row.digest[:16]}…): its input or the program has changed; nothing was published. "
                    "`hushgram ledger abandon` it and release under another id"
                )
            self._set(connection, reservation, status="prepared", digest=digest)

    def commit(self, reservation: Reservation) -> None:
        """The output is visible: closes the release and erases its key."""
        with self.store.write() as connection:
            self._mine(connection, reservation, ("prepared",))
            self._set(connection, reservation, status="committed", **_closed())

    def cancel(self, reservation: Reservation) -> bool:
        """Gives back a reservation whose key was never handed out; False where it was."""
        with self.store.write() as connection:
            self._need(connection, reservation.release.dataset, lock=True)
            row = self._mine(connection, reservation, _OPEN)
            if row.status != "reserved":
                return False
            self._set(connection, reservation, status="abandoned", charged=0, **_closed())
        return True

    def let_go(self, reservation: Reservation) -> None:
        """Ends the lease of a run that failed, so that the next one need not wait."""
        with self.store.write() as connection:
            self._mine(connection, reservation, _OPEN)
            self._set(connection, reservation, owner=None, lease=None)

    def abandon(self, name: str, dataset: str | None = None) -> Release:
        """Gives a release up for good. The charge stays unless its key was never handed out."""
        with self.store.write() as connection:
            row = self._one(connection, name, dataset)
            self._need(connection, row.dataset, lock=True)
            row = self._one(connection, name, row.dataset)
            if row.status in ("committed", "abandoned"):
                raise LedgerError(f"{_label(row)} is {row.status} since {row.finished}; nothing to abandon")
            self._refuse_if_alive(connection, row)
            charged = 0 if row.status == "reserved" else 1
            connection.execute(
                releases.update()
                .where(releases.c.id == row.id)
                .values(status="abandoned", charged=charged, **_closed())
            )
            after = connection.execute(sa.select(releases).where(releases.c.id == row.id)).one()
            return Release.from_row(after, self._events(connection, [row.id]).get(row.id, []))

    # Reading

    def find(self, dataset: str, release: str) -> Release | None:
        """The latest attempt at a release id."""
        with self.store.read() as connection:
            self._need(connection, dataset)
            row = self._latest(connection, dataset, release)
            if row is None:
                return None
            return Release.from_row(row, self._events(connection, [row.id]).get(row.id, []))

    def history(self, dataset: str) -> list[Release]:
        """Every attempt at every release, oldest first."""
        with self.store.read() as connection:
            self._need(connection, dataset)
            query = sa.select(releases).where(releases.c.dataset == dataset).order_by(releases.c.id)
            rows = connection.execute(query).all()
            by_release = self._events(connection, [row.id for row in rows])
        return [Release.from_row(row, by_release.get(row.id, [])) for row in rows]

    def spent(self, dataset: str) -> Spent:
        """All charged spending."""
        with self.store.read() as connection:
            self._need(connection, dataset)
            return self._spent(connection, dataset)

    # Inside a transaction

    def _lock_all(self, connection: sa.Connection) -> None:
        if not self.store.is_sqlite:
            connection.exec_driver_sql("LOCK TABLE datasets IN SHARE ROW EXCLUSIVE MODE")

    def _dataset(self, connection: sa.Connection, name: str, lock: bool = False) -> Dataset | None:
        query = sa.select(datasets).where(datasets.c.name == name)
        row = connection.execute(query.with_for_update() if lock else query).one_or_none()
        return None if row is None else _dataset(row)

    def _need(self, connection: sa.Connection, name: str, lock: bool = False) -> Dataset:
        found = self._dataset(connection, name, lock)
        if found is None:
            others = connection.execute(sa.select(datasets.c.name).order_by(datasets.c.name)).scalars().all()
            known = f"it has {', '.join(others[:10])}" if others else "it has none"
            raise LedgerError(
                f"ledger {self.where} has no data set {name!r} ({known}); "
                f"hushgram ledger init --dataset {name} --epsilon … --delta …"
            )
        return found

    def _latest(self, connection: sa.Connection, dataset: str, release: str) -> Any:
        query = sa.select(releases).where(releases.c.dataset == dataset, releases.c.name == release)
        return connection.execute(query.order_by(releases.c.attempt.desc()).limit(1)).one_or_none()

    def _one(self, connection: sa.Connection, name: str, dataset: str | None) -> Any:
        query = sa.select(releases).where(releases.c.name == name)
        if dataset is not None:
            query = query.where(releases.c.dataset == dataset)
        rows = connection.execute(query.order_by(releases.c.dataset, releases.c.attempt)).all()
        found = {row.dataset: row for row in rows}
        if not found:
            raise LedgerError(f"ledger {self.where} has no release {name!r}; see `hushgram ledger history`")
        if len(found) > 1:
            raise LedgerError(f"release {name!r} exists in data sets {', '.join(found)}; say --dataset")
        return next(iter(found.values()))

    def _spent(self, connection: sa.Connection, dataset: str) -> Spent:
        query = (
            sa.select(releases.c.users, events.c.epsilon, events.c.delta, sa.func.count())
            .join(events, events.c.release_id == releases.c.id)
            .where(releases.c.dataset == dataset, releases.c.charged == 1)
            .group_by(releases.c.users, events.c.epsilon, events.c.delta)
        )
        shared: Spending = Counter()
        parts: dict[str, Spending] = {}
        for users, epsilon, delta, count in connection.execute(query):
            into = shared if users is None else parts.setdefault(users, Counter())
            into[Fraction(epsilon), Fraction(delta)] += count
        return Spent(shared, parts)

    def _events(self, connection: sa.Connection, ids: Sequence[int]) -> dict[int, list[Event]]:
        found: dict[int, list[Event]] = {}
        for start in range(0, len(ids), 500):
            query = sa.select(events).where(events.c.release_id.in_(ids[start : start + 500]))
            for row in connection.execute(query.order_by(events.c.release_id, events.c.position)):
                event = Event(row.kind, row.epsilon, row.delta, json.loads(row.details), row.version)
                found.setdefault(row.release_id, []).append(event)
        return found

    def _insert(self, connection: sa.Connection, request: Request, owner: Owner, attempt: int) -> Reservation:
        secret = wrap(ReleaseKey.generate(), _context(request.dataset, request.release, attempt))
        insert = releases.insert().values(
            dataset=request.dataset,
            name=request.release,
            attempt=attempt,
            job=request.job,
            status="reserved",
            charged=1,
            parameters=json.dumps(request.all_parameters, sort_keys=True),
            inputs=json.dumps(dict(request.inputs or {}), sort_keys=True),
            target=request.target,
            secret=secret,
            owner=owner.write(),
            lease=self.store.clock(connection) + LEASE_SECONDS,
            reserved=schema.now(),
            users=request.users,
        )
        key = connection.execute(insert.returning(releases.c.id)).scalar_one()
        connection.execute(
            events.insert(),
            [
                {
                    "release_id": key,
                    "position": position,
                    "kind": event.kind,
                    "version": event.version,
                    "epsilon": str(event.epsilon),
                    "delta": str(event.delta),
                    "details": json.dumps(dict(event.details), sort_keys=True),
                }
                for position, event in enumerate(request.events, 1)
            ],
        )
        row = connection.execute(sa.select(releases).where(releases.c.id == key)).one()
        return Reservation(Release.from_row(row, request.events), "new", owner.token)

    def _take_up(self, connection: sa.Connection, row: Any, request: Request, owner: Owner) -> Reservation:
        """The id was used before: the same again goes on from there, anything else is refused."""
        found = Release.from_row(row, request.events)
        if found.status == "abandoned":
            raise LedgerError(
                f"{_label(row)} was abandoned at {found.finished}, and its charge kept; use another id"
            )
        changed = differences(found.parameters, request.all_parameters)
        if request.inputs is not None or found.status != "committed":
            changed += [f"input {text}" for text in differences(found.inputs, request.inputs or {})]
        if changed:
            more = f" (and {len(changed) - 3} more)" if len(changed) > 3 else ""
            done = found.status == "committed"
            remedy = "use another id" if done else f"use another id, or `hushgram ledger abandon {row.name}`"
            raise LedgerError(
                f"{_label(row)} was {'released' if done else 'reserved'} at "
                f"{found.finished or found.reserved} with other parameters or inputs: "
                f"{'; '.join(changed[:3])}{more}; {remedy}"
            )
        if found.status != "committed":
            self._refuse_if_alive(connection, row)
            lease = self.store.clock(connection) + LEASE_SECONDS
            connection.execute(
                releases.update().where(releases.c.id == row.id).values(owner=owner.write(), lease=lease)
            )
        return Reservation(found, found.status, owner.token)

    def _refuse_if_alive(self, connection: sa.Connection, row: Any) -> None:
        if row.owner is None or row.lease is None:
            return
        holder, left = Owner.read(row.owner), row.lease - self.store.clock(connection)
        if left > 0 and not holder.is_dead():
            raise LedgerError(
                f"{_label(row)} is being run by {holder}; wait for it, or if that machine is lost, "
                f"try again in {left:.0f} s"
            )

    def _mine(self, connection: sa.Connection, reservation: Reservation, allowed: Sequence[str]) -> Any:
        query = sa.select(releases).where(releases.c.id == reservation.release.id).with_for_update()
        row = connection.execute(query).one_or_none()
        holder = Owner.read(row.owner).token if row is not None and row.owner else ""
        if row is None or row.status not in allowed or holder != reservation.token:
            state, lost = "gone" if row is None else row.status, reservation.release
            raise LedgerError(
                f"release {lost.name} of {lost.dataset} was taken over by another run while this one was "
                f"silent (it is {state} now); this run stops and publishes nothing"
            )
        return row

    def _set(self, connection: sa.Connection, reservation: Reservation, **values: Any) -> None:
        connection.execute(releases.update().where(releases.c.id == reservation.release.id).values(**values))


def _closed() -> dict[str, Any]:
    return {"secret": None, "owner": None, "lease": None, "finished": schema.now()}


def _context(dataset: str, release: str, attempt: int) -> str:
    return f"release {release} of {dataset}, attempt {attempt}"


def _label(row: Any) -> str:
    return f"release {row.name} of {row.dataset}"


def _dataset(row: Any) -> Dataset:
    return Dataset(row.name, Budget(row.epsilon, row.delta, row.composition), row.created)
