"""Threshold release: heavy keys with noise (Aumüller, Lebeda, Pagh 2021, Algorithm 3).

Released: for every key whose noisy count v = x + Z reaches the threshold, its identity and v. Z is the noise of the
release (`hushgram.noise.noises`), discrete Laplace of scale C/ε in the paper. The comparison is v ≥ threshold, here
and in every formula below.

* **δ = 0** (Cormode, Procopiuc, Srivastava, Tran 2012). The key domain is the d fingerprints, and every one of them
  gets noise, also those that nobody used: the zeros that pass are drawn by geometric gaps (`sampling.successes`), and
  their values from the tail, Z | Z ≥ β. As private as the noise on x ∈ ℕ^d: the rest is post-processing.
  β is the smallest integer with d · P[Z ≥ β] ≤ F, the false keys allowed. Any public d and β are private.
* **δ = 0, two lists for the price of one** ★ (`TopList`). A list over a large domain of d' sub-cells, with a high
  threshold τ', tells large counts apart; a list over the small domain of d cells, of which each holds many sub-cells,
  has a low β. What the first list shows is left out of the second, and what it does not show counts for a little less
  there as it comes close to τ':

      sub-cell j     listed with v_j = x_j + Z_j if v_j ≥ τ'
      cell i         listed with v_i = Σ n_j + Z_i over its sub-cells that are not listed, if v_i ≥ β

  n_j is x_j − o, rounded to one of the integers around it at random, with that mean. o(x) is what x is withheld
  (`withheld`): nothing far below τ', b·ln 2 at τ', and all that is above. With F(x) = P[Z < τ' − x], and D(y) for
  q^⌊y⌋·(1 − f + f·q), f = y − ⌊y⌋, it is defined by

      D(x − o(x)) = q^x / F(x).

  *Proof.* Let a sub-cell grow from x − 1 to x. Given what other sub-cells show, an outcome that lists it has a
  likelihood that changes by at most e^(1/b), and the second list knows nothing of it. One that does not list it has
  likelihood F(x)·E[q^|y − n|], y what the cell shows beside other sub-cells. The second factor is D(x − o)·q^−y
  for y below both values of n, U(x − o)·q^y above, U(y) = q^−⌊y⌋·(1 − f + f/q), and no other y has a larger ratio. So
  its loss is that of F·D, 1/b by definition, or that of F·U. With η = ln F(x − 1) − ln F(x) the latter is 1/b − 2·η
  and what ln(U·D) = ln(1 + (1 − q)²/q·f·(1 − f)) grows by. That grows by 1 − q at most for each unit by which
  ln D falls behind −x/b, which is η in all. So both are 1/b at most. ∎ Two lists side by side would cost 2/b.
  o is rounded to a multiple of 2^−20, which adds 2^−20·(e^(1/b) − 1) to the loss; `top_holds` allows twice as much.
  Values of the second list are cut at τ' − 1, so that a value says which list it is of.
* **δ > 0, cells of keys that are not named** ★. The list of texts is a top list too: keys that it does not name are
  counted in cells, less what they are withheld, and a list of cells with Laplace noise of the same b shows those from
  β on. F(x) = P[x not named] for x ≥ 1, and F(0) = 1: a key that is not there is never named. So the proof above holds
  for every unit, also the first of a new key: outcomes that name no new key lose 1/b per unit, all others have δ(τ).
  *Truncated geometric noise* (C = 1) has no more than F(x) ≤ e^(1/b)·F(x + 1) + δ. Where F falls faster than by
  e^(−1/b), a count adds no more to its cell than the one below it: the cell is the same for both, and "not named" has
  an excess of F(x) − e^(1/b)·F(x + 1) ≤ δ. δ is not spent twice. Where a user is added, named values have an excess of
  δ, and "not named" has none, since F falls. Where one is removed, named values have none before the last two
  (`hushgram.noise.truncated_geometric`), and for these F(x + 1) is 0 and the sum with F(x) is at most δ.
* **δ > 0** (Korolova, Kenthapadi, Mishra, Ntoulas 2009). Only keys in the data get noise, and their text is released.
  What the noise costs, and a δ that bounds the probability that any key which one user alone holds passes: parts
  c_1 … c_r, each at most L∞, in all at most C, and δ(τ) = max over these of 1 − ∏(1 − P[Z ≥ τ − c_j]).
  An absent key costs nothing, so eight keys of 1 can be worse than one key of 8. With g(c) = −ln(1 − P[Z ≥ τ − c]),
  which is convex (the distribution is log-concave), Σ g(c_j) is largest at one of three splits: all parts 1; as many
  L∞ as fit and the rest as one part; as many L∞ as fit and the rest as ones. A test enumerates all splits.
* **δ > 0, C = 1.** The one key of a user is new or shared, and costs δ(τ) or δ of the noise, whichever is larger. Other
  vectors with pure noise add their ε: with μ for them, a new key gives P(S) ≤ δ(τ) + e^μ·P'(S), and P'(S) ≤
  e^μ/(1 − δ(τ))·P(S), so that P'(S) − e^ε·P(S) ≤ 1 − e^(ε−μ)·(1 − δ(τ)) ≤ δ(τ).
* **δ > 0, Gaussian noise, L∞ = 1.** δ of the noise and δ(τ) need not be added: a key of a user is new or shared
  (`joint_delta`, with p = P[Z < τ − 1]). Fewer keys are never worse, so of C keys each number of new
  ones is looked at. `joint_holds` is that privacy map; `calibrate` takes the lower τ of both.

| symbol | meaning |
|---|---|
| x | exact count of a key |
| d | number of fingerprints in the domain (δ = 0) |
| β, τ | the threshold at δ = 0, at δ > 0 |
| F | expected number of zeros that pass, at most |
| d', τ', o | sub-cells (or texts) and threshold of the top list, and what counts below it are withheld |
| b, q | scale of Laplace noise, and e^(−1/b) |
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
from hushgram.noise.gdp import (
    BITS,
    NoisyVector,
    Vectors,
    compares,
    discrete_factor,
    gdp_mu_squared,
    mu_delta,
)  # fmt: skip
from hushgram.noise.intervals import enclose, ratio_interval
from hushgram.noise.laplace import NOISE as LAPLACE
from hushgram.noise.laplace import LaplaceNoise
from hushgram.noise.noises import Noise
from hushgram.noise.sampling import successes
from hushgram.sensitivity import Sensitivity

__all__ = [
    "MAX_TOP_SCALE", "TOP_GRID", "TOP_SHARE", "Heavy", "TopList", "any_of", "calibrate", "joint_delta", "joint_holds",
    "listed_code", "privacy_map", "pure_threshold", "release_shard", "text_threshold", "top_holds", "withheld",
]  # fmt: skip

# Of δ, what the noise by itself may use where it is not added to that of the threshold.
_JOINT_NOISE = Fraction(99, 100)
#: Of the list's ε, what a top list takes; its noise and that of the other list have the rest.
TOP_SHARE = Fraction(1, 10_000)
#: What counts are withheld is a multiple of 2 to the power of minus this.
TOP_GRID = 20
_PLACES = 96
_ONE = 1 << _PLACES
#: Above this noise scale there is one list: what is withheld is a table of about 20 scales.
MAX_TOP_SCALE = 1 << 14


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


@lru_cache(maxsize=256)
def top_holds(
    top: TopList, noise: Noise, scale: Fraction, epsilon: Fraction, sensitivity: Sensitivity
) -> bool:
    """Privacy map of two lists: return whether C·(1/b + 2^−19·(e^(1/b) − 1)) ≤ ``epsilon``.

    For Laplace noise, and on texts where C = 1 for the truncated geometric one. The names of new keys cost δ(τ).
    """

    def loss(iv: Any) -> Any:
        each = iv.mpf(scale.denominator) / scale.numerator
        return sensitivity.l1 * (each + (iv.exp(each) - 1) / 2 ** (TOP_GRID - 1))

    if not isinstance(noise, LaplaceNoise) or scale > MAX_TOP_SCALE or not _at_most(loss, epsilon):
        return False
    table = withheld(scale, noise)
    if top.domain_bits is not None:
        return noise.name == "laplace" and top.threshold > len(table)
    least = table[top.threshold - 2 :]  # of a count of 1, which adds no less than nothing
    bounded = not noise.one_key or sensitivity.l1 == 1
    return bounded and top.threshold > 2 and not (len(least) and least[0] > 1 << TOP_GRID)


@lru_cache(maxsize=8)
def withheld(scale: Fraction, noise: LaplaceNoise = LAPLACE) -> NDArray[np.int64]:
    """Return o(τ' − t) for t = 1, 2, … as multiples of 2^−20, as far as it is not 0.

    With r = 1/F(τ' − t) and the least j for which r·q^j ≤ 1, it is j − (1 − r·q^j)/(1 − q), and at most 1 more than
    that of t + 1. Integers of 96 binary places: every machine finds the same.
    """
    q = noise.ratio(scale, _PLACES)
    powers = [_ONE, q]
    while 2 * powers[-1] > _ONE:
        powers.append(powers[-1] * q >> _PLACES)
    found: list[int] = []
    j, unit = len(powers) - 1, _ONE - q
    for tail in noise.tails(scale, _PLACES):
        r = _ONE * _ONE // (_ONE - tail)
        while j > 1 and r * powers[j - 1] <= _ONE * _ONE:
            j -= 1
        exact = j * unit - _ONE + (r * powers[j] >> _PLACES)
        found.append(((exact << TOP_GRID) + unit // 2) // unit)
        if not found[-1]:
            break
    for t in range(len(found) - 2, -1, -1):
        found[t] = min(found[t], found[t + 1] + (1 << TOP_GRID))
    return np.array(found[:-1], np.int64)


@lru_cache(maxsize=256)
def text_threshold(delta: Fraction, noise: Noise, scale: Fraction, sensitivity: Sensitivity) -> int:
    """Return τ: the smallest integer for which δ(τ) ≤ delta."""
    return _smallest(lambda t: _delta_interval(t, noise, scale, sensitivity), delta, 1)


@lru_cache(maxsize=256)
def joint_holds(
    threshold: int,
    noise: Noise,
    scales: tuple[Fraction, ...],
    epsilon: Fraction,
    delta: Fraction,
    sensitivity: Sensitivity,
) -> bool:
    """Privacy map of listed keys and other vectors together: return whether they are (``epsilon``, ``delta``)-DP.

    Args:
        threshold: τ.
        noise: any noise where C = 1 and other vectors have pure noise; else the answer is no but for Gaussian noise
            and L∞ = 1.
        scales: of the noise on listed counts, and on other vectors of the same counts.
        epsilon: ε of all of them.
        delta: δ of all of them and of the threshold.
        sensitivity: of the counts.
    """
    if noise.privacy_map(scales, epsilon, sensitivity) > delta:  # no new key
        return False
    if sensitivity.l1 == 1 and (len(scales) == 1 or noise.cells == "laplace"):
        return privacy_map(threshold, noise, scales[0], sensitivity) <= delta
    if noise.name != "gaussian" or sensitivity.max_per_key != 1 or min(scales) < 1:
        return False
    most, passes = sensitivity.max_contributions, noise.tail(scales[0], threshold - 1)
    others = tuple(NoisyVector(scale, most, most) for scale in scales[1:])
    todo = [(1, most)]
    while todo:  # ranges of a; a range is halved while its bound is too high
        fewest, last = todo.pop()
        shared = NoisyVector(scales[0], most - fewest, most - fewest)
        bound = joint_delta(passes, (fewest, last), (shared, *others), epsilon)
        if bound <= delta:
            continue
        if fewest == last:
            return False
        middle = (fewest + last) // 2
        todo += [(fewest, middle), (middle + 1, last)]
    return True


@lru_cache(maxsize=256)
def calibrate(
    noise: Noise, epsilons: tuple[Fraction, ...], delta: Fraction, sensitivity: Sensitivity
) -> tuple[tuple[Fraction, ...], int]:
    """Return noise scales for vectors with these parts of ε, and the τ of the first, that together spend ``delta``.

    Of two ways to prove it, the one with the lower τ: δ of noise and threshold added, or the joint δ of both.
    """
    of_noise, of_threshold = noise.split_delta(delta)
    scales = noise.scales(epsilons, of_noise, sensitivity)
    added = text_threshold(of_threshold, noise, scales[0], sensitivity)
    if noise.name == "laplace" or sensitivity.max_per_key != 1:
        return scales, added
    joint = noise.scales(epsilons, delta * _JOINT_NOISE, sensitivity)
    epsilon = sum(epsilons, Fraction(0))
    # Where all keys are new, δ(τ) is all that counts; mixtures need hardly more.
    tau = text_threshold(delta, noise, joint[0], sensitivity)
    while tau < added and not joint_holds(tau, noise, joint, epsilon, delta, sensitivity):
        tau += max((added - tau) // 16, 1)
    return (joint, tau) if tau < added else (scales, added)


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
) -> Heavy:
    """Release one noise shard by the threshold.

    ``part`` holds all keys of the shard: cells of the reduced domain at δ = 0 (``domain_bits`` given), texts at
    δ > 0 (``domain_bits`` None). An empty part is released too: its zeros have noise like all others. ``shards`` says
    how many shards there are. With ``top`` the cells are its sub-cells, and are identified by `listed_code`; where that
    is of texts, keys that it does not name are listed in `Heavy.cells`.
    """
    if domain_bits is None:
        return _named(shard, part, threshold, noise, scale, release_key)[0]
    cells = _ListedCells(shard, shards, LAPLACE, scale, release_key)
    if top is None:
        return cells.release("threshold", part, threshold, domain_bits)[0]
    bits, label = top.domain_bits, "cells"
    if bits is None:
        first, noisy = _named(shard, part, top.threshold, noise, scale, release_key)
    else:
        first, noisy = cells.release("top list", part, top.threshold, bits)
        label = "threshold"
    rest = np.flatnonzero(noisy < top.threshold)
    aligned = part.fingerprints[rest] << np.uint64(64 - (bits or 64))
    source = release_key.source("withheld", shard, part.digest())
    assert isinstance(noise, LaplaceNoise)
    counts = _lowered(part.counts[rest], top.threshold, withheld(scale, noise), source)
    cut = Histogram(aligned, counts, None, part.sensitivity)
    second, _ = cells.release(label, cut.reduced(domain_bits), threshold, domain_bits)
    if bits is None:
        return replace(first, cells=Heavy(second.fingerprints, np.minimum(second.values, top.threshold - 1)))
    codes = [
        listed_code(first.fingerprints, domain_bits, top, of_top=True),
        listed_code(second.fingerprints, domain_bits, top, of_top=False),
    ]
    found = np.concatenate(codes)
    order = np.argsort(found, kind="stable")  # merges the two
    values = np.concatenate([first.values, np.minimum(second.values, top.threshold - 1)])
    return Heavy(found[order], values[order])


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


def _lowered(
    counts: NDArray[np.int64], threshold: int, table: NDArray[np.int64], source: BitSource
) -> NDArray[np.int64]:
    """Return x less what it is withheld, rounded at random, of counts that the top list does not show."""
    counts = np.minimum(counts, threshold - 1)
    near = np.flatnonzero(counts >= threshold - len(table))
    drawn = (source.words(len(near)) >> np.uint64(64 - TOP_GRID)).astype(np.int64)
    counts[near] -= (table[threshold - 1 - counts[near]] + drawn) >> TOP_GRID
    return counts


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


# Below 2^−40, 1 − (1 − q)^d and d·q are equal for every use, and only the second keeps its digits.
_TINY = 40


def any_of(iv: Any, chance: Any, keys: int) -> Any:
    """Enclose 1 − (1 − chance)^keys; by its upper bound keys·chance where that keeps all digits."""
    return keys * chance if chance.b < iv.mpf(2) ** -_TINY else 1 - (1 - chance) ** keys


def joint_delta(
    passes: Callable[[Any], Any], new: tuple[int, int], vectors: Vectors, epsilon: Fraction
) -> Fraction:
    """Return an upper bound of one δ for noise and threshold, with from ``new[0]`` to ``new[1]`` new keys.

    A key of a user costs the noise or the threshold, never both. Adding the δ of Gaussian noise and the δ of a
    threshold counts a user twice: new keys, which nobody else has, cost the threshold, shared keys cost the noise,
    and a key is one or the other (Wilkins, Kifer, Zhang, Karrer 2024). Of t keys of a user let a be new, p = P[a
    new key is not listed], and μ² that of the t − a shared keys and of every other Gaussian vector of the release.
    No new key is listed with probability p^a, independently of all else, and then the output is that of the
    Gaussian mechanism on the shared keys. So for the user added and removed

        δ ≥ (1 − p^a) + p^a·D(ε − a·ln p, μ)      and      δ ≥ D(ε + a·ln p, μ),

    with D of `hushgram.noise.gdp`, and δ is the maximum over t and a ≤ t. How many keys are new must not depend on
    anything released.

    *Proof.* With G and G' for the Gaussian mechanism on the shared keys and other vectors, with the user and
    without, the output is in S with probability at most (1 − p^a) + p^a·G(S), at least p^a·G(S) with the user, and
    G'(S) without. Put G(S) ≤ e^(ε − a·ln p)·G'(S) + D(ε − a·ln p, μ) into the first, and G'(S) ≤ e^(ε + a·ln
    p)·G(S) + D(ε + a·ln p, μ) into the second. The first bound is sup over S of 1 − p^a·(1 − G(S)) − e^ε·G'(S), so
    a smaller p never lowers it.

    Args:
        passes: encloses 1 − p, the chance that one new key is listed, or an upper bound of it.
        new: the least and the largest a.
        vectors: the shared keys, of which there are most at the least a, and all other vectors.
        epsilon: where δ is asked for.
    """
    if not compares(vectors):
        return Fraction(1)
    mu_squared = gdp_mu_squared(vectors)

    def bound(iv: Any) -> Any:
        factor, chance = discrete_factor(iv, vectors), passes(iv)
        if chance.b >= 1:
            return iv.mpf(1)
        at, loss = ratio_interval(iv, epsilon) - 2 * iv.log(factor), -iv.log(1 - chance)
        added = any_of(iv, chance, new[1]) + factor * mu_delta(iv, at + new[0] * loss, mu_squared)
        removed = factor * mu_delta(iv, at - new[1] * loss, mu_squared)
        return iv.mpf([max(added.a, removed.a), max(added.b, removed.b)])

    return enclose(bound, BITS)[1]
