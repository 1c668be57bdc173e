"""A toy noise in one module: discrete Laplace, doubled, so that every draw is even."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.noise.entropy import BitSource
from hushgram.noise.laplace import LaplaceNoise
from hushgram.noise.laws import LaplaceLaw, NoiseLaw

__all__ = ["NOISE"]


class ToyNoise(LaplaceNoise):
    name = "toy"

    def sample(self, scale: Fraction, size: int, source: BitSource) -> NDArray[np.int64]:
        return 2 * super().sample(scale, size, source)

    def tail(self, scale: Fraction, at: int) -> Callable[[Any], Any]:
        return super().tail(scale, -(-at // 2))

    def law(self, scale: float) -> NoiseLaw:
        return LaplaceLaw(2 * scale)  # about

    def variance(self, scale: Fraction) -> Fraction:
        return 4 * super().variance(scale)


NOISE = ToyNoise()
