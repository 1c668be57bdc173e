"""Threshold release: heavy keys with noise (Aumüller, Lebeda, Pagh 2021, Algorithm 3).

Released: for every key whose noisy count v = x + Z reaches the threshold, its identity and v. Z is the noise of the
release (`hushgram.noise.noises`), discrete Laplace of scale C/ε in the paper. The comparison is v ≥ threshold, here
and in every formula below.

* **δ = 0** (Cormode, Procopiuc, Srivastava, Tran 2012). The key domain is the d fingerprints, and every one of them
  gets noise, also those that nobody used: the zeros that pass are drawn by geometric gaps (`sampling.successes`), and
  their values from the tail, Z | Z ≥ β. As private as the noise on x ∈ ℕ^d: the rest is post-processing.
  β is the smallest integer with d · P[Z ≥ β] ≤ F, the false keys allowed. Any public d and β are private.
* **What is not listed passes on at no cost** ★ (`Remainder`). A key that a list does not show may enter a further
  mechanism M, which costs as much per unit of count as the list, and both together cost what one of them costs. See
  "Chains" below.
* **δ > 0** (Korolova, Kenthapadi, Mishra, Ntoulas 2009). Only keys in the data get noise, and their text is released.
  What the noise costs, and a δ that bounds the probability that any key which one user alone holds passes: parts
  c_1 … c_r, each at most L∞, in all at most C, and δ(τ) = max over these of 1 − ∏(1 − P[Z ≥ τ − c_j]).
  An absent key costs nothing, so eight keys of 1 can be worse than one key of 8. With g(c) = −ln(1 − P[Z ≥ τ − c]),
  which is convex (the distribution is log-concave), Σ g(c_j) is largest at one of three splits: all parts 1; as many
  L∞ as fit and the rest as one part; as many L∞ as fit and the rest as ones. A test enumerates all splits.

**Chains** ★. Let a unit of count cost 1/b in the list, b = C/ε, and in M: q ≤ P[M(n + 1) = o]/P[M(n) = o] ≤ 1/q for
every outcome o, whatever else M counts. A cell with count x is listed with v = x + Z where v ≥ β, and then M does not
count it. Else M counts g(x), rounded to one of the two whole numbers around it at random, with that mean. Let g(0) = 0,
and for each step, with F(x) = P[x + Z < β],

    0 ≤ g(x + 1) − g(x) ≤ 1 − (1 − F(x + 1)/F(x))/(1 − q).                                                   (step)

*Claim.* List and M together cost 1/b per unit of count.

*Proof.* "Listed with v" has likelihood P[Z = v − x], and M does not depend on x: it changes by a factor from q to 1/q.
"Not listed, o" has likelihood F(x)·M̃(g(x)), M̃(y) = (1 − f)·M(⌊y⌋) + f·M(⌊y⌋ + 1), f = y − ⌊y⌋. If y grows by Δ ≤ 1, M̃
grows by a factor of at most 1/q and at least q/(q + Δ·(1 − q)): on a line from M(n) = 1 to M(n + 1) = q it loses
Δ·(1 − q) of at most q + Δ·(1 − q), and a kink from rising to falling or back only brings the factor closer to 1. F does
not grow. So upwards the factor is at most 1/q, and downwards at least F(x + 1)/F(x)·q/(q + Δ·(1 − q)), which is at
least q by (step). ∎ A user's C units are C such steps. Other cells only shift what M counts, and a mixture keeps the
bound. List and M are together such an M again, so lists may be chained: a top list over sub-cells, a list over the
cells that hold them, and an encoding (`hushgram.encodings.alp`) cost together what one of them costs.

*Choice of g.* With g(x) = E[x + Z | x + Z < β] the sum of the listed values and of an unbiased estimate of g over all
other keys is unbiased for any set of keys, with no correction for the selection: E[v; listed] + F(x)·g(x) = x. For
Laplace noise and t = β − x ≥ 1 it is x − r(t), r(t) = E[Z; Z ≥ t]/P[Z < t] = q^t·(t + q/(1 − q))/(1 + q − q^t), and
(step) reads q^(t−1)/(1 + q − q^t) ≤ 1 − Δ: Bernoulli's inequality, with equality at t = 2. g is shifted by a public
number so that g(0) = 0: cells that nobody has are not counted. `Remainder` takes each step to be 1 − D, D a multiple of
2^−20, rounded up, and at least what (step) and r demand; so rounding costs accuracy alone.

* *Several lists* (δ = 0, `TopList`). Values of the second list are cut at τ' − 1, so that a value says which list it
  is of.
* *Names, then cells* (δ > 0). The first list is of texts, and F(x) = P[not named] for x ≥ 1, F(0) = 1: a key that is
  not there is never named. (step) holds from x = 0 on with this F, so every outcome that names no new key costs 1/b per
  unit, and all others have probability δ(τ).
* *Truncated geometric noise* (C = 1) has no more than F(x) ≤ e^(1/b)·F(x + 1) + δ. Where F falls faster than by
  e^(−1/b) the step is 0: M counts the same for both, and "not named" has an excess of F(x) − e^(1/b)·F(x + 1) ≤ δ. δ is
  not spent twice. Where a user is added, named values have an excess of δ, and "not named" has none, since F falls.
  Where one is removed, named values have none before the last two (`hushgram.noise.truncated_geometric`), and for these
  F(x + 1) is 0 and the sum with F(x) is at most δ.

| symbol | meaning |
|---|---|
| x | exact count of a key |
| d | number of fingerprints in the domain (δ = 0) |
| β, τ | the threshold at δ = 0, at δ > 0 |
| F | expected number of zeros that pass, at most; F(x) = P[not listed] |
| d', τ' | sub-cells (or texts) and threshold of the top list |
| b, q | scale of Laplace noise, and e^(−1/b) |
| M, g | what comes after a list, and what it counts of a key that is not listed |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushgram.contributions.histogram import NOISE_SHARDS, Histogram
from hushgram.noise.entropy import BitSource, ReleaseKey
from hushgram.noise.intervals import enclose
from hushgram.noise.laplace import NOISE as LAPLACE
from hushgram.noise.laplace import LaplaceNoise
from hushgram.noise.noises import Noise
from hushgram.noise.sampling import successes
from hushgram.sensitivity import Sensitivity

__all__ = [
    "REMAINDER_GRID", "Heavy", "Remainder", "TopList", "chain_holds", "listed_code", "privacy_map", "pure_threshold",
    "release_shard", "remainder", "text_threshold",
]  # fmt: skip

#: What passes on is a multiple of 2 to the power of minus this, before it is rounded to whole counts.
REMAINDER_GRID = 20
_UNIT = 1 << REMAINDER_GRID
_PLACES = 96
# Steps of a table of remainders, at most, for each unit of the noise scale.
_FINEST = 1 << 14


@dataclass(frozen=True)
class Heavy:
    """Released: keys that reached the threshold, sorted, with their noisy counts; texts at δ > 0 only.

    ``cells`` lists keys that are not named, by fingerprint, where they are listed beside the named ones.
    """

    fingerprints: NDArray[np.uint64]
    values: NDArray[np.int64]
    texts: pa.LargeBinaryArray | None = None
    cells: Heavy | None = None

    @classmethod
    def concat(cls, parts: list[Heavy]) -> Heavy:
        """Return the parts in shard order, one after another."""
        texts = None
        if parts and parts[0].texts is not None:
            texts = pa.concat_arrays([part.texts for part in parts])
        cells = [part.cells for part in parts if part.cells is not None]
        return cls(
            np.concatenate([part.fingerprints for part in parts]),
            np.concatenate([part.values for part in parts]),
            texts,
            cls.concat(cells) if cells else None,
        )

    @property
    def lists(self) -> list[Heavy]:
        """Return this list, and that of cells beside it."""
        return [self] if self.cells is None else [self, self.cells]

    @property
    def rows(self) -> int:
        """Return how many keys and cells are listed."""
        return sum(map(len, self.lists))

    def part(self, low: int, high: int) -> Heavy:
        """Return the rows [low, high)."""
        texts = None if self.texts is None else self.texts.slice(low, high - low)
        return Heavy(self.fingerprints[low:high], self.values[low:high], texts)

    def __len__(self) -> int:
        return len(self.fingerprints)


@dataclass(frozen=True)
class TopList:
    """A list whose keys the other one leaves out: sub-cells of its domain, or (None) texts; and τ'."""

    domain_bits: int | None
    threshold: int


def listed_code(
    cells: NDArray[np.uint64], domain_bits: int, top: TopList, *, of_top: bool
) -> NDArray[np.uint64]:
    """Return what identifies cells where there is a top list: twice the first sub-cell, or twice the sub-cell and 1."""
    assert top.domain_bits is not None
    if of_top:
        return (cells << np.uint64(1)) | np.uint64(1)
    return cells << np.uint64(top.domain_bits - domain_bits + 1)


# --- privacy maps -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def privacy_map(threshold: int, noise: Noise, scale: Fraction, sensitivity: Sensitivity) -> Fraction:
    """Return an upper bound of δ at this τ, tight to 2^-300: the worst split of one user's contributions."""
    return enclose(_delta_interval(threshold, noise, scale, sensitivity), 512)[1]


def _delta_interval(
    threshold: int, noise: Noise, scale: Fraction, sensitivity: Sensitivity
) -> Callable[[Any], Any]:
    """Return the interval of max over the three extreme splits of 1 − ∏(1 − P[Z ≥ τ − c_j])."""
    most, per_key = sensitivity.max_contributions, sensitivity.max_per_key
    full, rest = divmod(most, per_key)
    splits = [{1: most}, {per_key: full, **({rest: 1} if rest else {})}]
    if rest > 1:
        splits.append({per_key: full, 1: rest})

    def interval(iv: Any) -> Any:
        worst = None
        for split in splits:
            none_passes = iv.mpf(1)
            for part, times in split.items():
                none_passes *= (1 - noise.tail(scale, threshold - part)(iv)) ** times
            passes = 1 - none_passes
            # enclosures of a maximum: the larger upper and the larger lower end
            worst = passes if worst is None else iv.mpf([max(worst.a, passes.a), max(worst.b, passes.b)])
        return worst

    return interval


@lru_cache(maxsize=256)
def pure_threshold(domain_bits: int, false_keys: Fraction, noise: Noise, scale: Fraction) -> int:
    """Return β: the smallest integer ≥ 1 with 2^domain_bits · P[Z ≥ β] ≤ false_keys."""
    allowed = false_keys / (1 << domain_bits)
    return _smallest(lambda t: noise.tail(scale, t), allowed, 1)


def chain_holds(noise: Noise, scale: Fraction, epsilon: Fraction, sensitivity: Sensitivity) -> bool:
    """Privacy map of a list and of all that comes after it: return whether they cost ``epsilon``, C/b, at most.

    For Laplace noise, and on texts where C = 1 for the truncated geometric one. Names of new keys cost δ(τ) beside it.
    """
    return (
        isinstance(noise, LaplaceNoise)
        and (sensitivity.l1 == 1 or not noise.one_key)
        and sensitivity.l1 <= epsilon * scale
    )


@dataclass(frozen=True, eq=False)
class Remainder:
    """g: what a list passes on of a key with count x that it does not show, in units of 2^−20; 0 where x is 0.

    Attributes:
        threshold: of the list.
        grain: so many counts have steps of one size.
        lowered: by how much x·(1 − 2^−20) is lowered at x = threshold − 1 − i·``grain``; it ends with 0.
        base: what is added from x = 1 on, so that g(0) = 0.
    """

    threshold: int
    grain: int
    lowered: NDArray[np.int64]
    base: int

    def __call__(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return g of whole counts, in units of 2^−20."""
        held = np.minimum(counts, self.threshold - 1)
        return np.where(held > 0, held * (_UNIT - 1) - self._lowered(held) + self.base, 0)

    def _lowered(self, held: NDArray[np.int64]) -> NDArray[np.int64]:
        at, over = np.divmod(self.threshold - 1 - held, self.grain)
        last = len(self.lowered) - 1
        near, far = self.lowered[np.minimum(at, last)], self.lowered[np.minimum(at + 1, last)]
        return np.asarray(near - over * ((near - far) // self.grain))

    def lowered_at(self, away: int) -> int:
        """Return by how much a count so far below the threshold is lowered."""
        return int(self._lowered(np.array([self.threshold - away]))[0])

    def mean(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return g in counts, also between whole numbers, for decoders."""
        low = np.floor(counts).astype(np.int64)
        below = self(low) / _UNIT
        between = below + (counts - low) * (self(low + 1) / _UNIT - below)
        return np.where(between < counts - 2.0**-10, between, counts)

    @property
    def offset(self) -> float:
        """Return about what an estimate of g lacks to be one of the count of a key that is not listed."""
        return -self.base / _UNIT

    def rounded(self, counts: NDArray[np.int64], source: BitSource) -> NDArray[np.int64]:
        """Return g rounded at random to one of the whole numbers around it, with that mean."""
        drawn = (source.words(len(counts)) >> np.uint64(64 - REMAINDER_GRID)).astype(np.int64)
        return (self(counts) + drawn) >> REMAINDER_GRID

    @property
    def most(self) -> int:
        """Return the largest whole number that passes on, at least 1."""
        return max(-(-int(self(np.array([self.threshold - 1]))[0]) >> REMAINDER_GRID), 1)


@lru_cache(maxsize=32)
def remainder(threshold: int, noise: LaplaceNoise, scale: Fraction, *, texts: bool) -> Remainder:
    """Return what a list of this threshold passes on; ``texts`` where keys that are not there get no noise.

    Integers of 96 binary places: every machine finds the same.
    """
    one, unit = 1 << _PLACES, (1 << _PLACES) - noise.ratio(scale, _PLACES)  # 1 − q
    grain = max(-(-scale // _FINEST), 1)
    steps = []
    for (tail, above), (tail_before, above_before) in noise.beyond(scale, _PLACES, grain):
        # x grows by 1 from t = i·grain + 2 on; further from the threshold steps are nearer to 1
        hidden, before = one - tail, one - tail_before
        needed = _ratio((tail - tail_before) << _PLACES, before * unit)
        wanted = _ratio(above * before - above_before * hidden, hidden * before)
        steps.append(min(max(needed, wanted), _UNIT))
        if steps[-1] <= 1:
            break
    table = np.append(np.cumsum(np.array(steps[::-1], np.int64) - 1)[::-1] * grain, 0)
    found = Remainder(threshold, grain, table, 0)
    if not texts:
        return replace(found, base=found.lowered_at(threshold))
    (tail, above), _ = next(noise.beyond(scale, _PLACES, 1, threshold - 1))
    first = min(max(_ratio(tail, unit), _ratio(above, one - tail)), _UNIT)
    return replace(found, base=found.lowered_at(threshold - 1) - (first - 1))


def _ratio(numerator: int, denominator: int) -> int:
    """Return a ratio in units of 2^−20, rounded up, with room for the last of 96 places."""
    return (max(numerator + (numerator >> 40), 0) << REMAINDER_GRID) // denominator + 1


@lru_cache(maxsize=256)
def text_threshold(delta: Fraction, noise: Noise, scale: Fraction, sensitivity: Sensitivity) -> int:
    """Return τ: the smallest integer for which δ(τ) ≤ delta."""
    return _smallest(lambda t: _delta_interval(t, noise, scale, sensitivity), delta, 1)


def _smallest(probability: Callable[[int], Callable[[Any], Any]], allowed: Fraction, low: int) -> int:
    """Return the smallest integer t ≥ low whose (decreasing) probability is at most ``allowed``."""
    if _at_most(probability(low), allowed):
        return low
    high = low + 1
    while not _at_most(probability(high), allowed):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _at_most(probability(middle), allowed) else (middle, high)
    return high


def _at_most(interval: Callable[[Any], Any], allowed: Fraction) -> bool:
    """Return whether the enclosed number is at most ``allowed``; doubt at high precision counts against us."""
    bits = 256
    while bits <= 8192:
        low, high = enclose(interval, bits)
        if high <= allowed:
            return True
        if low > allowed:
            return False
        bits *= 2
    return False


# --- release ----------------------------------------------------------------------------------------------------


def release_shard(
    shard: int,
    part: Histogram,
    *,
    threshold: int,
    noise: Noise,
    scale: Fraction,
    domain_bits: int | None,
    release_key: ReleaseKey,
    shards: int = NOISE_SHARDS,
    top: TopList | None = None,
    passes: bool = False,
) -> tuple[Heavy, Histogram]:
    """Release one noise shard by the threshold; and return what passes on, exact and private, where it ``passes``.

    ``part`` holds all keys of the shard: cells of the reduced domain at δ = 0 (``domain_bits`` given), texts at
    δ > 0 (``domain_bits`` None). An empty part is released too: its zeros have noise like all others. ``shards`` says
    how many shards there are. With ``top`` the cells are its sub-cells, and are identified by `listed_code`; where that
    is of texts, keys that it does not name are listed in `Heavy.cells`. What passes on is counted by cells, or by
    texts where there are no cells, as fingerprints of 64 bits.
    """
    cells = _ListedCells(shard, shards, LAPLACE, scale, release_key)
    if domain_bits is None:
        heavy, noisy = _named(shard, part, threshold, noise, scale, release_key)
        return heavy, _rest(
            part, noisy, "rest", threshold, cells, noise, texts=True
        ) if passes else part.part(0, 0)
    if top is None:
        heavy, noisy = cells.release("threshold", part, threshold, domain_bits)
        second, counted = heavy, part
    else:
        bits, label = top.domain_bits, "cells"
        if bits is None:
            first, noisy = _named(shard, part, top.threshold, noise, scale, release_key)
        else:
            first, noisy = cells.release("top list", part, top.threshold, bits)
            part, label = part.aligned(bits), "threshold"
        counted = _rest(part, noisy, "withheld", top.threshold, cells, noise, texts=bits is None).reduced(
            domain_bits
        )
        second, noisy = cells.release(label, counted, threshold, domain_bits)
        heavy = _both(first, second, domain_bits, top)
    if not passes:
        return heavy, counted.part(0, 0)
    aligned = counted.aligned(domain_bits)
    return heavy, _rest(aligned, noisy, "rest", threshold, cells, LAPLACE, texts=False)


def _both(first: Heavy, second: Heavy, domain_bits: int, top: TopList) -> Heavy:
    """Return the top list and the other one together; values of the other are cut."""
    values = np.minimum(second.values, top.threshold - 1)
    if top.domain_bits is None:
        return replace(first, cells=Heavy(second.fingerprints, values))
    codes = [
        listed_code(first.fingerprints, domain_bits, top, of_top=True),
        listed_code(second.fingerprints, domain_bits, top, of_top=False),
    ]
    found = np.concatenate(codes)
    order = np.argsort(found, kind="stable")  # merges the two
    return Heavy(found[order], np.concatenate([first.values, values])[order])


def _rest(
    part: Histogram,
    noisy: NDArray[np.int64],
    label: str,
    threshold: int,
    cells: _ListedCells,
    noise: Noise,
    *,
    texts: bool,
) -> Histogram:
    """Return what passes on of the keys that a list does not show."""
    assert isinstance(noise, LaplaceNoise)
    hidden = np.flatnonzero(noisy < threshold)
    source = cells.release_key.source(label, cells.shard, part.digest())
    passed = remainder(threshold, noise, cells.scale, texts=texts).rounded(part.counts[hidden], source)
    some = np.flatnonzero(passed)
    return Histogram(part.fingerprints[hidden[some]], passed[some], None, part.sensitivity)


def _named(
    shard: int, part: Histogram, threshold: int, noise: Noise, scale: Fraction, release_key: ReleaseKey
) -> tuple[Heavy, NDArray[np.int64]]:
    """Return texts whose noisy count reaches the threshold, and noisy counts of all."""
    if not len(part):
        return Heavy(part.fingerprints, part.counts, part.texts), part.counts
    assert part.texts is not None
    source = release_key.source("threshold", shard, part.digest())
    noisy = part.counts + noise.sample(scale, len(part), source)
    kept = np.flatnonzero(noisy >= threshold)
    return Heavy(part.fingerprints[kept], noisy[kept], part.texts.take(pa.array(kept))), noisy


@dataclass(frozen=True)
class _ListedCells:
    """Lists of cells of one of so many noise shards."""

    shard: int
    shards: int
    noise: Noise
    scale: Fraction
    release_key: ReleaseKey

    def release(
        self, label: str, part: Histogram, threshold: int, domain_bits: int
    ) -> tuple[Heavy, NDArray[np.int64]]:
        """Return cells whose noisy count reaches the threshold, unused ones included, and noisy counts of ``part``."""
        source = self.release_key.source(label, self.shard, part.digest())
        noisy = part.counts + self.noise.sample(self.scale, len(part), source)
        kept = np.flatnonzero(noisy >= threshold)
        cells = (1 << domain_bits) // self.shards
        zeros = successes(cells, self.noise.tail(self.scale, threshold), source) + np.uint64(
            self.shard * cells
        )
        values = self.noise.sample_tail(self.scale, threshold, len(zeros), source)
        if not len(zeros):
            return Heavy(part.fingerprints[kept], noisy[kept]), noisy
        free = ~part.has(zeros)  # occupied cells have noise of their own
        found = np.concatenate([part.fingerprints[kept], zeros[free]])
        order = np.argsort(found, kind="stable")  # merges the two
        return Heavy(found[order], np.concatenate([noisy[kept], values[free]])[order]), noisy
