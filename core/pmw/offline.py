"""Offline private multiplicative weights: all queries are known, and the worst is corrected first.

Released: an answer to every query, and the hypothesis they come from, a synthetic histogram. Guarantee:
(ε, δ)-DP for ‖x − x'‖₁ ≤ C, the total included. Source: Kamath, Lecture 9, "Online Private Multiplicative
Weights", which recalls the offline algorithm (Hardt, Ligett, McSherry 2012, "MWEM").

In each of at most c rounds, with exact answers f_i = ⟨w_i, x⟩ and those of the hypothesis h_i = ⟨w_i, x̂⟩ (public):

1. choose a query whose |f_i − h_i| is nearly the largest, among those not measured yet;
2. measure it with Laplace noise; if it is close to h_i, ten times in a row, return x̂;
3. otherwise update x̂ by multiplicative weights, over this and all earlier answers.

Privacy. h is a function of released answers, so a user moves each |f_i − h_i| by at most C, in either direction,
and f_i by at most C. Weights are whole multiples of 1/GRID: in these units Δ = C·GRID and all numbers are whole.

    δ = 0:  ε = c·(2γΔ + Δ/b) + ε_n          choice of rate γ (permute-and-flip), noise of scale b
    δ > 0:  ρ = c·((2γΔ)²/8 + (Δ/b)²/2)      exponential mechanism, of bounded range; ρ-zCDP is (ε − ε_n, δ)-DP

Choices compose adaptively, and stopping early is a function of what was released.

| symbol | name |
|---|---|
| C | max_contributions |
| c | rounds |
| γ, b | rate of the choice and scale of the measurement, in units of 1/GRID |
| ε_n | total_epsilon: for a noisy total, where none is public |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from hushgram.errors import ParameterError
from hushgram.laplace_mechanism import check_scale, positive
from hushgram.noise.entropy import digest
from hushgram.noise.sampling import discrete_laplace
from hushgram.numbers import Number, integer, rational, show
from hushgram.pmw.counts import PrivateWeights, WeightsParams
from hushgram.pmw.hypothesis import LAST_REPLAY, MOST_REPLAYED, Hypothesis
from hushgram.pmw.mechanism import FROM_HYPOTHESIS, MEASURED, PmwAnswers
from hushgram.pmw.workload import GRID, Workload
from hushgram.selection import exponential, permute_and_flip

__all__ = ["OfflinePMW", "OfflineParams", "check_size"]

# Shares of a round for choosing and for measuring: even ones were best in trials.
_CHOICE_SHARE = Fraction(1, 2)
# A round that taught nothing may have chosen badly: where choices are noisy, three in a row were seen to end runs that
# had just begun. So many in a row end it; once nothing is left to learn, 95 of 100 measurements are this small.
_PATIENCE, _SMALL = 10, 3
# All queries are held at once.
_MOST_WEIGHTS = 1 << 28
_GRID = 1 << 30


@dataclass(frozen=True, init=False)
class OfflineParams(WeightsParams):
    """Everything public about a run; checked when built.

    Neighbours: one user added or removed, ‖x − x'‖₁ ≤ ``max_contributions``. ``stop`` is the error in counts that
    counts as small; left out, three scales of a measurement. ``total`` is a public n; left out, it is released with
    one fiftieth of ε. ``replay`` steps over all answers follow each measurement.

    >>> OfflineParams(1, rounds=10).guarantee()
    (Fraction(1, 1), Fraction(0, 1))
    """

    epsilon: Fraction
    delta: Fraction
    max_contributions: int
    rounds: int
    total: int | None
    replay: int
    stop: Fraction | None

    def __init__(
        self,
        epsilon: Number,
        *,
        delta: Number = 0,
        max_contributions: int = 1,
        rounds: int = 200,
        total: int | None = None,
        replay: int = 4,
        stop: Number | None = None,
    ) -> None:
        owner, put = "OfflineParams", object.__setattr__
        self._put_shared(epsilon, delta, max_contributions, total)
        put(self, "rounds", integer(rounds, "rounds", owner, low=1, high=MOST_REPLAYED))
        put(self, "replay", integer(replay, "replay", owner, low=1, high=1000))
        put(self, "stop", None if stop is None else positive(stop, "stop", owner))
        check_scale(self.scale, owner)
        check_scale(1 / self.rate, owner)

    @property
    def replayed(self) -> int:
        """Answers that the hypothesis keeps."""
        return self.rounds

    @property
    def round_epsilons(self) -> tuple[Fraction, Fraction]:
        """ε of one choice and of one measurement."""
        left = self.epsilon - self.total_epsilon
        choice = left / self.rounds * _CHOICE_SHARE
        pure = choice, left / self.rounds - choice
        if self.delta == 0:
            return pure
        from hushgram.accounting.zcdp import rho_for

        rho = rho_for(left, self.delta) / self.rounds
        each = _root_down(8 * rho * _CHOICE_SHARE), _root_down(2 * rho * (1 - _CHOICE_SHARE))
        return each if sum(each) > sum(pure) else pure

    @property
    def sensitivity(self) -> int:
        """Δ in units of 1/GRID."""
        return self.max_contributions * GRID

    @property
    def rate(self) -> Fraction:
        """γ: errors move in either direction, so a choice costs 2γΔ."""
        return self.round_epsilons[0] / (2 * self.sensitivity)

    @property
    def scale(self) -> Fraction:
        """b of a measurement."""
        return self.sensitivity / self.round_epsilons[1]

    @property
    def mechanism(self) -> str:
        """Permute-and-flip errs less at one ε; at δ > 0 the exponential mechanism composes better."""
        return "permute_and_flip" if self.delta == 0 else "exponential"

    @property
    def stop_at(self) -> int:
        """The error, in units of 1/GRID, that counts as small."""
        return math.ceil(_SMALL * self.scale if self.stop is None else self.stop * GRID)

    def guarantee(self) -> tuple[Fraction, Fraction]:
        """(ε, δ) of the whole run, the total included; for δ = 0 from the scales used: the privacy map."""
        if self.delta > 0:
            return self.epsilon, self.delta
        each = 2 * self.rate * self.sensitivity + self.sensitivity / self.scale
        return self.rounds * each + self.total_epsilon, Fraction(0)

    def slack(self, queries: int, beta: Number = "0.05") -> tuple[float, float]:
        """(a, b): with probability 1 − β, every choice is within a counts of the worst, every measurement within b."""
        fail = float(rational(beta, "beta", "OfflineParams")) / 2
        choice = math.log(queries * self.rounds / fail) / float(self.rate)
        return choice / GRID, (float(self.scale) * math.log(self.rounds / fail) + 1) / GRID

    def describe(self, queries: int) -> dict[str, Any]:
        """Public parameters and accuracy for the manifest."""
        chosen, measured = self.slack(queries)
        small = self.stop_at / GRID
        return {
            "parameters": {
                "mode": "offline",
                "rounds": self.rounds,
                "queries": queries,
                "stop": show(Fraction(self.stop_at, GRID)),
                "replay": self.replay,
                "choice": {"mechanism": self.mechanism, "rate": show(self.rate)},
                "noise": {"scale": show(self.scale)},
                "grid": GRID,
            },
            "accuracy": {
                "beta": "0.05",
                "hypothesis": round(chosen + small + measured, 1),
                "measured": round(measured, 1),
            },
        }


def check_size(queries: int, cells: int) -> None:
    """Refuse what cannot be held at once: before any budget is spent."""
    if queries * cells > _MOST_WEIGHTS:
        raise ParameterError(
            f"OfflinePMW: {queries:,} queries over {cells:,} cells are too many to be held at once; ask fewer, take a "
            "smaller domain, or answer online"
        )


def _root_down(square: Fraction) -> Fraction:
    return Fraction(math.isqrt(int(square * _GRID * _GRID)), _GRID)


class OfflinePMW(PrivateWeights[OfflineParams]):
    """Answers all queries of a workload at once.

    Input: exact counts of the cells, ‖x − x'‖₁ ≤ C between neighbours. Guarantee: ``params.guarantee()`` for
    answers and hypothesis together. Retry: the same key, counts, prior and queries give the same answers.

    >>> counts = exact([900, 50, 50], max_contributions=1)
    >>> pmw = OfflinePMW(counts, OfflineParams(20, rounds=2), ReleaseKey(bytes(32)))
    >>> [round(value, -1) for value in pmw.answer(Workload.of([[1, 0, 0], [0, 1, 1]])).values.tolist()]
    [900.0, 100.0]
    """

    _label = "pmw offline"
    stopped = False
    _answered = False

    def answer(self, queries: Workload) -> PmwAnswers:
        """Answers to all queries, from the final hypothesis; once, for its budget is spent then."""
        self._check(queries)
        self._answered = True
        source = self._key.source("pmw offline", 0, digest(self._context, queries.digest))
        exact = queries.exact(self._counts)
        origin = np.full(len(queries), FROM_HYPOTHESIS, np.int8)
        pick = permute_and_flip.pick if self.params.mechanism == "permute_and_flip" else exponential.pick
        small = 0
        for _ in range(min(self.params.rounds, len(queries))):
            guess = self.hypothesis.estimate(queries)
            left = np.flatnonzero(origin == FROM_HYPOTHESIS)
            at = int(left[pick(np.abs(exact - guess)[left], self.params.rate, source)])
            answer = int(exact[at]) + int(discrete_laplace(self.params.scale, 1, source)[0])
            origin[at] = MEASURED
            self.updates += 1
            row = queries.rows(at, at + 1)[0]
            sign = 1 if answer > guess[at] else -1
            self.hypothesis.learn(row, answer, replay=self.params.replay, rate=0.0, sign=sign)
            small = small + 1 if abs(answer - int(guess[at])) <= self.params.stop_at else 0
            if small == _PATIENCE:
                self.stopped = True
                break
        self.hypothesis.replay(LAST_REPLAY)
        return PmwAnswers(self.hypothesis.estimate(queries), origin)

    def _check(self, queries: Workload) -> None:
        if self._answered:
            raise ParameterError(
                "OfflinePMW: all rounds are paid for one workload; ask its hypothesis instead"
            )
        self._check_width(queries)
        check_size(len(queries), queries.cells)

    def finish(self) -> Hypothesis:
        """The hypothesis: what to save."""
        return self.hypothesis
