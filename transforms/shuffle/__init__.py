"""Shared by stages: records as batches, coders and spill files, shards and combining; and what a release costs.

`Cost` has the formulas of docs/scaling.md. `python -m benchmarks.scaling` compares them with measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["ROWS_PER_PIECE", "SHARDS_AT_ONCE", "SPLIT_ROWS", "Cost"]

#: Batches are collected until a piece of the first shuffle has about this many rows, or the batch SPLIT_ROWS.
ROWS_PER_PIECE, SPLIT_ROWS = 512, 1 << 21
#: More shards than this are made in two shuffles.
SHARDS_AT_ONCE = 1 << 12
# A reader's batch of Parquet.
_BATCH_ROWS = 1 << 18
_MICRO = 1e-6


@dataclass(frozen=True)
class Cost:
    """What a release at δ = 0 costs, predicted from its size: exact, for whoever runs it.

    ``rows`` are those that are sent; ``users`` and ``keys`` are distinct. The constants were measured on one machine.
    """

    rows: int
    users: int
    keys: int
    shards: int
    groups: int

    @property
    def pieces(self) -> float:
        """Return the pieces of the first shuffle, or of the first two where there are many shards."""
        ranges = min(self.shards, SHARDS_AT_ONCE)
        batch = min(max(ranges * ROWS_PER_PIECE, _BATCH_ROWS), SPLIT_ROWS)
        pieces = ranges * math.ceil(self.rows / batch)
        if self.shards == ranges:
            return pieces
        used = -math.expm1(-self.users / self.shards)  # the share of shards that have users
        return pieces + self.shards * used * math.ceil(self.rows / ranges / SPLIT_ROWS)

    @property
    def first_shuffle(self) -> float:
        """Return the bytes of the first shuffle, or of the first two: 24 per row, and some per piece."""
        return 24 * self.rows * (1 + (self.shards > SHARDS_AT_ONCE)) + 100 * self.pieces

    @property
    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the local runner, with its start."""
        sorting = 0.10 * max(0.0, math.log2(self.rows / self.shards / (1 << 19)))  # beyond the cache
        again = 0.10 * (self.shards > SHARDS_AT_ONCE)
        return 2.1 + _MICRO * ((0.37 + sorting + again) * self.rows + 0.7 * self.keys + 33 * self.pieces)

    @property
    def memory(self) -> float:
        """Return the bytes that a worker needs at most, one stage at a time."""
        return 213e6 + max(self._taking, self._bounding, self._summing)

    @property
    def _taking(self) -> float:
        return 150e6 + 40 * min(self.rows, min(self.shards, SHARDS_AT_ONCE) * ROWS_PER_PIECE, SPLIT_ROWS)

    @property
    def _bounding(self) -> float:
        return 50e6 + 130 * self.rows / self.shards

    @property
    def _summing(self) -> float:
        return 165 * self.keys / self.groups
