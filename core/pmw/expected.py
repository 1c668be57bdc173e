"""Which of online, offline and plain Laplace answers these queries best? Tried on made-up counts: free.

The queries, the domain's size and the parameters are public; the counts are not, so Zipf counts in random order stand
in for them, and both forms of multiplicative weights run on those under a fixed key. Laplace noise on each query
needs no trial: the largest of k draws of scale b is about b·(ln k + 0.58).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hushgram.laplace_mechanism import per_query
from hushgram.noise.entropy import InteractiveKey, ReleaseKey
from hushgram.pmw.hypothesis import MOST_TOTAL
from hushgram.pmw.mechanism import OnlinePMW, PmwParams
from hushgram.pmw.offline import OfflineParams, OfflinePMW
from hushgram.pmw.workload import GRID, Workload
from hushgram.sensitivity import exact

__all__ = ["Expected", "expected_errors"]

#: Records that are supposed where no total is public.
SUPPOSED = 10**6
# More weights than this are not tried; the first queries stand for all.
_MOST_WEIGHTS = 1 << 23
_EULER = 0.5772156649
# Small workloads are tried several times: one run of few queries is mostly luck.
_TRIALS, _CHEAP = 5, 1 << 20


@dataclass(frozen=True)
class Expected:
    """Worst errors over all queries, in counts, on made-up data."""

    online: float
    offline: float
    laplace: float
    records: int

    @property
    def best(self) -> str:
        """The one with the least error."""
        errors = {"online": self.online, "offline": self.offline, "laplace": self.laplace}
        return min(errors, key=errors.__getitem__)


def expected_errors(
    queries: Workload,
    *,
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    max_contributions: int = 1,
    total: int | None = None,
    count: int | None = None,
    online: PmwParams | None = None,
    offline: OfflineParams | None = None,
) -> Expected:
    """What to expect of each; parameters left out are the defaults, with no more updates than queries.

    ``count`` is the number of all queries, where ``queries`` are only the first of them.
    """
    k = count or len(queries)
    shared = {"delta": delta, "max_contributions": max_contributions, "total": total}
    stream = online or PmwParams(epsilon, max_updates=min(400, k), queries=k, **shared)  # type: ignore[arg-type]
    whole = offline or OfflineParams(epsilon, rounds=min(200, k), **shared)  # type: ignore[arg-type]
    tried = Workload(queries.grid[: max(1, _MOST_WEIGHTS // queries.cells)])
    records = min(total or SUPPOSED, MOST_TOTAL)
    counts = made_up_counts(queries.cells, records)
    truth = tried.exact(counts)
    promised = exact(counts, max_contributions=max_contributions)

    seeds = [bytes([i] * 32) for i in range(_TRIALS if tried.grid.size <= _CHEAP else 1)]

    def worst(build: Callable[[bytes], OnlinePMW | OfflinePMW]) -> float:
        runs = (build(seed).answer(tried).scaled for seed in seeds)
        return float(np.mean([np.abs(run - truth).max() for run in runs])) / GRID

    scale = float(max_contributions / per_query(epsilon, delta, k))
    return Expected(
        online=worst(lambda seed: OnlinePMW(promised, stream, InteractiveKey(seed))),
        offline=worst(lambda seed: OfflinePMW(promised, whole, ReleaseKey(seed))),
        laplace=scale * (math.log(k) + _EULER),
        records=records,
    )


def made_up_counts(cells: int, records: int) -> NDArray[np.int64]:
    """Zipf counts in an order that no query can know: cells are taken by steps of the golden ratio."""
    shares = 1 / np.arange(1, cells + 1)
    ranks = np.argsort((np.arange(cells) * ((math.sqrt(5) - 1) / 2)) % 1.0, kind="stable")
    counts = np.floor(shares / shares.sum() * records).astype(np.int64)
    out: NDArray[np.int64] = counts[ranks]
    return out
