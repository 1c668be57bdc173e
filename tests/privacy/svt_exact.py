"""Exact output probabilities of sparse-vector mechanisms on tiny inputs, and their worst privacy loss.

The model is written from the papers and shares no code with the package. A mechanism is described by the
laws of its noise and by what a yes-answer shows. For streams of n queries whose answers lie in a small set
of values, the probability of one output is a tensor over all answer vectors at once: the product over
queries of a matrix (answer value × noisy threshold), summed over the threshold. The worst loss is the
largest log-ratio between entries of that tensor whose answer vectors are neighbours.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

BOTTOM, TOP, HALT = "⊥", "⊤", "halted"


class Laplace:
    """Discrete Laplace of scale b, P(z) ∝ q^|z|; both tails by formula, so that small ones stay exact."""

    def __init__(self, scale):
        self.rate = 1 / float(scale)
        self.q = np.exp(-self.rate)
        self.window = int(np.ceil(45 / self.rate)) + 8  # leaves out e^-45 of the mass

    def pmf(self, z):
        return (1 - self.q) / (1 + self.q) * np.exp(-self.rate * np.abs(z))

    def at_least(self, z):
        high = np.exp(-self.rate * np.maximum(z, 1)) / (1 + self.q)
        low = 1 - np.exp(-self.rate * (1 - np.minimum(z, 0))) / (1 + self.q)
        return np.where(z >= 1, high, low)

    def below(self, z):
        high = 1 - np.exp(-self.rate * np.maximum(z, 1)) / (1 + self.q)
        low = np.exp(-self.rate * (1 - np.minimum(z, 0))) / (1 + self.q)
        return np.where(z >= 1, high, low)


class OneSided:
    """Geometric noise on {0, 1, …} of a given scale, moved by a public number; ``down`` mirrors it: not private."""

    def __init__(self, scale, shift=0, *, down=False):
        self.rate, self.shift, self.down = 1 / float(scale), shift, down
        self.window = int(np.ceil(45 / self.rate)) + 8 + abs(shift)

    def pmf(self, z):
        z = (z - self.shift) * (-1 if self.down else 1)
        return np.where(z >= 0, -np.expm1(-self.rate) * np.exp(-self.rate * np.maximum(z, 0)), 0.0)

    def at_least(self, z):
        z = z - self.shift
        if self.down:
            return np.where(z > 0, 0.0, -np.expm1(-self.rate * (1 - np.minimum(z, 0))))
        return np.exp(-self.rate * np.maximum(z, 0))

    def below(self, z):
        z = z - self.shift
        if self.down:
            return np.where(z > 0, 1.0, np.exp(-self.rate * (1 - np.minimum(z, 0))))
        return -np.expm1(-self.rate * np.maximum(z, 0))


def laws_of(noise, factor=1.0):
    """The laws of threshold and query noise that the code draws from, at ``factor`` times their scales."""
    scales = (float(scale) * factor for scale in (noise.threshold, noise.query))
    if not noise.one_sided:
        return tuple(Laplace(scale) for scale in scales)
    threshold, query = scales
    return OneSided(threshold, noise.shift), OneSided(query)


class Finite:
    """Any law on −w..w, given by its probabilities: for comparing model and code by brute force."""

    def __init__(self, probabilities):
        self.p = np.asarray(probabilities, dtype=float)
        self.window = len(self.p) // 2

    def pmf(self, z):
        inside = np.abs(z) <= self.window
        return np.where(inside, self.p[np.clip(z + self.window, 0, len(self.p) - 1)], 0.0)

    def at_least(self, z):
        tail = np.append(np.cumsum(self.p[::-1])[::-1], 0.0)
        return tail[np.clip(z + self.window, 0, len(self.p))]

    def below(self, z):
        return 1 - self.at_least(z)


ZERO = Finite([1.0])  # no noise at all


@dataclass
class Model:
    """A sparse-vector mechanism as a paper states it; T = 0, answers are relative to it."""

    threshold: object
    query: object
    cutoff: int
    redraw: bool
    shows: str = "none"  # none | gap | numeric (fresh noise) | reused (f + ν itself)
    value: object = None
    top_window: range = field(default_factory=lambda: range(4))  # gaps or values looked at

    def symbols(self):
        if self.shows == "none":
            return [(TOP,)]
        if self.shows == "both":
            return [(TOP, gap, value) for gap in range(2) for value in self.top_window]
        return [(TOP, shown) for shown in self.top_window]

    def outputs(self, n: int) -> Iterator[tuple]:
        """Every output of n queries: after ``cutoff`` yes-answers the rest is halted."""
        for output in itertools.product([(BOTTOM,), *self.symbols()], repeat=n):
            tops = [i for i, s in enumerate(output) if s[0] == TOP]
            if len(tops) < self.cutoff:
                yield output
            elif len(tops) == self.cutoff:  # what follows is ⊥ in the product, each such output once
                yield (*output[: tops[-1] + 1], *[(HALT,)] * (n - tops[-1] - 1))

    def factor(self, symbol, values, t):
        """P[this symbol | answer, noisy threshold t] as a matrix (answers × thresholds)."""
        f, t = values[:, None], t[None, :]
        if symbol[0] == BOTTOM:
            return self.query.below(t - f)
        if self.shows == "none":
            return self.query.at_least(t - f)
        if self.shows == "gap":
            return self.query.pmf(t + symbol[1] - f)
        if self.shows == "both":
            return self.query.pmf(t + symbol[1] - f) * self.value.pmf(symbol[2] - f)
        if self.shows == "numeric":
            return self.query.at_least(t - f) * self.value.pmf(symbol[1] - f)
        return self.query.pmf(symbol[1] - f) * (symbol[1] >= t)  # reused: the noisy answer itself

    def probabilities(self, output, values) -> np.ndarray:
        """P[output | answers] for every answer vector: a tensor with one axis per query."""
        values = np.asarray(values)
        w = self.threshold.window
        t = np.arange(-w, w + 1)
        weight = self.threshold.pmf(t)
        tensor = np.ones(())
        for segment in self._segments(output):
            part = weight
            for symbol in segment:
                part = part[..., None, :] * self.factor(symbol, values, t)
            tensor = np.multiply.outer(tensor, part.sum(axis=-1))
        halted = sum(symbol[0] == HALT for symbol in output)
        return np.multiply.outer(tensor, np.ones((len(values),) * halted))

    def _segments(self, output):
        live = [symbol for symbol in output if symbol[0] != HALT]
        if not self.redraw:
            return [live] if live else []
        segments, current = [], []
        for symbol in live:
            current.append(symbol)
            if symbol[0] == TOP:
                segments.append(current)
                current = []
        return [*segments, current] if current else segments


def shifts(n: int, sensitivity: int, monotone: bool) -> list[tuple[int, ...]]:
    """All differences of neighbouring answer vectors."""
    every = itertools.product(range(-sensitivity, sensitivity + 1), repeat=n)
    return [d for d in every if not monotone or all(x >= 0 for x in d) or all(x <= 0 for x in d)]


def moved(tensor: np.ndarray, shift: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The parts of a tensor over D and over D' = D + shift that lie inside the set of values."""
    here = tuple(slice(max(0, -d), len(tensor) - max(0, d)) for d in shift)
    there = tuple(slice(max(0, d), len(tensor) - max(0, -d)) for d in shift)
    return tensor[here], tensor[there]


def worst_loss(model: Model, n: int, values, sensitivity: int = 1, monotone: bool = False) -> float:
    """max ln P[output | D] / P[output | D'] over all outputs and neighbouring vectors of length n."""
    differences = shifts(n, sensitivity, monotone)
    worst = 0.0
    for output in model.outputs(n):
        with np.errstate(divide="ignore"):
            logs = np.log(model.probabilities(output, values))
        possible = bool(np.isfinite(logs).all())
        for shift in differences:
            here, there = moved(logs, shift)
            if not possible:  # an output that cannot happen on D loses nothing there
                there = np.where(np.isfinite(here), there, 0.0)
            worst = max(worst, float((here - there).max(initial=0.0)))
    return worst


def worst_delta(
    model: Model, n: int, values, epsilon: float, sensitivity: int = 1, monotone: bool = False
) -> float:
    """max Σ_output (P[output | D] − e^ε P[output | D'])⁺: the δ that the mechanism needs at this ε."""
    tensors = np.stack([model.probabilities(output, values) for output in model.outputs(n)])
    worst = 0.0
    for shift in shifts(n, sensitivity, monotone):
        pairs = [moved(p, shift) for p in tensors]
        excess = sum(np.maximum(here - np.exp(epsilon) * there, 0) for here, there in pairs)
        worst = max(worst, float(excess.max(initial=0.0)))
    return worst
