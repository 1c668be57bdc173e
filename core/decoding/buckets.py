"""Likelihood of noisy buckets: the probability of a bucket's value, given the count of a key that is in it.

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

from hushgram.decoding.constants import (
    BACKGROUND_CELLS,
    BACKGROUND_SEEN,
    BACKGROUND_SURE,
    BACKGROUND_WINDOW,
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
from hushgram.decoding.likelihood import Flags, Floats, Ints, Likelihood, ReleasedNumbers, need, uniform
from hushgram.decoding.prior import Bins, Observations, Prior
from hushgram.errors import ParameterError
from hushgram.noise.entropy import BitSource
from hushgram.noise.laws import NoiseLaw

__all__ = ["Background", "BucketLikelihood", "model_masses"]


# What lies in a bucket beside the key that is looked up: other keys, and noise ★.
#
# A key's bucket is uniform and independent of all that is in the buckets without it. So the *background*, the
# others' counts plus noise, is distributed as a bucket drawn at random, and the released buckets themselves show
# that distribution: nothing need be assumed. A model gives its shape, and the buckets correct it:
#
# * model: the noise, plus a compound Poisson sum of keys that are not listed, under the fitted prior (and, where
#   another listed key was subtracted, that key's noise);
# * correction: in windows of values that hold enough buckets, the model is scaled to the buckets that were seen.
#   Where it has far less than was seen there, it has no shape to give either (a false key that was subtracted
#   leaves values that no noise explains): a share of the seen values themselves, smoothed, is part of the model.
#
# Listed keys are known, so each bucket's value is taken less the mean counts of the listed keys in it.


class Background:
    """The distribution of one kind of bucket (nobody else in it is listed, or somebody is), on a grid of counts."""

    def __init__(self, width: int, masses: Floats, seen: Ints, step: int, noise: NoiseLaw) -> None:
        """Take ``masses``, the model on cells of ``width`` counts, 0 first, negative last; ``seen``: released values.

        ``noise``: what the seen values are smoothed by.
        """
        shift = len(masses) // 4
        self.width = width
        self.first = -shift * width - width / 2.0  # where the first cell begins
        mass = np.roll(masses, shift)
        self._set(mass / mass.sum())
        if len(seen):
            self._set((1.0 - BACKGROUND_SEEN) * self.mass + BACKGROUND_SEEN * self._smoothed(seen, noise))
            self._set(self._corrected(seen, step))
        middle = self.first + (np.arange(len(mass)) + 0.5) * width
        rounding = (step**2 - 1) / 12.0
        self.mean = float(seen.mean()) if len(seen) >= BACKGROUND_SURE else float(self.mass @ middle)
        self.variance = float(self.mass @ (middle - self.mass @ middle) ** 2) + rounding

    def _set(self, mass: Floats) -> None:
        self.mass = mass
        self.cumulated = np.append(0.0, np.cumsum(mass))

    def below(self, at: Floats) -> Floats:
        """Return P(background < at), linear inside cells."""
        place = np.clip((at - self.first) / self.width, 0.0, len(self.mass))
        low = np.minimum(place.astype(np.int64), len(self.mass) - 1)
        return np.asarray(self.cumulated[low] + (place - low) * self.mass[low])

    def quantile(self, share: float) -> float:
        """Return the value that a share of the background lies below."""
        return float(
            self.first + self.width * np.interp(share, self.cumulated, np.arange(len(self.cumulated)))
        )

    def _smoothed(self, seen: Ints, noise: NoiseLaw) -> Floats:
        """Return the values that were seen, each spread by the noise."""
        cells = len(self.mass)
        at = np.clip(np.floor((seen - self.first) / self.width).astype(np.int64), 0, cells - 1)
        found = np.bincount(at, minlength=cells) / len(seen)
        spread = np.fft.rfft(found) * np.fft.rfft(_noise_cells(noise, self.width))
        return np.maximum(np.fft.irfft(spread, cells), 0.0)

    def _corrected(self, seen: Ints, step: int) -> Floats:
        """Return the model scaled, window by window, to the seen values; those beyond it count at its ends."""
        step *= max(1, self.width // step)  # nothing is distinguished below the model's cells
        seen = np.clip(seen, self.first, self.first + self.width * len(self.mass))
        first, last = int(np.floor(seen.min() / step)) - 1, int(np.ceil(seen.max() / step)) + 1
        edges = np.asarray((np.arange(first, last + 2) - 0.5) * step, np.float64)
        found = np.histogram(seen, edges)[0].astype(np.float64)
        expected = len(seen) * np.diff(self.below(edges))
        whole = np.cumsum(np.minimum(found + expected, 1e300)) / 2.0
        last = max(
            np.floor(whole[-1] / BACKGROUND_WINDOW) - 1.0, 0.0
        )  # what is left joins the last full window
        window = np.unique(np.minimum(whole // BACKGROUND_WINDOW, last), return_inverse=True)[1]
        ratio = np.maximum(np.bincount(window, found), 1.0) / np.maximum(np.bincount(window, expected), 1e-9)
        middle = self.first + (np.arange(len(self.mass)) + 0.5) * self.width
        cell = np.clip(np.floor((middle - edges[0]) / step).astype(np.int64), 0, len(found) - 1)
        mass = self.mass * ratio[window[cell]]
        return np.asarray(mass / mass.sum())


def model_masses(
    released: ReleasedNumbers, prior: Prior, noise: NoiseLaw, size: int, top: float
) -> tuple[int, Floats, Floats]:
    """Return the cell width, and masses of the background without and with another listed key in the bucket."""
    width = max(1, int(np.ceil(4.0 * top / BACKGROUND_CELLS)))
    edges = (np.arange(BACKGROUND_CELLS // 2 + 1) - 0.5) * width
    hidden = prior.mass * released.hidden(prior.grid.at)
    ends = np.append(prior.grid.low, prior.grid.high[-1] + 1) - 0.5
    jumps = np.zeros(BACKGROUND_CELLS)
    jumps[: len(edges) - 1] = np.diff(np.interp(edges, ends, np.append(0.0, np.cumsum(hidden))))
    load = prior.keys * float(jumps.sum()) / size
    jumps /= max(float(jumps.sum()), 1e-300)
    others = np.exp(load * (np.fft.rfft(jumps) - 1.0))
    turned = [np.fft.rfft(_noise_cells(law, width)) for law in (noise, released.noise)]
    parts = (others * turned[0], others * turned[0] * turned[1])
    alone, beside = (np.maximum(np.fft.irfft(part, BACKGROUND_CELLS), 1e-15) for part in parts)
    return width, alone, beside


def _noise_cells(noise: NoiseLaw, width: int) -> Floats:
    """Return the probability of each cell of ``width`` counts around 0, in the order of `np.fft.fftfreq`."""
    half = BACKGROUND_CELLS // 2
    edges = np.ceil((np.arange(-half, half + 1) - 0.5) * width)
    return np.asarray(np.fft.ifftshift(-np.diff(noise.tail(edges))))


class BucketLikelihood(Likelihood):
    """A symbol is 2·y + kind: y the bucket's value less its listed keys, kind 1 where there are some.

    ``places``: the bucket of each listed key, in the order of ``released.listed``. ``sample``: the released levels of
    the first buckets, all of them or enough. ``total``: the sum of all levels.
    """

    source: ClassVar[str] = "buckets"

    def __init__(
        self,
        released: ReleasedNumbers,
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
        """Return about the mean count of a key that is listed with each value, an empty cell included."""
        near, table, mean = self._near_means
        return np.where(values <= near, np.rint(np.interp(values, table, mean)).astype(np.int64), values)

    @cached_property
    def _near_means(self) -> tuple[int, Floats, Floats]:
        """The largest value that the prior reaches, and the mean counts of some values up to it."""
        threshold, noise, prior = self.released.threshold, self.released.noise, self.prior
        near = threshold + int(np.ceil(NEAR * noise.scale))
        step = max(1, int(noise.scale / MEANS))  # however large the noise, a table is small
        table = np.arange(threshold, near + step, step).astype(np.float64)
        weight = self.released.value(table, prior.grid.at) * prior.mass * prior.keys
        empty = (self.released.domain_size or 0.0) * noise.pmf(table)
        return near, table, weight @ prior.grid.at / np.maximum(weight.sum(axis=1) + empty, 1e-300)

    @cached_property
    def _known(self) -> tuple[Ints, Ints, Ints]:
        """Buckets with listed keys, rising; the sum of their mean counts; how many they are."""
        held, at = np.unique(self.places, return_inverse=True)
        known = self.listed_mean(self.released.listed)
        sums = np.minimum(np.bincount(at, known), 2.0**60).astype(np.int64)
        return held, sums, np.bincount(at).astype(np.int64)

    def _others(self, places: Ints) -> tuple[Ints, Ints]:
        """Return mean counts of the listed keys in each bucket, and how many there are."""
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
        top = float(self.prior.grid.high[-1]) + BUCKET_REACH * self.noise.scale
        width, alone, beside = model_masses(self.released, self.prior, self.noise, self.size, top)
        seen = values[number == 0], values[number > 0]
        kinds = [
            Background(width, mass, part, self.step, self.noise)
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
        """Return symbols of ``found``, (N, 2): the bucket of each key and its level."""
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
        """Add the count to the bucket; where inside its step the sum was before is drawn at random."""
        inside = uniform(source, (len(counts),)) - 0.5
        rows = np.array(found, np.int64)
        rows[:, 1] += np.floor(counts / self.step + inside + 0.5).astype(np.int64)
        return rows

    def _chance(self, symbols: Ints, counts: Floats) -> Floats:
        """Return P(value of the bucket | x, kind) for symbols and counts that broadcast."""
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
        """Values of buckets that are kept distinct: those of keys that are not listed, except rare ones."""
        alone = self._kinds[0]
        top = self.released.threshold + NEAR * self.released.noise.scale
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
        # The last class: another listed key is in the bucket, so only the list is used.
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
        """Subtract what N(N − 1)/m pairs that share a bucket add: each key counts in the other's sum too."""
        noise, kind = self.released.noise, symbols & 1
        estimate = (symbols >> 1) - np.array([background.mean for background in self._kinds])[kind]
        variance = np.array([background.variance for background in self._kinds])[kind]
        pairs = 0.0 if mean is None else (len(symbols) - 1) / self.size
        cut = self.released.threshold + int(np.ceil(SURE * noise.scale))
        weight = variance / (variance + noise.variance)
        over = listed & (values >= cut)
        skew = weight * np.where(listed, noise.selected(values.astype(np.float64), cut), 0.0)
        both = estimate + weight * np.where(over, values - estimate, 0.0) - skew
        spread = np.where(over, weight * noise.variance, variance) + skew**2
        usual = min(
            mean or 0.0, float(self.released.threshold)
        )  # of the keys that are not known from the list
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
        """Yield slices of the keys with weights of z, (keys, z), rows that sum to 1; z up to ``radius`` at least."""
        noise = self.released.noise
        wide = max(1, int(noise.scale / 8.0))
        last = max(int(NEAR * noise.scale), radius) // wide
        at = np.asarray(np.arange(-last, last + 1) * wide, np.float64)
        chance = noise.pmf(at)
        for start in range(0, len(values), max(1, CHUNK // len(at))):
            part = slice(start, start + max(1, CHUNK // len(at)))
            weight = chance * self._chance(symbols[part][:, None], values[part][:, None] - at[None, :])
            yield part, at, weight / weight.sum(axis=1, keepdims=True)

    def observations(self, bins: Bins, shape: Floats, beyond: int) -> Observations:
        """Return the spread of buckets without listed keys: m·ln E e^(isy) = m·ln E e^(isZ) + Σ μ·(e^(isx) − 1).

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
        counts, hidden = bins.grid.at, self.released.hidden(bins.grid.at)
        turned = (np.exp(1j * at[:, None] * counts) - 1.0) * hidden
        matrix = np.vstack([turned.real, turned.imag]) @ shape
        return Observations.of(matrix, np.concatenate([found.real, found.imag]), np.tile(variance, 2))
