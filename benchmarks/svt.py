"""Sparse vector: speed, accuracy, what the optimal split and the gaps are worth, and the jobs built on it.

    python -m benchmarks.svt              all bars
    python -m benchmarks.svt core         without the jobs on Beam (10 M rows)
    python -m benchmarks.svt f1           which queries reach the threshold, by every variant and method
    python -m benchmarks.svt clip         clipping alone: naive ways against the sparse vector, by ε

The privacy bars are tests: tests/privacy/test_svt_enumeration.py.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.bars import Report, best_of
from benchmarks.clip_baselines import compare
from hushgram.mechanisms.svt import (
    ABOVE,
    HistogramParams,
    Sparse,
    SvtParams,
    error_ratio,
    margin_for,
    refine,
    run_batch,
    theorem_alpha,
)
from hushgram.noise.entropy import ReleaseKey
from hushgram.sensitivity import ExactVector, Sensitivity

KEY = ReleaseKey(bytes(range(32)))
QUERIES, LARGE, RUNS = 10_000, 50, 200
ROWS, KEY_QUERIES = 10_000_000, 100_000


# --- the core ---------------------------------------------------------------------------------------------


def plain_loop(answers: list[int], threshold: int, cutoff: int, epsilon: float) -> list[int]:
    """Sparse of the lecture as one would write it: a Python loop with floating-point noise."""

    def laplace(scale: float) -> float:
        return scale * (random.expovariate(1) - random.expovariate(1))

    sigma = 2 * cutoff / epsilon
    bar, out, count = threshold + laplace(sigma), [], 0
    for answer in answers:
        above = answer + laplace(2 * sigma) >= bar
        out.append(int(above))
        if above:
            count += 1
            if count >= cutoff:
                break
            bar = threshold + laplace(sigma)
    return out


def numpy_loop(answers: list[int], threshold: int, cutoff: int, epsilon: float) -> list[int]:
    """The same with numpy.random.laplace, as in Programming DP."""
    rng = np.random.default_rng(1)
    sigma = 2 * cutoff / epsilon
    bar, out, count = threshold + rng.laplace(0, sigma), [], 0
    for answer in answers:
        above = answer + rng.laplace(0, 2 * sigma) >= bar
        out.append(int(above))
        if above:
            count += 1
            if count >= cutoff:
                break
            bar = threshold + rng.laplace(0, sigma)
    return out


def throughput(report: Report) -> None:
    """Measure answers per second of CPU time, on streams that are mostly below the threshold."""
    size = 4_000_000
    answers = np.random.default_rng(1).integers(0, 1000, size)
    answers[:: size // 40] = 200_000
    slowest = float("inf")
    for variant in ("optimal", "dwork-roth"):
        params = SvtParams(epsilon="1", threshold=100_000, cutoff=LARGE, monotone=True, variant=variant)
        seconds, released = best_of(
            3, lambda p=params: Sparse.from_params(p, KEY.source("b")).ask_many(answers)
        )
        assert len(released.above) == 40
        slowest = min(slowest, size / seconds)
        report.bar(f"core, vectorised, {variant}", size / seconds / 1e6, 5, unit="M/s")
    few = answers[:400_000].tolist()
    for name, loop in (("random.expovariate", plain_loop), ("numpy.random.laplace", numpy_loop)):
        seconds, _ = best_of(3, lambda f=loop: f(few, 100_000, LARGE, 1.0))
        rate = len(few) / seconds
        report.bar(
            f"times a plain Python loop with {name} ({rate / 1e6:.2f} M/s)", slowest / rate, 10, unit="x"
        )


def failures(params: SvtParams, width: int, queries: int, runs: int) -> float:
    """Share of runs with a wrong answer, when every exact answer lies just beyond α."""
    exact = np.full(queries, params.threshold - width - 1, dtype=np.int64)
    exact[np.arange(1, params.cutoff + 1) * queries // params.cutoff - 1] = params.threshold + width + 1
    right = (exact > params.threshold).astype(np.int8)
    wrong = 0
    for run in range(runs):
        released = Sparse.from_params(params, KEY.source("accuracy", run)).ask_many(exact)
        wrong += bool((released.outcome != right).any())
    return wrong / runs


def accuracy(report: Report) -> None:
    """Failure rate at the α of Theorems 2 and 4, β = 0.1, 1,000 queries, 400 runs."""
    for name, cutoff, delta in (("2", 1, "0"), ("4, δ = 0", 10, "0"), ("4, δ = 1e-6", 10, "1e-6")):
        params = SvtParams(epsilon="1", threshold=50_000, cutoff=cutoff, delta=delta, variant="dwork-roth")
        width = theorem_alpha(params, 1000, "0.1")
        rate = failures(params, width, 1000, 400)
        report.bar(f"Theorem {name}: failure rate at α = {width:,}, β = 0.1", rate, 0.1, at_most=True)
        report.note(f"  the same at α/4 = {width // 4:,} (no bar)", failures(params, width // 4, 1000, 100))


def workload(records: float) -> tuple[np.ndarray, int]:
    """10,000 counts of a Zipf(1) histogram in random order, and a threshold that 50 of them reach."""
    counts = np.rint(records / np.arange(1, QUERIES + 1) / np.log(QUERIES)).astype(np.int64)
    threshold = int(counts[LARGE - 1] + counts[LARGE]) // 2 + 1
    return np.random.default_rng(2).permutation(counts), threshold


def f1(params: SvtParams | HistogramParams, answers: np.ndarray, runs: int) -> float:
    """Mean F1 of "which of them reach the threshold?"."""
    truth = answers >= params.threshold
    scores, given = [], ExactVector(answers, params.calibrated("user"))
    for run in range(runs):
        found = run_batch(given, params, KEY, f"f1 {run}").outcome == ABOVE
        scores.append(2 * (found & truth).sum() / max(1, found.sum() + truth.sum()))
    return float(np.mean(scores))


HISTOGRAM = "noise on every answer, C = 8"
VARIANTS: dict[str, dict[str, object]] = {
    HISTOGRAM: {},
    "optimal, monotone": {"monotone": True},
    "optimal, general": {},
    "notes (Dwork, Roth)": {"variant": "dwork-roth"},
    "optimal, monotone, δ = 1e-6": {"monotone": True, "delta": "1e-6"},
    "notes, δ = 1e-6": {"variant": "dwork-roth", "delta": "1e-6"},
}


def selection(report: Report) -> dict[str, list[float]]:
    """F1 of all variants, 200 runs; the bar is at 300,000 records, the plot goes over five sizes."""
    sizes = (1e5, 3e5, 1e6, 3e6, 1e7)
    curves: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for records in sizes:
        answers, threshold = workload(records)
        for name, more in VARIANTS.items():
            params: SvtParams | HistogramParams
            if name == HISTOGRAM:  # one key counts in one query: h = 1
                params = HistogramParams(epsilon="1", threshold=threshold, sensitivity=Sensitivity(8, 1))
            else:
                params = SvtParams(epsilon="1", threshold=threshold, cutoff=LARGE, **more)  # type: ignore[arg-type]
                params = replace(params, margin=margin_for(params, QUERIES))
            curves[name].append(f1(params, answers, RUNS if records in (1e5, 3e5, 1e6) else 20))
    at = sizes.index(3e5)
    report.bar("F1, noise on every answer (method histogram), 0.3 M records", curves[HISTOGRAM][at], 0.99)
    report.bar("the same, 0.1 M records", curves[HISTOGRAM][0], 0.97)
    report.bar("F1, sparse vector alone, monotone, 0.3 M records", curves["optimal, monotone"][at], 0.95)
    report.bar("F1, sparse vector alone, general, 0.3 M records", curves["optimal, general"][at], 0.79)
    for name, scores in curves.items():
        shown = f"{scores[0]:.3f}, {scores[at]:.3f}, {scores[at + 1]:.3f}"
        report.note(f"F1, c = 50 of 10,000, ε = 1, 0.1, 0.3, 1 M records: {name}", shown)
    gain = curves["optimal, monotone"][at] - curves["notes (Dwork, Roth)"][at]
    report.bar("F1 of the optimal variant above the lecture's", gain, 0.1)
    gain = curves["optimal, monotone, δ = 1e-6"][at] - curves["notes, δ = 1e-6"][at]
    report.bar("the same with δ = 1e-6: calibrated above the lecture's constant", gain, 0.0)
    return {"sizes": list(sizes), **curves}


def gaps(report: Report) -> dict[str, list[float]]:
    """Squared error of gap and fresh value together, over that of the value alone."""
    cutoffs = (2, 5, 10, 20, 50, 100)
    found: dict[str, list[float]] = {"cutoffs": [float(c) for c in cutoffs]}
    for monotone in (True, False):
        name = "monotone" if monotone else "general"
        measured, stated = [], []
        for cutoff in cutoffs:
            params = SvtParams(
                epsilon="1/10", threshold=0, cutoff=cutoff, monotone=monotone, answers="numeric"
            )
            exact = np.full(cutoff, 10**7)
            value, better = 0.0, 0.0
            for run in range(40 + 4000 // cutoff):
                released = Sparse.from_params(params, KEY.source("gap", run)).ask_many(exact)
                value += float(((released.value - exact) ** 2).sum())
                better += float(((refine(params, released.gap, released.value) - exact) ** 2).sum())
            measured.append(better / value)
            stated.append(error_ratio(params))
        found[name], found[f"{name}, formula"] = measured, stated
        report.note(f"follow-up error with gaps, {name}, c = 50", measured[4])
        off = abs(measured[4] - stated[4])
        report.bar(f"  distance from the paper's formula ({stated[4]:.3f})", off, 0.06, at_most=True)
    return found


def draw(report: Report, f1_curves: dict[str, list[float]], gap_curves: dict[str, list[float]]) -> None:
    """The two plots of the page."""
    scores = {name: list(zip(f1_curves["sizes"], f1_curves[name], strict=True)) for name in VARIANTS}
    ratios = {
        name: list(zip(gap_curves["cutoffs"], points, strict=True))
        for name, points in gap_curves.items()
        if name != "cutoffs"
    }
    title = "F1 at the threshold, c = 50 of 10,000, ε = 1"
    report.draw("svt-f1", title, "records", "F1", scores, log_y=False)
    title = "Squared error with the gap over without, ε = 1/10"
    report.draw("svt-gap", title, "cutoff c", "error with gap / without", ratios, log_y=False)


def clipping(report: Report) -> None:
    """Ages of 32,000 people, and a column with values up to 10^5, with the same parameters."""
    from hushgram.mechanisms.clipping import ClipParams, clip_column

    rng = np.random.default_rng(3)
    ages = np.clip(rng.gamma(8.5, 4.58, 32_000), 17, 90).astype(int)
    gains = np.where(
        rng.random(32_000) < 0.08, np.minimum(rng.lognormal(8.8, 1, 32_000), 99_999).astype(int), 0
    )
    for name, column in ((f"ages, mean {ages.mean():.2f}", ages), ("values up to 10^5, 92 % zero", gains)):
        close = 0
        for run in range(100):
            found = clip_column(column, ClipParams(epsilon="1"), ReleaseKey(run.to_bytes(32, "little")))
            close += found.average is not None and abs(float(found.average) / column.mean() - 1) < 0.05
        report.bar(f"clip, {name}: runs of 100 within 5 %", int(close), 95)
    compare(report, ages)


# --- the job on Beam --------------------------------------------------------------------------------------


def timed(work: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def jobs(report: Report) -> None:
    """100,000 key queries against a release of the same 10 M rows, both in this process, one after the other."""
    from hushgram.pipelines.run.job_runner import import_beam
    from hushgram.pipelines.synthetic import PageViews, write_page_views

    import_beam()
    from hushgram.pipelines.jobs.release import run_release
    from hushgram.pipelines.run.job_runner import load_job, run_stages
    from hushgram.sparse_histogram.params import ReleaseParams

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_page_views(PageViews(rows=ROWS), home / "views")
        sample = pq.ParquetFile(next((home / "views").iterdir())).read_row_group(0, columns=["url"])
        urls = pc.unique(sample["url"]).to_pylist()[: KEY_QUERIES // 2]
        urls += [f"https://nowhere.example/{i}" for i in range(KEY_QUERIES - len(urls))]
        with (home / "queries.jsonl").open("w") as file:
            file.writelines(json.dumps({"key": url}) + "\n" for url in urls)
        (home / "alerts.yaml").write_text(f"""
sparse_vector: alerts
input: {{path: {home}/views, user: user_id, key: url}}
stream: {{path: {home}/queries.jsonl}}
svt: {{threshold: 100, cutoff: 50}}
privacy: {{epsilon: 1, max_contributions: 8}}
output: {{path: {home}/answers.jsonl}}
""")
        params = ReleaseParams(epsilon="1", max_contributions=8)
        plan = load_job("sparse-vector", home / "alerts.yaml").source

        def release() -> None:
            run_release(params, plan, user="user_id", key="url", path=home / "urls.sketch", release_key=KEY)

        def queries() -> None:
            job = load_job("sparse-vector", home / "alerts.yaml")
            run_stages(job, path=home / "answers.jsonl", release_key=KEY)

        released, asked = timed(release), timed(queries)
    report.note("release of 10 M rows, CPU seconds (wall)", f"{released[1]:.1f} ({released[0]:.1f})")
    report.note("100,000 key queries over them, CPU seconds (wall)", f"{asked[1]:.1f} ({asked[0]:.1f})")
    report.bar("queries over release, CPU time", asked[1] / released[1], 1.5, at_most=True, unit="x")


def main(arguments: list[str]) -> int:
    """Prints every figure beside its bar."""
    report = Report("Sparse vector")
    if "clip" in arguments:
        clipping(report)
        return report.exit_code()
    if "f1" in arguments:
        selection(report)
        return report.exit_code()
    throughput(report)
    accuracy(report)
    curves, reductions = selection(report), gaps(report)
    draw(report, curves, reductions)
    clipping(report)
    if "core" not in arguments:
        jobs(report)
    return report.exit_code()


if __name__ == "__main__":
    pa.set_cpu_count(2)
    sys.exit(main(sys.argv[1:]))
