"""Private multiplicative weights: many linear queries, answered from a learned histogram (Kamath, Lecture 9).

Released: an answer to each query, and the hypothesis x̂ they come from, a synthetic histogram. Guarantee: (ε, δ)-DP for
all answers and the hypothesis together, for ‖x − x'‖₁ ≤ C, the total included. With exact answers f = ⟨w, x⟩ and those
of the hypothesis h = ⟨w, x̂⟩, which is public:

**Online** ("Online Private Multiplicative Weights", Theorem 5): the stream may be long and adaptively chosen.

1. Sparse vector on |f − h|, threshold T: ⊥ answers h, at no cost that grows with the number of queries.
2. ⊤ answers f with fresh Laplace noise (NumericSparse) and updates x̂. After c updates the budget is
   spent: every later answer comes from the hypothesis alone, and is marked so.

**Offline** (recalled there; Hardt, Ligett, McSherry 2012, "MWEM"): all queries are known. In each of at most c rounds

1. choose a query whose |f_i − h_i| is nearly the largest, among those not measured yet;
2. measure it with Laplace noise; if it is close to h_i, ten times in a row, return x̂;
3. otherwise update x̂ by multiplicative weights, over this and all earlier answers.

Privacy. h is a function of released answers and weights are at most 1, so a user moves each f and each |f − h| by at
most C, in either direction. Weights are whole multiples of 1/GRID: in these units Δ = C·GRID and all numbers are whole.

    online          ε of NumericSparse with cutoff c (`svt.params.privacy_map`) + ε_n
    offline, δ = 0  ε = c·(2γΔ + Δ/b) + ε_n          choice of rate γ (permute-and-flip), noise of scale b
    offline, δ > 0  ρ = c·((2γΔ)²/8 + (Δ/b)²/2)      exponential mechanism, of bounded range; ρ-zCDP is (ε − ε_n, δ)-DP

Choices compose adaptively; updating, replaying and stopping early are functions of released numbers. Noise is a
function of the release key, the counts, the parameters, the prior and all queries so far.

| symbol | name |
|---|---|
| C | max_contributions |
| c | max_updates, rounds |
| T | threshold, in counts |
| γ, b | rate of a choice and noise scale of a measurement, in units of 1/GRID |
| k | queries: how many are planned for |
| n, ε_n | total, and total_epsilon: for a noisy total, where none is public |
| α, β | error as a share of n, and probability that it is exceeded |
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgram.errors import BudgetExceeded, ParameterError
from hushgram.mechanisms.laplace import calibrated, check_scale, per_query
from hushgram.mechanisms.pmw.hypothesis import LAST_REPLAY, MAX_REPLAYED, MAX_TOTAL, Hypothesis
from hushgram.mechanisms.pmw.workload import GRID, Workload
from hushgram.mechanisms.selection import MECHANISMS
from hushgram.mechanisms.svt.mechanism import NoiseStream
from hushgram.mechanisms.svt.params import SvtParams, privacy_map
from hushgram.noise.entropy import InteractiveKey, ReleaseKey, StreamKey, Turns, digest, take_key
from hushgram.noise.sampling import discrete_laplace
from hushgram.numbers import Number, integer, positive, rational, rational_delta, show, stated_call
from hushgram.sensitivity import ExactVector, PrivacyUnit, exact

__all__ = [
    "FROM_HYPOTHESIS", "HALTED", "MEASURED", "Expected", "OfflinePMW", "OfflineParams", "OnlinePMW", "PmwAnswers",
    "PmwParams", "PrivateWeights", "check_size", "expected_errors", "prior_weights", "synthetic_counts",
]  # fmt: skip

# Where an answer came from. HALTED: also the hypothesis, but nothing was compared any more: no error bound.
FROM_HYPOTHESIS, MEASURED, HALTED = 0, 1, 2
# Share of ε for the total, where none is public.
_TOTAL_SHARE = Fraction(1, 50)
# One third of ε for measured answers makes their noise as wide as that of the comparisons (2c/(2ε/3) against
# c/(ε/3), nearly), which was also the best share in trials.
_VALUE_SHARE = Fraction(1, 3)
_MAX_UPDATES = 10**5
# Comparisons are made for blocks of queries; a block shrinks when it is cut short by an update.
_MIN_BLOCK, _MAX_BLOCK = 4, 2048
# Weight that a prior leaves to the uniform distribution, so that no cell starts at zero.
_PRIOR_MIX = 0.01
# Offline: shares of a round for choosing and for measuring. Even ones were best in trials.
_CHOICE_SHARE = Fraction(1, 2)
# A round that taught nothing may have chosen badly: where choices are noisy, three in a row were seen to end runs that
# had just begun. So many in a row end it; once nothing is left to learn, 95 of 100 measurements are this small.
_PATIENCE, _SMALL = 10, 3
# Offline: all queries are held at once.
_MAX_WEIGHTS = 1 << 28
_ROOT_GRID = 1 << 30
# Trials: the records that are assumed where no total is public, and the most weights that are tried; the first queries
# stand for all. Small workloads are tried several times: one run of few queries is mostly luck.
_ASSUMED_RECORDS = 10**6
_MAX_TRIED = 1 << 23
_TRIALS, _CHEAP = 5, 1 << 20
_EULER = 0.5772156649


class WeightsParams:
    """Parameters of both forms; ‖x − x'‖₁ ≤ ``max_contributions`` between neighbours."""

    epsilon: Fraction
    delta: Fraction
    max_contributions: int
    total: int | None
    replay: int

    def _put_shared(self, epsilon: Number, delta: Number, max_contributions: int, total: int | None) -> None:
        """Check and set them."""
        owner, put = type(self).__name__, object.__setattr__
        put(self, "epsilon", positive(epsilon, "epsilon", owner))
        put(self, "delta", rational_delta(delta, owner))
        most = integer(max_contributions, "max_contributions", owner, low=1, high=10**9 // GRID)
        put(self, "max_contributions", most)
        put(self, "total", None if total is None else integer(total, "total", owner, low=1, high=MAX_TOTAL))
        if self.total_epsilon:
            check_scale(self.max_contributions / self.total_epsilon, owner)

    @property
    def total_epsilon(self) -> Fraction:
        """ε_n of the noisy total; 0 if n is public."""
        return self.epsilon * _TOTAL_SHARE if self.total is None else Fraction(0)

    @property
    def noise_text(self) -> str:
        """The text that noise is derived from; it must never change for the same parameters."""
        raise NotImplementedError

    @property
    def replayed(self) -> int:
        """How many answers the hypothesis keeps."""
        raise NotImplementedError

    @property
    def scale(self) -> Fraction:
        """b: the noise scale of a measured answer, in units of 1/GRID."""
        raise NotImplementedError


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
    """Return a prior from released estimates of the cells, such as a sketch's: free, since they are public.

    Negative estimates count as 0; one percent of the weight is spread evenly, so that no cell is ruled out.
    """
    given = np.nan_to_num(np.maximum(np.asarray(estimates, dtype=np.float64), 0.0), posinf=0.0)
    if given.ndim != 1 or len(given) == 0:
        raise ParameterError("prior_weights: one estimate for each cell is needed")
    whole = max(float(given.sum()), 1e-300)
    mixed = (1 - _PRIOR_MIX) * given / whole + _PRIOR_MIX / len(given)
    return np.maximum(np.rint(mixed * (1 << 25)), 1).astype(np.int64)


P = TypeVar("P", bound=WeightsParams)


class PrivateWeights(ABC, Generic[P]):
    """Exact counts, which are never written, and the hypothesis that is released.

    Args:
        counts: exact counts of the cells, with their sensitivity.
        params: parameters of the run.
        key: secret from which all noise is derived.
        prior: weights of the cells to begin from (`prior_weights`); uniform if left out.
        unit: the privacy unit.
    """

    _label: ClassVar[str]

    def __init__(
        self,
        counts: ExactVector,
        params: P,
        key: ReleaseKey | InteractiveKey,
        *,
        prior: NDArray[np.int64] | None = None,
        unit: PrivacyUnit = "user",
    ) -> None:
        admitted = ExactVector.given(counts, type(self).__name__)
        exact = admitted.admit(calibrated(params.max_contributions, unit)).values
        if exact.ndim != 1 or len(exact) == 0 or exact.dtype.kind not in "iu":
            owner = type(self).__name__
            raise ParameterError(f"{owner}: counts must be whole numbers, one for each cell, not empty")
        self.params = params
        self.updates = 0
        self._scale = float(params.scale)
        # Cutting counts moves no two neighbours further apart, and keeps every product inside int64.
        self._counts = np.clip(exact, 0, (1 << 45) // len(exact)).astype(np.int64)
        self._key = self._take(key)
        self._context = digest(self._label, params.noise_text, self._counts, b"" if prior is None else prior)
        self.total = self._noisy_total() if params.total is None else params.total
        self.hypothesis = Hypothesis(len(exact), self.total, prior, params.replayed)
        self._begin()

    def _begin(self) -> None:
        """Set what else a run remembers."""

    def _take(self, key: object) -> ReleaseKey | StreamKey:
        """Return the key that noise is drawn from."""
        if not isinstance(key, ReleaseKey):
            raise ParameterError(f"{type(self).__name__}: needs a ReleaseKey, got {type(key).__name__}")
        return key

    def _noisy_total(self) -> int:
        scale = Fraction(self.params.max_contributions) / self.params.total_epsilon
        noise = int(discrete_laplace(scale, 1, self._key.source("pmw total", 0, self._context))[0])
        return min(max(int(self._counts.sum()) + noise, 1), MAX_TOTAL)

    def __reduce__(self) -> str:
        raise TypeError(f"{type(self).__name__} holds exact counts and is not written; save its hypothesis")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(cells={len(self._counts)}, updates={self.updates})"

    def _learn(
        self, queries: Workload, at: int, answer: int, guess: int, rate: Fraction = Fraction(0)
    ) -> None:
        """Update the hypothesis by multiplicative weights on a released answer: public numbers only."""
        self.updates += 1
        sign = 1 if answer > guess else -1
        row = queries.grid[at].astype(np.int64)
        self.hypothesis.learn(
            row,
            answer,
            replay=self.params.replay,
            rate=float(rate),
            sign=sign,
            noise=self._scale,
        )

    def finish(self) -> Hypothesis:
        """Return the final hypothesis: what to save."""
        return self.hypothesis

    def _check_width(self, queries: Workload) -> None:
        if queries.cells != len(self._counts):
            owner = type(self).__name__
            raise ParameterError(
                f"{owner}: queries have {queries.cells} weights, the domain {len(self._counts)} cells"
            )


@dataclass(frozen=True, init=False)
class PmwParams(WeightsParams):
    """Parameters of a stream of queries; checked when built.

    Neighbours: one user added or removed, ‖x − x'‖₁ ≤ ``max_contributions``. ``threshold`` is in counts; left
    out, it is such that noise alone calls for c/40 updates at most in k comparisons, which was best in trials.
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
        most = MAX_REPLAYED if replay else _MAX_UPDATES
        put(self, "max_updates", integer(max_updates, "max_updates", owner, low=1, high=most))
        put(self, "queries", integer(queries, "queries", owner, low=1, high=1 << 40))
        put(self, "threshold", None if threshold is None else positive(threshold, "threshold", owner))
        put(self, "variant", variant)
        if self.threshold is not None and self.threshold > MAX_TOTAL:
            raise ParameterError(
                f"{owner}: threshold must be at most {MAX_TOTAL}, got {show(self.threshold)}"
            )
        _ = self.svt  # scales out of range show here

    @property
    def noise_text(self) -> str:
        names = (
            "epsilon",
            "delta",
            "max_contributions",
            "max_updates",
            "queries",
            "threshold",
            "total",
            "replay",
        )
        return stated_call("PmwParams", self, (*names, "eta", "variant"))

    @property
    def replayed(self) -> int:
        """Answers that the hypothesis keeps: all of them, or none where only the plain update is made."""
        return self.max_updates if self.replay else 0

    @property
    def scale(self) -> Fraction:
        """b of a measured answer."""
        return self._svt(0).noise.value or Fraction(0)

    @property
    def svt(self) -> SvtParams:
        """The parameters of the sparse vector inside, in units of 1/GRID counts."""
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
        """Return (ε, δ) of the whole stream, the total included; for δ = 0 from the scales used: the privacy map."""
        svt = self.svt
        if svt.delta > 0:
            return self.epsilon, self.delta
        loss = privacy_map(svt.noise, sensitivity=svt.sensitivity, cutoff=svt.cutoff, monotone=svt.monotone)
        return loss + self.total_epsilon, Fraction(0)

    def slack(self, beta: Number = "0.05") -> tuple[float, float]:
        """Return (a, b): with probability 1 − β, comparisons are right to within a counts, measured answers to b.

        So an answer from the hypothesis is off by at most T + a, and an update was made for an error of T
        − a or more.
        """
        noise = self.svt.noise
        fail = float(rational(beta, "beta", "PmwParams")) / 3
        draws = self.max_updates if noise.redraw else 1
        high = float(noise.query) * math.log(self.queries / fail)
        low = float(noise.threshold) * math.log(draws / fail)
        # one-sided noise is off by at most ν − shift upwards and by ρ + shift downwards
        compared = max(high - noise.shift, low + noise.shift) if noise.one_sided else high + low
        measured = float(noise.value or 0) * math.log(self.max_updates / fail)
        return (compared + 2) / GRID, (measured + 1) / GRID

    def describe(self, queries: int) -> dict[str, Any]:
        """Return public parameters and accuracy, for the manifest."""
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
        """Return parameters with which all answers are within α·n, with probability 1 − β (Theorem 5).

        c = ⌈16 ln|X|/α²⌉, T = ¾αn, η = α/4: if comparisons are right to within αn/4, each update was made
        for an error of at least αn/2 and lowers the relative entropy to the data by (α/2)²/4, which starts
        at no more than ln|X|; so the bound c is never reached and ⊥ answers are within αn. Refused if n is
        too small for that.
        """
        share = rational(alpha, "alpha", "PmwParams")
        if not 0 < share < 1:
            raise ParameterError(f"PmwParams: alpha must be between 0 and 1, got {show(share)}")
        updates = math.ceil(16 * math.log(max(cells, 2)) / float(share) ** 2)
        if updates > _MAX_UPDATES:
            raise ParameterError(
                f"PmwParams: alpha {show(share)} needs {updates} updates, over {_MAX_UPDATES}; raise alpha, "
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


class OnlinePMW(PrivateWeights[PmwParams]):
    """Answer linear queries over a domain of cells, one batch after another.

    Guarantee: ``params.guarantee()`` for all answers and the hypothesis together. The key is an `InteractiveKey`, which
    this object takes; a stream whose queries are all fixed beforehand is a batch release, and has a ``ReleaseKey``:
    `synthetic.answer_fixed`.

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
        self._turns = Turns("OnlinePMW")

    def _take(self, key: object) -> ReleaseKey | StreamKey:
        return take_key(key, "OnlinePMW")

    @property
    def halted(self) -> bool:
        """Whether the update bound is reached: from now on the hypothesis alone answers."""
        return self.updates >= self.params.max_updates

    def finish(self) -> Hypothesis:
        """Return the hypothesis after a last fit to all measured answers: what to save when the stream has ended."""
        self.hypothesis.replay(LAST_REPLAY)
        return self.hypothesis

    def ask(self, weights: ArrayLike) -> tuple[float, int]:
        """Return the answer to one query, in counts, and where it came from."""
        released = self.answer(Workload.of(np.asarray(weights)[None, :]))
        return float(released.values[0]), int(released.origin[0])

    def answer(self, queries: Workload) -> PmwAnswers:
        """Return answers to the next queries of the stream, in order."""
        with self._turns:
            return self._answer(queries)

    def _answer(self, queries: Workload) -> PmwAnswers:
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
        """Return the noise of the next batch: a function of the data and of every query so far."""
        return NoiseStream(self._svt.noise, self._key.source("pmw", self.asked, self._chain))

    def _check(self, queries: Workload) -> None:
        self._check_width(queries)
        if self.asked + len(queries) > self.params.queries:
            raise BudgetExceeded(
                f"OnlinePMW: {self.asked + len(queries)} queries asked, but the threshold was set for "
                f"{self.params.queries}; state more queries beforehand, or ask the saved hypothesis"
            )

    def _compare(self, queries: Workload, noise: NoiseStream, out: PmwAnswers) -> int:
        """Run sparse vector over the batch; return how many queries were compared before the bound."""
        exact = queries.exact(self._counts)
        shaken = noise.queries(len(queries))
        fresh = noise.values(min(len(queries), self.params.max_updates - self.updates))
        if self._bar is None:
            self._bar = self._svt.threshold + noise.threshold()
        at, block, used = 0, _MIN_BLOCK, 0
        while at < len(queries) and not self.halted:
            stop = min(at + block, len(queries))
            guess = self.hypothesis.estimate(queries, at, stop)
            over = np.abs(exact[at:stop] - guess) + shaken[at:stop] >= self._bar
            first = int(over.argmax()) if over.any() else len(over)
            out.scaled[at : at + first] = guess[:first]
            at += first
            if first == len(over):
                block = min(2 * block, _MAX_BLOCK)
                continue
            out.scaled[at], out.origin[at] = exact[at] + fresh[used], MEASURED
            self._learn(queries, at, int(out.scaled[at]), int(guess[first]), self.params.eta)
            if self._svt.noise.redraw:
                self._bar = self._svt.threshold + noise.threshold()
            at, used, block = at + 1, used + 1, max(_MIN_BLOCK, block // 4)
        if self.halted:
            self.hypothesis.replay(LAST_REPLAY)
        return at


@dataclass(frozen=True, init=False)
class OfflineParams(WeightsParams):
    """Parameters of an offline run; checked when built.

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
        put(self, "rounds", integer(rounds, "rounds", owner, low=1, high=MAX_REPLAYED))
        put(self, "replay", integer(replay, "replay", owner, low=1, high=1000))
        put(self, "stop", None if stop is None else positive(stop, "stop", owner))
        check_scale(self.scale, owner)
        check_scale(1 / self.rate, owner)

    @property
    def noise_text(self) -> str:
        names = ("epsilon", "delta", "max_contributions", "rounds", "total", "replay", "stop")
        return stated_call("OfflineParams", self, names)

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
        from hushgram.noise.zcdp import rho_for

        rho = rho_for(left, self.delta) / self.rounds
        squares = 8 * rho * _CHOICE_SHARE, 2 * rho * (1 - _CHOICE_SHARE)
        each = [
            Fraction(math.isqrt(int(square * _ROOT_GRID**2)), _ROOT_GRID) for square in squares
        ]  # rounded down
        return (each[0], each[1]) if sum(each) > sum(pure) else pure

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
        """Return (ε, δ) of the whole run, the total included; for δ = 0 from the scales used: the privacy map."""
        if self.delta > 0:
            return self.epsilon, self.delta
        each = 2 * self.rate * self.sensitivity + self.sensitivity / self.scale
        return self.rounds * each + self.total_epsilon, Fraction(0)

    def slack(self, queries: int, beta: Number = "0.05") -> tuple[float, float]:
        """Return (a, b): with probability 1 − β, choices are within a counts of the worst, measurements within b."""
        fail = float(rational(beta, "beta", "OfflineParams")) / 2
        choice = math.log(queries * self.rounds / fail) / float(self.rate)
        return choice / GRID, (float(self.scale) * math.log(self.rounds / fail) + 1) / GRID

    def describe(self, queries: int) -> dict[str, Any]:
        """Return public parameters and accuracy, for the manifest."""
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
    """Refuse a workload that does not fit in memory, before any budget is spent."""
    if queries * cells > _MAX_WEIGHTS:
        raise ParameterError(
            f"OfflinePMW: {queries:,} queries over {cells:,} cells are too many to be held at once; ask fewer, take a "
            "smaller domain, or answer online"
        )


class OfflinePMW(PrivateWeights[OfflineParams]):
    """Answer all queries of a workload at once.

    Guarantee: ``params.guarantee()`` for answers and hypothesis together. Retry: the same key, counts, prior and
    queries give the same answers.

    >>> counts = exact([900, 50, 50], max_contributions=1)
    >>> pmw = OfflinePMW(counts, OfflineParams(20, rounds=2), ReleaseKey(bytes(32)))
    >>> [round(value, -1) for value in pmw.answer(Workload.of([[1, 0, 0], [0, 1, 1]])).values.tolist()]
    [900.0, 100.0]
    """

    _label = "pmw offline"
    stopped = False
    _answered = False

    def answer(self, queries: Workload) -> PmwAnswers:
        """Return answers to all queries, from the final hypothesis; once, because the budget is spent then."""
        self._check(queries)
        self._answered = True
        source = self._key.source("pmw offline", 0, digest(self._context, queries.digest))
        exact = queries.exact(self._counts)
        origin = np.full(len(queries), FROM_HYPOTHESIS, np.int8)
        pick = MECHANISMS[self.params.mechanism]
        small = 0
        for _ in range(min(self.params.rounds, len(queries))):
            guess = self.hypothesis.estimate(queries)
            left = np.flatnonzero(origin == FROM_HYPOTHESIS)
            at = int(left[pick(np.abs(exact - guess)[left], self.params.rate, source)])
            answer = int(exact[at]) + int(discrete_laplace(self.params.scale, 1, source)[0])
            origin[at] = MEASURED
            self._learn(queries, at, answer, int(guess[at]))
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


# Which of online, offline and plain Laplace answers a workload best is tried on synthetic counts: free. Queries, the
# domain's size and the parameters are public; the counts are not, so Zipf counts in random order stand in for them, and
# both forms run on those under a fixed key. Laplace noise on each query needs no trial: the largest of k draws of
# scale b is about b·(ln k + 0.58).


@dataclass(frozen=True)
class Expected:
    """Worst errors over all queries, in counts, on synthetic data."""

    online: float
    offline: float
    laplace: float
    records: int

    @property
    def best(self) -> str:
        """The name of the mechanism with the least error."""
        errors = {"online": self.online, "offline": self.offline, "laplace": self.laplace}
        return min(errors, key=errors.__getitem__)


def expected_errors(
    queries: Workload,
    *,
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    max_contributions: int = 1,
    total: int | None = None,
    count: int | None = None,
    online: PmwParams | None = None,
    offline: OfflineParams | None = None,
) -> Expected:
    """Return the errors to expect of each mechanism on synthetic counts.

    Args:
        queries: the workload, or the first queries of it where ``count`` is the number of all.
        epsilon, delta, max_contributions, total: as in `PmwParams`.
        online, offline: parameters; if left out, the defaults with no more updates than queries.
    """
    k = count or len(queries)
    shared = {"delta": delta, "max_contributions": max_contributions, "total": total}
    stream = online or PmwParams(epsilon, max_updates=min(400, k), queries=k, **shared)  # type: ignore[arg-type]
    whole = offline or OfflineParams(epsilon, rounds=min(200, k), **shared)  # type: ignore[arg-type]
    tried = Workload(queries.grid[: max(1, _MAX_TRIED // queries.cells)])
    records = min(total or _ASSUMED_RECORDS, MAX_TOTAL)
    counts = synthetic_counts(queries.cells, records)
    truth = tried.exact(counts)
    promised = exact(counts, max_contributions=max_contributions)

    seeds = [bytes([i] * 32) for i in range(_TRIALS if tried.grid.size <= _CHEAP else 1)]

    def worst(build: Callable[[bytes], OnlinePMW | OfflinePMW]) -> float:
        runs = (build(seed).answer(tried).scaled for seed in seeds)
        return float(np.mean([np.abs(run - truth).max() for run in runs])) / GRID

    scale = float(max_contributions / per_query(epsilon, delta, k))
    return Expected(
        online=worst(lambda seed: OnlinePMW(promised, stream, InteractiveKey(seed))),
        offline=worst(lambda seed: OfflinePMW(promised, whole, ReleaseKey(seed))),
        laplace=scale * (math.log(k) + _EULER),
        records=records,
    )


def synthetic_counts(cells: int, records: int) -> NDArray[np.int64]:
    """Return Zipf counts in an order that no query can know: cells are taken by steps of the golden ratio."""
    shares = 1 / np.arange(1, cells + 1)
    ranks = np.argsort((np.arange(cells) * ((math.sqrt(5) - 1) / 2)) % 1.0, kind="stable")
    counts = np.floor(shares / shares.sum() * records).astype(np.int64)
    out: NDArray[np.int64] = counts[ranks]
    return out
