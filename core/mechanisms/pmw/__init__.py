"""Private multiplicative weights: many linear queries over a finite domain, from one budget. See docs/answers.md."""

from __future__ import annotations

from hushgram.mechanisms.pmw.mechanism import (
    FROM_HYPOTHESIS,
    HALTED,
    MEASURED,
    OfflineParams,
    OfflinePMW,
    OnlinePMW,
    PmwAnswers,
    PmwParams,
    prior_weights,
)
from hushgram.mechanisms.pmw.workload import GRID, Domain, Workload

__all__ = [
    "FROM_HYPOTHESIS", "GRID", "HALTED", "MEASURED", "Domain", "OfflinePMW", "OfflineParams", "OnlinePMW",
    "PmwAnswers", "PmwParams", "Workload", "prior_weights",
]  # fmt: skip
