"""Noisy buckets: hashed sums of counts, with noise on every one of them.

Released: m numbers. Each key hashes to one of m buckets; bucket j holds B_j = Σ x_i over its keys, exactly, plus
discrete Gaussian noise Z_j, independent, on every bucket, also where nothing was hashed; then it is rounded to a
multiple of an odd step (post-processing). No cap on counts is needed.

Guarantee, for any public m, seeds and step. B is linear in x and hashing adds counts up, so that one user, who moves x
by v ≥ 0 or v ≤ 0, moves B by Av. The L2 norm counts, and adding up raises it: two keys with 1 each in one bucket move
it by 2. So bounding keeps at most one key of a user in each of R *classes*, R public and fixed before any data
(`classes`), and m is a multiple of R. As ⌊⌊h·m/2^32⌋ / (m/R)⌋ = ⌊h·R/2^32⌋, keys of one bucket share their class: no
two keys of a user meet, Av has the parts of v, and B is part of the vector that named counts are part of
(`hushgram.key_selection.rounds`). A user of C keys loses on average less than C/256 of them by this.

| symbol | meaning |
|---|---|
| x_i | exact count of key i |
| m | number of buckets |
| C, L∞ | most that one user adds in all, and to one key |
| R | number of classes |
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hushgram.contributions.histogram import Histogram
from hushgram.contributions.keys import column_positions
from hushgram.encodings import (
    CellPart,
    EncodedBlock,
    Encoding,
    Layout,
    LayoutSpec,
    ReadBlock,
    integer_code,
    monotone,
)
from hushgram.errors import FormatError, ParameterError
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.noise.gaussian import NOISE as GAUSSIAN
from hushgram.numbers import integer, rational, show

if TYPE_CHECKING:
    from hushgram.decoding import Likelihood, ReleasedNumbers

__all__ = ["BLOCK", "ENCODING", "Buckets", "BucketsLayout", "classes"]

#: Noise is drawn for blocks of this many buckets (the last one may be shorter), and a lookup reads one of them.
BLOCK = 1 << 14
_LARGEST_SIZE = 1 << 32
_CLASSES_A_KEY = 128
# The bits of a bucket with noise alone, where the scale is one step.
_BITS_AT_ONE = Fraction(12, 5)
# Steps that are tried, in scales. A wider one would round off more than noise blurs.
_STEPS = tuple(Fraction(eighths, 8) for eighths in (2, 4, 6, 8))


def classes(max_contributions: int) -> int:
    """Return R: a power of two of at least 128·C.

    >>> classes(20)
    4096
    """
    return 1 << (_CLASSES_A_KEY * max_contributions - 1).bit_length()


@dataclass(frozen=True)
class BucketsLayout(Layout):
    """m buckets. Block i has the buckets from i·`BLOCK` on."""

    scale: Fraction
    step: int
    size: int

    @property
    def encoding(self) -> str:
        return Buckets.id

    @property
    def noise_scale(self) -> Fraction:
        return self.scale

    @property
    def hashes(self) -> int:
        return 1

    @property
    def blocks(self) -> int:
        return -(-self.size // BLOCK)

    @property
    def bits(self) -> int:
        return int(self.size * _bits_of_noise(self.scale / self.step))

    @property
    def sums(self) -> int:
        return 1  # of all levels

    def describe(self) -> str:
        """Return a description in a few words."""
        return (
            f"{self.size:,} buckets with {GAUSSIAN.name} noise of scale {float(self.scale):.4g},"
            f" in steps of {self.step}"
        )

    def to_dict(self) -> dict[str, Any]:
        return {"scale": show(self.scale), "step": self.step, "buckets": self.size}

    def check_privacy(self, spec: LayoutSpec) -> None:
        """Check that the scale is that of the whole release; the plan checks what it costs."""
        if self.scale != spec.scale:
            raise ParameterError("Plan: noise of buckets is not of the planned scale")
        if self.size % classes(spec.max_contributions):
            raise ParameterError(
                f"Plan: buckets must be a multiple of {classes(spec.max_contributions)}, got {self.size}"
            )

    def positions(self, fingerprints: NDArray[np.uint64], seeds: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the bucket of each key."""
        return column_positions(fingerprints, seeds[0], self.size).astype(np.int64)

    @property
    def _most(self) -> int:
        """No level is further from 0, so that its sum of counts is within LARGEST."""
        return integer_code.LARGEST // self.step

    def length(self, block: int) -> int:
        """Return how many buckets a block has."""
        return min(BLOCK, self.size - block * BLOCK)

    # --- release ----------------------------------------------------------------------------------------------------

    def project(
        self, shards: Iterable[tuple[int, Histogram]], seeds: NDArray[np.uint64], release_key: ReleaseKey
    ) -> Iterator[tuple[int, CellPart]]:
        """Yield for each block the buckets that get something, and how much."""
        held = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        for _, part in shards:
            held.append((self.positions(part.fingerprints, seeds), part.counts))
        places, counts = (np.concatenate(side) for side in zip(*held, strict=True))
        order = np.argsort(places)
        places, counts = places[order], counts[order]
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        places = places[starts]
        sums = np.add.reduceat(counts, starts) if len(starts) else counts
        cuts = np.append(np.searchsorted(places, np.arange(self.blocks) * BLOCK), len(places))
        for block, (low, high) in enumerate(pairwise(cuts)):
            if high > low:
                yield block, ((places[low:high] - block * BLOCK).astype(np.uint16), sums[low:high])

    def empty_block(self, block: int) -> NDArray[np.int64]:
        return np.zeros(self.length(block), np.int64)

    def add(self, cells: NDArray[np.int64], part: CellPart) -> None:
        places, sums = part
        cells[places] += sums

    def release_block(self, block: int, cells: NDArray[np.int64], release_key: ReleaseKey) -> EncodedBlock:
        source = release_key.source("buckets", block, digest(cells))
        noisy = cells + GAUSSIAN.sample(self.scale, len(cells), source)
        # Free from here on: rounding, and a clamp that no sum of counts below 2^48 reaches.
        levels = np.clip((noisy + self.step // 2) // self.step, -self._most, self._most)
        return EncodedBlock(block, integer_code.encode(levels), levels.sum(keepdims=True))

    # --- reading ----------------------------------------------------------------------------------------------------

    def block_lengths(self) -> None:
        return None

    def check_sums(self, sums: tuple[int, ...]) -> None:
        """Accept any sum: buckets have noise of either sign."""

    def levels(self, block: int, content: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return (noisy sum)/step, rounded, of every bucket of a block."""
        levels = integer_code.decode(content, self.length(block))
        if max(int(levels.max(initial=0)), -int(levels.min(initial=0))) > self._most:
            raise FormatError("a block of buckets has a number that is too large")
        return levels

    def block_sums(self, block: int, content: NDArray[np.uint8]) -> NDArray[np.int64]:
        return np.array([self.levels(block, content).sum()], np.int64)

    def look_up(
        self, fingerprints: NDArray[np.uint64], seeds: NDArray[np.uint64], read: ReadBlock
    ) -> NDArray[np.int64]:
        """Return (N, 2): the bucket of each key, and its level."""
        places = self.positions(fingerprints, seeds)
        found = np.zeros(len(places), np.int64)
        order = np.argsort(places)
        touched, starts = np.unique(places[order] // BLOCK, return_index=True)
        for block, rows in zip(touched.tolist(), np.split(order, starts[1:]), strict=len(touched) > 0):
            found[rows] = self.levels(block, read(block))[places[rows] - block * BLOCK]
        return np.stack([places, found], axis=1)

    def likelihood(
        self,
        released: ReleasedNumbers,
        sums: NDArray[np.int64],
        read: ReadBlock,
    ) -> Likelihood:
        from hushgram.decoding import BucketLikelihood
        from hushgram.decoding.constants import SAMPLE

        some = range(min(self.blocks, max(SAMPLE // BLOCK, 1)))
        return BucketLikelihood(
            released,
            noise=GAUSSIAN.law(float(self.scale)),
            step=self.step,
            size=self.size,
            sample=np.concatenate([self.levels(block, read(block)) for block in some]),
            total=int(sums[0]),
        )


# --- plan -----------------------------------------------------------------------------------------------------------


class Buckets(Encoding):
    """Buckets with the noise of the release."""

    id = "buckets-1"

    def squared_error(self, layout: Layout, spec: LayoutSpec) -> Fraction:
        """Return the error of an unbiased estimate: noise, rounding, and other keys of the same bucket."""
        assert isinstance(layout, BucketsLayout)
        return (
            GAUSSIAN.variance(layout.scale)
            + Fraction(layout.step**2, 12)
            + Fraction(_squares(spec), layout.size)
        )

    def check(self, spec: LayoutSpec) -> None:
        """Accept any spec: classes(C) is at most 2^27."""

    def plan(self, spec: LayoutSpec) -> BucketsLayout:
        """Return the layout with the least error: a wider step saves bits for more buckets, with fewer keys in each."""
        assert spec.scale is not None
        steps = {int(spec.scale * share / 2) * 2 + 1 for share in _STEPS}
        layouts = [_layout(spec, spec.scale, step) for step in sorted(steps)]
        return min(layouts, key=lambda layout: self.squared_error(layout, spec))

    def read_layout(self, text: Mapping[str, Any]) -> BucketsLayout:
        scale = rational(text["scale"], "scale", "BucketsLayout")
        if not GAUSSIAN.in_range(scale):
            raise ParameterError(
                f"BucketsLayout: scale must be from {GAUSSIAN.min_scale} to {GAUSSIAN.max_scale},"
                f" got {show(scale)[:60]}"
            )
        step = integer(text["step"], "step", "BucketsLayout", low=1, high=1 << 34)
        if step % 2 == 0:
            raise ParameterError(f"BucketsLayout: step must be odd, got {step}")
        size = integer(text["buckets"], "buckets", "BucketsLayout", low=1, high=_LARGEST_SIZE)
        return BucketsLayout(scale, step, size)


# The integer code takes up to a twentieth more than `_bits_of_noise` assumes.
_USED = Fraction(19, 20)


def _layout(spec: LayoutSpec, scale: Fraction, step: int) -> BucketsLayout:
    """Return a layout with as many buckets as fit the requested bits."""
    bits = spec.bits_per_key * spec.keys * _USED - _bits_of_counts(spec)
    buckets = max(bits / _bits_of_noise(scale / step), Fraction(spec.keys, 2))
    unit = classes(spec.max_contributions)
    most = _LARGEST_SIZE // unit
    return BucketsLayout(scale, step, min(max(-int(-buckets // unit), 1), most) * unit)


def _bits_of_noise(ratio: Fraction) -> Fraction:
    """Return about how many bits a bucket with noise alone takes, where the scale is ``ratio`` steps."""
    doublings = Fraction(int(max(2 * ratio, Fraction(8, 5)) ** 16).bit_length() - 1, 16) - 1
    return _BITS_AT_ONE + doublings


def _squares(spec: LayoutSpec) -> int:
    """Return about the sum of squares of the counts below the threshold, by the released profile or by their mean."""
    if not spec.profile:
        return spec.records * min(spec.threshold, 4 * -(-spec.records // spec.keys))
    reached = monotone(spec.profile, spec.keys)
    cells = zip(spec.profile_at, spec.profile_at[1:], reached, reached[1:], strict=False)
    return int(
        sum((n - further) * low * (high - 1) for low, high, n, further in cells if low < spec.threshold)
    )


def _bits_of_counts(spec: LayoutSpec) -> int:
    """Return about how many bits more the buckets take for their content: two per doubling above the noise.

    Keys with a count of at least t = scale·2^i, by the released profile or else by Markov's bound, cost 2 bits each.
    """
    assert spec.scale is not None
    reached = monotone(spec.profile, spec.keys)
    total, at = Fraction(0), spec.scale
    for _ in range(40):
        if spec.profile:
            first = bisect_left(spec.profile_at, math.ceil(at))
            total += 2 * reached[first] if first < len(reached) else 0
        else:
            total += 2 * min(spec.keys, int(spec.records / at / 4))
        at *= 2
    return int(total)


ENCODING = Buckets()
