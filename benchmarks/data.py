"""Generated histograms for the error benchmark: counts of 222,722 keys under several distributions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["HELD_OUT", "HISTOGRAMS", "KEYS", "RANGES", "Counts", "zipf"]

KEYS = 222_722
RANGES = ((1, 10), (11, 40), (41, 87), (88, 1 << 62))

Counts = NDArray[np.int64]


def zipf(exponent: float, records: float, keys: int = KEYS) -> Counts:
    """x_r = max(1, round(n·r^−a/H)): ranks r by a power law, n records before rounding."""
    weight = np.arange(1, keys + 1) ** -exponent
    return np.maximum(1, np.rint(records * weight / weight.sum())).astype(np.int64)


def _two(low: int, high: int) -> Counts:
    return np.where(np.random.default_rng(2).random(KEYS) < 0.5, low, high).astype(np.int64)


HISTOGRAMS: dict[str, Callable[[], Counts]] = {
    "Zipf 1.1": lambda: zipf(1.1, 5e6),
    "Zipf 1.1 × 10": lambda: zipf(1.1, 5e7),
    "Zipf 0.8": lambda: zipf(0.8, 5e6),
    "Zipf 1.5": lambda: zipf(1.5, 5e6),
    "geometric, mean 12": lambda: np.random.default_rng(1).geometric(1 / 12, KEYS).astype(np.int64),
    "two points, 3 and 15": lambda: _two(3, 15),
    "two points, 1 and 40": lambda: _two(1, 40),
}


def _drawn(seed: int, counts: tuple[int, ...], shares: tuple[float, ...]) -> Counts:
    return np.random.default_rng(seed).choice(np.array(counts, np.int64), KEYS, p=shares)


#: The decoder's constants were chosen while looking at HISTOGRAMS. These played no part in that, but for
#: "nine to one", which was seen in simulations and is kept because it misses a bar.
HELD_OUT: dict[str, Callable[[], Counts]] = {
    "Zipf 1.3": lambda: zipf(1.3, 5e6),
    "log-normal": lambda: np.ceil(np.random.default_rng(21).lognormal(1.5, 1.4, KEYS)).astype(np.int64),
    "uniform 1 to 50": lambda: np.random.default_rng(22).integers(1, 51, KEYS),
    "1 and 40, nine to one": lambda: _drawn(23, (1, 40), (0.9, 0.1)),
    "2, 7 and 60": lambda: _drawn(24, (2, 7, 60), (0.6, 0.3, 0.1)),
}
