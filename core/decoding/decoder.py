"""Answers from a released sketch: counts of keys, and totals over sets of keys. Free of privacy cost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hushgram.decoding.confidence import Confidence
from hushgram.decoding.constants import INSIDE, LEAST_MISS, MET, MODEL, PRESENT, TABLES
from hushgram.decoding.likelihood import Flags, Floats, Ints, Likelihood, ReleasedNumbers
from hushgram.decoding.posterior import Outcomes, Posterior, near_limit
from hushgram.decoding.prior import Prior
from hushgram.decoding.totals import TotalModel, normal_range, radius, total_interval
from hushgram.errors import ParameterError
from hushgram.noise.laws import LaplaceLaw, NoiseLaw
from hushgram.numbers import choice, counted, plus_minus

__all__ = [
    "ESTIMATORS", "INTERVALS", "TOTALS", "Decoder", "DetectionLimit", "check_among",
]  # fmt: skip


ESTIMATORS = ("confidence", "posterior", "argmax", "unbiased")
INTERVALS = ("confidence", "credible")
TOTALS = ("any", "posterior", "unbiased")


@dataclass(frozen=True)
class DetectionLimit:
    """The smallest count whose interval is at most as wide as the count; ``keys`` ± ``error`` keys reach it, and no
    more than ``most``, since each takes so many records."""

    count: int | float
    keys: float | None  # None: not known
    error: float
    what: str = "count"
    most: int | None = None  # None: the number of records was not released

    def sentence(self) -> str:
        """Return the limit in words."""
        reached = ""
        if (
            self.keys is not None
            and self.most is not None
            and self.most < round(self.keys) + round(self.error)
        ):
            reached = (
                f" (at most {counted(self.most, 'key')} can reach it)"
                if self.most
                else " (no key can reach it)"
            )
        elif self.keys is not None:
            keys = plus_minus(round(self.keys), round(self.error))
            about, reach = (
                "" if keys.startswith("fewer") else "about ",
                "key reaches" if keys == "1" else "keys reach",
            )
            reached = f" ({about}{keys} {reach} it)"
        return f"the detection limit is a {self.what} of {self.count:,}{reached}; below it, ask for totals"


@dataclass(frozen=True)
class _Lookups:
    """What was found for some keys: symbols, values (−1: not listed), and the same as distinct outcomes."""

    of: tuple[Any, Any, Any]
    symbols: Ints
    values: Ints
    listed: Flags
    near: int  # the largest value that is weighed with the prior

    @cached_property
    def far(self) -> Flags:
        """Which keys are far above the threshold; they stand in no outcome."""
        return self.listed & (self.values > self.near)

    @cached_property
    def distinct(self) -> tuple[Outcomes, Ints]:
        """Distinct outcomes, and the outcome of each key."""
        known, symbol = _distinct(self.symbols)
        span = self.near + 2
        codes, place = _distinct(symbol * span + np.where(self.far, 0, self.values + 1))
        return Outcomes(known[codes // span] if len(codes) else known, codes % span - 1), place


class Decoder:
    """Decodes lookups of one release.

    Tables are built when first needed and kept. Work is done for each distinct outcome (symbol, value).
    """

    def __init__(self, released: ReleasedNumbers, likelihood: Likelihood) -> None:
        self.released = released
        self.likelihood = likelihood
        self._posteriors: dict[float, Posterior] = {}
        self._confidence: dict[tuple[float, bool, int, bool], Confidence] = {}
        self._asked: _Lookups | None = None

    @property
    def prior(self) -> Prior:
        """Distribution of the counts x ≥ 1, fitted to the release."""
        return self.likelihood.prior

    @cached_property
    def total_model(self) -> TotalModel:
        """Return the model that fits totals of sets of keys."""
        return TotalModel(self.released, self.likelihood, self.prior)

    def estimate(
        self,
        found: Any,
        values: ArrayLike,
        listed: ArrayLike,
        *,
        estimator: str | None = None,
        interval: str | None = "confidence",
        level: float = 0.95,
        present: float | None = None,
        among: int = 1,
    ) -> tuple[Floats, Floats, Floats]:
        """Estimate and interval of each looked-up key.

        ``found`` is what the encoding finds for them (`Likelihood.symbols`); ``values`` is read where ``listed``.
        The estimate that belongs to the interval lies inside it: by default the count that confidence intervals shrink
        to (`Confidence.estimate`), else the posterior mean. An ``estimator`` that is asked for may lie outside: no
        interval is moved for it.
        ``present`` is the probability that a looked-up key is in the data at all. Where it is not given, confidence
        intervals hold for any count including 0, and everything else takes PRESENT for it. ``among``: confidence
        intervals hold at once for so many keys, of which these may be chosen by looking at the release. Without an
        interval, low and high are NaN.
        """
        wanted = estimator or ("confidence" if interval == "confidence" else "posterior")
        choice(wanted, "estimator", "Decoder", ESTIMATORS)
        if interval is not None:
            choice(interval, "interval", "Decoder", INTERVALS)
        _check_share(level, "level", open_end=True)
        check_among(among, level, interval)
        present = PRESENT if present is None else present
        _check_share(present, "present", open_end=False)
        asked = self._lookups(found, values, listed)
        symbols, value, named, far = asked.symbols, asked.values, asked.listed, asked.far
        outcomes, place = asked.distinct
        if wanted == "confidence":
            estimate = _centres(self._intervals(level, present < 1.0, among), asked)
        elif wanted == "posterior":
            estimate = self._posterior(present).moments(outcomes)[0][place]
            estimate[far] = self._posterior(present).far(value[far])[0]
        elif wanted == "argmax":
            estimate = np.where(named, value, self.likelihood.argmax(outcomes.symbols)[place])
        else:
            estimate = self.likelihood.unbiased(symbols, value, named)[0]
        if interval is None:
            nothing = np.full(len(symbols), np.nan)
            return estimate, nothing, nothing.copy()
        if interval == "confidence":
            low, high = _all_of(self._intervals(level, present < 1.0, among), asked)
        else:
            low, high = (end[place] for end in self._posterior(present).interval(outcomes, level))
            low[far], high[far] = self.released.far_interval(value[far], level)
        if among == 1:
            high = np.maximum(np.minimum(high, self.released.whole), low)
        if estimator is None:
            estimate = np.clip(estimate, low, high)
        elif estimator != "unbiased":
            estimate = np.minimum(estimate, np.maximum(self.released.whole, low))
        return estimate, low, high

    def listed(self, found: Any, values: ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return intervals of all listed keys, which hold at once: no key has to be chosen before the release."""
        _check_share(level, "level", open_end=True)
        number = max(len(found), 1)
        check_among(number, level)
        asked = self._lookups(found, values, np.ones(len(found), np.bool_))
        return _all_of(self._intervals(level, True, number, listed=True), asked)

    def real(self, found: Any, values: ArrayLike, listed: ArrayLike) -> Floats:
        """Return the probability that each listed key is in the data, not a cell with large noise; 1 if named."""
        asked = self._lookups(found, values, listed)
        if self.released.named or self.released.domain_size is None:
            return np.ones(len(asked.symbols))
        share = float(np.clip(self.prior.keys / self.released.domain_size, 1e-18, 1.0))
        outcomes, place = asked.distinct
        return np.where(asked.far, 1.0, 1.0 - self._posterior(share).absent(outcomes)[place])

    def detection_limit(self, level: float = 0.95) -> DetectionLimit:
        """Return the smallest count whose interval is at most as wide as the count, and how many keys reach it."""
        counts, half = self._intervals(level, True).half_widths()
        poor = np.flatnonzero(half > counts / 2.0)
        far = self.released.threshold + 10**6 + np.zeros(1, np.int64)
        low, high = self.released.far_interval(far, level)
        least = int(np.ceil(counts[min(poor[-1] + 1, len(counts) - 1)])) if len(poor) else 1
        if len(poor) and poor[-1] == len(counts) - 1:
            least = max(least, int(np.ceil(high[0] - low[0])))
        prior, noise = self.prior, self.released.profile_noise
        # the numbers of records and of keys hold at once, and those of listed keys (`Sketch.detection_limit`)
        wide = float(LaplaceLaw(noise).radius(1.0 - (1.0 - level) / 3.0)) if noise else 0.0
        above = prior.keys * float(prior.mass[prior.grid.low >= least].sum())
        beyond = int(np.count_nonzero(self.released.listed > max(prior.grid.high[-1], least)))
        most = max(int((self.released.records + wide) // least), 0) if noise else None
        return DetectionLimit(least, above + beyond, wide, most=most)

    def above_zero(
        self, found: Any, values: ArrayLike, listed: ArrayLike, level: float = 0.95, among: int = 1
    ) -> Flags:
        """Return whether each key's count is significantly above 0: whether its confidence interval excludes 0."""
        _check_share(level, "level", open_end=True)
        check_among(among, level)
        asked = self._lookups(found, values, listed)
        return _all_of(self._intervals(level, True, among), asked)[0] > 0.0

    def resolved(
        self,
        found: Any,
        values: ArrayLike,
        listed: ArrayLike,
        level: float = 0.95,
        present: float | None = None,
        among: int = 1,
    ) -> Flags:
        """Return whether each key has a noisy count of its own in the list, or an interval at most as wide as its
        estimate.
        """
        estimate, low, high = self.estimate(found, values, listed, level=level, present=present, among=among)
        return np.asarray((high - low <= estimate) | np.asarray(listed, bool).reshape(-1))

    def total(
        self,
        found: Any,
        values: ArrayLike,
        listed: ArrayLike,
        *,
        estimator: str = "any",
        level: float = 0.95,
        present: float | None = None,
        apart: tuple[Ints, NoiseLaw] | None = None,
    ) -> tuple[float, float, float]:
        """Sum of the counts of distinct keys, with an interval.

        ``any`` (default) holds for any fixed set of keys, also of absent ones (`totals`). ``posterior`` is sharper,
        but holds for sets that are like a random sample of the keys alone. ``unbiased`` is the plain sum of
        unbiased estimates, which may be negative.
        ``apart``: values, with their noise, of further keys of the set that are in no other number of the release.
        """
        choice(estimator, "estimator", "Decoder", TOTALS)
        _check_share(level, "level", open_end=True)
        asked = self._lookups(found, values, listed)
        symbols, value, named, far = asked.symbols, asked.values, asked.listed, asked.far
        if len(symbols) == 0 and apart is None:
            return 0.0, 0.0, 0.0
        beside = 0.0 if apart is None else float(apart[0].sum()) - len(apart[0]) * apart[1].mean
        noise = 0.0 if apart is None else len(apart[0]) * apart[1].variance
        if estimator == "posterior":
            present = 1.0 if present is None else present
            _check_share(present, "present", open_end=False)
            return self._total_like_the_data(asked, level, present, beside, noise)
        if estimator == "any" and len(symbols) == 1 and apart is None:  # one key has one interval
            one, least, most = self.estimate(found, values, listed, level=level)
            return float(one[0]), float(least[0]), float(most[0])
        fitted, variance = self.total_model.total(symbols[~far], value[~far]) if not far.all() else (0.0, 0.0)
        fitted += float(self.released.far(value[far])[0].sum())
        each, spread = self.likelihood.unbiased(symbols, value, named, mean=fitted / max(len(symbols), 1))
        middle, deviation = float(each.sum()), float(spread.sum()) ** 0.5
        if self.released.rest is not None:
            met, square = self._shared(value)
            middle -= met
            deviation = float(variance + far.sum() * self.released.far_noise.variance + square) ** 0.5
        if estimator == "unbiased":
            return middle + beside, *normal_range(middle + beside, deviation**2 + noise, 0.0, level)
        proven = partial(self._proven, value, apart)
        low, high = total_interval(middle + beside, deviation**2 + noise, level, proven=proven)
        estimate = np.clip(fitted, middle - INSIDE * deviation, middle + INSIDE * deviation)
        return float(np.clip(estimate + beside, low, high)), low, high

    def chosen(self, found: Any, values: ArrayLike) -> tuple[float, float]:
        """Return the sum of the counts of listed keys that were chosen by looking at the release, and its variance.

        Values that were chosen for being large are too large on average. Near the threshold the posterior, whose
        prior is that of all cells, accounts for that; far above it the bias of selecting by the smallest value is
        estimated from all values around it (`NoiseLaw.selected`), whatever counts are like.
        """
        released = self.released
        asked = self._lookups(found, values, np.ones(len(found), np.bool_))
        outcomes, place = asked.distinct
        near, cells = ~asked.far, released.domain_size
        present = (
            1.0 if cells is None or released.named else float(np.clip(self.prior.keys / cells, 1e-18, 1.0))
        )
        often = np.bincount(place[near], minlength=len(outcomes.symbols)).astype(np.float64)
        mean, variance, _ = self._posterior(present).moments(outcomes)
        total, spread = float(often @ mean), float(often @ variance) + self._doubt(often, variance)
        far = asked.values[asked.far]
        if len(far):
            bias = released.far_noise.selected(released.listed.astype(np.float64), int(far.min()))
            total += float(far.sum()) - float(bias.sum())
            spread += len(far) * released.far_noise.variance + float((bias**2).sum())
        return total, spread

    def _proven(self, values: Ints, apart: tuple[Ints, NoiseLaw] | None, miss: float) -> tuple[float, float]:
        """Return a lower and an upper end of the sum over a set, each of which fails with probability ``miss``.

        The listed values of the set say that it is no less, except for their noise: a key that is not listed loses its
        whole count, which is more than the bias of those that are, so only cells that nobody's key is in, and keys that
        share a cell, have to be taken off. And the released number of records, without what is listed and not in
        the set, says that it is no more.
        """
        released = self.released
        miss /= 1.0 if apart is None else 2.0
        level, listed, most = 1.0 - 2.0 * miss, values[values >= 0], np.inf
        least = self._listed_least(listed, len(values), miss)
        if len(released.profile_at):
            places = (released.domain_size or 0.0) + (released.top.cells if released.top is not None else 0.0)
            cut = released.threshold
            if places:  # from here on hardly any cell is listed for its noise alone
                cut += int(released.noise.scale * np.log(places * (cut + 1.0)))
            cut = min(cut, released.last) if released.named else cut
            every, mine = (held[held >= cut] for held in (released.listed, listed))
            terms, noise = max(len(every) - len(mine), 0), released.far_noise
            taken = max(float(every.sum()) - float(mine.sum()) - terms * noise.mean, 0.0)
            spread = terms * max(noise.variance, released.noise.variance)
            most = max(released.records - taken + radius(level, spread, released.profile_noise), 0.0)
        if apart is not None:
            value, noise = apart
            middle, half = float(value.sum()) - len(value) * noise.mean, noise.interval(level, len(value))
            least, most = least + max(middle - half, 0.0), most + max(middle + half, 0.0)
        return least, most

    def _listed_least(self, listed: Ints, keys: int, miss: float) -> float:
        """Return what so many keys, of which some are listed, have at least, except with probability ``miss``: by the
        last list alone, or by both, whichever says more.
        """
        released, top = self.released, self.released.top
        high = released.listed >= released.last
        rest = max(released.records - (float(released.listed[high].sum()) if top is not None else 0.0), 0.0)
        lists = [
            (high, released.far_noise, released.last, released.domain_size if top is None else top.cells)
        ]
        if top is not None:
            lists.append((~high, released.noise, released.threshold, released.domain_size))
        miss /= len(lists)
        least = total = spread = variance = 0.0
        terms = 0
        for of_list, noise, cut, cells in lists:
            mine = listed[(listed >= released.last) == (of_list is high)]
            if not len(mine):
                continue
            terms, variance = terms + len(mine), max(variance, noise.variance)
            half = noise.interval(1.0 - 2.0 * miss, terms) * (variance / noise.variance) ** 0.5
            total += float(mine.sum()) - len(mine) * noise.mean
            if cells:
                every = released.listed[of_list].astype(np.float64)
                false, value = float(noise.tail(np.array([float(cut)]))[0]), cut + noise.scale
                total -= keys * false * value + (keys * float(every.sum()) + len(mine) * rest) / cells
                spread += keys * (false * (value**2 + noise.scale**2) + float((every**2).sum()) / cells)
                rank = int(
                    miss * cells / keys
                )  # hardly ever does one of the set share the cell of a larger value
                total -= float(np.partition(every, -1 - rank)[-1 - rank]) if rank < len(every) else 0.0
            least = max(least, total - float(np.hypot(half, NormalDist().inv_cdf(1.0 - miss) * spread**0.5)))
        return least

    def _shared(self, values: Ints) -> tuple[float, float]:
        """Return what keys that share cells with these add to their sum: its mean and its variance.

        Keys so large that any of these hardly ever meets one are left out.
        """
        released, cells = self.released, self.released.domain_size
        keys = int((values < released.last).sum()) if released.top is not None else len(values)
        if cells is None or not keys:
            return 0.0, 0.0
        prior, held = self.prior, released.listed.astype(np.float64)
        in_cells = held[held < released.last] if released.top is not None else held
        rank = int(MET * cells / keys)
        few = np.sort(in_cells)[::-1][rank:]
        above = float(held.sum() - in_cells.sum()) + float(in_cells.sum() - few.sum())
        hidden = prior.keys * prior.mass * released.hidden(prior.grid.at)
        met = max(released.records - above, 0.0) * keys / cells
        square = (float((few**2).sum()) + float(hidden @ prior.grid.at**2)) * keys / cells
        return met, square

    # Helpers ------------------------------------------------------------------------------------------

    def _total_like_the_data(
        self, asked: _Lookups, level: float, present: float, beside: float, noise: float
    ) -> tuple[float, float, float]:
        posterior, far = self._posterior(present), asked.far
        outcomes, place = asked.distinct
        often = np.bincount(place[~far], minlength=len(outcomes.symbols)).astype(np.float64)
        mean, variance, skew = posterior.moments(outcomes)
        far_mean, far_variance = posterior.far(asked.values[far])
        shape = MODEL * float(often @ mean)
        total = float(often @ mean + far_mean.sum()) + beside
        spread = float(often @ variance + far_variance.sum()) + noise + shape**2
        spread += self._doubt(often, variance)
        least = float(len(far)) if present >= 1.0 else 0.0
        low, high = normal_range(total, spread, float(often @ skew), level)
        most = max(self.released.whole, 0.0) + max(beside, 0.0)
        return min(total, most), min(max(low, least), total, most), min(max(high, total), most)

    def _doubt(self, often: Floats, variance: Floats) -> float:
        """Return the variance of a sum that comes from the fit's own error, which moves all keys together."""
        return (
            float(often @ np.minimum(variance / max(self.prior.variance, 1e-9), 1.0)) * self.prior.doubt
        ) ** 2

    def _lookups(self, found: Any, values: ArrayLike, listed: ArrayLike) -> _Lookups:
        asked = self._asked
        if asked is not None and asked.of[0] is found and asked.of[1] is values and asked.of[2] is listed:
            return asked  # several questions about the same keys
        named = np.asarray(listed, dtype=bool).reshape(-1)
        value = np.asarray(values, dtype=np.int64).reshape(-1)
        if not len(found) == len(value) == len(named):
            raise ParameterError(
                f"Decoder: {len(found)} rows, {len(value)} values and {len(named)} flags were given; "
                "look all of them up in the same sketch"
            )
        value = np.where(named, np.maximum(value, self.released.threshold), -1)
        symbols = self.likelihood.symbols(found, value, named)
        near = near_limit(self.released)
        self._asked = _Lookups((found, values, listed), symbols, value, named, near)
        return self._asked

    def _posterior(self, present: float) -> Posterior:
        if present not in self._posteriors:
            _make_room(self._posteriors)
            self._posteriors[present] = Posterior(self.released, self.likelihood, self.prior, present)
        return self._posteriors[present]

    def _intervals(self, level: float, zero: bool, among: int = 1, listed: bool = False) -> Confidence:
        key = (level, zero, among, listed)
        if key not in self._confidence:
            _make_room(self._confidence)
            self._confidence[key] = Confidence(self.released, self.likelihood, self.prior, *key)
        return self._confidence[key]


def _all_of(intervals: Confidence, asked: _Lookups) -> tuple[Floats, Floats]:
    """Return low and high of each key; keys far above the threshold have no outcome of their own."""
    outcomes, place = asked.distinct
    low, high = (end[place] for end in intervals.interval(outcomes))
    far = asked.far
    low[far], high[far] = intervals.interval(Outcomes(asked.symbols[far], asked.values[far]))
    return low, high


def _centres(intervals: Confidence, asked: _Lookups) -> Floats:
    """Return the count that the intervals of each key shrink to."""
    outcomes, place = asked.distinct
    estimate, far = intervals.estimate(outcomes)[place], asked.far
    estimate[far] = intervals.estimate(Outcomes(asked.symbols[far], asked.values[far]))
    return estimate


def _make_room(tables: dict[Any, Any]) -> None:
    """Forget the oldest table: whoever may ask for any level gets no more memory for it."""
    if len(tables) >= TABLES:
        del tables[next(iter(tables))]


def check_among(among: int, level: float, interval: str | None = "confidence") -> None:
    """Refuse a number of keys for which intervals cannot hold at once."""
    if isinstance(among, bool) or not isinstance(among, int | np.integer) or among < 1:
        raise ParameterError(f"among must be a whole number of keys, at least 1, got {among!r}")
    if not 0.0 < level < 1.0:
        raise ParameterError(f"level must be above 0 and below 1, got {level:g}; 0.95 means 95 %")
    if (1.0 - level) / among < LEAST_MISS:
        raise ParameterError(
            f"among {among} at level {level:g}: an interval would miss with less than {LEAST_MISS:g}, which cannot be "
            "computed; look among fewer keys, or lower the level"
        )
    if among > 1 and interval == "credible":
        raise ParameterError(
            "credible intervals are right on average over keys, which keys that were chosen by looking are not; "
            "with among, ask for confidence intervals"
        )


def _check_share(value: float, field: str, *, open_end: bool) -> None:
    if not (0.0 < value < 1.0 or (value == 1.0 and not open_end)):
        limit = "below 1" if open_end else "at most 1"
        raise ParameterError(f"Decoder: {field} must be above 0 and {limit}, got {value!r}")


def _distinct(numbers: Ints) -> tuple[Ints, Ints]:
    """Return distinct numbers, ascending, and the index of each; by a table, which is faster, if they are close."""
    least, most = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if most - least > 16 * len(numbers) + 4096:
        known, place = np.unique(numbers, return_inverse=True)
        return known, place.astype(np.int64)
    held = np.zeros(most - least + 1, np.bool_)
    held[numbers - least] = len(numbers) > 0
    rank = np.cumsum(held) - 1
    return np.flatnonzero(held) + least, rank[numbers - least]
