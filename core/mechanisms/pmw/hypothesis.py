"""The public histogram that private multiplicative weights learns, in arithmetic that every machine repeats.

Everything here is post-processing of released answers: it costs no privacy. But a retry must compare the
same numbers with the same noise, so the result may not depend on the order in which a machine adds floats
or on its ``exp``:

* a cell holds a whole number of units, 2^shift units per count, so answers are exact integers;
* matrix products run on whole numbers whose sums stay below 2^53, exact in float64 in whatever order;
* everything else is element by element with + − × ÷ and rounding, which IEEE 754 fixes to the last bit.

The update (Kamath, Lecture 9, "Online Private Multiplicative Weights", step 3) multiplies cell i by
exp(η·w_i·sign). Replay goes beyond it: h is fitted to all released answers a_j, not only the newest, as the
distribution that is nearest to the prior in relative entropy. It has the form h_i = prior_i · exp(Σ_j λ_j·w_ij), and
λ is found by ascent on the dual, which is concave with gradient g_j = a_j − p_j − κ_j·λ_j, p_j = ⟨w_j, h⟩/n. Here κ_j
is the noise scale of the answer, as a share of n, over _TRUST: answers are met to within their noise, and noisy
answers that contradict one another push no λ to infinity. No step can diverge:

* a new answer moves its own λ_j by logit(a_j) − logit(p_j). The slope of logit(p_j) in λ_j is
  Var(w_j)/(p_j(1 − p_j)) ≤ 1, as weights are in [0, 1] (Bhatia, Davis 2000): the step never goes beyond a_j, and for
  weights 0 and 1 it meets a_j exactly;
* then all λ move together, by conjugate gradients that are scaled with such logits. A step of length t along d is
  taken only where g(t)·d ≥ 0, so the dual has risen all the way; a longer one is cut by the secant.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.mechanisms.pmw.workload import GRID, Workload
from hushgram.noise.entropy import digest

__all__ = ["LAST_REPLAY", "MAX_REPLAYED", "MAX_TOTAL", "Hypothesis", "repeatable_exp"]

# n is cut here: n·GRID·2^shift must stay an exact float64.
MAX_TOTAL = (1 << 36) - 1
# The replay keeps one row for each answer; beyond this its whole numbers would leave float64's exact range.
MAX_REPLAYED = 1 << 12
# Steps over all answers at the end: the hypothesis is all there is from then on.
LAST_REPLAY = 30
_UNITS = 36
# Fixed-point scales of the replay; with up to 2^12 answers and 2^20 cells all sums stay below 2^53.
_RESIDUAL = float(1 << 21)
_WHOLE = float(1 << 17)
# The λ that an answer may have where the hypothesis is one noise scale off it.
_TRUST = 4.0
# A step may be this much longer than the one before it, is a little shorter than the secant says, and is given up
# after so many cuts. No step is longer than the last constant.
_GROWTH, _SAFETY, _MAX_CUTS, _MAX_LENGTH = 4.0, 0.9, 12, 64.0
# While the answers have few weights in all, a step is cheap, and more of them are made.
_EARLY = 1 << 15
_LN2, _LN_3_4 = 0.6931471805599453, -0.2876820724517809
# Shares are kept this far from 0 and 1 before a logarithm is taken.
_MIN_SHARE = 2.0**-40
# Taylor coefficients of e^r for |r| ≤ ½ ln 2.
_TAYLOR = (1 / 362880, 1 / 40320, 1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0)


def repeatable_exp(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return e^z for z ≤ 0, by steps that IEEE 754 fixes, so that all machines agree (relative error below 10⁻¹¹).

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


def repeatable_log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ln x for x > 0, by steps that IEEE 754 fixes as well."""
    mantissa, exponent = np.frexp(x)
    s: NDArray[np.float64] = (mantissa - 0.75) / (mantissa + 0.75)  # |s| ≤ 1/5
    square = s * s
    out = np.full(len(s), 1 / 17)
    for odd in range(15, 0, -2):
        out *= square
        out += 1 / odd
    result: NDArray[np.float64] = 2 * s * out + _LN_3_4 + exponent * _LN2
    return result


class Hypothesis:
    """A synthetic histogram of ``total`` counts over the cells, and the answers it was fitted to."""

    def __init__(
        self, cells: int, total: int, prior: NDArray[np.int64] | None = None, answers: int = 0
    ) -> None:
        if cells < 1:
            raise ParameterError("Hypothesis: the domain is empty; name at least one key")
        self.total = min(max(total, 1), MAX_TOTAL)
        self.shift = _UNITS - self.total.bit_length()
        weights = np.ones(cells, dtype=np.int64) if prior is None else np.asarray(prior, dtype=np.int64)
        if len(weights) != cells or weights.min() < 1 or int(weights.max()) >= 1 << 26:
            raise ParameterError("Hypothesis: a prior needs one weight from 1 to 2^26 for each cell")
        # exp(log) ≤ 1, so the masses below are whole numbers that add up to less than 2^53.
        self._prior = weights.astype(np.float64) * 2.0 ** (51 - int(weights.sum()).bit_length())
        self._log = np.zeros(cells)
        self._asked = np.zeros((answers, cells))  # 2w − GRID, the queries of released answers
        self._told, self._ridge, self._lambda = np.zeros(answers), np.zeros(answers), np.zeros(answers)
        self.answers = 0
        # Of the last step: its length, its gradient, that times the scaled gradient, and its direction.
        self._length, self._power = 1.0, 0.0
        self._gradient, self._direction = np.zeros(answers), np.zeros(answers)
        self._settle()

    @property
    def units(self) -> NDArray[np.int64]:
        """The cells, in units of 2^−shift counts."""
        return self._h.astype(np.int64)

    def counts(self) -> NDArray[np.float64]:
        """Return the synthetic histogram."""
        return np.ldexp(self._h, -self.shift)

    @property
    def digest(self) -> bytes:
        """A digest that tells this hypothesis from any other."""
        return digest("hypothesis", self.total, self.shift, self.units)

    def estimate(self, queries: Workload, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """Return GRID times the answers of the hypothesis, rounded to whole numbers."""
        exact = queries.exact(self.units, start, stop)
        return (exact + (1 << self.shift >> 1)) >> self.shift

    def learn(
        self, row: NDArray[np.int64], answer: int, *, replay: int, rate: float, sign: int, noise: float = 0.0
    ) -> None:
        """Learn from a released answer.

        Args:
            row: GRID times the weights of the query.
            answer: GRID times the released count, with noise of scale ``noise``.
            replay: steps over all answers so far; 0 is the update of the lecture, with ``rate`` η and direction
                ``sign``.
        """
        centred: NDArray[np.float64] = 2.0 * row.astype(np.float64) - GRID
        if replay == 0:
            self._log += centred * (sign * rate / (2 * GRID))
            self._settle()
            return
        at, self.answers = self.answers, self.answers + 1
        # A true answer is a count from 0 to n, which noise may leave; from 0 and n themselves no step would return.
        bounded = min(max(answer, GRID // 4), self.total * GRID - GRID // 4)
        self._asked[at], self._told[at] = centred, float(bounded) * 2.0 ** (self.shift + 1)
        self._ridge[at] = noise * (2.0 ** (self.shift + 1) / _TRUST)
        self._lambda[at] = float(self._logits(slice(at, at + 1), self._residual(slice(at, at + 1)))[0])
        self._log += centred * (self._lambda[at] / (2 * GRID))
        self._settle()
        few = _EARLY // (self.answers * len(self._h))
        self.replay(replay * min(max(few, 1), 32))

    def _residual(self, which: slice) -> NDArray[np.float64]:
        """Return 2·GRID·n times the gradient of some answers; a − p is exact, below 2^53."""
        exact = self._told[which] - GRID * self._held - self._asked[which] @ self._h
        return exact - self._ridge[which] * self._lambda[which]

    def _logits(self, which: slice, residual: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return logit(p + g) − logit(p)."""
        goal = (self._told[which] - self._ridge[which] * self._lambda[which]) / (2 * GRID * self._held)
        p = goal - residual / (2 * GRID * self._held)
        p, goal = np.clip(p, _MIN_SHARE, 1 - _MIN_SHARE), np.clip(goal, _MIN_SHARE, 1 - _MIN_SHARE)
        return repeatable_log(goal * (1 - p) / (p * (1 - goal)))

    def replay(self, steps: int) -> None:
        """Fit all answers again by so many steps: post-processing, free."""
        if not self.answers or not steps:
            return
        which = slice(self.answers)
        residual, before, direction = self._residual(which), self._gradient[which], self._direction[which]
        for _ in range(steps):
            gradient = self._whole(residual)
            logits = self._logits(which, residual)
            fine = _WHOLE / max(float(np.abs(logits).max()), _MIN_SHARE)
            scaled = np.rint(logits * fine)
            turn = max(float(scaled @ (gradient - before)) / self._power, 0.0) if self._power > 0.0 else 0.0
            ahead = np.rint(np.clip(scaled + turn * direction, -_WHOLE, _WHOLE))
            if float(gradient @ ahead) <= 0.0:
                ahead = scaled
            self._power, before[:], direction[:] = float(gradient @ scaled) / fine, gradient, ahead / fine
            found = self._move(ahead, float(gradient @ ahead), fine)
            if found is None:
                return
            residual = found

    def _whole(self, residual: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a gradient as whole numbers whose products with a direction add up exactly."""
        return np.rint(np.clip(residual / (GRID * self._held), -2.0, 2.0) * _RESIDUAL)

    def _move(self, direction: NDArray[np.float64], slope: float, fine: float) -> NDArray[np.float64] | None:
        """Step along a direction as far as the dual rises all the way; return the residual there, None for no step."""
        if slope <= 0.0:
            return None
        which = slice(self.answers)
        log, multipliers, length = self._log, self._lambda[which].copy(), self._length
        change = (direction @ self._asked[which]) * (1.0 / (2 * GRID * fine))
        for _ in range(_MAX_CUTS):
            self._log, self._lambda[which] = log + length * change, multipliers + (length / fine) * direction
            self._settle()
            residual = self._residual(which)
            after = float(self._whole(residual) @ direction)
            secant = _SAFETY * slope / max(slope - after, slope / _GROWTH)
            if after >= 0.0:
                self._length = min(length * secant, _MAX_LENGTH)
                return residual
            length *= secant
        self._log, self._lambda[which] = log, multipliers
        self._settle()
        return None

    def _settle(self) -> None:
        """Set h from the logarithms: whole units that add up to the total, except for rounding."""
        self._log -= self._log.max()
        mass = np.rint(self._prior * repeatable_exp(self._log))
        self._h = np.rint(mass * (float(self.total) * 2.0**self.shift / max(float(mass.sum()), 1.0)))
        self._held = float(self._h.sum())
