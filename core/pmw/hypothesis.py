"""The public histogram that private multiplicative weights learns, in arithmetic that every machine repeats.

Everything here is post-processing of released answers: it costs no privacy. But a retry must compare the
same numbers with the same noise, so the result may not depend on the order in which a machine adds floats
or on its ``exp``:

* a cell holds a whole number of units, 2^shift units a count, so answers are exact integers;
* matrix products run on whole numbers whose sums stay below 2^53, exact in float64 in whatever order;
* everything else is element by element with + − × ÷ and rounding, which IEEE 754 fixes to the last bit.

The update (Kamath, Lecture 9, "Online Private Multiplicative Weights", step 3) multiplies cell i by
exp(η·w_i·sign). Replay goes beyond it: all released answers, not only the newest, are then fitted again by simultaneous
multiplicative steps

    h_i ← h_i · exp(Σ_j w_ij·(a_j − ⟨w_j, h⟩)/(n·L)),   L = largest eigenvalue of the covariance of the
    queries under h

which is gradient ascent on the dual of "nearest to the prior in relative entropy, subject to the answers".
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.noise.entropy import digest
from hushgram.pmw.workload import GRID, Workload

__all__ = ["LAST_REPLAY", "MOST_REPLAYED", "MOST_TOTAL", "Hypothesis", "repeatable_exp"]

# n is cut here: n·GRID·2^shift must stay an exact float64.
MOST_TOTAL = (1 << 36) - 1
# The replay keeps one row for each answer; beyond this its whole numbers would leave float64's exact range.
MOST_REPLAYED = 1 << 12
# Steps over all answers at the end: the hypothesis is all there is from then on.
LAST_REPLAY = 60
_UNITS = 36
# Fixed-point scales of the replay; with up to 2^12 answers and 2^20 cells all sums stay below 2^53.
_RESIDUAL = float(1 << 22)
_VECTOR = float(1 << 14)
_COEFFICIENT = float(1 << 20)
# Share of the last step that the next one repeats (heavy ball): fewer updates at the same cost. Beyond 0.9
# the replay was seen to swing out of control.
_MOMENTUM = 0.8
# The eigenvalue estimate lags behind while h moves: when the worst residual grows by this, momentum is
# dropped.
_WORSE = 1.5
# The eigenvalue is looked at after every answer at first, later after every fourth: it moves slowly then.
_SETTLED, _REFRESH = 64, 4
# While the answers have few weights in all, a step is cheap, and more of them are made.
_EARLY = 1 << 15
_LN2 = 0.6931471805599453
# Taylor coefficients of e^r for |r| ≤ ½ ln 2.
_TAYLOR = (1 / 362880, 1 / 40320, 1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0)


def repeatable_exp(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """e^z for z ≤ 0 by steps that IEEE 754 fixes, so that all machines agree (relative error below 10⁻¹¹).

    >>> round(float(repeatable_exp(np.array([-1.0]))[0]), 10)
    0.3678794412
    """
    rest = np.maximum(z, -700.0)
    halvings = np.rint(rest * (1 / _LN2))
    rest -= halvings * _LN2
    out = np.full(len(rest), _TAYLOR[0])
    for coefficient in _TAYLOR[1:]:
        out *= rest
        out += coefficient
    result: NDArray[np.float64] = np.ldexp(out, halvings.astype(np.int32))
    return result


class Hypothesis:
    """A synthetic histogram of ``total`` counts over the cells, and the answers it was fitted to."""

    def __init__(
        self, cells: int, total: int, prior: NDArray[np.int64] | None = None, answers: int = 0
    ) -> None:
        if cells < 1:
            raise ParameterError("Hypothesis: the domain is empty; name at least one key")
        self.total = min(max(total, 1), MOST_TOTAL)
        self.shift = _UNITS - self.total.bit_length()
        weights = np.ones(cells, dtype=np.int64) if prior is None else np.asarray(prior, dtype=np.int64)
        if len(weights) != cells or weights.min() < 1 or int(weights.max()) >= 1 << 26:
            raise ParameterError("Hypothesis: a prior needs one weight from 1 to 2^26 for each cell")
        # exp(log) ≤ 1, so the masses below are whole numbers that add up to less than 2^53.
        self._prior = weights.astype(np.float64) * 2.0 ** (51 - int(weights.sum()).bit_length())
        self._log = np.zeros(cells)
        self._pace = np.zeros(cells)
        self._worst = 0.0
        self._asked = np.zeros((answers, cells))  # 2w − GRID, the queries of released answers
        self._told = np.zeros(answers)
        self.answers = 0
        self._vector = np.zeros(cells)  # direction of the power iteration
        self._curve = 1.0
        self._least = 1e-4  # lower bound of the eigenvalue: the largest variance of one query
        self._settle()

    @property
    def units(self) -> NDArray[np.int64]:
        """The cells, in units of 2^−shift counts."""
        return self._h.astype(np.int64)

    def counts(self) -> NDArray[np.float64]:
        """The synthetic histogram."""
        return np.ldexp(self._h, -self.shift)

    @property
    def digest(self) -> bytes:
        """Tells this hypothesis from any other."""
        return digest("hypothesis", self.total, self.shift, self.units)

    def estimate(self, queries: Workload, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """GRID times the hypothesis' answers, rounded to whole numbers."""
        exact = queries.exact(self.units, start, stop)
        return (exact + (1 << self.shift >> 1)) >> self.shift

    def learn(self, row: NDArray[np.int64], answer: int, *, replay: int, rate: float, sign: int) -> None:
        """Take in a released answer (GRID times the noisy count) to the query ``row`` (GRID times weights).

        ``replay`` = 0 is the update of the lecture, with rate η and the direction ``sign``; otherwise that many
        simultaneous steps over all answers so far.
        """
        centred: NDArray[np.float64] = 2.0 * row.astype(np.float64) - GRID
        if replay == 0:
            self._log += centred * (sign * rate / (2 * GRID))
            self._settle()
            return
        self._asked[self.answers] = centred
        bounded = min(max(answer, 0), self.total * GRID)  # a true answer lies there, but noise may leave it
        self._told[self.answers] = float(bounded) * 2.0 ** (self.shift + 1)
        self.answers += 1
        self._meet(centred)
        self._worst = math.inf  # a new answer may well be far off
        few = _EARLY // (self.answers * len(self._h))
        self.replay(replay * min(max(few, 1), 32))

    def _meet(self, centred: NDArray[np.float64]) -> None:
        """Turn the power iteration towards a new query, whose variance bounds the eigenvalue from below."""
        coarse = np.rint(centred / 64)  # its square times h, summed, stays below 2^53
        shares = np.rint(self._h * (2.0**30 / self._held))
        mean = float((coarse * shares).sum()) / 2.0**30
        square = float((coarse * coarse * shares).sum()) / 2.0**30
        self._least = max(self._least, (square - mean * mean) * (64 / GRID) ** 2)
        self._vector += np.rint((coarse - mean) * (_VECTOR * 32 / GRID))

    def replay(self, steps: int) -> None:
        """Fit all answers again: post-processing, free."""
        if not self.answers or not steps:
            return
        if self.answers < _SETTLED or self.answers % _REFRESH == 0:
            self._curve = self._eigenvalue()
        for _ in range(steps):
            self._step()

    def _step(self) -> None:
        """One simultaneous multiplicative step over all answers."""
        asked = self._asked[: self.answers]
        residual = self._told[: self.answers] - GRID * self._held - asked @ self._h  # exact: below 2^53
        residual = np.rint(residual * (_RESIDUAL / (GRID * self._held)))
        worst = float(np.abs(residual).max())
        self._pace *= 0.0 if worst > _WORSE * self._worst else _MOMENTUM
        self._pace += (residual @ asked) * (1.0 / (_RESIDUAL * GRID * self._curve))
        self._worst = worst
        self._log += self._pace
        self._settle()

    def _eigenvalue(self) -> float:
        """One step of power iteration on the covariance of the queries under h, and its estimate."""
        asked, vector = self._asked[: self.answers], self._vector
        means = np.rint((asked @ self._h) / self._held)
        image = asked @ vector - means * float(vector.sum())
        stretch = _COEFFICIENT / max(float(np.abs(image).max()), 1.0)
        image = np.rint(image * stretch)
        back = (image @ asked - float(image @ means)) * self._h
        high = float(np.abs(back).max())
        if high == 0.0:
            return max(self._least, 1.0)
        before = max(float(np.abs(vector).max()), 1.0)
        self._vector = np.rint(back * (_VECTOR / high))
        return max(high / (self._held * stretch * before * GRID * GRID), self._least)

    def _settle(self) -> None:
        """h from the logarithms: whole units that add up to the total, but for rounding."""
        self._log -= self._log.max()
        mass = np.rint(self._prior * repeatable_exp(self._log))
        self._h = np.rint(mass * (float(self.total) * 2.0**self.shift / max(float(mass.sum()), 1.0)))
        self._held = float(self._h.sum())
