"""Blocks of an encoding as elements: parts before noise, and released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from apache_beam import coders

from hushgram.encodings import EncodedBlock
from hushgram.encodings.encoding import Part
from hushgram.transforms.shuffle.coders import ArraysCoder

__all__ = ["BlockPart", "BlockPartCoder", "EncodedBlockCoder"]


@dataclass(frozen=True)
class BlockPart:
    """What one group adds to a block; no arrays where it adds nothing. Exact and private."""

    arrays: Part


class BlockPartCoder(ArraysCoder):
    """The arrays, one after another."""

    kind = BlockPart

    def to_arrays(self, value: BlockPart) -> list[Any]:
        return list(value.arrays)

    def from_arrays(self, arrays: list[Any]) -> BlockPart:
        return BlockPart(tuple(arrays))


class EncodedBlockCoder(ArraysCoder):
    """Number, bytes and sums."""

    kind = EncodedBlock

    def to_arrays(self, value: EncodedBlock) -> list[Any]:
        return [np.array([value.index], "<i8"), value.content, value.sums]

    def from_arrays(self, arrays: list[Any]) -> EncodedBlock:
        return EncodedBlock(int(arrays[0][0]), arrays[1], arrays[2])


coders.registry.register_coder(BlockPart, BlockPartCoder)
coders.registry.register_coder(EncodedBlock, EncodedBlockCoder)
