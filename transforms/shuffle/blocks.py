"""Blocks of column bits as elements: before and after randomized response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from apache_beam import coders
from numpy.typing import NDArray

from hushgram.encodings.alp import Block
from hushgram.transforms.shuffle.coders import pack_arrays, unpack_arrays

__all__ = ["BlockBits", "BlockPart"]


@dataclass(frozen=True)
class BlockPart:
    """Bits to set in a block, by their place in it. Private."""

    block: Block
    offsets: NDArray[np.uint32]


@dataclass(frozen=True)
class BlockBits:
    """A block after randomized response, packed. Released."""

    block: Block
    bits: NDArray[np.uint8]


class _BlockCoder(coders.Coder):
    kind: type = BlockPart

    def encode(self, value: Any) -> bytes:
        block, array = value.block, value.offsets if self.kind is BlockPart else value.bits
        return pack_arrays([np.array([block.index, block.column, block.start, block.bits], "<i8"), array])

    def decode(self, encoded: bytes) -> Any:
        head, array = unpack_arrays(encoded)
        return self.kind(Block(*(int(value) for value in head)), array)

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> type:
        return self.kind


class _BlockBitsCoder(_BlockCoder):
    kind = BlockBits


coders.registry.register_coder(BlockPart, _BlockCoder)
coders.registry.register_coder(BlockBits, _BlockBitsCoder)
