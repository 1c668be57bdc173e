"""Going on after a restore, and sealing a ledger under a key for the first time."""

from __future__ import annotations

from fractions import Fraction

from hushgram.accounting import RELATIONS, Event
from hushgram.errors import LedgerError
from hushgram.ledger.chain import Chain
from hushgram.ledger.ledger import Ledger
from hushgram.ledger.records import Release, Request
from hushgram.ledger.rows import event_rows, seen_of, values_of
from hushgram.ledger.seals import Sealer
from hushgram.ledger.secrets import open_pepper
from hushgram.ledger.tables import now

__all__ = ["recover", "seal"]


def recover(ledger: Ledger, dataset: str) -> Release | None:
    """Charges what the witness saw and a restored ledger lacks; None where nothing is missing.

    The charge is one event for each relation, of its missing sums of ε and δ on all users, which basic composition
    covers. Reservations of the copy do not count as known: they may have been given back since, and stay charged.
    """
    with ledger.store.write() as connection:
        account = ledger.account(connection, dataset, lock=True)
        seen = account.seen
        if seen is None or not seen.is_ahead_of(account.links):
            return None
        known = seen_of(account, "", lasting=True)
        shared = known if known.count < seen.count else None  # else it has gone another way
        sums = {relation: seen.beyond(shared, relation) for relation in RELATIONS}
        lost = {relation: cost for relation, cost in sums.items() if any(cost)} or {
            "user": (Fraction(0), Fraction(0))
        }
        about = {"releases": str(seen.count)}
        missing = [Event("restored", *cost, about, relation=relation) for relation, cost in lost.items()]
        name = f"restored after {known.count} of {seen.count} at {now()}"
        ended = {"status": "committed", "digest": "", "secret": None, "owner": None, "lease": None}
        values = {**values_of(Request(dataset, name, missing, "recover"), 1), **ended, "finished": now()}
        row = ledger.store.chain.append(connection, account, values, event_rows(missing))
    ledger.witness.note(seen_of(account, row["link"], missing), anew=True)
    return Release.from_row(row, event_rows(missing))


def seal(url: str | None = None) -> bool:
    """Seals a ledger without a key under the wrapping key that is set now; False where it is so already.

    All rows are checked first. Done once by the operator, never by itself: else whoever strips the key from a
    ledger would have their changes sealed with it.
    """
    keyed, plain = Sealer.configured(), Sealer(None)
    if keyed.form == plain.form:
        raise LedgerError("no wrapping key is set; set HUSHGRAM_KEY_FILE or HUSHGRAM_WRAP_KEY first")
    try:
        Ledger(url).close()
        return False
    except LedgerError:  # then it opens without the key, or says what is wrong with it
        pass
    with Ledger(url, plain) as ledger, ledger.store.write() as connection:
        chain = ledger.store.chain
        names = [str(row["name"]) for row in chain.datasets(connection)]
        for name in names:
            if problem := ledger.behind(ledger.account(connection, name, lock=True)):
                raise LedgerError(problem)
        stored = chain.pepper(connection)
        Chain(keyed, ledger.where).seal_all(connection, None if stored is None else open_pepper(stored))
    with Ledger(url) as ledger, ledger.store.read() as connection:
        for name in names:
            account = ledger.account(connection, name)
            ledger.witness.note(seen_of(account, account.links[-1]), anew=True)
    return True
