"""Exact counts of a domain, and their total: the private side of multiplicative weights, online and offline."""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.sampling import discrete_laplace
from hushgram.pmw.hypothesis import MOST_TOTAL

__all__ = ["TOTAL_SHARE", "clipped_counts", "released_total"]

# Share of ε for the total, where none is public.
TOTAL_SHARE = Fraction(1, 50)


class _Totalled(Protocol):
    @property
    def total(self) -> int | None: ...

    @property
    def total_epsilon(self) -> Fraction: ...

    @property
    def max_contributions(self) -> int: ...


def clipped_counts(counts: NDArray[np.int64], owner: str) -> NDArray[np.int64]:
    """Counts, checked and cut: cutting moves no two neighbours further apart, and keeps products inside int64."""
    exact = np.asarray(counts)
    if exact.ndim != 1 or len(exact) == 0 or exact.dtype.kind not in "iu":
        raise ParameterError(f"{owner}: counts must be whole numbers, one for each cell, not empty")
    return np.clip(exact, 0, (1 << 45) // len(exact)).astype(np.int64)


def released_total(counts: NDArray[np.int64], params: _Totalled, key: ReleaseKey, context: bytes) -> int:
    """The public total, or the exact one with Laplace noise of scale C/ε_n."""
    if params.total is not None:
        return params.total
    scale = Fraction(params.max_contributions) / params.total_epsilon
    noise = int(discrete_laplace(scale, 1, key.source("pmw total", 0, context))[0])
    return min(max(int(counts.sum()) + noise, 1), MOST_TOTAL)
