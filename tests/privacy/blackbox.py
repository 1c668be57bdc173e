"""The black-box audit: the release itself, run very often on neighbouring data, and a lower bound of its ε.

    python -m tests.privacy.blackbox [RUNS]      RUNS a side and case (12,500 by default)

For an event E of outputs, ε ≥ ln((P[E | D] − δ)/P[E | D']). Each probability is bounded by Clopper and Pearson
(1934) at a confidence of 99.9 %, so a bound above the claim is a breach, and one far below the claim would say
that the audit has no teeth: events are those of the mechanisms' worst outputs, on the worst pair of data sets.
Everything is the code that ships but for the writing of files: the parts of a sketch are looked at before they
are written.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

import hushgram as hg
from hushgram import release_in_memory
from hushgram.exact.keys import fingerprints

__all__ = ["CASES", "Case", "lower_bound"]

CONFIDENCE = 0.999
TEETH = 0.6
KEY = "/the-key"
Output = tuple[Any, Any, list[Any]]


@dataclass(frozen=True)
class Case:
    """Two neighbouring data sets (users, keys), parameters, and an event that tells them apart."""

    name: str
    params: dict[str, Any]
    without: tuple[list[str], list[str]]
    user: tuple[list[str], list[str]]
    event: Callable[[Output], bool]

    @property
    def epsilon(self) -> float:
        return float(hg.ReleaseParams(**self.params).epsilon)

    @property
    def delta(self) -> float:
        return float(hg.ReleaseParams(**self.params).delta)


def value_of(output: Output, key: str = KEY) -> int | None:
    """The noisy count of a key in the list."""
    plan, heavy, _ = output
    place = plan.kind.place(fingerprints([key]), plan.domain_bits)[0]
    found = np.flatnonzero(heavy.fingerprints == place)
    return int(heavy.values[found[0]]) if len(found) else None


def seen_of(output: Output, seeds: Any, key: str = KEY) -> Any:
    """What the encoding shows of a key."""
    plan, _, blocks = output
    place = plan.kind.place(fingerprints([key]), plan.domain_bits)
    contents = [block.content for block in blocks]  # in order
    return plan.space.look_up(place, seeds, lambda block: np.frombuffer(contents[block], np.uint8))[0]


def listed_and_first_bit(output: Output) -> bool:
    """Above the threshold, and the bit of the first level set: both are likelier with the user."""
    return value_of(output) is not None and bool(seen_of(output, output[0].seeds)[0])


def listed_and_full_bucket(output: Output) -> bool:
    """Above the threshold, and more than nothing in its bucket."""
    return value_of(output) is not None and int(seen_of(output, output[0].seeds)[1]) >= 1


PURE = {
    "max_contributions": 1,
    "domain_bits": 8,
    "false_keys": 100,
    "expected_keys": 16,
    "expected_records": 16,
}
CASES = (
    Case("δ = 0, ALP", {"epsilon": "1", **PURE}, ([], []), (["u"], [KEY]), listed_and_first_bit),
    Case(
        "δ = 0, ALP, ε = 2",
        {"epsilon": "2", **PURE},
        (["a"], ["/other"]),
        (["u"], [KEY]),
        listed_and_first_bit,
    ),
    Case(
        "δ = 0, buckets",
        {"epsilon": "1", "encoding": "buckets", **PURE},
        ([], []),
        (["u"], [KEY]),
        listed_and_full_bucket,
    ),
    Case(
        "δ > 0, ALP, a key that another user has",
        {
            "epsilon": "1",
            "delta": "0.01",
            "max_contributions": 1,
            "expected_keys": 16,
            "expected_records": 16,
        },
        ([f"u{i}" for i in range(9)], [KEY] * 9),
        (["v"], [KEY]),
        listed_and_first_bit,
    ),
)


def run(case: Case, added: bool, runs: int) -> int:
    """How often the event happens in so many releases."""
    users, keys = list(case.without[0]), list(case.without[1])
    if added:
        users, keys = users + case.user[0], keys + case.user[1]
    params = hg.ReleaseParams(**case.params)
    release_in_memory._write = _keep  # type: ignore[assignment]
    return sum(case.event(hg.release(users, keys, params)) for _ in range(runs))  # type: ignore[arg-type]


class _Seeded:
    """A plan with the seeds of its hash functions, which a manifest would hold."""

    def __init__(self, plan: Any, seeds: Any) -> None:
        self._plan, self.seeds = plan, seeds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)


def _keep(_path: Any, plan: Any, heavy: Any, blocks: Any, release_key: Any, _name: str) -> Output:
    return _Seeded(plan, release_in_memory.seeds_of(plan, release_key)), heavy, list(blocks)


def lower_bound(hits: int, others: int, runs: int, delta: float) -> float:
    """A lower bound of ε at `CONFIDENCE`."""
    from scipy.stats import beta

    alpha = (1 - CONFIDENCE) / 2
    low = beta.ppf(alpha, hits, runs - hits + 1) if hits else 0.0
    high = beta.ppf(1 - alpha, others + 1, runs - others) if others < runs else 1.0
    return math.log((low - delta) / high) if low > delta else 0.0


def main(runs: int) -> int:
    bad = 0
    with ProcessPoolExecutor(2) as pool:
        for case in CASES:
            with_user, without = pool.map(run, (case, case), (True, False), (runs, runs))
            bound = max(
                lower_bound(with_user, without, runs, case.delta),
                lower_bound(runs - without, runs - with_user, runs, case.delta),
            )
            verdict = (
                "BREACH" if bound > case.epsilon else "ok" if bound >= TEETH * case.epsilon else "TOOTHLESS"
            )
            bad += verdict != "ok"
            print(
                f"{verdict:<9} {case.name}: ε ≥ {bound:.3f} of {case.epsilon:g} claimed "
                f"({with_user:,} and {without:,} of {runs:,})",
                flush=True,
            )
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 12_500))
