"""Permute-and-flip: which of k candidates has nearly the highest score (McKenna, Sheldon 2020).

Go through the candidates in random order, and stop at candidate r with probability exp(−γ(s* − s_r)), s* the
highest score. Its expected error is never above that of the exponential mechanism at the same ε (shown there),
and it has the distribution of report noisy max with exponential noise (Ding, Kifer, Steinke, et al. 2021). In
that form candidate r wins iff its noise is at least t = max_{i≠r}(s_i + η_i) − s_r; one user moves t by at
most Δ if all scores move the same way and by at most 2Δ otherwise, and an exponential tail moves by the factor
e^(γt): so ε' = γΔ or 2γΔ.

Exact: the coins are drawn for all candidates at once; the first success in a uniformly random order is a
uniformly random success, so one uniform integer replaces the permutation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.noise.entropy import BitSource
from hushgram.noise.sampling import uniform_below
from hushgram.selection.scores import coins

__all__ = ["distribution", "pick"]

# Candidates of `distribution`: 2^(k−1) subsets are summed.
_MOST_ENUMERATED = 20


def pick(scores: NDArray[np.int64], rate: Fraction, source: BitSource) -> int:
    """One choice: a uniform one among the candidates whose coin fell."""
    fell = np.flatnonzero(coins(scores.max() - scores, rate, source))
    return int(fell[int(uniform_below(len(fell), 1, source)[0])])


def distribution(scores: Sequence[int], rate: float) -> list[float]:
    """P[candidate r is chosen] (McKenna, Sheldon 2020, Proposition 1), for tables and tests.

    p_r · Σ over subsets S of the others of (−1)^|S|/(|S| + 1) · Π_{i∈S} p_i, p_i = exp(−rate(s* − s_i)).
    """
    if not 1 <= len(scores) <= _MOST_ENUMERATED:
        raise ParameterError(f"distribution: 1 to {_MOST_ENUMERATED} candidates, got {len(scores)}")
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
