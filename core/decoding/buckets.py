"""Likelihood of noisy buckets: the probability of a bucket's value, given the count of a key that is in it.

A bucket holds the key's count x and a background (`Background`), and is released in multiples of an odd step:
P(value | x) = P(background + x rounds to value). Named keys are in no bucket.

**unbiased** ★: y − E background has mean x for every x.
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
    LEAST_CHANCE,
    NEAR,
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
# * model: the noise, plus a compound Poisson sum of keys that are not named, under the fitted prior;
# * correction: in windows of values that hold enough buckets, the model is scaled to the buckets that were seen.
#   Where it has far less than was seen there, it has no shape to give either: a share of the seen values themselves,
#   smoothed, is part of the model.


class Background:
    """The distribution of what is in a bucket beside a key, on a grid of counts."""

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
) -> tuple[int, Floats]:
    """Return the cell width, and masses of the background."""
    width = max(1, int(np.ceil(4.0 * top / BACKGROUND_CELLS)))
    edges = (np.arange(BACKGROUND_CELLS // 2 + 1) - 0.5) * width
    hidden = prior.mass * released.hidden(prior.grid.at)
    ends = np.append(prior.grid.low, prior.grid.high[-1] + 1) - 0.5
    jumps = np.zeros(BACKGROUND_CELLS)
    jumps[: len(edges) - 1] = np.diff(np.interp(edges, ends, np.append(0.0, np.cumsum(hidden))))
    load = prior.keys * float(jumps.sum()) / size
    jumps /= max(float(jumps.sum()), 1e-300)
    turned = np.exp(load * (np.fft.rfft(jumps) - 1.0)) * np.fft.rfft(_noise_cells(noise, width))
    return width, np.maximum(np.fft.irfft(turned, BACKGROUND_CELLS), 1e-15)


def _noise_cells(noise: NoiseLaw, width: int) -> Floats:
    """Return the probability of each cell of ``width`` counts around 0, in the order of `np.fft.fftfreq`."""
    half = BACKGROUND_CELLS // 2
    edges = np.ceil((np.arange(-half, half + 1) - 0.5) * width)
    return np.asarray(np.fft.ifftshift(-np.diff(noise.tail(edges))))


class BucketLikelihood(Likelihood):
    """A symbol is the value of the key's bucket.

    ``sample``: the released levels of the first buckets, all of them or enough. ``total``: the sum of all levels.
    """

    source: ClassVar[str] = "buckets"

    def __init__(
        self,
        released: ReleasedNumbers,
        *,
        noise: NoiseLaw,
        step: int,
        size: int,
        sample: ArrayLike,
        total: int,
    ) -> None:
        self.released, self.noise, self.step, self.size, self.total = released, noise, step, size, total
        self.sample = np.ascontiguousarray(sample, dtype=np.int64).reshape(-1)
        self.grain = noise.scale
        need(self, step >= 1 and step % 2 == 1, "step", step, "it must be odd")
        need(self, 1 <= len(self.sample) <= size, "sample", len(self.sample), f"at most {size} buckets")
        need(self, not len(released.listed), "listed", len(released.listed), "named keys are in no bucket")

    @cached_property
    def background(self) -> Background:
        """Return the distribution of what is in a bucket beside the key."""
        values = self.sample * self.step
        top = float(self.prior.grid.high[-1]) + BUCKET_REACH * self.noise.scale
        width, masses = model_masses(self.released, self.prior, self.noise, self.size, top)
        found = Background(width, masses, values, self.step, self.noise)
        if len(self.sample) < self.size:  # the mean of all buckets is known
            found.mean += self.total * self.step / self.size - float(values.mean())
        return found

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
        return rows[:, 1] * self.step

    def planted(self, found: Any, counts: Ints, source: BitSource) -> Any:
        """Add the count to the bucket; where inside its step the sum was before is drawn at random."""
        inside = uniform(source, (len(counts),)) - 0.5
        rows = np.array(found, np.int64)
        rows[:, 1] += np.floor(counts / self.step + inside + 0.5).astype(np.int64)
        return rows

    def factors(self, symbols: Ints, counts: Floats) -> tuple[Floats, Floats | None]:
        at = symbols[:, None] - counts[None, :]
        chance = self.background.below(at + self.step / 2.0) - self.background.below(at - self.step / 2.0)
        return np.maximum(chance, LEAST_CHANCE) * self.released.hidden(counts), None

    def every_symbol(self) -> Ints | None:
        low, high = self._range
        first, end = int(low // self.step), int(high // self.step) + 2
        if end - first > 1 << CALIBRATE:
            return None
        return np.arange(first, end, dtype=np.int64) * self.step

    # Partitions -----------------------------------------------------------------------------------------

    @cached_property
    def _range(self) -> tuple[float, float]:
        """Values of buckets that are kept distinct, except rare ones."""
        top = self.released.threshold + NEAR * self.released.noise.scale
        return self.background.quantile(1e-5), top + self.background.quantile(0.999)

    @cached_property
    def _edges(self) -> Floats:
        """Between the classes of values: whole steps, each the middle between two values."""
        low, high = self._range
        wide = max(1, int((high - low) / BUCKET_CLASSES / self.step))
        levels = np.arange(int(low // self.step), int(high // self.step) + 2, wide)
        return np.asarray((levels + 0.5) * self.step, np.float64)

    def hidden_classes(self, counts: Floats) -> Floats:
        below = self.background.below(self._edges[None, :] - counts[:, None])
        return np.diff(below, axis=1, prepend=0.0, append=1.0) * self.released.hidden(counts)[:, None]

    def hidden_class(self, symbols: Ints) -> Ints:
        return np.searchsorted(self._edges, symbols, side="right").astype(np.int64)

    # Estimates without a prior ----------------------------------------------------------------------------

    def argmax(self, symbols: Ints) -> Floats:
        return np.asarray(np.maximum(symbols - self.background.quantile(0.5), 0.0))

    def unbiased(
        self, symbols: Ints, values: Ints, listed: Flags, *, mean: float | None = None
    ) -> tuple[Floats, Floats]:
        """Subtract what N(N − 1)/m pairs that share a bucket add: each key counts in the other's sum too."""
        pairs = 0.0 if mean is None else (len(symbols) - 1) / self.size
        usual = min(mean or 0.0, float(self.released.threshold))
        spread = self.background.variance * (1.0 + pairs) + 2.0 * pairs * usual**2
        return np.asarray(symbols - self.background.mean), np.full(len(symbols), spread)

    def observations(self, bins: Bins, shape: Floats, beyond: int) -> Observations:
        """Return the spread of buckets: m·ln E e^(isy) = m·ln E e^(isZ) + Σ μ·(e^(isx) − 1).

        A compound Poisson sum, so linear in μ, the keys that are not named, at every frequency s: real and
        imaginary parts are rows. Frequencies reach from the support's end to where the noise hides the counts.
        """
        values, number = self.sample * float(self.step), len(self.sample)
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
