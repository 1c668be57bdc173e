"""Linear queries: multiplicative weights, noisy max, randomized response, and which of them to use.

    python -m benchmarks.answers              all bars, and the figure docs/figures/choosing.png
    python -m benchmarks.answers pmw          one part: pmw, offline, prior, max, top, responses or choosing

The privacy bars are tests: tests/privacy/test_{pmw,noisy_max,linear,laplace}.py.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # both sides of the time bar on one core

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import hushgram as hg
from benchmarks.bars import Report, best_of
from benchmarks.selection_bars import max_bars, top_bars
from hushgram.mechanisms.laplace import LaplaceAnswers, LaplaceParams, release_listed
from hushgram.mechanisms.pmw import (
    GRID,
    HALTED,
    MEASURED,
    OfflineParams,
    OfflinePMW,
    OnlinePMW,
    PmwParams,
    Workload,
    prior_weights,
)
from hushgram.mechanisms.pmw.mechanism import expected_errors
from hushgram.mechanisms.randomized_response.mechanism import RandomizedResponseParams, answer, randomize
from hushgram.mechanisms.svt import ABOVE, NumericSparse
from hushgram.noise.entropy import InteractiveKey, ReleaseKey
from hushgram.sensitivity import exact

SECRET = bytes(range(32))
KEY = ReleaseKey(SECRET)
CELLS, RECORDS, QUERIES = 1024, 1_000_000, 20_000
FIGURE = Path("docs/figures/choosing.png")

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


def secret(number: int) -> bytes:
    """One key for each repetition."""
    return number.to_bytes(32, "big")


def key(number: int) -> ReleaseKey:
    """The same for a batch."""
    return ReleaseKey(secret(number))


def zipf(seed: int = 0) -> I64:
    """Counts of 1,024 buckets in random order, 10^6 records."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, CELLS + 1)
    return rng.multinomial(RECORDS, rng.permutation(shares / shares.sum())).astype(np.int64)


def random_queries(count: int, seed: int = 1, *, subsets: bool = False) -> Workload:
    """Weights uniform in [0, 1], or each cell in or out by a coin."""
    rng = np.random.default_rng(seed)
    if subsets:
        return Workload((rng.integers(0, 2, (count, CELLS)) * GRID).astype(np.uint16))
    return Workload(rng.integers(0, GRID + 1, (count, CELLS)).astype(np.uint16))


def worst(scaled: I64 | F64, truth: I64) -> float:
    """The largest error, as a share of all records."""
    return float(np.abs(scaled - truth).max()) / GRID / RECORDS


# --- multiplicative weights ---------------------------------------------------------------------------------


def pmw_bars(report: Report) -> None:
    """Error against Laplace, the update bound, the marks, the time."""
    counts, queries = zipf(), random_queries(QUERIES)
    truth = queries.exact(counts)
    basic = worst(LaplaceAnswers(1, QUERIES, GRID, InteractiveKey(SECRET)).answer(truth, b"basic"), truth)
    advanced = worst(
        LaplaceAnswers(1, QUERIES, GRID, InteractiveKey(SECRET), delta="1e-6").answer(truth, b"delta"), truth
    )
    report.note("20,000 queries, epsilon 1: Laplace, basic composition, worst error", f"{basic:.4f}")
    report.note("the same, exact composition at delta 1e-6", f"{advanced:.4f}")
    params = PmwParams(1)
    errors, updates = [], []
    for i in range(5):
        pmw = OnlinePMW(exact(counts, max_contributions=1), params, InteractiveKey(secret(i)))
        answers = pmw.answer(queries)
        errors.append(worst(answers.scaled, truth))
        updates.append(pmw.updates)
        _check_marks(pmw, answers.origin)
    report.bar("PMW, pure epsilon 1, worst error (worst of 5 runs)", max(errors), basic / 10, at_most=True)
    report.note("PMW, median of 5 runs", f"{np.median(errors):.4f}")
    report.bar("updates (bound 400), most of 5 runs", max(updates), 400, at_most=True)
    relaxed = OnlinePMW(
        exact(counts, max_contributions=1),
        PmwParams(1, delta="1e-6", max_updates=800),
        InteractiveKey(SECRET),
    )
    report.note("PMW at delta 1e-6, 800 updates", f"{worst(relaxed.answer(queries).scaled, truth):.4f}")
    subsets = random_queries(QUERIES, subsets=True)
    harder = OnlinePMW(
        exact(counts, max_contributions=1), PmwParams(1, max_updates=500), InteractiveKey(SECRET)
    ).answer(subsets)
    report.note(
        "PMW, random subsets instead, 500 updates", f"{worst(harder.scaled, subsets.exact(counts)):.4f}"
    )
    _time_bar(report, counts, queries, params)


def _check_marks(pmw: OnlinePMW, origin: NDArray[np.int8]) -> None:
    measured = np.flatnonzero(origin == MEASURED)
    assert len(measured) == pmw.updates <= pmw.params.max_updates
    halted = np.flatnonzero(origin == HALTED)
    assert not len(halted) or (
        pmw.halted and halted[0] == measured[-1] + 1 and len(halted) == len(origin) - halted[0]
    )


def _time_bar(report: Report, counts: I64, queries: Workload, params: PmwParams) -> None:
    """The products that nobody can do without: ⟨x, f⟩ and ⟨x̂, f⟩ of every query, once each."""
    whole = queries.grid.astype(np.int64)

    def products() -> I64:
        queries.exact(counts)
        return queries.exact(counts)

    def stream() -> OnlinePMW:
        pmw = OnlinePMW(exact(counts, max_contributions=1), params, InteractiveKey(SECRET))
        pmw.answer(Workload(queries.grid))  # anew, so that its digest is computed too
        return pmw

    stream()
    alone, _ = best_of(5, products)
    plain, _ = best_of(5, lambda: (whole @ counts, whole @ counts))
    taken, _ = best_of(5, stream)
    report.note("two passes over all queries, as PMW makes them, ms", f"{alone * 1e3:.1f}")
    report.note("the same as int64 products of numpy, ms", f"{plain * 1e3:.1f}")
    report.bar(
        "PMW, time over these two products alone", taken / min(alone, plain), 10, at_most=True, unit="x"
    )


def offline_bars(report: Report) -> None:
    """All queries given: offline against online at the same ε."""
    counts, queries = zipf(), random_queries(QUERIES)
    truth = queries.exact(counts)
    online, offline = [], []
    for i in range(3):
        stream = OnlinePMW(exact(counts, max_contributions=1), PmwParams(1), InteractiveKey(secret(i)))
        online.append(worst(stream.answer(queries).scaled, truth))
        offline.append(
            worst(
                OfflinePMW(exact(counts, max_contributions=1), OfflineParams(1), key(i))
                .answer(queries)
                .scaled,
                truth,
            )
        )
    report.note("online, pure epsilon 1, worst error, median of 3", f"{np.median(online):.4f}")
    report.bar(
        "offline, worst error (worst of 3) over online's best", max(offline) / min(online), 1, at_most=True
    )
    report.note("offline, median of 3", f"{np.median(offline):.4f}")
    relaxed = OfflinePMW(
        exact(counts, max_contributions=1), OfflineParams(1, delta="1e-6", rounds=400), KEY
    ).answer(queries)
    report.note("offline at delta 1e-6, 400 rounds", f"{worst(relaxed.scaled, truth):.4f}")
    _prediction(report, counts, queries)


def _prediction(report: Report, counts: I64, every: Workload) -> None:
    """Does what `answer --check` expects to be best turn out to be best?"""
    right = 0
    for size in (3, 30, 300, 3000):
        queries = Workload(every.grid[:size])
        truth = queries.exact(counts)
        expected = expected_errors(queries, epsilon=Fraction(1), total=RECORDS)
        stream = PmwParams(1, max_updates=min(400, size), queries=size, total=RECORDS)
        whole = OfflineParams(1, rounds=min(200, size), total=RECORDS)
        runs: dict[str, Callable[[bytes], I64]] = {
            "online": lambda k, p=stream, q=queries: (
                OnlinePMW(exact(counts, max_contributions=1), p, InteractiveKey(k)).answer(q).scaled
            ),
            "offline": lambda k, p=whole, q=queries: (
                OfflinePMW(exact(counts, max_contributions=1), p, ReleaseKey(k)).answer(q).scaled
            ),
            "laplace": lambda k, n=size, t=truth: LaplaceAnswers(1, n, GRID, InteractiveKey(k)).answer(
                t, b"prediction"
            ),
        }
        measured = {
            name: float(np.mean([worst(run(secret(i)), truth) for i in range(3)]))
            for name, run in runs.items()
        }
        best = min(measured, key=measured.__getitem__)
        right += measured[expected.best] <= 1.2 * measured[best]
        shown = ", ".join(f"{name} {error:.5f}" for name, error in measured.items())
        report.note(f"{size} queries: expected best {expected.best}; measured", shown)
    report.bar("sizes of 4 where the expected best is (within 20 %) the best", right, 4)


def prior_bars(report: Report) -> None:
    """How many updates does a released sketch save?"""
    counts, queries = zipf(), random_queries(QUERIES)
    truth = queries.exact(counts)
    names = [f"bucket-{i}" for i in range(CELLS)]
    plain = OnlinePMW(exact(counts, max_contributions=1), PmwParams(1), InteractiveKey(SECRET))
    error = worst(plain.answer(queries).scaled, truth)
    report.note("updates from the uniform histogram; worst error", f"{plain.updates}; {error:.4f}")
    for epsilon in ("0.01", "0.1", "1"):
        sketch = hg.release_histogram(
            names, counts, hg.ReleaseParams(epsilon=epsilon, max_contributions=1), release_key=KEY
        )
        estimates = sketch.estimate(names, interval=None).column("estimate").to_numpy()
        informed = OnlinePMW(
            exact(counts, max_contributions=1),
            PmwParams(1),
            InteractiveKey(SECRET),
            prior=prior_weights(estimates),
        )
        error = worst(informed.answer(queries).scaled, truth)
        report.note(
            f"… from a sketch released before at epsilon {epsilon}", f"{informed.updates}; {error:.4f}"
        )
        if epsilon == "1":
            report.bar(
                "updates saved by the prior of a sketch at epsilon 1, share",
                1 - informed.updates / plain.updates,
                0.5,
            )


# --- randomized response ------------------------------------------------------------------------------------


def response_bars(report: Report) -> None:
    """Speed and coverage."""
    bits = np.random.default_rng(0).random(10_000_000) < 0.3
    params = RandomizedResponseParams(1)
    taken, _ = best_of(5, lambda: randomize(bits, params, KEY.source("speed")))
    report.bar("randomized response, 10^7 bits", len(bits) / taken / 1e6, 100, unit="Mbit/s")
    rng = np.random.default_rng(1)
    release_key, weights = bits[:20_000], rng.random(20_000)
    truth = float(weights[release_key].sum())
    runs = 1000
    told = [
        answer(randomize(release_key, params, KEY.source("cover", i)), weights, params) for i in range(runs)
    ]
    covered = sum(one.low <= truth <= one.high for one in told) / runs
    report.bar("95 % Hoeffding intervals that hold", covered, 0.95)


# --- which one? ---------------------------------------------------------------------------------------------


class People:
    """10^6 people, each in a public bucket and with a secret bit; queries weigh buckets and count bits."""

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        shares = 1 / np.arange(1, CELLS + 1)
        self.sizes = rng.multinomial(RECORDS, shares / shares.sum()).astype(np.int64)
        self.counts = rng.binomial(self.sizes, rng.beta(1, 2, CELLS)).astype(np.int64)

    def laplace(self, queries: Workload, truth: I64) -> float:
        return worst(
            LaplaceAnswers(1, len(queries), GRID, InteractiveKey(SECRET)).answer(truth, b"basic"), truth
        )

    def laplace_delta(self, queries: Workload, truth: I64) -> float:
        return worst(
            LaplaceAnswers(1, len(queries), GRID, InteractiveKey(SECRET), delta="1e-6").answer(
                truth, b"delta"
            ),
            truth,
        )

    def histogram(self, queries: Workload, truth: I64) -> float:
        released = release_listed(
            [str(i) for i in range(CELLS)], exact(self.counts, max_contributions=1), LaplaceParams(1), KEY
        )
        return worst(queries.grid.astype(np.int64) @ released, truth)

    def sketch(self, queries: Workload, truth: I64) -> float:
        names = [str(i) for i in range(CELLS)]
        made = hg.release_histogram(
            names, self.counts, hg.ReleaseParams(epsilon=1, max_contributions=1), release_key=KEY
        )
        estimates = made.estimate(names, interval=None, present=1).column("estimate").to_numpy()
        return worst(queries.grid @ estimates, truth)

    def responses(self, queries: Workload, truth: I64) -> float:
        params = RandomizedResponseParams(1)
        bits = np.concatenate(
            [np.arange(size) < lit for size, lit in zip(self.sizes, self.counts, strict=True)]
        )
        flipped = randomize(bits, params, KEY.source("choosing"))
        lit = np.add.reduceat(flipped.astype(np.int64), np.cumsum(self.sizes) - self.sizes)
        lit[self.sizes == 0] = 0
        unbiased = (lit - params.flip * self.sizes) / (1 - 2 * params.flip)
        return worst(queries.grid @ unbiased, truth)

    def pmw(self, queries: Workload, truth: I64) -> float:
        updates = min(400, max(1, len(queries)))
        pmw = OnlinePMW(
            exact(self.counts, max_contributions=1),
            PmwParams(1, queries=max(len(queries), 2), max_updates=updates),
            InteractiveKey(SECRET),
        )
        return worst(pmw.answer(queries).scaled, truth)

    def pmw_offline(self, queries: Workload, truth: I64) -> float:
        params = OfflineParams(1, rounds=min(200, len(queries)))
        return worst(
            OfflinePMW(exact(self.counts, max_contributions=1), params, KEY).answer(queries).scaled, truth
        )

    def svt(self, queries: Workload, truth: I64) -> float:
        """The values of the ten largest answers, found by sparse vector; 20 yes-answers allowed."""
        threshold = int(np.sort(truth)[max(0, len(truth) - 10)])
        stream = NumericSparse(
            epsilon=1,
            threshold=threshold,
            cutoff=20,
            sensitivity=GRID,
            monotone=True,
            source=KEY.source("svt"),
        )
        told = stream.ask_many(truth)
        above = told.outcome == ABOVE
        return worst(told.value[above], truth[above]) if above.any() else 0.0


def choosing(report: Report) -> None:
    """One data set, all mechanisms, error against the number of queries."""
    people = People()
    sizes = [1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 20_000]
    lines: dict[str, Callable[[Workload, I64], float]] = {
        "Laplace, basic composition": people.laplace,
        "Laplace, δ = 10⁻⁶": people.laplace_delta,
        "multiplicative weights": people.pmw,
        "multiplicative weights, offline": people.pmw_offline,
        "randomized response (local)": people.responses,
        "sketch": people.sketch,
        "sparse vector (the ten largest alone)": people.svt,
        "Laplace histogram of 1,024 cells": people.histogram,
    }
    every = random_queries(sizes[-1], seed=3)
    figures: dict[str, list[float]] = {name: [] for name in lines}
    for size in sizes:
        queries = Workload(every.grid[:size])
        truth = queries.exact(people.counts)
        for name, measure in lines.items():
            figures[name].append(measure(queries, truth))
    print(f"{'worst error of k queries':<48}" + "".join(f"{size:>9,}" for size in sizes))
    for name, row in figures.items():
        print(f"{name:<48}" + "".join(f"{error:>9.5f}" for error in row))
    laplace, responses = figures["Laplace, basic composition"], figures["randomized response (local)"]
    crossing = next((k for k, a, b in zip(sizes, laplace, responses, strict=True) if a > b), None)
    report.bar(
        "queries from which randomized response beats Laplace",
        float(crossing or math.inf),
        QUERIES,
        at_most=True,
    )
    _grouped(report)
    _draw(sizes, figures)


def _grouped(report: Report) -> None:
    """More cells than records, and queries that differ in ten ways only: where PMW beats the Laplace histogram."""
    cells, records, groups, count = 1 << 17, 10_000, 10, 500
    rng = np.random.default_rng(0)
    shares = 1 / np.arange(1, cells + 1) ** 1.2
    counts = rng.multinomial(records, rng.permutation(shares / shares.sum())).astype(np.int64)
    weights = np.rint(rng.random((count, groups)) * GRID).astype(np.uint16)
    queries = Workload(weights[:, rng.integers(0, groups, cells)])
    truth, names = queries.exact(counts), [str(i) for i in range(cells)]
    params = PmwParams(1, queries=count, max_updates=12, replay=10)
    told: dict[str, Callable[[int], I64]] = {
        "PMW, 12 updates": lambda i: (
            OnlinePMW(exact(counts, max_contributions=1), params, InteractiveKey(secret(i)))
            .answer(queries)
            .scaled
        ),
        "Laplace histogram": lambda i: queries.exact(
            release_listed(names, exact(counts, max_contributions=1), LaplaceParams(1), key(i))
        ),
        "Laplace on each": lambda i: LaplaceAnswers(1, count, GRID, InteractiveKey(secret(i))).answer(
            truth, b"grouped"
        ),
    }
    for name, ask in told.items():
        errors = [float(np.abs(ask(i) - truth).max()) / GRID / records for i in range(5)]
        report.note(f"131,072 cells, 10^4 records, 10 groups: {name}", f"{np.median(errors):.4f}")


def _draw(sizes: list[int], figures: dict[str, list[float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.6))
    for (name, row), marker in zip(figures.items(), "osD*^vPX", strict=True):
        shown = [(k, error) for k, error in zip(sizes, row, strict=True) if error > 0]
        axes.loglog(*zip(*shown, strict=True), marker=marker, markersize=4, label=name)
    axes.set_xlabel("number of linear queries")
    axes.set_ylabel("worst error, share of 10⁶ people")
    axes.set_title("One data set, ε = 1: error against the number of queries")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="upper left")
    figure.tight_layout()
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE, dpi=90, metadata={"Software": ""})
    print(f"figure in {FIGURE} ({FIGURE.stat().st_size / 1024:.0f} KiB)")


PARTS: dict[str, tuple[str, Callable[[Report], None]]] = {
    "pmw": ("Private multiplicative weights", pmw_bars),
    "offline": ("Offline multiplicative weights", offline_bars),
    "prior": ("A sketch as prior", prior_bars),
    "max": ("Report noisy max", max_bars),
    "top": ("The c largest", top_bars),
    "responses": ("Randomized response", response_bars),
    "choosing": ("Which one should I use?", choosing),
}


def main(names: list[str]) -> int:
    """Run the named parts, or all; 1 if a bar was missed."""
    missed = 0
    for name in names or PARTS:
        title, part = PARTS[name]
        report = Report(title)
        part(report)
        missed += report.exit_code()
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
