"""Randomized response for linear queries: the local model.

Each record holds one or more secret bits. Every bit is flipped with probability p before it leaves the
worker that read it; the table of flipped bits is released, and any number of linear queries over it cost
nothing more.

Released: Y_i = x_i ⊕ Bernoulli(p), p = 1/(1 + e^ε₀), for every record. Guarantee: each record's bits are
ε-locally private, ε = (secret bits of a record)·ε₀: for any two values of a record, P[Y | x] ≤ e^ε·P[Y | x'].
Neighbours here are tables that differ in the secret bits of one record. That a record exists, how many
there are, and every column that is published beside the bits are **not** hidden.
Source: Wang, Lecture 3, §3.4.

Why it holds for the whole table, and not for its bits alone: let r_i be the public columns of record i and x_i its
secret bits. The table is f(k, {(r_1, Y_1), …, (r_n, Y_n)}), a function of the multiset of released rows and of a key k
that is independent of the records (`rows`). So for every k

    P[table | x] = Σ Π_i P[Y_i = y_i | x_i]     over all (y_1, …, y_n) that f maps to this table:

a sum of products of randomized responses, in which x_i stands in one factor. Changing it changes each term, and so the
sum, by a factor of at most e^ε. This needs two things of the readers (`Source.secrets`, `rows`): which
records there are and their r_i do not follow from any x_j, and x_i follows from the secret columns of record i alone,
whatever they hold. `randomize` by itself keeps the order of its bits; who publishes its result in that order publishes
the order, which must not follow from secrets.

Answers (post-processing, free): x̂_i = (Y_i − p)/(1 − 2p) is unbiased, so Σ w_i·x̂_i is for Σ w_i·x_i. By
Hoeffding's inequality, as w_i·x̂_i lies in an interval of length w_i/(1 − 2p),

    |Σ w_i x̂_i − Σ w_i x_i| ≤ √(Σ w_i²·ln(2k/β)/2)/(1 − 2p)     for k queries, with probability 1 − β.

| symbol | name |
|---|---|
| ε₀ | bit_epsilon |
| p | flip probability |
| w | weights, from 0 to 1 |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgram.errors import ParameterError
from hushgram.noise.entropy import BitSource
from hushgram.noise.intervals import Digits, geometric_digit
from hushgram.noise.sampling import flip_bits
from hushgram.numbers import Number, integer, positive, rational, show

__all__ = [
    "RandomizedResponseParams", "ResponseEstimate", "answer", "estimate", "hoeffding", "privacy_map",
    "randomize",
]  # fmt: skip

# Beyond this a flip would happen less than once in 10^13 bits: a typing error rather than a wish for privacy.
_MAX_EPSILON = 30


@dataclass(frozen=True, init=False)
class RandomizedResponseParams:
    """ε of one record, split evenly over its secret bits.

    Neighbours: tables that differ in the secret bits of one record; all ``secrets`` of them may change.

    >>> round(RandomizedResponseParams(1).flip, 4)
    0.2689
    """

    epsilon: Fraction
    secrets: int

    def __init__(self, epsilon: Number, *, secrets: int = 1) -> None:
        owner, put = "RandomizedResponseParams", object.__setattr__
        put(self, "epsilon", positive(epsilon, "epsilon", owner))
        put(self, "secrets", integer(secrets, "secrets", owner, low=1, high=1000))
        if self.bit_epsilon > _MAX_EPSILON:
            raise ParameterError(
                f"{owner}: epsilon must be at most {_MAX_EPSILON} for each bit, got {show(self.epsilon)}"
            )

    @property
    def bit_epsilon(self) -> Fraction:
        """ε₀: what one bit gets."""
        return self.epsilon / self.secrets

    @property
    def probability(self) -> Digits:
        """p = 1/(1 + e^ε₀), to as many digits as a draw asks for."""
        return geometric_digit(self.bit_epsilon, 0)

    @property
    def flip(self) -> float:
        """p, for decoding."""
        return 1 / (1 + math.exp(float(self.bit_epsilon)))


def privacy_map(params: RandomizedResponseParams, bits: int) -> Fraction:
    """Return the ε between two tables that differ in ``bits`` bits of one record: ε₀ for each.

    >>> privacy_map(RandomizedResponseParams(1, secrets=4), 2)
    Fraction(1, 2)
    """
    return params.bit_epsilon * bits


def randomize(
    bits: NDArray[np.bool_], params: RandomizedResponseParams, source: BitSource
) -> NDArray[np.bool_]:
    """Flip each bit of a column of secret bits with probability exactly p. Released.

    Args:
        bits: the secret bits, one per record; their order is kept.
        params: ε of a record, and the number of secrets that share it.
        source: where random bits come from.
    """
    packed = np.packbits(np.asarray(bits, dtype=np.bool_), bitorder="little")
    flipped = flip_bits(packed, params.probability, source)
    return np.unpackbits(flipped, count=len(bits), bitorder="little").view(np.bool_)


@dataclass(frozen=True)
class ResponseEstimate:
    """An unbiased answer and an interval that holds with the stated confidence, whatever the secrets are."""

    estimate: float
    low: float
    high: float
    confidence: float

    @property
    def margin(self) -> float:
        """Return half the length of the interval."""
        return (self.high - self.low) / 2


def hoeffding(
    squares: float, params: RandomizedResponseParams, confidence: Number = "0.95", queries: int = 1
) -> float:
    """Return half the length of the interval of an answer.

    Args:
        squares: Σ w_i² of the query's weights; for a count, the number of records.
        params: ε of a record, and the number of secrets that share it.
        confidence: probability that the interval holds.
        queries: for how many queries it holds at once.
    """
    level = float(rational(confidence, "confidence", "hoeffding"))
    if not 0 < level < 1:
        raise ParameterError(f"hoeffding: confidence must be between 0 and 1, got {level:g}")
    if queries < 1:
        raise ParameterError(f"hoeffding: queries must be at least 1, got {queries}")
    return math.sqrt(squares * math.log(2 * queries / (1 - level)) / 2) / (1 - 2 * params.flip)


def answer(
    released: NDArray[np.bool_],
    weights: ArrayLike | None,
    params: RandomizedResponseParams,
    *,
    confidence: Number = "0.95",
    queries: int = 1,
) -> ResponseEstimate:
    """Estimate Σ w_i·x_i from released bits; without ``weights`` every record has 1.

    The interval is cut to [0, Σ w_i], where every true answer lies; the value is not, so that it stays unbiased.

    Args:
        released: the released bits, one per record.
        weights: a number from 0 to 1 per record.
        params: the parameters that the bits were released with.
        confidence: probability that the interval holds.
        queries: for how many queries it holds at once.

    >>> yes = np.ones(1000, dtype=bool)
    >>> answer(yes, None, RandomizedResponseParams(30)).estimate.__round__(6)
    1000.0
    """
    bits = np.asarray(released, dtype=np.bool_)
    return estimate(*_sums(bits, weights), params, confidence=confidence, queries=queries)


def estimate(
    whole: float,
    squares: float,
    lit: float,
    params: RandomizedResponseParams,
    *,
    confidence: Number,
    queries: int,
) -> ResponseEstimate:
    """Estimate from Σ w, Σ w² and Σ w·Y."""
    flip = params.flip
    value = (lit - flip * whole) / (1 - 2 * flip)
    margin = hoeffding(squares, params, confidence, queries)
    low, high = (min(max(end, 0.0), whole) for end in (value - margin, value + margin))
    return ResponseEstimate(value, low, high, float(rational(confidence, "confidence", "answer")))


def _sums(bits: NDArray[np.bool_], weights: ArrayLike | None) -> tuple[float, float, float]:
    """Return Σ w, Σ w², Σ w·Y."""
    if weights is None:
        return float(len(bits)), float(len(bits)), float(np.count_nonzero(bits))
    given = np.asarray(weights, dtype=np.float64)
    if given.shape != bits.shape:
        raise ParameterError(f"answer: {len(bits)} records but {given.size} weights")
    if not ((given >= 0) & (given <= 1)).all():
        raise ParameterError("answer: weights must be from 0 to 1")
    return float(given.sum()), float((given * given).sum()), float(given[bits].sum())
