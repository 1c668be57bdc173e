"""Decoders that need no prior: the paper's argmax, and an unbiased estimate.

**argmax** (Aumüller, Lebeda, Pagh 2021, Alg. 2): f(n) = Σ_{a ≤ n} (2z_a − 1); the average of all n in 0
… m that maximise f, times the level width. A listed key returns its value.

**unbiased** ★: each column gives ẑ_b = (z_b − q_b)/(1 − p − q_b), where q_b is the share of ones in the
column, and E ẑ_b = P(y ≥ b | x), so w·Σ_b ẑ_b has mean min(x, bound) whatever x is. For what lies above
the bound: with v = x + Z and discrete Laplace Z, a function h of x has the unbiased estimate h(v) −
κ·(h(v+1) − 2h(v) + h(v−1)), κ = t/(1 − t)². For h(x) = max(x − bound, 0) that is v − bound above the
bound, −κ at v = bound, and 0 below, so it needs listed values only. The sum of both is exactly
unbiased, the selection by the threshold included. Values at least SURE noise scales above the bound
leave the bits out, since x is then above the bound but for a chance below e^−SURE: the bias that this
adds is below 0.002 noise scales.
"""

from __future__ import annotations

import numpy as np

from hushgram.decoding.channel import Channel
from hushgram.decoding.released import Floats, Ints

__all__ = ["argmax", "argmax_levels", "unbiased"]

SURE = 5.0


def argmax_levels(bits: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Floats:
    """(D, m) bits → Algorithm 2's estimates of y: the average of all maximisers of the walk."""
    walk = np.zeros((bits.shape[0], bits.shape[1] + 1), dtype=np.int32)
    np.cumsum(np.where(bits != 0, 1, -1), axis=1, out=walk[:, 1:])
    peak = walk == walk.max(axis=1, keepdims=True)
    return np.asarray((peak @ np.arange(walk.shape[1])) / peak.sum(axis=1))


def argmax(channel: Channel, words: Ints) -> Floats:
    """(D,) packed patterns → Algorithm 2's estimates of x."""
    bits = (words[:, None] >> np.arange(channel.levels)) & 1
    return argmax_levels(bits) * channel.released.width


def unbiased(
    channel: Channel, words: Ints, values: Ints, listed: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> tuple[Floats, Floats]:
    """Estimates that may be negative, and estimates of their variances.

    ``values`` is read where ``listed``. The variance covers randomized response, rounding (at its
    largest, w²/4) and the noise of the threshold part.
    """
    released = channel.released
    width, below = released.width, channel.set_below
    estimate = np.zeros(len(words))
    variance = np.full(len(words), width**2 / 4.0 if channel.levels else 0.0)
    for level in range(channel.levels):
        above = float(channel.set_above[level])
        reached = (((words >> level) & 1) - above) / (below - above)
        estimate += width * reached
        spread = above * (1.0 - above) + reached * (below * (1.0 - below) - above * (1.0 - above))
        variance += width**2 * spread / (below - above) ** 2
    over = np.where(listed, values - released.bound, 0).astype(np.float64)
    sure = listed & (over >= SURE * released.noise)
    estimate += np.where(listed & (over <= 0), -channel.variance / 2.0, over)
    variance += np.where(listed, channel.variance + np.where(over <= 0, channel.variance**2 / 4.0, 0.0), 0.0)
    estimate = np.where(sure, np.where(listed, values, 0), estimate)
    return estimate, np.where(sure, channel.variance, variance)
