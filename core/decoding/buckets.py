"""Evidence of noisy buckets: the probability of a bucket's value, given the count of a key that is in it.

A bucket holds the key's count x and a background (`background`), and is released in multiples of an odd step:
P(value | x) = P(background + x rounds to value). The value is taken less the listed keys that are known to be in
the bucket, other than the key itself; whether there are any is the *kind* of the bucket, which is independent of x.

**unbiased** ★: y − E background has mean x for every x, whatever the kind. A listed key has two readings, y and
v = x + Z. From ``cut`` on, well above the threshold, they are weighed by their variances: y' + w·(1[v ≥ cut]·(v − y') −
c(v)), where c(v) = `NoiseLaw.selected` has mean E[Z; x + Z ≥ cut] for every x, so that the selection adds no bias.

**far above the threshold** the weight of x = v − z is P(Z = z)·P(y | v − z), a function of z and y − v alone: its
mean is the estimate (Pitman 1939), and its quantiles hold their level for every x.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from hushgram.decoding.background import Background, model_masses
from hushgram.decoding.constants import (
    BACKGROUND_SURE,
    BUCKET_CLASSES,
    BUCKET_REACH,
    BUCKET_WAVES,
    CALIBRATE,
    CHUNK,
    LEAST_CHANCE,
    LISTED_CLASSES,
    MEANS,
    NEAR,
    SURE,
)
from hushgram.decoding.evidence import Evidence, uniform
from hushgram.decoding.released import Flags, Floats, Ints, Released, need
from hushgram.decoding.rows import Rows
from hushgram.decoding.support import Bins
from hushgram.errors import ParameterError
from hushgram.noise.entropy import BitSource
from hushgram.noise.laws import NoiseLaw

__all__ = ["BucketEvidence"]


class BucketEvidence(Evidence):
    """A symbol is 2·y + kind: y the bucket's value less its listed keys, kind 1 where there are some.

    ``places``: the bucket of each listed key, in the order of ``released.listed``. ``sample``: the released levels of
    the first buckets, all of them or enough. ``total``: the sum of all levels.
    """

    source: ClassVar[str] = "buckets"

    def __init__(
        self,
        released: Released,
        *,
        noise: NoiseLaw,
        step: int,
        size: int,
        places: ArrayLike,
        sample: ArrayLike,
        total: int,
    ) -> None:
        self.released, self.noise, self.step, self.size, self.total = released, noise, step, size, total
        self.places = np.ascontiguousarray(places, dtype=np.int64).reshape(-1)
        self.sample = np.ascontiguousarray(sample, dtype=np.int64).reshape(-1)
        self.grain = noise.scale
        need(self, step >= 1 and step % 2 == 1, "step", step, "it must be odd")
        need(self, 1 <= len(self.sample) <= size, "sample", len(self.sample), f"at most {size} buckets")
        every = len(self.places) == len(released.listed)
        need(self, every, "places", len(self.places), "one bucket for each listed key")

    # What is known of the buckets -------------------------------------------------------------------------

    def listed_mean(self, values: Ints) -> Ints:
        """About the mean count of a key that is listed with each value, an empty cell included."""
        near, table, mean = self._near_means
        return np.where(values <= near, np.rint(np.interp(values, table, mean)).astype(np.int64), values)

    @cached_property
    def _near_means(self) -> tuple[int, Floats, Floats]:
        """The largest value that the prior reaches, and the mean counts of some values up to it."""
        bound, noise, prior = self.released.bound, self.released.noise, self.prior
        near = bound + int(np.ceil(NEAR * noise.scale))
        step = max(1, int(noise.scale / MEANS))  # however large the noise, a table is small
        table = np.arange(bound, near + step, step).astype(np.float64)
        weight = self.released.value(table, prior.support.at) * prior.mass * prior.keys
        empty = (self.released.cells or 0.0) * noise.pmf(table)
        return near, table, weight @ prior.support.at / np.maximum(weight.sum(axis=1) + empty, 1e-300)

    @cached_property
    def _known(self) -> tuple[Ints, Ints, Ints]:
        """Buckets with listed keys, rising; the sum of their mean counts; how many they are."""
        held, at = np.unique(self.places, return_inverse=True)
        known = self.listed_mean(self.released.listed)
        sums = np.minimum(np.bincount(at, known), 2.0**60).astype(np.int64)
        return held, sums, np.bincount(at).astype(np.int64)

    def _others(self, places: Ints) -> tuple[Ints, Ints]:
        """Mean counts of the listed keys in each bucket, and how many there are."""
        held, sums, number = self._known
        if not len(held):
            return np.zeros(len(places), np.int64), np.zeros(len(places), np.int64)
        at = np.minimum(np.searchsorted(held, places), len(held) - 1)
        hit = held[at] == places
        return np.where(hit, sums[at], 0), np.where(hit, number[at], 0)

    @cached_property
    def _kinds(self) -> tuple[Background, Background]:
        sums, number = self._others(np.arange(len(self.sample)))
        values = self.sample * self.step - sums
        top = float(self.prior.support.high[-1]) + BUCKET_REACH * self.noise.scale
        unit, alone, beside = model_masses(self.released, self.prior, self.noise, self.size, top)
        seen = values[number == 0], values[number > 0]
        kinds = [
            Background(unit, mass, part, self.step, self.noise)
            for mass, part in zip((alone, beside), seen, strict=True)
        ]
        if len(self.sample) < self.size:  # the mean of all buckets is known
            whole = (self.total * self.step - float(self._known[1].sum())) / self.size
            for kind in kinds:
                kind.mean += whole - float(values.mean())
        return kinds[0], kinds[1]

    @cached_property
    def _shares(self) -> tuple[float, float]:
        """How many of the buckets are of each kind."""
        beside = len(self._known[0]) / self.size
        return 1.0 - beside, beside

    # Likelihoods ----------------------------------------------------------------------------------------

    def symbols(self, found: Any, values: Ints, listed: Flags) -> Ints:
        """``found`` is (N, 2): the bucket of each key and its level."""
        rows = np.asarray(found, dtype=np.int64)
        rows = rows.reshape(len(rows), -1) if len(rows) else np.zeros((0, 2), np.int64)
        if rows.shape[1] != 2 or (len(rows) and not 0 <= rows[:, 0].min() <= rows[:, 0].max() < self.size):
            raise ParameterError(
                f"Decoder: a bucket below {self.size} and its level are needed for each key; "
                "look all of them up in the same sketch"
            )
        sums, number = self._others(rows[:, 0])
        itself = np.zeros(len(rows), np.int64)
        itself[listed] = self.listed_mean(values[listed])
        beside = number - listed > 0
        return (rows[:, 1] * self.step - np.where(beside, sums - itself, 0)) * 2 + beside

    def planted(self, found: Any, counts: Ints, source: BitSource) -> Any:
        """The bucket holds the count too; where inside its step the sum was before, nobody knows."""
        inside = uniform(source, (len(counts),)) - 0.5
        rows = np.array(found, np.int64)
        rows[:, 1] += np.floor(counts / self.step + inside + 0.5).astype(np.int64)
        return rows

    def _chance(self, symbols: Ints, counts: Floats) -> Floats:
        """P(value of the bucket | x, kind) for symbols and counts that broadcast."""
        out = np.zeros(np.broadcast_shapes(symbols.shape, counts.shape))
        for kind, background in enumerate(self._kinds):
            rows = (symbols & 1)[..., 0] == kind
            at = (symbols[rows] >> 1) - (counts[rows] if counts.shape[0] == len(rows) > 1 else counts)
            out[rows] = background.below(at + self.step / 2.0) - background.below(at - self.step / 2.0)
        return np.maximum(out, LEAST_CHANCE)

    def factors(self, symbols: Ints, counts: Floats) -> tuple[Floats, Floats | None]:
        return self._chance(symbols[:, None], counts[None, :]), None

    def every_symbol(self) -> Ints | None:
        low, high = self._range
        first, end = int(low // self.step), int(high // self.step) + 2
        if end - first > 1 << CALIBRATE:
            return None
        return np.arange(first, end, dtype=np.int64) * self.step * 2

    # Partitions -----------------------------------------------------------------------------------------

    @cached_property
    def _range(self) -> tuple[float, float]:
        """Values of buckets that are told apart: of keys that are not listed, but for rare ones."""
        alone = self._kinds[0]
        top = self.released.bound + NEAR * self.released.noise.scale
        return alone.quantile(1e-5), top + alone.quantile(0.999)

    @cached_property
    def _edges(self) -> Floats:
        """Between the classes of values: whole steps, each the middle between two values."""
        low, high = self._range
        wide = max(1, int((high - low) / BUCKET_CLASSES / self.step))
        levels = np.arange(int(low // self.step), int(high // self.step) + 2, wide)
        return np.asarray((levels + 0.5) * self.step, np.float64)

    def hidden_classes(self, counts: Floats) -> Floats:
        tables = []
        for share, background in zip(self._shares, self._kinds, strict=True):
            below = background.below(self._edges[None, :] - counts[:, None])
            tables.append(share * np.diff(below, axis=1, prepend=0.0, append=1.0))
        return np.concatenate(tables, axis=1)

    def hidden_class(self, symbols: Ints) -> Ints:
        place = np.searchsorted(self._edges, symbols >> 1, side="right")
        return place + (symbols & 1) * (len(self._edges) + 1)

    @cached_property
    def _cuts(self) -> Floats:
        """Quantiles of y − v of keys far above the threshold."""
        shares = np.arange(1, LISTED_CLASSES) / LISTED_CLASSES
        at = np.linspace(-1.0, 1.0, 401) * 8.0 * self.released.noise.scale
        weight = self.released.noise.pmf(np.rint(at))
        grid = np.linspace(self._kinds[0].quantile(1e-4), self._kinds[0].quantile(1.0 - 1e-4), 400)
        held = (weight / weight.sum()) @ self._kinds[0].below(grid[None, :] + at[:, None])
        return np.asarray(np.interp(shares, held, grid))

    def listed_classes(self, counts: Floats, values: Floats) -> Floats:
        # The last class: another listed key is in the bucket, and the list alone speaks.
        edges = np.floor((values[:, None] + self._cuts) / self.step + 0.5) * self.step + self.step / 2.0
        below = self._kinds[0].below(edges[None, :, :] - counts[:, None, None])
        alone = self._shares[0] * np.diff(below, axis=2, prepend=0.0, append=1.0)
        return np.concatenate([alone, np.full((*alone.shape[:2], 1), self._shares[1])], axis=2)

    def listed_class(self, symbols: Ints, values: Ints) -> Ints:
        edges = np.floor((values[:, None] + self._cuts) / self.step + 0.5) * self.step + self.step / 2.0
        place = ((symbols >> 1)[:, None] > edges).sum(axis=1)
        return np.where(symbols & 1, LISTED_CLASSES, place)

    # Estimates without a prior ----------------------------------------------------------------------------

    def argmax(self, symbols: Ints) -> Floats:
        middle = np.array([background.quantile(0.5) for background in self._kinds])
        return np.asarray(np.maximum((symbols >> 1) - middle[symbols & 1], 0.0))

    def unbiased(
        self, symbols: Ints, values: Ints, listed: Flags, *, mean: float | None = None
    ) -> tuple[Floats, Floats]:
        """Of N keys, N(N − 1)/m pairs share a bucket, which then counts for both, each key in the other's sum."""
        noise, kind = self.released.noise, symbols & 1
        estimate = (symbols >> 1) - np.array([background.mean for background in self._kinds])[kind]
        variance = np.array([background.variance for background in self._kinds])[kind]
        pairs = 0.0 if mean is None else (len(symbols) - 1) / self.size
        cut = self.released.bound + int(np.ceil(SURE * noise.scale))
        weight = variance / (variance + noise.variance)
        over = listed & (values >= cut)
        skew = weight * np.where(listed, noise.selected(values.astype(np.float64), cut), 0.0)
        both = estimate + weight * np.where(over, values - estimate, 0.0) - skew
        spread = np.where(over, weight * noise.variance, variance) + skew**2
        usual = min(mean or 0.0, float(self.released.bound))  # of the keys that are not known from the list
        return both, spread * (1.0 + pairs) + 2.0 * pairs * usual**2

    # Far above the threshold --------------------------------------------------------------------------------

    def far(self, symbols: Ints, values: Ints) -> tuple[Floats, Floats]:
        first, second = np.empty(len(values)), np.empty(len(values))
        for part, at, weight in self._far_weights(symbols, values):
            first[part] = weight @ at
            second[part] = weight @ at**2
        return values - first, np.maximum(second - first**2, 0.0)

    def far_symbol(self, values: Ints) -> Ints:
        return (values + int(self._kinds[0].quantile(0.5))) * 2

    def far_interval(self, symbols: Ints, values: Ints, level: float) -> tuple[Floats, Floats]:
        low, high = np.empty(len(values)), np.empty(len(values))
        for part, at, weight in self._far_weights(symbols, values, self.released.noise.radius(level)):
            held = np.cumsum(weight, axis=1)
            least = (held <= (1.0 - level) / 2.0).sum(axis=1)
            most = (held < 1.0 - (1.0 - level) / 2.0).sum(axis=1)
            low[part] = values[part] - at[np.minimum(most, len(at) - 1)]
            high[part] = values[part] - at[np.minimum(least, len(at) - 1)]
        return low, high

    def _far_weights(self, symbols: Ints, values: Ints, radius: int = 0) -> Any:
        """Slices of the keys with the weights of z, (keys, z), each row adding up to 1; z to ``radius`` at least."""
        noise = self.released.noise
        wide = max(1, int(noise.scale / 8.0))
        last = max(int(NEAR * noise.scale), radius) // wide
        at = np.asarray(np.arange(-last, last + 1) * wide, np.float64)
        chance = noise.pmf(at)
        for start in range(0, len(values), max(1, CHUNK // len(at))):
            part = slice(start, start + max(1, CHUNK // len(at)))
            weight = chance * self._chance(symbols[part][:, None], values[part][:, None] - at[None, :])
            yield part, at, weight / weight.sum(axis=1, keepdims=True)

    def rows(self, bins: Bins, shape: Floats, beyond: int) -> Rows:
        """How the values of buckets without listed keys spread: m·ln E e^(isy) = m·ln E e^(isZ) + Σ μ·(e^(isx) − 1).

        A compound Poisson sum, so linear in μ, the keys that are not listed, at every frequency s: real and
        imaginary parts are rows. Frequencies reach from the support's end to where the noise hides the counts.
        """
        alone = np.ones(len(self.sample), np.bool_)
        alone[self.places[self.places < len(alone)]] = False
        values, number = self.sample[alone] * float(self.step), int(alone.sum())
        at = np.geomspace(0.5 / max(float(bins.top), 1.0), 3.0 / self.noise.scale, BUCKET_WAVES)
        level, often = np.unique(values, return_counts=True)
        waves = np.exp(1j * at[:, None] * level) @ (often / max(number, 1))
        size = np.abs(waves)
        quiet = self.noise.wave(at) * np.sinc(at * self.step / (2.0 * np.pi))
        use = (size > 0.05) & (quiet > 0.05) & (number >= BACKGROUND_SURE)
        at, size = at[use], size[use]
        found = self.size * np.log(waves[use] / quiet[use])
        variance = self.size**2 * (1.0 - size**2) / (number * size**2) + 1.0
        counts, hidden = bins.support.at, self.released.hidden(bins.support.at)
        turned = (np.exp(1j * at[:, None] * counts) - 1.0) * hidden
        matrix = np.vstack([turned.real, turned.imag]) @ shape
        return Rows.of(matrix, np.concatenate([found.real, found.imag]), np.tile(variance, 2))
