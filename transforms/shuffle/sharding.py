"""How a histogram is cut for the shuffle, and into the fixed shards that noise is drawn for.

A group of the shuffle is a range of whole noise shards: the number of groups follows the size of the input
and has no effect on the result, the `NOISE_SHARDS` are fixed: noise must not depend on the runner.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hushgram.errors import ParameterError
from hushgram.exact.histogram import NOISE_SHARDS, Histogram

__all__ = ["Shards", "noise_parts", "shards_for", "split_groups"]

# One shard of users for so many bytes of input keeps a shard near half a million rows.
_BYTES_PER_SHARD = 8 << 20
_LEAST, _MOST = 4, 4096


@dataclass(frozen=True)
class Shards:
    """Shards of the shuffles: of users, and groups of noise shards (a power of two up to 256)."""

    users: int = 16
    groups: int = 16

    def __post_init__(self) -> None:
        if not 1 <= self.users <= 1 << 16:
            raise ParameterError(f"Shards: users must be from 1 to 65536, got {self.users}")
        if not 1 <= self.groups <= NOISE_SHARDS or NOISE_SHARDS % self.groups:
            raise ParameterError(
                f"Shards: groups must be a power of two from 1 to {NOISE_SHARDS}, got {self.groups}"
            )


def shards_for(input_bytes: int | None, users: int | None = None) -> Shards:
    """Shards for an input of this many bytes (None: not known), or for ``users`` shards as asked for."""
    if users is None:
        size = 128 << 20 if input_bytes is None else input_bytes
        users = min(max(-(-size // _BYTES_PER_SHARD), _LEAST), _MOST)
    groups = 1 << (min(users, NOISE_SHARDS).bit_length() - 1)
    return Shards(users, groups)


def split_groups(histogram: Histogram, groups: int) -> Iterator[tuple[int, Histogram]]:
    """The groups that hold something, each with its part."""
    shift = np.uint64(64 - (groups.bit_length() - 1))
    top = histogram.fingerprints >> shift if groups > 1 else np.zeros(len(histogram), np.uint64)
    ends = np.searchsorted(top, np.arange(groups + 1, dtype=np.uint64))
    for group, (low, high) in enumerate(pairwise(ends)):
        if high > low:
            yield group, histogram.part(int(low), int(high))


def noise_parts(group: int, groups: int, histogram: Histogram) -> Iterator[tuple[int, Histogram]]:
    """The noise shards of a complete group, empty ones included."""
    each = NOISE_SHARDS // groups
    shards = np.arange(group * each, (group + 1) * each + 1, dtype=np.uint64)
    ends = np.searchsorted(histogram.fingerprints >> np.uint64(56), shards)
    for shard, low, high in zip(shards[:-1], ends[:-1], ends[1:], strict=True):
        yield int(shard), histogram.part(int(low), int(high))
