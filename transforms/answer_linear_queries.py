"""Private multiplicative weights as a stage, online or offline: exact counts of a domain in, released answers out.

In:  exact counts of the domain, a cell each (`CountDomain`), private; vectors of parts are added up first.
Out: one `Outcome`: an answer to each query in order, and the hypothesis. Public; `params.guarantee()`-DP.

The stream is one sequence by nature (each update changes what later queries are compared with), so one worker
answers it; a retry on any machine gives the same outcome (see `hushgram.pmw.hypothesis`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from numpy.typing import NDArray

from hushgram.domains import FiniteDomain
from hushgram.noise.entropy import ReleaseKey
from hushgram.numbers import show
from hushgram.pmw import OfflineParams, OfflinePMW, PmwParams, Workload
from hushgram.pmw.synthetic import LinearQuery, Outcome, answer_fixed, outcome_of, workloads
from hushgram.sensitivity import ExactVector, Unit
from hushgram.transforms.shuffle.vectors import SumParts

__all__ = ["AnswerLinear"]


class AnswerLinear(beam.PTransform):
    """Exact counts of ``domain`` → `Outcome` of all ``queries``; ``prior`` as in `OnlinePMW`."""

    def __init__(
        self,
        domain: FiniteDomain,
        queries: Sequence[LinearQuery],
        params: PmwParams | OfflineParams,
        *,
        release_key: ReleaseKey,
        prior: NDArray[np.int64] | None = None,
        unit: Unit = "user",
    ) -> None:
        super().__init__()
        self._domain, self._queries, self._params = domain, list(queries), params
        self._release_key, self._prior, self._unit = release_key, prior, unit

    def expand(self, counts: Any) -> Any:
        return (
            counts
            | "Whole" >> SumParts(len(self._domain))
            | "AnswerStream"
            >> beam.Map(
                _answer, self._domain, self._queries, self._params, self._release_key, self._prior, self._unit
            ).with_output_types(Outcome)
        )

    def display_data(self) -> dict[str, Any]:
        epsilon, delta = self._params.guarantee()
        shown = {"epsilon": show(epsilon), "delta": show(delta)}
        return {"cells": len(self._domain), "queries": len(self._queries), **shown}


def _answer(
    counts: ExactVector,
    domain: FiniteDomain,
    queries: list[LinearQuery],
    params: PmwParams | OfflineParams,
    release_key: ReleaseKey,
    prior: NDArray[np.int64] | None,
    unit: Unit,
) -> Outcome:
    batches = workloads(queries, domain)
    if isinstance(params, PmwParams):
        return answer_fixed(counts, params, release_key, batches, prior=prior, unit=unit)
    pmw = OfflinePMW(counts, params, release_key, prior=prior, unit=unit)
    answers = pmw.answer(Workload(np.concatenate([work.grid for work in batches])))
    return outcome_of(pmw.finish(), [answers], pmw.updates)
