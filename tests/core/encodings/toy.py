"""A toy encoding in one module: ALP's bits, each block written as a hexadecimal number whose length varies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.encodings import Demand, EncodedBlock
from hushgram.encodings.alp import Alp, AlpSpace
from hushgram.encodings.encoding import ReadBlock
from hushgram.noise.entropy import ReleaseKey

__all__ = ["ENCODING"]


@dataclass(frozen=True)
class ToySpace(AlpSpace):
    @property
    def encoding(self) -> str:
        return "toy-1"

    def block_lengths(self) -> None:  # type: ignore[override]
        return None

    def release_block(self, block: int, cells: NDArray[np.uint8], release_key: ReleaseKey) -> EncodedBlock:
        released = super().release_block(block, cells, release_key)
        text = b"%x" % int.from_bytes(released.content.tobytes(), "little")
        return EncodedBlock(block, np.frombuffer(text, np.uint8), released.sums)

    def block_sums(self, block: int, content: NDArray[np.uint8]) -> NDArray[np.int64]:
        return super().block_sums(block, self._bits(block, content))

    def look_up(
        self, fingerprints: NDArray[np.uint64], seeds: NDArray[np.uint64], read: ReadBlock
    ) -> NDArray[np.bool_]:
        return super().look_up(fingerprints, seeds, lambda block: self._bits(block, read(block)))

    def _bits(self, block: int, content: NDArray[np.uint8]) -> NDArray[np.uint8]:
        length = len(self.empty_block(block)) // 8
        return np.frombuffer(int(content.tobytes(), 16).to_bytes(length, "little"), np.uint8)


class Toy(Alp):
    id = "toy-1"

    def plan(self, demand: Demand) -> ToySpace:
        return _toy(super().plan(demand))

    def read_space(self, text: Mapping[str, Any]) -> ToySpace:
        return _toy(super().read_space(text))


def _toy(space: AlpSpace) -> ToySpace:
    return ToySpace(space.alpha, space.cap, space.width, space.column_sizes)


ENCODING = Toy()
