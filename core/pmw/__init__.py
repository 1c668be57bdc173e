"""Private multiplicative weights: many linear queries over a finite domain, from one budget. See docs/answers.md."""

from __future__ import annotations

from hushgram.pmw.mechanism import (
    FROM_HYPOTHESIS,
    GRID,
    HALTED,
    MEASURED,
    Domain,
    OnlinePMW,
    PmwAnswers,
    PmwParams,
    Workload,
    prior_weights,
)
from hushgram.pmw.offline import OfflineParams, OfflinePMW

__all__ = [
    "FROM_HYPOTHESIS", "GRID", "HALTED", "MEASURED", "Domain", "OfflinePMW", "OfflineParams", "OnlinePMW",
    "PmwAnswers", "PmwParams", "Workload", "prior_weights",
]  # fmt: skip
