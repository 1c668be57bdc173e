"""The black-box audit: the code that ships, run very often on neighbouring data, and a lower bound of its ε.

    python -m tests.privacy.blackbox [--runs N] [CASE ...]      N per side; cases by words of their names

For an event E of outputs, ε ≥ ln((P[E | D] − δ)/P[E | D']). A fifth of the runs choose the event: outcomes in falling
order of their likelihood ratio, up to the one with which the bound is best. The other runs bound its two
probabilities by Clopper and Pearson (1934) at a confidence of 99.9 % together, so that a bound above the claim is a
breach, and one far below it says that the audit has no teeth there. Cases are the worst pairs known, and outcomes
what tells them apart best. Releases are those of jobs, from files on (`blackbox_jobs`). Results go to docs/audit.md.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Case", "Verdict", "audited", "lower_bound"]

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"
TITLE = "## The same as a black box"
CONFIDENCE = 0.999
TEETH = 0.6
TRAINING = 0.2
RUNS = 50_000  # per side
WHOLE_RUNS = 10_000  # of jobs whose stages all run for every release


@dataclass(frozen=True)
class Case:
    """A pair of neighbouring data sets: ``draw(side, n)`` gives the outcomes of n runs on one of them.

    With ``of_delta`` the claim is that of δ alone: outcomes that one of the two can never have. ``runs`` is how often
    an audit runs each side.
    """

    name: str
    epsilon: float
    draw: Callable[[bool, int], Iterable[Hashable]]
    delta: float = 0.0
    of_delta: bool = False
    runs: int = RUNS


@dataclass(frozen=True)
class Verdict:
    """What was shown, of what is claimed."""

    bound: float
    claim: float
    hits: tuple[int, int]
    tested: int

    @property
    def word(self) -> str:
        """BREACH, ok, or weak: below `TEETH` of the claim."""
        return "BREACH" if self.bound > self.claim else "ok" if self.bound >= TEETH * self.claim else "weak"


def lower_bound(hits: float, others: float, runs: float, delta: float) -> float:
    """A lower bound of ε at `CONFIDENCE`, for an event with so many hits on the two sides."""
    low, high = _at_least(hits, runs), _at_most(others, runs)
    return max(math.log((low - delta) / high), 0.0) if low > delta else 0.0


def _at_least(hits: float, runs: float) -> float:
    from scipy.stats import beta

    return float(beta.ppf((1 - CONFIDENCE) / 2, hits, runs - hits + 1)) if hits else 0.0


def _at_most(hits: float, runs: float) -> float:
    from scipy.stats import beta

    return float(beta.ppf(1 - (1 - CONFIDENCE) / 2, hits + 1, runs - hits)) if hits < runs else 1.0


def audited(case: Case, sides: Mapping[bool, list[Hashable]]) -> Verdict:
    """The bound from the outcomes of both sides."""
    runs = min(len(side) for side in sides.values())
    cut = int(runs * TRAINING)
    seen = {side: Counter(outcomes[:cut]) for side, outcomes in sides.items()}
    tested = {side: Counter(outcomes[cut:runs]) for side, outcomes in sides.items()}
    rest = runs - cut
    if case.of_delta:
        event = set(seen[True]) - set(seen[False])
        found = [sum(tested[side][outcome] for outcome in event) for side in (True, False)]
        least = _at_least(found[0], rest) - math.exp(case.epsilon) * (
            _at_most(found[1], rest) if found[1] else 0.0
        )
        return Verdict(max(least, 0.0), case.delta, (found[0], found[1]), rest)
    _, event, first = max(
        ((*_best(seen[first], seen[not first], cut, rest, case.delta), first) for first in (True, False)),
        key=lambda found: found[0],
    )
    hits = sum(tested[first][outcome] for outcome in event)
    others = sum(tested[not first][outcome] for outcome in event)
    return Verdict(lower_bound(hits, others, rest, case.delta), case.epsilon, (hits, others), rest)


def _best(
    one: Counter[Hashable], other: Counter[Hashable], runs: int, rest: int, delta: float
) -> tuple[float, set[Hashable]]:
    """The event that promises the best bound on the runs to come."""
    order = sorted({*one, *other}, key=lambda outcome: -(one[outcome] + 0.5) / (other[outcome] + 0.5))
    best, event, hits, others = -1.0, 0, 0, 0
    for place, outcome in enumerate(order, 1):
        hits, others = hits + one[outcome], others + other[outcome]
        bound = lower_bound(hits * rest / runs, others * rest / runs, rest, delta)
        if bound > best:
            best, event = bound, place
    return best, set(order[:event])


def _drawn(name: str, side: bool, runs: int) -> Counter[Hashable] | list[Hashable]:
    return list(cases()[name].draw(side, runs))


def cases() -> dict[str, Case]:
    """All cases by name."""
    from tests.privacy import blackbox_files, blackbox_mechanisms, blackbox_releases

    homes = (blackbox_releases, blackbox_files, blackbox_mechanisms)
    return {case.name: case for home in homes for case in home.CASES}


def write(rows: Mapping[str, str], page: Path = PAGE) -> None:
    """Put rows of cases in the page, in the order of the cases; those of others stay."""
    text = page.read_text() if page.exists() else ""
    before, _, held = text.partition(TITLE)
    kept = {line.split(" | ")[0][2:]: line for line in held.splitlines() if line.startswith("| ")}
    kept |= rows
    lines = [
        TITLE,
        "",
        "Written by `python -m tests.privacy.blackbox`, which `make audit` runs: what ships is run very often on both",
        "of two neighbouring data sets, and an event that a fifth of the runs chose is counted in the others. Bounds",
        "hold at a confidence of 99.9 % (Clopper and Pearson). A bound above the claim would be a breach; below 60 %",
        "of the claim the audit has no teeth, and the row says so: the exact figures above are then what speaks.",
        "",
        "Releases are those of jobs: a config, two files, and the stages that `hushgram release`, `metrics` or `top`",
        "runs on them, each time under a fresh key. Where the key has no part in the exact histogram, the stages",
        "before the mechanisms run for every fiftieth release; all other pairs run every stage for every release.",
        f"`make audit` runs these {WHOLE_RUNS:,} times per side, and the rest {RUNS:,} times. A row says how often its",
        "pair was run when the row was written.",
        "",
        "| pair of data sets | runs per side | claimed | at least | share | |",
        "|---|---|---|---|---|---|",
        *(kept[name] for name in cases() if name in kept),
    ]
    page.write_text(before.rstrip() + "\n\n" + "\n".join(lines) + "\n")


def row_of(case: Case, verdict: Verdict, runs: int) -> str:
    """The row of a case in the page."""
    claim = f"δ = {case.delta:g}" if case.of_delta else f"ε = {case.epsilon:g}"
    claim += f", δ = {case.delta:g}" if case.delta and not case.of_delta else ""
    remark = {"ok": "", "weak": "no teeth", "BREACH": "**above its claim**"}[verdict.word]
    share = verdict.bound / verdict.claim
    return f"| {case.name} | {runs:,} | {claim} | {verdict.bound:.4g} | {share:.0%} | {remark} |"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.privacy.blackbox")
    parser.add_argument("--runs", type=int, help="per side; left out, as many as the case states")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--dry", action="store_true", help="do not write docs/audit.md")
    parser.add_argument("words", nargs="*")
    given = parser.parse_args(arguments)
    chosen = [
        case for name, case in cases().items() if not given.words or any(w in name for w in given.words)
    ]
    bad = 0
    with ProcessPoolExecutor(given.workers) as pool:
        for case in chosen:
            begun = time.monotonic()
            chunk = -(-(given.runs or case.runs) // 10)
            asked = {
                side: [pool.submit(_drawn, case.name, side, chunk) for _ in range(10)]
                for side in (True, False)
            }
            sides = {side: [o for part in parts for o in part.result()] for side, parts in asked.items()}
            verdict = audited(case, sides)
            bad += verdict.word == "BREACH"
            row = row_of(case, verdict, min(map(len, sides.values())))
            print(f"{row} {verdict.hits} of {verdict.tested:,}, {time.monotonic() - begun:.0f} s", flush=True)
            if not given.dry:
                write({case.name: row})
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
