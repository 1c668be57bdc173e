"""The audit leaves out no mechanism, and its quick parts hold; `make audit` runs all of it."""

from __future__ import annotations

import pytest

from hushgram.accounting.events import KINDS
from hushgram.encodings import ENCODINGS
from hushgram.noise.noises import NOISES
from hushgram.pipelines.jobs import JOBS
from tests.privacy.audit import AUDITS, Row

QUICK = (
    "Threshold step, δ = 0",
    "Sizing",
    "Laplace mechanism",
    "Randomized",
    "C by",
    "A whole release",
    "Lists and what they pass on",
    "Clipped",
    "Users by three",
    "Sums before",
    "Key selection by weights, then",
)


def test_no_mechanism_is_missing() -> None:
    covered = set().union(*(audit.covers for audit in AUDITS))
    # what a ledger had lost is no mechanism, and what bounding keeps has none of its own since 0.3
    wanted = {f"event:{kind}" for kind, _ in KINDS if kind not in ("restored", "kept")}
    wanted |= {f"encoding:{id}" for id in ENCODINGS} | {f"noise:{word}" for word in NOISES}
    wanted |= {f"job:{name}" for name in JOBS}
    assert wanted <= covered, wanted - covered


@pytest.mark.parametrize(
    "audit", [a for a in AUDITS if a.title.startswith(QUICK)], ids=lambda a: a.title[:40]
)
def test_quick_parts_hold(audit: object) -> None:
    rows = list(audit.rows())  # type: ignore[attr-defined]
    assert rows
    assert all(row.good for row in rows)


def test_a_row_above_its_claim_is_seen() -> None:
    assert not Row("x", 1.0, 1.01).good
    assert not Row("x", 1.0, 1.0, 0.01, 0.0101).good
