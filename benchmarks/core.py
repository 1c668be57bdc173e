"""Speed and size of the library, against OpenDP in the same run: `python -m benchmarks.core`."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import hushgram as hg
from benchmarks.bars import Report, best_of
from hushgram.contributions.histogram import Histogram
from hushgram.noise import sampling
from hushgram.noise.entropy import ReleaseKey
from hushgram.release_in_memory import encoded_blocks
from hushgram.sparse_histogram.sizing import Survey
from hushgram.sparse_histogram.spec import ReleaseSpec
from hushgram.sparse_histogram.steps import plan_release, select_keys

KEY = ReleaseKey(bytes(range(32)))
KEYS = 222_722
BOUND, ALPHA, FACTOR = 87, 4, 50  # of OpenDP's ALP: the last two are its defaults
RECORDS = 5_000_000


def zipf() -> np.ndarray:
    """Counts of the Zipf(1.1) histogram: 222,722 keys, 5 M records."""
    weight = np.arange(1, KEYS + 1) ** -1.1
    return np.maximum(1, np.rint(RECORDS * weight / weight.sum())).astype(np.int64)


def samplers(report: Report) -> None:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    ours, _ = best_of(5, lambda: sampling.discrete_laplace(Fraction(2), 1_000_000, hg.os_entropy()))
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    mechanism = dp.m.make_laplace(*space, scale=2.0)
    theirs, _ = best_of(1, lambda: mechanism([0] * 1_000_000))
    report.bar("discrete Laplace, 1 M draws: times as fast as OpenDP", theirs / ours, 50, unit="x")
    packed = np.zeros(25_000_000 // 8, np.uint8)
    seconds, _ = best_of(5, lambda: sampling.flip_bits(packed, Fraction(1, 5), hg.os_entropy()))
    report.bar("randomized response on one core", 25 / seconds, 200, unit="Mbit/s")


def build_ours(histogram: Histogram, params: hg.ReleaseParams) -> int:
    """List and ALP: noise on all cells, and rounding, hashing and randomized response of what is not listed."""
    spec = ReleaseSpec.of(params, user="user", release_key=KEY)
    shards = replace(histogram, sensitivity=spec.params.sensitivity).shards()
    planned = plan_release(Survey.of(enumerate(shards)), spec)
    passed = [select_keys(i, part, planned, KEY, len(shards))[1] for i, part in enumerate(shards)]
    return sum(len(block.content) for block in encoded_blocks(passed, planned, KEY))


def opendp_alp(counts: np.ndarray, factor: int) -> Any:
    """OpenDP's ALP at ε = 1, all of it for the projection; counts above `BOUND` are cut, and its total says so."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.map_domain(dp.atom_domain(T="String"), dp.atom_domain(T="u32"))
    metric = dp.l01inf_distance(dp.absolute_distance(T="u32"))
    total = int(np.minimum(counts, BOUND).sum())
    made = dp.m.make_alp_queryable(
        domain, metric, scale=1.0, total_limit=total, value_limit=BOUND, size_factor=factor, alpha=ALPHA
    )
    assert made.map((1, 1, 1)) == 1.0  # ε for one record
    return made


def opendp_bits(counts: np.ndarray, factor: int) -> int:
    """Bits of its projection: the power of two from factor · total · ε/α on."""
    return 1 << (int(factor * int(np.minimum(counts, BOUND).sum()) / ALPHA) - 1).bit_length()


def projection(report: Report) -> None:
    """Build, lookup, size and error beside OpenDP's ALP, at its default size and at the bytes of all of our sketch."""
    counts = zipf()
    params = hg.ReleaseParams(epsilon="1", max_contributions=1)
    histogram = Histogram.of_counts(np.arange(KEYS), counts, texts=False)
    ours, _ = best_of(3, lambda: build_ours(histogram, params))
    data = {str(i): int(c) for i, c in enumerate(counts)}
    theirs, queryable = best_of(1, lambda: opendp_alp(counts, FACTOR)(data))
    report.bar("building list and ALP: times as fast as OpenDP's ALP", theirs / ours, 50, unit="x")
    asked = np.arange(0, KEYS, KEYS // 50_000)[:50_000]
    sketch = hg.release_histogram(np.arange(KEYS), counts, params, release_key=KEY)
    sketch.estimate(asked[:10])
    mine, _ = best_of(3, lambda: sketch.estimate(asked))
    names = [str(i) for i in asked[:2000]]
    others, _ = best_of(1, lambda: [queryable(name) for name in names])
    report.bar(
        "50,000 lookups with intervals: times as fast a key", (others / 2000) / (mine / 50_000), 50, unit="x"
    )
    some = np.random.default_rng(1).choice(np.flatnonzero(counts <= BOUND), 4_000, replace=False)
    found = sketch.estimate(some, interval=None)["estimate"].to_numpy()
    error = float(np.sqrt(np.mean((found - counts[some]) ** 2)))
    room = 8 * sketch.size
    report.note(
        f"hushgram, all of its sketch: bits per key; RMSE up to {BOUND}", f"{room / KEYS:.1f}; {error:.2f}"
    )
    total = int(np.minimum(counts, BOUND).sum())
    factor = max(int((1 << (room - 1).bit_length()) * ALPHA / total), 1)  # the power of two above our bits
    small = opendp_alp(counts, factor)(data)
    for what, asked_of, used in (("its default size", queryable, FACTOR), ("small", small, factor)):
        told = np.array([asked_of(str(i)) for i in some])
        other, bits = float(np.sqrt(np.mean((told - counts[some]) ** 2))), opendp_bits(counts, used)
        report.note(f"OpenDP's ALP, {what}: bits per key; the same RMSE", f"{bits / KEYS:.1f}; {other:.2f}")
        report.bar(f"error over that of OpenDP, {what}", error / other, 1, at_most=True)
        report.bar(f"bits over those of OpenDP, {what}", room / bits, 1, at_most=True)


def command_line(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(1)
        counts = np.minimum(rng.zipf(1.3, 1_500_000), 10**9)
        params = hg.ReleaseParams(epsilon="1", max_contributions=1, bits_per_key=100)
        sketch = hg.release_histogram(np.arange(1_500_000), counts, params, Path(folder) / "a.sketch")
        report.note("size of the sketch in MB", sketch.size / 1e6)
        formula = 1.02 * (sketch.plan.bits / 8 + 5 * sketch.manifest.heavy_rows) + 65536
        report.bar("bytes on disk, share of the size formula", sketch.size / formula, 1, at_most=True)
        best = float("inf")
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, "-m", "hushgram.pipelines", "query", str(sketch.path), "7"],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        report.bar("`hushgram query` on it, process time", best, 0.7, at_most=True, unit="s")


def main() -> int:
    """Print every bar of the library."""
    report = Report("Library: speed and size")
    samplers(report)
    projection(report)
    command_line(report)
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
