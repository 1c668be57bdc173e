"""A made-up histogram like the one that is planned for: by its sizes, or by an earlier release.

| symbol | meaning |
|---|---|
| s | exponent of the Zipf law that has `keys` keys, `records` records and a smallest count of about 1 |
| A | records of a user: discrete Pareto of tail `ACTIVITY`; its scale follows from records and users |
| kept | E[min(A, C)]/E[A] |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.noise.entropy import BitSource
from hushgram.sketch.reader import Sketch
from hushgram.sparse_histogram.contributions import UserTotals

__all__ = ["ACTIVITY", "Population"]

#: Tail of the number of records of a user, where nothing is known of it.
ACTIVITY = 1.2
_SIMULATED = 25_000
_FEW = 32  # up to this count records are kept one by one, above it their share
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Population:
    """A made-up histogram like the one that is planned for, at 1/scale of its keys."""

    keys: int
    records: int
    users: int | None
    counts: Ints
    scale: int = 1
    #: the C of the earlier release that the counts were seen in; None where they are not bounded yet
    bounded: int | None = None
    #: released with it: how many users have how many records
    totals: UserTotals | None = None

    @classmethod
    def zipf(cls, keys: int, records: int, users: int | None = None) -> Population:
        """Zipf counts, each at least 1, of `keys` keys and about `records` records."""
        if not 1 <= keys <= records:
            raise ParameterError(f"plan: keys must be from 1 to the {records:,} records, got {keys:,}")
        scale = _scale(keys)
        ranks = np.arange(1, keys // scale + 1, dtype=np.float64) * scale
        shares = ranks ** -_exponent(keys, records)
        counts = np.maximum(1, np.round(records / scale * shares / shares.sum())).astype(np.int64)
        return cls(keys, records, users, counts, scale)

    @classmethod
    def like(cls, sketch: Sketch, users: int | None = None) -> Population:
        """The population of an earlier release, from the distribution of counts that it shows."""
        plan = sketch.plan
        counts, number = sketch.distribution()
        counts = counts / sketch.per_count
        upto = np.cumsum(number)
        keys = max(round(float(upto[-1])), 1) if len(upto) else 1
        scale = _scale(keys)
        ranks = (np.arange(keys // scale) + 0.5) * scale  # from the rarest on
        held = counts[np.minimum(np.searchsorted(upto, ranks), len(counts) - 1)] if len(upto) else np.ones(1)
        whole = np.maximum(1, np.round(held)).astype(np.int64)
        records = int(whole.sum()) * scale
        return cls(keys, records, users, whole, scale, plan.params.max_contributions, plan.totals)

    def kept(self, max_contributions: int) -> float:
        """The share of all records that remains when each user is held to `max_contributions`."""
        if self.totals is not None:
            return 1.0 - self.totals.cut_share(max_contributions)
        if self.users is None:
            return 1.0
        steps = np.unique(np.geomspace(1, 1e7, 4000).astype(np.int64)).astype(np.float64)
        most = np.inf if self.bounded is None else float(self.bounded)
        mean = max(self.records / self.users, 1.0)
        low, high = 1e-3, 1e6
        for _ in range(60):  # the scale at which E[min(A, most)] = mean
            middle = (low * high) ** 0.5
            low, high = (middle, high) if _mean_activity(steps, middle, most) < mean else (low, middle)
        return _mean_activity(steps, low, float(max_contributions)) / _mean_activity(steps, low, np.inf)

    def held(self, max_contributions: int) -> Ints:
        """The counts that such a bound on users leaves: each record remains with the probability `kept`."""
        before = 1.0 if self.bounded is None else self.kept(self.bounded)
        share = self.kept(max_contributions) / max(before, 1e-9)
        held = np.round(self.counts * share).astype(np.int64)
        few = self.counts <= _FEW
        if share < 1.0 and few.any():
            words = BitSource(b"made-up users hold no secrets...").words(_FEW * int(few.sum()))
            kept = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53 < share
            there = np.arange(_FEW) < self.counts[few][:, None]
            held[few] = (kept.reshape(-1, _FEW) & there).sum(axis=1)
        return np.asarray(held[held > 0])


def _scale(keys: int) -> int:
    """The power of two at which a population is simulated."""
    scale = 1
    while keys // scale > _SIMULATED:
        scale *= 2
    return scale


def _exponent(keys: int, records: int) -> float:
    """s with records · keys^−s / Σ i^−s = 1: the rarest key has about one record."""
    sample = np.unique(np.geomspace(1, keys, 4000).astype(np.int64)).astype(np.float64)
    low, high = 0.0, 8.0
    for _ in range(50):
        middle = (low + high) / 2.0
        total = float(np.trapezoid(sample**-middle, sample)) + 0.5 * (1 + keys**-middle)
        low, high = (middle, high) if records * keys**-middle / total > 1.0 else (low, middle)
    return (low + high) / 2.0


def _mean_activity(steps: Floats, scale: float, most: float) -> float:
    """E[min(A, most)] = Σ P[A ≥ a] for a ≤ most, A = ⌈scale·Pareto⌉ at least 1."""
    tail = np.minimum(1.0, (np.maximum(steps, 1.0) / scale) ** -ACTIVITY)
    tail[0] = 1.0
    upto = np.minimum(np.append(steps[1:], 2 * steps[-1]) - 1, most)
    return float((tail * np.maximum(upto - steps + 1, 0.0) * (steps <= most)).sum())
