"""A toy encoding in one module: every key has a cell, cells get Laplace noise, and a block is decimal text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.contributions.histogram import Histogram
from hushgram.contributions.keys import column_positions
from hushgram.decoding import BucketLikelihood, Likelihood, ReleasedNumbers
from hushgram.encodings import CellPart, EncodedBlock, Encoding, Layout, LayoutSpec, ReadBlock
from hushgram.errors import FormatError, ParameterError
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.noise.laws import LaplaceLaw
from hushgram.noise.sampling import discrete_laplace
from hushgram.numbers import integer, rational, show

__all__ = ["ENCODING"]

BLOCK = 64
Seeds = NDArray[np.uint64]


class ToyLikelihood(BucketLikelihood):
    source = "toy"


@dataclass(frozen=True)
class ToyLayout(Layout):
    size: int
    scale: Fraction

    encoding = "toy-1"
    hashes = 1
    sums = 1

    @property
    def blocks(self) -> int:
        return -(-self.size // BLOCK)

    @property
    def bits(self) -> int:
        return 32 * self.size

    def describe(self) -> str:
        return f"{self.size:,} cells of text"

    def to_dict(self) -> dict[str, Any]:
        return {"cells": self.size, "scale": show(self.scale)}

    def check_privacy(self, spec: LayoutSpec) -> None:
        if spec.max_contributions / self.scale > spec.epsilon:
            raise ParameterError("Plan: noise of toy cells is smaller than its share of epsilon allows")

    def _places(self, fingerprints: NDArray[np.uint64], seeds: Seeds) -> NDArray[np.int64]:
        return column_positions(fingerprints, seeds[0], self.size).astype(np.int64)

    def project(
        self, shards: Iterable[tuple[int, Histogram]], seeds: Seeds, release_key: ReleaseKey
    ) -> Iterator[tuple[int, CellPart]]:
        sums = np.zeros(self.blocks * BLOCK, np.int64)
        for _, part in shards:
            np.add.at(sums, self._places(part.fingerprints, seeds), part.counts)
        yield from ((block, (row,)) for block, row in enumerate(sums.reshape(-1, BLOCK)) if row.any())

    def empty_block(self, block: int) -> NDArray[np.int64]:
        return np.zeros(BLOCK, np.int64)

    def add(self, cells: NDArray[np.int64], part: CellPart) -> None:
        cells += part[0]

    def release_block(self, block: int, cells: NDArray[np.int64], release_key: ReleaseKey) -> EncodedBlock:
        noisy = cells + discrete_laplace(self.scale, BLOCK, release_key.source("toy", block, digest(cells)))
        text = " ".join(map(str, noisy.tolist())).encode()
        return EncodedBlock(block, np.frombuffer(text, np.uint8), noisy.sum(keepdims=True))

    def block_lengths(self) -> None:
        return None

    def _cells(self, content: NDArray[np.uint8]) -> NDArray[np.int64]:
        cells = np.array(content.tobytes().split(), np.int64)
        if len(cells) != BLOCK:
            raise FormatError("a block of toy cells has another length")
        return cells

    def block_sums(self, block: int, content: NDArray[np.uint8]) -> NDArray[np.int64]:
        return self._cells(content).sum(keepdims=True)

    def check_sums(self, sums: tuple[int, ...]) -> None:
        pass

    def look_up(self, fingerprints: NDArray[np.uint64], seeds: Seeds, read: ReadBlock) -> NDArray[np.int64]:
        places = self._places(fingerprints, seeds)
        found = [int(self._cells(read(place // BLOCK))[place % BLOCK]) for place in places.tolist()]
        return np.stack([places, np.array(found, np.int64)], axis=1)

    def likelihood(
        self,
        released: ReleasedNumbers,
        sums: NDArray[np.int64],
        heavy: NDArray[np.uint64],
        seeds: Seeds,
        read: ReadBlock,
    ) -> Likelihood:
        return ToyLikelihood(
            released,
            noise=LaplaceLaw(float(self.scale)),
            step=1,
            size=self.size,
            places=self._places(heavy, seeds),
            sample=np.concatenate([self._cells(read(block)) for block in range(self.blocks)]),
            total=int(sums[0]),
        )


class Toy(Encoding):
    id = "toy-1"
    auto_share = Fraction(1, 2)

    def check(self, spec: LayoutSpec) -> None:
        pass

    def plan(self, spec: LayoutSpec) -> ToyLayout:
        return ToyLayout(2 * BLOCK * -(-spec.keys // BLOCK), spec.max_contributions / spec.epsilon)

    def read_layout(self, text: Mapping[str, Any]) -> ToyLayout:
        size = integer(text["cells"], "cells", "ToyLayout", low=1, high=1 << 30)
        return ToyLayout(size, rational(text["scale"], "scale", "ToyLayout"))


ENCODING = Toy()
