"""How much of ε key selection by weights gets, chosen from released and public numbers: `split: auto`.

Known before keys are selected are how many users have how many keys, with noise, and the number of keys where it is
stated. Keys are assumed to have Zipf's law. Each division is forecast: how many keys it names, the noise on their
counts, and the error of all others where they are encoded. That with the least

    (error of counts · error of other keys)^(1/2) / named keys

is taken (without an encoding, error of counts / named keys): one percent more names counts as much as one percent less
error. The forecast is post-processing, in floating point; it is the same on every machine
(`hushgram.key_selection.forecast`), and what it gives is compared exactly.

How ε is divided between counts and buckets is chosen again when the sizes of other keys are released (`plan`).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from hushgram.encodings import encoding_named
from hushgram.key_selection.forecast import (
    KeysPerUser,
    SelectionForecast,
    dot,
    spread_ranks,
    zipf_exponent,
    zipf_shares,
)
from hushgram.sparse_histogram.contribution_bounds import UserTotals
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.plan import make_plan
from hushgram.sparse_histogram.sizing import PROFILE_GRID, Sizes

__all__ = ["best_branch", "choose_selection"]

_PAIRS_PER_KEY = 12  # of user and key, where the number of keys is not known
_TYPICAL = 64  # C where it will be chosen from the data
_RANKS = 600


def choose_selection(params: ReleaseParams, users: UserTotals) -> ReleaseParams:
    """Return the parameters with the rounds, and with `split: auto` the share of selection, for such users."""
    rounds, found = users.rounds(), users.likely() or users.clear()
    if not params.choose_split or not found:
        return params.with_rounds(rounds)
    return best_branch(params, rounds, KeysPerUser(*np.array(found, np.float64).T))


def best_branch(params: ReleaseParams, rounds: int, people: KeysPerUser) -> ReleaseParams:
    """Return the parameters with so many rounds and the share of selection with the least forecast loss."""
    branches = params.branches(rounds)
    if len(branches) == 1:
        return branches[0]
    losses = [_loss(each, people) for each in branches]
    return branches[losses.index(min(losses))]


def _loss(params: ReleaseParams, people: KeysPerUser) -> Fraction:
    """Return the forecast mean square error over the squared number of named keys; of two errors the product of both.

    Every branch has as many errors as any other.
    """
    if params.choose_contributions:
        params = params.with_contributions(max(_TYPICAL, params.max_per_key))
    pairs = max(round(dot(people.users, people.keys)), 1)
    keys = min(params.expected_keys or max(pairs // _PAIRS_PER_KEY, 1), pairs)
    ranks = spread_ranks(keys, _RANKS)
    number = np.diff(ranks, append=keys + 1).astype(np.float64)
    popular = zipf_shares(ranks, zipf_exponent(keys, pairs))
    at = np.maximum(pairs * popular / dot(number, popular), 1.0)
    forecast = SelectionForecast(params.gaussian.selection, people, at, number)
    most = params.max_contributions / params.max_per_key
    kept = dot(people.users, np.minimum(people.keys, most)) / pairs
    left = number * (1.0 - forecast.chances(at))
    profile = tuple(round(dot(left, (at * kept >= t).astype(np.float64))) for t in PROFILE_GRID)
    plan = make_plan(
        params, Sizes(round(dot(at, left) * kept), max(profile[0], 1), profile, params.epsilon * 0)
    )
    named = Fraction(max(forecast.named, 1e-9)) ** 2
    loss = plan.noise.variance(plan.scale) / named
    if plan.layout is not None and encoding_named(params.encoding).noisy:
        loss *= encoding_named(params.encoding).squared_error(plan.layout, plan.layout_spec) / named
    return loss
