"""Forecast which keys weighted key selection names, and the limit that no method can pass. Public numbers alone.

A key with n users has the expected weight n·w, where w is the mean weight that a user gives to one of its keys. A
record belongs to a user with d keys in proportion to how many users have d keys and to d itself; of d keys Δ are
weighed, with 1/√min(d, Δ) each. In the second round a user has d·f keys, f being the expected share of records of keys
that are neither selected nor hopeless. The noise is normal.

That treats all keys alike. Where rare keys belong to the most active users, as on the web, fewer keys are named: 10 to
15 % on `benchmarks.users`. A forecast is for plans; no release depends on it.

**The limit.** Let p_n be the probability that a key of n users is named. One user more makes at most e^ε·p + δ of p,
and a key without users is never named. So p_n ≤ δ(e^{nε} − 1)/(e^ε − 1) for every (ε, δ)-DP method (Desfontaines, Voss,
Gipson, Mandayam 2022), which is ½ at `users_for_half` users.

| symbol | meaning |
|---|---|
| n, d | users of a key; keys of a user |
| Δ, ρ, σ, θ | ``max_keys``, thresholds, noise scales and ``hopeless`` of a `SelectionPlan` |
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgram.key_selection.rounds import SelectionPlan
from hushgram.key_selection.weighted import WHOLE

__all__ = ["KeysPerUser", "SelectionForecast", "most_chances", "users_for_half", "zipf_exponent"]

Floats = NDArray[np.float64]

# Of erfc(z)·e^(z²)/t as an exponential, t = 1/(1 + z/2), from t^0 on: a relative error below 1.2·10^-7 (Numerical
# Recipes, section 6.2).
_ERFC = (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223,
    0.17087277,
)  # fmt: skip
_FIRST_RANKS = 50


@dataclass(frozen=True)
class KeysPerUser:
    """How many users have how many keys; means where nothing else is known."""

    users: Floats
    keys: Floats

    @property
    def mean(self) -> float:
        """Return the mean number of keys per user."""
        return float(self.users @ self.keys / self.users.sum())

    def mean_weight(self, max_keys: int, open_share: float = 1.0) -> float:
        """Return the mean weight of a key of a user, over all keys of all users; 1 is a user with one key.

        Args:
            max_keys: how many keys of a user are weighed.
            open_share: share of its keys that a user has in this round.
        """
        held = np.maximum(self.keys * open_share, 1.0)
        each = np.minimum(1.0, max_keys / held) / np.sqrt(np.minimum(held, max_keys))
        return float((self.users * self.keys) @ each / (self.users @ self.keys))


class SelectionForecast:
    """The probability with which a key of so many users is named."""

    def __init__(self, plan: SelectionPlan, people: KeysPerUser, users: Floats, keys: Floats) -> None:
        """Forecast a selection.

        Args:
            plan: scales and thresholds.
            people: keys per user.
            users: numbers of users of a key that occur.
            keys: how many keys have each of them.
        """
        self._plan = plan
        self._weights: list[float] = []
        held, of_all = users * keys, max(float(users @ keys), 1.0)
        for _ in plan.rounds:  # each has the keys that the rounds before leave open
            share = float(held @ self._rounds(users)[1]) / of_all
            self._weights.append(people.mean_weight(plan.max_keys, share))
        self.named = float(keys @ self.chances(users))

    def chances(self, users: Floats) -> Floats:
        """Return the probability that a key is named, for each of these numbers of users."""
        return self._rounds(users)[0]

    def _rounds(self, users: Floats) -> tuple[Floats, Floats]:
        """Return the probabilities that a key is named, and that it is still open, after the rounds whose weights are
        known."""
        named, open_ = np.zeros(len(users)), np.ones(len(users))
        for number, weight in enumerate(self._weights):
            selected = self._reaches(number, self._plan.rounds[number].threshold, users * weight)
            named = named + open_ * selected
            if number < len(self._plan.hopeless):
                hopeful = self._reaches(number, self._plan.hopeless[number], users * weight)
                open_ = open_ * np.maximum(hopeful - selected, 0.0)
        return named, open_

    def users_for_half(self) -> int:
        """Return about how many users a key needs to be named with probability ½."""
        tried = np.unique(np.geomspace(1, 1e9, 2_000).astype(np.int64))
        enough = np.flatnonzero(self.chances(tried.astype(np.float64)) >= 0.5)
        return int(tried[enough[0]]) if len(enough) else int(tried[-1])

    def _reaches(self, number: int, level: int, weights: Floats) -> Floats:
        scale = float(self._plan.rounds[number].scale) / WHOLE
        return normal_tails((level / WHOLE - weights) / scale)


def normal_tails(x: Floats) -> Floats:
    """Return about P[N(0, 1) ≥ x] of each number."""
    z = np.minimum(np.abs(x), 40.0) / math.sqrt(2.0)
    t = 1.0 / (1.0 + 0.5 * z)
    power = np.zeros_like(z)
    for coefficient in reversed(_ERFC):
        power = power * t + coefficient
    beyond = 0.5 * t * np.exp(power - z * z)
    return np.where(x >= 0.0, beyond, 1.0 - beyond)


def users_for_half(epsilon: float, delta: float) -> float:
    """Return how many users a key needs so that some (ε, δ)-DP method names it with probability ½.

    >>> round(users_for_half(1, 1e-6), 1)
    13.7
    """
    return math.log1p(math.expm1(epsilon) / (2.0 * delta)) / epsilon


def most_chances(users: Floats, epsilon: float, delta: float) -> Floats:
    """Return the largest probability with which an (ε, δ)-DP method can name a key, by its number of users."""
    with np.errstate(over="ignore"):
        return np.asarray(np.minimum(delta * np.expm1(epsilon * users) / math.expm1(epsilon), 1.0))


def zipf_exponent(keys: int, records: int) -> float:
    """Return s with records · keys^−s / Σ i^−s = 1: the rarest key has about one record.

    Beyond the first ranks the sum is about an integral (Euler, Maclaurin).
    """
    logarithms = np.log([*range(1, min(keys, _FIRST_RANKS) + 1), keys])
    ends = logarithms[-2:]  # of the integral
    low, high = 0.0, 8.0
    for _ in range(40):
        middle = (low + high) / 2.0
        *first, last = np.exp(-middle * logarithms).tolist()
        below, upto = (ends if middle == 1.0 else np.exp((1.0 - middle) * ends)).tolist()
        rest = (upto - below) / (1.0 if middle == 1.0 else 1.0 - middle) + (last - first[-1]) / 2.0
        total = sum(first) + rest
        low, high = (middle, high) if records * last / total > 1.0 else (low, middle)
    return (low + high) / 2.0
