"""Linear queries over a finite public domain, on an exact grid.

A linear query gives each cell of the domain a weight in [0, 1]; its answer on a histogram x is Σ w_i·x_i.
Weights are whole multiples of 1/GRID, so an answer times GRID is a whole number: nothing is rounded
between exact counts and noise. Weights given as decimals are rounded to the nearest multiple (at most
1/(2·GRID), about 10⁻⁵, off), and it is the rounded query that is asked. Queries and domain are public;
nothing in this module touches data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgram.errors import ParameterError
from hushgram.noise.entropy import digest

__all__ = ["GRID", "Domain", "Workload", "to_grid"]

# 2^5 · 3^2 · 5^2 · 7, the largest such product that fits 16 bits: halves, thirds, quarters, sevenths and
# whole percents are exact, and a weight takes two bytes.
GRID = 50_400
# Cells of a domain: queries are rows of this width.
_MAX_CELLS = 1 << 20
# A matrix of queries is worked on in pieces of about this many weights, which fit the second-level cache.
_PIECE = 1 << 18


@dataclass(frozen=True)
class Domain:
    """The public list of cells that queries refer to: keys, or names of buckets.

    >>> Domain(("a", "b")).position("b")
    1
    """

    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.labels:
            raise ParameterError("Domain: the list of keys is empty; name at least one key")
        if len(self.labels) > _MAX_CELLS:
            raise ParameterError(f"Domain: at most {_MAX_CELLS} keys, got {len(self.labels)}; use buckets")
        if len(self.index) != len(self.labels):
            twice = next(label for i, label in enumerate(self.labels) if self.index[label] != i)
            raise ParameterError(f"Domain: key {twice[:80]!r} is listed twice; list each key once")

    @cached_property
    def index(self) -> dict[str, int]:
        """The position of each label."""
        return {label: i for i, label in enumerate(self.labels)}

    def __len__(self) -> int:
        return len(self.labels)

    def position(self, label: str) -> int:
        """Return the position of one key; refuse an unknown one, since its count is not part of the data."""
        try:
            return self.index[label]
        except KeyError:
            raise ParameterError(
                f"query: key {label[:80]!r} is not among the {len(self)} keys of the domain"
            ) from None


def to_grid(weights: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Return weights in [0, 1] as whole multiples of 1/GRID, to the nearest."""
    values = np.asarray(weights)
    if values.dtype.kind not in "fiub":
        raise ParameterError(f"query: weights must be numbers from 0 to 1, got {values.dtype}")
    values = values.astype(np.float64)
    wrong = ~((values >= 0) & (values <= 1))  # also catches nan
    if wrong.any():
        raise ParameterError(f"query: weights must be from 0 to 1, got {values[wrong].flat[0]:g}")
    return np.rint(values * GRID).astype(np.uint16)


class Workload:
    """A batch of linear queries: one row of grid weights each.

    >>> Workload.of([[0, 1], [0.5, 0.5]]).exact(np.array([10, 4])).tolist()
    [201600, 352800]
    """

    def __init__(self, grid: NDArray[np.uint16]) -> None:
        if grid.ndim != 2 or grid.dtype != np.uint16:
            raise ParameterError("Workload: not a matrix of grid weights; use Workload.of for decimals")
        if grid.size and int(grid.max()) > GRID:
            raise ParameterError(f"Workload: weights must be from 0 to 1, got {int(grid.max()) / GRID:g}")
        self.grid = np.ascontiguousarray(grid)

    @classmethod
    def of(cls, weights: ArrayLike) -> Workload:
        """Return queries from a matrix of weights in [0, 1], rounded to the grid."""
        matrix = np.asarray(weights)
        if matrix.ndim != 2:
            raise ParameterError(
                f"Workload: weights must be a matrix, one row per query, got {matrix.ndim}-d"
            )
        return cls(to_grid(matrix))

    def __len__(self) -> int:
        return len(self.grid)

    @property
    def cells(self) -> int:
        """The number of cells of the domain."""
        return int(self.grid.shape[1])

    @cached_property
    def digest(self) -> bytes:
        """A digest that tells this batch of queries from any other."""
        return digest("workload", self.cells, self.grid)

    def exact(self, counts: NDArray[np.int64], start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """Return GRID times the answers on ``counts``, as whole numbers (the caller keeps Σ counts below 2^46)."""
        part = self.grid[start:stop]
        out = np.empty(len(part), dtype=np.int64)
        step = max(1, _PIECE // max(self.cells, 1))
        for at in range(0, len(part), step):
            np.einsum("ij,j->i", part[at : at + step], counts, out=out[at : at + step])
        return out
