"""Many processes, one budget: never overspent, never twice, no deadlock. On SQLite and on PostgreSQL."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from hushgram.accounting import Budget, Event, composition, spending
from hushgram.errors import BudgetExceeded, LedgerError
from hushgram.ledger import Ledger, Owner, Request

pytestmark = pytest.mark.long

FORK = multiprocessing.get_context("fork")
DEADLINE = 50.0


def _run(ledger: Ledger, name: str, epsilon: str) -> str:
    try:
        reservation = ledger.reserve(Request("views", name, [Event("laplace", epsilon)]), Owner.this())
        if reservation.done:
            return "done before"
        ledger.start(reservation)
        ledger.prepare(reservation, "d" * 64)
        ledger.commit(reservation)
    except BudgetExceeded:
        return "refused"
    except LedgerError as problem:
        return "busy" if "is being run by" in str(problem) else f"failed: {problem}"
    return "committed"


def _racer(url: str, names: list[str], epsilon: str, barrier: Any, results: Any) -> None:
    with Ledger(url) as ledger:
        barrier.wait(DEADLINE)
        for name in names:
            results.put((name, _run(ledger, name, epsilon)))


def race(url: str, names: list[list[str]], epsilon: str) -> Counter[str]:
    """Runs one process for each list of names; counts how their releases ended."""
    barrier, results = FORK.Barrier(len(names)), FORK.Queue()
    racers = [FORK.Process(target=_racer, args=(url, mine, epsilon, barrier, results)) for mine in names]
    for racer in racers:
        racer.start()
    ends = Counter(results.get(timeout=DEADLINE)[1] for mine in names for _ in mine)
    for racer in racers:
        racer.join(DEADLINE)
        assert racer.exitcode == 0
    return ends


def test_bar_sixteen_processes_race_for_five_of_forty_releases(url: str) -> None:
    with Ledger.create(url) as ledger:
        ledger.add_dataset("views", Budget(1))
    ends = race(url, [[f"r{i}" for i in range(40) if i % 16 == p] for p in range(16)], "0.2")
    assert ends == {"committed": 5, "refused": 35}
    with Ledger(url) as ledger:
        assert composition.basic(ledger.spent("views").shared) == (1, 0)
        assert Counter(r.status for r in ledger.history("views")) == {"committed": 5}


def test_one_release_id_is_made_once_however_many_try(url: str) -> None:
    with Ledger.create(url) as ledger:
        ledger.add_dataset("views", Budget(1))
    ends = race(url, [["monday"]] * 12, "0.2")
    assert ends["committed"] == 1
    assert ends["committed"] + ends["busy"] + ends["done before"] == 12
    with Ledger(url) as ledger:
        assert composition.basic(ledger.spent("views").shared) == (Fraction(1, 5), 0)


def test_race_at_the_edge_of_what_distributions_allow(sqlite_url: str) -> None:
    """46 releases of 0.1 fit (3, 1e-6): after 44 of them exactly two of four racers succeed."""
    with Ledger.create(sqlite_url) as ledger:
        ledger.add_dataset("views", Budget(3, "1e-6", "best"))
        ledger.reserve(Request("views", "before", [Event("laplace", "0.1")] * 44), Owner.this())
    for count in (45, 46, 47):  # loads SciPy once, before the processes are made
        composition.pld_epsilon(spending([Event("laplace", "0.1")] * count), Fraction(1, 10**6))
    assert race(sqlite_url, [[f"r{p}"] for p in range(4)], "0.1") == {"committed": 2, "refused": 2}


def _writer(url: str, word: str, under_way: Any) -> None:
    with Ledger(url) as ledger:
        for number in range(10_000):
            _run(ledger, f"{word}-{number}", "1e-6")
            under_way.set()


def test_killed_writers_leave_whole_releases(sqlite_url: str) -> None:
    with Ledger.create(sqlite_url) as ledger:
        ledger.add_dataset("views", Budget(1))
    for round_ in range(8):
        under_way = FORK.Event()
        writer = FORK.Process(target=_writer, args=(sqlite_url, f"w{round_}", under_way))
        writer.start()
        assert under_way.wait(DEADLINE)
        time.sleep(0.007 * round_)
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    with Ledger(sqlite_url) as ledger:
        history = ledger.history("views")
        assert len(history) >= 8
        assert all(len(release.events) == 1 for release in history)
        assert sum(release.status != "committed" for release in history) <= 8
        assert ledger.spent("views").shared.total() == len(history)


@pytest.mark.engine
def test_migration_race_on_a_new_server(postgres_url: str) -> None:
    makers = [FORK.Process(target=Ledger.create, args=(postgres_url,)) for _ in range(6)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(DEADLINE)
        assert maker.exitcode == 0
