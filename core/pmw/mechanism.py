"""Online private multiplicative weights: many linear queries, answered from a learnt histogram.

Released: an answer to each query as it comes, and at the end the hypothesis itself, a synthetic histogram.
Guarantee: (ε, δ)-DP for the whole stream, however long and however adaptively chosen, for ‖x − x'‖₁ ≤ C.
Source: Kamath, Lecture 9, "Online Private Multiplicative Weights" and Theorem 5.

For each query w, with exact answer f = ⟨w, x⟩ and the hypothesis' answer h = ⟨w, x̂⟩ (public):

1. Sparse vector on |f − h|, threshold T: ⊥ answers h, at no cost that grows with the number of queries.
2. ⊤ answers f with fresh Laplace noise (NumericSparse) and updates x̂. After c updates the budget is
   spent: every later answer comes from the hypothesis alone, and is marked so.

Privacy. h is a function of released answers, so |f − h| has the sensitivity of f: C, since weights are at
most 1. In units of 1/GRID it is C·GRID, and all compared numbers are whole. The loss is that of
NumericSparse with cutoff c (`svt.params.privacy_loss`), plus ε_n for a noisy total if none is public.
Updating and replaying use released numbers only. Noise is a function of the release key, the counts, the
parameters, the prior and all queries so far.

| symbol | name |
|---|---|
| C | max_contributions |
| c | max_updates |
| T | threshold, in counts |
| k | queries: how many are planned for |
| n | total |
| α, β | error as a share of n, and probability that it is exceeded |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgram.errors import BudgetExceeded, ParameterError
from hushgram.laplace_mechanism import positive
from hushgram.noise.entropy import ReleaseKey, StreamKey, digest, take_key
from hushgram.numbers import Number, integer, rational, show
from hushgram.pmw.counts import PrivateWeights, WeightsParams
from hushgram.pmw.hypothesis import LAST_REPLAY, MOST_REPLAYED, MOST_TOTAL, Hypothesis
from hushgram.pmw.workload import GRID, Domain, Workload
from hushgram.svt.mechanism import NoiseStream, noise_stream
from hushgram.svt.params import SvtParams, privacy_loss

__all__ = [
    "FROM_HYPOTHESIS", "GRID", "HALTED", "MEASURED", "Domain", "OnlinePMW", "PmwAnswers", "PmwParams",
    "Workload", "prior_weights",
]  # fmt: skip

# Where an answer came from. HALTED: also the hypothesis, but nothing was compared any more: no error bound.
FROM_HYPOTHESIS, MEASURED, HALTED = 0, 1, 2
# One third of ε for measured answers makes their noise as wide as that of the comparisons (2c/(2ε/3) against
# c/(ε/3), nearly), which was also the best share in trials.
_VALUE_SHARE = Fraction(1, 3)
_MOST_UPDATES = 10**5
# Comparisons are made for blocks of queries; a block shrinks when it is cut short by an update.
_LEAST_BLOCK, _MOST_BLOCK = 4, 2048
# Weight that a prior leaves to the uniform distribution, so that no cell starts at zero.
_PRIOR_MIX = 0.01


@dataclass(frozen=True, init=False)
class PmwParams(WeightsParams):
    """Everything public about a stream; checked when built.

    Neighbours: one user added or removed, ‖x − x'‖₁ ≤ ``max_contributions``. ``threshold`` is in counts; left
    out, it is such that noise alone calls for c/40 updates in k comparisons, which was best in trials.
    ``total`` is a public n; left out, it is released with one fiftieth of ε. ``replay`` steps follow each
    update; 0 is the plain update of the lecture, with rate ``eta``.

    >>> PmwParams(1, max_updates=10).guarantee()
    (Fraction(1, 1), Fraction(0, 1))
    """

    epsilon: Fraction
    delta: Fraction
    max_contributions: int
    max_updates: int
    queries: int
    threshold: Fraction | None
    total: int | None
    replay: int
    eta: Fraction
    variant: str

    def __init__(
        self,
        epsilon: Number,
        *,
        delta: Number = 0,
        max_contributions: int = 1,
        max_updates: int = 400,
        queries: int = 20_000,
        threshold: Number | None = None,
        total: int | None = None,
        replay: int = 1,
        eta: Number = Fraction(1, 20),
        variant: str = "optimal",
    ) -> None:
        owner, put = "PmwParams", object.__setattr__
        self._put_shared(epsilon, delta, max_contributions, total)
        put(self, "eta", positive(eta, "eta", owner))
        put(self, "replay", integer(replay, "replay", owner, low=0, high=1000))
        most = MOST_REPLAYED if replay else _MOST_UPDATES
        put(self, "max_updates", integer(max_updates, "max_updates", owner, low=1, high=most))
        put(self, "queries", integer(queries, "queries", owner, low=1, high=1 << 40))
        put(self, "threshold", None if threshold is None else positive(threshold, "threshold", owner))
        put(self, "variant", variant)
        if self.threshold is not None and self.threshold > MOST_TOTAL:
            raise ParameterError(
                f"{owner}: threshold must be at most {MOST_TOTAL}, got {show(self.threshold)}"
            )
        _ = self.svt  # scales out of range show here

    @property
    def replayed(self) -> int:
        """Answers that the hypothesis keeps: all of them, or none where only the plain update is made."""
        return self.max_updates if self.replay else 0

    @property
    def svt(self) -> SvtParams:
        """The sparse vector inside, in units of 1/GRID counts."""
        if self.threshold is not None:
            return self._svt(math.ceil(self.threshold * GRID))
        scale = self._svt(0).noise.query
        level = math.log(max(20 * self.queries / self.max_updates, math.e))
        return self._svt(math.ceil(float(scale) * level))

    def _svt(self, threshold: int) -> SvtParams:
        return SvtParams(
            epsilon=self.epsilon - self.total_epsilon,
            delta=self.delta,
            threshold=threshold,
            cutoff=self.max_updates,
            sensitivity=self.max_contributions * GRID,
            monotone=False,
            variant=self.variant,
            answers="numeric",
            value_share=_VALUE_SHARE,
        )

    def guarantee(self) -> tuple[Fraction, Fraction]:
        """(ε, δ) of the whole stream, the total included; for δ = 0 from the scales used: the privacy map."""
        svt = self.svt
        if svt.delta > 0:
            return self.epsilon, self.delta
        loss = privacy_loss(svt.noise, sensitivity=svt.sensitivity, cutoff=svt.cutoff, monotone=svt.monotone)
        return loss + self.total_epsilon, Fraction(0)

    def slack(self, beta: Number = "0.05") -> tuple[float, float]:
        """(a, b): with probability 1 − β, comparisons are right to within a counts, measured answers to b.

        So an answer from the hypothesis is off by at most T + a, and an update was made for an error of T
        − a or more.
        """
        noise = self.svt.noise
        fail = float(rational(beta, "beta", "PmwParams")) / 3
        draws = self.max_updates if noise.redraw else 1
        compared = float(noise.query) * math.log(self.queries / fail)
        compared += float(noise.threshold) * math.log(draws / fail)
        measured = float(noise.value or 0) * math.log(self.max_updates / fail)
        return (compared + 2) / GRID, (measured + 1) / GRID

    def describe(self, queries: int) -> dict[str, Any]:
        """Public parameters and accuracy for the manifest."""
        slack, measured = self.slack()
        threshold = Fraction(self.svt.threshold, GRID)
        return {
            "parameters": {
                "max_updates": self.max_updates,
                "queries": self.queries,
                "threshold": show(threshold),
                "replay": self.replay,
                "noise": self.svt.describe()["noise"],
                "grid": GRID,
            },
            "accuracy": {
                "beta": "0.05",
                "hypothesis": round(float(threshold) + slack, 1),
                "measured": round(measured, 1),
            },
        }

    @classmethod
    def from_accuracy(
        cls,
        alpha: Number,
        *,
        epsilon: Number,
        cells: int,
        total: int,
        queries: int,
        delta: Number = 0,
        beta: Number = "0.05",
        max_contributions: int = 1,
    ) -> PmwParams:
        """Parameters with which all ``queries`` answers are within α·n, with probability 1 − β (Theorem 5).

        c = ⌈16 ln|X|/α²⌉, T = ¾αn, η = α/4: if comparisons are right to within αn/4, each update was made
        for an error of at least αn/2 and lowers the relative entropy to the data by (α/2)²/4, which starts
        at no more than ln|X|; so the bound c is never reached and ⊥ answers are within αn. Refused if n is
        too small for that.
        """
        share = rational(alpha, "alpha", "PmwParams")
        if not 0 < share < 1:
            raise ParameterError(f"PmwParams: alpha must be between 0 and 1, got {show(share)}")
        updates = math.ceil(16 * math.log(max(cells, 2)) / float(share) ** 2)
        if updates > _MOST_UPDATES:
            raise ParameterError(
                f"PmwParams: alpha {show(share)} needs {updates} updates, over {_MOST_UPDATES}; raise alpha, "
                "or set max_updates and threshold by hand"
            )
        params = cls(
            epsilon,
            delta=delta,
            max_contributions=max_contributions,
            max_updates=updates,
            queries=queries,
            threshold=share * total * 3 / 4,
            total=total,
            replay=0,
            eta=share / 4,
        )
        need = max(params.slack(beta)) * 4 / float(share)
        if need > total:
            raise ParameterError(
                f"PmwParams: alpha {show(share)} for {queries} queries over {cells} cells needs total >= "
                f"{need:.3g}, got {total}; raise alpha or epsilon, or set max_updates and threshold by hand"
            )
        return params


@dataclass(frozen=True, eq=False)
class PmwAnswers:
    """Released answers: ``scaled`` is GRID times the answer; ``origin`` says where each came from."""

    scaled: NDArray[np.int64]
    origin: NDArray[np.int8]

    @property
    def values(self) -> NDArray[np.float64]:
        """Answers in counts."""
        return self.scaled / GRID

    def __len__(self) -> int:
        return len(self.scaled)


def prior_weights(estimates: ArrayLike) -> NDArray[np.int64]:
    """A prior from released estimates of the cells, as those of a sketch: free, since they are public.

    Negative estimates count as 0; one percent of the weight is spread evenly, so that no cell is ruled out.
    """
    given = np.nan_to_num(np.maximum(np.asarray(estimates, dtype=np.float64), 0.0), posinf=0.0)
    if given.ndim != 1 or len(given) == 0:
        raise ParameterError("prior_weights: one estimate for each cell is needed")
    whole = max(float(given.sum()), 1e-300)
    mixed = (1 - _PRIOR_MIX) * given / whole + _PRIOR_MIX / len(given)
    return np.maximum(np.rint(mixed * (1 << 25)), 1).astype(np.int64)


class OnlinePMW(PrivateWeights[PmwParams]):
    """Answers linear queries over a domain of cells, one batch after another.

    Input: exact counts of the cells, ‖x − x'‖₁ ≤ C between neighbours. Guarantee: ``params.guarantee()``
    for all answers and the hypothesis together. The key is an `InteractiveKey`, which this object takes; a stream whose
    queries are all fixed beforehand is a batch release, and has a ``ReleaseKey``: `synthetic.answer_fixed`.

    >>> from hushgram.noise.entropy import InteractiveKey
    >>> counts = exact([900, 50, 50], max_contributions=1)
    >>> pmw = OnlinePMW(counts, PmwParams(20, max_updates=5), InteractiveKey(bytes(32)))
    >>> answers = pmw.answer(Workload.of([[1, 0, 0], [0, 1, 1]]))
    >>> [round(value, -1) for value in answers.values.tolist()]
    [900.0, 100.0]
    """

    _label = "pmw"

    def _begin(self) -> None:
        self.asked = 0
        self._svt = self.params.svt
        self._chain = digest(self._context, self.hypothesis.digest)
        self._bar: int | None = None

    def _take(self, key: object) -> ReleaseKey | StreamKey:
        return take_key(key, "OnlinePMW")

    @property
    def halted(self) -> bool:
        """Whether the update bound is reached: from now on the hypothesis alone answers."""
        return self.updates >= self.params.max_updates

    def finish(self) -> Hypothesis:
        """The hypothesis after a last fit to all measured answers: what to save when the stream has ended."""
        self.hypothesis.replay(LAST_REPLAY)
        return self.hypothesis

    def ask(self, weights: ArrayLike) -> tuple[float, int]:
        """The answer to one query, in counts, and where it came from."""
        released = self.answer(Workload.of(np.asarray(weights)[None, :]))
        return float(released.values[0]), int(released.origin[0])

    def answer(self, queries: Workload) -> PmwAnswers:
        """Answers to the next queries of the stream, in order."""
        self._check(queries)
        self._chain = digest(self._chain, queries.digest)
        noise = self._noise()
        out = PmwAnswers(np.zeros(len(queries), np.int64), np.full(len(queries), FROM_HYPOTHESIS, np.int8))
        start = 0
        if not self.halted and len(queries):
            start = self._compare(queries, noise, out)
        if start < len(queries):
            out.scaled[start:] = self.hypothesis.estimate(queries, start)
            out.origin[start:] = HALTED
        self.asked += len(queries)
        return out

    def _noise(self) -> NoiseStream:
        """The noise of the next batch: a function of the data and of every query so far."""
        return noise_stream(self._svt.noise, self._key.source("pmw", self.asked, self._chain))

    def _check(self, queries: Workload) -> None:
        self._check_width(queries)
        if self.asked + len(queries) > self.params.queries:
            raise BudgetExceeded(
                f"OnlinePMW: {self.asked + len(queries)} queries asked, but the threshold was set for "
                f"{self.params.queries}; state more queries beforehand, or ask the saved hypothesis"
            )

    def _compare(self, queries: Workload, noise: NoiseStream, out: PmwAnswers) -> int:
        """Sparse vector over the batch; returns how many queries were compared before the bound."""
        exact = queries.exact(self._counts)
        shaken = noise.queries(len(queries))
        fresh = noise.values(min(len(queries), self.params.max_updates - self.updates))
        if self._bar is None:
            self._bar = self._svt.threshold + noise.threshold()
        at, block, used = 0, _LEAST_BLOCK, 0
        while at < len(queries) and not self.halted:
            stop = min(at + block, len(queries))
            guess = self.hypothesis.estimate(queries, at, stop)
            over = np.abs(exact[at:stop] - guess) + shaken[at:stop] >= self._bar
            first = int(over.argmax()) if over.any() else len(over)
            out.scaled[at : at + first] = guess[:first]
            at += first
            if first == len(over):
                block = min(2 * block, _MOST_BLOCK)
                continue
            out.scaled[at], out.origin[at] = exact[at] + fresh[used], MEASURED
            self._update(queries, at, int(out.scaled[at]), int(guess[first]))
            if self._svt.noise.redraw:
                self._bar = self._svt.threshold + noise.threshold()
            at, used, block = at + 1, used + 1, max(_LEAST_BLOCK, block // 4)
        return at

    def _update(self, queries: Workload, at: int, answer: int, guess: int) -> None:
        """Multiplicative weights on a released answer: public numbers only."""
        self.updates += 1
        sign = 1 if answer > guess else -1
        row = queries.rows(at, at + 1)[0]
        params = self.params
        self.hypothesis.learn(row, answer, replay=params.replay, rate=float(params.eta), sign=sign)
        if self.halted:
            self.hypothesis.replay(LAST_REPLAY)
