"""Sparse vector: the mechanisms, fed one answer at a time or whole arrays at once.

`AboveThreshold` (Kamath, Lecture 9, Figure 1), `Sparse` (Figure 2; by default with the split of Lyu, Su, Li
2017) and `NumericSparse` (fresh noise for every value) are one algorithm with different parameters; see
`hushgram.mechanisms.svt.params` for the guarantee. A query is answered ⊤ at f_i + ν_i ≥ T̂: **at least**, as in
the lecture.

Published variants that put out f_i + ν_i itself are not private, and are not offered: what is released
beside ⊤ is the gap to T̂, whose noise holds that of the threshold, or the answer with noise of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgram.errors import ParameterError
from hushgram.mechanisms.laplace import whole_numbers
from hushgram.mechanisms.svt.histogram import HistogramParams
from hushgram.mechanisms.svt.params import NoiseScales, SvtParams
from hushgram.noise.entropy import BitSource, ReleaseKey, Turns, digest, os_entropy
from hushgram.noise.sampling import discrete_laplace, geometric
from hushgram.numbers import Number
from hushgram.sensitivity import ExactVector, PrivacyUnit

__all__ = [
    "ABOVE", "BELOW", "HALTED", "AboveThreshold", "Answer", "AnswerArrays", "NoiseStream", "NumericSparse",
    "Sparse", "run_batch",
]  # fmt: skip

ABOVE, BELOW, HALTED = 1, 0, -1
# Answers worked on at a time: the noise of one chunk fits the second-level cache.
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Answer:
    """One released answer: ABOVE (⊤), BELOW (⊥) or HALTED; gap and value only on ⊤ and where asked for."""

    outcome: int
    gap: int | None = None
    value: int | None = None


@dataclass(frozen=True, eq=False)
class AnswerArrays:
    """Released answers of a whole array; ``gap`` and ``value`` are 0 where the outcome is not ABOVE."""

    outcome: NDArray[np.int8]
    gap: NDArray[np.int64]
    value: NDArray[np.int64]

    @property
    def above(self) -> NDArray[np.intp]:
        """The positions of the ⊤ answers."""
        return np.flatnonzero(self.outcome == ABOVE)


class NoiseStream:
    """The noise of one stream, drawn exactly from a `BitSource`; privacy tests enumerate it instead."""

    def __init__(self, scales: NoiseScales, source: BitSource) -> None:
        self._scales, self._source = scales, source

    def _draw(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Draw noise of threshold or queries."""
        if self._scales.one_sided:
            return geometric(scale, size, self._source)
        return discrete_laplace(scale, size, self._source)

    def threshold(self) -> int:
        """Draw the noise ρ of a threshold; add the public shift."""
        return int(self._draw(self._scales.threshold, 1)[0]) + self._scales.shift

    def queries(self, size: int) -> NDArray[np.int64]:
        """Draw the noise ν of the next ``size`` queries."""
        return self._draw(self._scales.query, size)

    def values(self, size: int) -> NDArray[np.int64]:
        """Draw fresh noise for ``size`` values."""
        if self._scales.value is None:
            raise ParameterError("NumericSparse: values need answers='numeric'")
        return discrete_laplace(self._scales.value, size, self._source)


class Sparse:
    """Which queries of a stream reach the threshold? Halts after ``cutoff`` yes-answers.

    Input: integer answers f_1, f_2, ..., each changed by at most ``sensitivity`` by one user.
    Guarantee: (``epsilon``, ``delta``)-DP for the whole stream, however long and however adaptively chosen.
    Output: ⊤, ⊥ or "halted" for each, with gap (f_i − T with noise) or value where asked for.

    >>> from hushgram.noise.entropy import BitSource
    >>> svt = Sparse(epsilon="10", threshold=100, cutoff=2, source=BitSource(bytes(32)))
    >>> [svt.ask(answer).outcome for answer in (0, 500, 3, 900, 1000)]
    [0, 1, 0, 1, -1]
    """

    _answers = "none"

    def __init__(
        self,
        *,
        epsilon: Number,
        threshold: int,
        cutoff: int = 1,
        delta: Number = 0,
        sensitivity: int = 1,
        monotone: bool = False,
        variant: str = "optimal",
        answers: str | None = None,
        value_share: Number = Fraction(1, 2),
        margin: int = 0,
        source: BitSource | None = None,
    ) -> None:
        params = SvtParams(
            epsilon=epsilon,
            threshold=threshold,
            cutoff=cutoff,
            delta=delta,
            sensitivity=sensitivity,
            monotone=monotone,
            variant=variant,
            answers=self._answers if answers is None else answers,
            value_share=value_share,
            margin=margin,
        )
        self._begin(params, NoiseStream(params.noise, source or os_entropy()))

    @classmethod
    def from_params(
        cls, params: SvtParams, source: BitSource | NoiseStream, *, bar: int | None = None, count: int = 0
    ) -> Sparse:
        """Return the mechanism for given parameters; ``bar`` and ``count`` continue from saved state."""
        self = cls.__new__(cls)
        noise = NoiseStream(params.noise, source) if isinstance(source, BitSource) else source
        self._begin(params, noise, bar, count)
        return self

    def _begin(self, params: SvtParams, noise: NoiseStream, bar: int | None = None, count: int = 0) -> None:
        self.params, self.count = params, count
        self._noise, self._turns = noise, Turns(type(self).__name__)
        self._bar = self._new_bar() if bar is None else bar

    def __reduce__(self) -> str:
        raise TypeError(f"{type(self).__name__} is neither copied nor pickled: a copy would answer for free")

    def _new_bar(self) -> int:
        """Draw T̂."""
        return self.params.threshold + self.params.margin + self._noise.threshold()

    @property
    def bar(self) -> int:
        """The noisy threshold T̂: secret, for saved state only."""
        return self._bar

    @property
    def halted(self) -> bool:
        """Whether the cutoff was reached."""
        return self.count >= self.params.cutoff

    def ask(self, answer: int) -> Answer:
        """Release the answer to one more query, whose exact answer is ``answer``."""
        released = self.ask_many([answer])
        outcome = int(released.outcome[0])
        above = outcome == ABOVE
        return Answer(
            outcome,
            int(released.gap[0]) if above and self.params.answers != "none" else None,
            int(released.value[0]) if above and self.params.answers == "numeric" else None,
        )

    def ask_many(self, answers: ArrayLike) -> AnswerArrays:
        """Release the answers to the next queries of the stream, in order."""
        exact = whole_numbers(answers, type(self).__name__)
        out = AnswerArrays(
            np.full(len(exact), HALTED, dtype=np.int8),
            np.zeros(len(exact), dtype=np.int64),
            np.zeros(len(exact), dtype=np.int64),
        )
        with self._turns:
            for start in range(0, len(exact), _CHUNK):
                if self.halted:
                    break
                self._chunk(exact[start : start + _CHUNK], out, start)
        return out

    def _chunk(self, exact: NDArray[np.int64], out: AnswerArrays, start: int) -> None:
        """Answer one chunk: write outcomes, gaps and values at ``start``."""
        noisy = exact + self._noise.queries(len(exact))
        hits, gaps = self._redrawn_hits(noisy) if self.params.noise.redraw else self._fixed_hits(noisy)
        end = int(hits[-1]) + 1 if self.halted else len(exact)  # the query that halts is still answered
        out.outcome[start : start + end] = BELOW
        out.outcome[start + hits] = ABOVE
        if self.params.answers != "none":
            out.gap[start + hits] = gaps + self.params.margin  # from T, not from T + margin
        if self.params.answers == "numeric" and len(hits):
            out.value[start + hits] = exact[hits] + self._noise.values(len(hits))

    def _fixed_hits(self, noisy: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Find, with one T̂ for the whole stream, the first ``cutoff`` positions at or above it."""
        hits = np.flatnonzero(noisy >= self._bar)[: self.params.cutoff - self.count]
        self.count += len(hits)
        return hits, noisy[hits] - self._bar

    def _redrawn_hits(self, noisy: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Find the positions at or above T̂, which is drawn again after each ⊤."""
        hits: list[int] = []
        gaps: list[int] = []
        at = 0
        while not self.halted:
            found = _first_at_least(noisy, at, self._bar)
            if found < 0:
                break
            hits.append(found)
            gaps.append(int(noisy[found]) - self._bar)
            self.count += 1
            at = found + 1
            if not self.halted:
                self._bar = self._new_bar()
        return np.array(hits, dtype=np.intp), np.array(gaps, dtype=np.int64)


def _first_at_least(noisy: NDArray[np.int64], start: int, bar: int) -> int:
    """Return the first position from ``start`` with noisy ≥ bar, or −1; windows grow, so that many hits stay cheap."""
    width = 256
    while start < len(noisy):
        window = noisy[start : start + width] >= bar
        first = int(window.argmax())
        if window[first]:
            return start + first
        start, width = start + width, width * 2
    return -1


class AboveThreshold(Sparse):
    """`Sparse` that halts at the first ⊤ (Lecture 9, Figure 1).

    >>> from hushgram.noise.entropy import BitSource
    >>> svt = AboveThreshold(epsilon="10", threshold=100, source=BitSource(bytes(32)))
    >>> svt.ask_many([0, 500, 900]).outcome.tolist()
    [0, 1, -1]
    """

    def _begin(self, params: SvtParams, noise: NoiseStream, bar: int | None = None, count: int = 0) -> None:
        if params.cutoff != 1:
            raise ParameterError(f"AboveThreshold: cutoff must be 1, got {params.cutoff}; use Sparse")
        super()._begin(params, noise, bar, count)


class NumericSparse(Sparse):
    """`Sparse` whose yes-answers carry the value with fresh noise, paid by ``value_share`` of the budget.

    >>> from hushgram.noise.entropy import BitSource
    >>> svt = NumericSparse(epsilon="20", threshold=100, cutoff=1, source=BitSource(bytes(32)))
    >>> abs(svt.ask(5000).value - 5000) < 20
    True
    """

    _answers = "numeric"


def run_batch(
    answers: ExactVector,
    params: SvtParams | HistogramParams,
    key: ReleaseKey,
    stream: str,
    *,
    sequence: NDArray[np.int64] | None = None,
    release: bytes = b"",
    unit: PrivacyUnit = "user",
) -> AnswerArrays:
    """Answer a whole stream at once, with noise that follows from the release key and the exact answers.

    With `HistogramParams` every query has a value and nothing halts.

    Computed again on the same answers, it gives the same noise. ``sequence`` are the queries' sequence numbers
    (0, 1, … if left out), and ``release`` is a digest of all exact data of the release where that is more than
    these answers: any change of either, or of an answer, gives independent noise to all of them.
    """
    admitted = ExactVector.given(answers, "run_batch").admit(params.calibrated(unit))
    exact = whole_numbers(admitted.values, "run_batch")
    numbers = np.arange(len(exact)) if sequence is None else np.asarray(sequence)
    context = digest(stream, params.fingerprint, release, numbers.astype(np.int64), exact)
    if isinstance(params, HistogramParams):
        source = key.source("svt-histogram", 0, context)
        value = exact + params.noise.sample(params.scale, len(exact), source)
        return AnswerArrays((value >= params.threshold).astype(np.int8), value - params.threshold, value)
    return Sparse.from_params(params, key.source("svt", 0, context)).ask_many(exact)
