"""The likelihood of a count: what the threshold part and the encoding of one release show of a key.

Everything in `ReleasedNumbers` has passed a mechanism or is a public parameter, so whatever is computed from it is
post-processing and costs no privacy. A lookup finds one *symbol* (a 64-bit word) for each key that is not listed: ALP's
bits packed, or a bucket's value. Of a listed key its value says all that is used. P(not listed, symbol | x) is
P[not listed | x]·P(symbol | g(x)), where g(x) is what the list passes on, or x where the encoding counts every key.
`ReleasedNumbers` gives what follows from the lists, an encoding the rest (`Likelihood`).

===========  ==================================================================================
symbol       meaning
===========  ==================================================================================
threshold    β (cells) or τ (texts alone): a key is listed if and only if x + Z ≥ threshold
Z            noise of the threshold part, of the law ``noise``
d            ``domain_size``: fingerprint cells that get noise even where empty, None where keys have texts alone
N_t          ``profile``: noisy number of keys with x ≥ t, for t in ``profile_at``
τ', d'       ``top``: threshold of the top list, what it passes on, its cells (0 where it has texts), and the law of its
             noise; or None. A key is in it if x + Z' ≥ τ'; else the other list counts g'(x), rounded at random, and
             its value there is cut at τ' − 1 (`hushgram.key_selection.threshold`, chains)
g            ``rest``: what the last list passes on to the encoding; None where the encoding counts every key, listed
             or not, independently of the list
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
    from hushgram.key_selection.threshold import Remainder

__all__ = ["Flags", "Floats", "Ints", "Likelihood", "ReleasedNumbers", "Top", "need", "uniform"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Top:
    """The list that comes first: what it passes on, its cells (0: texts), its noise."""

    passes: Remainder
    cells: float
    noise: NoiseLaw

    @property
    def threshold(self) -> int:
        """Return from which value on a key is in it."""
        return self.passes.threshold


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
    rest: Remainder | None = None

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

    def far(self, values: Ints) -> tuple[Floats, Floats]:
        """Return unbiased estimate and variance of the count for values far above the threshold."""
        noise = self.far_noise
        return values.astype(np.float64) - noise.mean, np.full(len(values), noise.variance)

    def far_interval(self, values: Ints, level: float) -> tuple[Floats, Floats]:
        """Return an interval that holds ``level`` for every count far above the threshold."""
        radius = self.far_noise.radius(level)
        return (values - radius).astype(np.float64), (values + radius).astype(np.float64)

    def counted(self, counts: Floats) -> Floats:
        """Return x as the list counts it, in the mean: less than x just below a top list, and no more beyond."""
        return counts if self.top is None else self.top.passes.mean(counts)

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
        return self.passed(counts, lambda held: np.ones((len(held), 1)))[:, 0]

    def passed(self, counts: Floats, law: Callable[[Floats], Floats]) -> Floats:
        """Return (X, K): P(not listed | x)·law(n), (X, K) of what is passed on, or of the count where nothing is."""

        def chance(held: Floats) -> Floats:
            below = self.noise.below(np.ceil(self.threshold - held))
            return np.asarray(below[:, None] * law(held if self.rest is None else self.rest.mean(held)))

        found = chance(counts) if self.top is None else self._below_top(chance, counts)
        if self.domain_size is None:
            found = np.where(counts[:, None] > 0, found, law(np.zeros(len(counts))))
        return found

    def moments(self, counts: Floats, law: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
        """Return bias and mean square error of the unbiased estimate of (X,) counts: v − E Z of a listed key, and of
        any other an unbiased estimate of what is passed on, of variance ``law``, less the shift of it.
        """
        rest = self.rest
        assert rest is not None

        def last(held: Floats) -> tuple[Floats, Floats]:
            chance, first, second = self.noise.beyond(np.ceil(self.threshold - held))
            passed = rest.mean(held)
            away = (
                passed + np.where(held > 0, rest.offset, rest.offset * (self.domain_size is not None)) - held
            )
            mean = first - chance * self.noise.mean
            square = second - 2.0 * self.noise.mean * first + self.noise.mean**2 * chance
            return mean + (1.0 - chance) * away, square + (1.0 - chance) * (law(passed) + away**2)

        if self.top is None:
            bias, square = last(counts)
            if self.domain_size is None:
                none = counts <= 0
                bias = np.where(none, rest.offset, bias)
                square = np.where(none, law(np.zeros(1)) + rest.offset**2, square)
            return bias, square
        noise, passed = self.top.noise, self.counted(counts)
        low = np.floor(passed)
        chance, first, second = noise.beyond(np.ceil(self.top.threshold - counts))
        if self.named:
            chance, first, second = (np.where(counts > 0, each, 0.0) for each in (chance, first, second))
        bias = first - chance * noise.mean
        square = second - 2.0 * noise.mean * first + noise.mean**2 * chance
        for held, share in ((low, 1.0 - (passed - low)), (low + 1.0, passed - low)):
            mean, around = last(held)
            away = held + self.top.passes.offset - counts
            bias = bias + (1.0 - chance) * share * (mean + away)
            square = square + (1.0 - chance) * share * (around + 2.0 * mean * away + away**2)
        return bias, square

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
        """Return (left, right): P(not listed, symbol | x) = left @ rightᵀ for (D,) symbols and (X,) counts; None is the
        identity."""

    @abstractmethod
    def every_symbol(self) -> Ints | None:
        """Return all symbols of a key that is not listed and their probabilities; None if there are too many."""

    @abstractmethod
    def hidden_classes(self, counts: Floats) -> Floats:
        """Return (X, K): exact probabilities that a key is not listed and its symbol is in each of K classes."""

    @abstractmethod
    def hidden_class(self, symbols: Ints) -> Ints:
        """Return the class of each symbol in `hidden_classes`."""

    @abstractmethod
    def argmax(self, symbols: Ints) -> Floats:
        """Return the most likely count for the symbol itself, without a prior; for keys that are not listed."""

    def encoded_variance(self, counts: Floats) -> Floats:
        """Return the variance of the unbiased estimate of counts that were passed on and encoded."""
        raise NotImplementedError

    @abstractmethod
    def unbiased(
        self, symbols: Ints, values: Ints, listed: Flags, *, mean: float | None = None
    ) -> tuple[Floats, Floats]:
        """Return estimates whose mean is x for every x, which may be negative, and estimates of their variances.

        With ``mean``, about the mean count of these distinct keys, the variances add up to that of their sum:
        then keys that share a position count as such.
        """

    @abstractmethod
    def observations(self, bins: Bins, shape: Floats, beyond: int) -> Observations:
        """Return what the whole encoding says about how many keys have which count (see `rows`)."""


def uniform(source: BitSource, shape: tuple[int, ...]) -> Floats:
    """Draw numbers from 0 to 1 for forecasts, never for a release."""
    words = source.words(int(np.prod(shape)))
    return np.asarray((words >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)
