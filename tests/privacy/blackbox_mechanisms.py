"""Cases of the black-box audit: mechanisms by their library entry points, each run with fresh noise."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from hushgram.mechanisms import laplace as laplace
from hushgram.mechanisms.clipping import ClipParams, clip_column
from hushgram.mechanisms.pmw import OfflineParams, OfflinePMW, OnlinePMW, PmwParams, Workload
from hushgram.mechanisms.randomized_response.mechanism import RandomizedResponseParams, randomize
from hushgram.mechanisms.selection import SelectionParams, choose, top
from hushgram.mechanisms.svt.mechanism import Sparse
from hushgram.mechanisms.svt.params import SvtParams
from hushgram.noise.entropy import BitSource, InteractiveKey, ReleaseKey, os_entropy
from tests.exact_counts import exact_counts
from tests.privacy.blackbox import Case

__all__ = ["CASES"]


@dataclass(frozen=True)
class _Runs:
    """``run`` on one of two data sets, so often."""

    run: Callable[[Any, BitSource], Hashable]
    one: Any
    other: Any

    def __call__(self, side: bool, runs: int) -> Iterator[Hashable]:
        source = os_entropy()
        return (self.run(self.one if side else self.other, source) for _ in range(runs))


def _clipped(value: int, low: int, high: int) -> int:
    return min(max(int(value), low), high)


def _listed() -> Case:
    params = laplace.LaplaceParams("1", max_contributions=2)

    def run(counts: Any, _source: BitSource) -> Hashable:
        found = laplace.release_listed(["a", "b"], exact_counts(counts), params, ReleaseKey.generate())
        return found[0] >= 1, found[1] >= 2  # from the larger counts on, the ratio is the same

    return Case("Laplace noise on a list of two keys", 1.0, _Runs(run, np.array([1, 2]), np.array([0, 1])))


def _answers() -> Case:
    def run(exact: Any, _source: BitSource) -> Hashable:
        mechanism = laplace.LaplaceAnswers(2, 2, 1, InteractiveKey.generate())
        return tuple(answer >= 1 for answer in mechanism.answer(exact, b"two").tolist())

    return Case("Laplace noise on two queries", 2.0, _Runs(run, np.array([1, 1]), np.array([0, 0])))


def _sparse(name: str, one: Sequence[int], other: Sequence[int], **asked: Any) -> Case:
    params = SvtParams(threshold=0, **asked)
    exact = np.array(one) + params.noise.shift, np.array(other) + params.noise.shift

    def run(answers: Any, source: BitSource) -> Hashable:
        found = Sparse.from_params(params, source).ask_many(answers)
        above = found.above.tolist()
        if params.answers == "none":
            return tuple(above)
        seen = found.gap if params.answers == "gap" else found.value
        return tuple((at, _clipped(seen[at], -3, 6)) for at in above)

    return Case(f"sparse vector: {name}", float(params.epsilon), _Runs(run, *exact))


# Five queries that stay below, and one that does not: for any queries the first five move against the last. Of
# numbers and places of queries, these show most in as many runs, by exact probabilities (`svt_exact`).
_BELOW, _ABOVE = [-1] * 5 + [0], [0] * 5 + [-1]
# Monotone ones move the same way, or not at all.
_LOW, _HIGH = [-1] * 10 + [0], [0] * 11


def _choice(mechanism: str, monotone: bool, one: Sequence[int], other: Sequence[int]) -> Case:
    params = SelectionParams("2", monotone=monotone, mechanism=mechanism)
    name = f"{mechanism.replace('_', '-')}, {'monotone scores' if monotone else 'any scores'}"
    run = _Runs(lambda scores, source: choose(scores, params, source), np.array(one), np.array(other))
    return Case(name, 2.0, run)


def _largest(mechanism: str, name: str) -> Case:
    params = SelectionParams("2", count=2, monotone=True, mechanism=mechanism)
    pair = np.array([0, 0, 0, 0, 0, 0]), np.array([0, 0, 1, 1, 1, 1])
    return Case(
        name,
        2.0,
        _Runs(lambda scores, source: tuple(sorted(top(exact_counts(scores), params, source))), *pair),
    )


def _responses() -> Case:
    params = RandomizedResponseParams("2", secrets=2)

    def draw(side: bool, runs: int) -> Iterator[Hashable]:
        source = os_entropy()  # records are independent: one column of many is as many runs
        columns = [randomize(np.full(runs, side), params, source) for _ in range(2)]
        return zip(*(column.tolist() for column in columns), strict=True)

    return Case("randomized response on two secret bits of a record", 2.0, draw)


def _clip() -> Case:
    params = ClipParams(epsilon="3", grid="linear", start=1, stop=4, step=1, threshold=0)

    def run(column: Any, _source: BitSource) -> Hashable:
        found = clip_column(column, params, ReleaseKey.generate())
        # The sum's noise is as wide as the bound: only its sign beside the exact one tells.
        return int(found.bound), _clipped(int(found.sum), 2, 6), _clipped(found.count, 0, 3)

    values = pa.array([1, 1], pa.int64()), pa.array([1, 1, 4], pa.int64())
    return Case("clipped sum and count", 3.0, _Runs(run, *values))


# One more in the first cell: what the hypothesis lacks of one query grows, and of the other it shrinks.
_GROWS, _SHRINKS = [1, 1, 0], [1, 0, 1]


def _online() -> Case:
    params = PmwParams("4", max_updates=1, total=9, threshold=1, replay=0, queries=10)
    asked = Workload.of([_SHRINKS] * 5 + [_GROWS])

    def run(counts: Any, _source: BitSource) -> Hashable:
        found = OnlinePMW(exact_counts(counts), params, InteractiveKey.generate()).answer(asked)
        return *found.origin.tolist(), found.values[
            -1
        ] >= 7  # from the larger answer on, the ratio is the same

    return Case("online PMW, one update", 4.0, _Runs(run, np.array([2, 4, 3]), np.array([3, 4, 3])))


def _offline() -> Case:
    params = OfflineParams("4", rounds=1, total=30)
    asked = Workload.of([_GROWS, _SHRINKS])

    def run(counts: Any, _source: BitSource) -> Hashable:
        found = OfflinePMW(exact_counts(counts), params, ReleaseKey.generate()).answer(asked)
        return *found.origin.tolist(), round(2 * float(found.values[0]))

    return Case("offline PMW, one round", 4.0, _Runs(run, np.array([5, 20, 8]), np.array([6, 20, 8])))


CASES = (
    _listed(),
    _answers(),
    _sparse("any queries", _BELOW, _ABOVE, epsilon="4"),
    _sparse("any queries, gaps", _BELOW, _ABOVE, epsilon="4", answers="gap"),
    _sparse("any queries, values", _BELOW, _ABOVE, epsilon="4", answers="numeric"),
    _sparse("monotone queries", _HIGH, _LOW, epsilon="4", monotone=True),
    _sparse("monotone queries, gaps", _HIGH, _LOW, epsilon="4", monotone=True, answers="gap"),
    _sparse("monotone queries, values", [0], [-1], epsilon="4", monotone=True, answers="numeric"),
    _sparse("two above", [*_BELOW, 0], [*_ABOVE, -1], epsilon="4", cutoff=2),
    _sparse("as Dwork and Roth", _BELOW, _ABOVE, epsilon="4", variant="dwork-roth"),
    _sparse(
        "as Dwork and Roth, values", _BELOW, _ABOVE, epsilon="4", variant="dwork-roth", answers="numeric"
    ),
    _choice("permute_and_flip", True, [5, 6], [6, 6]),
    _choice("permute_and_flip", False, [4, 6], [5, 5]),
    _choice("exponential", True, [0, 1, 1], [0, 2, 2]),
    _choice("exponential", False, [0, 1, 2], [-1, 2, 3]),
    _choice("noisy_max", True, [0, 0, 0], [1, 1, 0]),
    _choice("noisy_max", False, [0, 0, 0], [1, 1, -1]),
    _largest("permute_and_flip", "the two largest, one after another"),
    _largest("noisy_max", "the two largest of one draw"),
    _responses(),
    _clip(),
    _online(),
    _offline(),
)
