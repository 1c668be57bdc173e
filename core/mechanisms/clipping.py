"""A clipping bound for a numeric column by the sparse vector technique, then sum, count and average.

What is released: a bound b from a public grid, the sum of all values clipped to [lower, b], and their
number, each with its own share of ε (a third by default); the average is their quotient, and free.

The bound (Programming DP, "The Sparse Vector Technique", auto_avg). Let S(b) be the sum clipped at b. Whole
numbers make the difference query S(b) − S(b + 1) = −#{x > b}, of sensitivity C whatever b is: a user has at
most C records. AboveThreshold on these, for b along the grid, halts at the first b that few records exceed.
All answers move the same way when a user is added, so the monotone split applies (Lyu, Su, Li 2017).

The threshold. Raising b by one removes a clipping bias of #{x > b} and widens the noise of the sum,
C·b/ε_sum, by C/ε_sum: so the search should stop where about C/ε_sum records are left above. Where none is
left, it must stop soon whatever the noise is: a search that runs on to the end of the grid ruins the sum.
So 4.5 scales of the noisy threshold are added (the book stops at 0, and runs on in one of ten tries on the
tests' data). Any public threshold is private.

    ε = ε_bound + ε_sum + ε_count;    sum: discrete Laplace of scale C·(b − lower)/ε_sum;    count: C/ε_count

The interval of the average, free. Let m be the mean of the counted records, each clamped to [lower, b] and measured
from ``lower``. Then (noisy sum) − m·(noisy count) is a sum of two independent noises of known scales, whatever b the
search found: the interval holds every m in [0, b] for which their law explains that difference (Fieller 1954). It is
about the records that count, clamped: what lies above b, and the records of a user beyond C, are not in it. For tails,
discrete Laplace noise of scale s plus a uniform number in ±½ is replaced by Laplace noise of scale 1/(2·tanh(1/(2s))):
it exceeds every number with a larger probability, and both are symmetric and unimodal, so the same holds of sums
(Birnbaum 1948).

Values are whole multiples of ``granularity`` (cents, for example), measured from ``lower``. They are
rounded and clamped to [lower, stop] before anything is added up, so no record can decide whether a run fails.

| symbol | here                | meaning                                        |
|--------|---------------------|------------------------------------------------|
| C      | max_contributions   | most records of one user                       |
| b      | bound               | clipping bound in multiples, above ``lower``   |
| S(b)   | ClipTally.sums      | exact sum of values clipped at b               |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.mechanisms.laplace import calibrated, check_scale
from hushgram.mechanisms.svt.mechanism import run_batch
from hushgram.mechanisms.svt.params import SvtParams
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.noise.laws import LaplaceLaw
from hushgram.noise.sampling import discrete_laplace
from hushgram.numbers import Number, integer, rational, show, stated_text
from hushgram.sensitivity import UNBOUNDED, Exact, ExactVector, PrivacyUnit, Sensitivity

__all__ = [
    "ClipParams",
    "ClipTally",
    "Clipped",
    "clip_column",
    "count_cells",
    "release_clipped",
    "to_multiples",
]

_OWNER = "ClipParams"
# Values are below 2^40 in multiples, so that sums of 2^43 records, kept as two halves, fit into 64 bits.
_MAX_MULTIPLES = 1 << 40
_MAX_BOUNDS = 1 << 20
_LOW = np.int64((1 << 20) - 1)
_THIRD = Fraction(1, 3)
# Scales of the noisy threshold that the search keeps away from 0: beyond them lies 1 % of its noise.
_MARGIN = Fraction(9, 2)

I64 = NDArray[np.int64]


@dataclass(frozen=True, init=False)
class ClipParams:
    """Parameters of one clipped average; neighbours are one user added or removed.

    ``grid`` is exponential (each bound ``ratio`` times the last) or linear (``step`` apart), from ``start``
    to ``stop``, all in the column's own numbers. ``split`` are the shares of ε for bound, sum and count.

    >>> ClipParams(epsilon="1", stop=100).bounds[-3:]
    (70, 84, 100)
    """

    epsilon: Fraction
    max_contributions: int
    grid: str
    start: Fraction
    stop: Fraction
    ratio: Fraction
    step: Fraction
    lower: Fraction
    granularity: Fraction
    split: tuple[Fraction, Fraction, Fraction]
    threshold: int
    bounds: tuple[int, ...]

    def __init__(
        self,
        *,
        epsilon: Number,
        max_contributions: int = 1,
        grid: str = "exponential",
        start: Number = 1,
        stop: Number = 10**9,
        ratio: Number = "1.2",
        step: Number = 1,
        lower: Number = 0,
        granularity: Number = 1,
        split: tuple[Number, Number, Number] = (_THIRD, _THIRD, _THIRD),
        threshold: int | None = None,
    ) -> None:
        put = object.__setattr__
        numbers = {"epsilon": epsilon, "start": start, "stop": stop, "ratio": ratio, "step": step}
        for name, value in {**numbers, "lower": lower, "granularity": granularity}.items():
            put(self, name, rational(value, name, _OWNER))
        shares = tuple(rational(share, "split", _OWNER) for share in split)
        put(self, "split", shares)
        most = integer(max_contributions, "max_contributions", _OWNER, low=1, high=10**6)
        put(self, "max_contributions", most)
        put(self, "grid", grid)
        self._check()
        put(self, "threshold", self._left_above() if threshold is None else threshold)
        integer(self.threshold, "threshold", _OWNER, low=0, high=1 << 60)
        put(self, "bounds", self._bounds())
        _ = self.svt  # scales out of range show here
        for scale in (self.sum_scale(self.bounds[-1]), self.count_scale):
            check_scale(scale, _OWNER)

    def _check(self) -> None:
        if not 0 < self.epsilon <= 1000:
            shown = show(self.epsilon)
            raise ParameterError(f"{_OWNER}: epsilon must be above 0 and at most 1000, got {shown}")
        if self.granularity <= 0:
            raise ParameterError(f"{_OWNER}: granularity must be above 0, got {show(self.granularity)}")
        if not self.lower < self.start <= self.stop:
            raise ParameterError(
                f"{_OWNER}: lower < start <= stop must hold, got {show(self.lower)}, {show(self.start)} and "
                f"{show(self.stop)}"
            )
        if (self.stop - self.lower) / self.granularity > _MAX_MULTIPLES:
            raise ParameterError(
                f"{_OWNER}: stop must be at most 2^40 steps of granularity above lower; raise granularity"
            )
        if self.grid not in ("exponential", "linear"):
            raise ParameterError(f"{_OWNER}: grid must be exponential or linear, got {self.grid!r}")
        if self.ratio <= 1 or self.step <= 0:
            raise ParameterError(f"{_OWNER}: ratio must be above 1 and step above 0")
        if len(self.split) != 3 or min(self.split) <= 0 or sum(self.split) != 1:
            shown = ", ".join(map(show, self.split))
            raise ParameterError(f"{_OWNER}: split must be three shares that add up to 1, got {shown}")

    def _left_above(self) -> int:
        """Return how many records may be left above the bound (see the module)."""
        bound, total, _ = self.epsilons
        search = SvtParams(epsilon=bound, threshold=0, sensitivity=self.max_contributions, monotone=True)
        return math.ceil(self.max_contributions / total + _MARGIN * search.noise.threshold)

    def _bounds(self) -> tuple[int, ...]:
        """Return the grid in whole multiples above ``lower``, ascending; the last is ``stop``."""
        last = max(1, int((self.stop - self.lower) / self.granularity))
        at, found = self.start, []
        steps = _MAX_BOUNDS if self._too_fine() else 0
        while at < self.stop and steps < _MAX_BOUNDS:
            found.append(max(1, int((at - self.lower) / self.granularity)))
            if self.grid == "linear":
                at += self.step
            else:  # a grid needs no more digits than its multiples have
                at = (
                    self.lower
                    + math.ceil((at - self.lower) * self.ratio / self.granularity) * self.granularity
                )
            steps += 1
        if steps == _MAX_BOUNDS:
            raise ParameterError(
                f"{_OWNER}: the grid has more than 2^20 bounds; raise step, ratio or granularity"
            )
        return tuple(sorted({*(bound for bound in found if bound < last), last}))

    def _too_fine(self) -> bool:
        """Return whether the grid has certainly too many bounds: known before they are listed."""
        if self.grid == "linear":
            return (self.stop - self.start) / self.step >= _MAX_BOUNDS
        growth = math.log(self.ratio.numerator) - math.log(self.ratio.denominator)
        return growth * _MAX_BOUNDS < 1

    @property
    def epsilons(self) -> tuple[Fraction, Fraction, Fraction]:
        """ε of bound, sum and count."""
        bound, total, count = (self.epsilon * share for share in self.split)
        return bound, total, count

    def sum_scale(self, bound: int) -> Fraction:
        """Return the noise scale of the sum of values clipped at ``bound``, in multiples."""
        return self.max_contributions * bound / self.epsilons[1]

    @property
    def count_scale(self) -> Fraction:
        """Noise of the count."""
        return self.max_contributions / self.epsilons[2]

    @property
    def svt(self) -> SvtParams:
        """The search for the bound: is −#{x > b} at least −threshold?"""
        return SvtParams(
            epsilon=self.epsilons[0],
            threshold=-self.threshold,
            sensitivity=self.max_contributions,
            monotone=True,
        )

    @property
    def noise_text(self) -> str:
        """The text that noise is derived from; it must never change for the same parameters."""
        names = (
            "epsilon",
            "start",
            "stop",
            "lower",
            "granularity",
            "max_contributions",
            "grid",
            "ratio",
            "step",
        )
        shown = self.describe()
        return stated_text({n: shown[n] for n in (*names, "bounds", "threshold", "split") if n in shown})

    def describe(self) -> dict[str, Any]:
        """Return public parameters, exact numbers as text."""
        names = ("epsilon", "start", "stop", "lower", "granularity")
        shown: dict[str, Any] = {name: show(getattr(self, name)) for name in names}
        step = {"ratio": show(self.ratio)} if self.grid == "exponential" else {"step": show(self.step)}
        shares = dict(zip(("bound", "sum", "count"), map(show, self.split), strict=True))
        return {
            **shown,
            "max_contributions": self.max_contributions,
            "grid": self.grid,
            **step,
            "bounds": len(self.bounds),
            "threshold": self.threshold,
            "split": shares,
        }


@dataclass(frozen=True)
class ClipTally(Exact):
    """Exact numbers, private: records above each bound, sum clipped at each bound, and records in all.

    Its sensitivity is that of the counted records: each number of records moves by at most C, each sum by C times its
    bound.
    """

    above: tuple[int, ...]
    sums: tuple[int, ...]
    count: int
    sensitivity: Sensitivity = field(default=UNBOUNDED, repr=False)

    @classmethod
    def of_vector(cls, vector: ExactVector, params: ClipParams) -> ClipTally:
        """Make the tally from the sum of the vectors that `count_cells` returned."""
        counts, high, low = (part.astype(object) for part in np.split(vector.values, 3))
        sums = np.cumsum(high * (1 << 20) + low)  # Python integers: they never wrap around
        below = np.cumsum(counts)
        total = int(below[-1])
        above = [total - int(n) for n in below[:-1]]
        clipped = [int(s) + b * a for s, b, a in zip(sums[:-1], params.bounds, above, strict=True)]
        return cls(tuple(above), tuple(clipped), total, vector.sensitivity)


def to_multiples(column: pa.Array, params: ClipParams) -> I64:
    """Return values as whole multiples above ``lower``, clamped to [0, stop]; nulls and NaN must be gone."""
    last = params.bounds[-1]
    whole = params.granularity == 1 and params.lower.denominator == 1
    if whole and pa.types.is_integer(column.type):
        return _whole_multiples(column.to_numpy(zero_copy_only=False), params.lower.numerator, last)
    floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    scaled = np.clip((floats - float(params.lower)) / float(params.granularity), 0, last)
    multiples: I64 = np.rint(scaled).astype(np.int64)
    return multiples


def _whole_multiples(values: NDArray[Any], lower: int, last: int) -> I64:
    """Return min(max(value − lower, 0), last), whatever the type of the column can hold."""
    wide = np.uint64 if values.dtype == np.uint64 else np.int64
    limits = np.iinfo(wide)
    low, high = max(lower, int(limits.min)), min(lower + last, int(limits.max))
    if low > high:  # every value of the type lies on one side of the range
        return np.full(len(values), 0 if lower > high else last, dtype=np.int64)
    above = np.clip(values.astype(wide), wide(low), wide(high)) - wide(low)
    return above.astype(np.int64) + (low - lower)


def count_cells(multiples: I64, counts: I64, params: ClipParams, sensitivity: Sensitivity) -> ExactVector:
    """Return counters that add up over parts: records and values by cell of the grid, values in two halves.

    ``sensitivity`` is that of ``counts``.
    """
    bounds = np.array(params.bounds, dtype=np.int64)
    cell = np.searchsorted(bounds, multiples, side="left")  # how many bounds lie below the value
    out = np.zeros((3, len(bounds) + 1), dtype=np.int64)
    np.add.at(out[0], cell, counts)
    np.add.at(out[1], cell, counts * (multiples >> 20))
    np.add.at(out[2], cell, counts * (multiples & _LOW))
    return ExactVector(out.reshape(-1), sensitivity)


@dataclass(frozen=True)
class Clipped:
    """The release, in the column's own numbers; ``halted`` says whether the search found its bound.

    ``sum_scale`` is the noise scale of the sum of values measured from ``lower``.
    """

    bound: Fraction
    sum: Fraction
    count: int
    halted: bool
    sum_scale: Fraction
    count_scale: Fraction
    lower: Fraction
    granularity: Fraction

    @property
    def average(self) -> Fraction | None:
        """The quotient of sum and count, where it can be the mean of values from ``lower`` to the bound."""
        return None if self.count <= 0 else min(max(self.sum / self.count, self.lower), self.bound)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return an interval that holds the mean of the counted records, each clamped to [lower, bound], with
        probability ``level`` or more (see the module)."""
        lower, top = float(self.lower), float(self.bound - self.lower)
        total = float(self.sum - self.lower * self.count)  # of values measured from lower

        def explained(mean: float) -> bool:
            return self._exceeds(abs(total - mean * self.count), mean) > 1 - level

        middle = 0.0 if self.average is None else float(self.average) - lower
        if self.count <= 0 or not explained(middle):
            return lower, lower + top
        low, high = (end if explained(end) else _last(explained, middle, end) for end in (0.0, top))
        return lower + low, lower + high

    def _exceeds(self, error: float, mean: float) -> float:
        """Return at most how likely the noise of (sum − mean · count) is to exceed this error.

        Of Laplace noises of scales a > b it is (a²·e^(−t/a) − b²·e^(−t/b))/(a² − b²).
        """
        step = float(self.granularity)
        of_sum = step * _smooth(float(self.sum_scale / self.granularity))
        narrow, wide = sorted((of_sum, mean * _smooth(float(self.count_scale))))
        at = max(error - (step + mean) / 2, 0.0)
        if narrow > 0.999 * wide:  # as if they were equal: a little more
            return (1 + at / (2 * wide)) * math.exp(-at / wide)
        rest = narrow**2 * math.exp(-at / narrow) if narrow else 0.0
        return (wide**2 * math.exp(-at / wide) - rest) / (wide**2 - narrow**2)

    def as_json(self, level: float = 0.95) -> dict[str, Any]:
        """Return figures with their noise at ``level``: half-widths, and the interval of the average.

        The bias of clipping is in none of them.
        """
        low, high = self.interval(level)
        lower, scales = abs(float(self.lower)), (float(self.sum_scale), float(self.count_scale))
        far = (
            2 * math.log(2 / (1 - level)) * (scales[0] + lower * scales[1] + float(self.granularity) + lower)
        )
        of_sum = _last(lambda error: self._exceeds(error, lower) > 1 - level, 0.0, far)
        return {
            "bound": float(self.bound),
            "bound_found": self.halted,
            "sum": float(self.sum),
            "sum_noise": round(of_sum, 6),
            "count": self.count,
            "count_noise": LaplaceLaw(scales[1]).radius(level),
            "average": None if self.average is None else float(self.average),
            "average_low": low,
            "average_high": high,
            "level": level,
        }


def _smooth(scale: float) -> float:
    """Return the scale of the Laplace noise that stands for discrete noise plus a uniform number (see the module)."""
    return 0.5 / math.tanh(0.5 / scale)


def _last(holds: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return where ``holds`` ends between a number for which it is true and one for which it is not."""
    for _ in range(60):
        tried = (inside + outside) / 2
        inside, outside = (tried, outside) if holds(tried) else (inside, tried)
    return outside


def release_clipped(
    tally: ClipTally, params: ClipParams, key: ReleaseKey, unit: PrivacyUnit = "user"
) -> Clipped:
    """Release bound, sum and count; (ε, 0)-DP. The noise follows from the release key and the exact tally."""
    tally.admit(calibrated(params.max_contributions, unit))
    # The text is part of the noise's derivation: it must never change, whatever the class is called.
    held = f"Tally(above={tally.above!r}, sums={tally.sums!r}, count={tally.count!r})"
    exact = digest(params.noise_text, held)
    answers = ExactVector(-np.array(tally.above, dtype=np.int64), tally.sensitivity.added_up())
    found = run_batch(answers, params.svt, key, "clip", release=exact, unit=unit).above
    at = int(found[0]) if len(found) else len(params.bounds) - 1
    bound = params.bounds[at]
    sum_scale, count_scale = params.sum_scale(bound), params.count_scale
    noise = discrete_laplace(sum_scale, 1, key.source("clip-sum", at, exact))
    multiples = tally.sums[at] + int(noise[0])
    count = tally.count + int(discrete_laplace(count_scale, 1, key.source("clip-count", 0, exact))[0])
    return Clipped(
        bound=params.lower + bound * params.granularity,
        sum=multiples * params.granularity + params.lower * count,
        count=count,
        halted=bool(len(found)),
        sum_scale=sum_scale * params.granularity,
        count_scale=count_scale,
        lower=params.lower,
        granularity=params.granularity,
    )


def clip_column(column: Any, params: ClipParams, key: ReleaseKey | None = None) -> Clipped:
    """Clip a whole column whose rows are one user each, or are bounded to C per user already.

    Args:
        column: numbers; null and NaN are left out.
        params: ε, C and the grid of bounds.
        key: the secret of all noise; a new one by default.

    >>> params = ClipParams(epsilon="20", stop=1000)
    >>> found = clip_column([10, 20, 30] * 200, params, ReleaseKey(bytes(32)))
    >>> found.bound >= 20 and abs(float(found.average) - 20) < 2
    True
    """
    array = column if isinstance(column, pa.Array) else pa.array(column)
    array = array.drop_null()
    if pa.types.is_floating(array.type):
        array = array.filter(pa.array(~np.isnan(array.to_numpy(zero_copy_only=False))))
    multiples = to_multiples(array, params)
    promised = Sensitivity(params.max_contributions, params.max_contributions)
    vector = count_cells(multiples, np.ones(len(multiples), dtype=np.int64), params, promised)
    return release_clipped(ClipTally.of_vector(vector, params), params, key or ReleaseKey.generate())
