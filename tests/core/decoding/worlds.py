"""Small releases for the decoder tests: made up, or simulated in floats (test data, so numpy.random is fine)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.decoding import AlpLikelihood, Decoder, ReleasedNumbers
from hushgram.noise.laws import LaplaceLaw
from hushgram.sparse_histogram.sizing import PROFILE_GRID


def made(**changes: Any) -> AlpLikelihood:
    """A release of a few numbers; by default four columns, pure DP, no profile. Its list is in ``.released``."""
    numbers: dict[str, Any] = {
        "flip": 0.2,
        "width": 5.0,
        "sizes": [1000, 700, 500, 400],
        "ones": [500, 300, 170, 100],
        "threshold": 18,
        "noise": 2.0,
        "listed": [18, 19, 25, 40, 400],
        "domain_size": 2.0**20,
        "records": 3000.0,
        "profile_at": [],
        "profile": [],
        "profile_noise": 0.0,
        "keys": 600.0,
    }
    return assembled({**numbers, **changes})


def assembled(numbers: dict[str, Any]) -> AlpLikelihood:
    """The numbers of both parts in one."""
    columns = {name: numbers.pop(name) for name in ("flip", "width", "sizes", "ones")}
    noise = LaplaceLaw(numbers.pop("noise"))
    return AlpLikelihood(ReleasedNumbers(noise=noise, **numbers), **columns)


def decoder(alp: AlpLikelihood) -> Decoder:
    """Of one release."""
    return Decoder(alp.released, alp)


@dataclass
class World:
    """A simulated release of known counts: what each key's lookup finds."""

    counts: NDArray[np.int64]
    likelihood: AlpLikelihood
    bits: NDArray[np.uint8]
    values: NDArray[np.int64]
    listed: NDArray[np.bool_]

    @property
    def decoder(self) -> Decoder:
        return decoder(self.likelihood)

    @property
    def released(self) -> ReleasedNumbers:
        return self.likelihood.released

    def lookups(self, chosen: Any = slice(None)) -> tuple[Any, Any, Any]:
        return self.bits[chosen], self.values[chosen], self.listed[chosen]


def laplace(rng: np.random.Generator, scale: float, size: int) -> NDArray[np.int64]:
    stop = 1.0 - math.exp(-1.0 / scale)
    return rng.geometric(stop, size) - rng.geometric(stop, size)


def simulate(
    counts: NDArray[np.int64],
    *,
    seed: int = 1,
    contributions: int = 1,
    bits_per_key: float = 8.0,
    profile: bool = True,
    pure: bool = True,
) -> World:
    """Release counts at ε = 1 with the default parameters; a count of 0 is a key that is looked up but absent."""
    rng = np.random.default_rng(seed)
    keys, share = int(np.count_nonzero(counts)), 0.49 / contributions
    width, noise = 3.0 / math.expm1(share), 1.0 / share
    grid = np.array(PROFILE_GRID if profile else (), dtype=np.int64)
    sizes_noise = 100.0 * contributions
    exact = np.array([np.count_nonzero(counts >= t) for t in grid], dtype=np.float64)
    ratio = math.exp(-1.0 / noise)
    cells = 2.0 ** math.ceil(math.log2(1e4 * keys)) if pure else None
    allowed = 0.03 * keys / cells if cells else 1e-6
    threshold = math.ceil(math.log(allowed * (1 + ratio)) / math.log(ratio))
    levels = math.ceil(threshold / width)
    scaled = np.minimum(counts, threshold) / width
    y = np.floor(scaled + rng.random(len(counts))).astype(np.int64)
    reach = np.array([max(np.count_nonzero(y > level), 1) for level in range(levels)])
    sizes = np.maximum(np.sqrt(reach) / np.sqrt(reach).sum() * bits_per_key * keys, 64).astype(np.int64)
    bits = np.zeros((len(counts), levels), np.uint8)
    ones = np.zeros(levels, np.int64)
    for level, size in enumerate(sizes):
        at = rng.integers(0, size, len(counts))
        column = np.zeros(size, bool)
        column[at[y > level]] = True
        column ^= rng.random(size) < 0.2
        bits[:, level], ones[level] = column[at], column.sum()
    values = counts + laplace(rng, noise, len(counts))
    listed = (values >= threshold) & (pure | (counts > 0))
    false = rng.poisson(allowed * cells) if cells else 0
    zeros = threshold + rng.geometric(1.0 - ratio, false) - 1
    likelihood = assembled(
        {
            "flip": 0.2,
            "width": width,
            "sizes": sizes,
            "ones": ones,
            "threshold": threshold,
            "noise": noise,
            "listed": np.concatenate([values[listed & (counts > 0)], zeros]),
            "domain_size": cells,
            "records": float(counts.sum() + laplace(rng, sizes_noise, 1)[0]),
            "profile_at": grid,
            "profile": exact + laplace(rng, sizes_noise, len(grid)),
            "profile_noise": sizes_noise if profile else 0.0,
            "keys": float(keys),
        }
    )
    return World(counts, likelihood, bits, np.where(listed, values, 0), listed)


def zipf(keys: int, records: float, exponent: float = 1.1) -> NDArray[np.int64]:
    weight = np.arange(1, keys + 1) ** -exponent
    return np.maximum(1, np.rint(records * weight / weight.sum())).astype(np.int64)


def patterns(levels: int) -> NDArray[np.uint8]:
    """All 2^m bit patterns, (2^m, m)."""
    return ((np.arange(1 << levels)[:, None] >> np.arange(levels)) & 1).astype(np.uint8)
