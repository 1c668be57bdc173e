"""One δ for noise and threshold: a key of a user costs the noise or the threshold, never both.

Adding the δ of Gaussian noise and the δ of a threshold counts a user twice: new keys, which nobody else has, cost the
threshold, shared keys cost the noise, and a key is one or the other (Wilkins, Kifer, Zhang, Karrer 2024). Of t keys of
a user let a be new, p = P[a new key is not listed], and μ² that of the t − a shared keys and of every other Gaussian
vector of the release. No new key is listed with probability p^a, independently of all else, and then the output is that
of the Gaussian mechanism on the shared keys. So for the user added and removed

    δ ≥ (1 − p^a) + p^a·D(ε − a·ln p, μ)      and      δ ≥ D(ε + a·ln p, μ),

with D of `hushgram.noise.gdp`, and δ is the maximum over t and a ≤ t. How many keys are new must not depend on anything
released.

*Proof.* With G and G' for the Gaussian mechanism on the shared keys and other vectors, with the user and without, the
output is in S with probability at most (1 − p^a) + p^a·G(S), at least p^a·G(S) with the user, and G'(S) without. Put
G(S) ≤ e^(ε − a·ln p)·G'(S) + D(ε − a·ln p, μ) into the first, and G'(S) ≤ e^(ε + a·ln p)·G(S) + D(ε + a·ln p, μ)
into the second. The first bound is sup over S of 1 − p^a·(1 − G(S)) − e^ε·G'(S), so a smaller p never lowers it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from hushgram.noise.gdp import BITS, Vectors, compares, discrete_factor, gdp_mu_squared, mu_delta
from hushgram.noise.intervals import enclose, ratio_interval

__all__ = ["any_of", "joint_delta"]

# Below 2^−40, 1 − (1 − q)^d and d·q are equal for every use, and only the second keeps its digits.
_TINY = 40


def any_of(iv: Any, chance: Any, keys: int) -> Any:
    """Enclose 1 − (1 − chance)^keys; by its upper bound keys·chance where that keeps all digits."""
    return keys * chance if chance.b < iv.mpf(2) ** -_TINY else 1 - (1 - chance) ** keys


def joint_delta(
    passes: Callable[[Any], Any], new: tuple[int, int], vectors: Vectors, epsilon: Fraction
) -> Fraction:
    """Return an upper bound of both lines where the number of new keys is from ``new[0]`` to ``new[1]``.

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
        added = any_of(iv, chance, new[1]) + factor * mu_delta(iv, at + new[0] * loss, mu_squared)
        removed = factor * mu_delta(iv, at - new[1] * loss, mu_squared)
        return iv.mpf([max(added.a, removed.a), max(added.b, removed.b)])

    return enclose(bound, BITS)[1]
