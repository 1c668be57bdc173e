"""What a release would be worth, before it runs: size, error and intervals, from public numbers alone.

Nothing is guessed by a formula that the mechanism does not know: a made-up histogram with as many records to a key as
expected goes through the very release that is planned, and the answers of its own decoder are compared with its
counts. It holds no private data, so its noise needs no secret, and the same question always gets the same answer.
"""

from hushgram.planner.population import Population
from hushgram.planner.prediction import (
    COUNTS,
    SETS,
    AtCount,
    Effort,
    OverKeys,
    Prediction,
    average,
    bound_of,
    predict,
    recommend,
    settings,
    solve_epsilon,
    vary,
)

__all__ = [
    "COUNTS", "SETS", "AtCount", "Effort", "OverKeys", "Population", "Prediction", "average", "bound_of",
    "predict", "recommend", "settings", "solve_epsilon", "vary",
]  # fmt: skip
