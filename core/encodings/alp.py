"""ALP projection: small counts as hashed unary bits under randomized response (Aumüller, Lebeda, Pagh 2021, Alg. 1).

Released: m columns of bits. A key's count x, cut at the cap β, is rounded at random to y = RandRound(min(x, β)/w)
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
| β | cap: the threshold from which on the list holds the count |
| w | width: counts a level |
| m | levels, ⌈β/w⌉; column b is for level b, 1 ≤ b ≤ m |
| s_b | bits of column b |
| α, p | 1/(α + 2) = p, the flip probability |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hushgram.contributions.histogram import Histogram
from hushgram.contributions.keys import column_positions
from hushgram.encodings import CellPart, EncodedBlock, Encoding, Layout, LayoutSpec, ReadBlock
from hushgram.errors import FormatError, ParameterError
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.noise.intervals import enclose, ratio_interval
from hushgram.noise.sampling import flip_bits, rand_round
from hushgram.numbers import integer, rational, show

if TYPE_CHECKING:
    from hushgram.decoding import Likelihood, ReleasedNumbers

__all__ = [
    "BLOCK_BITS", "ENCODING", "MAX_LEVELS", "PAPER_ALPHA", "Alp", "AlpLayout", "exact_width", "flip_probability",
    "paper_width", "privacy_map", "randomize_block", "round_shard",
]  # fmt: skip

#: Randomized response is drawn for blocks of this many bits of a column (the last one of a column may be shorter).
BLOCK_BITS = 1 << 20
#: Columns that a decoder reads: a pattern of bits fits a signed word.
MAX_LEVELS = 62
# Widths are multiples of this: fine enough to lose nothing, coarse enough for 64-bit integers.
_GRID = 1 << 20
_WORD = 64
#: α of the paper's setting
PAPER_ALPHA = Fraction(3)
_LEAST_ALPHA, _MOST_ALPHA = Fraction(1, 100), Fraction(1000)
_LARGEST_COLUMN = 1 << 32


# --- privacy map ------------------------------------------------------------------------------------------------


def flip_probability(alpha: Fraction) -> Fraction:
    """Return p = 1/(α + 2)."""
    return 1 / (alpha + 2)


@lru_cache(maxsize=256)
def privacy_map(width: Fraction, alpha: Fraction, max_contributions: int) -> Fraction:
    """Return ε = C · ln(1 + α/w), rounded up, for a width w ≥ 1."""
    if width < 1:
        raise ParameterError(f"alp: width must be at least 1, got {show(width)}")

    def loss(iv: Any) -> Any:
        return max_contributions * iv.log(1 + ratio_interval(iv, alpha / width))

    return enclose(loss, 512)[1]


@lru_cache(maxsize=256)
def exact_width(epsilon: Fraction, alpha: Fraction, max_contributions: int) -> Fraction:
    """Return the smallest width, in steps of 2^-20, that `privacy_map` accepts: α/(e^(ε/C) − 1), at least 1."""

    def width(iv: Any) -> Any:
        return ratio_interval(iv, alpha) / (iv.exp(ratio_interval(iv, epsilon / max_contributions)) - 1)

    _, high = enclose(width, 512)
    grid = max(-((-high.numerator * _GRID) // high.denominator), _GRID)
    while privacy_map(Fraction(grid, _GRID), alpha, max_contributions) > epsilon:
        grid += 1
    return Fraction(grid, _GRID)


def paper_width(epsilon: Fraction, alpha: Fraction, max_contributions: int) -> Fraction:
    """Return w = C·α/ε, rounded up to the grid, at least 1."""
    exact = max_contributions * alpha / epsilon
    return max(Fraction(-((-exact.numerator * _GRID) // exact.denominator), _GRID), Fraction(1))


# --- release ----------------------------------------------------------------------------------------------------


def round_shard(
    shard: int, part: Histogram, *, cap: int, width: Fraction, levels: int, release_key: ReleaseKey
) -> NDArray[np.int64]:
    """Return y for each key of a noise shard (Algorithm 1, step 1). Private: it is only hashed."""
    source = release_key.source("round", shard, part.digest())
    return np.minimum(rand_round(np.minimum(part.counts, cap), width, source), levels)


def randomize_block(
    block: int, packed: NDArray[np.uint8], flip: Fraction, release_key: ReleaseKey
) -> NDArray[np.uint8]:
    """Apply randomized response to every bit of a block, hashed to or not (Algorithm 1, step 3). Released."""
    return flip_bits(packed, flip, release_key.source("response", block, digest(packed)))


@dataclass(frozen=True)
class AlpLayout(Layout):
    """m columns of bits. A block is a range of `BLOCK_BITS` bits of a column, numbered through all columns."""

    alpha: Fraction
    cap: int
    width: Fraction
    column_sizes: tuple[int, ...]

    @property
    def encoding(self) -> str:
        return Alp.id

    @property
    def levels(self) -> int:
        """m, the number of columns."""
        return len(self.column_sizes)

    @property
    def hashes(self) -> int:
        return len(self.column_sizes)

    @property
    def bits(self) -> int:
        return sum(self.column_sizes)

    @property
    def flip(self) -> Fraction:
        """p, the probability that a bit is flipped."""
        return flip_probability(self.alpha)

    @property
    def sums(self) -> int:
        return len(self.column_sizes)  # the ones of each column

    @property
    def blocks(self) -> int:
        return int(self._firsts[-1])

    @cached_property
    def _firsts(self) -> NDArray[np.int64]:
        """The first block of each column, and the number of all blocks."""
        return np.cumsum([0, *(-(-size // BLOCK_BITS) for size in self.column_sizes)])

    def _column_of(self, block: int) -> tuple[int, int, int]:
        """Return (column, first bit, bits) of a block."""
        column = int(np.searchsorted(self._firsts, block, side="right")) - 1
        start = (block - int(self._firsts[column])) * BLOCK_BITS
        return column, start, min(BLOCK_BITS, self.column_sizes[column] - start)

    def describe(self) -> str:
        return (
            f"{self.levels} levels of {show(Fraction(round(self.width * 100), 100))} counts, {self.bits:,} bits,"
            f" each flipped with probability {show(self.flip)}"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "alpha": show(self.alpha),
            "cap": self.cap,
            "width": show(self.width),
            "column_sizes": list(self.column_sizes),
        }

    def check_privacy(self, spec: LayoutSpec) -> None:
        if privacy_map(self.width, self.alpha, spec.max_contributions) > spec.epsilon:
            raise ParameterError(
                f"Plan: width {show(self.width)} is too small for epsilon {show(spec.epsilon)} of alp"
            )

    def project(
        self, shards: Iterable[tuple[int, Histogram]], seeds: NDArray[np.uint64], release_key: ReleaseKey
    ) -> Iterator[tuple[int, CellPart]]:
        """Yield the places in each block of the bits to set (Algorithm 1, steps 1 and 2)."""
        held = [(np.zeros(0, np.uint64), np.zeros(0, np.int64))]
        for shard, part in shards:
            y = round_shard(
                shard, part, cap=self.cap, width=self.width, levels=self.levels, release_key=release_key
            )
            held.append((part.fingerprints, y))
        prints, reached = (np.concatenate(side) for side in zip(*held, strict=True))
        for column, size in enumerate(self.column_sizes):
            places = column_positions(prints[reached > column], seeds[column], size)
            places = np.sort(places.astype(np.uint32))  # a column has at most 2^32 bits
            first, end = self._firsts[column : column + 2]
            cuts = np.arange(end - first, dtype=np.uint64) * np.uint64(BLOCK_BITS)
            starts = np.append(np.searchsorted(places, cuts), len(places))
            for block, (low, high) in enumerate(pairwise(starts), int(first)):
                if high > low:
                    yield block, (places[low:high] - np.uint32((block - first) * BLOCK_BITS),)

    def empty_block(self, block: int) -> NDArray[np.uint8]:
        return np.zeros(self._column_of(block)[2], np.uint8)  # a byte a bit

    def add(self, cells: NDArray[np.uint8], part: CellPart) -> None:
        cells[part[0]] = 1

    def release_block(self, block: int, cells: NDArray[np.uint8], release_key: ReleaseKey) -> EncodedBlock:
        packed = np.packbits(cells, bitorder="little")
        content = randomize_block(block, packed, self.flip, release_key)
        return EncodedBlock(block, content, AlpLayout.block_sums(self, block, content))

    def block_lengths(self) -> NDArray[np.int64]:
        out = np.full(self.blocks, BLOCK_BITS // 8)
        out[self._firsts[1:] - 1] -= (-np.array(self.column_sizes, np.int64) % BLOCK_BITS) // 8
        return out

    def check_sums(self, sums: tuple[int, ...]) -> None:
        if any(not 0 <= ones <= size for ones, size in zip(sums, self.column_sizes, strict=True)):
            raise FormatError("manifest field 'sums': a column has more ones than bits")

    def block_sums(self, block: int, content: NDArray[np.uint8]) -> NDArray[np.int64]:
        sums = np.zeros(self.levels, np.int64)
        sums[self._column_of(block)[0]] = int(np.bitwise_count(content).sum())
        return sums

    def look_up(
        self, fingerprints: NDArray[np.uint64], seeds: NDArray[np.uint64], read: ReadBlock
    ) -> NDArray[np.bool_]:
        """Return (N, m): the bit of each key in every column."""
        bits = np.zeros((len(fingerprints), self.levels), np.bool_)
        for column, size in enumerate(self.column_sizes):
            places = column_positions(fingerprints, seeds[column], size).astype(np.int64)
            blocks = places // BLOCK_BITS
            order = np.argsort(blocks, kind="stable")
            touched, starts = np.unique(blocks[order], return_index=True)
            for block, rows in zip(
                touched.tolist(), np.split(order, starts[1:]), strict=False
            ):  # none: one empty part
                at = places[rows] - block * BLOCK_BITS
                found = read(int(self._firsts[column]) + block)[at >> 3]
                bits[rows, column] = (found >> (at & 7).astype(np.uint8)) & 1
        return bits

    def likelihood(
        self,
        released: ReleasedNumbers,
        sums: NDArray[np.int64],
        read: ReadBlock,
    ) -> Likelihood:
        from hushgram.decoding import AlpLikelihood

        if (released.threshold if released.rest is None else released.rest.most) != self.cap:
            raise FormatError("manifest: the cap of encoding alp-1 is not that of the list")
        sizes = np.array(self.column_sizes, np.int64)
        return AlpLikelihood(released, flip=float(self.flip), width=float(self.width), sizes=sizes, ones=sums)


# --- plan -------------------------------------------------------------------------------------------------------


class Alp(Encoding):
    """One column for what a list passes on; or the columns of the paper, flat, for every key."""

    id = "alp-1"

    def check(self, spec: LayoutSpec) -> None:
        """Refuse what could need more than `MAX_LEVELS` columns, or more than 64-bit integers."""
        width = paper_width(spec.epsilon, PAPER_ALPHA, spec.max_contributions)
        levels = ceil(spec.threshold / width)
        if levels > MAX_LEVELS:
            raise ParameterError(
                f"ReleaseParams: preset paper needs {levels} levels, at most {MAX_LEVELS} are possible; leave it out"
            )
        if (spec.threshold * width.denominator + width.numerator).bit_length() > 63:
            raise ParameterError(
                "ReleaseParams: preset paper makes levels too wide for the noise of this release; leave it out"
            )

    def plan(self, spec: LayoutSpec) -> AlpLayout:
        if spec.way == "remainder":
            return _one_level(spec)
        width = paper_width(spec.epsilon, PAPER_ALPHA, spec.max_contributions)
        levels = min(ceil(spec.threshold / width), MAX_LEVELS)
        sizes = (_whole_words(spec.bits_per_key * spec.keys),) * levels
        return AlpLayout(PAPER_ALPHA, spec.threshold, width, sizes)

    def read_layout(self, text: Mapping[str, Any]) -> AlpLayout:
        sizes = text["column_sizes"]
        if not isinstance(sizes, list) or len(sizes) > MAX_LEVELS:
            raise ParameterError(f"AlpLayout: column_sizes must be a list of at most {MAX_LEVELS}")
        for size in sizes:
            integer(size, "column_sizes", "AlpLayout", low=_WORD, high=_LARGEST_COLUMN)
            if size % _WORD:
                raise ParameterError(f"AlpLayout: column_sizes must be multiples of {_WORD}, got {size}")
        alpha, width = (rational(text[name], name, "AlpLayout") for name in ("alpha", "width"))
        if not _LEAST_ALPHA <= alpha <= _MOST_ALPHA:
            raise ParameterError(f"AlpLayout: alpha must be from 0.01 to 1000, got {show(alpha)}")
        if not 1 <= width <= 1 << 62:
            raise ParameterError(f"AlpLayout: width must be from 1 to 2^62, got {show(width)}")
        # no more levels than a count can reach
        lowest = int((len(sizes) - 1) * width) + 1 if sizes else 1
        cap = integer(text["cap"], "cap", "AlpLayout", low=lowest, high=1 << 62)
        return AlpLayout(alpha, cap, width, tuple(sizes))


def _one_level(spec: LayoutSpec) -> AlpLayout:
    """Return the layout of one column whose level is as wide as what passes on.

    α follows from the width, w·(e^(ε/C) − 1): without other keys at its bit, the estimate of a key has a variance of
    about (C/ε)²·(α + 1), whatever the number of levels is, and with one level a key sets the fewest bits.
    """
    most, alpha = spec.threshold, _LEAST_ALPHA

    def widest(iv: Any) -> Any:
        return most * (iv.exp(ratio_interval(iv, spec.epsilon / spec.max_contributions)) - 1)

    low, _ = enclose(widest, 512)
    alpha = min(max(Fraction(int(low * _GRID), _GRID), _LEAST_ALPHA), _MOST_ALPHA)
    width = max(Fraction(most), exact_width(spec.epsilon, alpha, spec.max_contributions))
    size = _whole_words(spec.bits_per_key * spec.keys)
    return AlpLayout(alpha, most, width, (size,))


def _whole_words(bits: Fraction) -> int:
    """Round up to whole 64-bit words, within the limits of a column."""
    return min(max(ceil(bits / _WORD), 1) * _WORD, _LARGEST_COLUMN)


ENCODING = Alp()
