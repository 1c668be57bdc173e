"""The Laplace mechanism on integers, and the Laplace histogram over a public list of keys.

Released: y = f(x) + Z, Z_i independent discrete Laplace of scale b = Δ/ε, for a vector f of integer
answers whose L1 sensitivity is Δ. Guarantee: ε-DP, since one user moves f by at most Δ in L1 and each unit
costs 1/b.

* Histogram over a public list (Wang, Lecture 3, §3.5): the counts of all listed keys, also those with
  count 0; a user who is bounded to C contributions moves them by at most C in L1, so Δ = C. Counts of keys
  outside the list are dropped before anything is drawn.
* k queries one after another (§3.3.2): each pays ε/k (basic composition), or, for δ > 0, the most
  that the exact composition theorem for pure mechanisms allows (`accounting.composition`).

Error (§3.3): all k answers are within ⌈ln(k/β)·Δ/ε⌉ with probability ≥ 1 − β. The discrete tail needs the
rounding up: P[|Z| > t] = 2q^(t+1)/(1 + q) ≤ q^t at whole t only, q = e^(−1/b).

| symbol | name |
|---|---|
| C | max_contributions |
| Δ | sensitivity |
| b | scale |
| β | failure probability of an error bound, `beta` |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgram.errors import BudgetExceeded, ParameterError
from hushgram.noise.entropy import InteractiveKey, ReleaseKey, Turns, digest, take_key
from hushgram.noise.sampling import discrete_laplace
from hushgram.numbers import Number, integer, positive, rational, show
from hushgram.sensitivity import ExactVector, PrivacyUnit, Sensitivity

__all__ = [
    "BLOCK", "MAX_ANSWER", "LaplaceAnswers", "LaplaceParams", "calibrated", "check_scale",
    "max_error", "per_query", "privacy_map", "release_listed", "whole_numbers",
]  # fmt: skip

# Noise is drawn in blocks of this many keys, each from a source of its own, so that a release of a long
# list can be spread over workers without changing it.
BLOCK = 1 << 16
# Answers are cut to ± this before noise: far above any real count, far below the wrap-around of int64.
MAX_ANSWER = 1 << 61
# The widest noise that the sampler draws.
_MAX_SCALE = 1 << 50


@dataclass(frozen=True, init=False)
class LaplaceParams:
    """ε for the whole vector, and how much one user can move it.

    Neighbours: one user added or removed; L1 sensitivity Δ = ``max_contributions``.

    >>> LaplaceParams("0.5", max_contributions=4).scale
    Fraction(8, 1)
    """

    epsilon: Fraction
    max_contributions: int

    def __init__(self, epsilon: Number, *, max_contributions: int = 1) -> None:
        owner, put = "LaplaceParams", object.__setattr__
        put(self, "epsilon", positive(epsilon, "epsilon", owner))
        most = 1 << 40
        put(
            self,
            "max_contributions",
            integer(max_contributions, "max_contributions", owner, low=1, high=most),
        )
        check_scale(self.scale, owner)

    @property
    def scale(self) -> Fraction:
        """b = C/ε."""
        return self.max_contributions / self.epsilon


def whole_numbers(answers: ArrayLike, owner: str) -> NDArray[np.int64]:
    """Return exact answers as int64, cut to ± MAX_ANSWER, so that no answer decides whether we fail.

    >>> whole_numbers([7, -(2**90)], "here").tolist() == [7, -MAX_ANSWER]
    True
    """
    exact = np.asarray(answers)
    if exact.dtype.kind not in "iu":  # numpy has no integer type for some lists of large numbers
        given = np.asarray(answers, dtype=object)
        if not all(isinstance(one, int | np.integer) and not isinstance(one, bool) for one in given.flat):
            raise ParameterError(f"{owner}: answers must be whole numbers, got {exact.dtype}")
        cut = [min(max(int(one), -MAX_ANSWER), MAX_ANSWER) for one in given.flat]
        exact = np.array(cut, dtype=np.int64).reshape(given.shape)
    if exact.ndim != 1:
        raise ParameterError(f"{owner}: answers must be a list of whole numbers")
    if exact.dtype.kind == "u":
        exact = np.minimum(exact, np.uint64(MAX_ANSWER))
    return np.clip(exact.astype(np.int64), -MAX_ANSWER, MAX_ANSWER)


def check_scale(scale: Fraction, owner: str) -> Fraction:
    """Refuse noise that the sampler does not draw, when parameters are made and not when data are there."""
    if scale > _MAX_SCALE:
        raise ParameterError(
            f"{owner}: noise of scale {float(scale):.3g} would drown everything; raise epsilon or lower bounds"
        )
    return scale


def calibrated(l1: int, unit: PrivacyUnit) -> Sensitivity:
    """Return what Laplace noise on a vector needs to know: the L1 norm alone, in any direction."""
    return Sensitivity(l1, l1, unit, monotone=False)


def privacy_map(scale: Fraction, distance: int) -> Fraction:
    """Return the ε that noise of this scale gives between inputs at this L1 distance: distance/scale."""
    return Fraction(distance) / scale


def max_error(keys: int, params: LaplaceParams, beta: Number = "0.05") -> int:
    """Return ⌈ln(k/β)·C/ε⌉: no listed count is further from the truth, with probability 1 − β (Lecture 3, §3.3).

    >>> max_error(1000, LaplaceParams(1))
    10
    """
    fail = rational(beta, "beta", "max_error")
    if not 0 < fail < 1:
        raise ParameterError(f"max_error: beta must be between 0 and 1, got {show(fail)}")
    if keys < 1:
        raise ParameterError("max_error: the list of keys is empty")
    bound = math.log(keys / fail) * float(params.scale)
    return math.ceil(bound * (1 + 1e-12))  # a public bound: rounded up against ourselves


def release_listed(
    keys: Sequence[str | bytes],
    counts: ExactVector,
    params: LaplaceParams,
    key: ReleaseKey,
    unit: PrivacyUnit = "user",
) -> NDArray[np.int64]:
    """Return the noisy counts of all ``keys``, in their order (perhaps negative).

    Args:
        keys: the public list; each key once.
        counts: exact counts in the same order with their sensitivity, 0 for absent keys.
        params: ε and C.
        key: the secret of all noise.
        unit: the privacy unit.

    Guarantee: ε-DP for ‖x − x'‖₁ ≤ C on the listed keys; the list is public and fixed without looking at
    the data. Noise: a function of the key, the list and all counts, so a retry releases the same numbers, and other
    counts have other noise in every block.
    """
    if len(keys) == 0:
        raise ParameterError("release_listed: the list of keys is empty; name at least one key")
    if len(counts) != len(keys):
        raise ParameterError(f"release_listed: {len(keys)} keys but {len(counts)} counts")
    if len(set(keys)) != len(keys):
        raise ParameterError("release_listed: a key is listed twice; list each key once")
    admitted = ExactVector.given(counts, "release_listed").admit(calibrated(params.max_contributions, unit))
    exact = np.maximum(whole_numbers(admitted.values, "release_listed"), 0)
    noise_key = key.for_data(digest(str(params.scale), digest(*keys), exact))
    out = np.empty(len(exact), dtype=np.int64)
    for block, start in enumerate(range(0, len(exact), BLOCK)):
        part = exact[start : start + BLOCK]
        source = noise_key.source("listed", block, digest(part))
        out[start : start + BLOCK] = part + discrete_laplace(params.scale, len(part), source)
    return out


class LaplaceAnswers:
    """Up to ``queries`` integer queries of sensitivity Δ, each answered with fresh noise (§3.3.2).

    Guarantee: (ε, δ)-DP for the whole stream, queries chosen adaptively. δ = 0: basic composition, scale
    Δk/ε. One query more than stated is refused: it would not be paid for.

    >>> answers = LaplaceAnswers(1, 10, 1, InteractiveKey.generate())
    >>> float(answers.scale)
    10.0
    """

    def __init__(
        self, epsilon: Number, queries: int, sensitivity: int, key: InteractiveKey, *, delta: Number = 0
    ) -> None:
        eps = positive(epsilon, "epsilon", "LaplaceAnswers")
        fail = rational(delta, "delta", "LaplaceAnswers")
        integer(queries, "queries", "LaplaceAnswers", low=1, high=1 << 40)
        integer(sensitivity, "sensitivity", "LaplaceAnswers", low=1, high=1 << 50)
        self.queries = queries
        self.asked = 0
        self.scale = check_scale(sensitivity / per_query(eps, fail, queries), "LaplaceAnswers")
        self._key = take_key(key, "LaplaceAnswers")
        self._chain = digest("laplace answers", str(eps), str(fail), queries, sensitivity)
        self._turns = Turns("LaplaceAnswers")

    def __reduce__(self) -> str:
        raise TypeError("LaplaceAnswers is neither copied nor pickled: a copy would answer for free")

    def answer(self, exact: NDArray[np.int64], described: bytes) -> NDArray[np.int64]:
        """Return noisy answers to a batch of queries.

        Args:
            exact: the exact answers, whole numbers.
            described: bytes that identify these queries: other queries must have other bytes.
        """
        values = whole_numbers(exact, "LaplaceAnswers")
        with self._turns:
            if self.asked + len(values) > self.queries:
                raise BudgetExceeded(
                    f"LaplaceAnswers: {self.asked + len(values)} queries asked, but epsilon was split for "
                    f"{self.queries}; state a larger number of queries beforehand"
                )
            self._chain = digest(self._chain, described, values)
            source = self._key.source("laplace answers", self.asked, self._chain)
            self.asked += len(values)
        return values + discrete_laplace(self.scale, len(values), source)


def per_query(epsilon: Fraction, delta: Fraction, queries: int) -> Fraction:
    """Return the ε of one of ``queries`` answers: ε/k, or for δ > 0 the largest that composes to (ε, δ)."""
    if not 0 <= delta < 1:
        raise ParameterError(f"LaplaceAnswers: delta must be at least 0 and below 1, got {show(delta)}")
    if delta == 0:
        return epsilon / queries
    from hushgram.accounting.composition import calibrated_run_epsilon

    return calibrated_run_epsilon(epsilon, delta, queries)
