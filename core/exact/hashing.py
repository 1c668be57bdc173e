"""Hash functions that place keys in an encoding: strongly universal, vectorised, public.

For a 64-bit fingerprint f with halves lo and hi, pair-multiply-shift (Thorup 2015, §3.4)

    h(f) = ((a₁ + lo) · (a₂ + hi) + c mod 2^64) >> 32

is strongly universal into 32 bits for uniform 64-bit a₁, a₂, c; (h · s) >> 32 maps it to [0, s). The seeds are
drawn fresh for each release and stored whole in its manifest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hushgram.noise.entropy import ReleaseKey

__all__ = ["column_positions", "draw_seeds", "mix"]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def draw_seeds(release_key: ReleaseKey, columns: int) -> NDArray[np.uint64]:
    """(columns, 3) seeds a₁, a₂, c. They depend on the release key alone, never on data."""
    return release_key.source("column-seeds").words(3 * columns).reshape(columns, 3)


def column_positions(
    fingerprints: NDArray[np.uint64], seeds: NDArray[np.uint64], size: int
) -> NDArray[np.uint64]:
    """Position in [0, size) of each fingerprint in the column with these three seeds; 1 ≤ size ≤ 2^32."""
    a1, a2, c = seeds
    h = (a1 + (fingerprints & _LOW)) * (a2 + (fingerprints >> _HALF)) + c
    out: NDArray[np.uint64] = ((h >> _HALF) * np.uint64(size)) >> _HALF
    return out


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of MurmurHash3: a bijection of 64 bits that spreads every input bit."""
    x = values ^ (values >> np.uint64(33))
    x *= np.uint64(0xFF51AFD7ED558CCD)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xC4CEB9FE1A85EC53)
    x ^= x >> np.uint64(33)
    return x
