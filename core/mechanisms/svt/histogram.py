"""Noise on every answer of a batch: the histogram form of a stream of queries.

What is released: f_i + Z_i for every query i, and with it "is f_i at least T?", without a cutoff.

The queries of a batch are public, so it is known in how many of them one contribution can count: h (`QueryPlan`). A
user with at most C contributions then moves the vector of all answers by at most C·h in L1, and the Laplace mechanism
with scale C·h/ε is ε-DP for all answers and their values together (Wang, Lecture 3, §3.3). For δ > 0 the noise is
discrete Gaussian where that is less, calibrated to the L2 norm (`hushgram.noise.gaussian`). The sparse vector technique
pays for c answers instead, each with noise of scale about c·Δ/ε: it is better where queries overlap much or c is small.

Let u ≥ 0 be the user's contributions by key (or record), ‖u‖₁ ≤ C, u_r ≤ L∞, and let query i count the set S_i, with
every r in at most h of the sets. The answers move by v_i = Σ_{r ∈ S_i} u_r:

    ‖v‖₁ = Σ_r u_r·#{i: r ∈ S_i} ≤ C·h
    ‖v‖₂² ≤ max_i v_i · ‖v‖₁ ≤ C²·h              for any sets
    ‖v‖₂² = Σ_r u_r²·#{i: r ∈ S_i} ≤ h·‖u‖₂²     where every S_i is one key

Kinds of queries add up: their answers are different coordinates, and a user is bounded once by key and once by record.
(√C·h is *not* a bound of ‖v‖₂: one query that counts C keys of a user moves by C.)

| symbol | here | meaning |
|---|---|---|
| T | ``threshold`` | public threshold |
| h | `QueryPlan.sensitivity` | most queries that one contribution counts in |
| C, L∞ | ``sensitivity`` | bounds of the vector of answers: L1, L∞ and L2 |
| b, σ | ``scale`` | scale of the noise |
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from hushgram.errors import ParameterError
from hushgram.mechanisms.laplace import MAX_ANSWER, check_scale
from hushgram.noise.entropy import digest
from hushgram.noise.noises import Noise, noise_of
from hushgram.numbers import Number, integer, rational, rational_delta, show
from hushgram.sensitivity import CONSTANT, PrivacyUnit, Sensitivity

__all__ = ["HistogramParams"]


@dataclass(frozen=True, init=False)
class HistogramParams:
    """Parameters of noise on every answer; ``sensitivity`` is that of the vector of all answers.

    >>> HistogramParams(epsilon=1, threshold=100, sensitivity=Sensitivity(8, 1)).scale
    Fraction(8, 1)
    """

    epsilon: Fraction
    delta: Fraction
    threshold: int
    sensitivity: Sensitivity

    def __init__(
        self, *, epsilon: Number, threshold: int, sensitivity: Sensitivity, delta: Number = 0
    ) -> None:
        owner, put = "HistogramParams", object.__setattr__
        put(self, "epsilon", rational(epsilon, "epsilon", owner))
        put(self, "delta", rational_delta(delta, owner))
        put(self, "threshold", integer(threshold, "threshold", owner, low=-MAX_ANSWER, high=MAX_ANSWER))
        if sensitivity == CONSTANT:
            raise ParameterError(f"{owner}: sensitivity must be that of answers which a unit moves")
        put(self, "sensitivity", replace(sensitivity, monotone=False))
        if not 0 < self.epsilon <= 1000:
            shown = show(self.epsilon)
            raise ParameterError(f"{owner}: epsilon must be above 0 and at most 1000, got {shown}")
        check_scale(self.sensitivity.l1 / self.epsilon, owner)
        _ = self._chosen

    @cached_property
    def _chosen(self) -> tuple[Noise, Fraction]:
        """The noise of least variance that gives (ε, δ), and its scale."""
        noises = [noise_of(name) for name in ("laplace", "gaussian")[: 2 if self.delta else 1]]
        found = [(one, one.scales((self.epsilon,), self.delta, self.sensitivity)[0]) for one in noises]
        return min(found, key=lambda one: one[0].variance(one[1]))

    @property
    def noise(self) -> Noise:
        """The noise on every answer: Laplace, or Gaussian where δ > 0 and it has the smaller variance."""
        return self._chosen[0]

    @property
    def scale(self) -> Fraction:
        """Its scale: b or σ."""
        return self._chosen[1]

    @property
    def spread(self) -> Fraction:
        """The variance of the noise, to compare with `NoiseScales.spread`."""
        return self.noise.variance(self.scale)

    def privacy_map(self) -> tuple[Fraction, Fraction]:
        """Return (ε, δ) of all answers together, from the noise that is used."""
        if self.noise.name == "laplace":
            return self.sensitivity.l1 / self.scale, Fraction(0)
        return self.epsilon, self.noise.privacy_map((self.scale,), self.epsilon, self.sensitivity)

    def calibrated(self, unit: PrivacyUnit) -> Sensitivity:
        """Return the sensitivity that the noise is calibrated for."""
        return replace(self.sensitivity, unit=unit)

    @cached_property
    def fingerprint(self) -> bytes:
        """A digest of the parameters, for the derivation of noise."""
        return digest(repr(self.describe()))

    def describe(self) -> dict[str, object]:
        """Return the public parameters as JSON values, exact numbers as text: part of the output's header."""
        moved = self.sensitivity
        return {
            "epsilon": show(self.epsilon),
            "delta": show(self.delta),
            "threshold": self.threshold,
            "sensitivity": {
                "l1": moved.l1, "l_infinity": moved.max_per_key, "l2_squared": moved.l2_squared
            },
            "noise": {"form": "histogram", "law": self.noise.name, "scale": show(self.scale)},
        }  # fmt: skip

    def error(self, queries: int, beta: Number) -> int:
        """Return α: with probability 1 − β no answer is further from the exact one, by a union bound."""
        fail = float(rational(beta, "beta", "HistogramParams")) / max(queries, 1)
        return math.ceil(self.noise.law(float(self.scale)).radius(1 - fail))
