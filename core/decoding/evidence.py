"""What an encoding says of one key: the interface between encodings and the decoder.

A lookup finds one *symbol* (a 64-bit word) for each key: ALP's bits packed, or a bucket's value. The threshold part
speaks for itself (`Released`): given the true count x the two are independent, because each mechanism draws noise
of its own, so P(symbol, value | x) = P(symbol | x)·P(value | x). An encoding gives the first factor and all that
follows from it alone; everything else is common to all encodings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hushgram.decoding.released import Flags, Floats, Ints, Released
from hushgram.noise.entropy import BitSource

if TYPE_CHECKING:
    from hushgram.decoding.prior import Prior
    from hushgram.decoding.rows import Rows
    from hushgram.decoding.support import Bins

__all__ = ["Evidence", "uniform"]


class Evidence(ABC):
    """Likelihoods of one key's symbols under a release. Pure arithmetic on public numbers."""

    released: Released
    #: The word that a lookup shows as the source of an estimate.
    source: ClassVar[str]
    #: Counts over which the likelihood of a symbol changes: counts are judged in steps well below it.
    grain: float

    @cached_property
    def prior(self) -> Prior:
        """Distribution of the counts x ≥ 1, fitted to the release."""
        from hushgram.decoding.prior import fit_prior

        return fit_prior(self.released, self)

    @abstractmethod
    def symbols(self, found: Any, values: Ints, listed: Flags) -> Ints:
        """What a lookup found for each of N keys → (N,) symbols. Refuses what another sketch found.

        ``values`` is read where ``listed``.
        """

    @abstractmethod
    def planted(self, found: Any, counts: Ints, source: BitSource) -> Any:
        """What was found for absent keys, as if each had a count and the release had encoded it: for forecasts."""

    @abstractmethod
    def factors(self, symbols: Ints, counts: Floats) -> tuple[Floats, Floats | None]:
        """P(symbol | x) = left @ rightᵀ for (D,) symbols and (X,) counts; ``right`` is None for the identity."""

    @abstractmethod
    def every_symbol(self) -> Ints | None:
        """All symbols of a key that is not listed, with probabilities that add up to 1; None if they are too many."""

    @abstractmethod
    def hidden_classes(self, counts: Floats) -> Floats:
        """(X, K): exact probabilities of a partition of the symbols of a key that is not listed."""

    @abstractmethod
    def hidden_class(self, symbols: Ints) -> Ints:
        """The class of each symbol in `hidden_classes`."""

    @abstractmethod
    def listed_classes(self, counts: Floats, values: Floats) -> Floats:
        """(X, V, K): exact probabilities of a coarser partition, for a key that is listed with a value."""

    @abstractmethod
    def listed_class(self, symbols: Ints, values: Ints) -> Ints:
        """The class of each symbol in `listed_classes`."""

    @abstractmethod
    def argmax(self, symbols: Ints) -> Floats:
        """The count that the symbol itself points to, without a prior; for keys that are not listed."""

    @abstractmethod
    def unbiased(
        self, symbols: Ints, values: Ints, listed: Flags, *, mean: float | None = None
    ) -> tuple[Floats, Floats]:
        """Estimates whose mean is x for every x, which may be negative, and estimates of their variances.

        With ``mean``, about the mean count of these distinct keys, the variances add up to that of their sum:
        then keys that share a position count as such.
        """

    def far(self, symbols: Ints, values: Ints) -> tuple[Floats, Floats]:
        """Unbiased estimate and variance of x for values far above the threshold; by default the list alone."""
        return values.astype(np.float64), np.full(len(values), self.released.noise.variance)

    def far_symbol(self, values: Ints) -> Ints:
        """A usual symbol of keys with counts far above the threshold."""
        return np.zeros(len(values), np.int64)

    def far_interval(self, symbols: Ints, values: Ints, level: float) -> tuple[Floats, Floats]:
        """An interval that holds ``level`` for every x far above the threshold."""
        radius = self.released.noise.radius(level)
        return (values - radius).astype(np.float64), (values + radius).astype(np.float64)

    @abstractmethod
    def rows(self, bins: Bins, shape: Floats, beyond: int) -> Rows:
        """What the encoding as a whole says of how many keys have which count (see `rows`)."""


def uniform(source: BitSource, shape: tuple[int, ...]) -> Floats:
    """Numbers from 0 to 1, for forecasts; never for a release."""
    words = source.words(int(np.prod(shape)))
    return np.asarray((words >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)
