"""The clipping bound by the ways of Programming DP ("The Sparse Vector Technique"), beside `hushgram clip`.

    python -m benchmarks.svt clip         error of the average against ε

`naive_select_b` and `naive_above_threshold` pay for every bound they try, the book's `above_threshold` once; all of
them draw floating-point noise, as the book does, and are here for comparison only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.bars import Report
from hushgram.mechanisms.clipping import ClipParams, clip_column
from hushgram.noise.entropy import ReleaseKey

__all__ = ["compare"]

EPSILONS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
RUNS = 30
I64 = NDArray[np.int64]
Select = Callable[["NumericColumn", float, np.random.Generator], int]


class NumericColumn:
    """A column, with its clipped sums at all bounds: S(b) for b = 0, 1, 2, …"""

    def __init__(self, values: I64, most: int) -> None:
        self.values = values
        # S(b + 1) − S(b) is the number of values above b
        above = len(values) - np.cumsum(np.bincount(np.minimum(values, most), minlength=most + 1))
        self.sums = np.concatenate([[0], np.cumsum(above)])

    def sum_at(self, bound: int) -> float:
        return float(self.sums[min(bound, len(self.sums) - 1)])


def naive_select_b(column: NumericColumn, epsilon: float, rng: np.random.Generator) -> int:
    """Noisy sums at every bound, until one is no larger than the last: ε divided by the number of bounds."""
    bounds, best = range(1, 1000, 10), 0.0
    each = epsilon / len(bounds)
    for bound in bounds:
        noisy = column.sum_at(bound) + rng.laplace(0, bound / each)
        if noisy - best <= 10:
            return bound
        best = noisy
    return bounds[-1]


def naive_above_threshold(column: NumericColumn, epsilon: float, rng: np.random.Generator) -> int:
    """Difference queries with noise of their own, and no noisy threshold: |queries| times the cost of one."""
    bounds = range(1, 1000, 10)
    scale = len(bounds) / epsilon
    for bound in bounds:
        if column.sum_at(bound) - column.sum_at(bound + 1) + rng.laplace(0, scale) >= 0:
            return bound
    return bounds[-1]


def above_threshold(column: NumericColumn, epsilon: float, rng: np.random.Generator) -> int:
    """The book's: difference queries against a noisy threshold of 0, for ε however many there are."""
    bar = rng.laplace(0, 2 / epsilon)
    bounds = range(1, 1000, 10)
    for bound in bounds:
        if column.sum_at(bound) - column.sum_at(bound + 1) + rng.laplace(0, 4 / epsilon) >= bar:
            return bound
    return bounds[-1]


def _average(select: Select, column: NumericColumn, epsilon: float, rng: np.random.Generator) -> float:
    """auto_avg: a third of ε each for bound, sum and count."""
    bound = select(column, epsilon / 3, rng)
    total = column.sum_at(bound) + rng.laplace(0, 3 * bound / epsilon)
    return total / max(1.0, len(column.values) + rng.laplace(0, 3 / epsilon))


def compare(report: Report, values: I64) -> None:
    """Median relative error of the average, by way of finding the bound and by ε."""
    column, truth = NumericColumn(values, 1001), float(values.mean())
    ways: dict[str, Select] = {
        "naive_select_b": naive_select_b,
        "naive threshold": naive_above_threshold,
        "above threshold, as in the book": above_threshold,
    }
    errors: dict[str, list[float]] = {name: [] for name in (*ways, "hushgram clip")}
    for epsilon in EPSILONS:
        for name, select in ways.items():
            rng = np.random.default_rng(7)
            found = [_average(select, column, epsilon, rng) for _ in range(RUNS)]
            errors[name].append(float(np.median(np.abs(np.array(found) / truth - 1))))
        params = ClipParams(epsilon=repr(epsilon), stop=1000)
        ours = [
            clip_column(values, params, ReleaseKey(run.to_bytes(32, "big"))).average for run in range(RUNS)
        ]
        off = [1.0 if one is None else abs(float(one) / truth - 1) for one in ours]
        errors["hushgram clip"].append(float(np.median(off)))
    report.note("median error of the average of ages, by epsilon", "  ".join(f"{e:>7g}" for e in EPSILONS))
    for name, row in errors.items():
        report.note(f"  {name}", "  ".join(f"{error:>7.4f}" for error in row))
    at = EPSILONS.index(0.1)
    gain = errors["naive_select_b"][at] / errors["hushgram clip"][at]
    report.bar("error of naive_select_b over hushgram clip, epsilon 0.1", gain, 1, unit="x")
    lines = {
        name: [[e, max(error, 1e-5)] for e, error in zip(EPSILONS, row, strict=True)]
        for name, row in errors.items()
    }
    report.draw(
        "clip", "Average of 32,000 ages, bound found in four ways", "ε", "median relative error", lines
    )
