"""Rounds of key selection by weights on parts of the data: what the library and the Beam job have in common.

    users' rows ─ weigh ─► weights of keys ─ merge ─► complete noise shard ─ release_round ─► state per key
         ▲                                                                                        │
         └──────────────────────── keys that are open in the next round ◄────────────────────────┘

Weights are exact and private. A state follows from noisy weights (`hushgram.key_selection.weighted`): it may be
looked at
for any key, but the set of keys that have one is private, but for the selected ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.contributions.bounding import Contributions
from hushgram.contributions.histogram import Histogram
from hushgram.errors import ParameterError
from hushgram.key_selection.weighted import (
    MAX_KEYS,
    WHOLE,
    Round,
    joint_holds,
    least_joint_threshold,
    least_threshold,
    new_key_delta,
    user_weights,
    weight_sensitivity,
)
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.gaussian import discrete_gaussian
from hushgram.noise.gdp import NoisyVector, gdp_delta, gdp_mu, smallest
from hushgram.numbers import integer
from hushgram.sensitivity import Sensitivity

__all__ = [
    "HOPELESS", "OPEN", "SELECTED", "GaussianPlan", "SelectionPlan", "next_states", "plan_gaussian",
    "release_round", "weigh",
]  # fmt: skip

#: States of a key between rounds.
HOPELESS, OPEN, SELECTED = 0, 1, 2

# Of the precision 1/σ² of selection, what the first of two rounds gets, and the noise scales of that round below
# which a key is hopeless. Both are near the optimum on users of heavy-tailed activity, and flat around it
# (docs/decisions/111).
_FIRST_ROUND = Fraction(1, 5)
_HOPELESS_SCALES = 1
# Of δ, what the thresholds of two rounds get, and the first one of that. With one round both need not be added up, and
# noise alone gets nearly all.
_THRESHOLDS, _FIRST_THRESHOLD, _JOINT_NOISE = Fraction(7, 20), Fraction(1, 10), Fraction(19, 20)
# Scales of counts are whole multiples of 1/64, those of weights are whole.
_GRID = 64
_STEPS = 1 << 12

States = NDArray[np.uint8]


@dataclass(frozen=True)
class SelectionPlan:
    """The public numbers of key selection by weights."""

    max_keys: int
    rounds: tuple[Round, ...]
    #: noisy weight of the first round from which a key takes part in the second; 0 where there is one round
    hopeless: int = 0

    def __post_init__(self) -> None:
        integer(self.max_keys, "max_keys", "SelectionPlan", low=1, high=MAX_KEYS)
        if len(self.rounds) not in (1, 2):
            raise ParameterError(f"SelectionPlan: there are one or two rounds, got {len(self.rounds)}")

    @property
    def sensitivity(self) -> Sensitivity:
        """Return how far one user moves the weights of each round."""
        return weight_sensitivity(self.max_keys)

    @property
    def vectors(self) -> tuple[NoisyVector, ...]:
        """Return the rounds as the privacy map takes them."""
        return tuple(NoisyVector(each.scale, WHOLE * WHOLE, self.max_keys) for each in self.rounds)

    def privacy_map(
        self,
        counts_scale: Fraction,
        encoding_scale: Fraction | None,
        epsilon: Fraction,
        delta: Fraction,
        counts: Sensitivity,
    ) -> bool:
        """Return whether rounds, counts and cells of an encoding together are (``epsilon``, ``delta``)-DP.

        Args:
            counts_scale: scale of the noise on the counts of selected keys.
            encoding_scale: scale of the noise on the cells of an encoding; None where it has other noise.
            epsilon: ε of all of them.
            delta: δ of all of them.
            counts: sensitivity of the counts, and of the cells.
        """
        others = _other_vectors(counts_scale, encoding_scale, counts)
        if len(self.rounds) == 1:
            (only,) = self.rounds
            return joint_holds(only.threshold, only.scale, self.max_keys, epsilon, delta, others)
        selected = sum(
            (new_key_delta(each.threshold, each.scale, self.max_keys) for each in self.rounds), Fraction(0)
        )
        return gdp_delta((*self.vectors, *others), epsilon) + selected <= delta

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready form."""
        return {
            "max_keys": self.max_keys,
            "weight": WHOLE,
            "rounds": [each.to_dict() for each in self.rounds],
            "hopeless": self.hopeless,
        }

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any]) -> SelectionPlan:
        """Return the plan that `to_dict` wrote; raise ParameterError where a number is out of range."""
        if stated["weight"] != WHOLE:
            raise ParameterError(f"SelectionPlan: weight must be {WHOLE}, got {str(stated['weight'])[:40]}")
        rounds = tuple(Round.from_dict(each) for each in stated["rounds"])
        hopeless = integer(stated["hopeless"], "hopeless", "SelectionPlan", low=0, high=1 << 50)
        return cls(stated["max_keys"], rounds, hopeless)


def _other_vectors(
    counts_scale: Fraction, encoding_scale: Fraction | None, counts: Sensitivity
) -> tuple[NoisyVector, ...]:
    scales = [scale for scale in (counts_scale, encoding_scale) if scale is not None]
    return tuple(NoisyVector(scale, counts.l2_squared, counts.l0) for scale in scales)


@dataclass(frozen=True)
class GaussianPlan:
    """All vectors of a release that get Gaussian noise: weights, counts of selected keys, and cells of an encoding."""

    selection: SelectionPlan
    #: scale of the noise on the counts of selected keys
    counts_scale: Fraction
    #: scale of the noise on the cells of an encoding; None where it has other noise or there is none
    encoding_scale: Fraction | None
    #: how scales follow from sensitivities: σ = steps/4096 · ‖v‖/√share, for counts and encoding
    steps: int
    shares: tuple[Fraction, Fraction]

    def _others(self, counts: Sensitivity) -> tuple[NoisyVector, ...]:
        return _other_vectors(self.counts_scale, self.encoding_scale, counts)

    def with_counts(self, counts: Sensitivity) -> GaussianPlan:
        """Return the same for counts of another sensitivity: the noise on them follows it, selection stays as it is."""
        return _made(self.steps, self.shares, self.selection, counts)


@lru_cache(maxsize=64)
def plan_gaussian(
    epsilon: Fraction,
    delta: Fraction,
    *,
    max_keys: int,
    rounds: int,
    shares: tuple[Fraction, Fraction, Fraction],
    counts: tuple[Sensitivity, ...],
) -> GaussianPlan:
    """Return scales and thresholds that spend (``epsilon``, ``delta``), rounded so that they never spend more.

    Args:
        epsilon: ε of all Gaussian vectors together.
        delta: δ of all of them and of the thresholds.
        max_keys: how many keys of a user are weighed.
        rounds: 1 or 2.
        shares: how the precision 1/σ² is divided: selection, counts, encoding (0 where it has no Gaussian noise).
        counts: sensitivities of the counts of selected keys, and of the cells of the encoding; several where it is
        chosen
            after selection, so that scales must hold for each of them. The plan is that of the last.
    """
    of_selection, *others = (share / sum(shares) for share in shares)
    of_counts = (others[0], others[1])
    parts = (
        [of_selection] if rounds == 1 else [of_selection * _FIRST_ROUND, of_selection * (1 - _FIRST_ROUND)]
    )
    of_noise = delta * (_JOINT_NOISE if rounds == 1 else 1 - _THRESHOLDS)

    def made(steps: int, sensitivity: Sensitivity) -> GaussianPlan:
        scales = [_scale(steps, part, WHOLE * WHOLE, 1) for part in parts]
        selection = SelectionPlan(max_keys, tuple(Round(scale, 1) for scale in scales))
        return _made(steps, of_counts, selection, sensitivity)

    def enough(steps: int) -> bool:
        plans = [(made(steps, each), each) for each in counts]
        return all(
            gdp_delta((*plan.selection.vectors, *plan._others(each)), epsilon) <= of_noise
            for plan, each in plans
        )

    steps = smallest(enough, max(int(_STEPS / gdp_mu(epsilon, of_noise)), 1))
    scales = [each.scale for each in made(steps, counts[-1]).selection.rounds]
    if rounds == 1:
        # for each C that may be chosen; the privacy map checks the one that is
        thresholds = [
            max(
                least_joint_threshold(delta, scales[0], max_keys, epsilon, made(steps, each)._others(each))
                for each in counts
            )
        ]
        hopeless = 0
    else:
        first = delta * _THRESHOLDS * _FIRST_THRESHOLD
        allowed = (first, delta * _THRESHOLDS - first)
        thresholds = [least_threshold(d, s, max_keys) for d, s in zip(allowed, scales, strict=True)]
        hopeless = int(_HOPELESS_SCALES * scales[0])
    chosen = tuple(Round(s, t) for s, t in zip(scales, thresholds, strict=True))
    return _made(steps, of_counts, SelectionPlan(max_keys, chosen, hopeless), counts[-1])


def _made(
    steps: int, shares: tuple[Fraction, Fraction], selection: SelectionPlan, counts: Sensitivity
) -> GaussianPlan:
    scales = [_scale(steps, share, counts.l2_squared, _GRID) if share else None for share in shares]
    assert scales[0] is not None
    return GaussianPlan(selection, scales[0], scales[1], steps, shares)


def _scale(steps: int, share: Fraction, l2_squared: int, grid: int) -> Fraction:
    """Return σ = steps/4096 · ‖v‖/√share, rounded up to a multiple of 1/grid."""
    squared = Fraction(steps * steps * l2_squared, _STEPS * _STEPS) / share * grid * grid
    return Fraction(_ceil_root(squared), grid)


def _ceil_root(value: Fraction) -> int:
    """Return the smallest whole number whose square is at least ``value``."""
    whole = -(-value.numerator // value.denominator)
    root = isqrt(whole)
    return root if root * root == whole else root + 1


# --- steps --------------------------------------------------------------------------------------------------------


def weigh(rows: Contributions, max_keys: int, states: States | None = None) -> Histogram:
    """Return the weights that these users give to the open keys of their table; those that get none have weight 0.

    Args:
        rows: rows of whole users, pruned, of which each counts (`Contributions.present`).
        max_keys: how many keys of a user are weighed, by priority.
        states: state per key of the table; None before the first round, where all are open.
    """
    table = rows.table
    assert table is not None
    open_ = np.ones(len(table.fingerprints), np.bool_) if states is None else states == OPEN
    weights = np.zeros(len(open_), np.int64)
    keys, keys_of_user = rows.first_keys(max_keys, open_)
    np.add.at(weights, keys, user_weights(max_keys)[keys_of_user])
    kept, _ = table.keep(open_)
    return Histogram(kept.fingerprints, weights[open_], kept.texts, weight_sensitivity(max_keys))


def release_round(
    number: int,
    shard: int,
    part: Histogram,
    plan: SelectionPlan,
    release_key: ReleaseKey,
    data_digest: bytes,
) -> States:
    """Return the state of every key of a complete noise shard after a round.

    Args:
        number: of the round, from 0 on.
        shard: of the noise.
        part: the weights of all keys of the shard.
        plan: the public numbers of the rounds.
        release_key: of the release.
        data_digest: of the weights of all shards.
    """
    part.admit(plan.sensitivity)
    chosen = plan.rounds[number]
    if not len(part):
        return np.zeros(0, np.uint8)
    source = release_key.for_data(data_digest).source(f"selection {number}", shard, part.digest())
    noisy = part.counts + discrete_gaussian(chosen.scale, len(part), source)
    selected = (noisy >= chosen.threshold) & (part.counts > 0)
    last = number + 1 == len(plan.rounds)
    open_ = np.zeros(len(part), np.bool_) if last else noisy >= plan.hopeless
    return np.where(selected, SELECTED, np.where(open_, OPEN, HOPELESS)).astype(np.uint8)


def next_states(before: States | None, found: States) -> States:
    """Return the state of every key of the table, from that before a round and from what it found for open keys."""
    if before is None:
        return found
    out = np.where(before == SELECTED, SELECTED, HOPELESS).astype(np.uint8)
    out[before == OPEN] = found
    return out
