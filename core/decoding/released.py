"""What a decoder may look at: the released numbers of one sketch, and nothing else.

Everything in :class:`Released` has passed a mechanism or is a public parameter, so whatever is computed
from it is post-processing and costs no privacy.

===========  ==================================================================================
symbol       meaning
===========  ==================================================================================
p            ``flip``: probability that randomized response flips a bit, 1/(α + 2)
w            ``width``: counts a level; y = RandRound(min(x, bound)/w)
m, s_b       number of columns and bits in each (``sizes``)
bound        β (δ = 0) or τ (δ > 0): a key is listed if and only if x + Z ≥ bound
Z            discrete Laplace noise of scale ``noise``: P(Z = z) = (1 − t)/(1 + t)·t^|z|, t = e^(−1/noise)
d            ``cells``: fingerprint cells that get noise even where empty (δ = 0), else None
N_t          ``profile``: noisy number of keys with x ≥ t, for t in ``profile_at``
===========  ==================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError

__all__ = ["Floats", "Ints", "Released"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_LEVELS = 62  # a bit pattern must fit one signed 64-bit word


@dataclass(frozen=True, eq=False)
class Released:
    """The public numbers of a release that decoding needs.

    ``listed`` holds the values of *all* listed keys, in any order; ``profile_at`` is empty and
    ``profile_noise`` is 0 where the sizes came from the configuration instead of a noisy profile.
    """

    flip: float
    width: float
    sizes: Ints
    ones: Ints
    bound: int
    noise: float
    listed: Ints
    cells: float | None
    records: float
    profile_at: Ints
    profile: Floats
    profile_noise: float
    keys: float

    def __post_init__(self) -> None:
        for name in ("sizes", "ones", "listed", "profile_at"):
            object.__setattr__(
                self, name, np.ascontiguousarray(getattr(self, name), dtype=np.int64).reshape(-1)
            )
        object.__setattr__(self, "profile", np.ascontiguousarray(self.profile, dtype=np.float64).reshape(-1))
        self._need(0.0 < self.flip < 0.5, "flip", self.flip, "it is 1/(alpha + 2), between 0 and 1/2")
        self._need(0.0 < self.width < np.inf, "width", self.width, "it must be positive and finite")
        self._need(0.0 < self.noise < np.inf, "noise", self.noise, "it must be positive and finite")
        self._need(self.bound >= 1, "bound", self.bound, "it must be at least 1")
        self._need(
            len(self.sizes) <= MAX_LEVELS, "sizes", len(self.sizes), f"at most {MAX_LEVELS} columns are read"
        )
        self._need(len(self.sizes) == len(self.ones), "ones", len(self.ones), "one number for each column")
        self._need(bool(np.all(self.sizes >= 1)), "sizes", "a column of no bits", "leave the column out")
        self._need(
            bool(np.all((self.ones >= 0) & (self.ones <= self.sizes))),
            "ones",
            "a count",
            "it must fit its column",
        )
        self._need(
            len(self.profile_at) == len(self.profile), "profile", len(self.profile), "one number for each t"
        )
        rising = bool(np.all(np.diff(self.profile_at) > 0)) and bool(np.all(self.profile_at >= 1))
        self._need(rising, "profile_at", self.profile_at[:8].tolist(), "it must rise and start at 1 or above")
        self._need(
            bool(np.all(np.isfinite(self.profile))), "profile", "not finite", "every number must be finite"
        )

    @property
    def levels(self) -> int:
        """m, the number of columns."""
        return len(self.sizes)

    @staticmethod
    def _need(good: bool, field: str, value: object, rule: str) -> None:
        if not good:
            raise ParameterError(f"Released: {field} is wrong, got {value!r}; {rule}")
