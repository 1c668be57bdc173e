"""Predict size, error and intervals of a release before it runs, from public numbers alone.

A synthetic histogram like the one that is planned for (by its sizes, or by an earlier release) goes through the very
release that is planned, and the answers of its own decoder are compared with its counts. It holds no private data, so
its noise needs no secret, and the same question always gets the same answer.

A large population is simulated at 1/2^j of its keys. Bits per key, collisions, noise and the ratio of domain to
allowed false keys are the same at every scale (all follow the number of keys); only the sizes are relatively noisier in
a smaller population, so their share is raised by 2^j on top of ε, and the others keep theirs.

Where keys are selected by weights, no release is simulated: which keys are named follows from
thresholds and noise (`hushgram.key_selection.forecast`), and what is known of users is assumed of all keys alike.

The error at a count is that of many *planted* lookups: what the sketch shows at the places of absent keys, and then
what it would show had those keys this count (`Likelihood.planted`), listed and not. So the population stays as it is
however many lookups are tried.

| symbol | meaning |
|---|---|
| s | exponent of the Zipf law that has `keys` keys, `records` records and a smallest count of about 1 |
| A | records of a user: discrete Pareto of tail `ACTIVITY`; its scale follows from records and users |
| kept | E[min(A, C)]/E[A] |
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.encodings.buckets import ENCODING as BUCKETS
from hushgram.errors import ParameterError
from hushgram.key_selection.forecast import (
    KeysPerUser,
    SelectionForecast,
    most_chances,
    users_for_half,
    zipf_exponent,
)
from hushgram.key_selection.rounds import best_rounds
from hushgram.key_selection.weighted import WHOLE
from hushgram.noise.entropy import BitSource, ReleaseKey
from hushgram.noise.laws import LaplaceLaw, NoiseLaw
from hushgram.release_in_memory import simulate
from hushgram.sketch.reader import Lookups, Sketch
from hushgram.sparse_histogram.params import Params, ReleaseParams, SharedSelection
from hushgram.sparse_histogram.plan import make_plan
from hushgram.sparse_histogram.sizing import PROFILE_GRID, Sizes
from hushgram.sparse_histogram.users import UserHistogram

__all__ = [
    "COUNTS", "SET_SIZES", "Effort", "LookupAccuracy", "NamedKeys", "Population", "Prediction", "TotalAccuracy",
    "average", "bound_of", "is_simulated", "predict", "recommend", "settings", "solve_epsilon",
]  # fmt: skip

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


# --- population -------------------------------------------------------------------------------------------------

#: Tail of the number of records of a user, where nothing is known of it.
ACTIVITY = 1.2
_HELD = 200_000  # keys of a population
_ROUNDS = 5
_KEYS_PER_USER = 10  # where nothing is known of users
_ALL = 0.99  # of the users have a key at most, and of the keys a user
_FEW = 32  # up to this count records are kept one by one, above it their share


@dataclass(frozen=True)
class Population:
    """A synthetic histogram like the one that is planned for, at 1/scale of its keys."""

    keys: int
    records: int
    users: int | None
    counts: Ints
    scale: int = 1
    #: the C of the earlier release that the counts were seen in; None where they are not bounded yet
    bounded: int | None = None
    #: released with it: how many users have how much
    histogram: UserHistogram | None = None
    #: share of the number of keys by which an earlier release may be wrong about it, at 95 %
    unsure: float = 0.0

    @classmethod
    def zipf(cls, keys: int, records: int, users: int | None = None) -> Population:
        """Make Zipf counts, each at least 1, of `keys` keys and about `records` records."""
        if not 1 <= keys <= records:
            raise ParameterError(f"plan: keys must be from 1 to the {records:,} records, got {keys:,}")
        scale = _scale(keys)
        ranks = np.arange(1, keys // scale + 1, dtype=np.float64) * scale
        shares = ranks ** -zipf_exponent(keys, records)
        counts = np.maximum(1, np.round(records / scale * shares / shares.sum())).astype(np.int64)
        return cls(keys, records, users, counts, scale)

    @classmethod
    def like(cls, sketch: Sketch, users: int | None = None) -> Population:
        """Return the population of an earlier release, from the distribution of counts that it shows."""
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
        if users is None and plan.users is not None:
            users = round(sum(number for number, _ in plan.users.likely())) or None
        noise = float(plan.sizes.scale)
        unsure = LaplaceLaw(noise).radius(0.95) / keys if noise else 0.0
        return cls(keys, records, users, whole, scale, plan.params.max_contributions, plan.users, unsure)

    def coarser(self, keys: int) -> Population:
        """Return a smaller population of at most so many keys: neighbours in rank become one of their mean count."""
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
        if self.histogram is not None and (likely := self.histogram.likely()):
            cells = np.array(likely, np.float64)
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

    @property
    def people(self) -> tuple[KeysPerUser, str]:
        """Return how many users have how many keys, and where that is from."""
        users, totals = self._people
        if len(users):
            found = KeysPerUser(users, totals)
            return found, f"users have {found.mean:,.3g} keys each on average"
        users, totals = replace(self, users=max(self.records // _KEYS_PER_USER, 1))._people
        return (
            KeysPerUser(users, totals),
            f"users have {_KEYS_PER_USER} keys each on average, which is assumed (hushgram plan --users N states it)",
        )

    def kept(self, max_contributions: int) -> float:
        """Return the share of all records that remains after each user is bounded to `max_contributions`."""
        users, totals = self._people
        return float(users @ np.minimum(totals, max_contributions) / (users @ totals)) if len(users) else 1.0

    def held(self, max_contributions: int) -> Ints:
        """Return the counts that such a bound on users leaves: each record remains with the probability of its key."""
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
        """Return the share of each distinct count that such a bound keeps.

        Where an earlier release tells how many keys its users have: a user with activity a has a key of popularity p
        with probability 1 − e^(−ap), once. What the active have and others do not are rare keys, which the bound cuts
        most. Activities and popularities are those that give the totals of users and the counts of keys. Otherwise
        nothing is known of who has what, and all keys lose the same share.
        """
        users, totals = self._people
        if self.histogram is None or not self.histogram.likely():
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
    """Return the power of two at which a population is simulated."""
    scale = 1
    while keys // scale > _HELD:
        scale *= 2
    return scale


def _pareto(steps: Floats, scale: float) -> tuple[Floats, Floats]:
    """Return shares of users and their totals ⌈scale·Pareto⌉, at least 1, in ranges between these steps."""
    tail = np.minimum(1.0, (np.maximum(steps, 1.0) / scale) ** -ACTIVITY)
    tail[0] = 1.0
    return -np.diff(tail, append=0.0), np.append((steps[:-1] * (steps[1:] - 1.0)) ** 0.5, steps[-1])


def _root(rising: Callable[[Floats], Floats], wanted: Floats, start: Floats) -> Floats:
    """Return where a rising function of each of these numbers reaches the target, by bisection of the logarithm."""
    low, high = np.log(start) - 12.0, np.log(start) + 12.0
    for _ in range(24):
        middle = (low + high) / 2.0
        less = rising(np.exp(middle)) < wanted
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return np.asarray(np.exp((low + high) / 2.0))


# --- prediction -------------------------------------------------------------------------------------------------

COUNTS = (1, 10, 100, 1_000, 10_000)
SET_SIZES = (100, 1_000, 10_000)
TWO_OF_THREE = 0.68
_LARGE = 10_000  # keys of a set
_TYPICAL = 64  # C where it will be chosen from the data
_NOT_SECRET = ReleaseKey(b"a prediction holds no secrets!!!")


@dataclass(frozen=True)
class Effort:
    """How much is simulated: keys at most, lookups at each count, random sets of each size; and whether more than
    errors is predicted for lookups, which varies little between releases and takes most of the time."""

    keys: int = 25_000
    lookups: int = 1_000
    sets: int = 16
    intervals: bool = True


_SOME = Effort()


@dataclass(frozen=True)
class LookupAccuracy:
    """Accuracy of a lookup of a key with this true count."""

    count: int
    error: float
    width: float
    #: error if this is the count before contribution bounding
    uncut_error: float


@dataclass(frozen=True)
class TotalAccuracy:
    """Accuracy of a total over so many random keys, relative to the total.

    Of three totals two are closer than ``error``, which is a standard deviation where errors are normal. Here they are
    not: the few sets without a larger key have small totals, and would decide a root mean square.
    """

    keys: int
    error: float
    width: float


@dataclass(frozen=True)
class NamedKeys:
    """What is predicted of a list of named keys."""

    #: how many keys are named
    number: float
    #: standard deviation of the noise on the count of a named key
    noise: float
    #: with key selection by weights: rounds, how many keys of a user are weighed, and how many users a key needs to
    #: reach the last threshold if they have one key each
    rounds: int = 0
    max_keys: int = 0
    threshold: float = 0.0
    #: what is assumed of users
    assumed: str = ""
    #: the users a key needs so that any (ε, δ)-DP method names it with probability ½, and the most keys that such a
    #: method names
    limit: float = 0.0
    most: float = 0.0
    #: error of a key that is encoded
    others: float = 0.0


@dataclass(frozen=True)
class Prediction:
    """Predicted size and accuracy of one setting."""

    params: ReleaseParams
    size: int
    kept: float
    at: tuple[LookupAccuracy, ...]
    totals: tuple[TotalAccuracy, ...]
    #: the smallest count whose interval is at most as wide as the count itself (None: no key has it), and keys above it
    detection_limit: int | None
    keys_above_limit: int
    threshold: int
    false_keys: float
    missed_keys: float
    #: of a list of named keys, where that was not simulated
    named: NamedKeys | None = None

    @property
    def score(self) -> float:
        """Return what is minimised: the mean relative error at counts of 10 to 10,000, contribution bounding included.

        It is 1 at most, and 1 where an interval is wider than twice the count: such an answer tells nothing, however
        close the guess behind it is by chance.
        """
        told = [
            min(a.uncut_error / a.count, 1.0) if a.width <= 2 * a.count else 1.0
            for a in self.at
            if a.count >= 10
        ]
        return float(np.mean(told))


def predict(
    params: ReleaseParams,
    population: Population,
    counts: Sequence[int] = COUNTS,
    path: str | Path | None = None,
    *,
    set_sizes: Sequence[int] = SET_SIZES,
    number: int = 0,
    effort: Effort = _SOME,
    shared: SharedSelection | None = None,
) -> Prediction:
    """Predict size, error and intervals of a release with `params` of such a population.

    What all keys of a release have in common differs from release to release: the `average` over several numbers
    tells it better.

    Args:
        params: The setting.
        population: The data that are expected.
        counts: True counts at which the accuracy of a lookup is predicted.
        path: Where the synthetic sketch goes; a temporary directory if left out.
        set_sizes: Numbers of keys for which the accuracy of a total is predicted.
        number: The number of the synthetic release: each has noise of its own.
        effort: How much is simulated.
        shared: The metrics for which keys are selected together.
    """
    asked = params
    params = _without_choice(params)
    if not is_simulated(params):
        resolved = params.resolve()
        resolved = resolved if shared is None else resolved.sharing(shared)
        return _predict_named(asked, resolved, population, counts)
    most = params.max_contributions
    assert most is not None
    population = population.coarser(effort.keys)
    key = _NOT_SECRET.for_data(number.to_bytes(8, "little"))
    kept, held = population.kept(most), population.held(most)
    if params.sizes is not None:
        params = params.changed(sizes=(max(population.records // population.scale, 1), len(held)))
    sketch = simulate(
        np.arange(len(held)), held, params, path, release_key=key, at_once=True, scale=population.scale
    )
    limit = int(sketch.detection_limit().count) if effort.intervals else 0
    above = int((held >= limit).sum()) * population.scale
    plan = sketch.plan
    met = _met(sketch) if counts else 0.0
    released, reached = sketch.decoder.released, held[held >= plan.heavy_from].astype(np.float64)
    hidden = released.far_noise.below(released.last - reached) if released.named else released.hidden(reached)
    return Prediction(
        params=asked,
        size=_size(sketch, population.scale),
        kept=kept,
        at=tuple(_at_count(sketch, len(held), count, kept, met, key, effort) for count in counts),
        totals=tuple(_totals(sketch, held, set_sizes, key, effort.sets)),
        detection_limit=limit if above else None,
        keys_above_limit=above,
        threshold=plan.heavy_from,
        false_keys=sketch.expected_false(all=True) * population.scale,
        missed_keys=float(hidden.sum()) * population.scale,
    )


def is_simulated(params: ReleaseParams) -> bool:
    """Return whether a release is simulated: not where keys are selected by weights."""
    return not params.resolve().weighted


def _without_choice(params: ReleaseParams) -> ReleaseParams:
    """Return what is simulated: about the C that will be chosen; where values are added up, a count is a unit of
    them."""
    most = params.max_contributions or max(_TYPICAL, params.max_per_key)
    return params.changed(max_contributions=most, granularity=None)


_SIZED = Fraction(0)  # a plan needs sizes, and the noise on them is not part of a prediction
_ROW_BYTES, _FILE_BYTES = 22, 2_500
_HALF_WIDTH = 1.96


def _predict_named(
    asked: ReleaseParams, params: Params, population: Population, counts: Sequence[int]
) -> Prediction:
    """Predict keys that are selected by weights, and the encoding of all others, without simulating them."""
    per_user = max(params.max_per_key / 4, 1.0)  # what a user adds to a key, which is not known
    kept, scale = population.kept(params.max_contributions), population.scale
    uncut, number = _distinct(population.held(_NO_BOUND), scale)
    held = population.held(params.max_contributions)
    people, assumed = population.people
    if params.choose_rounds:
        params = params.with_rounds(best_rounds(zip(people.users, people.keys, strict=True)))
    forecast = SelectionForecast(params.gaussian.selection, people, uncut / per_user, number)
    sizes = _sizes_of_rest(held, scale, lambda c: forecast.chances(c / per_user / max(kept, 1e-9)))
    plan = make_plan(params, sizes)
    noise = float(plan.noise.variance(plan.scale)) ** 0.5

    def chances(at: Floats) -> Floats:
        return forecast.chances(at / per_user)

    selection = params.gaussian.selection
    heavy_from = math.ceil(forecast.users_for_half() * per_user)
    epsilon, delta = float(asked.epsilon), float(asked.delta)
    assert plan.layout is not None
    other = math.sqrt(BUCKETS.squared_error(plan.layout, plan.layout_spec))
    named = NamedKeys(
        float(number @ chances(uncut)),
        noise,
        rounds=len(selection.rounds),
        max_keys=selection.max_keys,
        threshold=selection.rounds[-1].threshold / WHOLE,
        assumed=assumed,
        limit=users_for_half(epsilon, delta),
        most=float(number @ most_chances(uncut / per_user, epsilon, delta)),
        others=other,
    )
    at = tuple(
        _named_at(count, float(chances(np.array([float(count)]))[0]), noise, other, kept) for count in counts
    )
    limit = max(math.ceil(2 * _HALF_WIDTH * noise), heavy_from)
    limit = min(limit, math.ceil(2 * _HALF_WIDTH * other))
    above = int((held >= limit).sum()) * scale
    reached = uncut >= heavy_from
    return Prediction(
        params=asked,
        size=int(plan.bits / 8 + named.number * _ROW_BYTES + _FILE_BYTES),
        kept=kept,
        at=at,
        totals=(),
        detection_limit=limit if above else None,
        keys_above_limit=above,
        threshold=heavy_from,
        false_keys=0.0,
        missed_keys=float(number[reached] @ (1.0 - chances(uncut[reached]))),
        named=named,
    )


_NO_BOUND = 1 << 40


def _distinct(counts: Ints, scale: int) -> tuple[Floats, Floats]:
    """Return the distinct counts, and how many keys have each."""
    at, number = np.unique(counts, return_counts=True)
    return at.astype(np.float64), number.astype(np.float64) * scale


def _sizes_of_rest(counts: Ints, scale: int, chances: Callable[[Floats], Floats]) -> Sizes:
    """Return the sizes of the keys that are expected not to be named."""
    at, number = _distinct(counts, scale)
    left = number * (1.0 - chances(at))
    profile = [round(float(left[at >= t].sum())) for t in PROFILE_GRID]
    return Sizes(round(float(at @ left)), max(profile[0], 1), tuple(profile), _SIZED)


def _named_at(count: int, chance: float, noise: float, other: float, kept: float) -> LookupAccuracy:
    """Return the accuracy of a lookup: of the list where the key is named, else of the encoding.

    An encoded count is estimated with what is known of all counts, so that it is hardly worse than 0.
    """
    missed = min(float(count), other)
    square = chance * noise**2 + (1.0 - chance) * missed**2
    width = 2 * _HALF_WIDTH * (noise if chance >= 0.5 else other)
    return LookupAccuracy(count, square**0.5, width, (square + ((1.0 - kept) * count) ** 2) ** 0.5)


def average(found: Sequence[Prediction]) -> Prediction:
    """Average predictions of one setting: mean squares of errors, means of the rest; intervals of the first."""

    def mean(name: str, parts: Sequence[Any] = found) -> float:
        return float(np.mean([getattr(part, name) for part in parts]))

    def square(name: str, parts: Sequence[Any]) -> float:
        return float(np.sqrt(np.mean([getattr(part, name) ** 2 for part in parts])))

    return replace(
        found[0],
        size=round(mean("size")),
        at=tuple(
            LookupAccuracy(each[0].count, square("error", each), each[0].width, square("uncut_error", each))
            for each in zip(*(one.at for one in found), strict=True)
        ),
        totals=tuple(
            TotalAccuracy(each[0].keys, mean("error", each), mean("width", each))
            for each in zip(*(one.totals for one in found), strict=True)
        ),
        threshold=round(mean("threshold")),
        false_keys=mean("false_keys"),
        missed_keys=mean("missed_keys"),
    )


def _size(sketch: Sketch, scale: int) -> int:
    """Return bytes: blocks and rows grow with the number of keys, the rest does not."""
    manifest = sketch.manifest
    frame = min(manifest.files[0].size, _FRAME) if sketch.plan.selection.texts else 0
    return sketch.size + (scale - 1) * (sum(entry.size for entry in manifest.files) - frame)


_FRAME = 1_500  # bytes of a Parquet file without rows
_FAR = 30.0  # noise scales, beyond which no value is


def _at_count(
    sketch: Sketch, first_absent: int, count: int, kept: float, met: float, key: ReleaseKey, effort: Effort
) -> LookupAccuracy:
    """Return the root mean square error and the median width of planted lookups.

    Those that are listed and those that are not are tried apart, and weighed by the chance of each: of a million keys
    of count 1 a few are listed, and those few have a large part in the mean square.
    """
    decoder = sketch.decoder
    law, threshold = decoder.released.noise, decoder.released.threshold
    chance = float(law.tail(np.array([float(threshold - count)]))[0])
    listed = round(effort.lookups * min(max(chance, 0.25), 0.75))
    hidden = effort.lookups - listed
    weight = np.repeat([(1.0 - chance) / hidden, chance / listed], [hidden, listed])
    values = np.append(np.zeros(hidden, np.int64), _listed_values(law, threshold, count, listed))
    absent = np.arange(first_absent, first_absent + effort.lookups)
    true = np.full(effort.lookups, count, np.int64)
    found = decoder.likelihood.planted(sketch.lookups(absent).found, true, key.source("planted", count))
    kind = "confidence" if effort.intervals else None
    estimate, low, high = decoder.estimate(found, values, values > 0, estimator="posterior", interval=kind)
    square = float(weight @ (estimate - count) ** 2) + met
    order = np.argsort(high - low)
    middle = order[np.searchsorted(np.cumsum(weight[order]), 0.5)]
    cut = (1.0 - kept) * count
    return LookupAccuracy(count, square**0.5, float((high - low)[middle]), (square + cut**2) ** 0.5)


def _met(sketch: Sketch) -> float:
    """Return what sharing a cell adds to the mean square error of a key: the squares of listed values over the domain.

    The largest, which a key of the data meets in fewer than three releases of ten, are left out, and so are false
    entries: the noise of a cell that no other key has is in the errors of planted lookups.
    """
    if sketch.plan.domain_bits is None:
        return 0.0
    cells, released = 2.0**sketch.plan.domain_bits, sketch.decoder.released
    values, last = np.sort(released.listed), released.threshold + math.ceil(_FAR * released.noise.scale)
    if sketch.plan.top is not None:  # what that lists is in no cell
        last = sketch.plan.top.threshold
        values = values[values < last]
    rare = int(0.3 * cells / sketch.plan.keys)
    squares = float((values[: max(len(values) - rare, 0)].astype(np.float64) ** 2).sum()) / cells
    at = np.arange(released.threshold, last, dtype=np.float64)
    return max(squares - float(at**2 @ -np.diff(released.noise.tail(np.append(at, float(last))))), 0.0)


def _listed_values(law: NoiseLaw, threshold: int, count: int, number: int) -> Ints:
    """Return values with which a key of this count is listed, one in the middle of each of so many equal parts."""
    far = math.ceil(_FAR * law.scale)
    at = np.unique(
        np.linspace(max(threshold, count - far), max(threshold, count) + far, 1 << 14).astype(np.int64)
    )
    over = law.tail((at - count).astype(np.float64))
    below = 1.0 - over / max(float(over[0]), 1e-300)
    places = np.searchsorted(below, (np.arange(number) + 0.5) / number, side="right") - 1
    return np.asarray(at[np.maximum(places, 0)])


def _totals(
    sketch: Sketch, held: Ints, sets: Sequence[int], key: ReleaseKey, often: int
) -> list[TotalAccuracy]:
    """Predict totals of random sets of the population's keys: random orders of all, cut into sets."""
    if not sets:
        return []
    found = sketch.lookups(np.arange(len(held)))
    out = []
    for size in sets:
        if size <= len(held):
            each, orders = len(held) // size, key.source("sets", size)
            chosen: list[NDArray[np.intp]] = []
            # What large sets tell varies less, and takes longer.
            asked = often if size < _LARGE else -(-often // 4)
            while len(chosen) < asked:
                chosen += list(np.argsort(orders.words(len(held)))[: each * size].reshape(each, size))
            out.append(_over(found, held, chosen[:asked]))
    return out


def _over(found: Lookups, held: Ints, sets: Sequence[NDArray[np.intp]]) -> TotalAccuracy:
    """Return relative error and width of totals over random sets of one size."""
    errors, widths = [], []
    for chosen in sets:
        estimate, low, high = found.total(chosen)
        truth = int(held[chosen].sum())
        errors.append(estimate / truth - 1.0)
        widths.append((high - low) / truth)
    return TotalAccuracy(
        len(sets[0]), float(np.quantile(np.abs(errors), TWO_OF_THREE)), float(np.median(widths))
    )


# Which settings to try, which of them to recommend, and the ε that reaches a target.


def settings(
    base: ReleaseParams, contributions: Sequence[int | str], epsilons: Sequence[Fraction]
) -> list[ReleaseParams]:
    """Return `base` with every C and ε; those that cannot be are left out."""
    out = []
    for epsilon in epsilons:
        for most in contributions:
            with contextlib.suppress(ParameterError):
                chosen = None if most == "auto" else most
                out.append(base.changed(epsilon=epsilon, max_contributions=chosen))
    return out


def recommend(found: Sequence[Prediction]) -> tuple[Prediction, str]:
    """Return the setting of the smallest score, and why in a sentence."""
    best, *others = sorted(found, key=lambda one: one.score)
    why = (
        f"{_words(best.params)}: a mean relative error of {best.score:.0%} at counts of 10 to 10,000, with what"
        " contribution bounding drops"
    )
    rival = next((one for one in others if one.params.epsilon == best.params.epsilon), None)
    if rival is not None:
        why += f"; next is {_words(rival.params)} at {rival.score:.0%}"
    return best, why + "."


def _words(params: ReleaseParams) -> str:
    return f"max_contributions {bound_of(params)}"


def bound_of(params: ReleaseParams) -> int | str:
    """Return C as a config states it."""
    return "auto" if params.max_contributions is None else params.max_contributions


def solve_epsilon(
    params: ReleaseParams, population: Population, error: float, count: int
) -> tuple[Fraction, Prediction]:
    """Return the smallest ε (two digits) with at most this error at this count, by bisection.

    Args:
        params: the release; its ε is replaced.
        population: what it is expected to read.
        error: the largest root mean square error.
        count: the true count at which the error is predicted.
    """
    low, high = Fraction(1, 100), Fraction(50)
    best = predict(params.changed(epsilon=high), population, (count,), set_sizes=())
    if best.at[0].error > error:
        raise ParameterError(
            f"plan: error {error:g} at count {count:,} is not reached below epsilon 50; ask for a larger error"
        )
    for _ in range(9):
        middle = Fraction(round(float(low * high) ** 0.5 * 1000), 1000)
        tried = predict(params.changed(epsilon=middle), population, (count,), set_sizes=())
        if tried.at[0].error <= error:
            high, best = middle, tried
        else:
            low = middle
    return high, best
