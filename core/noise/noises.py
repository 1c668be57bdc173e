"""The noises that can be added to counts: one module each, found by its name in configs and manifests.

A noise is log-concave, on the integers and, but for those that are for one key per user, symmetric. Its module has
one object `NOISE` of class `Noise`, and a new noise is that module and one line of `NOISES`.

| symbol | meaning |
|---|---|
| Z | one draw |
| scale | b of the Laplace distribution, σ of the Gaussian; exact, so that name and scale say all |
| C, L∞ | most that one user (or record) adds in all, and to one count |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.noise.entropy import BitSource
from hushgram.noise.laws import NoiseLaw
from hushgram.sensitivity import Sensitivity

__all__ = ["NOISES", "Noise", "noise_of"]

#: The name of each noise and the module that defines it.
NOISES = {
    "laplace": "hushgram.noise.laplace",
    "gaussian": "hushgram.noise.gaussian",
    "truncated_geometric": "hushgram.noise.truncated_geometric",
}


class Noise(ABC):
    """One distribution: its privacy map, exact sampler and tail, and its law for decoders."""

    #: the name in configs and manifests
    name: str
    #: whether it is for key selection where a user adds 1 to one key, and for nothing else
    one_key = False
    #: the largest scale that samplers and tails take, and one below any that an ε of at most 100 asks for
    max_scale = 1 << 34
    min_scale = Fraction(1, 256)

    @property
    def title(self) -> str:
        """Return the name in texts."""
        return f"discrete {self.name.capitalize()}"

    def with_delta(self, delta: Fraction) -> Noise:
        """Return the noise for a release of this δ, where its distribution depends on it."""
        return self

    @abstractmethod
    def scales(
        self, epsilons: tuple[Fraction, ...], delta: Fraction, sensitivity: Sensitivity
    ) -> tuple[Fraction, ...]:
        """Return scales for vectors of counts that are released together, the i-th for about its part of ε."""

    @abstractmethod
    def privacy_map(
        self, scales: tuple[Fraction, ...], epsilon: Fraction, sensitivity: Sensitivity
    ) -> Fraction:
        """Return an upper bound of δ at ``epsilon`` for vectors of counts with these scales, released together."""

    def plausible(self, scale: Fraction, epsilon: Fraction, sensitivity: Sensitivity) -> bool:
        """Return whether a sketch may state this scale for a vector with this part of ε: a check of plausibility."""
        return self.in_range(scale)

    def in_range(self, scale: Fraction) -> bool:
        """Return whether any release can have noise of this scale."""
        return self.min_scale <= scale <= self.max_scale

    @abstractmethod
    def variance(self, scale: Fraction) -> Fraction:
        """Return Var Z, or a little more."""

    @abstractmethod
    def sample(self, scale: Fraction, size: int, source: BitSource) -> NDArray[np.int64]:
        """Draw ``size`` independent integers, exactly."""

    @abstractmethod
    def tail(self, scale: Fraction, at: int) -> Callable[[Any], Any]:
        """Enclose P[Z ≥ at] at the precision of mpmath's ``iv``; one object for equal arguments."""

    @abstractmethod
    def sample_tail(self, scale: Fraction, at: int, size: int, source: BitSource) -> NDArray[np.int64]:
        """Draw ``size`` integers of Z given Z ≥ at, exactly, for at ≥ 1."""

    @abstractmethod
    def law(self, scale: float) -> NoiseLaw:
        """Return the distribution in floats, for decoders, which come after the release."""


@cache
def noise_of(name: str, delta: Fraction = Fraction(0)) -> Noise:
    """Return the noise of this name, for a release of this δ.

    >>> noise_of("laplace").name
    'laplace'
    """
    if name not in NOISES:
        raise ParameterError(f"noise {str(name)[:40]!r} is not known here; {', '.join(NOISES)} are")
    found: Noise = import_module(NOISES[name]).NOISE
    return found.with_delta(delta)
