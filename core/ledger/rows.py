"""Between records and rows of the tables."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from hushgram.accounting import RELATIONS, Budget, Event
from hushgram.errors import LedgerError
from hushgram.ledger.chain import Account
from hushgram.ledger.records import Dataset, Release, Request, differences
from hushgram.ledger.seals import Row
from hushgram.ledger.tables import now
from hushgram.ledger.witness import Seen, Witness
from hushgram.processes import Owner

__all__ = [
    "closed", "comparable", "context", "dataset_of", "event_rows", "history_of", "label", "refundable",
    "refuse_if_alive", "refuse_if_changed", "refuse_to_start", "refuse_without_key", "same_target", "seen_of",
    "values_of",
]  # fmt: skip


def refuse_if_alive(row: Row, clock: float) -> None:
    """Refuses to take over from a run that may still be at work."""
    if row["owner"] is None or row["lease"] is None:
        return
    holder, left = Owner.read(row["owner"]), row["lease"] - clock
    if left > 0 and not holder.is_dead():
        raise LedgerError(
            f"{label(row)} is being run by {holder}; wait for it, or if that machine is lost, "
            f"try again in {left:.0f} s"
        )


def refuse_if_changed(found: Release, request: Request) -> None:
    """Refuses a rerun that asks for something else than the run before it, naming the difference."""
    done = found.status == "committed"
    before = {name: text for name, text in found.parameters.items() if name != "target"}
    changed = differences(before, request.all_parameters)
    if done and not same_target(found.target, request.target):  # an unpublished one may change it
        changed += differences({"target": found.target}, {"target": request.target})
    if not done or (request.inputs is not None and comparable(found.inputs, request.inputs)):
        changed += _changed_inputs(found.inputs, request.inputs or {})
    if changed:
        more = f" (and {len(changed) - 3} more)" if len(changed) > 3 else ""
        remedy = "use another id" if done else f"use another id, or `hushgram ledger abandon {found.name}`"
        raise LedgerError(
            f"release {found.name} of {found.dataset} was {'released' if done else 'reserved'} at "
            f"{found.finished or found.reserved} with other parameters or inputs: "
            f"{'; '.join(changed[:3])}{more}; {remedy}"
        )


def refuse_without_key(row: Row) -> None:
    """Refuses to go on with a release of a restored ledger: it may have been released since the copy was taken."""
    if row["secret"] is None:
        raise LedgerError(
            f"{label(row)}: its key is not here (the ledger was restored from a backup, which holds no keys); "
            "`hushgram ledger abandon` it (its charge stays) and release under another id"
        )


def refuse_to_start(row: Row) -> None:
    """Refuses to hand out a key that is gone, or that was handed out once and must not be again."""
    refuse_without_key(row)
    if not row["resumable"] and row["status"] != "reserved":
        raise LedgerError(
            f"{label(row)} answers questions as they come and was begun before: under the same key other "
            "questions would average its noise away; `hushgram ledger abandon` it (its charge stays) and "
            "release under another id"
        )


def refundable(row: Row, witness: Witness) -> bool:
    """Whether the key of this release was certainly never handed out.

    An old copy of the ledger does not know what became of a reservation: a backup has no keys, and whatever else is
    put back is older than the witness, which is told of every key before it is handed out.
    """
    unused = row["status"] == "reserved" and row["secret"] is not None
    return unused and not witness.saw_start(row["link"])


def same_target(one: str, other: str) -> bool:
    """Whether two targets are one place; older versions stored relative paths."""
    if "://" in one or "://" in other or not one or not other:
        return one == other
    return os.path.abspath(one) == os.path.abspath(other)


def comparable(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Whether fingerprints were taken under one secret; a restored ledger has another one than before."""
    which = {text.partition(":")[0] for text in (*before.values(), *after.values())}
    return bool(before) and len(which) == 1


def _changed_inputs(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Names alone: fingerprints mean nothing to a reader."""
    return [
        f"input {name} "
        + ("is new" if name not in before else "is missing" if name not in after else "has changed")
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def seen_of(account: Account, link: str, more: Sequence[Event] = (), lasting: bool = False) -> Seen:
    """What the witness is told about a data set, with the events of one release that was added since.

    `lasting` leaves out what could be given back: reservations whose key was not handed out.
    """
    spent = {relation: (Fraction(0), Fraction(0)) for relation in RELATIONS}
    charges = Counter((relation, e, d) for _, e, d, relation in account.charges(lasting))
    charges.update((one.relation, str(one.epsilon), str(one.delta)) for one in more)
    for (relation, epsilon, delta), times in charges.items():
        loss, slack = spent[relation]
        spent[relation] = loss + times * Fraction(epsilon), slack + times * Fraction(delta)
    return Seen(account.dataset["name"], len(account.releases) + bool(more), link, spent)


def history_of(account: Account) -> list[Release]:
    """All releases of an account, oldest first."""
    return [Release.from_row(row, account.events.get(row["id"], ())) for row in account.releases]


def values_of(request: Request, attempt: int) -> dict[str, Any]:
    """The row of a request."""
    return {
        "dataset": request.dataset,
        "name": request.release,
        "attempt": attempt,
        "job": request.job,
        "charged": 1,
        "parameters": json.dumps(request.all_parameters, sort_keys=True),
        "inputs": json.dumps(dict(request.inputs or {}), sort_keys=True),
        "target": request.target,
        "reserved": now(),
        "users": request.users,
        "resumable": int(request.resumable),
    }


def event_rows(wanted: Sequence[Event]) -> list[Row]:
    """The rows of some events."""
    return [
        {
            "position": position,
            "kind": event.kind,
            "version": event.version,
            "epsilon": str(event.epsilon),
            "delta": str(event.delta),
            "details": json.dumps(dict(event.details), sort_keys=True),
            "relation": event.relation,
        }
        for position, event in enumerate(wanted, 1)
    ]


def closed() -> dict[str, Any]:
    """What a release that has ended no longer has."""
    return {"secret": None, "owner": None, "lease": None, "finished": now()}


def context(dataset: str, release: str, attempt: int) -> str:
    """What a wrapped key is bound to."""
    return f"release {release} of {dataset}, attempt {attempt}"


def label(row: Row) -> str:
    """A release in messages."""
    return f"release {row['name']} of {row['dataset']}"


def dataset_of(row: Row) -> Dataset:
    """A row of the data sets."""
    return Dataset(row["name"], Budget(row["epsilon"], row["delta"], row["composition"]), row["created"])
