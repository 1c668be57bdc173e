"""Parts of `python -m benchmarks.error` on sharper answers: any set, absent and heavy keys, users with names.

Everything is released at ε = 1 and read back from sketches.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import hushgram as hg
from benchmarks.bars import Report
from benchmarks.data import HELD_OUT, HISTOGRAMS, KEYS, Counts
from hushgram.contributions.keys import encode, hash_bytes

__all__ = ["absent_and_ranges", "heavy_bars", "set_bars", "user_level"]

NAMES = pa.array([f"https://example.org/{number}" for number in range(KEYS)])
NOBODY = pa.array([f"https://nobody.example/{number}" for number in range(60_000)])
SPANS = ((1, 10), (11, 40), (41, 100), (101, 250), (251, 1 << 62))
FEW = 1_000


def _release(counts: Counts, seed: int, contributions: int) -> hg.Sketch:
    params = hg.ReleaseParams(epsilon="1", max_contributions=contributions)
    return hg.release_histogram(NAMES, counts, params, release_key=hg.ReleaseKey(bytes([seed] * 32)))


def _rmse(errors: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def absent_and_ranges(report: Report, quick: bool = False) -> None:
    """Confidence intervals in every range of counts, 0 among them."""
    data = {"Zipf 1.1": HISTOGRAMS["Zipf 1.1"], "log-normal": HELD_OUT["log-normal"]}
    if not quick:
        data |= {
            "geometric, mean 12": HISTOGRAMS["geometric, mean 12"],
            "2, 7 and 60": HELD_OUT["2, 7 and 60"],
        }
    for name, make in data.items():
        counts = make()
        for contributions in (1, 3, 8, 20):
            sketch = _release(counts, 7, contributions)
            found, nobody = sketch.estimate(NAMES), sketch.estimate(NOBODY)
            low, high = found["low"].to_numpy(), found["high"].to_numpy()
            held = (low <= counts) & (counts <= high)
            shares = [float(np.mean(nobody["low"].to_numpy() <= 0.0))]
            for least, most in SPANS:
                rows = (counts >= least) & (counts <= most)
                if np.count_nonzero(rows) >= FEW:
                    shares.append(float(held[rows].mean()))
            what = f"{name}, C = {contributions}: confidence, least of all ranges and 0"
            report.bar(what, min(shares), 0.94)


def _sets(counts: Counts, size: int, rng: np.random.Generator) -> dict[str, NDArray[np.int64]]:
    """Keys by number; from KEYS on nobody used them."""
    chosen = {"random": rng.choice(KEYS, size, replace=False)}
    for least, most in SPANS:
        rows = np.flatnonzero((counts >= least) & (counts <= most))
        if len(rows) >= 3 * size:  # or the sets of a release are all the same
            chosen[f"{least}–{most}" if most < 1 << 60 else f"> {least - 1}"] = rng.choice(
                rows, size, replace=False
            )
    chosen["absent"] = KEYS + rng.choice(len(NOBODY), size, replace=False)
    half = rng.choice(KEYS, size // 2, replace=False)
    chosen["half-absent"] = np.concatenate([chosen["absent"][: size - size // 2], half])
    return chosen


def set_bars(report: Report, quick: bool = False) -> None:
    """Totals of any set: coverage, and error beside the better of the two plain totals."""
    every, plain = encode(pa.concat_arrays([NAMES, NOBODY])), ("any", "posterior", "unbiased")
    releases, sets = (3, 30) if quick else (6, 40)
    for contributions in (1, 8):
        counts = HISTOGRAMS["Zipf 1.1"]()
        truth = np.append(counts, np.zeros(len(NOBODY), np.int64))
        rng, rows = np.random.default_rng(5), {}
        for number in range(releases):
            sketch = _release(counts, number + 21, contributions)
            looked = sketch._look_up(hash_bytes(every.values), every.values)
            found = tuple(looked[place][every.codes] for place in (2, 0, 1))
            decoder = sketch.decoder  # every key is looked up once, not for each set
            for size in (100, 1_000, 10_000):
                for _ in range(sets if size < 10_000 else sets // 2):
                    for name, chosen in _sets(counts, size, rng).items():
                        total = float(truth[chosen].sum())
                        answers = [
                            decoder.total(*(part[chosen] for part in found), estimator=e) for e in plain
                        ]
                        held = answers[0][1] <= total <= answers[0][2]
                        rows.setdefault((size, name), []).append(
                            [held, total, *((answer[0] - total) ** 2 for answer in answers)]
                        )
        for (size, name), figures in rows.items():
            held, true, *errors = np.mean(np.array(figures, np.float64), axis=0)
            near = float(np.sqrt(errors[0] / max(min(errors[1:]), 1e-9)))
            spread = 3.0 * float(np.sqrt(0.05 * 0.95 / len(figures)))  # of a share over so few sets
            what = f"C = {contributions}: totals of {size:,}, {name}"
            shown = ", ".join(f"{np.sqrt(error):,.0f}" for error in errors)
            report.note(
                f"{what}: true total; RMSE of {', '.join(plain)}; held",
                f"{true:,.0f}; {shown}; {held:.2f}",
            )
            report.note(f"{what}: error over the better plain total's", near)
            report.bar(f"{what}: intervals hold, ± {spread:.3f}", held + spread, 0.93)
            report.bar(f"{what}: intervals hold, ± {spread:.3f}", held - spread, 0.98, at_most=True)


def heavy_bars(report: Report, quick: bool = False) -> None:
    """Of the heavy keys that are shown by default at δ = 0, how many are real."""
    data = {"Zipf 1.1": HISTOGRAMS["Zipf 1.1"]} if quick else {**HISTOGRAMS, **HELD_OUT}
    for name, make in data.items():
        counts = make()
        for contributions in (1, 8):
            sketch = _release(counts, 9, contributions)
            shown = sketch.heavy(keys=NAMES)
            what = f"{name}, C = {contributions}: heavy keys shown, of"
            report.note(what, f"{shown.num_rows:,} of {sketch.manifest.heavy_rows:,}")
            if shown.num_rows >= 20:
                real = 1.0 - shown["key"].null_count / shown.num_rows
                report.bar(f"{what} them real", real, 0.93)


def _users(rows: int = 500_000, users: int = 40_000) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Users of Pareto(1.2) activity on Zipf(1.05) URLs; each pair of user and URL once."""
    rng = np.random.default_rng(11)
    activity = rng.pareto(1.2, users) + 1.0
    who = rng.choice(users, rows, p=activity / activity.sum())
    weight = np.arange(1, 200_001) ** -1.05
    what = rng.choice(len(weight), rows, p=weight / weight.sum())
    pairs = np.unique(who.astype(np.int64) * len(weight) + what)
    return pairs // len(weight), pairs % len(weight)


def user_level(report: Report) -> None:
    """Listed keys and their error against the uncut truth, and absent keys, at C = 100 with names and buckets."""
    who, what = _users()
    params = hg.ReleaseParams(epsilon="1", delta="1e-6", max_contributions=100)
    sketch = hg.release(who, what, params, release_key=hg.ReleaseKey(bytes([31] * 32)))
    truth = np.bincount(what)
    listed = sketch.heavy()
    keys = np.array([int(key) for key in listed["key"].to_pylist()])
    found = sketch.estimate(keys, interval=None)["estimate"].to_numpy()
    report.bar("user-level data, C = 100: keys listed", float(len(keys)), 85.0)
    report.bar("user-level data, C = 100: RMSE, uncut truth", _rmse(found - truth[keys]), 130.0, at_most=True)
    held = float(np.mean(sketch.estimate(NOBODY)["low"].to_numpy() <= 0.0))
    report.bar("user-level data, C = 100: confidence, absent keys", held, 0.94)
