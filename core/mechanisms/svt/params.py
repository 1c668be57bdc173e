"""Sparse vector: parameters, noise scales and the privacy map.

What is released: for a stream of queries f_1, f_2, ... with integer answers, each of which one user changes
by at most Δ, one bit per query, "is f_i at least T?", until ``cutoff`` of them were answered yes (⊤); then
the stream halts. Each ⊤ may carry its gap f_i + ν_i − T̂, and f_i with fresh noise.

The guarantee, for noise of scales b₁ (threshold), b₂ (query) and b₃ (value), with m = 1 for monotone queries (all
answers move the same way between neighbours, as counts do under add/remove) and 2 otherwise:

    one threshold:        ε = Δ/b₁ + c·mΔ/b₂ + c·Δ/b₃                (Lyu, Su, Li 2017, Theorems 2 and 4)
    redrawn threshold:    c runs, each ε' = Δ/b₁ + mΔ/b₂ (+ Δ/b₃)    (Kamath, Lecture 9, Theorems 1 and 3)

The c runs compose to c·ε' (δ = 0), or by the exact composition of pure mechanisms (Kairouz, Oh, Viswanath
2015, Theorem 3) for δ > 0. Gaps cost nothing in either form (Ding, Wang, Zhang, Kifer 2019, Theorem 2): the
shift of ν_i that keeps a ⊤ also keeps its gap.

**One-sided noise** (variant optimal; Liu et al. 2024, PVLDB 18(2)). ρ and ν are geometric on {0, 1, …} instead of
discrete Laplace: half the variance at the same scales and the same ε. *Proof.* Let f, f' be the answers on neighbours
D, D', and map the noise of an output on D to noise of the same output on D': ρ' = ρ + Δ, and for each ⊤
ν' = ν + Δ + f_i − f'_i. Every ⊥ stays one, as f'_i ≤ f_i + Δ, and so do every ⊤ and its gap. All noise moves *up*, by Δ
in ρ and by s from 0 to 2Δ in ν, so it stays in the support, where P[ρ] = e^(Δ/b₁)·P[ρ + Δ], P[ν] = e^(s/b₂)·P[ν + s]
and, for x below 0 as well, P[ν ≥ x] ≤ e^(s/b₂)·P[ν ≥ x + s]. Monotone queries: where all f' ≥ f, ν moves by at most Δ;
where all f' ≤ f, take ρ' = ρ and ν' = ν + f_i − f'_i ≤ ν + Δ. Fresh noise of values is two-sided. Threshold noise that
is one-sided *downwards* is not private: its ⊥ is impossible for f_i ≥ T. The means of ρ and ν are public: T̂ is shifted
by their difference, and by a ``margin``, which may be any public number.

| symbol | here                  | meaning                                                       |
|--------|-----------------------|---------------------------------------------------------------|
| T      | ``threshold``         | public threshold                                              |
| c      | ``cutoff``            | yes-answers after which the stream halts                      |
| Δ      | ``sensitivity``       | most that one user changes one answer                         |
| ρ, b₁  | ``NoiseScales.threshold``   | noise of the threshold, T̂ = T + margin + shift + ρ            |
| ν, b₂  | ``NoiseScales.query``       | noise of a query                                              |
| b₃     | ``NoiseScales.value``       | fresh noise of a released value                               |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from hushgram.errors import ParameterError
from hushgram.mechanisms.laplace import MAX_ANSWER, check_scale
from hushgram.noise.entropy import digest
from hushgram.noise.intervals import enclose, ratio_interval
from hushgram.numbers import Number, boolean, choice, integer, rational, rational_delta, show
from hushgram.sensitivity import ANY, PrivacyUnit, Sensitivity

__all__ = [
    "ANSWERS",
    "VARIANTS",
    "NoiseScales",
    "SvtParams",
    "margin_for",
    "noise_for",
    "privacy_map",
    "run_loss",
]

ANSWERS = ("none", "gap", "numeric")
VARIANTS = ("optimal", "dwork-roth")

# Scales and splits that are irrational in the papers are put on these grids; a scale is always rounded up.
_SPLIT_GRID = 1 << 12
_SCALE_GRID = 1 << 20


@dataclass(frozen=True, init=False)
class SvtParams:
    """Parameters of a stream; checked when built, so that data never decide whether it fails.

    Neighbours: one user added or removed; ``sensitivity`` is the most that this changes any one answer, and
    ``monotone`` says that no two answers ever move in opposite directions.

    >>> SvtParams(epsilon="1", threshold=1000, cutoff=20).noise.redraw
    False
    """

    epsilon: Fraction
    delta: Fraction
    threshold: int
    cutoff: int
    sensitivity: int
    monotone: bool
    variant: str
    answers: str
    value_share: Fraction
    margin: int

    def __init__(
        self,
        *,
        epsilon: Number,
        threshold: int,
        cutoff: int = 1,
        delta: Number = 0,
        sensitivity: int = 1,
        monotone: bool = False,
        variant: str = "optimal",
        answers: str = "none",
        value_share: Number = Fraction(1, 2),
        margin: int = 0,
    ) -> None:
        owner = "SvtParams"
        put = object.__setattr__
        put(self, "epsilon", rational(epsilon, "epsilon", owner))
        put(self, "delta", rational_delta(delta, owner))
        put(self, "threshold", integer(threshold, "threshold", owner, low=-MAX_ANSWER, high=MAX_ANSWER))
        put(self, "cutoff", integer(cutoff, "cutoff", owner, low=1, high=20_000))
        put(self, "sensitivity", integer(sensitivity, "sensitivity", owner, low=1, high=10**9))
        put(self, "monotone", boolean(monotone, "monotone", owner))
        put(self, "variant", choice(variant, "variant", owner, VARIANTS))
        put(self, "answers", choice(answers, "answers", owner, ANSWERS))
        share = value_share if answers == "numeric" else 0
        put(self, "value_share", rational(share, "value_share", owner))
        put(self, "margin", integer(margin, "margin", owner, low=0, high=MAX_ANSWER))
        self._check()

    def _check(self) -> None:
        if not 0 < self.epsilon <= 1000:
            raise ParameterError(
                f"SvtParams: epsilon must be above 0 and at most 1000, got {show(self.epsilon)}"
            )
        if self.answers == "numeric" and not 0 < self.value_share < 1:
            raise ParameterError(
                f"SvtParams: value_share must be above 0 and below 1, got {show(self.value_share)}"
            )
        if self.margin and self.variant == "dwork-roth":
            raise ParameterError("SvtParams: variant dwork-roth has no margin; take variant optimal")
        noise = noise_for(self)  # a δ outside the validity of its constant shows here
        for scale in (noise.threshold, noise.query, noise.value or Fraction(1)):
            check_scale(scale, "SvtParams")

    def calibrated(self, unit: PrivacyUnit) -> Sensitivity:
        """Return the sensitivity that the noise is calibrated for: of one answer, whatever their number."""
        return Sensitivity(ANY, self.sensitivity, unit, monotone=self.monotone)

    @cached_property
    def noise(self) -> NoiseScales:
        """The noise scales of these parameters."""
        return noise_for(self)

    @cached_property
    def fingerprint(self) -> bytes:
        """A digest of the parameters, for the derivation of noise."""
        return digest(repr(self.describe()))

    def describe(self) -> dict[str, object]:
        """Return the public parameters as JSON values, exact numbers as text: part of the output's header."""
        noise = self.noise
        return {
            "epsilon": show(self.epsilon),
            "delta": show(self.delta),
            "threshold": self.threshold,
            "cutoff": self.cutoff,
            "sensitivity": self.sensitivity,
            "monotone": self.monotone,
            "variant": self.variant,
            "answers": self.answers,
            "margin": self.margin,
            "noise": {
                "form": noise.form,
                "sides": 1 if noise.one_sided else 2,
                "shift": noise.shift,
                "threshold_redrawn": noise.redraw,
                "threshold_scale": show(noise.threshold),
                "query_scale": show(noise.query),
                **({} if noise.value is None else {"value_scale": show(noise.value)}),
            },
        }


@dataclass(frozen=True)
class NoiseScales:
    """Scales of noise, and whether T̂ is drawn again after each ⊤.

    ``form`` names how they were found: "notes", "split" (one threshold) or "restarts" (calibrated runs). Noise of
    threshold and queries is geometric where ``one_sided``, else discrete Laplace; that of values is discrete Laplace.
    """

    form: str
    threshold: Fraction
    query: Fraction
    value: Fraction | None
    redraw: bool
    one_sided: bool = False

    @property
    def shift(self) -> int:
        """The mean of ν − ρ, about, by which T̂ is moved: public."""
        return round(self.query - self.threshold) if self.one_sided else 0

    @property
    def spread(self) -> Fraction:
        """The variance of ν − ρ, about: b₁² + b₂², or twice that where noise is two-sided.

        It is least at the optimal split (Lyu, Su, Li 2017, §4.2).
        """
        return (self.threshold**2 + self.query**2) * (1 if self.one_sided else 2)


def margin_for(params: SvtParams, queries: int) -> int:
    """Return a margin with which noise alone causes at most c/10 answers ⊤ among ``queries`` whose exact answer is 0.

    Without it a stream of many small counts would be halted by noise. k·P[ν − ρ ≥ T + shift + margin] = c/10 with
    P[ν − ρ ≥ t] = e^(−t/b₂)·b₂/(b₁ + b₂), about.

    >>> margin_for(SvtParams(epsilon=1, threshold=200, cutoff=50, monotone=True), 10_000)
    157
    """
    noise = params.noise
    if not noise.one_sided:
        return 0
    false = float(10 * max(queries, 1) * noise.query / (params.cutoff * (noise.threshold + noise.query)))
    reach = math.ceil(float(noise.query) * math.log(max(false, 1.0)))
    return max(reach - params.threshold - noise.shift, 0) if params.threshold >= 0 else 0


def _moves(monotone: bool) -> int:
    """Return how far ν_i must shift, in units of Δ, to keep a ⊤ when T̂ shifts by Δ too."""
    return 1 if monotone else 2


def run_loss(noise: NoiseScales, sensitivity: int, monotone: bool) -> Fraction:
    """Return the privacy loss of one run up to and including its first ⊤, its value included (Lecture 9, Theorem 1)."""
    loss = sensitivity / noise.threshold + _moves(monotone) * sensitivity / noise.query
    return loss if noise.value is None else loss + sensitivity / noise.value


def privacy_map(noise: NoiseScales, *, sensitivity: int, cutoff: int, monotone: bool) -> Fraction:
    """Return ε of the whole stream at δ = 0, exactly: the privacy map.

    >>> one = NoiseScales("notes", Fraction(4), Fraction(8), None, True)
    >>> privacy_map(one, sensitivity=1, cutoff=2, monotone=False)
    Fraction(1, 1)
    """
    if noise.redraw:
        return cutoff * run_loss(noise, sensitivity, monotone)
    loss = sensitivity / noise.threshold + cutoff * _moves(monotone) * sensitivity / noise.query
    return loss if noise.value is None else loss + cutoff * sensitivity / noise.value


@lru_cache(maxsize=1024)
def noise_for(params: SvtParams) -> NoiseScales:
    """Return the noise scales that give (``epsilon``, ``delta``); the share of the values is taken off first."""
    svt = params.epsilon * (1 - params.value_share), params.delta * (1 - params.value_share)
    values = params.epsilon * params.value_share, params.delta * params.value_share
    value_scale = _value_scale(params, *values) if params.answers == "numeric" else None
    if params.variant == "dwork-roth":
        return _notes(params, *svt, value_scale)
    best = _split("split", params, svt[0], params.cutoff, value_scale)
    if svt[1] > 0:
        runs = _restarts(params, *svt, value_scale)
        best = min(best, runs, key=lambda noise: noise.spread)
    return best


def _notes(params: SvtParams, epsilon: Fraction, delta: Fraction, value: Fraction | None) -> NoiseScales:
    """Return the scales of Lecture 9, Figure 2: T̂ redrawn, σ for the threshold, 2σ for the queries."""
    if delta == 0:
        sigma = 2 * params.cutoff * params.sensitivity / epsilon
    else:
        _check_notes(epsilon, delta)
        sigma = params.sensitivity * 2 / _notes_run_epsilon(params.cutoff, epsilon, delta)
    return NoiseScales("notes", sigma, 2 * sigma, value, redraw=True)


def _check_notes(epsilon: Fraction, delta: Fraction) -> None:
    """Refuse ε > 4 ln(1/δ), where the constant √(32 c ln(1/δ)) does not hold (lecture notes, proof on Sparse)."""
    bound = 4 * _log_inverse(delta)
    if epsilon > bound:
        raise ParameterError(
            f"SvtParams: variant dwork-roth needs epsilon <= 4 ln(1/delta) = {float(bound):.4g}, got epsilon "
            f"{show(epsilon)} with delta {show(delta)}; lower delta or take variant optimal"
        )


def _notes_run_epsilon(cutoff: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return ε' = ε/√(8 c ln(1/δ)), rounded down: σ = 2Δ/ε' = Δ√(32 c ln(1/δ))/ε."""

    def root(iv: Any) -> Any:
        return iv.sqrt(-8 * cutoff * iv.log(ratio_interval(iv, delta)))

    high = enclose(root, 192)[1]
    up = Fraction(-(-high * _SCALE_GRID // 1), _SCALE_GRID)
    return epsilon / up


def _log_inverse(delta: Fraction) -> Fraction:
    """Return ln(1/δ), rounded down."""
    return enclose(lambda iv: -iv.log(ratio_interval(iv, delta)), 192)[0]


def _split(form: str, params: SvtParams, epsilon: Fraction, runs: int, value: Fraction | None) -> NoiseScales:
    """Split ε of a threshold and ``runs`` ⊤ as ε₁ : ε₂ = 1 : (m·runs)^(2/3) (Lyu, Su, Li 2017, §4.2), on the grid."""
    moves = _moves(params.monotone) * runs
    first = Fraction(max(1, round(_SPLIT_GRID / (1 + moves ** (2 / 3)))), _SPLIT_GRID) * epsilon
    scale = Fraction(params.sensitivity)
    query = moves * scale / (epsilon - first)
    return NoiseScales(form, scale / first, query, value, redraw=form == "restarts", one_sided=True)


def _restarts(params: SvtParams, epsilon: Fraction, delta: Fraction, value: Fraction | None) -> NoiseScales:
    """Calibrate c runs of AboveThreshold, each split optimally; never wider than Figure 2's (δ > 0)."""
    from hushgram.accounting.composition import calibrated_run_epsilon

    run = calibrated_run_epsilon(epsilon, delta, params.cutoff)
    if epsilon <= 4 * _log_inverse(delta):
        run = max(run, _notes_run_epsilon(params.cutoff, epsilon, delta))
    return _split("restarts", params, run, 1, value)


def _value_scale(params: SvtParams, epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the scale of c fresh Laplace draws from their own share of the budget (NumericSparse)."""
    each = epsilon / params.cutoff
    if delta > 0:
        if params.variant == "dwork-roth":
            _check_notes(epsilon, delta)
            each = _notes_run_epsilon(params.cutoff, epsilon, delta)
        else:
            from hushgram.accounting.composition import calibrated_run_epsilon

            each = calibrated_run_epsilon(epsilon, delta, params.cutoff)
    return params.sensitivity / each
