"""Report noisy max with Laplace noise: the largest s_r + Z_r (Dwork, Roth 2014, Claim 3.9).

Z_r is discrete Laplace of scale 1/γ, and of equal sums the first wins. Privacy: fix the noise of the others;
candidate r wins iff Z_r ≥ t for a whole number t, which one user moves by at most 2Δ, or by Δ if all scores
move the same way, and the tail P[Z ≥ t] moves by at most the factor e^γ for each unit: so 2γΔ, or γΔ.

Beside it: permute-and-flip is the same with exponential noise, which has the same upper tail and half the variance.
Over random small cases its expected error is 0.61 of this one's on average, though not in each (`python -m
benchmarks.answers max`). This form is here because it is the textbook's, and because c choices need only one draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.noise.entropy import BitSource
from hushgram.noise.sampling import discrete_laplace

__all__ = ["distribution", "largest", "pick"]


def pick(scores: NDArray[np.int64], rate: Fraction, source: BitSource) -> int:
    """One choice."""
    return int(largest(scores, rate, source, 1)[0])


def largest(scores: NDArray[np.int64], rate: Fraction, source: BitSource, count: int) -> NDArray[np.int64]:
    """The ``count`` largest of one noisy draw, in order; of equal ones the first comes first."""
    noisy = scores + discrete_laplace(1 / rate, len(scores), source)
    return np.argsort(-noisy, kind="stable")[:count].astype(np.int64)


def distribution(scores: Sequence[int], rate: float) -> list[float]:
    """P[candidate r is chosen], summed over the noise of r; for tables and tests."""
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
