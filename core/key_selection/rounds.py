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
from typing import Any, NamedTuple

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
    "HOPELESS", "OPEN", "SELECTED", "CountChoice", "GaussianMechanism", "GaussianPlan", "MetricShares", "SelectionPlan",
    "best_rounds", "carried_states", "keys_of_users", "next_states", "plan_gaussian", "release_round", "weigh",
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
# Of the pairs of a user with many keys, how many count in the choice of rounds.
_MOST_PAIRS = 16

States = NDArray[np.uint8]


@dataclass(frozen=True)
class SelectionPlan:
    """The public numbers of key selection by weights."""

    max_keys: int
    rounds: tuple[Round, ...]
    #: noisy weight of the first round from which a key takes part in the second; 0 where there is one round
    hopeless: int = 0
    #: counts and cells of the other metrics for which keys are selected too, by name
    others: tuple[tuple[str, OneOf], ...] = ()

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

        Counts and cells of the other metrics that share the selection belong to them.

        Args:
            counts_scale: scale of the noise on the counts of selected keys.
            encoding_scale: scale of the noise on the cells of an encoding; None where it has other noise.
            epsilon: ε of all of them.
            delta: δ of all of them.
            counts: sensitivity of the counts, and of the cells.
        """
        own = _vectors((counts_scale, encoding_scale), counts.l2_squared, counts.l0)
        others = (*own, *(other for _, other in self.others))
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
            "hopeless": self.hopeless,
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
        hopeless = integer(stated["hopeless"], "hopeless", "SelectionPlan", low=0, high=1 << 50)
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


class CountChoice(NamedTuple):
    """One way in which a metric may be counted: ε of the counts, and the sensitivities of counts and cells."""

    counts: Fraction
    l2_squared: int
    l0: int


@dataclass(frozen=True)
class MetricShares:
    """The part of one metric in the Gaussian mechanism: ε of selection, of counts and encoding together, and its δ.

    ``choices`` are several where C, or how ε is divided between counts and encoding, is chosen after selection: the
    mechanism must hold for each of them. All of it is for counts where the encoding has other noise.
    """

    selection: Fraction
    counted: Fraction
    delta: Fraction
    choices: tuple[CountChoice, ...]
    #: ε of the numbers of users by keys, where rounds are chosen from them; no part of the Gaussian mechanism
    users: Fraction = Fraction(0)

    @property
    def epsilon(self) -> Fraction:
        """Return ε of all parts."""
        return self.selection + self.counted

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready form."""
        parts = {name: show(getattr(self, name)) for name in ("selection", "counted", "delta")}
        choices = [{**each._asdict(), "counts": show(each.counts)} for each in self.choices]
        users = {"users": show(self.users)} if self.users else {}
        return {**parts, **users, "choices": choices}

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any]) -> MetricShares:
        """Return what `to_dict` wrote; raise ParameterError where a number is out of range."""
        selection, counted, delta = (
            rational(stated[name], name, "MetricShares") for name in ("selection", "counted", "delta")
        )
        choices = tuple(
            CountChoice(
                rational(each["counts"], "counts", "MetricShares"),
                _whole(each, "l2_squared"),
                _whole(each, "l0"),
            )
            for each in stated["choices"]
        )
        users = rational(stated.get("users", 0), "users", "MetricShares")
        if (
            min(selection, counted, delta) <= 0
            or users < 0
            or not all(0 < each.counts <= counted for each in choices)
        ):
            raise ParameterError("MetricShares: selection, counted, counts and delta must be above 0")
        return cls(selection, counted, delta, choices, users)


@dataclass(frozen=True)
class GaussianPlan:
    """What one metric has of the Gaussian mechanism: weights, counts of selected keys, and cells of an encoding."""

    selection: SelectionPlan
    #: scale of the noise on the counts of selected keys
    counts_scale: Fraction
    #: scale of the noise on the cells of an encoding; None where it has other noise or there is none
    encoding_scale: Fraction | None
    #: counts and cells of all metrics, each for every choice that there may be
    vectors: tuple[OneOf, ...]


@dataclass(frozen=True)
class GaussianMechanism:
    """All vectors of a pass that get Gaussian noise: σ = steps/4096 · ‖v‖/√share, share being that of ε."""

    selection: SelectionPlan
    steps: int
    metrics: tuple[tuple[str, MetricShares], ...]

    @property
    def _whole(self) -> Fraction:
        return sum((each.epsilon for _, each in self.metrics), Fraction(0))

    def metric(self, name: str, counts: Fraction, sensitivity: Sensitivity) -> GaussianPlan:
        """Return the part of one metric, for counts of this ε and sensitivity."""
        (own,) = (each for metric, each in self.metrics if metric == name)
        scales = self._scales(own, CountChoice(counts, sensitivity.l2_squared, sensitivity.l0))
        assert scales[0] is not None
        every = tuple((metric, self.vectors(each)) for metric, each in self.metrics)
        others = tuple(each for each in every if each[0] != name)
        vectors = tuple(each for _, each in every)
        return GaussianPlan(replace(self.selection, others=others), scales[0], scales[1], vectors)

    def vectors(self, part: MetricShares) -> OneOf:
        """Return the vectors of a metric besides selection."""
        return OneOf(tuple(_vectors(self._scales(part, each), *each[1:]) for each in part.choices))

    def _scales(self, part: MetricShares, choice: CountChoice) -> tuple[Fraction | None, ...]:
        shares = (choice.counts / self._whole, (part.counted - choice.counts) / self._whole)
        return tuple(
            _scale(self.steps, share, choice.l2_squared, _GRID) if share else None for share in shares
        )


def _vectors(scales: Iterable[Fraction | None], l2_squared: int, l0: int) -> tuple[NoisyVector, ...]:
    return tuple(NoisyVector(scale, l2_squared, l0) for scale in scales if scale is not None)


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
        rounds: 1 or 2.
    """
    epsilon = sum((each.epsilon for _, each in metrics), Fraction(0))
    delta = sum((each.delta for _, each in metrics), Fraction(0))
    share = sum((each.selection for _, each in metrics), Fraction(0)) / epsilon
    parts = [share] if rounds == 1 else [share * _FIRST_ROUND, share * (1 - _FIRST_ROUND)]
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
        hopeless = 0
    else:
        first = delta * _THRESHOLDS * _FIRST_THRESHOLD
        allowed = (first, delta * _THRESHOLDS - first)
        thresholds = [least_threshold(d, s, max_keys) for d, s in zip(allowed, scales, strict=True)]
        hopeless = int(_HOPELESS_SCALES * scales[0])
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


def keys_of_users(rows: Contributions, states: States | None = None) -> NDArray[np.int64]:
    """Return how many open keys each user has, for users that have one. Exact and private."""
    open_ = None if states is None else np.asarray(states == OPEN)
    return rows.first_keys(len(rows), open_)[1]


def best_rounds(users: Iterable[tuple[int | float, Fraction | float]]) -> int:
    """Return the number of rounds that is likely to select more keys, of (users, keys of each).

    A second round gains by what users shift from keys that are selected or hopeless to others, so only those with
    several keys. It loses where users with one key have more pairs of user and key than all others, who count for at
    most `_MOST_PAIRS` each: the weights of users with very many keys stay small in either round (docs/decisions/118).

    >>> best_rounds([(900, 1), (100, 4)]), best_rounds([(500, 1), (500, 2)])
    (1, 2)
    """
    pairs = [(number if keys <= 1 else -number * min(keys, _MOST_PAIRS)) for number, keys in users]
    return 1 if sum(pairs) > 0 else 2


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
    # None has keys in a second round that was not chosen.
    parts = [(shard, part) for shard, part in shards if len(part.admit(plan.sensitivity))]
    if not parts:
        return np.zeros(0, np.uint8)
    chosen, noise_key = plan.rounds[number], release_key.for_data(data_digest)
    sources = [noise_key.source(f"selection {number}", shard, part.digest()) for shard, part in parts]
    weights = np.concatenate([part.counts for _, part in parts])
    noisy = weights + discrete_gaussians(chosen.scale, [len(part) for _, part in parts], sources)
    selected = (noisy >= chosen.threshold) & (weights > 0)
    last = number + 1 == len(plan.rounds)
    open_ = np.zeros(len(weights), np.bool_) if last else noisy >= plan.hopeless
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
