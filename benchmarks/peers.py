"""Other ways to release a sparse histogram, for `benchmarks.methods`: private CountSketch, Count-Min, a list alone.

They are made as good as we know how, because a comparison with a weak peer says nothing:

* all of ε (and δ) goes into their noise; how many keys and records there are is told to them for nothing;
* noise of a counter is calibrated to the exact sensitivity: a user adds at most C in all, a unit of it moves one
  counter in each of r rows by 1, so ‖·‖₁ ≤ C·r whatever meets where. With δ > 0 the Gaussian mechanism counts in L2,
  where two keys of a user in one counter would move it by 2: as in `hushgram.encodings.buckets` a user's keys are
  kept apart by public classes of counters, in every row; a user then moves C·r counters by 1 each, and the exact
  profile of `hushgram.noise.gaussian` holds. What bounding to classes loses (a key in 256 for each row) is not taken
  from them. The noise with the smaller variance is used;
* hash functions are ideal: independent and uniform;
* counters are rounded to a step and stored in the code that hushgram's own buckets have. Rows, step and a cut, below
  which an answer is taken as 0, are those with the least error over all keys of the very data (nobody could know them),
  at the number of counters that fits the bytes.

CountSketch (Charikar, Chen, Farach-Colton 2002; private: Pagh, Thorup 2022): signed counters, median over rows.
Count-Min (Cormode, Muthukrishnan 2005; private: Melis, Danezis, De Cristofaro 2016): smallest over rows. Noise lowers
the smallest and other keys raise it: the mean of what random places show is subtracted, which is free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hushgram.encodings import integer_code
from hushgram.encodings.buckets import BLOCK, classes
from hushgram.key_selection.threshold import text_threshold
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.gaussian import gaussian_scales
from hushgram.noise.noises import noise_of
from hushgram.sensitivity import Sensitivity

__all__ = [
    "CounterRows",
    "Found",
    "SizeAndLoss",
    "count_min",
    "count_sketch",
    "counter_noise",
    "list_bits",
    "named_domain",
    "shrunk",
    "threshold_alone",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_SKETCH_ROWS, _MIN_ROWS = (1, 3, 5, 7), (1, 2, 3, 4)
_STEPS = (Fraction(1, 2), Fraction(1))  # of the noise scale
_STAY_BELOW = (0.0, 0.9, 0.99, 0.999, 0.9999)

# Bits that a draw of scale 1 takes in a short code, about; one more for each doubling of the scale.
_BITS_AT_ONE = {"laplace": 13 / 5, "gaussian": 12 / 5}


@dataclass(frozen=True)
class SizeAndLoss:
    """Limits of a method: privacy parameters, the bound per user, and total bits."""

    epsilon: Fraction
    delta: Fraction
    max_contributions: int
    bits: float


@dataclass(frozen=True)
class Found:
    """Answers for all keys that are asked, bits used, the parameters in words, and what to add up for a total."""

    estimates: Floats
    bits: float
    how: str
    summands: Floats


def counter_noise(rows: int, budget: SizeAndLoss) -> tuple[str, Fraction]:
    """Word and scale of the noise of every counter of ``rows`` rows: the smaller variance of the two that hold."""
    laplace = "laplace", Fraction(budget.max_contributions * rows) / budget.epsilon
    if budget.delta == 0:
        return laplace
    apart = Sensitivity(budget.max_contributions * rows, 1)
    gaussian = "gaussian", gaussian_scales((1,), budget.epsilon, budget.delta, apart)[0]
    return min(laplace, gaussian, key=lambda found: noise_of(found[0]).variance(found[1]))


class CounterRows:
    """Where r rows of counters hold each key, and with which sign. Class c of R: the counters from c·width/R on."""

    def __init__(self, asked: int, rows: int, width: int, rng: np.random.Generator, *, signed: bool) -> None:
        self.rows, self.width = rows, width
        self.places = rng.integers(0, width, (rows, asked)) + np.arange(rows)[:, None] * width
        self.signs = rng.choice(np.array([-1, 1]), (rows, asked)) if signed else np.ones((rows, asked), int)

    def cells(self, counts: Ints) -> Ints:
        """Exact sums, row after row; keys beyond ``counts`` hold nothing."""
        held = slice(len(counts))
        flat, weight = self.places[:, held].ravel(), (self.signs[:, held] * counts).ravel()
        return np.bincount(flat, weight, minlength=self.rows * self.width).astype(np.int64)


def _sketches(
    counts: Ints,
    asked: int,
    budget: SizeAndLoss,
    rows_tried: tuple[int, ...],
    key: ReleaseKey,
    *,
    signed: bool,
) -> Iterator[tuple[CounterRows, Floats, float, str]]:
    """For each number of rows and step: the rows, what their counters show, the bits they take, and how."""
    for rows in rows_tried:
        word, scale = counter_noise(rows, budget)
        noise, unit = (
            noise_of(word),
            classes(budget.max_contributions) if word == "gaussian" else 1,
        )
        for share in _STEPS:
            step = int(scale * share / 2) * 2 + 1
            each = _BITS_AT_ONE[noise.name] + max(math.log2(float(scale) / step), -0.5)
            width = 0
            for _ in range(9):  # the bits a counter takes depend on how much meets in it
                wanted = max(int(budget.bits / rows / each) // unit, 1) * unit
                if wanted == width:
                    break
                width = wanted
                rng = np.random.default_rng(rows)
                made = CounterRows(asked, rows, width, rng, signed=signed)
                drawn = noise.sample(scale, rows * width, key.source(f"{signed} {share} {width}", rows))
                levels = (made.cells(counts) + drawn + step // 2) // step
                bits = _bits(levels)
                if 0.99 * budget.bits <= bits <= 1.01 * budget.bits:
                    break
                each = bits / (rows * width) * 1.001
            if bits <= 1.01 * budget.bits:
                how = f"{rows} × {width:,}, {word} {float(scale):.3g}, step {step}"
                yield made, (levels * step).astype(np.float64), bits, how


def _bits(levels: Ints) -> float:
    """In hushgram's code for buckets, block by block."""
    return 8.0 * sum(len(integer_code.encode(levels[at : at + BLOCK])) for at in range(0, len(levels), BLOCK))


def _best(options: Iterator[Found], counts: Ints) -> Found | None:
    """The one with the least error over the keys that are there."""
    return min(options, key=lambda found: _rmse(found.estimates[: len(counts)] - counts), default=None)


def _rmse(errors: Floats) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def _cuts(shown: Floats, held: int) -> Iterator[Floats]:
    """Answers, those below a cut taken as 0: cuts that so many of nobody's keys, from ``held`` on, stay below."""
    for share in _STAY_BELOW:
        cut = max(float(np.quantile(shown[held:], share)), 0.0) if share else 0.0
        yield np.where(shown > cut, shown, 0.0)


def count_sketch(counts: Ints, asked: int, budget: SizeAndLoss, key: ReleaseKey) -> Found | None:
    """Median over rows of signed counters; None where the bytes are too few for its classes."""

    def options() -> Iterator[Found]:
        for made, values, bits, how in _sketches(counts, asked, budget, _SKETCH_ROWS, key, signed=True):
            shown = np.median(made.signs * values[made.places], axis=0)
            yield from (Found(cut, bits, how, shown) for cut in _cuts(shown, len(counts)))

    return _best(options(), counts)


def count_min(counts: Ints, asked: int, budget: SizeAndLoss, key: ReleaseKey) -> Found | None:
    """Smallest over rows, less the mean of that at random places; None where bytes are too few."""

    def options() -> Iterator[Found]:
        for made, values, bits, how in _sketches(counts, asked, budget, _MIN_ROWS, key, signed=False):
            smallest = values[made.places].min(axis=0)
            shown = smallest - smallest[len(counts) :].mean()  # nobody's keys are random places
            yield from (Found(cut, bits, how, shown) for cut in _cuts(shown, len(counts)))

    return _best(options(), counts)


# --- a list alone ---------------------------------------------------------------------------------------------------


def threshold_alone(counts: Ints, asked: int, budget: SizeAndLoss, key: ReleaseKey) -> Found | None:
    """All of the budget for the list of heavy keys; what is not listed is taken as 0.

    δ = 0: cells of a public domain; for some domains the lowest threshold whose list fits the bits, the best of them
    taken. δ > 0: keys of the data alone, with the noise whose threshold is lower; bits are what the list takes.
    """
    if budget.delta == 0:
        options = (_pure_list(counts, asked, budget, key, more) for more in (3, 6, 10))
        return _best((found for found in options if found is not None), counts)
    bounds, settings = Sensitivity(budget.max_contributions, 1), []
    for word, share in (("laplace", 0), ("gaussian", Fraction(3, 4))):  # of δ, for the noise itself
        noise = noise_of(word)
        of_noise, of_list = budget.delta * share, budget.delta * (1 - share)
        scale = noise.scales((budget.epsilon,), of_noise, bounds)[0]
        settings.append((text_threshold(of_list, noise, scale, bounds), word, scale))
    threshold, word, scale = min(settings)
    noisy = counts + noise_of(word).sample(scale, len(counts), key.source("list"))
    listed = noisy >= threshold
    shown = np.zeros(asked)
    shown[: len(counts)] = np.where(listed, noisy, 0)
    domain = named_domain(len(counts))
    bits = list_bits(noisy[listed] - threshold, domain)
    return Found(shown, bits, f"{word} {float(scale):.3g}, from {threshold:,} on", shown)


def _pure_list(counts: Ints, asked: int, budget: SizeAndLoss, key: ReleaseKey, more: int) -> Found | None:
    bits = len(counts).bit_length() + more
    noise, scale = noise_of("laplace"), Fraction(budget.max_contributions) / budget.epsilon
    law, rng = noise.law(float(scale)), np.random.default_rng(bits)
    places = rng.integers(0, 1 << bits, asked)
    cells, place = np.unique(places, return_inverse=True)  # of all keys that are asked about
    sums = np.bincount(place[: len(counts)], counts, minlength=len(cells)).astype(np.int64)
    held = np.bincount(place[: len(counts)], minlength=len(cells)) > 0
    empty = float((1 << bits) - np.count_nonzero(held))

    def expected(threshold: int) -> float:
        tails = law.tail(threshold - sums[held].astype(np.float64))
        n = float(tails.sum()) + empty * float(law.tail(np.array([float(threshold)]))[0])
        return n * (bits - math.log2(max(n, 1.0)) + 4.5 + math.log2(float(scale)))

    noisy = sums + noise.sample(scale, len(sums), key.source("list", bits))
    took, room = math.inf, budget.bits
    for _ in range(8):  # what values take is known afterwards
        threshold = _smallest(lambda t, room=room: expected(t) <= room)  # type: ignore[misc]
        listed = noisy >= threshold
        chance = float(law.tail(np.array([float(threshold)]))[0])
        elsewhere = rng.binomial(
            int(empty) - int(np.count_nonzero(~held)), chance
        )  # false ones, not asked about
        false = noise.sample_tail(scale, threshold, elsewhere, key.source("false", bits))
        took = list_bits(np.concatenate([noisy[listed], false]) - threshold, bits)
        if took <= 1.01 * budget.bits:
            break
        room *= 0.97 * budget.bits / took
    else:
        return None
    shown = np.where(listed, np.maximum(noisy, 0), 0)[place].astype(np.float64)
    return Found(shown, took, f"laplace {float(scale):.3g}, 2^{bits} cells, from {threshold:,} on", shown)


def _smallest(holds: Callable[[int], bool]) -> int:
    low, high = 0, 1
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def named_domain(keys: int) -> int:
    """Bits of fingerprints that tell a million absent keys from those of a list."""
    return keys.bit_length() + 20


def list_bits(values: Ints, domain_bits: int) -> float:
    """Sorted places as gaps (half a bit above log₂(e·d/n)), values above the threshold by the code of buckets."""
    n = len(values)
    return n * (domain_bits - math.log2(n) + 1.5) + _bits(values) if n else 0.0


# --- a decoder that nobody has --------------------------------------------------------------------------------------


def shrunk(estimates: Floats, truth: Ints) -> Floats:
    """Each estimate plus the mean error of estimates like it, learned from the truth (of the other half of the keys).

    No release could do that: it is what the best posterior of such estimates would be worth.
    """
    out, side = np.empty(len(estimates)), np.arange(len(estimates)) % 2
    for half in (0, 1):
        here, there = np.flatnonzero(side == half), np.flatnonzero(side != half)
        order = np.sort(estimates[there])
        edges = np.unique(order[:: max(len(order) // 1000, 20)])
        bins = np.searchsorted(edges, estimates[there], side="right")
        number = np.bincount(bins, minlength=len(edges) + 1)
        off = np.bincount(bins, truth[there] - estimates[there], minlength=len(edges) + 1)
        added = off / np.maximum(number, 1)
        out[here] = estimates[here] + added[np.searchsorted(edges, estimates[here], side="right")]
    return np.maximum(out, 0.0)
