"""Several sketches of one kind over time: series of estimates, smoothed estimates, and what changed between two of
them.

All of this is post-processing of released numbers: no data, no budget.

**Series.** An observation is an estimate of a key on a date, with the standard deviation of its noise: exactly that of
the release where the key has a noisy count of its own (public keys, keys selected by weights), else a conservative one
from the confidence interval.

**Smoothing.** The local level model x_t = x_(t−1) + N(0, q·days), y_t = x_t + N(0, r_t) with known r_t (Harvey 1989,
section 2.3), by Kalman filter and fixed-interval smoother. q is not known: how common each of a grid of q is is
estimated from all series together (empirical Bayes, by expectation maximisation), a series weighs each q by that and by
its own likelihood, and the interval is that of the mixture, so that it also holds where the data hardly tell whether a
key moves.

**Changes.** For each key a p-value of "the count did not change", valid for any fixed key: the tail of the difference
of two known noises; elsewhere the smallest α at which the two confidence intervals of level 1 − α/2 are disjoint
(Bonferroni). The keys that changed are chosen by Benjamini and Hochberg (1995) at the stated false discovery rate, out
of m keys: those that were compared, or, where keys were listed because of their noisy counts, all keys of the release
(the p-value of a key that is not listed counts as 1). Intervals of chosen keys have level 1 − (1 − level)·R/m for R
chosen ones, so that at most a share 1 − level of them is wrong on average (Benjamini and Yekutieli 2005).

| symbol | meaning |
|---|---|
| x_t, y_t | count of a key on date t, and its noisy estimate |
| r_t, q | variance of the noise, and of the change per day |
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushgram.decoding.constants import SURE
from hushgram.errors import ParameterError
from hushgram.numbers import show
from hushgram.sketch.reader import Sketch, Total
from hushgram.sketch.results import Tabular

__all__ = ["Changes", "Series", "compare", "date_of", "differing_parameters", "series", "smooth"]

Floats = NDArray[np.float64]

_LEVEL = 0.95
_SEVERAL = 3  # named keys
_DATE = re.compile(r"(?<!\d)\d{4}-\d{2}-\d{2}(?!\d)")
# q relative to the variance of the noise: a daily change from 6 % of the noise to three times the noise.
_RATES = 10.0 ** np.linspace(-2.5, 1.0, 15)
# How many series the rates of change are spread evenly over before any is seen.
_PRIOR_SERIES = 2.0
# Variance of a count before anything is seen of it, relative to that of the noise.
_UNKNOWN = 1e8
# α at which confidence intervals are compared where the law of the noise is not known by itself.
_ALPHAS = tuple(a * 10.0**-k for k in range(8) for a in (0.5, 0.2, 0.1))


@dataclass(frozen=True)
class Series(Tabular):
    """Estimates by date: `table` has a row per date and key, `missing` dates without a sketch, `differs` what is not
    as on the first date, by date."""

    table: pa.Table
    missing: tuple[datetime.date, ...]
    differs: dict[datetime.date, str]


@dataclass(frozen=True)
class Changes(Tabular):
    """What rose or fell from one sketch to another.

    `table` has a row per compared key; `found` of them changed, at a false discovery rate of `rate` out of `among`.
    `differs` says which parameters of noise and key selection differ, and whether no named key is in both.
    """

    table: pa.Table
    found: int
    among: int
    rate: float
    differs: str


def date_of(sketch: Sketch) -> datetime.date:
    """Return the date in the name of a release, or else in the name of its directory."""
    for text in (sketch.manifest.release, sketch.path.name):
        if match := _DATE.search(text):
            try:
                return datetime.date.fromisoformat(match[0])
            except ValueError:
                continue
    raise ParameterError(
        f"{sketch.path}: no date in the name of the release or of the directory, such as urls-2026-11-18"
    )


def differing_parameters(first: Sketch, other: Sketch) -> str:
    """Return what differs between two releases and may move their noise, in words; empty where nothing does.

    That they have no named key in common is said too: then they may count the keys of different columns.
    """

    def stated(sketch: Sketch) -> dict[str, str]:
        params = sketch.plan.params
        return {
            "epsilon": show(params.epsilon),
            "delta": show(params.delta),
            "key selection": sketch.plan.selection.name,
            "encoding": "none" if sketch.plan.layout is None else params.encoding,
            "noise": sketch.plan.noise_name,
        }

    found = _differences(stated(first), stated(other))
    if _share_no_name(first, other):
        found.append("named keys, of which none is in both")
    return ", ".join(found)


def _refuse_other_counts(owner: str, first: Sketch, other: Sketch) -> None:
    """Raise ParameterError where two releases count different things: other keys, units, values or bounds."""

    def counted(sketch: Sketch) -> dict[str, str]:
        params = sketch.plan.params
        bounds = {
            "max_contributions": "auto"
            if params.stated.max_contributions is None
            else show(params.max_contributions * params.per_count),
            "max_per_key": show(params.max_per_key * params.per_count),
        }
        return {
            "keys": sketch.manifest.key_expression or "of a column",
            "privacy unit": sketch.plan.unit,
            "measure": sketch.measure,
            **bounds,
        }

    found = _differences(counted(first), counted(other))
    if found:
        raise ParameterError(
            f"{owner}: {first.path} and {other.path} do not count the same: {'; '.join(found)}; give sketches with the"
            " same keys, privacy unit and bounds"
        )


def _share_no_name(first: Sketch, other: Sketch) -> bool:
    """Return whether both releases name several keys and none of them is the same: a sign of different columns.

    A sketch does not have the name of its column. Of few names chance may leave none in common.
    """
    names = []
    for sketch in (first, other):
        heavy = sketch.heavy()
        names.append(set(heavy["key"].to_pylist()) if "key" in heavy.column_names else set())
    return min(map(len, names)) >= _SEVERAL and names[0].isdisjoint(names[1])


def _differences(one: dict[str, str], two: dict[str, str]) -> list[str]:
    return [f"{name} {one[name]} and {two[name]}" for name in one if one[name] != two[name]]


# --- observations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Observed:
    """Unbiased estimates of keys with the standard deviation of their noise; `known` where that is the release's own.

    Both are NaN where a release says nothing about a key but that it is not listed. Where it says hardly more
    (`hidden`), the value is one inside its interval, and no mean of several tells more.
    """

    values: Floats
    deviation: Floats
    known: NDArray[np.bool_]
    hidden: NDArray[np.bool_]


def _observe(sketch: Sketch, keys: Any) -> _Observed:
    plan = sketch.plan
    table = sketch.estimate(keys, estimator="posterior" if plan.layout is None else "unbiased", level=_LEVEL)
    values, low, high = (
        table[name].to_numpy(zero_copy_only=False).astype(float) for name in ("estimate", "low", "high")
    )
    source = np.array(table["source"].to_pylist(), object)
    own = (source == "selected") | (source == plan.noise_name)
    known = own & (not plan.selection.by_count)
    of_noise = math.sqrt(plan.noise.law(float(plan.scale)).variance) * sketch.per_count
    half = np.maximum((high - low) / 2.0, high - values) / NormalDist().inv_cdf(0.5 + _LEVEL / 2.0)
    deviation = np.where(known, of_noise, np.maximum(half, 1e-9))
    unseen, hidden = source == "not listed", np.zeros(len(source), bool)
    if plan.layout is not None and plan.params.chained:  # near the threshold the rest is all but noise
        inside = sketch.estimate(keys, estimator="confidence", level=_LEVEL)["estimate"].to_numpy()
        hidden = ~own & (inside < (plan.threshold + SURE * float(plan.scale)) * sketch.per_count)
        values = np.where(hidden, inside, values)
    return _Observed(np.where(unseen, np.nan, values), np.where(unseen, np.nan, deviation), known, hidden)


# --- series ---------------------------------------------------------------------------------------------------------


def series(sketches: Sequence[Sketch], keys: Sequence[Any], level: float = _LEVEL) -> Series:
    """Estimate keys, their total and the others on each date, by itself and smoothed over all dates.

    Args:
        sketches: releases with the same keys, privacy unit and bounds, one per date (`date_of`).
        keys: the keys, chosen without looking at the releases.
        level: the probability with which an interval holds.
    """
    dated = sorted(((date_of(sketch), sketch) for sketch in sketches), key=lambda pair: pair[0])
    dates = [date for date, _ in dated]
    if not dates:
        raise ParameterError("series: give one sketch or more")
    if len(set(dates)) < len(dates):
        twice = next(date for date in dates if dates.count(date) > 1)
        raise ParameterError(f"series: two sketches have the date {twice}; give one per date")
    between = (range(one.toordinal() + 1, other.toordinal()) for one, other in pairwise(dates))
    missing = tuple(map(datetime.date.fromordinal, chain.from_iterable(between)))
    first = dated[0][1]
    for _, sketch in dated[1:]:
        _refuse_other_counts("series", first, sketch)
    differs = {date: text for date, sketch in dated if (text := differing_parameters(first, sketch))}
    parts = [_part(date, sketch, keys, level) for date, sketch in dated]
    values, deviation = (
        np.array([getattr(part, name) for part in parts]) for name in ("values", "deviation")
    )
    smoothed = smooth([(date - dates[0]).days for date in dates], values, deviation, level)
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for number, (date, part) in enumerate(zip(dates, parts, strict=True)):
        middle, low, high = (each[number] for each in smoothed)
        low, high = (
            np.where(np.isnan(middle), own, end) for own, end in zip(part.shown[1:], (low, high), strict=True)
        )
        for name, cells in zip(
            _COLUMNS,
            ([date] * len(part.keys), part.what, part.keys, *part.shown, middle, low, high, part.source),
            strict=True,
        ):
            columns[name].extend(cells)
    numbers = {name: pa.float64() for name in _COLUMNS[3:9]}
    arrays = [pa.array(columns[name], numbers.get(name), from_pandas=True) for name in _COLUMNS]
    return Series(pa.table(arrays, names=list(_COLUMNS)), missing, differs)


_COLUMNS = (
    "date", "of", "key", "estimate", "low", "high", "smoothed", "smoothed_low", "smoothed_high", "source",
)  # fmt: skip


@dataclass(frozen=True)
class _Part:
    """The rows of one date: keys, then their total and the others."""

    keys: list[Any]
    what: list[str]
    shown: tuple[Floats, Floats, Floats]
    values: Floats
    deviation: Floats
    source: list[str]


def _part(date: datetime.date, sketch: Sketch, keys: Sequence[Any], level: float) -> _Part:
    table, seen = sketch.estimate(keys, level=level), _observe(sketch, keys)
    shown = [table[name].to_numpy(zero_copy_only=False).astype(float) for name in ("estimate", "low", "high")]
    rows = [_numbers(lambda: sketch.total(keys, level)), _numbers(lambda: sketch.others(level))]
    added = [np.array(column) for column in zip(*rows, strict=True)]
    half = (added[2] - added[1]) / 2.0 / NormalDist().inv_cdf(0.5 + level / 2.0)
    estimate, low, high = (np.concatenate(pair) for pair in zip(shown, added, strict=True))
    count = len(table)
    return _Part(
        [*table["key"].to_pylist(), None, None],
        ["key"] * count + ["total", "others"],
        (estimate, low, high),
        np.concatenate([np.where(seen.hidden, np.nan, seen.values), added[0]]),
        np.concatenate([seen.deviation, np.maximum(half, 1e-9)]),
        [*table["source"].to_pylist(), "total of the keys", "not listed keys"],
    )


def _numbers(ask: Callable[[], Total]) -> tuple[float, float, float]:
    try:
        found = ask()
    except ParameterError:  # not released
        return math.nan, math.nan, math.nan
    return found.estimate, found.low, found.high


def smooth(
    days: Sequence[int], values: Floats, deviation: Floats, level: float = _LEVEL
) -> tuple[Floats, Floats, Floats]:
    """Return the smoothed estimate of each series, and the ends of its interval, never below 0.

    Args:
        days: when the values were observed, rising.
        values: (dates, series), NaN where there is none.
        deviation: the standard deviation of their noise.
        level: the probability with which an interval holds.
    """
    seen = np.isfinite(values) & np.isfinite(deviation)
    noise = np.where(seen, deviation, 1.0) ** 2
    usual = np.array(
        [np.median(noise[seen[:, k], k]) if seen[:, k].any() else 1.0 for k in range(values.shape[1])]
    )
    step = np.diff(np.asarray(days, float))[:, None, None]
    q = usual[:, None] * _RATES  # (series, rates)
    y, r, there = (x[:, :, None] for x in (np.where(seen, values, 0.0), noise, seen))
    mean, spread = np.zeros((len(y), *q.shape)), np.zeros((len(y), *q.shape))
    log_weight, begun = np.zeros(q.shape), np.zeros(q.shape, bool)
    at, around = np.zeros(q.shape), np.broadcast_to(_UNKNOWN * usual[:, None], q.shape)
    for t in range(len(y)):  # forwards: what the dates until t say
        if t:
            around = around + q * step[t - 1]
        gap, sum_ = y[t] - at, around + r[t]
        log_weight -= np.where(there[t] & begun, 0.5 * (np.log(sum_) + gap**2 / sum_), 0.0)
        gain = around / sum_
        at, around = np.where(there[t], at + gain * gap, at), np.where(there[t], gain * r[t], around)
        begun = begun | there[t]
        mean[t], spread[t] = at, around
    for t in range(len(y) - 2, -1, -1):  # backwards: with what later dates say
        ahead = spread[t] + q * step[t]
        back = spread[t] / ahead
        mean[t] += back * (mean[t + 1] - mean[t])
        spread[t] += back**2 * (spread[t + 1] - ahead)
    weight = _weights(log_weight[seen.any(axis=0)], log_weight)
    middle = (weight * mean).sum(axis=2)
    variance = (weight * (spread + (mean - middle[:, :, None]) ** 2)).sum(axis=2)
    half = NormalDist().inv_cdf(0.5 + level / 2.0) * np.sqrt(variance)
    none = np.broadcast_to(~seen.any(axis=0), middle.shape)
    return tuple(  # type: ignore[return-value]
        np.where(none, np.nan, np.maximum(x, 0.0)) for x in (middle, middle - half, middle + half)
    )


def _weights(used: Floats, log_likelihood: Floats) -> Floats:
    """Return the weight of each rate of change for each series; how common rates are follows from ``used``."""
    rates = log_likelihood.shape[1]
    common = np.full(rates, 1.0 / rates)

    def posterior(of: Floats) -> Floats:
        weight = common * np.exp(of - of.max(axis=1, keepdims=True))
        return np.asarray(weight / weight.sum(axis=1, keepdims=True))

    for _ in range(200 if len(used) else 0):
        common = posterior(used).sum(axis=0) + _PRIOR_SERIES / rates
        common /= common.sum()
    return posterior(log_likelihood)


# --- changes --------------------------------------------------------------------------------------------------------


def compare(
    first: Sketch, second: Sketch, keys: Any = None, rate: float = 0.05, level: float = _LEVEL
) -> Changes:
    """Return which keys rose or fell from one release to another, with difference and ratio.

    Args:
        first: the earlier release.
        second: the later one, with the same keys, privacy unit and bounds.
        keys: the keys to compare, chosen without looking; by default all that either release names.
        rate: the false discovery rate.
        level: the probability with which intervals hold; of keys that changed, on average over them.

    Returns:
        The changes; keys that changed come first, the largest difference first.
    """
    if not 0.0 < rate < 1.0:
        raise ParameterError(f"compare: rate must be above 0 and below 1, got {rate!r}")
    _refuse_other_counts("compare", first, second)
    asked = keys is not None
    if not asked and _share_no_name(first, second):
        raise ParameterError(
            f"compare: no key is named by both {first.path} and {second.path}, so their keys seem to be of different"
            " columns; if they are not, give keys with --keys-file"
        )
    keys = keys if asked else _named(first, second)
    texts = first.estimate(keys, interval=None)["key"]
    a, b = _observe(first, keys), _observe(second, keys)
    p = _p_values(first, second, keys, a, b)
    among = len(p)
    if not asked and (first.plan.selection.by_count or second.plan.selection.by_count):
        among = max(among, first.plan.keys, second.plan.keys)
    changed = _benjamini_hochberg(p, rate, among)
    found = int(changed.sum())
    inside = 1.0 - (1.0 - level) * (max(found, 1) / max(among, 1))
    difference, low, high = _difference(first, second, keys, a, b, level)
    if found:
        _, near, far = _difference(first, second, keys, a, b, inside)
        low, high = np.where(changed, near, low), np.where(changed, far, high)
    ratio, ratio_low, ratio_high = _ratio(first, second, keys, level)
    if found:
        _, near, far = _ratio(first, second, keys, inside)
        ratio_low, ratio_high = np.where(changed, near, ratio_low), np.where(changed, far, ratio_high)
    change = np.where(changed, np.where(difference > 0, "rose", "fell"), "")
    shown = {
        name: sketch.estimate(keys, interval=None)["estimate"].to_numpy(zero_copy_only=False).astype(float)
        for name, sketch in (("before", first), ("after", second))
    }
    order = np.lexsort((-np.abs(np.nan_to_num(difference)), ~changed))
    columns = {
        "change": change,
        **shown,
        "difference": difference,
        "low": low,
        "high": high,
        "ratio": ratio,
        "ratio_low": ratio_low,
        "ratio_high": ratio_high,
        "p_value": p,
    }
    table = pa.table(
        [texts.take(pa.array(order))]
        + [pa.array(column[order], from_pandas=column.dtype != object) for column in columns.values()],
        names=["key", *columns],
    )
    return Changes(table, found, among, rate, differing_parameters(first, second))


def _named(first: Sketch, second: Sketch) -> list[Any]:
    found: dict[Any, None] = {}
    for sketch in (first, second):
        heavy = sketch.heavy()
        if "key" not in heavy.column_names:
            raise ParameterError(
                f"{sketch.path}: this release lists fingerprints, not keys; give keys with --keys-file"
            )
        found.update(dict.fromkeys(heavy["key"].to_pylist()))
    if not found:
        raise ParameterError("compare: neither release names a key; give keys with --keys-file")
    return list(found)


def _difference(
    first: Sketch, second: Sketch, keys: Any, a: _Observed, b: _Observed, level: float
) -> tuple[Floats, Floats, Floats]:
    """Return b − a with its interval: normal where both noises are Gaussian and known, else from both intervals."""
    (_, low_a, high_a), (_, low_b, high_b) = (
        _interval(sketch, keys, 1.0 - (1.0 - level) / 2.0) for sketch in (first, second)
    )
    middle, low, high = b.values - a.values, low_b - high_a, high_b - low_a
    if first.plan.noise_name == second.plan.noise_name == "gaussian":
        half = NormalDist().inv_cdf(0.5 + level / 2.0) * np.hypot(a.deviation, b.deviation)
        both = a.known & b.known
        low, high = np.where(both, middle - half, low), np.where(both, middle + half, high)
    return middle, low, high


def _ratio(first: Sketch, second: Sketch, keys: Any, level: float) -> tuple[Floats, Floats, Floats]:
    """Return b/a, with the interval of all ratios within both intervals; infinite where a may be 0."""
    (a, low_a, high_a), (b, low_b, high_b) = (
        _interval(sketch, keys, 1.0 - (1.0 - level) / 2.0) for sketch in (first, second)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = np.where(a > 0, b / a, np.nan)
        low = np.where(high_a > 0, np.maximum(low_b, 0.0) / high_a, 0.0)
        high = np.where(low_a > 0, np.maximum(high_b, 0.0) / low_a, np.inf)
    return middle, low, high


def _interval(sketch: Sketch, keys: Any, level: float) -> tuple[Floats, Floats, Floats]:
    table = sketch.estimate(keys, "confidence", level=min(level, 1.0 - 1e-12))
    values = [
        table[name].to_numpy(zero_copy_only=False).astype(float) for name in ("estimate", "low", "high")
    ]
    return values[0], values[1], values[2]


def _p_values(first: Sketch, second: Sketch, keys: Any, a: _Observed, b: _Observed) -> Floats:
    """Return a p-value per key, valid for any fixed key."""
    both = a.known & b.known
    noises = first.plan.noise_name, second.plan.noise_name
    p = np.ones(len(both))
    # a whole count less: noise is on the integers
    away = np.maximum(np.abs(b.values - a.values) - max(first.per_count, second.per_count), 0.0)
    if noises == ("gaussian", "gaussian"):
        with np.errstate(invalid="ignore"):
            z = away / np.hypot(a.deviation, b.deviation)
        p = np.where(both, [math.erfc(float(x) / math.sqrt(2.0)) if x == x else 1.0 for x in z], p)
    elif noises == ("laplace", "laplace"):
        scales = [float(sketch.plan.scale) * sketch.per_count for sketch in (first, second)]
        p = np.where(both, _laplace_difference(np.nan_to_num(away), *scales), p)
    else:
        both = np.zeros_like(both)
    rest = np.flatnonzero(~both)
    if len(rest):
        asked = pa.array(keys).take(pa.array(rest))
        for alpha in _ALPHAS:
            (_, low_a, high_a), (_, low_b, high_b) = (
                _interval(sketch, asked, 1.0 - alpha / 2.0) for sketch in (first, second)
            )
            apart = (low_b > high_a) | (low_a > high_b)
            if not apart.any():
                break
            p[rest[apart]] = np.minimum(p[rest[apart]], alpha)
    return p


def _laplace_difference(away: Floats, one: float, two: float) -> Floats:
    """Return P[|X − Y| ≥ away] of Laplace noises of these scales."""
    large, small = max(one, two), min(one, two)
    if large < small * (1.0 + 1e-6):
        return np.asarray((1.0 + away / (2.0 * large)) * np.exp(-away / large))
    squares = large**2 * np.exp(-away / large) - small**2 * np.exp(-away / small)
    return np.asarray(squares / (large**2 - small**2))


def _benjamini_hochberg(p: Floats, rate: float, among: int) -> NDArray[np.bool_]:
    """Return which hypotheses are rejected: the k smallest p-values for the largest k with p_(k) ≤ k·rate/among."""
    order = np.argsort(p, kind="stable")
    passes = np.flatnonzero(p[order] <= rate * np.arange(1, len(p) + 1) / max(among, 1))
    out = np.zeros(len(p), bool)
    if len(passes):
        out[order[: passes[-1] + 1]] = True
    return out
