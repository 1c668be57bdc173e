"""Exact samplers on arrays: integers and digit streams only, no floating point.

Each function draws from a `BitSource` and has exactly the distribution that it names, up to the quality of the
source. How they work:

* Bernoulli(p): compare random bytes with the base-256 digits of p; only ties (1 in 256) look at the next digit.
* Geometric with ratio q = e^(−1/scale): its binary digits are independent Bernoulli variables.
* Discrete Laplace: the difference of two geometrics (Inusah, Kozubowski 2006).
* Random rounding: a uniform integer below the denominator decides.
* Successes among d cells, d up to 2^64: the gaps between them are geometric.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.noise.entropy import BitSource
from hushgram.noise.intervals import Computed, Digits, Rational, enclose, exp_neg, geometric_digit

__all__ = [
    "Lanes", "bernoulli", "discrete_laplace", "flip_bits", "geometric", "rand_round", "successes", "uniform_below",
]  # fmt: skip

# Words of packed bits that one round of randomized response works on: fits the second-level cache.
_CHUNK_WORDS = 1 << 15
# Rounds of bit-sliced comparison before the undecided lanes (1 in 2^8) are finished one by one.
_ROUNDS = 8


class Lanes:
    """Draws side by side from several sources: the first ``ends[0]`` from the first source, up to ``ends[1]`` from the
    second, and so on. From each source come the bytes that would come if it were drawn from by itself."""

    __slots__ = ("_ends", "_sources")

    def __init__(self, sources: Sequence[BitSource], ends: Sequence[int] | NDArray[np.intp]) -> None:
        self._sources, self._ends = sources, ends

    def __len__(self) -> int:
        return int(self._ends[-1])

    def take(self) -> NDArray[np.uint8]:
        """Return the next byte for each lane."""
        if len(self._sources) == 1:
            return self._sources[0].take(len(self))
        sizes = (high - low for low, high in pairwise([0, *np.asarray(self._ends).tolist()]))
        return np.concatenate([source.take(n) for source, n in zip(self._sources, sizes, strict=True) if n])

    def at(self, places: NDArray[np.intp]) -> Lanes:
        """Return some of the lanes, by their places in order."""
        return Lanes(self._sources, [len(places)] if len(self._sources) == 1 else self.ends(places))

    def ends(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return for each source how many of these places lie before its end."""
        return np.searchsorted(places, self._ends)


def _digits(p: Fraction | Digits) -> Digits:
    return Rational(p) if isinstance(p, Fraction) else p


def _lanes(size: int | Lanes, source: BitSource | None) -> Lanes:
    if isinstance(size, Lanes):
        return size
    assert source is not None
    return Lanes((source,), (size,))


def bernoulli(p: Fraction | Digits, size: int | Lanes, source: BitSource | None = None) -> NDArray[np.bool_]:
    """Draw ``size`` independent booleans, each True with probability exactly ``p`` (0 ≤ p ≤ 1).

    Here and below, ``size`` may be `Lanes` in place of a number and a source.
    """
    lanes = _lanes(size, source)
    if isinstance(p, Fraction) and p == 1:
        return np.ones(len(lanes), dtype=np.bool_)
    digits = _digits(p)
    first = digits.byte(0)
    drawn = lanes.take()
    out = drawn < first
    tied = (drawn == first).nonzero()[0]
    if len(tied):
        _settle(out, tied, digits, 1, lanes.at(tied))
    return out


def _settle(out: NDArray[np.bool_], tied: NDArray[np.intp], digits: Digits, index: int, lanes: Lanes) -> None:
    """Decide the draws that agree with ``digits`` before ``index``; a draw equal to p to the end is not below it."""
    while len(tied) and not digits.ends_before(index):
        digit = digits.byte(index)
        drawn = lanes.take()
        out[tied[drawn < digit]] = True
        again = (drawn == digit).nonzero()[0]
        tied, lanes, index = tied[again], lanes.at(again), index + 1


def flip_bits(packed: NDArray[np.uint8], p: Fraction | Digits, source: BitSource) -> NDArray[np.uint8]:
    """Flip every bit of ``packed`` independently with probability exactly ``p``: randomized response.

    Works on 64 lanes at a time: one random bit per lane and round is compared with one binary digit of p.
    """
    digits = _digits(p)
    size = len(packed)
    words = np.zeros((size + 7) // 8, dtype=np.uint64)
    words.view(np.uint8)[:size] = packed
    for start in range(0, len(words), _CHUNK_WORDS):
        part = words[start : start + _CHUNK_WORDS]
        part ^= _bernoulli_words(digits, len(part), source)
    return words.view(np.uint8)[:size].copy()


def _bernoulli_words(digits: Digits, count: int, source: BitSource) -> NDArray[np.uint64]:
    """Draw ``count`` words of 64 independent Bernoulli(p) bits."""
    below = np.zeros(count, dtype=np.uint64)
    tied = np.full(count, ~np.uint64(0))
    first = digits.byte(0)
    for round_ in range(_ROUNDS):
        drawn = source.words(count)
        if first >> (7 - round_) & 1:
            below |= tied & ~drawn
            tied &= drawn
        else:
            tied &= ~drawn
    _settle_words(below, tied, digits, source)
    return below


def _settle_words(
    below: NDArray[np.uint64], tied: NDArray[np.uint64], digits: Digits, source: BitSource
) -> None:
    """Decide the lanes that agree with the first digit of p."""
    lanes = np.flatnonzero(np.unpackbits(tied.view(np.uint8), bitorder="little").view(np.bool_))
    won = np.zeros(len(lanes), dtype=np.bool_)
    _settle(won, np.arange(len(lanes)), digits, 1, Lanes((source,), (len(lanes),)))
    chosen = lanes[won]
    np.bitwise_or.at(below, chosen >> 6, np.uint64(1) << (chosen & 63).astype(np.uint64))


def geometric(scale: Fraction, size: int | Lanes, source: BitSource | None = None) -> NDArray[np.int64]:
    """Draw integers with P(G = g) = (1 − q) q^g for g ≥ 0, q = e^(−1/scale)."""
    digits, overflow = _geometric_digits(scale)
    lanes = _lanes(size, source)
    out = np.zeros(len(lanes), dtype=np.int64)
    if not len(lanes):  # most shards of a small release
        return out
    for start in range(0, len(digits), 8):  # G given G < 2^top: its binary digits, which are independent
        byte = np.zeros(len(lanes), np.uint8)
        for j, digit in enumerate(digits[start : start + 8]):
            byte |= bernoulli(digit, lanes).view(np.uint8) * np.uint8(1 << j)  # several times faster than <<
        out |= byte.astype(np.int64) << start
    tall = np.flatnonzero(bernoulli(overflow, lanes))
    while len(tall):  # memoryless: beyond 2^top the rest is geometric again
        out[tall] += 1 << len(digits)
        tall = tall[bernoulli(overflow, lanes.at(tall))]
    return out


@lru_cache(maxsize=1024)
def _geometric_digits(scale: Fraction) -> tuple[list[Digits], Digits]:
    """Return probabilities of the binary digits of G below 2^top, and of G ≥ 2^top, where e^(−2^top/scale) < 2^-40."""
    rate = _rate(scale)
    top = 0
    while rate * 2**top < 28:  # a little more than 40 ln 2
        top += 1
    return [geometric_digit(rate, j) for j in range(top)], exp_neg(rate * 2**top)


def _rate(scale: Fraction) -> Fraction:
    if scale <= 0:
        raise ParameterError(f"noise scale must be above 0, got {scale}")
    if scale > 1 << 50:
        raise ParameterError(f"noise scale must be at most 2^50, got about {float(scale):.3g}; raise epsilon")
    return 1 / Fraction(scale)


def discrete_laplace(
    scale: Fraction, size: int | Lanes, source: BitSource | None = None
) -> NDArray[np.int64]:
    """Draw integers with P(Z = z) = (1 − q)/(1 + q) · q^|z|, q = e^(−1/scale); P[Z ≥ t] = q^t/(1 + q) for t ≥ 1.

    >>> from hushgram.noise.entropy import BitSource
    >>> discrete_laplace(Fraction(2), 8, BitSource(bytes(32))).dtype
    dtype('int64')
    """
    return geometric(scale, size, source) - geometric(scale, size, source)


def uniform_below(bound: int, size: int, source: BitSource) -> NDArray[np.uint64]:
    """Draw uniform integers in [0, bound), 1 ≤ bound ≤ 2^64, by rejection."""
    if not 1 <= bound <= 1 << 64:
        raise ParameterError(f"uniform_below: bound must be from 1 to 2^64, got {bound}")
    shift = np.uint64(64 - max((bound - 1).bit_length(), 1))
    out = source.words(size) >> shift
    if bound == 1:
        return np.zeros(size, dtype=np.uint64)
    over = np.flatnonzero(out > np.uint64(bound - 1))
    while len(over):
        again = source.words(len(over)) >> shift
        out[over] = again
        over = over[again > np.uint64(bound - 1)]
    return out


def rand_round(values: NDArray[np.int64], width: Fraction, source: BitSource) -> NDArray[np.int64]:
    """Round each x ≥ 0 to ⌊x/w⌋ or one more, with expectation x/w (RandRound; Aumüller, Lebeda, Pagh 2021, §2).

    With w = u/v, x/w = x·v/u: the remainder of x·v by u is compared with a uniform integer below u.
    """
    u, v = width.numerator, width.denominator
    if len(values) and (int(values.max()) * v + u).bit_length() > 63:
        raise ParameterError("rand_round: values are too large for this width")
    scaled = values * np.int64(v)
    floor, rest = np.divmod(scaled, np.int64(u))
    return floor + (uniform_below(u, len(values), source).astype(np.int64) < rest)


def successes(cells: int, p: Any, source: BitSource) -> NDArray[np.uint64]:
    """Draw the sorted positions of the successes among ``cells`` ≤ 2^64 independent trials of probability p.

    ``p`` is a function that encloses the probability at the precision of mpmath's ``iv`` (see `reals`), with a
    value strictly between 0 and 1. The number of failures before the next success is geometric with ratio 1 − p,
    whose binary digits are independent; digits that would step over all cells end the walk.
    """
    if not 0 <= cells <= 1 << 64:
        raise ParameterError(f"successes: cells must be from 0 to 2^64, got {cells}")
    if cells == 0:
        return np.zeros(0, dtype=np.uint64)
    top = max(cells.bit_length(), 1)  # 2^top > cells
    digits, beyond = _gap_digits(p, top)
    batch = _gap_batch(p, cells)
    found: list[NDArray[np.uint64]] = []
    at = 0
    while True:
        gaps = np.zeros(batch, dtype=np.uint64)
        over = np.full(batch, at >= cells)
        for j, digit in enumerate(digits):
            drawn = bernoulli(digit, batch, source)
            if j < 64:
                gaps |= drawn.astype(np.uint64) << np.uint64(j)
            else:  # a gap of 2^64 cells
                over |= drawn
        places: NDArray[np.uint64] = np.cumsum(gaps, dtype=np.uint64)
        places += np.arange(batch, dtype=np.uint64)
        places += np.uint64(at % (1 << 64))
        # Sums are modulo 2^64: each place is 1 to 2^64 after the one before, so beyond 2^64 it is not above that one.
        over |= bernoulli(beyond, batch, source) | (places > np.uint64(cells - 1))
        over[0] |= int(places[0]) < at
        over[1:] |= places[1:] <= places[:-1]
        if over.any():
            return np.concatenate([*found, places[: int(np.argmax(over))]])
        found.append(places)
        at = int(places[-1]) + 1


@lru_cache(maxsize=64)
def _gap_digits(p: Any, top: int) -> tuple[list[Digits], Digits]:
    """Return probabilities of the binary digits below ``top`` of a gap, and of a gap of 2^top or more."""

    def power(j: int) -> Any:
        return lambda iv: iv.exp(iv.mpf(2) ** j * iv.log(1 - p(iv)))

    def digit(j: int) -> Any:
        return lambda iv: 1 - 1 / (1 + power(j)(iv))

    return [Computed(digit(j)) for j in range(top)], Computed(power(top))


@lru_cache(maxsize=64)
def _gap_batch(p: Any, cells: int) -> int:
    """Return how many gaps to draw at a time: a little more than expected. Depends on public numbers alone."""
    expected = float(enclose(p, 128)[1]) * cells
    return min(int(expected + 4 * expected**0.5 + 8), 1 << 16)
