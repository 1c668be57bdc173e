"""The likelihood of a count: what the threshold part and the encoding of one release show of a key.

Everything in `ReleasedNumbers` has passed a mechanism or is a public parameter, so whatever is computed from it is
post-processing and costs no privacy. A lookup finds one *symbol* (a 64-bit word) for each key: ALP's bits packed, or a
bucket's value. Given the true count x, symbol and listed value are independent, because each mechanism draws noise of
its own: P(symbol, value | x) = P(symbol | x)·P(value | x). `ReleasedNumbers` gives the second factor. An encoding
gives the first (`Likelihood`) and all that follows from it alone; everything else is common to all encodings.

===========  ==================================================================================
symbol       meaning
===========  ==================================================================================
threshold    β (cells) or τ (texts alone): a key is listed if and only if x + Z ≥ threshold
Z            noise of the threshold part, of the law ``noise``
d            ``domain_size``: fingerprint cells that get noise even where empty, None where keys have texts alone
N_t          ``profile``: noisy number of keys with x ≥ t, for t in ``profile_at``
τ', o, d'    ``top``: threshold of the top list, what counts below it are withheld, its cells (0 where it has texts),
             and the law of its noise; or None. A key is in it if x + Z' ≥ τ'; else the other list counts x − o,
             rounded to an integer around it at random, and its value there is cut at τ' − 1
             (`hushgram.key_selection.threshold`)
===========  ==================================================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hushgram.decoding.constants import WHOLE
from hushgram.errors import ParameterError
from hushgram.noise.entropy import BitSource
from hushgram.noise.laws import LaplaceLaw, NoiseLaw

if TYPE_CHECKING:
    from hushgram.decoding.prior import Bins, Observations, Prior

__all__ = ["Flags", "Floats", "Ints", "Likelihood", "ReleasedNumbers", "Top", "need", "uniform"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Top:
    """The list that comes first: its threshold, what counts below are withheld, its cells (0: texts), its noise."""

    threshold: int
    withheld: Floats
    cells: float
    noise: NoiseLaw


@dataclass(frozen=True, eq=False)
class ReleasedNumbers:
    """The public numbers of a release that decoding needs, whatever the encoding.

    ``listed`` holds the values of *all* listed keys, in any order; ``profile_at`` is empty and
    ``profile_noise`` is 0 where the sizes came from the configuration instead of a noisy profile.
    """

    threshold: int
    noise: NoiseLaw
    listed: Ints
    domain_size: float | None
    records: float
    profile_at: Ints
    profile: Floats
    profile_noise: float
    keys: float
    top: Top | None = None

    def __post_init__(self) -> None:
        for name in ("listed", "profile_at"):
            whole = np.ascontiguousarray(getattr(self, name), dtype=np.int64).reshape(-1)
            object.__setattr__(self, name, whole)
        object.__setattr__(self, "profile", np.ascontiguousarray(self.profile, dtype=np.float64).reshape(-1))
        need(self, self.threshold >= 1, "bound", self.threshold, "it must be at least 1")
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
        """Return a bound that the number of keys exceeds with probability ``miss`` at most, or the stated number."""
        if not len(self.profile_at):
            return max(self.keys, 1.0)
        return max(self.keys, 1.0) + LaplaceLaw(self.profile_noise).radius(1.0 - miss)

    @property
    def places(self) -> float | None:
        """Return how many places a key can be listed at; None where keys are listed by text."""
        if self.domain_size is None or self.top is None:
            return self.domain_size
        return self.domain_size + self.top.cells if self.top.cells else None

    @property
    def last(self) -> int:
        """Return the last threshold: values well above it are a count with noise, and nothing else."""
        return self.threshold if self.top is None else self.top.threshold

    @property
    def far_noise(self) -> NoiseLaw:
        """Return the noise of values above the last threshold."""
        return self.noise if self.top is None else self.top.noise

    @property
    def named(self) -> bool:
        """Return whether the last list has texts, in which an absent key never is."""
        return self.domain_size is None or (self.top is not None and not self.top.cells)

    def counted(self, counts: Floats) -> Floats:
        """Return x as the list counts it, in the mean: less than x just below a top list, and no more beyond."""
        if self.top is None:
            return counts
        high, table = self.top.threshold, self.top.withheld
        start = high - 1 - len(table)
        at, least = np.arange(start, high), np.append(0.0, table[::-1])
        return np.where(counts <= start, counts, np.minimum(counts, high - 1) - np.interp(counts, at, least))

    def _below_top(self, law: Callable[[Floats], Floats], counts: Floats) -> Floats:
        """Return (X, …) probabilities P(not in the top list | x)·law(x as the other list counts it)."""
        assert self.top is not None
        mean = self.counted(counts)
        cut = np.where(mean < counts, np.floor(mean), counts)
        found, some = law(cut), np.flatnonzero(mean > cut)
        over = (mean - cut)[some].reshape((-1,) + (1,) * (found.ndim - 1))
        found[some] += over * (law(cut[some] + 1.0) - found[some])
        below = self.top.noise.below(np.ceil(self.top.threshold - counts))
        below = np.where(counts > 0, below, 1.0) if self.named else below
        return np.asarray(found * below.reshape((-1,) + (1,) * (found.ndim - 1)))

    def hidden(self, counts: Floats) -> Floats:
        """Return P(not listed | x) for each count; an empty cell can be listed only where cells get noise."""

        def chance(held: Floats) -> Floats:
            return self.noise.below(np.ceil(self.threshold - held))

        found = chance(counts) if self.top is None else self._below_top(chance, counts)
        return found if self.domain_size is not None else np.where(counts > 0, found, 1.0)

    def value(self, values: Floats, counts: Floats) -> Floats:
        """Return (V, X) probabilities P(value | x) for (V,) listed values and (X,) counts."""
        table = self.far_noise.pmf(values[:, None] - counts[None, :])
        if self.named:
            table[:, counts <= 0] = 0.0
        if self.top is not None:
            high, other = self.top.threshold, values[values < self.top.threshold]

            def chance(held: Floats) -> Floats:
                away = other[None, :] - held[:, None]
                return np.where(other == high - 1, self.noise.tail(np.ceil(away)), self.noise.pmf(away))

            table[values < high] = self._below_top(chance, counts).T
        return table

    def ranges(self, cuts: Floats, counts: Floats) -> Floats:
        """Return (X, V) probabilities of values from each cut up to the next, the last without end. Each is a
        difference of the nearer tail, which keeps its digits however small it is. ``cuts`` hold τ' where there is one.
        """
        table = _ranges(self.far_noise, cuts, counts)
        if self.named:
            table[counts <= 0] = 0.0
        if self.top is not None:
            other = cuts < self.top.threshold  # the last of these has no end: values are cut
            table[:, other] = self._below_top(lambda held: _ranges(self.noise, cuts[other], held), counts)
        return table


def _ranges(noise: NoiseLaw, cuts: Floats, counts: Floats) -> Floats:
    at = np.ceil(cuts - counts[:, None])
    over, under = noise.tail(at), noise.below(at)
    return np.where(at >= 1, -np.diff(over, axis=1, append=0.0), np.diff(under, axis=1, append=1.0))


def need(part: object, good: bool, field: str, value: object, rule: str) -> None:
    """Refuse a release whose numbers cannot be."""
    if not good:
        raise ParameterError(f"{type(part).__name__}: {field} is wrong, got {value!r}; {rule}")


class Likelihood(ABC):
    """Likelihoods of one key's symbols under a release. Pure arithmetic on public numbers."""

    released: ReleasedNumbers
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
        """Return (N,) symbols of what a lookup found for N keys; refuse what another sketch found.

        ``values`` is read where ``listed``.
        """

    @abstractmethod
    def planted(self, found: Any, counts: Ints, source: BitSource) -> Any:
        """Change what was found for absent keys as if each had a count that the release encoded: for forecasts."""

    @abstractmethod
    def factors(self, symbols: Ints, counts: Floats) -> tuple[Floats, Floats | None]:
        """Return (left, right): P(symbol | x) = left @ rightᵀ for (D,) symbols, (X,) counts; None is the identity."""

    @abstractmethod
    def every_symbol(self) -> Ints | None:
        """Return all symbols of a key that is not listed and their probabilities; None if there are too many."""

    @abstractmethod
    def hidden_classes(self, counts: Floats) -> Floats:
        """Return (X, K): exact probabilities of a partition of the symbols of a key that is not listed."""

    @abstractmethod
    def hidden_class(self, symbols: Ints) -> Ints:
        """Return the class of each symbol in `hidden_classes`."""

    @abstractmethod
    def listed_classes(self, counts: Floats, values: Floats) -> Floats:
        """Return (X, V, K): exact probabilities of a coarser partition, for a key that is listed with a value."""

    @abstractmethod
    def listed_class(self, symbols: Ints, values: Ints) -> Ints:
        """Return the class of each symbol in `listed_classes`."""

    @abstractmethod
    def argmax(self, symbols: Ints) -> Floats:
        """Return the most likely count for the symbol itself, without a prior; for keys that are not listed."""

    @abstractmethod
    def unbiased(
        self, symbols: Ints, values: Ints, listed: Flags, *, mean: float | None = None
    ) -> tuple[Floats, Floats]:
        """Return estimates whose mean is x for every x, which may be negative, and estimates of their variances.

        With ``mean``, about the mean count of these distinct keys, the variances add up to that of their sum:
        then keys that share a position count as such.
        """

    def far(self, symbols: Ints, values: Ints) -> tuple[Floats, Floats]:
        """Return unbiased estimate and variance of x for values far above the threshold; by default the list alone."""
        noise = self.released.far_noise
        return values.astype(np.float64) - noise.mean, np.full(len(values), noise.variance)

    def far_symbol(self, values: Ints) -> Ints:
        """Return a usual symbol of keys with counts far above the threshold."""
        return np.zeros(len(values), np.int64)

    def far_interval(self, symbols: Ints, values: Ints, level: float) -> tuple[Floats, Floats]:
        """Return an interval that holds ``level`` for every x far above the threshold."""
        radius = self.released.far_noise.radius(level)
        return (values - radius).astype(np.float64), (values + radius).astype(np.float64)

    @abstractmethod
    def observations(self, bins: Bins, shape: Floats, beyond: int) -> Observations:
        """Return what the whole encoding says about how many keys have which count (see `rows`)."""


def uniform(source: BitSource, shape: tuple[int, ...]) -> Floats:
    """Draw numbers from 0 to 1 for forecasts, never for a release."""
    words = source.words(int(np.prod(shape)))
    return np.asarray((words >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)
