"""Series and changes on simulated releases: error, coverage, false discoveries: ``python -m benchmarks.over_time``."""

from __future__ import annotations

import datetime
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import hushgram as hg
from benchmarks.bars import Report
from hushgram.sketch.over_time import compare, series
from hushgram.sketch.reader import Sketch

__all__ = ["main"]

_KEYS = 200
_NAMES = [f"https://example.org/{i}" for i in range(_KEYS)]
_PAIRS, _DAYS = 200, 30


def main() -> None:
    """Prints each figure beside its bar."""
    report = Report("Series and changes")
    _compare(report)
    for change in (0.05, 0.1, 0.2):
        _series(report, change)
    _carry(report)
    sys.exit(report.exit_code())


def _release(counts: np.ndarray, path: Path | None = None, *, gaussian: bool) -> Sketch:
    params = (
        hg.ReleaseParams(epsilon="1", delta="1e-6", max_contributions=100)
        if gaussian
        else hg.ReleaseParams(epsilon="1/10", max_contributions=1)
    )
    keys = np.repeat(np.array(_NAMES), counts)
    users = None if not gaussian else np.arange(len(keys))
    return hg.release_public(users, keys, _NAMES, params, path)


def _compare(report: Report) -> None:
    """A tenth of 200 keys changes by 1 to 15 standard deviations; in every second pair noise is Gaussian."""
    draws = np.random.default_rng(0)
    false, large = [], []
    for pair in range(_PAIRS):
        gaussian = pair % 2 == 1
        before = draws.integers(600, 2000, _KEYS)
        first = _release(before, gaussian=gaussian)
        one = math.sqrt(first.plan.noise.law(float(first.plan.scale)).variance)
        signs, sizes = draws.choice([-1, 1], _KEYS), draws.uniform(1, 15, _KEYS)
        change = np.where(draws.random(_KEYS) < 0.1, signs * sizes * one, 0).astype(int)
        change = np.maximum(change, -before)
        second = _release(before + change, gaussian=gaussian)
        rows = compare(first, second, _NAMES, rate=0.05).table.to_pylist()
        found = {_NAMES.index(row["key"]) for row in rows if row["change"]}
        false.append(sum(change[i] == 0 for i in found) / max(len(found), 1))
        large += [i in found for i in np.flatnonzero(np.abs(change) > 6 * math.sqrt(2) * one)]
    report.bar(
        f"false among changes found, mean of {_PAIRS} pairs at 5 %", float(np.mean(false)), 0.05, at_most=True
    )
    report.bar("changes above 6 standard deviations that are found", float(np.mean(large)), 0.9)


def _series(report: Report, change: float) -> None:
    """Counts are random walks of so many noise deviations per day, over 30 days."""
    draws = np.random.default_rng(int(1000 * change))
    noise = math.sqrt(_release(np.ones(_KEYS, int), gaussian=False).plan.noise.law(10.0).variance)
    true = np.round(1000 + np.cumsum(draws.normal(0, change * noise, (_DAYS, _KEYS)), axis=0)).astype(int)
    first = datetime.date(2026, 11, 1)
    with tempfile.TemporaryDirectory() as folder:
        made = [
            _release(
                counts, Path(folder) / f"urls-{first + datetime.timedelta(days=day)}.sketch", gaussian=False
            )
            for day, counts in enumerate(true)
        ]
        rows = [row for row in series(made, _NAMES).table.to_pylist() if row["of"] == "key"]
    flat = true.ravel()
    error = {
        name: math.sqrt(
            np.mean(
                [(row[name] - x) ** 2 for row, x in zip(rows, flat, strict=True) if row[name] is not None]
            )
        )
        for name in ("estimate", "smoothed")
    }
    held = np.mean(
        [row["smoothed_low"] <= x <= row["smoothed_high"] for row, x in zip(rows, flat, strict=True)]
    )
    what = f"change of {change:g} noise deviations per day"
    report.bar(
        f"{what}: error of smoothed / of single days",
        error["smoothed"] / error["estimate"],
        0.6,
        at_most=True,
    )
    report.bar(f"{what}: coverage of smoothed intervals", float(held), 0.93)
    report.bar(f"{what}: coverage at most", float(held), 0.98, at_most=True)


def _carry(report: Report) -> None:
    """30 days on which a user replaces each key with probability 0.1; named keys that are in the data, on average."""
    draws = np.random.default_rng(0)
    params = hg.ReleaseParams(epsilon="1", delta="1e-6", max_contributions=20)
    weights = 1.0 / np.arange(1, 20_001)
    weights /= weights.sum()
    users = np.repeat(np.arange(6000), np.minimum(draws.zipf(1.6, 6000) + 2, 60))
    keys = draws.choice(len(weights), len(users), p=weights)
    named: dict[bool, list[int]] = {False: [], True: []}
    carry: Any = None
    for _ in range(_DAYS):
        other = draws.choice(len(weights), len(users), p=weights)
        keys = np.where(draws.random(len(users)) < 0.1, other, keys)
        texts = keys.astype(str)
        for carries in named:
            sketch = hg.release(users, texts, params, carry=carry if carries else None)
            found = set(sketch.heavy(all=True)["key"].to_pylist())
            named[carries].append(len(found & set(texts.tolist())))
            if carries:
                carry = sketch.named_keys()
    without, with_ = (float(np.mean(named[carries])) for carries in (False, True))
    report.note("named keys per day without carry, 30 days", without)
    report.note("with carry", with_)
    report.bar("named keys with carry / without", with_ / without, 1.3, unit="times")


if __name__ == "__main__":
    main()
