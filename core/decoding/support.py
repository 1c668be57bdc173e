"""On which counts a prior lives: atoms (ranges of counts), grouped into the bins that a fit can tell apart."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hushgram.decoding.constants import ATOMS, SPLIT, SUPPORT_REACH, WIDE_BINS
from hushgram.decoding.released import Floats, Ints, Released

__all__ = ["Bins", "Support", "atom_edges", "make_bins"]


@dataclass(frozen=True)
class Support:
    """Atoms: the integers low … high of each, and the count that stands for them."""

    low: Ints
    high: Ints
    at: Floats

    @property
    def width(self) -> Floats:
        """Number of integers in each atom."""
        return (self.high - self.low + 1).astype(np.float64)


@dataclass(frozen=True)
class Bins:
    """Atoms in bins, bins in cells of the profile's grid; each is cut where the next coarser one is."""

    support: Support
    edges: Ints
    cell: Ints  # cell of each bin
    top: int  # the largest count

    @property
    def count(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1

    @cached_property
    def owner(self) -> Ints:
        """Bin of each atom."""
        return np.searchsorted(self.edges, self.support.low, side="right") - 1

    @property
    def width(self) -> Floats:
        """Number of integers in each bin."""
        return np.diff(self.edges).astype(np.float64)

    @cached_property
    def place(self) -> Floats:
        """Where an atom lies in its bin, from −½ to ½."""
        first, length = self.edges[:-1], np.maximum(np.diff(self.edges) - 1, 1)
        return np.asarray((self.support.at - first[self.owner]) / length[self.owner] - 0.5)

    def sums(self, values: Floats) -> Floats:
        """Σ over the atoms of each bin."""
        return np.bincount(self.owner, values, minlength=self.count).astype(np.float64)

    def share(self, weight: Floats, mass: Floats) -> Floats:
        """Mass of each atom, if every bin's mass is shared among its atoms by weight."""
        return np.asarray(weight * (mass / np.maximum(self.sums(weight), 1e-300))[self.owner])


def atom_edges(released: Released, grain: float, top: int, fine: int) -> Ints:
    """Edges of ranges of counts from 1 to top, each so narrow that no likelihood changes much inside it.

    A range is at most 1/fine of its count; within SUPPORT_REACH noise scales of the bound also at most 1/fine of
    the noise scale, and below that 1/fine of the grain of the encoding (or 1/1000 of the bound).
    """
    close = max(1, int(released.noise.scale / fine))
    below = max(close, int(grain / fine), released.bound // 1000)
    start = released.bound - SUPPORT_REACH * released.noise.scale
    edges, at = [1], 1
    while at <= top:
        at += min(max(1, at // fine), below, max(close, int(start - at)))
        edges.append(min(at, top + 1))
    return np.asarray(edges, dtype=np.int64)


def make_bins(released: Released, grain: float) -> Bins:
    """Atoms and bins for the counts that a release can say something about."""
    top = released.bound + int(np.ceil(SUPPORT_REACH * released.noise.scale))
    grid = released.profile_at if len(released.profile_at) else _usual_grid(top)
    grid = np.unique(np.concatenate([[1], grid[grid <= top], [top + 1]])).astype(np.int64)
    parts = [
        np.unique(np.linspace(a, b, _parts(int(a), int(b), released) + 1)[:-1].astype(np.int64))
        for a, b in itertools.pairwise(grid)
    ]
    edges = np.concatenate([*parts, [top + 1]])
    fine = np.unique(np.concatenate([atom_edges(released, grain, top, ATOMS), edges]))
    low, high = fine[:-1], fine[1:] - 1
    cell = np.searchsorted(grid, edges[:-1], side="right")
    return Bins(Support(low, high, (low + high) / 2.0), edges, cell, top)


def _usual_grid(top: int) -> Ints:
    """1, 2, 3, 4, 6, 8, 12, 16, … up to top, for releases without a profile."""
    powers = 2 ** np.arange(0, 62, dtype=np.int64)
    grid = np.unique(np.concatenate([powers, 3 * powers[:60]]))
    return grid[grid <= max(top, 1)]


def _parts(start: int, end: int, released: Released) -> int:
    """Bins for the cell start ≤ x < end: 1/8 of their count wide, and a noise scale where keys are listed."""
    if start > WIDE_BINS:  # keeps the fit small where counts, and so the noise, are in the thousands
        return 1
    wide = start / 8.0 if end <= released.bound else min(start / 8.0, released.noise.scale)
    return max(1, min(SPLIT, end - start, int(np.ceil((end - start) / max(wide, 1.0)))))
