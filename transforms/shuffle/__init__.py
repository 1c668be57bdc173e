"""Shared by stages: records as batches, coders and spill files, shards and combining; and what a release costs.

`Cost` has the formulas of docs/scaling.md. `python -m benchmarks.scaling` compares them with measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = [
    "BLOCK_RANGES", "KEPT_ROWS", "MERGE_ROWS", "ROWS_PER_PIECE", "SENT_PLACES", "SHARDS_AT_ONCE", "SPLIT_ROWS", "Cost",
]  # fmt: skip

#: Batches are collected until a piece of the first shuffle has about this many rows, or the batch SPLIT_ROWS;
#: histograms, until a piece of the second has so many, or all MERGE_ROWS.
ROWS_PER_PIECE, SPLIT_ROWS, MERGE_ROWS = 512, 1 << 21, 1 << 22
#: Rows of users that are kept for later steps are elements of about this many, with texts below 100 MB.
KEPT_ROWS = 1 << 20
#: Places of keys that shards of users weigh, in one element of a group.
SENT_PLACES = 1 << 23
#: A group sends to at most so many ranges of blocks.
BLOCK_RANGES = 1024
#: More shards than this are made in two shuffles.
SHARDS_AT_ONCE = 1 << 12
# A reader's batch of Parquet.
_BATCH_ROWS = 1 << 18
_MICRO = 1e-6


@dataclass(frozen=True)
class Cost:
    """What a release costs, predicted from its size: exact, for whoever runs it.

    ``rows`` are those that are sent; ``users`` and ``keys`` are distinct. At δ > 0 a key has ``text`` bytes on average;
    None is δ = 0. The constants were measured on one machine.
    """

    rows: int
    users: int
    keys: int
    shards: int
    groups: int
    text: float | None = None

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
    def group_pieces(self) -> float:
        """Return the pieces of the shuffle to groups; the histogram of a shard of users is never cut before it."""
        held = max(min(self.groups * ROWS_PER_PIECE, MERGE_ROWS), self.rows / self.shards)
        return self.groups * math.ceil(self.rows / held)

    @property
    def first_shuffle(self) -> float:
        """Return the bytes of the first shuffle, or of the first two, at δ = 0: 24 per row, and some per piece."""
        return 24 * self.rows * (1 + (self.shards > SHARDS_AT_ONCE)) + 100 * self.pieces

    @property
    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the local runner at δ = 0, with its start."""
        sorting = 0.04 * max(0.0, math.log2(self.rows / self.shards / (1 << 19)))  # beyond the cache
        again = 0.05 * (self.shards > SHARDS_AT_ONCE)
        per_row = (0.31 + sorting + again) * self.rows + 0.7 * self.keys
        pieces = 25 * (self.pieces + self.group_pieces) + 1900 * max(0, self.groups - 256)
        return 2.3 + _MICRO * (per_row + pieces)

    @property
    def memory(self) -> float:
        """Return the bytes that a worker needs at most, one stage at a time."""
        return 213e6 + max(self._taking, self._bounding, self._summing)

    @property
    def _taking(self) -> float:
        return 150e6 + 40 * min(self.rows, min(self.shards, SHARDS_AT_ONCE) * ROWS_PER_PIECE, SPLIT_ROWS)

    @property
    def _bounding(self) -> float:
        waiting = min(self.groups * ROWS_PER_PIECE, MERGE_ROWS, self.rows)
        return 50e6 + 130 * self.rows / self.shards + 86 * waiting

    @property
    def _summing(self) -> float:
        each = 165 if self.text is None else 260 + 7.8 * self.text
        return each * self.keys / self.groups

    @property
    def elements(self) -> dict[str, float]:
        """Return the bytes of the largest element of each shuffle, if keys are spread evenly and no row repeats one."""
        named = 0.0 if self.text is None else 12 + self.text  # fingerprint, length, text
        row, key = (24, 12) if self.text is None else (20 + named, 4 + named)
        ranges = min(self.shards, SHARDS_AT_ONCE)
        batch = min(max(ranges * ROWS_PER_PIECE, _BATCH_ROWS), SPLIT_ROWS)
        piece = max(batch / ranges, SPLIT_ROWS * ranges / self.shards if self.shards > ranges else 0)
        of_shard, of_group = self.rows / self.shards, self.keys / self.groups
        out = {
            "records to shards of users": row * min(piece, self.rows),
            "shards of users to groups": key * min(max(of_shard, MERGE_ROWS) / self.groups, of_group),
            "groups": key * of_group,
            "groups to ranges of blocks": 8 * of_group / min(max(1, self.keys * 9 >> 20), BLOCK_RANGES),
        }
        if self.text is not None:  # with key selection by weights
            sent = min(self.rows / self.groups, SENT_PLACES + KEPT_ROWS / self.groups)
            out["users, with states of their keys"] = (row + 2) * min(of_shard, KEPT_ROWS)
            out["weights of a group, and who sent them"] = (4 + key) * of_group + 4 * sent
        return out
