"""The noises that can be added to counts: one module each, found by its word in configs and manifests.

A noise is symmetric, log-concave and on the integers. Its module has one object `NOISE` of class `Noise`, and a new
noise is that module and one line of `HOMES`.

| symbol | meaning |
|---|---|
| Z | one draw |
| scale | b of the Laplace distribution, σ of the Gaussian; exact, so that word and scale say all |
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

__all__ = ["HOMES", "Noise", "noise_of"]

#: The word of a noise and the module that holds it.
HOMES = {"laplace": "hushgram.noise.laplace", "gaussian": "hushgram.noise.gaussian"}


class Noise(ABC):
    """One distribution: its privacy map, exact sampler and tail, and its law for decoders."""

    #: the word in configs and manifests
    id: str
    #: how two vectors may divide their ε, by the share of the first: the choices of `split: auto`
    shares: tuple[Fraction, ...]
    #: bits that a draw of scale 1 takes in a short code, about; one more for each doubling of the scale
    bits_at_one: Fraction
    #: the largest scale that samplers and tails take, and one below any that an ε of at most 100 asks for
    most_scale = 1 << 34
    least_scale = Fraction(1, 256)

    @abstractmethod
    def split_delta(self, delta: Fraction) -> tuple[Fraction, Fraction]:
        """(δ of the noise itself, δ left for a threshold), which add up to ``delta``."""

    @abstractmethod
    def scales(
        self, epsilons: tuple[Fraction, ...], delta: Fraction, sensitivity: Sensitivity
    ) -> tuple[Fraction, ...]:
        """Scales for vectors of counts that are released together, the i-th for about its part of ε."""

    @abstractmethod
    def holds(
        self,
        scales: tuple[Fraction, ...],
        epsilons: tuple[Fraction, ...],
        delta: Fraction,
        sensitivity: Sensitivity,
    ) -> bool:
        """Privacy map, pure: whether such vectors are (Σ ``epsilons``, ``delta``)-DP together."""

    def plausible(self, scale: Fraction, epsilon: Fraction, sensitivity: Sensitivity) -> bool:
        """Whether a sketch that states this scale for a vector with this part of ε can be right. No more than that."""
        return self.in_range(scale)

    def in_range(self, scale: Fraction) -> bool:
        """Whether any release can have noise of this scale."""
        return self.least_scale <= scale <= self.most_scale

    @abstractmethod
    def variance(self, scale: Fraction) -> Fraction:
        """Var Z, or a little more."""

    @abstractmethod
    def sample(self, scale: Fraction, size: int, source: BitSource) -> NDArray[np.int64]:
        """``size`` independent exact draws."""

    @abstractmethod
    def tail(self, scale: Fraction, at: int) -> Callable[[Any], Any]:
        """Encloses P[Z ≥ at] at the precision of mpmath's ``iv``; one object for equal arguments."""

    @abstractmethod
    def sample_tail(self, scale: Fraction, at: int, size: int, source: BitSource) -> NDArray[np.int64]:
        """``size`` exact draws of Z given Z ≥ at, for at ≥ 1."""

    @abstractmethod
    def law(self, scale: float) -> NoiseLaw:
        """The distribution in floats, for decoders, which come after the release."""


@cache
def noise_of(word: str) -> Noise:
    """The noise of this word.

    >>> noise_of("laplace").id
    'laplace'
    """
    if word not in HOMES:
        raise ParameterError(f"noise {str(word)[:40]!r} is not known here; {', '.join(HOMES)} are")
    found: Noise = import_module(HOMES[word]).NOISE
    return found
