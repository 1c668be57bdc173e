"""Releases from the exact counts of a finite domain: answers to linear queries, or the most frequent keys.

In:  exact counts of the domain, one per cell (`CountDomain`), private; vectors of parts are added up first.
Out: `AnswerLinear`: one `ReleasedAnswers`, an answer to each query in order and the hypothesis;
     ``params.guarantee()``-DP, by private multiplicative weights, online or offline.
     `SelectTop`: one list of keys, most frequent first, without their counts; ε-DP for all of them together.

A stream of linear queries is one sequence by nature (each update changes what later queries are compared with), so one
worker answers it. One user moves the count of a listed key by at most max_per_key, and all counts the same way, so the
scores of `SelectTop` have sensitivity max_per_key and are monotone. Noise follows from the release key, the queries or
the list, and the exact counts: a retry on any machine releases the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.mechanisms.domains import FiniteDomain
from hushgram.mechanisms.pmw import OfflineParams, PmwParams
from hushgram.mechanisms.pmw.synthetic import LinearQuery, ReleasedAnswers, answer_fixed, workloads
from hushgram.mechanisms.pmw.workload import Domain
from hushgram.mechanisms.selection import SelectionParams, top
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.numbers import show
from hushgram.sensitivity import ExactVector, PrivacyUnit
from hushgram.transforms.shuffle.combining import SumParts

__all__ = ["AnswerLinear", "SelectTop"]


class AnswerLinear(beam.PTransform):
    """Exact counts of ``domain`` → `ReleasedAnswers` of all ``queries``; ``prior`` as in `OnlinePMW`."""

    def __init__(
        self,
        domain: FiniteDomain,
        queries: Sequence[LinearQuery],
        params: PmwParams | OfflineParams,
        *,
        release_key: ReleaseKey,
        prior: NDArray[np.int64] | None = None,
        unit: PrivacyUnit = "user",
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
            ).with_output_types(ReleasedAnswers)
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
    unit: PrivacyUnit,
) -> ReleasedAnswers:
    return answer_fixed(counts, params, release_key, workloads(queries, domain), prior=prior, unit=unit)


class SelectTop(beam.PTransform):
    """Exact counts of ``keys``, in their order → [key, …]: ``params.count`` of them.

    Counts that were bounded less than ``params`` are calibrated for are refused. ``release_key`` reproduces
    an earlier run; left out, a fresh one is made.
    """

    def __init__(
        self,
        keys: Sequence[str],
        params: SelectionParams,
        *,
        release_key: ReleaseKey | None = None,
        unit: PrivacyUnit = "user",
    ) -> None:
        super().__init__()
        if params.count > len(keys):
            raise ParameterError(f"SelectTop: count must be at most the {len(keys)} keys, got {params.count}")
        self._keys, self._params = Domain(tuple(keys)).labels, params
        self._release_key, self._unit = release_key or ReleaseKey.generate(), unit

    def expand(self, counts: Any) -> Any:
        return (
            counts
            | "Whole" >> SumParts(len(self._keys))
            | "ChooseTop" >> beam.Map(_choose, self._keys, self._params, self._release_key, self._unit)
        )

    def display_data(self) -> dict[str, Any]:
        return {"keys": len(self._keys), "count": self._params.count, "epsilon": show(self._params.epsilon)}


def _choose(
    counts: ExactVector,
    labels: Sequence[str],
    params: SelectionParams,
    release_key: ReleaseKey,
    unit: PrivacyUnit,
) -> list[str]:
    source = release_key.source("most frequent", 0, digest(params.noise_text, *labels, counts.values))
    return [labels[i] for i in top(counts, params, source, unit)]
