"""The three kinds of release, and how each identifies keys.

| kind | δ | a key is | released |
|---|---|---|---|
| pure | 0 | a cell: the first bits of its fingerprint | cells whose noisy count reaches β, empty ones included |
| text | > 0 | its text | texts in the data whose noisy count reaches τ |
| public | 0 | its text, in a list known beforehand | every key of the list |
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.exact.histogram import Histogram
from hushgram.noise.noises import Noise
from hushgram.numbers import integer
from hushgram.sensitivity import Sensitivity
from hushgram.sparse_histogram import threshold
from hushgram.sparse_histogram.params import ReleaseParams

__all__ = ["KINDS", "PUBLIC", "PURE", "TEXT", "Kind", "kind_of"]

#: One key in this many shares its cell with another one.
CELLS_PER_KEY = 10_000
_LEAST_DOMAIN_BITS = 16
_MOST_KEYS = 1 << 50
#: There is room for so many keys at least.
LEAST_KEYS = 16


class Kind:
    """How keys are told apart and released; this one is text."""

    #: the word in manifests
    word = "text"
    #: whether heavy keys are released with their text
    texts = True
    #: whether any key may be asked for, so that counts are encoded for all keys
    sparse = True

    def threshold(
        self, params: ReleaseParams, keys: int, noise: Noise, scale: Fraction
    ) -> tuple[int | None, int]:
        """Bits of the domain (None without one), and the noisy count from which a key is heavy."""
        _, delta = noise.split_delta(params.delta)
        return None, threshold.text_threshold(delta, noise, scale, params.sensitivity)

    def highest_threshold(self, params: ReleaseParams, noise: Noise, scale: Fraction) -> int:
        """The highest threshold that any number of keys could lead to."""
        return self.threshold(params, params.expected_keys or _MOST_KEYS, noise, scale)[1]

    def checked_domain(self, domain_bits: object) -> int | None:
        """Bits of the domain as a manifest states them."""
        if domain_bits is not None:
            raise ParameterError(f"Plan: domain_bits must be null where kind is {self.word}")
        return None

    def cells(self, part: Histogram, domain_bits: int | None) -> Histogram:
        """The exact histogram over what is told apart."""
        return part

    def told_apart(self, sensitivity: Sensitivity) -> Sensitivity:
        """The sensitivity of `cells` where counts of keys have this one."""
        return sensitivity

    def place(self, fingerprints: NDArray[np.uint64], domain_bits: int | None) -> NDArray[np.uint64]:
        """The number that is looked up and hashed for a key."""
        return fingerprints

    def __repr__(self) -> str:
        return self.word

    def __reduce__(self) -> tuple[Callable[[object], Kind], tuple[str]]:
        return kind_of, (self.word,)


class _Pure(Kind):
    word = "pure"
    texts = False

    def threshold(
        self, params: ReleaseParams, keys: int, noise: Noise, scale: Fraction
    ) -> tuple[int | None, int]:
        bits = params.domain_bits or _domain_bits(keys)
        allowed = params.false_keys if params.false_keys >= 1 else params.false_keys * keys
        return bits, threshold.pure_threshold(bits, max(allowed, Fraction(1, 1000)), noise, scale)

    def highest_threshold(self, params: ReleaseParams, noise: Noise, scale: Fraction) -> int:
        if params.expected_keys is not None or params.false_keys >= 1:
            return super().highest_threshold(params, noise, scale)
        if params.domain_bits is not None:  # a share of few keys is the fewest false ones
            return self.threshold(params, LEAST_KEYS, noise, scale)[1]
        # the domain has at most 2·CELLS_PER_KEY cells a key
        cells = 2 * CELLS_PER_KEY * _MOST_KEYS
        allowed = params.false_keys * _MOST_KEYS / cells * (1 << 64)
        return threshold.pure_threshold(64, allowed, noise, scale)

    def checked_domain(self, domain_bits: object) -> int | None:
        return integer(domain_bits, "domain_bits", "Plan", low=8, high=64)

    def cells(self, part: Histogram, domain_bits: int | None) -> Histogram:
        assert domain_bits is not None
        return part.reduced(domain_bits)

    def told_apart(self, sensitivity: Sensitivity) -> Sensitivity:
        return sensitivity.added_up()

    def place(self, fingerprints: NDArray[np.uint64], domain_bits: int | None) -> NDArray[np.uint64]:
        assert domain_bits is not None
        return fingerprints >> np.uint64(64 - domain_bits)


class _Public(Kind):
    word = "public"
    sparse = False

    def threshold(
        self, params: ReleaseParams, keys: int, noise: Noise, scale: Fraction
    ) -> tuple[int | None, int]:
        return None, 0


TEXT, PURE, PUBLIC = Kind(), _Pure(), _Public()
KINDS = {kind.word: kind for kind in (PURE, TEXT, PUBLIC)}


def kind_of(word: object) -> Kind:
    """The kind that a manifest names."""
    if not isinstance(word, str) or word not in KINDS:
        raise ParameterError(f"Plan: kind must be {', '.join(KINDS)}, got {str(word)[:40]!r}")
    return KINDS[word]


def _domain_bits(keys: int) -> int:
    """Bits of a domain in which one key in `CELLS_PER_KEY` meets another."""
    return min(max((CELLS_PER_KEY * keys - 1).bit_length(), _LEAST_DOMAIN_BITS), 64)
