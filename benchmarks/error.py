"""Error, intervals and totals of the decoders on real releases: `python -m benchmarks.error [PART …] [--quick]`.

Every figure is measured on sketches that were released at ε = 1. The older parts (main, sets, others, unseen, paper,
baseline) are at δ = 0, beside the setting of Aumüller, Lebeda and Pagh (d = 2^64, flat columns of 10 k bits, argmax)
in the same run; their keys are in the data, and the decoder is told so (`present=1`). The newer parts (buckets, ranges,
any, heavy, gaussian, users: `sharper`) assume nothing; `--quick` runs them alone, on less data.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import hushgram as hg
from benchmarks import sharper
from benchmarks.bars import Report
from benchmarks.data import HELD_OUT, HISTOGRAMS, KEYS, RANGES, Counts
from hushgram.decoding.alp import argmax_levels

Floats = NDArray[np.float64]
NAMES = pa.array([f"https://example.org/{number}" for number in range(KEYS)])
SETS = 300  # sets of keys for each release and size
FEW = 1_000  # a range with fewer keys than this is shown, but is too small to judge 94 % by


@dataclass
class Scores:
    """Results of one setting over some releases: arrays over all keys of all releases, and totals."""

    counts: Counts
    bytes: float
    estimates: dict[str, Floats]
    inside: dict[str, NDArray[np.bool_]]
    width: dict[str, Floats]
    totals: Floats  # (sets, 4): truth, estimate, low, high

    def rmse(self, name: str, within: tuple[int, int] = (1, 1 << 62)) -> float:
        """Root mean square error over the keys of a range of counts."""
        chosen = (self.counts >= within[0]) & (self.counts <= within[1])
        error = self.estimates[name][chosen] - self.counts[chosen]
        return float(np.sqrt(np.mean(error**2))) if len(error) else float("nan")

    def coverage(self, kind: str, within: tuple[int, int] = (1, 1 << 62)) -> float:
        """Share of intervals that hold the true count."""
        chosen = (self.counts >= within[0]) & (self.counts <= within[1])
        return float(self.inside[kind][chosen].mean()) if chosen.any() else float("nan")

    def number(self, within: tuple[int, int]) -> int:
        """Keys in a range."""
        return int(np.count_nonzero((self.counts >= within[0]) & (self.counts <= within[1])))


def measure(
    counts: Counts,
    params: hg.ReleaseParams,
    estimators: tuple[str, ...],
    intervals: tuple[str, ...] = (),
    *,
    releases: int = 1,
    size: int = 0,
    first: int = 1,
) -> Scores:
    """Release, look every key up, and sum random sets of ``size`` keys."""
    rng = np.random.default_rng(6 + first)
    estimates: dict[str, list[Floats]] = {name: [] for name in estimators}
    inside: dict[str, list[NDArray[np.bool_]]] = {kind: [] for kind in intervals}
    width: dict[str, list[Floats]] = {kind: [] for kind in intervals}
    totals: list[tuple[float, float, float, float]] = []
    used = 0.0
    for number in range(releases):
        sketch = hg.release_histogram(
            NAMES, counts, params, release_key=hg.ReleaseKey(bytes([number + first] * 32))
        )
        used += sketch.size / releases
        for name in estimators:
            table = sketch.estimate(NAMES, estimator=name, interval=None, present=1.0)
            estimates[name].append(table["estimate"].to_numpy())
        for kind in intervals:
            table = sketch.estimate(NAMES, interval=kind, present=1.0)
            low, high = table["low"].to_numpy(), table["high"].to_numpy()
            inside[kind].append((low <= counts) & (counts <= high))
            width[kind].append(high - low)
        for _ in range(SETS if size else 0):
            chosen = np.sort(rng.choice(KEYS, size, replace=False))
            total = sketch.total(NAMES.take(pa.array(chosen)), estimator="posterior")
            totals.append((float(counts[chosen].sum()), total.estimate, total.low, total.high))
    return Scores(
        counts=np.tile(counts, releases),
        bytes=used,
        estimates={name: np.concatenate(parts) for name, parts in estimates.items()},
        inside={kind: np.concatenate(parts) for kind, parts in inside.items()},
        width={kind: np.concatenate(parts) for kind, parts in width.items()},
        totals=np.array(totals).reshape(-1, 4),
    )


def paper_setting(counts: Counts, contributions: int = 1) -> hg.ReleaseParams:
    """The paper's parameters, given n and k for nothing."""
    sizes = (int(counts.sum()), len(counts))
    return hg.ReleaseParams(epsilon="1", max_contributions=contributions, sizes=sizes, preset="paper")


def between(report: Report, what: str, value: float, low: float, high: float) -> None:
    """A figure with a bar on either side."""
    report.bar(what, value, low)
    report.bar(what, value, high, at_most=True)


def judge_totals(report: Report, what: str, totals: Floats) -> None:
    """Relative RMSE, bias and coverage of totals; relative to the mean of the true totals.

    Also shown relative to each set's own total, which is stricter where a few keys hold most of the records.
    """
    truth, estimate, low, high = totals.T
    error = (estimate - truth) / truth.mean()
    own = float(np.sqrt(np.mean((estimate / truth - 1.0) ** 2)))
    report.note(f"{what}: RMSE relative to each set's own total", own)
    report.bar(f"{what}: relative RMSE", float(np.sqrt(np.mean(error**2))), 0.06, at_most=True)
    report.bar(f"{what}: |bias|", abs(float(error.mean())), 0.03, at_most=True)
    between(report, f"{what}: intervals hold", float(np.mean((low <= truth) & (truth <= high))), 0.93, 0.98)


def judge_intervals(report: Report, what: str, scores: Scores) -> None:
    """Coverage of both kinds of intervals."""
    for within in RANGES:
        number = scores.number(within)
        name = f"{within[0]}–{within[1]}" if within[1] < 1 << 60 else f"> {within[0] - 1}"
        if number >= FEW:
            report.bar(
                f"{what}: confidence intervals hold, {name}", scores.coverage("confidence", within), 0.94
            )
        elif number:
            held = f"{scores.coverage('confidence', within):.3f} of {number}"
            report.note(f"{what}: confidence intervals hold, {name} (few)", held)
    credible = scores.coverage("credible")
    if len(np.unique(scores.counts)) <= 3:  # an interval that must span a few counts may hold all of them
        report.bar(f"{what}: credible intervals hold", credible, 0.93)
    else:
        between(report, f"{what}: credible intervals hold", credible, 0.93, 0.98)


def table(name: str, scores: Scores, names: tuple[str, ...]) -> None:
    """Errors by decoder and range of counts, as docs/accuracy.md shows them."""
    print(
        f"{name:<34} {'all keys':>9}"
        + "".join(f"{f'{a}–{b}' if b < 1 << 60 else f'> {a - 1}':>9}" for a, b in RANGES)
    )
    for estimator in names:
        cells = [scores.rmse(estimator), *(scores.rmse(estimator, within) for within in RANGES)]
        print(f"  RMSE {estimator:<27} " + "".join(f"{cell:>9.2f}" for cell in cells))
    for estimator in names:
        error = scores.estimates[estimator] - scores.counts
        parts = [error, *(error[(scores.counts >= a) & (scores.counts <= b)] for a, b in RANGES)]
        print(f"  bias {estimator:<27} " + "".join(f"{part.mean():>+9.2f}" for part in parts))
    for kind, wide in scores.width.items():
        parts = [wide, *(wide[(scores.counts >= a) & (scores.counts <= b)] for a, b in RANGES)]
        print(f"  length of {kind:<22} " + "".join(f"{part.mean():>9.1f}" for part in parts))
        held = [scores.coverage(kind), *(scores.coverage(kind, within) for within in RANGES)]
        print(f"  held by {kind:<24} " + "".join(f"{share:>9.3f}" for share in held))


def main_bars(report: Report) -> None:
    """The two main settings with C = 1, in full."""
    for name, most, room in (("Zipf 1.1", 0.4, 0.12), ("Zipf 1.1 × 10", 0.5, 0.15)):
        counts = HISTOGRAMS[name]()
        paper = measure(counts, paper_setting(counts), ("argmax", "posterior"))
        ours = measure(
            counts,
            hg.ReleaseParams(epsilon="1", max_contributions=1),
            ("posterior", "argmax", "unbiased"),
            ("confidence", "credible"),
            releases=4,
            size=1_000,
        )
        table(f"{name}: the paper's setting", paper, ("argmax", "posterior"))
        table(f"{name}: the default", ours, ("posterior", "argmax", "unbiased"))
        report.bar(
            f"{name}: RMSE, share of the paper's",
            ours.rmse("posterior") / paper.rmse("argmax"),
            most,
            at_most=True,
        )
        report.bar(f"{name}: bytes, share of the paper's", ours.bytes / paper.bytes, room, at_most=True)
        judge_intervals(report, name, ours)
        judge_totals(report, f"{name}: totals of 1,000 keys", ours.totals)


def other_bars(report: Report) -> None:
    """Other distributions of counts, and users who count up to eight times."""
    for contributions in (1, 8):
        for name, make in HISTOGRAMS.items():
            if contributions == 1 and name.startswith("Zipf 1.1"):
                continue
            counts = make()
            paper = measure(counts, paper_setting(counts, contributions), ("argmax",))
            ours = measure(
                counts,
                hg.ReleaseParams(epsilon="1", max_contributions=contributions),
                ("posterior",),
                ("confidence", "credible"),
                releases=3,
                size=1_000,
            )
            what = f"{name}, C = {contributions}"
            report.note(f"{what}: RMSE", f"{ours.rmse('posterior'):.2f}, paper {paper.rmse('argmax'):.2f}")
            report.note(f"{what}: RMSE, share of the paper's", ours.rmse("posterior") / paper.rmse("argmax"))
            report.note(f"{what}: bytes, share of the paper's", ours.bytes / paper.bytes)
            judge_intervals(report, what, ours)
            judge_totals(report, f"{what}: totals of 1,000 keys", ours.totals)


def set_figures(report: Report) -> None:
    """Totals of other sizes, and of sets that are not like a random sample."""
    counts, rng = HISTOGRAMS["Zipf 1.1"](), np.random.default_rng(11)
    params = hg.ReleaseParams(epsilon="1", max_contributions=1)
    sketch = hg.release_histogram(NAMES, counts, params, release_key=hg.ReleaseKey(bytes([9] * 32)))
    each = sketch.estimate(NAMES, estimator="unbiased", interval=None)["estimate"].to_numpy()
    for size in (10, 100, 10_000):
        sets = [rng.choice(KEYS, size, replace=False) for _ in range(200)]
        truth = np.array([counts[chosen].sum() for chosen in sets])
        totals = [sketch.total(NAMES.take(pa.array(chosen)), estimator="posterior") for chosen in sets]
        held = np.mean([t.low <= x <= t.high for t, x in zip(totals, truth, strict=True)])
        own = np.sqrt(np.mean((np.array([t.estimate for t in totals]) / truth - 1.0) ** 2))
        rough = np.sqrt(np.mean((np.array([each[chosen].sum() for chosen in sets]) / truth - 1.0) ** 2))
        shown = f"held {held:.3f}, RMSE/own total {own:.3f}, unbiased {rough:.3f}"
        report.note(f"Zipf 1.1: totals of {size:,} random keys", shown)
    for low, high in RANGES[:3]:
        inside = np.flatnonzero((counts >= low) & (counts <= high))
        chosen = rng.choice(inside, 1_000, replace=False)
        truth = float(counts[chosen].sum())
        whole = sketch.total(NAMES.take(pa.array(chosen)), estimator="posterior").estimate / truth - 1.0
        shown = f"posterior {whole:+.3f}, unbiased {each[chosen].sum() / truth - 1.0:+.3f}"
        report.note(f"Zipf 1.1: relative error of 1,000 keys of {low}–{high}", shown)


def held_out(report: Report) -> None:
    """Distributions other than those on which the decoder's constants were chosen (see `data.HELD_OUT`)."""
    for contributions in (1, 3, 8):
        for name, make in HELD_OUT.items():
            counts = make()
            params = hg.ReleaseParams(epsilon="1", max_contributions=contributions)
            ours = measure(
                counts, params, ("posterior",), ("confidence", "credible"), releases=2, size=1_000, first=101
            )
            what = f"held out: {name}, C = {contributions}"
            report.note(f"{what}: RMSE", ours.rmse("posterior"))
            judge_intervals(report, what, ours)
            judge_totals(report, f"{what}: totals of 1,000 keys", ours.totals)


def paper_figures(report: Report) -> None:
    """Section 5 of the paper: ε = 1, α = 3, x uniform in [0, β]; bits with collisions of a given probability.

    The paper does not state its β; the figures settle from about 1,000 on.
    """
    rng = np.random.default_rng(5)
    alpha, bound = 3.0, 1_500
    for chance, rows in ((0.1, 60), (0.01, 20)):
        errors = []
        for _ in range(rows):
            x = rng.random(2_000) * bound
            y = np.floor(x / alpha + rng.random(len(x)))  # random rounding
            bits = np.arange(1, int(bound / alpha) + 1) <= y[:, None]
            bits |= rng.random(bits.shape) < chance
            bits ^= rng.random(bits.shape) < 1 / (alpha + 2)
            errors.append(argmax_levels(bits) * alpha - x)
        error = np.concatenate(errors)
        size = float(np.abs(error).mean())
        if chance == 0.1:
            between(report, "004 §5: mean absolute error", size, 5.9, 6.9)
            between(report, "004 §5: standard deviation", float(error.std()), 10.0, 12.0)
            between(report, "004 §5: 90th percentile", float(np.quantile(np.abs(error), 0.9)), 14.3, 17.3)
        else:
            report.bar("004 §5: mean absolute error at s = 100 k", size, 5.0, at_most=True)


def baseline(report: Report) -> None:
    """The plain alternative: hash to s buckets and add discrete Laplace noise to each, at the same ε and space.

    Once alone with all of ε, once behind the same threshold list as hushgram's (then buckets hold counts
    cut at the bound, with ε_alp). Buckets take 8 bits. Both are decoded by their posterior mean with
    the true histogram as prior, which is better than anyone could do from the release alone.
    """
    rng = np.random.default_rng(3)
    for name in ("Zipf 1.1", "Zipf 1.1 × 10", "geometric, mean 12"):
        counts = HISTOGRAMS[name]()
        for bits_per_key in (8, 20):
            params = hg.ReleaseParams(epsilon="1", max_contributions=1, bits_per_key=bits_per_key)
            sketch = hg.release_histogram(NAMES, counts, params, release_key=hg.ReleaseKey(bytes(32)))
            answer = sketch.estimate(NAMES, interval=None, present=1.0)
            ours, listed = (
                answer["estimate"].to_numpy(),
                answer["source"].to_numpy(zero_copy_only=False) != "alp",
            )
            space = 8 * sketch.size / KEYS
            report.note(
                f"{name}: hushgram, {bits_per_key} bits per key in columns", line(ours, counts, space)
            )
            scale, cut = float(sketch.plan.scale), sketch.plan.threshold
            size = bits_per_key * KEYS // 8
            small = BucketCounters(rng, np.minimum(counts, cut), size, scale)
            ratio = np.exp(-1.0 / scale)
            hidden = 1.0 - np.where(counts < cut, ratio ** np.maximum(cut - counts, 1) / (1.0 + ratio), 1.0)
            mixed = np.where(listed, ours, small.decode(np.bincount(np.minimum(counts, cut), hidden)))
            report.note(f"{name}: the same list and buckets", line(mixed, counts, space))
            size = int(space / 8 * KEYS)
            alone = BucketCounters(rng, counts, size, 1.0)
            plain = alone.decode(np.bincount(counts[counts < BucketCounters.REACH // 4]).astype(np.float64))
            report.note(f"{name}: buckets alone, all of ε", line(plain, counts, space))


class BucketCounters:
    """Counts hashed to buckets with discrete Laplace noise; every key's noisy bucket, and how to decode it."""

    REACH = 1 << 14

    def __init__(self, rng: np.random.Generator, counts: Counts, size: int, scale: float) -> None:
        where = rng.integers(0, size, len(counts))
        stop = 1.0 - np.exp(-1.0 / scale)
        noise = rng.geometric(stop, size) - rng.geometric(stop, size)
        self.values = (np.bincount(where, counts, minlength=size).astype(np.int64) + noise)[where]
        small = counts[counts < self.REACH // 4]
        every = np.bincount(small, minlength=self.REACH) / size
        around = np.minimum(np.arange(self.REACH), self.REACH - np.arange(self.REACH))
        added = np.exp(-around / scale)
        turned = np.fft.fft(every)
        # Others in the bucket are compound Poisson; with the noise they are what x is hidden by.
        self.hiding = np.exp(turned - every.sum()) * np.fft.fft(added / added.sum())

    def decode(self, prior: Floats) -> Floats:
        """Posterior mean of x for every key; values beyond the table are taken as they are."""
        masses = np.zeros(self.REACH)
        masses[: len(prior)] = prior
        top = np.fft.ifft(np.fft.fft(masses * np.arange(self.REACH)) * self.hiding).real
        bottom = np.fft.ifft(np.fft.fft(masses) * self.hiding).real
        index = np.clip(self.values, -self.REACH // 4, self.REACH // 2) % self.REACH
        mean = top[index] / np.maximum(bottom[index], 1e-9 * bottom.max())
        usual = self.values < self.REACH // 8
        return np.where(usual, np.clip(mean, 1.0, len(prior)), np.maximum(self.values, 1)).astype(np.float64)


def line(estimates: Floats, counts: Counts, bits: float) -> str:
    """RMSE and mean absolute error, over all keys, those above 10, and those up to 10."""
    error = np.abs(estimates - counts)
    parts = [("", error), ("x > 10: ", error[counts > 10]), ("x ≤ 10: ", error[counts <= 10])]
    shown = "  ".join(f"{name}RMSE {np.sqrt(np.mean(e**2)):7.2f} MAE {e.mean():5.2f}" for name, e in parts)
    return f"{bits:5.1f} bits/key  {shown}"


PARTS = {
    "main": main_bars,
    "sets": set_figures,
    "others": other_bars,
    "unseen": held_out,
    "paper": paper_figures,
    "baseline": baseline,
    "ranges": sharper.absent_and_ranges,
    "any": sharper.set_bars,
    "heavy": sharper.heavy_bars,
    "users": sharper.user_level,
}
QUICK = {
    "ranges": lambda report: sharper.absent_and_ranges(report, quick=True),
    "any": lambda report: sharper.set_bars(report, quick=True),
    "heavy": lambda report: sharper.heavy_bars(report, quick=True),
}


def main(names: list[str]) -> int:
    report = Report(f"Error of the decoders; {KEYS:,} keys, ε = 1, δ = 0")
    quick = "--quick" in names
    for name in [name for name in names if name != "--quick"] or (QUICK if quick else PARTS):
        (QUICK if quick and name in QUICK else PARTS)[name](report)
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
