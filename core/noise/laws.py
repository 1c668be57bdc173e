"""The law of the noise on a released number, in floats: for decoders, which come after the release.

===========  =====================================================================================
Laplace      P(Z = z) = (1 − t)/(1 + t)·t^|z|, t = e^(−1/scale)
Gaussian     P(Z = z) ∝ exp(−z²/(2·scale²)) on the integers (Canonne, Kamath, Steinke 2020)
table        P(Z = z) as listed, on finitely many integers; it need not be symmetric
===========  =====================================================================================

A `Noise` gives its own (`Noise.law`). Nothing here is on the way to a release: there are the exact samplers and tails.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError

__all__ = ["GaussianLaw", "LaplaceLaw", "NoiseLaw", "TableLaw"]

Floats = NDArray[np.float64]

_MANY = 30  # from this many terms on a sum of noises is normal for every purpose here
_GRID = 1 << 16  # points of a Gaussian's table; a larger scale is tabulated on a coarser grid
_REACH = 38.0  # where a Gaussian's table ends, in scales: e^(−38²/2) is the smallest double


class NoiseLaw(ABC):
    """Integer noise Z, symmetric unless a law says otherwise. Methods take arrays of whole numbers, as floats."""

    #: E Z
    mean = 0.0

    def __init__(self, scale: float) -> None:
        if not 0.0 < scale < np.inf:
            raise ParameterError(f"NoiseLaw: scale must be positive and finite, got {scale!r}")
        self.scale = scale

    @abstractmethod
    def pmf(self, at: Floats) -> Floats:
        """Return P(Z = at)."""

    @abstractmethod
    def tail(self, at: Floats) -> Floats:
        """Return P(Z ≥ at)."""

    def below(self, at: Floats) -> Floats:
        """Return P(Z < at), with all digits where it is small."""
        return self.tail(1.0 - at)

    def beyond(self, at: Floats) -> tuple[Floats, Floats, Floats]:
        """Return P[Z ≥ at], E[Z; Z ≥ at] and E[Z²; Z ≥ at]."""
        raise ParameterError("NoiseLaw: this noise is not one of lists that pass on")

    @property
    @abstractmethod
    def variance(self) -> float:
        """Var Z."""

    @abstractmethod
    def radius(self, level: float) -> int:
        """Return the smallest c with P(|Z| ≤ c) ≥ level."""

    @abstractmethod
    def log_moment(self, at: float) -> float:
        """Return ln E[e^(at·Z)]; infinite where it does not exist."""

    @abstractmethod
    def wave(self, at: Floats) -> Floats:
        """Return E[e^(i·at·Z)], which is real."""

    @abstractmethod
    def selected(self, values: Floats, cut: int) -> Floats:
        """Return c(v) with E[c(x + Z)] = E[Z; x + Z ≥ cut] for every x: the mean bias of selecting by v ≥ cut."""

    def interval(self, level: float, terms: int = 1) -> float:
        """Return the half-width of an interval around its mean that covers the sum of ``terms`` noises at ``level``, or
        more.
        """
        if terms == 1:
            return float(self.radius(level))
        if terms >= _MANY:
            return NormalDist().inv_cdf(0.5 + level / 2.0) * math.sqrt(terms * self.variance)
        target = math.log(2.0 / (1.0 - level))  # Chernoff
        steps = (step / 200.0 / self.scale for step in range(1, 200))
        return min((target + terms * self.log_moment(at)) / at for at in steps)


class LaplaceLaw(NoiseLaw):
    """Discrete Laplace noise of scale b."""

    def __init__(self, scale: float) -> None:
        super().__init__(scale)
        self.ratio = math.exp(-1.0 / scale)

    def pmf(self, at: Floats) -> Floats:
        t = self.ratio
        with np.errstate(under="ignore"):
            return np.asarray((1.0 - t) / (1.0 + t) * np.power(t, np.abs(at)))

    def tail(self, at: Floats) -> Floats:
        t = self.ratio
        with np.errstate(under="ignore"):
            far = np.power(t, np.where(at >= 1, at, 1.0 - at)) / (1.0 + t)
        return np.asarray(np.where(at >= 1, far, 1.0 - far))

    def beyond(self, at: Floats) -> tuple[Floats, Floats, Floats]:
        t, far = self.ratio, np.where(at >= 1, at, 1.0 - at)
        more = t / max(1.0 - t, 1e-300)  # mean and mean square of what is beyond, a geometric number
        square = more * (1.0 + t) / max(1.0 - t, 1e-300)
        chance = self.tail(far)
        first, second = chance * (far + more), chance * (far**2 + 2.0 * far * more + square)
        return (
            np.where(at >= 1, chance, 1.0 - chance),
            first,
            np.where(at >= 1, second, self.variance - second),
        )

    @property
    def variance(self) -> float:
        return 2.0 * self.ratio / max((1.0 - self.ratio) ** 2, 1e-300)

    def radius(self, level: float) -> int:
        # P(|Z| > c) = 2t^(c+1)/(1 + t)
        t = self.ratio
        if t <= 0.0:
            return 0
        rest = np.log(max((1.0 - level) * (1.0 + t) / 2.0, 1e-300)) / np.log(t)
        return max(0, int(np.ceil(rest - 1.0 - 1e-12)))

    def wave(self, at: Floats) -> Floats:
        away = math.expm1(-1.0 / self.scale) ** 2  # (1 − t)², with all digits where t is near 1
        return np.asarray(away / (away + 4.0 * self.ratio * np.sin(at / 2.0) ** 2))

    def selected(self, values: Floats, cut: int) -> Floats:
        # Both sides are A·t^|a|·(linear in |a|) about cut − ½, a = cut − x; equal at a = 1.
        t = self.ratio
        away = np.where(values >= cut, values - cut, cut - 1 - values)
        with np.errstate(under="ignore"):
            return np.asarray(t / (1.0 - t) * np.power(t, away))

    def log_moment(self, at: float) -> float:
        t = self.ratio
        if t * math.exp(abs(at)) >= 1.0:
            return math.inf
        return 2.0 * math.log1p(-t) - math.log1p(-t * math.exp(at)) - math.log1p(-t * math.exp(-at))


class GaussianLaw(NoiseLaw):
    """Discrete Gaussian noise of parameter σ, from a table of its tail."""

    @cached_property
    def _tails(self) -> tuple[Floats, Floats]:
        """Points 0, step, 2·step, … and P(Z ≥ point) there; exact sums where the step is 1."""
        last = math.ceil(_REACH * self.scale) + 2.0
        step = max(1.0, math.ceil(last / _GRID))
        at = np.arange(0.0, last + step, step)
        if step == 1.0:
            with np.errstate(under="ignore"):
                weight = np.exp(-0.5 * (at / self.scale) ** 2)
            over = np.cumsum(weight[::-1])[::-1]
            return at, over / (2.0 * over[0] - 1.0)
        root = self.scale * math.sqrt(2.0)  # a sum over integers is an integral from half a step before
        return at, np.array([0.5 * math.erfc((point - 0.5) / root) for point in at])

    def pmf(self, at: Floats) -> Floats:
        with np.errstate(under="ignore"):
            weight = np.exp(-0.5 * (np.abs(at) / self.scale) ** 2)
        return np.asarray(weight / self._whole)

    @cached_property
    def _whole(self) -> float:
        """Σ exp(−z²/2σ²); σ√(2π) to all digits from σ = 4 on (Poisson summation)."""
        if self.scale >= 4.0:
            return self.scale * math.sqrt(2.0 * math.pi)
        return 1.0 + 2.0 * sum(math.exp(-0.5 * (z / self.scale) ** 2) for z in range(1, 160))

    def tail(self, at: Floats) -> Floats:
        points, over = self._tails
        far = np.interp(np.where(at >= 1, at, 1.0 - at), points, over, right=0.0)
        return np.asarray(np.where(at >= 1, far, 1.0 - far))

    @cached_property
    def variance(self) -> float:
        if self.scale >= 4.0:
            return self.scale**2
        z = np.arange(-160.0, 161.0)
        return float(self.pmf(z) @ z**2)

    def radius(self, level: float) -> int:
        points, over = self._tails  # the first point c + 1 with 2·P(Z ≥ c + 1) ≤ 1 − level
        return max(0, int(points[int(np.argmax(over <= (1.0 - level) / 2.0 + 1e-15))]) - 1)

    def wave(self, at: Floats) -> Floats:
        if self.scale >= 4.0:
            return np.asarray(np.exp(-0.5 * (at * self.scale) ** 2))
        z = np.arange(-160.0, 161.0)
        return np.asarray(np.cos(np.multiply.outer(at, z)) @ self.pmf(z))

    def selected(self, values: Floats, cut: int) -> Floats:
        # Σ_{z ≥ a} z·e^(−z²/2σ²) telescopes up to the trapezium's error, below 1e−3·σ from σ = 2 on.
        return np.where((values == cut) | (values == cut - 1), self.variance / 2.0, 0.0)

    def log_moment(self, at: float) -> float:
        return 0.5 * (at * self.scale) ** 2  # at most that of the continuous Gaussian


class TableLaw(NoiseLaw):
    """Noise on the integers from ``first`` on, by tables of P(Z = z), P(Z ≥ z) and P(Z < z)."""

    def __init__(self, scale: float, first: int, mass: Floats, tails: Floats, below: Floats) -> None:
        super().__init__(scale)
        self.values = first + np.arange(float(len(mass)))
        self._mass, self._tails = np.append(mass, 0.0), np.append(tails, 0.0)
        self._below = np.append(below, 1.0)
        self.mean = float(mass @ self.values)

    def _place(self, at: Floats) -> NDArray[np.int64]:
        """Return the place of a number in the tables; numbers above all values have the last."""
        return np.asarray(np.clip(at - self.values[0], 0, len(self.values)), np.int64)

    def pmf(self, at: Floats) -> Floats:
        return np.where(at < self.values[0], 0.0, self._mass[self._place(at)])

    def tail(self, at: Floats) -> Floats:
        return self._tails[self._place(at)]

    def below(self, at: Floats) -> Floats:
        return self._below[self._place(at)]

    def beyond(self, at: Floats) -> tuple[Floats, Floats, Floats]:
        place, mass = self._place(at), self._mass[:-1]
        sums = [np.append(np.cumsum((mass * self.values**power)[::-1])[::-1], 0.0) for power in (1, 2)]
        return self._tails[place], sums[0][place], sums[1][place]

    @cached_property
    def variance(self) -> float:
        return float(self._mass[:-1] @ (self.values - self.mean) ** 2)

    def radius(self, level: float) -> int:
        return int(self._within(0.0, level))

    def interval(self, level: float, terms: int = 1) -> float:
        return self._within(self.mean, level) if terms == 1 else super().interval(level, terms)

    def _within(self, center: float, level: float) -> float:
        """Return the smallest distance from ``center`` within which Z lies with probability ``level``."""
        away = np.abs(self.values - center)
        order = np.argsort(-away, kind="stable")
        outside = np.cumsum(self._mass[order])  # from the farthest value on
        return float(
            away[order[min(int(np.searchsorted(outside, 1.0 - level, side="right")), len(order) - 1)]]
        )

    def wave(self, at: Floats) -> Floats:
        raise ParameterError("NoiseLaw: this noise is on listed counts alone")  # E[e^(i·at·Z)] is not real

    def selected(self, values: Floats, cut: int) -> Floats:
        # Right far from the cut, and in the sum over all x: Σ_x E[Z − E Z; x + Z ≥ cut] = Var Z.
        edge = np.where((values == cut) | (values == cut - 1), self.variance / 2.0, 0.0)
        return np.asarray(edge + self.mean * (values >= cut))

    def log_moment(self, at: float) -> float:
        """Of Z − E Z, the larger one of both signs."""
        turned = at * (self.values - self.mean)
        return max(math.log(self._mass[:-1] @ np.exp(sign * turned)) for sign in (1.0, -1.0))
