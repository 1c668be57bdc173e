"""A made-up histogram like the one that is planned for: by its sizes, or by an earlier release.

| symbol | meaning |
|---|---|
| s | exponent of the Zipf law that has `keys` keys, `records` records and a smallest count of about 1 |
| A | records of a user: discrete Pareto of tail `ACTIVITY`; its scale follows from records and users |
| kept | E[min(A, C)]/E[A] |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.noise.entropy import BitSource
from hushgram.noise.laws import LaplaceLaw
from hushgram.sketch.reader import Sketch
from hushgram.sparse_histogram.contributions import UserTotals

__all__ = ["ACTIVITY", "Population"]

#: Tail of the number of records of a user, where nothing is known of it.
ACTIVITY = 1.2
_HELD = 200_000  # keys of a population
_ROUNDS = 5
_ALL = 0.99  # of the users have a key at most, and of the keys a user
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
    #: share of the number of keys by which an earlier release may be wrong about it, at 95 %
    unsure: float = 0.0

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
        upto = np.append(0.0, np.cumsum(number))
        keys = max(round(float(upto[-1])), 1)
        scale = _scale(keys)
        edges = np.linspace(0.0, upto[-1], keys // scale + 1)  # of ranks, from the rarest key on
        mass = np.interp(edges, upto, np.append(0.0, np.cumsum(number * counts)))
        whole = np.maximum(1, np.round(np.diff(mass) / scale)).astype(np.int64)
        records = int(whole.sum()) * scale
        noise = float(plan.sizes.scale)
        unsure = LaplaceLaw(noise).radius(0.95) / keys if noise else 0.0
        return cls(keys, records, users, whole, scale, plan.params.max_contributions, plan.totals, unsure)

    def coarser(self, keys: int) -> Population:
        """The same at a smaller scale, with at most so many keys: neighbours in rank become one of their mean count."""
        together = 1
        while len(self.counts) > keys * together:
            together *= 2
        starts = np.arange(0, len(self.counts), together)
        # From the largest on: the last group may be smaller.
        sums = np.add.reduceat(np.sort(self.counts)[::-1], starts)
        counts = np.maximum(1, np.round(sums / np.diff(starts, append=len(self.counts)))).astype(np.int64)
        return replace(self, counts=counts, scale=self.scale * together) if together > 1 else self

    @cached_property
    def _people(self) -> tuple[Floats, Floats]:
        """How many users have how many records, and their totals; empty where nothing is known of users."""
        if self.totals is not None:
            cells = np.array(self.totals.likely(), np.float64).reshape(-1, 2)
            return cells[:, 0], cells[:, 1]
        if self.users is None:
            return np.zeros(0), np.zeros(0)
        steps = np.unique(np.geomspace(1, 1e7, 64).astype(np.int64)).astype(np.float64)
        most = np.inf if self.bounded is None else float(self.bounded)
        mean = max(self.records / self.users, 1.0)
        low, high = 1e-3, 1e6
        for _ in range(60):  # the scale at which E[min(A, most)] = mean
            middle = (low * high) ** 0.5
            users, totals = _pareto(steps, middle)
            low, high = (middle, high) if users @ np.minimum(totals, most) < mean else (low, middle)
        return self.users * users, totals

    def kept(self, max_contributions: int) -> float:
        """The share of all records that remains when each user is held to `max_contributions`."""
        users, totals = self._people
        return float(users @ np.minimum(totals, max_contributions) / (users @ totals)) if len(users) else 1.0

    def held(self, max_contributions: int) -> Ints:
        """The counts that such a bound on users leaves: each record remains with the probability of its key."""
        known, place = np.unique(self.counts, return_inverse=True)
        share = self._shares(known, np.bincount(place), max_contributions)[place]
        held = np.round(self.counts * share).astype(np.int64)
        few = (self.counts <= _FEW) & (share < 1.0)
        if few.any():
            words = BitSource(b"made-up users hold no secrets...").words(_FEW * int(few.sum()))
            drawn = (words >> np.uint64(11)).astype(np.float64).reshape(-1, _FEW) * 2.0**-53
            there = np.arange(_FEW) < self.counts[few][:, None]
            held[few] = (there & (drawn < share[few][:, None])).sum(axis=1)
        return np.asarray(held[held > 0])

    def _shares(self, counts: Ints, keys: Ints, most: int) -> Floats:
        """Of each distinct count, what such a bound leaves of it.

        Where an earlier release tells how many keys its users have: a user with activity a has a key of popularity p
        with probability 1 − e^(−ap), once. What the active have and others do not are rare keys, which the bound cuts
        most. Activities and popularities are those that give the totals of users and the counts of keys. Otherwise
        nothing is known of who has what, and all keys lose the same share.
        """
        users, totals = self._people
        if self.totals is None or not len(users):
            before = 1.0 if self.bounded is None else self.kept(self.bounded)
            return np.full(len(counts), self.kept(most) / max(before, 1e-9))
        cut = np.minimum(1.0, (self.bounded or np.inf) / totals)
        seen = users * cut * (self.records / (users * cut @ totals))
        there = keys * float(self.scale)  # as many keys have each of the counts
        wanted = np.minimum(counts, _ALL * seen.sum()), np.minimum(totals, _ALL * there.sum())
        popular, active = wanted[0], wanted[1] / (seen @ wanted[1])
        for _ in range(_ROUNDS):
            popular = _root(lambda p: -np.expm1(-np.outer(p, active)) @ seen, wanted[0], popular)  # noqa: B023
            active = _root(lambda a: -np.expm1(-np.outer(a, popular)) @ there, wanted[1], active)  # noqa: B023
        has = -np.expm1(-np.outer(popular, active)) * seen
        return np.asarray(has @ (np.minimum(1.0, most / totals) / cut) / has.sum(axis=1))


def _scale(keys: int) -> int:
    """The power of two at which a population is simulated."""
    scale = 1
    while keys // scale > _HELD:
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


def _pareto(steps: Floats, scale: float) -> tuple[Floats, Floats]:
    """Shares of users and their totals ⌈scale·Pareto⌉, at least 1, in ranges between these steps."""
    tail = np.minimum(1.0, (np.maximum(steps, 1.0) / scale) ** -ACTIVITY)
    tail[0] = 1.0
    return -np.diff(tail, append=0.0), np.append((steps[:-1] * (steps[1:] - 1.0)) ** 0.5, steps[-1])


def _root(rising: Callable[[Floats], Floats], wanted: Floats, start: Floats) -> Floats:
    """Where a rising function of each of these numbers reaches what is wanted, by bisection of the logarithm."""
    low, high = np.log(start) - 12.0, np.log(start) + 12.0
    for _ in range(24):
        middle = (low + high) / 2.0
        less = rising(np.exp(middle)) < wanted
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return np.asarray(np.exp((low + high) / 2.0))
