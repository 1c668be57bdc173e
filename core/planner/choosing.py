"""Which settings to try, which of them to recommend, and the ε that reaches a target."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from hushgram.encodings import HOMES as ENCODINGS
from hushgram.errors import ParameterError
from hushgram.noise.noises import HOMES as NOISES
from hushgram.planner.population import Population
from hushgram.planner.prediction import Prediction, predict, text_of
from hushgram.sparse_histogram.params import ReleaseParams

__all__ = ["bound_of", "recommend", "settings", "solve_epsilon", "vary"]


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
