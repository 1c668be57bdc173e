"""What the released profile says of counts, for the plans of encodings. Exact arithmetic on public numbers."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

__all__ = ["monotone"]


@lru_cache(maxsize=16)
def monotone(profile: tuple[int, ...], keys: int) -> tuple[Fraction, ...]:
    """The nearest non-increasing sequence (pool adjacent violators), cut to [0, keys]."""
    pools: list[tuple[Fraction, int]] = []
    for value in profile:
        mean, weight = Fraction(value), 1
        while pools and pools[-1][0] < mean:
            other, count = pools.pop()
            mean, weight = (mean * weight + other * count) / (weight + count), weight + count
        pools.append((mean, weight))
    return tuple(min(max(mean, Fraction(0)), Fraction(keys)) for mean, weight in pools for _ in range(weight))
