"""Compare what `hushgram plan` predicts with what real releases measure: `python -m benchmarks.planner [SET …]`.

Six generated data sets and a synthetic access log, none of which was used to develop the planner. It is given
what a user would give: an earlier release of data of the same kind (`--like`, another draw and other parameters; for
the log the week before), or the numbers of keys, records and users alone. Measured is the root mean square error of
the real decoder on real releases, over keys of the data with such a count after bounding; and what two of three totals
over random sets of keys are off by at most (`TotalAccuracy`).

Bars are for the worst deviation: at counts of 1 to 1,000, and of totals over 100 and 1,000 keys. Totals of 10,000 keys
are shown: most of their error is common to all sets of a release, so that a few releases do not tell its size. From
sizes alone the shape of the data is a guess (Zipf), which decides the error of counts that the noise hides: there the
bar is for counts of 100 and 1,000, and the others are shown.

One earlier release is judged, under a key that was fixed before. Where data have users it chose C itself (about 100),
and its own noise leaves its number of keys open by up to a third: what plans from releases under other keys deviate
by is shown beside it. "large access log" (by name only) is the same site with eight times the pages and visitors.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

import hushgram as hg
from benchmarks.access_log import access_log
from benchmarks.bars import Report
from hushgram.contributions.bounding import Contributions
from hushgram.planner import TWO_OF_THREE, Population, Prediction
from hushgram.planning import plan_settings
from hushgram.release_in_memory import simulate
from hushgram.sparse_histogram.spec import ReleaseSpec

Ints = NDArray[np.int64]
Rows = tuple[pa.Array, pa.Array]  # users, keys

OTHERS = 2  # earlier releases of the same data under other keys, beside the one that is judged
RELEASES = 8
SETS = {100: 300, 1_000: 200, 10_000: 20}  # random sets of each size, in each release
COUNTS = (1, 10, 100, 1_000)
# Keys of counts that differ by at most so much stand for a count; from 1,000 on noise alone decides the error.
NEAR = {1: 0.0, 10: 0.1, 100: 0.1, 1_000: 0.25}
KEYS = 160_000


# --- data --------------------------------------------------------------------------------------------------------


def _ranks(keys: int) -> NDArray[np.float64]:
    return np.arange(1, keys + 1, dtype=np.float64)


def _whole(values: NDArray[np.float64]) -> Ints:
    return np.maximum(1, np.rint(values)).astype(np.int64)


def log_normal(rng: np.random.Generator) -> Ints:
    return _whole(np.ceil(rng.lognormal(0.9, 1.9, KEYS)))


def geometric_mixture(rng: np.random.Generator) -> Ints:
    means = np.array([3.0, 25.0, 200.0, 1_500.0])
    return rng.geometric(1.0 / means[rng.choice(4, KEYS, p=[0.7, 0.2, 0.08, 0.02])]).astype(np.int64)


def cut_zipf(rng: np.random.Generator) -> Ints:
    """Zipf 0.9 with an exponential cut-off, Poisson around it; keys that nobody used are none."""
    ranks = _ranks(2 * KEYS)
    mean = 40_000.0 * ranks**-0.9 * np.exp(-ranks / 150_000.0)
    counts = rng.poisson(np.minimum(mean, 4_000.0))
    return np.asarray(counts[counts > 0], np.int64)


def two_regimes(rng: np.random.Generator) -> Ints:
    """Menu pages and a long tail: two power laws, each with its own exponent, a gap between them."""
    head = 25_000.0 * _ranks(3_000) ** -0.55
    tail = 90.0 * _ranks(KEYS - 3_000) ** -0.35
    return rng.poisson(np.concatenate([head, tail])).clip(1).astype(np.int64)


def _people(rng: np.random.Generator, activity: NDArray[np.float64], shares: NDArray[np.float64]) -> Rows:
    rows = np.repeat(np.arange(len(activity)), np.ceil(activity).astype(np.int64))
    keys = np.searchsorted(np.cumsum(shares) / shares.sum(), rng.random(len(rows)))
    return _texts("u", rows), _texts("/k", keys)


def heavy_users(rng: np.random.Generator) -> Rows:
    """Users of Pareto(1.1) activity; keys by Zipf 1.2."""
    activity = np.minimum(3.0 * (rng.pareto(1.1, 90_000) + 1.0), 20_000.0)
    return _people(rng, activity, _ranks(400_000) ** -1.2)


def log_normal_users(rng: np.random.Generator) -> Rows:
    """Users of log-normal activity; popularity of keys log-normal."""
    activity = rng.lognormal(1.8, 1.2, 120_000)
    return _people(rng, activity, rng.lognormal(0.0, 2.2, 200_000))


def _texts(prefix: str, numbers: Ints) -> pa.Array:
    known, place = np.unique(numbers, return_inverse=True)
    return pa.array([f"{prefix}{n}" for n in known.tolist()]).take(pa.array(place))


@dataclass(frozen=True)
class Data:
    """Counts, or users with keys; the settings to plan for as (ε, δ, C)."""

    make: Callable[[np.random.Generator], Ints | Rows]
    settings: tuple[tuple[str, str, int], ...]


GENERATED = {
    "log-normal": Data(log_normal, (("1", "0", 8), ("1", "1e-6", 30))),
    "geometric mixture": Data(geometric_mixture, (("1", "0", 8), ("2", "1e-6", 40))),
    "Zipf 0.9, cut off": Data(cut_zipf, (("2", "0", 4), ("0.5", "0", 2))),
    "two regimes": Data(two_regimes, (("1", "0", 1), ("2", "1e-6", 60))),
    "heavy-tailed users": Data(heavy_users, (("2", "0", 8), ("1", "1e-6", 50))),
    "log-normal users": Data(log_normal_users, (("1", "0", 6), ("1", "1e-6", 20))),
}
LOG = (("1", "0", 8), ("1", "1e-6", 50))
LOGS = {"access log": 1, "large access log": 8}


# --- what is measured --------------------------------------------------------------------------------------------


class Measured:
    """Errors over some releases."""

    def __init__(self) -> None:
        self.at: dict[int, list[NDArray[np.float64]]] = {count: [] for count in COUNTS}
        self.over: dict[int, list[float]] = {size: [] for size in SETS}
        self.bytes: list[int] = []

    def add(self, sketch: hg.Sketch, names: pa.Array, counts: Ints, rng: np.random.Generator) -> None:
        """One more release."""
        for count in COUNTS:
            near = np.flatnonzero(np.abs(counts - count) <= NEAR[count] * count)
            near = rng.permutation(near)[:200_000]
            found = sketch.estimate(names.take(pa.array(near)), interval=None)["estimate"].to_numpy()
            self.at[count].append(found - counts[near])
        found = sketch.lookups(names)
        for size, often in SETS.items():
            for _ in range(often if size <= len(counts) else 0):
                chosen = rng.choice(len(counts), size, replace=False)
                truth = float(counts[chosen].sum())
                self.over[size].append((found.total(chosen)[0] - truth) / truth)
        self.bytes.append(sketch.size)

    def figures(self) -> dict[str, float]:
        """Errors by name; those with too few keys to tell are left out."""
        at = {count: np.concatenate(found) for count, found in self.at.items()}
        out = {f"at {count:,}": _rms(found) for count, found in at.items() if len(found) >= 150}
        over = {n: float(np.quantile(np.abs(found), TWO_OF_THREE)) for n, found in self.over.items() if found}
        return out | {f"over {n:,} keys": error for n, error in over.items()}


def _rms(errors: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def measure(data: Ints | Rows, params: hg.ReleaseParams) -> Measured:
    """Real releases under other keys, each beside its own exact counts after bounding."""
    out, rng = Measured(), np.random.default_rng(8)
    for number in range(RELEASES):
        key = hg.ReleaseKey(bytes([number + 1]) * 32)
        if isinstance(data, tuple):
            spec = ReleaseSpec.of(params, user="user", release_key=key)
            rows = Contributions.of(*data, spec.release_key, texts=True)
            sketch = hg.release(*data, params, release_key=key)
            if spec.params.weighted:  # who is bounded by which keys are named
                assert rows.table is not None
                named = sketch.heavy(all=True)["key"].combine_chunks().cast(pa.large_binary())
                kept = rows.bounded_apart(spec.bounds(), pc.is_in(rows.table.texts, named).to_numpy(False))
            else:
                kept = (rows.bounded(spec.bounds()),)
            texts = pa.concat_arrays([part.texts for part in kept])
            out.add(sketch, texts, np.concatenate([part.counts for part in kept]), rng)
        else:
            names = pa.array([f"/k{i}" for i in range(len(data))])
            out.add(simulate(names, data, params, release_key=key), names, data, rng)
    return out


def earlier(data: Ints | Rows, number: int) -> hg.Sketch:
    """A release of other data of the kind, with the defaults."""
    key = hg.ReleaseKey(b"another day, another release key")
    key = key.for_data(bytes([number])) if number else key
    if isinstance(data, tuple):
        return hg.release(*data, hg.ReleaseParams(epsilon=1, max_contributions="auto"), release_key=key)
    names = pa.array([f"/k{i}" for i in range(len(data))])
    return simulate(names, data, hg.ReleaseParams(epsilon=1, max_contributions=8), release_key=key)


def by_sizes(data: Ints | Rows) -> Population:
    """Return the population as known from the counts of keys, records and users only."""
    if isinstance(data, tuple):
        users, keys = (len(column.unique()) for column in data)
        return Population.zipf(keys, len(data[0]), users)
    return Population.zipf(len(data), int(data.sum()))


def figures(found: Prediction) -> dict[str, float]:
    """Of a prediction, by the same names."""
    at = {f"at {a.count:,}": a.error for a in found.at}
    return at | {f"over {t.keys:,} keys": t.error for t in found.totals}


# --- bars ----------------------------------------------------------------------------------------------------------

LIKE, SIZES = "like an earlier release", "from sizes alone"
JUDGED = {
    (LIKE, "counts"): ("at 1", "at 10", "at 100", "at 1,000"),
    (LIKE, "totals"): ("over 100 keys", "over 1,000 keys"),
    (SIZES, "counts from 100 on"): ("at 100", "at 1,000"),
}


def judge(report: Report, name: str, data: Data, before: Ints | Rows, limit: float) -> None:
    """All settings of one data set."""
    now = data.make(np.random.default_rng(101))
    kinds = [LIKE]
    if isinstance(before, tuple):
        kinds += [f"{LIKE}, key {number}" for number in range(1, OTHERS + 1)]
    populations = {kind: Population.like(earlier(before, number)) for number, kind in enumerate(kinds)}
    populations[SIZES] = by_sizes(now)
    off: dict[tuple[str, str], list[float]] = defaultdict(list)
    slowest = 0.0
    for epsilon, delta, most in data.settings:
        by_counts = delta != "0" and not isinstance(now, tuple)  # whose users nobody knows
        selection = hg.Threshold() if by_counts else None
        params = hg.ReleaseParams(epsilon=epsilon, delta=delta, max_contributions=most, selection=selection)
        what = f"{name}: ε {epsilon}, δ {delta}, C {most}"
        found = measure(now, params)
        measured = found.figures()
        report.note(f"{what}: measured", _line(measured, "{:.3g}"))
        for kind, population in populations.items():
            start = time.monotonic()
            _, forecast, _ = plan_settings([params], population)
            slowest = max(slowest, time.monotonic() - start)
            ratio = {n: v / measured[n] for n, v in figures(forecast).items() if n in measured}
            report.note(f"{what}: {kind}, predicted/measured", _line(ratio, "{:.2f}"))
            for (by, part), which in JUDGED.items():
                if kind.startswith(by):
                    off[kind, part] += [abs(ratio[n] - 1.0) for n in which if n in ratio]
            size = forecast.size / float(np.mean(found.bytes))
            report.note(f"{what}: {kind}, bytes predicted/measured", f"{size:.2f}")
    for by, part in JUDGED:
        far = 100.0 * max(off[by, part])
        report.bar(f"{name}: {by}, {part}: largest deviation", far, limit, at_most=True, unit="%")
    others = [100.0 * far for (kind, _), deviations in off.items() if kind in kinds[1:] for far in deviations]
    if others:
        told = f"half below {np.median(others):.0f} %, largest {max(others):.0f} %"
        report.note(f"{name}: {LIKE}, other keys: deviations", told)
    report.bar(f"{name}: time of a plan", slowest, 10, at_most=True, unit="s")


def _line(values: dict[str, float], form: str) -> str:
    return ", ".join(f"{name}: {form.format(value)}" for name, value in values.items())


def main(names: list[str]) -> int:
    report = Report("Predicted beside measured error")
    for name, data in GENERATED.items():
        if not names or name in names:
            judge(report, name, data, data.make(np.random.default_rng(100)), 15)
    for name, size in LOGS.items():
        if name in (names or ["access log"]):
            log = Data(partial(access_log, week=1, size=size), LOG)
            judge(report, name, log, access_log(np.random.default_rng(100), 0, size), 25)
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
