"""What a release would be worth, before it runs: size, error and intervals, from public numbers alone.

Nothing is guessed by a formula that the mechanism does not know: a made-up histogram with as many records to a key as
expected goes through the very release that is planned, and the estimates of its own decoder are compared with its
counts. It holds no private data, so its noise needs no secret, and the same question always gets the same answer.

A large population is simulated at 1/2^j of its keys. Space for each key, collisions, noise and the ratio of domain to
allowed false keys are the same at every scale (all follow the number of keys); only the sizes are relatively noisier in
a smaller population, so their share is raised by 2^j on top of ε, and the others keep theirs.

| symbol | meaning |
|---|---|
| s | exponent of the Zipf law that has `keys` keys, `records` records and a smallest count of about 1 |
| kept | E[min(A, C)]/E[A], A the records of a user: discrete Pareto of tail `ACTIVITY`, mean records/users |
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.encodings import HOMES as ENCODINGS
from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.noises import HOMES as NOISES
from hushgram.release_in_memory import simulate
from hushgram.sketch.reader import Sketch
from hushgram.sparse_histogram.params import ReleaseParams

__all__ = [
    "COUNTS",
    "AtCount",
    "OverKeys",
    "Population",
    "Prediction",
    "predict",
    "recommend",
    "settings",
    "solve_epsilon",
]

COUNTS = (1, 10, 100, 1_000, 10_000)
SETS = (100, 1_000, 10_000)
ACTIVITY = 1.2
_SIMULATED = 25_000
_PROBES = 60  # keys of each count that is asked about
_TRIALS = 40  # random sets of each size
_TYPICAL = 64  # C where it will be chosen from the data
_NOT_SECRET = ReleaseKey(b"a prediction holds no secrets!!!")
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class AtCount:
    """What a lookup of a key with this true count is worth."""

    count: int
    error: float
    width: float
    #: error if this is the count before users are held to their bound
    uncut_error: float


@dataclass(frozen=True)
class OverKeys:
    """What a total over so many random keys is worth, relative to the total."""

    keys: int
    error: float
    width: float


@dataclass(frozen=True)
class Prediction:
    """What to expect of one setting."""

    params: ReleaseParams
    size: int
    kept: float
    at: tuple[AtCount, ...]
    totals: tuple[OverKeys, ...]
    #: the smallest count whose interval is at most as wide as the count itself, and keys likely above it
    resolved: int | None
    resolved_keys: int
    threshold: int
    false_keys: float
    missed_keys: float

    @property
    def score(self) -> float:
        """Mean relative error at counts 10 to 10,000, cutting included, each at most 1: what is minimised."""
        return float(np.mean([min(a.uncut_error / a.count, 1.0) for a in self.at if a.count >= 10]))


@dataclass(frozen=True)
class Population:
    """A made-up histogram like the one that is planned for, at 1/scale of its keys."""

    keys: int
    records: int
    users: int | None
    counts: Ints
    scale: int = 1

    @classmethod
    def zipf(cls, keys: int, records: int, users: int | None = None) -> Population:
        """Zipf counts, each at least 1, of `keys` keys and about `records` records."""
        if not 1 <= keys <= records:
            raise ParameterError(f"plan: keys must be from 1 to the {records:,} records, got {keys:,}")
        scale = 1
        while keys // scale > _SIMULATED:
            scale *= 2
        ranks = np.arange(1, keys // scale + 1, dtype=np.float64) * scale
        exponent = _exponent(keys, records)
        shares = ranks**-exponent
        counts = np.maximum(1, np.round(records / scale * shares / shares.sum())).astype(np.int64)
        return cls(keys, records, users, counts, scale)

    @classmethod
    def like(cls, sketch: Sketch, users: int | None = None) -> Population:
        """The population of an earlier release, from the distribution of counts that it shows."""
        counts, number = sketch.distribution()
        upto = np.cumsum(number)
        keys = max(int(upto[-1]), 1) if len(upto) else 1
        scale = 1
        while keys // scale > _SIMULATED:
            scale *= 2
        ranks = (np.arange(keys // scale) + 0.5) * scale  # from the rarest on
        held = (
            counts[np.minimum(np.searchsorted(upto, ranks), len(counts) - 1)] if len(counts) else np.ones(1)
        )
        whole = np.maximum(1, np.round(held)).astype(np.int64)
        return cls(keys, int(whole.sum()) * scale, users, whole, scale)

    def kept(self, max_contributions: int) -> float:
        """The share of records that remains when each user is held to `max_contributions`."""
        if self.users is None:
            return 1.0
        mean = max(self.records / self.users, 1.0)
        steps = np.unique(np.geomspace(1, 1e7, 4000).astype(np.int64)).astype(np.float64)
        low, high = 1e-3, 1e6
        for _ in range(60):  # the scale at which E[A] = mean
            middle = (low * high) ** 0.5
            low, high = (middle, high) if _mean_activity(steps, middle, np.inf) < mean else (low, middle)
        return _mean_activity(steps, low, float(max_contributions)) / _mean_activity(steps, low, np.inf)


def predict(
    params: ReleaseParams,
    population: Population,
    counts: Sequence[int] = COUNTS,
    path: str | Path | None = None,
) -> Prediction:
    """Size, error and intervals of a release with `params` of such a population.

    The made-up sketch goes to `path`, or to a temporary directory.
    """
    if params.choose_contributions:
        params = params.without_choice(_TYPICAL)
    kept = population.kept(params.max_contributions)
    held = np.maximum(np.round(population.counts * kept), 0).astype(np.int64)
    held = held[held > 0]
    probes = np.repeat(np.array(counts, np.int64), _PROBES)
    together = np.concatenate([held, probes])
    names = np.arange(len(together))
    sketch = simulate(
        names, together, _rescaled(params, population, len(together)), path, release_key=_NOT_SECRET
    )
    found = sketch.estimate(names)
    estimate, low, high = (found.column(name).to_numpy() for name in ("estimate", "low", "high"))
    rows = np.arange(len(held), len(together)).reshape(len(counts), _PROBES)
    at = tuple(
        _at_count(count, estimate[row], (high - low)[row], kept)
        for count, row in zip(counts, rows, strict=True)
    )
    resolved = _resolved(together, (high - low), at)
    plan = sketch.plan
    listed = found.column("source").to_numpy(zero_copy_only=False) == "threshold"
    heavy = together >= plan.threshold
    return Prediction(
        params=params,
        size=sketch.size * population.scale,
        kept=kept,
        at=at,
        totals=tuple(_totals(sketch, names[: len(held)], held)),
        resolved=resolved,
        resolved_keys=0 if resolved is None else int((held >= resolved).sum()) * population.scale,
        threshold=plan.threshold,
        false_keys=max(sketch.manifest.heavy_rows - int(listed.sum()), 0) * population.scale,
        missed_keys=int((heavy & ~listed).sum()) * population.scale,
    )


def settings(
    base: ReleaseParams, contributions: Sequence[int], epsilons: Sequence[Fraction]
) -> list[ReleaseParams]:
    """`base` with every encoding, every noise that its δ allows, and these C and ε; what cannot be is left out."""
    out = []
    words = dict.fromkeys(id.rpartition("-")[0] for id in ENCODINGS)
    for epsilon in epsilons:
        for most in contributions:
            for encoding in words:
                for noise in NOISES if base.delta else ("laplace",):
                    changes = {"encoding": encoding, "noise": noise, "max_contributions": most}
                    with contextlib.suppress(ParameterError):
                        out.append(vary(base, epsilon=epsilon, **changes))
    return out


def vary(params: ReleaseParams, **changes: Any) -> ReleaseParams:
    """The same parameters but for some; the split and what belongs to an encoding are chosen anew."""
    text = _text(params)
    own = (
        {}
        if changes.get("encoding", params.encoding) != params.encoding
        else {"bits_per_key": text["bits_per_key"]}
    )
    kept = (
        "epsilon",
        "delta",
        "max_contributions",
        "max_per_key",
        "expected_records",
        "expected_keys",
        "encoding",
        "noise",
    )
    return ReleaseParams(**{**{name: text[name] for name in kept if name in text}, **own, **changes})


def recommend(found: Sequence[Prediction]) -> tuple[Prediction, str]:
    """The setting of the smallest score, and why in a sentence."""
    best, *others = sorted(found, key=lambda one: one.score)
    params = best.params
    why = (
        f"{params.encoding} with {params.noise} noise and max_contributions {params.max_contributions}:"
        f" a mean relative error of {best.score:.0%} at counts of 10 to 10,000, what the bound cuts included"
    )
    rival = next((one for one in others if one.params.epsilon == params.epsilon), None)
    if rival is not None:
        other = rival.params
        why += (
            f"; next is {other.encoding} with {other.noise} noise and"
            f" max_contributions {other.max_contributions} at {rival.score:.0%}"
        )
    return best, why + "."


def solve_epsilon(
    params: ReleaseParams, population: Population, error: float, count: int
) -> tuple[Fraction, Prediction]:
    """The smallest ε (two digits) with at most this error at this count, by bisection."""
    low, high = Fraction(1, 100), Fraction(50)
    best = predict(_with(params, high), population, (count,))
    if best.at[0].error > error:
        raise ParameterError(
            f"plan: error {error:g} at count {count:,} is not reached below epsilon 50; ask for a larger error"
        )
    for _ in range(9):
        middle = Fraction(round(float(low * high) ** 0.5 * 1000), 1000)
        tried = predict(_with(params, middle), population, (count,))
        if tried.at[0].error <= error:
            high, best = middle, tried
        else:
            low = middle
    return high, best


def _text(params: ReleaseParams) -> dict[str, Any]:
    """All parameters by name, also those that a manifest leaves out."""
    return {**params.as_text(), "encoding": params.encoding, "noise": params.noise}


def _with(params: ReleaseParams, epsilon: Fraction) -> ReleaseParams:
    text = _text(params)
    parts = {name: Fraction(share) / params.epsilon for name, share in text.pop("split").items()}
    return ReleaseParams(**{**text, "epsilon": epsilon, "split": parts})


def _rescaled(params: ReleaseParams, population: Population, keys: int) -> ReleaseParams:
    """The same noise and space for each key, for the smaller population."""
    if population.scale == 1:
        return params
    text = _text(params)
    parts = {name: Fraction(loss) for name, loss in text.pop("split").items()}
    parts["size"] *= population.scale
    epsilon = sum(parts.values(), Fraction(0))
    text |= {"epsilon": epsilon, "split": {name: loss / epsilon for name, loss in parts.items()}}
    if params.expected_keys is not None:
        text |= {"expected_keys": keys, "expected_records": max(population.records // population.scale, 1)}
    return ReleaseParams(**text)


def _exponent(keys: int, records: int) -> float:
    """s with records · keys^−s / Σ i^−s = 1: the rarest key has about one record."""
    sample = np.unique(np.geomspace(1, keys, 4000).astype(np.int64)).astype(np.float64)
    low, high = 0.0, 8.0
    for _ in range(50):
        middle = (low + high) / 2.0
        total = float(np.trapezoid(sample**-middle, sample)) + 0.5 * (1 + keys**-middle)
        low, high = (middle, high) if records * keys**-middle / total > 1.0 else (low, middle)
    return (low + high) / 2.0


def _mean_activity(steps: NDArray[np.float64], scale: float, most: float) -> float:
    """E[min(A, most)] = Σ P[A ≥ a] for a ≤ most, A = ⌈scale·Pareto⌉ at least 1."""
    tail = np.minimum(1.0, (np.maximum(steps, 1.0) / scale) ** -ACTIVITY)
    tail[0] = 1.0
    upto = np.minimum(np.append(steps[1:], 2 * steps[-1]) - 1, most)
    return float((tail * np.maximum(upto - steps + 1, 0.0) * (steps <= most)).sum())


def _at_count(count: int, estimate: NDArray[np.float64], width: NDArray[np.float64], kept: float) -> AtCount:
    square = float(np.mean((estimate - count) ** 2))
    cut = (1.0 - kept) * count
    return AtCount(count, square**0.5, float(np.median(width)), (square + cut**2) ** 0.5)


def _resolved(counts: Ints, width: NDArray[np.float64], at: Sequence[AtCount]) -> int | None:
    """The smallest count from which on the median interval is at most as wide as the count."""
    edges = np.unique(np.geomspace(1, max(int(counts.max()), 2), 40).astype(np.int64))
    best = None
    for low, high in reversed(list(itertools.pairwise(edges))):
        rows = (counts >= low) & (counts < high)
        if rows.any():
            if float(np.median(width[rows])) > low:
                break
            best = int(low)
    return best


def _totals(sketch: Any, names: Ints, counts: Ints) -> Any:
    for size in SETS:
        if size > len(names):
            return
        errors, widths = [], []
        for trial in range(_TRIALS):
            chosen = (np.arange(size) * 7919 + trial * 104_729) % len(names)
            found = sketch.total(names[chosen])
            truth = max(int(counts[np.unique(chosen)].sum()), 1)
            errors.append((found.estimate - truth) / truth)
            widths.append((found.high - found.low) / truth)
        yield OverKeys(size, float(np.sqrt(np.mean(np.square(errors)))), float(np.median(widths)))
