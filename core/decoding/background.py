"""What lies in a bucket beside the key that is looked up: other keys, and noise ★.

A key's bucket is uniform and independent of all that is in the buckets without it. So the *background*, the
others' counts plus noise, is distributed as a bucket drawn at random, and the released buckets themselves show
that distribution: nothing need be assumed. A model gives its shape, and the buckets correct it:

* model: the noise, plus a compound Poisson sum of keys that are not listed, under the fitted prior (and, where
  another listed key was subtracted, that key's noise);
* correction: in windows of values that hold enough buckets, the model is scaled to the buckets that were seen.
  Where it has far less than was seen there, it has no shape to give either (a false key that was subtracted
  leaves values that no noise explains): a share of the seen values themselves, smoothed, is part of the model.

Listed keys are known, so each bucket's value is taken less the mean counts of the listed keys in it.
"""

from __future__ import annotations

import numpy as np

from hushgram.decoding.constants import BACKGROUND_CELLS, BACKGROUND_SEEN, BACKGROUND_SURE, BACKGROUND_WINDOW
from hushgram.decoding.prior import Prior
from hushgram.decoding.released import Floats, Ints, Released
from hushgram.noise.laws import NoiseLaw

__all__ = ["Background", "model_masses"]


class Background:
    """The distribution of one kind of bucket (nobody else in it is listed, or somebody is), on a grid of counts."""

    def __init__(self, unit: int, masses: Floats, seen: Ints, step: int, noise: NoiseLaw) -> None:
        """``masses``: the model on cells of ``unit`` counts, 0 first, negative ones last; ``seen``: released values.

        ``noise``: what the seen values are smoothed by.
        """
        shift = len(masses) // 4
        self.unit = unit
        self.first = -shift * unit - unit / 2.0  # where the first cell begins
        mass = np.roll(masses, shift)
        self._set(mass / mass.sum())
        if len(seen):
            self._set((1.0 - BACKGROUND_SEEN) * self.mass + BACKGROUND_SEEN * self._smoothed(seen, noise))
            self._set(self._corrected(seen, step))
        middle = self.first + (np.arange(len(mass)) + 0.5) * unit
        rounding = (step**2 - 1) / 12.0
        self.mean = float(seen.mean()) if len(seen) >= BACKGROUND_SURE else float(self.mass @ middle)
        self.variance = float(self.mass @ (middle - self.mass @ middle) ** 2) + rounding

    def _set(self, mass: Floats) -> None:
        self.mass = mass
        self.cumulated = np.append(0.0, np.cumsum(mass))

    def below(self, at: Floats) -> Floats:
        """P(background < at), linear inside cells."""
        place = np.clip((at - self.first) / self.unit, 0.0, len(self.mass))
        low = np.minimum(place.astype(np.int64), len(self.mass) - 1)
        return np.asarray(self.cumulated[low] + (place - low) * self.mass[low])

    def quantile(self, share: float) -> float:
        """The value that a share of the background lies below."""
        return float(
            self.first + self.unit * np.interp(share, self.cumulated, np.arange(len(self.cumulated)))
        )

    def _smoothed(self, seen: Ints, noise: NoiseLaw) -> Floats:
        """The values that were seen, each spread by the noise."""
        cells = len(self.mass)
        at = np.clip(np.floor((seen - self.first) / self.unit).astype(np.int64), 0, cells - 1)
        found = np.bincount(at, minlength=cells) / len(seen)
        spread = np.fft.rfft(found) * np.fft.rfft(_noise_cells(noise, self.unit))
        return np.maximum(np.fft.irfft(spread, cells), 0.0)

    def _corrected(self, seen: Ints, step: int) -> Floats:
        """The model scaled, window by window, to the values that were seen; those beyond it count at its ends."""
        step *= max(1, self.unit // step)  # finer than the model's cells nothing is told apart
        seen = np.clip(seen, self.first, self.first + self.unit * len(self.mass))
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
        middle = self.first + (np.arange(len(self.mass)) + 0.5) * self.unit
        cell = np.clip(np.floor((middle - edges[0]) / step).astype(np.int64), 0, len(found) - 1)
        mass = self.mass * ratio[window[cell]]
        return np.asarray(mass / mass.sum())


def model_masses(
    released: Released, prior: Prior, noise: NoiseLaw, size: int, top: float
) -> tuple[int, Floats, Floats]:
    """Cell width, and masses of the background without and with another listed key in the bucket."""
    unit = max(1, int(np.ceil(4.0 * top / BACKGROUND_CELLS)))
    edges = (np.arange(BACKGROUND_CELLS // 2 + 1) - 0.5) * unit
    hidden = prior.mass * released.hidden(prior.support.at)
    ends = np.append(prior.support.low, prior.support.high[-1] + 1) - 0.5
    jumps = np.zeros(BACKGROUND_CELLS)
    jumps[: len(edges) - 1] = np.diff(np.interp(edges, ends, np.append(0.0, np.cumsum(hidden))))
    load = prior.keys * float(jumps.sum()) / size
    jumps /= max(float(jumps.sum()), 1e-300)
    others = np.exp(load * (np.fft.rfft(jumps) - 1.0))
    turned = [np.fft.rfft(_noise_cells(law, unit)) for law in (noise, released.noise)]
    parts = (others * turned[0], others * turned[0] * turned[1])
    alone, beside = (np.maximum(np.fft.irfft(part, BACKGROUND_CELLS), 1e-15) for part in parts)
    return unit, alone, beside


def _noise_cells(noise: NoiseLaw, unit: int) -> Floats:
    """Probability of each cell of ``unit`` counts around 0, in the order of `np.fft.fftfreq`."""
    half = BACKGROUND_CELLS // 2
    edges = np.ceil((np.arange(-half, half + 1) - 0.5) * unit)
    return np.asarray(np.fft.ifftshift(-np.diff(noise.tail(edges))))
