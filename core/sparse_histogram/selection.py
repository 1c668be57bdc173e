"""Key selection: which keys are listed with a noisy count of their own, and how a key is identified.

| selection | δ | a key is | listed |
|---|---|---|---|
| threshold on fingerprints | 0 | a cell: its fingerprint's first bits | all cells whose noisy count reaches β |
| threshold on texts | > 0 | its text | texts in the data whose noisy count reaches τ |
| by weights | > 0 | its text | texts in the data whose noisy weight reaches ρ; then each gets a noisy count |
| public keys | any | its text, known without the data | every public key, and nothing else is released |
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from hushgram.contributions.histogram import Histogram
from hushgram.errors import ParameterError
from hushgram.key_selection.threshold import pure_threshold, text_threshold
from hushgram.key_selection.weighted import WHOLE
from hushgram.noise.noises import Noise
from hushgram.numbers import integer
from hushgram.sensitivity import Sensitivity
from hushgram.sparse_histogram.params import PAPER_DOMAIN_BITS, Params

__all__ = [
    "CELLS_PER_KEY", "FALSE_KEYS", "FINGERPRINTS", "MIN_KEYS", "PUBLIC_KEYS", "SELECTIONS", "TEXTS", "WEIGHTS",
    "KeySelection",
]  # fmt: skip

#: One key in this many shares its cell with another one.
CELLS_PER_KEY = 10_000
#: At δ = 0 so many false keys are always allowed, as a share of all.
FALSE_KEYS = Fraction(3, 100)
#: There is room for at least so many keys.
MIN_KEYS = 16


class KeySelection:
    """A way to select keys; this one is the threshold on texts."""

    #: the name in manifests
    name = "threshold"
    #: whether listed keys are released with their text
    texts = True
    #: whether keys of the data are selected, so that others may be encoded; public keys are all that there is
    selects = True
    #: whether a key is selected by the noisy count that is released for it
    by_count = True

    def threshold(self, params: Params, keys: int, noise: Noise, scale: Fraction) -> tuple[int | None, int]:
        """Return the bits of the domain (None without one), and the noisy count from which a key is listed."""
        return None, text_threshold(params.delta, noise, scale, params.sensitivity)

    def highest_threshold(self, params: Params, noise: Noise, scale: Fraction) -> int:
        """Return the highest threshold that any number of keys could lead to."""
        return self.threshold(params, MIN_KEYS, noise, scale)[1]

    def checked_domain(self, domain_bits: object) -> int | None:
        """Return the bits of the domain as a manifest states them."""
        if domain_bits is not None:
            raise ParameterError(f"Plan: domain_bits must be null where selection is {self.name}")
        return None

    def cells(self, part: Histogram, domain_bits: int | None) -> Histogram:
        """Return the exact histogram over identified keys."""
        return part

    def sensitivity(self, counts: Sensitivity) -> Sensitivity:
        """Return the sensitivity of `cells` where counts of keys have this one."""
        return counts

    def place(self, fingerprints: NDArray[np.uint64], domain_bits: int | None) -> NDArray[np.uint64]:
        """Return the numbers that are looked up and hashed for keys."""
        return fingerprints

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], KeySelection], tuple[str]]:
        return _named, (self.name,)


class _Fingerprints(KeySelection):
    name = "fingerprints"
    texts = False

    def threshold(self, params: Params, keys: int, noise: Noise, scale: Fraction) -> tuple[int | None, int]:
        """Return the setting of the paper: one false key among 2^64 fingerprints."""
        return PAPER_DOMAIN_BITS, pure_threshold(PAPER_DOMAIN_BITS, Fraction(1), noise, scale)

    def checked_domain(self, domain_bits: object) -> int | None:
        return integer(domain_bits, "domain_bits", "Plan", low=8, high=64)

    def cells(self, part: Histogram, domain_bits: int | None) -> Histogram:
        assert domain_bits is not None
        return part.reduced(domain_bits)

    def sensitivity(self, counts: Sensitivity) -> Sensitivity:
        return counts.added_up()

    def place(self, fingerprints: NDArray[np.uint64], domain_bits: int | None) -> NDArray[np.uint64]:
        assert domain_bits is not None
        return fingerprints >> np.uint64(64 - domain_bits)


class _PublicKeys(KeySelection):
    name = "public"
    selects = False
    by_count = False

    def threshold(self, params: Params, keys: int, noise: Noise, scale: Fraction) -> tuple[int | None, int]:
        return None, 0


class _Weights(KeySelection):
    name = "weights"
    by_count = False

    def threshold(self, params: Params, keys: int, noise: Noise, scale: Fraction) -> tuple[int | None, int]:
        """Return the count from which a key is hardly left unselected if its users have Δ keys each: a cap for
        encodings.

        That is no promise: keys of users with many more keys may be above it.
        """
        last = params.gaussian.selection.rounds[-1]
        reached = (last.threshold + 4 * last.scale) * (isqrt(params.max_keys - 1) + 1) / WHOLE
        return None, max(-(-reached // 1), 2) * params.max_per_key


TEXTS, FINGERPRINTS, WEIGHTS, PUBLIC_KEYS = KeySelection(), _Fingerprints(), _Weights(), _PublicKeys()
#: by the names of `Params.selection`
SELECTIONS = {each.name: each for each in (FINGERPRINTS, TEXTS, WEIGHTS, PUBLIC_KEYS)}


def _named(name: str) -> KeySelection:
    return SELECTIONS[name]
