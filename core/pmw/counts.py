"""Exact counts of a domain, their total and what is learnt of them: what online and offline weights share."""

from __future__ import annotations

from abc import ABC
from fractions import Fraction
from typing import ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.laplace_mechanism import calibrated, check_scale, positive
from hushgram.noise.entropy import InteractiveKey, ReleaseKey, StreamKey, digest
from hushgram.noise.sampling import discrete_laplace
from hushgram.numbers import Number, integer, rational_delta
from hushgram.pmw.hypothesis import MOST_TOTAL, Hypothesis
from hushgram.pmw.workload import GRID, Workload
from hushgram.sensitivity import ExactVector, Unit

__all__ = ["PrivateWeights", "WeightsParams"]

# Share of ε for the total, where none is public.
_TOTAL_SHARE = Fraction(1, 50)


class WeightsParams:
    """What the parameters of both have in common; ‖x − x'‖₁ ≤ ``max_contributions`` between neighbours."""

    epsilon: Fraction
    delta: Fraction
    max_contributions: int
    total: int | None

    def _put_shared(self, epsilon: Number, delta: Number, max_contributions: int, total: int | None) -> None:
        """Check and keep them."""
        owner, put = type(self).__name__, object.__setattr__
        put(self, "epsilon", positive(epsilon, "epsilon", owner))
        put(self, "delta", rational_delta(delta, owner))
        most = integer(max_contributions, "max_contributions", owner, low=1, high=10**9 // GRID)
        put(self, "max_contributions", most)
        put(self, "total", None if total is None else integer(total, "total", owner, low=1, high=MOST_TOTAL))
        if self.total_epsilon:
            check_scale(self.max_contributions / self.total_epsilon, owner)

    @property
    def total_epsilon(self) -> Fraction:
        """What the noisy total costs; nothing if n is public."""
        return self.epsilon * _TOTAL_SHARE if self.total is None else Fraction(0)

    @property
    def replayed(self) -> int:
        """How many answers the hypothesis keeps."""
        raise NotImplementedError


P = TypeVar("P", bound=WeightsParams)


class PrivateWeights(ABC, Generic[P]):
    """Exact counts, which are never written, and the hypothesis that is released.

    ``prior`` are weights to begin from. The noisy total, where none is public, and all later noise follow from the
    key, the parameters, the counts and the prior.
    """

    _label: ClassVar[str]

    def __init__(
        self,
        counts: ExactVector,
        params: P,
        key: ReleaseKey | InteractiveKey,
        *,
        prior: NDArray[np.int64] | None = None,
        unit: Unit = "user",
    ) -> None:
        admitted = ExactVector.given(counts, type(self).__name__)
        exact = admitted.admit(calibrated(params.max_contributions, unit)).values
        if exact.ndim != 1 or len(exact) == 0 or exact.dtype.kind not in "iu":
            owner = type(self).__name__
            raise ParameterError(f"{owner}: counts must be whole numbers, one for each cell, not empty")
        self.params = params
        self.updates = 0
        # Cutting counts moves no two neighbours further apart, and keeps every product inside int64.
        self._counts = np.clip(exact, 0, (1 << 45) // len(exact)).astype(np.int64)
        self._key = self._take(key)
        self._context = digest(self._label, repr(params), self._counts, b"" if prior is None else prior)
        self.total = self._noisy_total() if params.total is None else params.total
        self.hypothesis = Hypothesis(len(exact), self.total, prior, params.replayed)
        self._begin()

    def _begin(self) -> None:
        """What else a run remembers."""

    def _take(self, key: object) -> ReleaseKey | StreamKey:
        """What noise is drawn from."""
        if not isinstance(key, ReleaseKey):
            raise ParameterError(f"{type(self).__name__}: needs a ReleaseKey, got {type(key).__name__}")
        return key

    def _noisy_total(self) -> int:
        scale = Fraction(self.params.max_contributions) / self.params.total_epsilon
        noise = int(discrete_laplace(scale, 1, self._key.source("pmw total", 0, self._context))[0])
        return min(max(int(self._counts.sum()) + noise, 1), MOST_TOTAL)

    def __reduce__(self) -> str:
        raise TypeError(f"{type(self).__name__} holds exact counts and is not written; save its hypothesis")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(cells={len(self._counts)}, updates={self.updates})"

    def _check_width(self, queries: Workload) -> None:
        if queries.cells != len(self._counts):
            owner = type(self).__name__
            raise ParameterError(
                f"{owner}: queries have {queries.cells} weights, the domain {len(self._counts)} cells"
            )
