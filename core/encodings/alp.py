"""ALP projection: small counts as hashed unary bits under randomized response (Aumüller, Lebeda, Pagh 2021, Alg. 1).

Released: m columns of bits. A key's count x, cut at the bound, is rounded at random to y = RandRound(min(x, β)/w)
levels; bit h_b(key) of column b is set for every b ≤ y; then each bit of every column, touched or not, is flipped
with probability p = 1/(α + 2).

Guarantee: ε-differential privacy for ‖x − x'‖₁ ≤ C, for any public column sizes and hash functions, if

    C · ln(1 + α/w) ≤ ε.                                                                      (exact loss)

Proof. Fix an output, all other keys' levels and the hash functions, and let L(y) be the probability of the output if
key i has level y. Adding level b sets one more bit: L(b)/L(b − 1) is 1 where another key has set it already, else
(1 − p)/p = 1 + α or its inverse. As y is x/w rounded at random, the probability of the output as a function of x_i is
f(x) = the linear interpolation of L between multiples of w. One unit within level b, L rising: f(x + 1) − f(x) =
(L(b) − L(b − 1))/w ≤ α L(b − 1)/w ≤ (α/w) f(x). A unit that passes the boundary of b and b + 1, with shares r₁ + r₂ =
1/w ≤ 1 in both: f(x + 1)/f(x) ≤ (1 + r₂α)/(1 − r₁α/(1 + α)), and (1 + (r₁ + r₂)α)(1 − r₁α/(1 + α)) − (1 + r₂α) =
α² r₁ (1 − r₁ − r₂)/(1 + α) ≥ 0, so again at most 1 + α/w. The falling case is the same read backwards, and C units
multiply. Hence w ≥ 1 is required. The paper's w = Cα/ε follows by ln(1 + t) ≤ t. Tests enumerate all outputs on small
inputs, across level boundaries, with and without collisions, and show that the bound is reached.

| symbol | meaning |
|---|---|
| w | width: counts a level |
| m | levels, ⌈β/w⌉; column b is for level b, 1 ≤ b ≤ m |
| s_b | bits of column b |
| α, p | 1/(α + 2) = p, the flip probability |
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.exact.hashing import column_positions
from hushgram.exact.histogram import Histogram
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.noise.intervals import enclose, ratio_interval
from hushgram.noise.sampling import flip_bits, rand_round

__all__ = [
    "BLOCK_BITS",
    "Block",
    "blocks_of",
    "exact_width",
    "flip_probability",
    "loss_at_most",
    "paper_width",
    "project_shard",
    "randomize_block",
    "round_shard",
    "set_bits",
]

#: Randomized response is drawn for blocks of this many bits of a column (the last one of a column may be shorter).
BLOCK_BITS = 1 << 20
# Widths are multiples of this: fine enough to lose nothing, coarse enough for 64-bit integers.
_GRID = 1 << 20


# --- privacy map ------------------------------------------------------------------------------------------------


def flip_probability(alpha: Fraction) -> Fraction:
    """p = 1/(α + 2)."""
    return 1 / (alpha + 2)


def loss_at_most(width: Fraction, alpha: Fraction, max_contributions: int, epsilon: Fraction) -> bool:
    """Whether C · ln(1 + α/w) ≤ ε, decided by intervals (doubt counts against us), and w ≥ 1."""
    if width < 1:
        return False

    def loss(iv: Any) -> Any:
        return max_contributions * iv.log(1 + ratio_interval(iv, alpha / width))

    return enclose(loss, 512)[1] <= epsilon


@lru_cache(maxsize=256)
def exact_width(epsilon: Fraction, alpha: Fraction, max_contributions: int) -> Fraction:
    """The smallest width on a grid of 2^-20 that `loss_at_most` accepts: α/(e^(ε/C) − 1), rounded up, at least 1."""

    def width(iv: Any) -> Any:
        return ratio_interval(iv, alpha) / (iv.exp(ratio_interval(iv, epsilon / max_contributions)) - 1)

    _, high = enclose(width, 512)
    grid = max(-((-high.numerator * _GRID) // high.denominator), _GRID)
    while not loss_at_most(Fraction(grid, _GRID), alpha, max_contributions, epsilon):
        grid += 1
    return Fraction(grid, _GRID)


def paper_width(epsilon: Fraction, alpha: Fraction, max_contributions: int) -> Fraction:
    """w = C·α/ε, rounded up to the grid, at least 1."""
    exact = max_contributions * alpha / epsilon
    return max(Fraction(-((-exact.numerator * _GRID) // exact.denominator), _GRID), Fraction(1))


# --- release ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A piece of a column for which randomized response is drawn at once."""

    index: int
    column: int
    start: int
    bits: int


def blocks_of(sizes: tuple[int, ...]) -> list[Block]:
    """All blocks of all columns, in the order in which they are written."""
    out: list[Block] = []
    for column, size in enumerate(sizes):
        for start in range(0, size, BLOCK_BITS):
            out.append(Block(len(out), column, start, min(BLOCK_BITS, size - start)))
    return out


def round_shard(
    shard: int, part: Histogram, *, bound: int, width: Fraction, levels: int, key: ReleaseKey
) -> NDArray[np.int64]:
    """Algorithm 1, step 1: y for each key of a noise shard. Private: it goes on to `project_shard` alone."""
    source = key.source("round", shard, digest(part.fingerprints, part.counts))
    cut = np.minimum(part.counts, bound)
    return np.minimum(rand_round(cut, width, source), levels)


def project_shard(
    part: Histogram, reached: NDArray[np.int64], sizes: tuple[int, ...], seeds: NDArray[np.uint64]
) -> list[NDArray[np.uint64]]:
    """Algorithm 1, step 2: for each column the sorted, distinct positions of the bits to set. Private."""
    out = []
    for column, size in enumerate(sizes):
        held = part.fingerprints[reached > column]
        out.append(np.unique(column_positions(held, seeds[column], size)))
    return out


def set_bits(packed: NDArray[np.uint8], offsets: NDArray[np.uint64]) -> None:
    """Set the bits at ``offsets`` (little-endian within a byte) in place."""
    marks = np.unpackbits(packed, bitorder="little")
    marks[offsets] = 1
    packed[:] = np.packbits(marks, bitorder="little")


def randomize_block(
    block: Block, packed: NDArray[np.uint8], flip: Fraction, key: ReleaseKey
) -> NDArray[np.uint8]:
    """Algorithm 1, step 3: randomized response on every bit of a block, also where nothing was hashed. Released."""
    if len(packed) * 8 != block.bits:
        raise AssertionError(f"block {block.index} must have {block.bits} bits, got {8 * len(packed)}")
    return flip_bits(packed, flip, key.source("response", block.index, digest(packed)))
