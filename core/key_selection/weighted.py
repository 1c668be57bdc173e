"""Key selection by weights: name the keys that many users have, with noise that does not grow with keys per user.

**One round** (Gopi et al. 2020, "Differentially Private Set Union"; Korolova et al. 2009). A user with d distinct
keys, at most Δ of them, adds the weight w_d = ⌊2^g/√d⌋ to each: d·w_d² ≤ 4^g, so the L2 sensitivity of the vector W
of summed weights over all possible keys is 2^g whatever d is. Every key of the data gets discrete Gaussian noise N of
scale σ, and is selected where W + N ≥ ρ. The comparison is "at least", here and in every formula.

**Two rounds** (after DP-SIPS, Swanberg et al. 2023). A first round with a small part of the budget gives every key a
noisy weight M = W + N. In the second round a user leaves out keys that are selected already, and keys with M < θ,
which would hardly be selected; what is left is bounded to Δ keys again and weighed anew, so that the keys in the
middle get what the others no longer need. Selected is what either round selects.

**Guarantee.** Let neighbours differ by one user, and call a key *new* if no other user has it. M over all possible keys
is a Gaussian mechanism; the second round, given M, is another one. A selected set differs from post-processing of these
two only by the condition that a key is in the data, so only where a new key is selected. A user has at most d ≤ Δ new
keys in a round, each of weight w_d, and some new key is selected with probability at most

    π(ρ, σ) = max over d ≤ Δ of 1 − (1 − P[N ≥ ρ − w_d])^d.

Hence the release is (ε, δ_G(ε) + Σ π_i)-DP, where δ_G is the privacy map of all Gaussian vectors of the release
together (`hushgram.noise.gdp`; it covers that a round follows from the one before). Where there is one round only, a
sharper bound holds: see `joint_holds`.

P[N ≥ t] ≤ Q((t − 1)/σ) for t ≥ 1: Σ_{z ≥ t} e^(−z²/2σ²) is at most the integral from t − 1 on, and the sum over all
of ℤ is at least σ√2π. With weights in units of 2^−g the −1 is negligible.

| symbol | meaning |
|---|---|
| g | `GRID_BITS`: weights are whole multiples of 2^−g of a user |
| Δ | ``max_keys``: how many keys of a user are weighed |
| W, N, M | exact weight of a key, its noise, and both together |
| ρ, θ | ``threshold`` and ``hopeless``, in units of weight |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.noise.gdp import (
    BITS,
    NoisyVector,
    Vectors,
    compares,
    discrete_factor,
    gdp_mu_squared,
    mu_delta,
    normal_tail,
    smallest,
)  # fmt: skip
from hushgram.noise.intervals import enclose, ratio_interval
from hushgram.numbers import integer, rational, show
from hushgram.sensitivity import PrivacyUnit, Sensitivity

__all__ = [
    "GRID_BITS", "MAX_KEYS", "WHOLE", "Round", "joint_delta", "joint_holds", "least_joint_threshold", "least_threshold",
    "new_key_delta", "user_weights", "weight_sensitivity",
]  # fmt: skip

#: Weights are multiples of 2^-GRID_BITS of what one user with one key gives it.
GRID_BITS = 12
#: The weight that one user with one key gives it.
WHOLE = 1 << GRID_BITS
#: The most keys of a user that can be weighed.
MAX_KEYS = 1 << 16
_MAX_SCALE = 1 << 34


@dataclass(frozen=True)
class Round:
    """The public numbers of one round: noise scale σ and threshold ρ, both in units of weight."""

    scale: Fraction
    threshold: int

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready form."""
        return {"scale": show(self.scale), "threshold": self.threshold}

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any]) -> Round:
        """Return the round that `to_dict` wrote; raise ParameterError where a number is out of range."""
        scale = rational(stated["scale"], "scale", "Round")
        if not WHOLE // 256 <= scale <= _MAX_SCALE:
            raise ParameterError(f"Round: scale must be from {WHOLE // 256} to 2^34, got {show(scale)[:60]}")
        return cls(scale, integer(stated["threshold"], "threshold", "Round", low=1, high=1 << 50))


def user_weights(max_keys: int) -> NDArray[np.int64]:
    """Return ⌊2^g/√d⌋ for d = 0 … ``max_keys``; at 0 it is 0.

    >>> user_weights(4).tolist()
    [0, 4096, 2896, 2364, 2048]
    """
    return np.array([0, *(isqrt(WHOLE * WHOLE // d) for d in range(1, max_keys + 1))], dtype=np.int64)


def weight_sensitivity(max_keys: int, unit: PrivacyUnit = "user") -> Sensitivity:
    """Return how far one user moves the summed weights: 2^g in L2, √Δ·2^g in L1, at most Δ keys."""
    return Sensitivity(
        isqrt(max_keys * WHOLE * WHOLE), WHOLE, unit, l2_bound=WHOLE * WHOLE, l0_bound=max_keys
    )


# --- privacy maps -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def new_key_delta(threshold: int, scale: Fraction, max_keys: int) -> Fraction:
    """Privacy map: return an upper bound of π, the probability that a round selects a key that one user alone has."""
    return max(_worst_blocks(threshold, scale, 1, max_keys))


def _worst_blocks(threshold: int, scale: Fraction, low: int, high: int) -> list[Fraction]:
    """Return bounds of 1 − (1 − P[N ≥ ρ − w_d])^d over ranges of d that together are ``low`` … ``high``.

    Within a range the weight is largest at its lower end and the exponent at its upper end. A range is halved while
    that is worth it: until it bounds no more than a single d inside it reaches by a thousandth.
    """
    out, todo, best = [], [(low, high)], Fraction(0)
    while todo:
        first, last = todo.pop()
        bound = _passing(threshold, scale, first, last)
        if first < last and bound > best * 1001 / 1000:
            middle = (first + last) // 2
            best = max(best, _passing(threshold, scale, middle, middle))
            todo += [(first, middle), (middle + 1, last)]
        else:
            out.append(bound)
    return out


def _passing(threshold: int, scale: Fraction, weighed: int, keys: int) -> Fraction:
    """Return an upper bound of the chance that any of ``keys`` new keys with weight w_``weighed`` is selected."""
    passes = _passes(threshold, scale, weighed)
    return enclose(lambda iv: _any_of(iv, passes(iv), keys), BITS)[1]


def _passes(threshold: int, scale: Fraction, weighed: int) -> Any:
    """Return a function that encloses an upper bound of P[N ≥ ρ − w_d], the chance that one new key is selected."""
    away = threshold - isqrt(WHOLE * WHOLE // weighed) - 1
    if away < 0:
        return lambda iv: iv.mpf(1)
    return lambda iv: normal_tail(iv, ratio_interval(iv, away / scale))


@lru_cache(maxsize=256)
def least_threshold(delta: Fraction, scale: Fraction, max_keys: int) -> int:
    """Return the smallest ρ whose π is at most ``delta``."""
    return smallest(lambda rho: new_key_delta(rho, scale, max_keys) <= delta, _guess(delta, scale, max_keys))


def _guess(delta: Fraction, scale: Fraction, max_keys: int) -> int:
    from statistics import NormalDist

    tail = NormalDist().inv_cdf(max(float(delta), 1e-300) / max_keys)
    return max(int(WHOLE / math.sqrt(max_keys) - tail * float(scale)), 1)


@lru_cache(maxsize=256)
def joint_holds(
    threshold: int,
    scale: Fraction,
    max_keys: int,
    epsilon: Fraction,
    delta: Fraction,
    others: Vectors = (),
) -> bool:
    """Privacy map of one round and other Gaussian vectors: return whether they are (``epsilon``, ``delta``)-DP
    together.

    See `joint_delta`: p = P[N < ρ − w_t], and δ is the maximum over t ≤ Δ and a ≤ t. In a second round
    the number of new keys would depend on what the first one released, and π has to be added there.
    """
    todo = [(1, max_keys, 0, max_keys)]
    while todo:  # ranges of t and of a; a range is halved while its bound is too high
        first, last, fewest, most = todo.pop()
        if fewest > last:
            continue
        if _joint_bound(threshold, scale, (first, last), (fewest, min(most, last)), epsilon, others) <= delta:
            continue
        if last - first >= most - fewest and last > first:
            middle = (first + last) // 2
            todo += [(first, middle, fewest, most), (middle + 1, last, fewest, most)]
        elif most > fewest:
            middle = (fewest + most) // 2
            todo += [(first, last, fewest, middle), (first, last, middle + 1, most)]
        else:
            return False
    return True


def _joint_bound(
    threshold: int,
    scale: Fraction,
    keys: tuple[int, int],
    new: tuple[int, int],
    epsilon: Fraction,
    others: Vectors,
) -> Fraction:
    """Return an upper bound of both lines over a range of t and of a.

    At the lower end of t a new key has the largest weight; (t − a)·w_t² ≤ (1 − a/t)·4^g.
    """
    shared = NoisyVector(scale, Fraction(WHOLE * WHOLE * (keys[1] - new[0]), keys[1]), keys[1])
    return joint_delta(_passes(threshold, scale, keys[0]), new, (shared, *others), epsilon)


@lru_cache(maxsize=256)
def least_joint_threshold(
    delta: Fraction, scale: Fraction, max_keys: int, epsilon: Fraction, others: Vectors = ()
) -> int:
    """Return about the smallest ρ that makes one round and the other vectors (``epsilon``, ``delta``)-DP together."""

    def holds(rho: int) -> bool:
        return joint_holds(rho, scale, max_keys, epsilon, delta, others)

    high = least_threshold(delta * 99 / 100, scale, max_keys)
    step = max(int(scale) // 256, 1)
    while not holds(high):  # the noise alone leaves less than 1 % of δ, or a mixture is worse than either
        high, step = high + step, 2 * step
        if high > 64 * scale + WHOLE:
            raise ParameterError(
                "key selection: the noise is too small for epsilon and delta, whatever the threshold"
            )
    return high


# Below 2^−40, 1 − (1 − q)^d and d·q are equal for every use, and only the second keeps its digits.
_TINY = 40


def _any_of(iv: Any, chance: Any, keys: int) -> Any:
    """Enclose 1 − (1 − chance)^keys; by its upper bound keys·chance where that keeps all digits."""
    return keys * chance if chance.b < iv.mpf(2) ** -_TINY else 1 - (1 - chance) ** keys


def joint_delta(
    passes: Callable[[Any], Any], new: tuple[int, int], vectors: Vectors, epsilon: Fraction
) -> Fraction:
    """Return an upper bound of one δ for noise and threshold, with from ``new[0]`` to ``new[1]`` new keys.

    A key of a user costs the noise or the threshold, never both. Adding the δ of Gaussian noise and the δ of a
    threshold counts a user twice: new keys, which nobody else has, cost the threshold, shared keys cost the noise,
    and a key is one or the other (Wilkins, Kifer, Zhang, Karrer 2024). Of t keys of a user let a be new, p = P[a
    new key is not listed], and μ² that of the t − a shared keys and of every other Gaussian vector of the release.
    No new key is listed with probability p^a, independently of all else, and then the output is that of the
    Gaussian mechanism on the shared keys. So for the user added and removed

        δ ≥ (1 − p^a) + p^a·D(ε − a·ln p, μ)      and      δ ≥ D(ε + a·ln p, μ),

    with D of `hushgram.noise.gdp`, and δ is the maximum over t and a ≤ t. How many keys are new must not depend on
    anything released.

    *Proof.* With G and G' for the Gaussian mechanism on the shared keys and other vectors, with the user and
    without, the output is in S with probability at most (1 − p^a) + p^a·G(S), at least p^a·G(S) with the user, and
    G'(S) without. Put G(S) ≤ e^(ε − a·ln p)·G'(S) + D(ε − a·ln p, μ) into the first, and G'(S) ≤ e^(ε + a·ln
    p)·G(S) + D(ε + a·ln p, μ) into the second. The first bound is sup over S of 1 − p^a·(1 − G(S)) − e^ε·G'(S), so
    a smaller p never lowers it.

    Args:
        passes: encloses 1 − p, the chance that one new key is listed, or an upper bound of it.
        new: the least and the largest a.
        vectors: the shared keys, of which there are most at the least a, and all other vectors.
        epsilon: where δ is asked for.
    """
    if not compares(vectors):
        return Fraction(1)
    mu_squared = gdp_mu_squared(vectors)

    def bound(iv: Any) -> Any:
        factor, chance = discrete_factor(iv, vectors), passes(iv)
        if chance.b >= 1:
            return iv.mpf(1)
        at, loss = ratio_interval(iv, epsilon) - 2 * iv.log(factor), -iv.log(1 - chance)
        added = _any_of(iv, chance, new[1]) + factor * mu_delta(iv, at + new[0] * loss, mu_squared)
        removed = factor * mu_delta(iv, at - new[1] * loss, mu_squared)
        return iv.mpf([max(added.a, removed.a), max(added.b, removed.b)])

    return enclose(bound, BITS)[1]
