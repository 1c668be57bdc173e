"""One output for one release: a second one that is under way is refused before it is charged."""

from __future__ import annotations

from pathlib import Path

import pytest

from hushgram.accounting import Budget, Event
from hushgram.errors import LedgerError
from hushgram.ledger import Ledger, Request
from hushgram.processes import Owner


def asking(name: str, target: str, dataset: str = "views") -> Request:
    return Request(dataset, name, [Event("laplace", 1)], target=target)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.create(f"sqlite:///{tmp_path}/ledger.db")
    made.add_dataset("views", Budget(8))
    made.add_dataset("others", Budget(8))
    return made


@pytest.mark.parametrize("dataset", ["views", "others"])
def test_eight_runs_for_one_output_cost_one(ledger: Ledger, dataset: str) -> None:
    ledger.reserve(asking("first", "/out/a"), Owner.this())
    for number in range(7):
        for ask in (ledger.preflight, lambda request: ledger.reserve(request, Owner.this())):
            with pytest.raises(LedgerError, match="output /out/a is that of release first of views"):
                ask(asking(f"run-{number}", "/out/a", dataset))
    assert sum(row.charged for row in ledger.history("views") + ledger.history("others")) == 1


def test_what_is_not_published_may_go_elsewhere(ledger: Ledger) -> None:
    taken = ledger.reserve(asking("run", "/out/a"), Owner.this())
    ledger.start(taken)
    ledger.release_lease(taken)
    again = ledger.reserve(asking("run", "/out/b"), Owner.this())
    assert again.status == "running"
    found = ledger.find("views", "run")
    assert found is not None
    assert found.target == "/out/b"
    ledger.reserve(asking("other", "/out/a"), Owner.this())  # free again
    assert sum(row.charged for row in ledger.history("views")) == 2


def test_a_committed_release_stays_where_it_is(ledger: Ledger) -> None:
    taken = ledger.reserve(asking("run", "/out/a"), Owner.this())
    ledger.start(taken)
    ledger.prepare(taken, "0" * 64)
    ledger.commit(taken)
    with pytest.raises(LedgerError, match="target"):
        ledger.reserve(asking("run", "/out/b"), Owner.this())
    with pytest.raises(LedgerError, match="which is committed"):
        ledger.reserve(asking("next", "/out/a"), Owner.this())
