"""Exact distributions of the selection mechanisms, in floats: P[candidate r is chosen] for given scores and rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DISTRIBUTIONS", "exponential", "noisy_max", "permute_and_flip"]


def permute_and_flip(scores: Sequence[int], rate: float) -> list[float]:
    """P[candidate r is chosen] (McKenna, Sheldon 2020, Proposition 1).

    p_r · Σ over subsets S of the others of (−1)^|S|/(|S| + 1) · Π_{i∈S} p_i, p_i = exp(−rate(s* − s_i)).
    """
    high = max(scores)
    chances = [math.exp(-rate * (high - s)) for s in scores]
    out = []
    for r, chance in enumerate(chances):
        others = chances[:r] + chances[r + 1 :]
        terms = (
            (-1) ** size / (size + 1) * math.fsum(math.prod(subset) for subset in combinations(others, size))
            for size in range(len(others) + 1)
        )
        out.append(chance * math.fsum(terms))
    return out


def exponential(scores: Sequence[float], rate: float) -> list[float]:
    """P[candidate r is chosen]."""
    high = max(scores)
    weights = [math.exp(-rate * (high - s)) for s in scores]
    whole = math.fsum(weights)
    return [weight / whole for weight in weights]


def noisy_max(scores: Sequence[int], rate: float) -> list[float]:
    """P[candidate r is chosen], summed over the noise of r."""
    reach = int(40 / rate) + max(scores) - min(scores) + 1
    at = np.arange(min(scores) - reach, max(scores) + reach + 1)
    q = np.exp(-rate)

    def below(z: NDArray[np.int64]) -> Any:
        """P[Z < z]."""
        return np.where(z <= 0, q ** np.abs(1 - z) / (1 + q), 1 - q ** np.abs(z) / (1 + q))

    out = []
    for r, score in enumerate(scores):
        chance = (1 - q) / (1 + q) * q ** np.abs(at - score)
        for i, other in enumerate(scores):
            if i != r:
                chance = chance * below(at - other + (i > r))
        out.append(float(chance.sum()))
    return out


DISTRIBUTIONS: dict[str, Callable[[Sequence[int], float], list[float]]] = {
    "permute_and_flip": permute_and_flip,
    "exponential": exponential,
    "noisy_max": noisy_max,
}
