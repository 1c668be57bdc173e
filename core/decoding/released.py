"""What every decoder may look at beside an encoding: the threshold part and the sizes of one sketch, and nothing else.

Everything in :class:`Released` has passed a mechanism or is a public parameter, so whatever is computed
from it is post-processing and costs no privacy.

===========  ==================================================================================
symbol       meaning
===========  ==================================================================================
bound        β (δ = 0) or τ (δ > 0): a key is listed if and only if x + Z ≥ bound
Z            noise of the threshold part, of the law ``noise``
d            ``cells``: fingerprint cells that get noise even where empty (δ = 0), else None
N_t          ``profile``: noisy number of keys with x ≥ t, for t in ``profile_at``
===========  ==================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hushgram.decoding.constants import WHOLE
from hushgram.errors import ParameterError
from hushgram.noise.laws import LaplaceLaw, NoiseLaw

__all__ = ["Flags", "Floats", "Ints", "Released"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Released:
    """The public numbers of a release that decoding needs, whatever the encoding.

    ``listed`` holds the values of *all* listed keys, in any order; ``profile_at`` is empty and
    ``profile_noise`` is 0 where the sizes came from the configuration instead of a noisy profile.
    """

    bound: int
    noise: NoiseLaw
    listed: Ints
    cells: float | None
    records: float
    profile_at: Ints
    profile: Floats
    profile_noise: float
    keys: float

    def __post_init__(self) -> None:
        for name in ("listed", "profile_at"):
            whole = np.ascontiguousarray(getattr(self, name), dtype=np.int64).reshape(-1)
            object.__setattr__(self, name, whole)
        object.__setattr__(self, "profile", np.ascontiguousarray(self.profile, dtype=np.float64).reshape(-1))
        need(self, self.bound >= 1, "bound", self.bound, "it must be at least 1")
        same = len(self.profile_at) == len(self.profile)
        need(self, same, "profile", len(self.profile), "one number for each t")
        rising = bool(np.all(np.diff(self.profile_at) > 0)) and bool(np.all(self.profile_at >= 1))
        need(self, rising, "profile_at", self.profile_at[:8].tolist(), "it must rise and start at 1 or above")
        finite = bool(np.all(np.isfinite(self.profile)))
        need(self, finite, "profile", "not finite", "every number must be finite")

    @cached_property
    def whole(self) -> float:
        """What no count and no sum exceeds, at WHOLE: n̂ with its noise. Infinite where n was only guessed."""
        if not len(self.profile_at):
            return np.inf
        return max(self.records, 0.0) + LaplaceLaw(self.profile_noise).radius(WHOLE)

    def most_keys(self, miss: float) -> float:
        """What the number of keys exceeds with a probability of at most ``miss``; as stated where it was stated."""
        if not len(self.profile_at):
            return max(self.keys, 1.0)
        return max(self.keys, 1.0) + LaplaceLaw(self.profile_noise).radius(1.0 - miss)

    def hidden(self, counts: Floats) -> Floats:
        """P(not listed | x) for each count; an empty cell can be listed only where cells get noise."""
        chance = self.noise.tail(1.0 - np.ceil(self.bound - counts))  # P(Z < c) = P(Z ≥ 1 − c), to all digits
        return chance if self.cells is not None else np.where(counts > 0, chance, 1.0)

    def value(self, values: Floats, counts: Floats) -> Floats:
        """(V,) listed values × (X,) counts → (V, X) probabilities P(value | x)."""
        table = self.noise.pmf(values[:, None] - counts[None, :])
        if self.cells is None:
            table[:, counts <= 0] = 0.0
        return table


def need(part: object, good: bool, field: str, value: object, rule: str) -> None:
    """Refuse a release whose numbers cannot be."""
    if not good:
        raise ParameterError(f"{type(part).__name__}: {field} is wrong, got {value!r}; {rule}")
