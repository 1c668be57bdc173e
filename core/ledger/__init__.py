"""The privacy budget across releases: reserved before data is read, never overspent, never charged twice.

    with Ledger("sqlite:///ledger.db") as ledger:
        reservation = ledger.reserve(Request("pageviews", "urls-2026-11-15", events), Owner.this())
        key = ledger.start(reservation)
        ...                                     # draw noise, write to a temporary place
        ledger.prepare(reservation, digest)
        ...                                     # one rename
        ledger.commit(reservation)

Jobs use `hushgram.pipelines.run.budget`, which adds the files. Reading a sketch never imports this package.
"""

from __future__ import annotations

from hushgram.ledger.ledger import LEASE_SECONDS, Ledger
from hushgram.ledger.records import Dataset, ReleaseRecord, Request, Reservation, Spent
from hushgram.ledger.recovery import add_key, backup, recover
from hushgram.ledger.store import DEFAULT_URL, ledger_url
from hushgram.ledger.summary import Summary, summarise
from hushgram.processes import Owner

__all__ = [
    "DEFAULT_URL", "LEASE_SECONDS", "Dataset", "Ledger", "Owner", "ReleaseRecord", "Request", "Reservation",
    "Spent", "Summary", "add_key", "backup", "ledger_url", "recover", "summarise",
]  # fmt: skip
