"""Rounds of key selection by weights on parts of the data: what the library and the Beam job have in common.

    users' rows ─ weigh ─► weights of keys ─ merge ─► complete noise shard ─ release_round ─► state per key
         ▲                                                                                        │
         └──────────────────────── keys that are open in the next round ◄────────────────────────┘

Weights are exact and private. A state follows from noisy weights (`hushgram.key_selection.weighted`): it may be
looked at
for any key, but the set of keys that have one is private, but for the selected ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.contributions.bounding import Contributions
from hushgram.contributions.histogram import Histogram, KeyTable
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
from hushgram.noise.gaussian import discrete_gaussians
from hushgram.noise.gdp import NoisyVector, OneOf, Vectors, gdp_delta, gdp_mu, smallest
from hushgram.numbers import integer, rational, show
from hushgram.sensitivity import Sensitivity

__all__ = [
    "HOPELESS", "MAX_ROUNDS", "OPEN", "SELECTED", "GaussianMechanism", "GaussianPlan", "MetricShares", "SelectionPlan",
    "best_rounds", "carried_states", "next_states", "plan_gaussian", "release_round", "weigh",
]  # fmt: skip

#: States of a key between rounds.
HOPELESS, OPEN, SELECTED = 0, 1, 2

#: The most rounds of a selection.
MAX_ROUNDS = 3
# Of the precision 1/σ² of selection, what each of several rounds gets, and the noise scales of a round below which a
# key is hopeless for the next one. Near the optimum on real and simulated users (docs/decisions/111), flat around it.
_PRECISION = {
    1: (Fraction(1),),
    2: (Fraction(1, 5), Fraction(4, 5)),
    3: (Fraction(12, 100), Fraction(23, 100), Fraction(65, 100)),
}
_HOPELESS_SCALES = {1: (), 2: (Fraction(1),), 3: (Fraction(7, 10), Fraction(17, 10))}
# Of δ, what the thresholds of several rounds get, and how they share it. With one round both need not be added up, and
# noise alone gets nearly all.
_THRESHOLDS, _JOINT_NOISE = Fraction(7, 20), Fraction(19, 20)
_OF_THRESHOLDS = {
    2: (Fraction(1, 10), Fraction(9, 10)),
    3: (Fraction(5, 100), Fraction(15, 100), Fraction(80, 100)),
}
# Scales of counts are whole multiples of 1/64, those of weights are whole.
_GRID = 64
_STEPS = 1 << 12
# From about so many keys per user on three rounds name the most, below two; the tail of active users is not seen.
_MANY_KEYS = 4

States = NDArray[np.uint8]


@dataclass(frozen=True)
class SelectionPlan:
    """The public numbers of key selection by weights."""

    max_keys: int
    rounds: tuple[Round, ...]
    #: noisy weight of each round but the last from which a key takes part in the next
    hopeless: tuple[int, ...] = ()
    #: the vectors of the other metrics for which keys are selected too, by name
    others: tuple[tuple[str, OneOf], ...] = ()

    def __post_init__(self) -> None:
        integer(self.max_keys, "max_keys", "SelectionPlan", low=1, high=MAX_KEYS)
        if not 1 <= len(self.rounds) <= MAX_ROUNDS or len(self.hopeless) != len(self.rounds) - 1:
            raise ParameterError(
                f"SelectionPlan: there are up to {MAX_ROUNDS} rounds, and a number beside each but the last"
            )

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
        scale: Fraction,
        epsilon: Fraction,
        delta: Fraction,
        counts: Sensitivity,
    ) -> bool:
        """Return whether the rounds and the vector of counts and buckets are (``epsilon``, ``delta``)-DP together.

        The vectors of the other metrics that share the selection belong to them.

        Args:
            scale: of the noise on the vector.
            epsilon: ε of all of them.
            delta: δ of all of them.
            counts: sensitivity of the vector: counts of selected keys and buckets of all others.
        """
        own = NoisyVector(scale, counts.l2_squared, counts.l0)
        others = (own, *(other for _, other in self.others))
        if len(self.rounds) == 1:
            (only,) = self.rounds
            return joint_holds(only.threshold, only.scale, self.max_keys, epsilon, delta, others)
        selected = sum(
            (new_key_delta(each.threshold, each.scale, self.max_keys) for each in self.rounds), Fraction(0)
        )
        return gdp_delta((*self.vectors, *others), epsilon) + selected <= delta

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready form."""
        out = {
            "max_keys": self.max_keys,
            "weight": WHOLE,
            "rounds": [each.to_dict() for each in self.rounds],
            "hopeless": list(self.hopeless),
        }
        if self.others:
            out["others"] = [
                {
                    "metric": name,
                    "one_of": [[_vector_dict(each) for each in choice] for choice in other.choices],
                }
                for name, other in self.others
            ]
        return out

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any]) -> SelectionPlan:
        """Return the plan that `to_dict` wrote; raise ParameterError where a number is out of range."""
        if stated["weight"] != WHOLE:
            raise ParameterError(f"SelectionPlan: weight must be {WHOLE}, got {str(stated['weight'])[:40]}")
        rounds = tuple(Round.from_dict(each) for each in stated["rounds"])
        hopeless = tuple(
            integer(each, "hopeless", "SelectionPlan", low=0, high=1 << 50) for each in stated["hopeless"]
        )
        others = tuple(
            (
                str(other["metric"])[:40],
                OneOf(tuple(tuple(map(_vector_from, choice)) for choice in other["one_of"])),
            )
            for other in stated.get("others", ())
        )
        return cls(stated["max_keys"], rounds, hopeless, others)


def _vector_dict(vector: NoisyVector) -> dict[str, Any]:
    return {"scale": show(vector.scale), "l2_squared": int(vector.l2_squared), "l0": vector.l0}


def _vector_from(stated: Mapping[str, Any]) -> NoisyVector:
    scale = rational(stated["scale"], "scale", "SelectionPlan")
    if not 0 < scale <= 1 << 34:
        raise ParameterError(f"SelectionPlan: scale must be above 0 and at most 2^34, got {show(scale)[:60]}")
    return NoisyVector(scale, _whole(stated, "l2_squared"), _whole(stated, "l0"))


def _whole(stated: Mapping[str, Any], name: str) -> int:
    return integer(stated[name], name, "SelectionPlan", low=1, high=1 << 62)


@dataclass(frozen=True)
class MetricShares:
    """The part of one metric in the Gaussian mechanism: ε of selection and of its vector, and its δ.

    ``bounds`` are (squared L2, L0) of the vector; several where C is chosen from the data: the mechanism must hold for
    each of them.
    """

    selection: Fraction
    vector: Fraction
    delta: Fraction
    bounds: tuple[tuple[int, int], ...]

    @property
    def epsilon(self) -> Fraction:
        """Return ε of both."""
        return self.selection + self.vector

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready form."""
        parts = {name: show(getattr(self, name)) for name in ("selection", "vector", "delta")}
        return {**parts, "bounds": [{"l2_squared": l2, "l0": l0} for l2, l0 in self.bounds]}

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any]) -> MetricShares:
        """Return what `to_dict` wrote; raise ParameterError where a number is out of range."""
        selection, vector, delta = (
            rational(stated[name], name, "MetricShares") for name in ("selection", "vector", "delta")
        )
        bounds = tuple((_whole(each, "l2_squared"), _whole(each, "l0")) for each in stated["bounds"])
        if min(selection, vector, delta) <= 0 or not bounds:
            raise ParameterError("MetricShares: selection, vector and delta must be above 0")
        return cls(selection, vector, delta, bounds)


@dataclass(frozen=True)
class GaussianPlan:
    """What one metric has of the Gaussian mechanism: weights, and one vector of counts and buckets."""

    selection: SelectionPlan
    #: scale of the noise on the vector
    scale: Fraction
    #: the vectors of all metrics, each for every C that there may be
    vectors: tuple[OneOf, ...]


@dataclass(frozen=True)
class GaussianMechanism:
    """All vectors of a pass that get Gaussian noise: σ = steps/4096 · ‖v‖/√share, share being that of ε."""

    selection: SelectionPlan
    steps: int
    metrics: tuple[tuple[str, MetricShares], ...]

    def metric(self, name: str, sensitivity: Sensitivity) -> GaussianPlan:
        """Return the part of one metric, for a vector of this sensitivity."""
        (own,) = (each for metric, each in self.metrics if metric == name)
        every = tuple((metric, self.vectors(each)) for metric, each in self.metrics)
        others = tuple(each for each in every if each[0] != name)
        return GaussianPlan(
            replace(self.selection, others=others),
            self._scale(own, sensitivity.l2_squared),
            tuple(each for _, each in every),
        )

    def vectors(self, part: MetricShares) -> OneOf:
        """Return the vector of a metric, for each C that there may be."""
        return OneOf(tuple((NoisyVector(self._scale(part, l2), l2, l0),) for l2, l0 in part.bounds))

    def _scale(self, part: MetricShares, l2_squared: int) -> Fraction:
        whole = sum((each.epsilon for _, each in self.metrics), Fraction(0))
        return _scale(self.steps, part.vector / whole, l2_squared, _GRID)


@lru_cache(maxsize=64)
def plan_gaussian(
    metrics: tuple[tuple[str, MetricShares], ...], *, max_keys: int, rounds: int
) -> GaussianMechanism:
    """Return scales and thresholds that spend ε and δ of all metrics, rounded so that they never spend more.

    The parts of the metrics for selection are put together: keys are selected once. ε of a part over that of all
    parts is its share of the precision 1/σ², so the noise on the counts of m equal metrics grows with √m.

    Args:
        metrics: the metrics by name; one for a release by itself.
        max_keys: how many keys of a user are weighed.
        rounds: how many.
    """
    epsilon = sum((each.epsilon for _, each in metrics), Fraction(0))
    delta = sum((each.delta for _, each in metrics), Fraction(0))
    share = sum((each.selection for _, each in metrics), Fraction(0)) / epsilon
    parts = [share * each for each in _PRECISION[rounds]]
    of_noise = delta * (_JOINT_NOISE if rounds == 1 else 1 - _THRESHOLDS)

    def made(steps: int) -> tuple[list[Fraction], Vectors]:
        mechanism = GaussianMechanism(SelectionPlan(max_keys, (Round(Fraction(WHOLE), 1),)), steps, metrics)
        scales = [_scale(steps, part, WHOLE * WHOLE, 1) for part in parts]
        return scales, tuple(mechanism.vectors(each) for _, each in metrics)

    def enough(steps: int) -> bool:
        scales, others = made(steps)
        weights = tuple(NoisyVector(scale, WHOLE * WHOLE, max_keys) for scale in scales)
        return gdp_delta((*weights, *others), epsilon) <= of_noise

    steps = smallest(enough, max(int(_STEPS / gdp_mu(epsilon, of_noise)), 1))
    scales, others = made(steps)
    if rounds == 1:
        thresholds = [least_joint_threshold(delta, scales[0], max_keys, epsilon, others)]
    else:
        allowed = (delta * _THRESHOLDS * each for each in _OF_THRESHOLDS[rounds])
        thresholds = [least_threshold(d, s, max_keys) for d, s in zip(allowed, scales, strict=True)]
    hopeless = tuple(
        int(times * scale) for times, scale in zip(_HOPELESS_SCALES[rounds], scales, strict=False)
    )
    chosen = tuple(Round(s, t) for s, t in zip(scales, thresholds, strict=True))
    return GaussianMechanism(SelectionPlan(max_keys, chosen, hopeless), steps, metrics)


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
    open_ = None if states is None else np.asarray(states == OPEN)
    weights = np.zeros(len(table.fingerprints), np.int64)
    keys, number = rows.first_keys(max_keys, open_)
    np.add.at(weights, keys, np.repeat(user_weights(max_keys)[number], number))
    if open_ is not None:
        table, weights = table.keep(open_)[0], weights[open_]
    return Histogram(table.fingerprints, weights, table.texts, weight_sensitivity(max_keys))


def best_rounds(users: Iterable[tuple[int | float, Fraction | float]]) -> int:
    """Return the number of rounds that is likely to select most keys, of (users, keys of each).

    A further round gains by what users shift from keys that are selected or hopeless to others, so only those with
    several keys. It loses where users with one key have more pairs of user and key than all others. Three where nothing
    is known.

    >>> best_rounds([(900, 1), (100, 4)]), best_rounds([(500, 1), (500, 2)]), best_rounds([(500, 9)]), best_rounds([])
    (1, 2, 3, 3)
    """
    known = list(users)
    number, pairs = sum(n for n, _ in known), sum(n * keys for n, keys in known)
    if not known or number <= 0 or pairs >= _MANY_KEYS * number:
        return 3
    return 1 if 2 * sum(n for n, keys in known if keys <= 1) > pairs else 2


def release_round(
    number: int,
    shards: Iterable[tuple[int, Histogram]],
    plan: SelectionPlan,
    release_key: ReleaseKey,
    data_digest: bytes,
) -> States:
    """Return the state of every key of some complete noise shards after a round.

    Args:
        number: of the round, from 0 on.
        shards: of the noise, each with the weights of all of its keys.
        plan: the public numbers of the rounds.
        release_key: of the release.
        data_digest: of the weights of all shards.
    """
    # None has keys in a round that was not chosen.
    parts = [(shard, part) for shard, part in shards if len(part.admit(plan.sensitivity))]
    if not parts:
        return np.zeros(0, np.uint8)
    chosen, noise_key = plan.rounds[number], release_key.for_data(data_digest)
    sources = [noise_key.source(f"selection {number}", shard, part.digest()) for shard, part in parts]
    weights = np.concatenate([part.counts for _, part in parts])
    noisy = weights + discrete_gaussians(chosen.scale, [len(part) for _, part in parts], sources)
    selected = (noisy >= chosen.threshold) & (weights > 0)
    last = number + 1 == len(plan.rounds)
    open_ = np.zeros(len(weights), np.bool_) if last else noisy >= plan.hopeless[number]
    return np.where(selected, SELECTED, np.where(open_, OPEN, HOPELESS)).astype(np.uint8)


def carried_states(table: KeyTable, carried: KeyTable | None) -> States | None:
    """Return the states before the first round: keys that an earlier release named are selected, all others open.

    The carried keys are public. A user leaves them out when weighing, as in a second round those of the first; so the
    weights of other keys grow, and all of them stay within the same sensitivity.
    """
    if carried is None:
        return None
    return np.where(carried.find(table.texts) >= 0, SELECTED, OPEN).astype(np.uint8)


def next_states(before: States | None, found: States) -> States:
    """Return the state of every key of the table, from that before a round and from what it found for open keys."""
    if before is None:
        return found
    out = np.where(before == SELECTED, SELECTED, HOPELESS).astype(np.uint8)
    out[before == OPEN] = found
    return out
