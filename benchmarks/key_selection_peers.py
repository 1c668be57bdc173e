"""Other ways to select keys, for `benchmarks.users`, each with all of ε and δ on selection and at its best bound.

| here | calibrated as |
|---|---|
| `weighted_gaussian` | Gopi et al. 2020, "Differentially Private Set Union", and the authors' code: weights 1/√d, analytic Gaussian noise for (ε, δ/2), threshold max over d of 1/√d + σ·Φ⁻¹((1 − δ/2)^(1/d)) |
| `dp_sips` | Swanberg et al. 2023, "DP-SIPS": three rounds of the same, without the keys that were selected, each with more budget than the one before. By how much was not read from the paper: three times is close to 1/0.3, the default of an implementation by Google, and larger factors, which select more keys, are measured beside it. Published with zero-concentrated DP; here the three Gaussian vectors are one, with their exact privacy profile at (ε, δ/2), which is better for them |
| `opendp_threshold` | OpenDP's own privacy map: `make_laplace_threshold` and `make_gaussian_threshold` on distinct users per key, at most C keys per user; for Gaussian noise half of δ goes to the threshold |
| `tumult_threshold` | Tumult Core's `GeometricPartitionSelection`: scale C/ε, δ = C·e^ε·P[N ≥ τ − 1] for C > 1 and P[N ≥ τ − 1] for C = 1 |

Real numbers and numpy's generator are enough here: these are measured, not used.
"""  # noqa: E501

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

__all__ = ["Pairs", "count_threshold", "dp_sips", "gaussian_sigma", "opendp_threshold", "tumult_threshold",
           "weighted_gaussian"]  # fmt: skip

Ints = NDArray[np.int64]
_NORMAL = NormalDist()
_SIPS_ROUNDS = 3


@dataclass(frozen=True)
class Pairs:
    """Distinct pairs of user and key, sorted by user; both are numbers from 0 on."""

    users: Ints
    keys: Ints

    @classmethod
    def of(cls, users: Ints, keys: Ints) -> Pairs:
        """Return the distinct pairs of these rows."""
        distinct = np.unique(users.astype(np.int64) * (int(keys.max()) + 1) + keys)
        return cls(*np.divmod(distinct, int(keys.max()) + 1))

    def bounded(self, max_keys: int, rng: np.random.Generator) -> Pairs:
        """Return at most ``max_keys`` keys of each user, chosen at random."""
        order = np.lexsort((rng.random(len(self.users)), self.users))
        users = self.users[order]
        starts = np.flatnonzero(np.append(True, users[1:] != users[:-1]))
        rank = np.arange(len(users)) - np.repeat(starts, np.diff(np.append(starts, len(users))))
        kept = order[rank < max_keys]
        return Pairs(self.users[kept], self.keys[kept])

    def without(self, keys: Ints) -> Pairs:
        """Return the pairs with other keys than these."""
        kept = ~np.isin(self.keys, keys)
        return Pairs(self.users[kept], self.keys[kept])

    def weights(self) -> NDArray[np.float64]:
        """Return the summed weights of keys, where a user with d keys gives each 1/√d."""
        each = 1 / np.sqrt(np.bincount(self.users)[self.users])
        return np.bincount(self.keys, weights=each)

    def counts(self) -> Ints:
        """Return the users of each key."""
        return np.bincount(self.keys).astype(np.int64)


@lru_cache
def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Return the least σ of Gaussian noise that makes L2 sensitivity 1 (ε, δ)-DP (Balle, Wang 2018)."""

    def spent(sigma: float) -> float:
        below = math.exp(epsilon) * _NORMAL.cdf(-1 / (2 * sigma) - epsilon * sigma)
        return _NORMAL.cdf(1 / (2 * sigma) - epsilon * sigma) - below

    return _bisect(lambda sigma: spent(sigma) <= delta, 1e-2, 1e5)


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the least number between ``low`` and ``high`` where a condition holds that holds from there on."""
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def weighted_threshold(delta: float, sigma: float, max_keys: int) -> float:
    """Return the threshold that one user's own keys pass with probability at most δ, whatever their number."""
    return max(
        1 / math.sqrt(d) - sigma * _NORMAL.inv_cdf(-math.expm1(math.log1p(-delta) / d))
        for d in range(1, max_keys + 1)
    )


def _round(pairs: Pairs, max_keys: int, sigma: float, delta: float, rng: np.random.Generator) -> Ints:
    weights = pairs.bounded(max_keys, rng).weights()
    present = np.flatnonzero(weights)
    noisy = weights[present] + rng.normal(0, sigma, len(present))
    return present[noisy >= weighted_threshold(delta, sigma, max_keys)]


def weighted_gaussian(
    pairs: Pairs, max_keys: int, epsilon: float, delta: float, rng: np.random.Generator
) -> int:
    """Return how many keys one round of weighted Gaussian selects."""
    return len(_round(pairs, max_keys, gaussian_sigma(epsilon, delta / 2), delta / 2, rng))


def dp_sips(
    pairs: Pairs, max_keys: int, epsilon: float, delta: float, rng: np.random.Generator, growth: float = 3
) -> int:
    """Return how many keys the three rounds of DP-SIPS select, each with ``growth`` times the budget before."""
    shares = np.power(float(growth), np.arange(_SIPS_ROUNDS))
    whole = gaussian_sigma(epsilon, delta / 2)
    found = 0
    for share in shares / shares.sum():
        selected = _round(pairs, max_keys, whole / math.sqrt(share), delta / 2 * share, rng)
        found += len(selected)
        pairs = pairs.without(selected)
    return found


def count_threshold(
    pairs: Pairs, max_keys: int, noise: tuple[str, float], threshold: float, rng: np.random.Generator
) -> int:
    """Return how many keys have a noisy number of users of at least ``threshold``."""
    counts = pairs.bounded(max_keys, rng).counts()
    counts = counts[counts > 0]
    name, scale = noise
    if name == "geometric":
        stop = -math.expm1(-1 / scale)
        noisy = counts + rng.geometric(stop, len(counts)) - rng.geometric(stop, len(counts))
    else:
        drawn = rng.laplace if name == "laplace" else rng.normal
        noisy = counts + drawn(0, scale, len(counts))
    return int(np.count_nonzero(noisy >= threshold))


def tumult_threshold(max_keys: int, epsilon: float, delta: float) -> tuple[float, int]:
    """Return scale and threshold of Tumult's geometric noise."""
    scale = max_keys / epsilon
    allowed = delta if max_keys == 1 else delta / (max_keys * math.exp(epsilon))
    # P[N ≥ t] = e^(−t/scale)/(1 + e^(−1/scale)) for t ≥ 0
    tail = -scale * math.log(allowed * (1 + math.exp(-1 / scale)))
    return scale, math.ceil(tail) + 1


@lru_cache
def opendp_threshold(noise: str, max_keys: int, epsilon: float, delta: float) -> tuple[float, float]:
    """Return the least scale and threshold that OpenDP's privacy map allows for "laplace" or "gaussian" noise."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    counts = dp.map_domain(dp.atom_domain(T=dp.i64), dp.atom_domain(T=dp.f64, nan=False))
    metric = dp.l01inf_distance if noise == "laplace" else dp.l02inf_distance
    make = dp.m.make_laplace_threshold if noise == "laplace" else dp.m.make_gaussian_threshold
    moved = max_keys, float(max_keys) if noise == "laplace" else math.sqrt(max_keys), 1.0
    part = delta if noise == "laplace" else delta / 2

    def spent(scale: float, threshold: float) -> tuple[float, float]:
        measurement = make(counts, metric(dp.absolute_distance(T=dp.f64)), scale=scale, threshold=threshold)
        if noise == "laplace":
            loss, failed = measurement.map(moved)
            return loss, failed
        profile, failed = dp.c.make_zCDP_to_approxDP(measurement).map(moved)
        return profile.epsilon(delta - part), failed

    far = 1e3 * max_keys / epsilon
    scale = _bisect(lambda each: spent(each, far)[0] <= epsilon, 1e-2, 1e3 * max_keys)
    return scale, _bisect(lambda each: spent(scale, each)[1] <= part, 1.0 + 1e-6, far)
