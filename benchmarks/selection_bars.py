"""Selection: permute-and-flip, the exponential mechanism and noisy max, one choice and many.

python -m benchmarks.answers max      one choice
python -m benchmarks.answers top      the c largest, also at δ > 0
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.bars import Report, best_of
from benchmarks.selection_laws import exponential, noisy_max, permute_and_flip
from hushgram.mechanisms.selection import MECHANISMS, SelectionParams, choose, top
from hushgram.noise.entropy import ReleaseKey
from hushgram.sensitivity import exact

__all__ = ["max_bars", "top_bars"]

KEY = ReleaseKey(bytes(range(32)))
I64 = NDArray[np.int64]


def max_bars(report: Report) -> None:
    """One choice: expected errors of the three mechanisms at one ε on random small cases, and speed."""
    rng = np.random.default_rng(0)
    exponential_ratios, laplace_ratios = [], []
    for _ in range(300):
        scores = rng.integers(0, 30, rng.integers(2, 9)).tolist()
        rate = float(rng.uniform(0.02, 1))
        gaps = [max(scores) - s for s in scores]
        flip, expo, laplace = (
            sum(p * g for p, g in zip(law(scores, rate), gaps, strict=True))
            for law in (permute_and_flip, exponential, noisy_max)
        )
        if expo > 1e-12:
            exponential_ratios.append(flip / expo)
            laplace_ratios.append(flip / laplace)
    largest = max(exponential_ratios)
    report.bar("permute-and-flip, expected error over exponential, largest", largest, 1, at_most=True)
    report.note("… and on average", f"{np.mean(exponential_ratios):.3f}")
    report.note(
        "permute-and-flip (exponential noise) over Laplace noisy max, largest; on average",
        f"{max(laplace_ratios):.3f}; {np.mean(laplace_ratios):.3f}",
    )
    many = rng.integers(0, 10**6, 1_000_000)
    for mechanism in MECHANISMS:
        params = SelectionParams(1, mechanism=mechanism)
        taken, _ = best_of(3, lambda p=params: choose(many, p, KEY.source("speed")) + 1)  # type: ignore[misc]
        report.note(f"one choice among 10^6 candidates, {mechanism}, ms", f"{taken * 1e3:.0f}")


def top_bars(report: Report) -> None:
    """The 50 largest of 10,000: pure against δ = 10⁻⁶, on Zipf counts and where counts lie close together."""
    zipf_counts = np.rint(2e4 / np.arange(1, 10_001) ** 0.8).astype(np.int64)
    for name, epsilon, counts in (
        ("Zipf", "1", zipf_counts),
        ("even", "1/10", np.arange(10_000, 0, -1)),
    ):
        pure = _recall(report, name, counts, epsilon, "0", "permute_and_flip")
        _recall(report, name, counts, epsilon, "0", "noisy_max")
        _recall(report, name, counts, epsilon, "1e-6", "permute_and_flip")
        relaxed = _recall(report, name, counts, epsilon, "1e-6", "exponential")
        report.bar(f"{name}: recall at delta 1e-6 over pure's", relaxed[1] / pure[1], 1, unit="x")
    # Many counts within the noise of each other: recall is then proportional to ε of a choice.
    predicted, measured = relaxed[0] / pure[0], relaxed[1] / pure[1]
    report.note(
        "even: recall over pure's, as the bound predicts; measured", f"{predicted:.2f}; {measured:.2f}"
    )
    report.bar("distance from the prediction, share", abs(measured / predicted - 1), 0.3, at_most=True)


def _recall(
    report: Report, name: str, counts: I64, epsilon: str, delta: str, mechanism: str, count: int = 50
) -> tuple[float, float]:
    """ε of a choice, and the share of the true largest among those chosen."""
    params = SelectionParams(epsilon, delta=delta, count=count, monotone=True, mechanism=mechanism)
    found, missed = [], []
    for run in range(20):
        chosen = top(
            exact(counts, max_contributions=1), params, KEY.source(f"{name} {delta} {mechanism}", run)
        )
        found.append(np.isin(chosen, np.arange(count)).mean())
        missed.append((counts[:count] - np.sort(counts[chosen])[::-1]).mean())
    each = float(params.round_epsilon)
    shown = f"{each:.4f}; {np.mean(found):.3f}; {np.mean(missed):,.1f}"
    report.note(f"{name}, {mechanism}, delta {delta}: epsilon of a choice; recall; counts missed", shown)
    return each, float(np.mean(found))
