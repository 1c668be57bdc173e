"""Threshold release: heavy keys with noise (Aumüller, Lebeda, Pagh 2021, Algorithm 3).

Released: for every key whose noisy count v = x + Z reaches the threshold, its identity and v. Z is the noise of the
release (`hushgram.noise.noises`), discrete Laplace of scale C/ε in the paper. The comparison is v ≥ threshold, here
and in every formula below.

* **δ = 0** (Cormode, Procopiuc, Srivastava, Tran 2012). The key domain is the d fingerprints, and every one of them
  gets noise, also those that nobody used: the zeros that pass are drawn by geometric gaps (`sampling.successes`), and
  their values from the tail, Z | Z ≥ β. As private as the noise on x ∈ ℕ^d: the rest is post-processing.
  β is the smallest integer with d · P[Z ≥ β] ≤ F, the false keys allowed. Any public d and β are private.
* **δ > 0** (Korolova, Kenthapadi, Mishra, Ntoulas 2009). Only keys in the data get noise, and their text is released.
  What the noise costs, and a δ that bounds the probability that any key which one user alone holds passes: parts
  c_1 … c_r, each at most L∞, in all at most C, and δ(τ) = max over these of 1 − ∏(1 − P[Z ≥ τ − c_j]).
  An absent key costs nothing, so eight keys of 1 can be worse than one key of 8. With g(c) = −ln(1 − P[Z ≥ τ − c]),
  which is convex (the distribution is log-concave), Σ g(c_j) is largest at one of three splits: all parts 1; as many
  L∞ as fit and the rest as one part; as many L∞ as fit and the rest as ones. A test enumerates all splits.

| symbol | meaning |
|---|---|
| x | exact count of a key |
| d | number of fingerprints in the domain (δ = 0) |
| β, τ | the threshold at δ = 0, at δ > 0 |
| F | expected number of zeros that pass, at most |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushgram.exact.histogram import NOISE_SHARDS, Histogram
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.intervals import enclose
from hushgram.noise.noises import Noise
from hushgram.noise.sampling import successes
from hushgram.sensitivity import Sensitivity

__all__ = ["Heavy", "delta_of", "pure_threshold", "release_shard", "text_threshold"]


@dataclass(frozen=True)
class Heavy:
    """Released: keys that reached the threshold, sorted, with their noisy counts; texts at δ > 0 only."""

    fingerprints: NDArray[np.uint64]
    values: NDArray[np.int64]
    texts: pa.LargeBinaryArray | None = None

    @classmethod
    def concat(cls, parts: list[Heavy]) -> Heavy:
        """Parts in shard order, one after another."""
        texts = None
        if parts and parts[0].texts is not None:
            texts = pa.concat_arrays([part.texts for part in parts])
        return cls(
            np.concatenate([part.fingerprints for part in parts]),
            np.concatenate([part.values for part in parts]),
            texts,
        )

    def __len__(self) -> int:
        return len(self.fingerprints)


# --- privacy maps -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def delta_of(threshold: int, noise: Noise, scale: Fraction, sensitivity: Sensitivity) -> Fraction:
    """An upper bound of δ at this τ, tight to 2^-300: the worst split of one user's contributions."""
    return enclose(_delta_interval(threshold, noise, scale, sensitivity), 512)[1]


def _delta_interval(
    threshold: int, noise: Noise, scale: Fraction, sensitivity: Sensitivity
) -> Callable[[Any], Any]:
    """Interval of max over the three extreme splits of 1 − ∏(1 − P[Z ≥ τ − c_j])."""
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
    """β: the smallest integer ≥ 1 with 2^domain_bits · P[Z ≥ β] ≤ false_keys."""
    allowed = false_keys / (1 << domain_bits)
    return _smallest(lambda t: noise.tail(scale, t), allowed, 1)


@lru_cache(maxsize=256)
def text_threshold(delta: Fraction, noise: Noise, scale: Fraction, sensitivity: Sensitivity) -> int:
    """τ: the smallest integer for which δ(τ) ≤ delta."""
    return _smallest(lambda t: _delta_interval(t, noise, scale, sensitivity), delta, 1)


def _smallest(probability: Callable[[int], Callable[[Any], Any]], allowed: Fraction, low: int) -> int:
    """Smallest integer t ≥ low whose (decreasing) probability is at most ``allowed``."""
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
    """Whether the enclosed number is at most ``allowed``; doubt at high precision counts against us."""
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
) -> Heavy:
    """Threshold release of one noise shard.

    ``part`` holds all keys of the shard: cells of the reduced domain at δ = 0 (``domain_bits`` given), texts at
    δ > 0 (``domain_bits`` None). An empty part is released too: its zeros have noise like all others.
    """
    if domain_bits is None and not len(part):
        return Heavy(part.fingerprints, part.counts, part.texts)
    source = release_key.source("threshold", shard, part.digest())
    noisy = part.counts + noise.sample(scale, len(part), source)
    kept = np.flatnonzero(noisy >= threshold)
    if domain_bits is None:
        assert part.texts is not None
        return Heavy(part.fingerprints[kept], noisy[kept], part.texts.take(pa.array(kept)))
    cells = (1 << domain_bits) // NOISE_SHARDS
    zeros = successes(cells, noise.tail(scale, threshold), source) + np.uint64(shard * cells)
    values = noise.sample_tail(scale, threshold, len(zeros), source)
    if not len(zeros):
        return Heavy(part.fingerprints[kept], noisy[kept])
    free = ~np.isin(zeros, part.fingerprints)  # occupied cells have noise of their own
    found = np.concatenate([part.fingerprints[kept], zeros[free]])
    order = np.argsort(found)
    return Heavy(found[order], np.concatenate([noisy[kept], values[free]])[order])
