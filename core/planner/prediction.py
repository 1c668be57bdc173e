"""The worth of one setting, measured on a made-up release.

A large population is simulated at 1/2^j of its keys. Space for each key, collisions, noise and the ratio of domain to
allowed false keys are the same at every scale (all follow the number of keys); only the sizes are relatively noisier in
a smaller population, so their share is raised by 2^j on top of ε, and the others keep theirs.

The error at a count is that of many *planted* lookups: what the sketch shows at the places of absent keys, and then
what it would show had those keys this count (`Evidence.planted`), listed and not. So the population stays as it is
however many lookups are tried.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.encodings import HOMES as ENCODINGS
from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.laws import NoiseLaw
from hushgram.noise.noises import HOMES as NOISES
from hushgram.planner.population import Population
from hushgram.release_in_memory import simulate
from hushgram.sketch.answers import Lookups
from hushgram.sketch.reader import Sketch
from hushgram.sparse_histogram.params import ReleaseParams

__all__ = [
    "COUNTS", "SETS", "AtCount", "Effort", "OverKeys", "Prediction", "average", "bound_of", "predict",
    "recommend", "settings", "solve_epsilon", "text_of", "vary",
]  # fmt: skip


COUNTS = (1, 10, 100, 1_000, 10_000)
SETS = (100, 1_000, 10_000)
TWO_OF_THREE = 0.68
_LARGE = 10_000  # keys of a set
_TYPICAL = 64  # C where it will be chosen from the data
_MOST_EPSILON = 100  # of `ReleaseParams`
_NOT_SECRET = ReleaseKey(b"a prediction holds no secrets!!!")
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Effort:
    """How much is simulated: keys at most, lookups at each count, random sets of each size; and whether more than
    errors is told of lookups, which differs little from release to release and takes most of the time."""

    keys: int = 25_000
    lookups: int = 1_000
    sets: int = 16
    intervals: bool = True


_SOME = Effort()


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
    """What a total over so many random keys is worth, relative to the total.

    Of three totals two are closer than ``error``, which is a standard deviation where errors are normal. Here they are
    not: the few sets without a larger key have small totals, and would decide a root mean square.
    """

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
    #: the smallest count whose interval is at most as wide as the count itself (None: no key has it), and keys above it
    resolved: int | None
    resolved_keys: int
    threshold: int
    false_keys: float
    missed_keys: float

    @property
    def score(self) -> float:
        """What is minimised: the mean relative error at counts of 10 to 10,000, cutting included.

        It is 1 at most, and 1 where an interval is wider than twice the count: such an answer tells nothing, however
        close the guess behind it is by chance.
        """
        told = [
            min(a.uncut_error / a.count, 1.0) if a.width <= 2 * a.count else 1.0
            for a in self.at
            if a.count >= 10
        ]
        return float(np.mean(told))


def predict(
    params: ReleaseParams,
    population: Population,
    counts: Sequence[int] = COUNTS,
    path: str | Path | None = None,
    *,
    sets: Sequence[int] = SETS,
    number: int = 0,
    effort: Effort = _SOME,
) -> Prediction:
    """Size, error and intervals of a release with `params` of such a population.

    What all keys of a release have in common differs from release to release: the `average` over several numbers
    tells it better. The made-up sketch goes to `path`, or to a temporary directory.
    """
    asked, population = params, population.coarser(effort.keys)
    params = params.of_counts()  # where values are added up, a count is a unit of them
    if params.split.contributions:  # for the choice of C, which users are needed for
        params = params.without_choice(_TYPICAL if params.choose_contributions else params.max_contributions)
    key = _NOT_SECRET.for_data(number.to_bytes(8, "little"))
    kept = population.kept(params.max_contributions)
    held = population.held(params.max_contributions)
    small = _rescaled(params, population, len(held))
    sketch = simulate(np.arange(len(held)), held, small, path, release_key=key)
    resolved = int(sketch.resolution().count) if effort.intervals else 0
    above = int((held >= resolved).sum()) * population.scale
    plan = sketch.plan
    hidden = sketch.decoder.released.hidden(held[held >= plan.threshold].astype(np.float64))
    return Prediction(
        params=asked,
        size=_size(sketch, population.scale),
        kept=kept,
        at=tuple(_at_count(sketch, len(held), count, kept, key, effort) for count in counts),
        totals=tuple(_totals(sketch, held, sets, key, effort.sets)),
        resolved=resolved if above else None,
        resolved_keys=above,
        threshold=plan.threshold,
        false_keys=sketch.expected_false(all=True) * population.scale,
        missed_keys=float(hidden.sum()) * population.scale,
    )


def average(found: Sequence[Prediction]) -> Prediction:
    """Of predictions of one setting: mean squares of errors at counts, means of all else; intervals of the first."""

    def mean(name: str, parts: Sequence[Any] = found) -> float:
        return float(np.mean([getattr(part, name) for part in parts]))

    def square(name: str, parts: Sequence[Any]) -> float:
        return float(np.sqrt(np.mean([getattr(part, name) ** 2 for part in parts])))

    return replace(
        found[0],
        size=round(mean("size")),
        at=tuple(
            AtCount(each[0].count, square("error", each), each[0].width, square("uncut_error", each))
            for each in zip(*(one.at for one in found), strict=True)
        ),
        totals=tuple(
            OverKeys(each[0].keys, mean("error", each), mean("width", each))
            for each in zip(*(one.totals for one in found), strict=True)
        ),
        threshold=round(mean("threshold")),
        false_keys=mean("false_keys"),
        missed_keys=mean("missed_keys"),
    )


def text_of(params: ReleaseParams) -> dict[str, Any]:
    """All parameters by name, also those that a manifest leaves out."""
    return {**params.as_text(), "encoding": params.encoding, "noise": params.noise}


def _rescaled(params: ReleaseParams, population: Population, keys: int) -> ReleaseParams:
    """The same noise and space for each key, for the smaller population."""
    scale = population.scale
    if scale == 1:
        return params
    text = text_of(params)
    parts = {name: Fraction(loss) for name, loss in text.pop("split").items()}
    parts["size"] = min(parts["size"] * scale, _MOST_EPSILON - params.epsilon + parts["size"])
    epsilon = sum(parts.values(), Fraction(0))
    text |= {"epsilon": epsilon, "split": {name: loss / epsilon for name, loss in parts.items()}}
    if params.domain_bits is not None:
        text["domain_bits"] = max(params.domain_bits - (scale.bit_length() - 1), 8)
    if params.expected_keys is not None:
        text |= {"expected_keys": keys, "expected_records": max(population.records // scale, 1)}
    return ReleaseParams(**text)


def _size(sketch: Sketch, scale: int) -> int:
    """Bytes: blocks and rows follow the number of keys, what surrounds them does not."""
    manifest = sketch.manifest
    blocks = sum(entry.size for entry in manifest.files if not entry.name.endswith(".parquet"))
    listed = sum(entry.size for entry in manifest.files) - blocks
    frame = min(listed, _FRAME)
    return sketch.size + (scale - 1) * (blocks + listed - frame)


_FRAME = 1_500  # bytes of a Parquet file without rows
_FAR = 30.0  # noise scales, beyond which no value is


def _at_count(
    sketch: Sketch, first_absent: int, count: int, kept: float, key: ReleaseKey, effort: Effort
) -> AtCount:
    """The root mean square error and the median width of planted lookups.

    Those that are listed and those that are not are tried apart, and weighed by the chance of each: of a million keys
    of count 1 a few are listed, and those few have a large part in the mean square.
    """
    decoder = sketch.decoder
    law, bound = decoder.released.noise, decoder.released.bound
    chance = float(law.tail(np.array([float(bound - count)]))[0])
    listed = round(effort.lookups * min(max(chance, 0.25), 0.75))
    hidden = effort.lookups - listed
    weight = np.repeat([(1.0 - chance) / hidden, chance / listed], [hidden, listed])
    values = np.append(np.zeros(hidden, np.int64), _listed_values(law, bound, count, listed))
    absent = np.arange(first_absent, first_absent + effort.lookups)
    true = np.full(effort.lookups, count, np.int64)
    found = decoder.evidence.planted(sketch.lookups(absent).found, true, key.source("planted", count))
    kind = "confidence" if effort.intervals else None
    estimate, low, high = decoder.estimate(found, values, values > 0, interval=kind)
    square = float(weight @ (estimate - count) ** 2)
    order = np.argsort(high - low)
    middle = order[np.searchsorted(np.cumsum(weight[order]), 0.5)]
    cut = (1.0 - kept) * count
    return AtCount(count, square**0.5, float((high - low)[middle]), (square + cut**2) ** 0.5)


def _listed_values(law: NoiseLaw, bound: int, count: int, number: int) -> Ints:
    """Values with which a key of this count is listed, one in the middle of each of so many equal parts."""
    far = math.ceil(_FAR * law.scale)
    at = np.unique(np.linspace(max(bound, count - far), max(bound, count) + far, 1 << 14).astype(np.int64))
    over = law.tail((at - count).astype(np.float64))
    below = 1.0 - over / max(float(over[0]), 1e-300)
    places = np.searchsorted(below, (np.arange(number) + 0.5) / number, side="right") - 1
    return np.asarray(at[np.maximum(places, 0)])


def _totals(sketch: Sketch, held: Ints, sets: Sequence[int], key: ReleaseKey, often: int) -> list[OverKeys]:
    """Of random sets of the population's keys: random orders of all, cut into sets."""
    if not sets:
        return []
    found = sketch.lookups(np.arange(len(held)))
    out = []
    for size in sets:
        if size <= len(held):
            each, orders = len(held) // size, key.source("sets", size)
            chosen: list[NDArray[np.intp]] = []
            # What large sets tell varies less, and takes longer.
            asked = often if size < _LARGE else -(-often // 4)
            while len(chosen) < asked:
                chosen += list(np.argsort(orders.words(len(held)))[: each * size].reshape(each, size))
            out.append(_over(found, held, chosen[:asked]))
    return out


def _over(found: Lookups, held: Ints, sets: Sequence[NDArray[np.intp]]) -> OverKeys:
    """Relative error and width of totals over random sets of one size."""
    errors, widths = [], []
    for chosen in sets:
        estimate, low, high = found.total(chosen)
        truth = int(held[chosen].sum())
        errors.append(estimate / truth - 1.0)
        widths.append((high - low) / truth)
    return OverKeys(len(sets[0]), float(np.quantile(np.abs(errors), TWO_OF_THREE)), float(np.median(widths)))


# Which settings to try, which of them to recommend, and the ε that reaches a target.


def settings(
    base: ReleaseParams, contributions: Sequence[int | str], epsilons: Sequence[Fraction]
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
    text = text_of(params)
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
    why = (
        f"{_words(best.params)}: a mean relative error of {best.score:.0%} at counts of 10 to 10,000,"
        " what the bound cuts included"
    )
    rival = next((one for one in others if one.params.epsilon == best.params.epsilon), None)
    if rival is not None:
        why += f"; next is {_words(rival.params)} at {rival.score:.0%}"
    return best, why + "."


def _words(params: ReleaseParams) -> str:
    return f"{params.encoding} with {params.noise} noise and max_contributions {bound_of(params)}"


def bound_of(params: ReleaseParams) -> int | str:
    """C as a config states it."""
    return "auto" if params.choose_contributions else params.max_contributions


def solve_epsilon(
    params: ReleaseParams, population: Population, error: float, count: int
) -> tuple[Fraction, Prediction]:
    """The smallest ε (two digits) with at most this error at this count, by bisection."""
    low, high = Fraction(1, 100), Fraction(50)
    best = predict(_with(params, high), population, (count,), sets=())
    if best.at[0].error > error:
        raise ParameterError(
            f"plan: error {error:g} at count {count:,} is not reached below epsilon 50; ask for a larger error"
        )
    for _ in range(9):
        middle = Fraction(round(float(low * high) ** 0.5 * 1000), 1000)
        tried = predict(_with(params, middle), population, (count,), sets=())
        if tried.at[0].error <= error:
            high, best = middle, tried
        else:
            low = middle
    return high, best


def _with(params: ReleaseParams, epsilon: Fraction) -> ReleaseParams:
    text = text_of(params)
    parts = {name: Fraction(share) / params.epsilon for name, share in text.pop("split").items()}
    return ReleaseParams(**{**text, "epsilon": epsilon, "split": parts})
