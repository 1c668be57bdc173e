"""ALP projection of the complete histogram: all columns of bits, after randomized response.

In:  (group, Histogram) of all groups, exact and private; the plan as a side input.
Out: `BlockBits` for every block of every column, also where nothing was hashed. Released: ε-differentially
private, see
     `hushgram.encodings.alp`.

Rounding and hashing give the bits that a group sets (exact, private); they are grouped by block, and
randomized response is the last thing that the combine step of a block does: no block leaves it without.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from numpy.typing import NDArray

from hushgram.encodings.alp import Block, flip_probability, randomize_block, set_bits
from hushgram.exact.hashing import draw_seeds
from hushgram.exact.histogram import Histogram
from hushgram.noise.entropy import ReleaseKey
from hushgram.release_in_memory import project_part
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.plan import Plan
from hushgram.transforms.shuffle.blocks import BlockBits, BlockPart
from hushgram.transforms.shuffle.combining import CombineShards
from hushgram.transforms.shuffle.sharding import noise_parts

__all__ = ["ProjectAlp", "RandomizeBlock"]


class ProjectAlp(beam.PTransform):
    """Complete histogram → all released blocks."""

    def __init__(self, params: ReleaseParams, plan: Any, release_key: ReleaseKey, *, groups: int) -> None:
        super().__init__()
        self._params, self._plan, self._release_key, self._groups = params, plan, release_key, groups

    def expand(self, shards: Any) -> Any:
        held = tuple[int, BlockPart]
        flip = RandomizeBlock(self._params, self._release_key)
        project = beam.ParDo(
            _Project(self._release_key, self._groups), plan=beam.pvalue.AsSingleton(self._plan)
        )
        every = self._plan | "EveryBlock" >> beam.FlatMap(_empty_blocks).with_output_types(held)
        some = shards | "RoundAndHash" >> project.with_output_types(held)
        return (
            (some, every)
            | "WithEmpty" >> beam.Flatten().with_output_types(held)
            | "RandomizeBlocks" >> CombineShards(flip, BlockBits)
            | "DropIndex" >> beam.Values().with_output_types(BlockBits)
        )


def _empty_blocks(plan: Plan) -> Iterator[tuple[int, BlockPart]]:
    for block in plan.blocks:
        yield block.index, BlockPart(block, np.zeros(0, np.uint32))


class _Project(beam.DoFn):
    """(group, Histogram) → (block, bits to set)."""

    def __init__(self, release_key: ReleaseKey, groups: int) -> None:
        self._release_key, self._groups = release_key, groups

    def process(self, shard: tuple[int, Histogram], plan: Plan) -> Iterator[tuple[int, BlockPart]]:
        group, histogram = shard
        seeds = draw_seeds(self._release_key, plan.levels)
        parts = [
            project_part(i, part, plan, seeds, self._release_key)
            for i, part in noise_parts(group, self._groups, histogram)
        ]
        for column in range(plan.levels):
            positions = np.sort(np.concatenate([part[column] for part in parts]))
            blocks = [block for block in plan.blocks if block.column == column]
            ends = np.searchsorted(
                positions, np.array([*(b.start for b in blocks), plan.column_sizes[column]], np.uint64)
            )
            for block, low, high in zip(blocks, ends[:-1], ends[1:], strict=True):
                if high > low:
                    yield (
                        block.index,
                        BlockPart(block, (positions[low:high] - np.uint64(block.start)).astype(np.uint32)),
                    )


class RandomizeBlock(beam.CombineFn):
    """Parts of one block → its bits after randomized response. Merges; order has no effect."""

    def __init__(self, params: ReleaseParams, release_key: ReleaseKey) -> None:
        self._flip = flip_probability(params.alpha)
        self._release_key = release_key

    def create_accumulator(self) -> _Held:
        return _Held()

    def add_input(self, held: _Held, part: BlockPart) -> _Held:
        held.block = part.block
        held.offsets.append(part.offsets)
        held.pending += len(part.offsets)
        return held.packed_up() if held.pending > part.block.bits // 16 else held

    def merge_accumulators(self, accumulators: Any) -> _Held:
        out = _Held()
        for held in accumulators:
            if held.block is None:
                continue
            out.block = held.block
            out.offsets += held.offsets
            out.pending += held.pending
            if held.packed is not None:
                out.packed = held.packed if out.packed is None else out.packed | held.packed
        return out

    def compact(self, held: _Held) -> _Held:
        return held.packed_up()

    def extract_output(self, held: _Held) -> BlockBits:
        held = held.packed_up()
        assert held.block is not None
        assert held.packed is not None
        return BlockBits(held.block, randomize_block(held.block, held.packed, self._flip, self._release_key))


class _Held:
    """A block as packed bits and bits still to be set."""

    def __init__(self) -> None:
        self.block: Block | None = None
        self.packed: NDArray[np.uint8] | None = None
        self.offsets: list[NDArray[np.uint32]] = []
        self.pending = 0

    def packed_up(self) -> _Held:
        if self.block is None:
            return self
        packed = np.zeros(self.block.bits // 8, np.uint8) if self.packed is None else self.packed.copy()
        if self.pending:
            set_bits(packed, np.concatenate(self.offsets).astype(np.uint64))
        self.packed, self.offsets, self.pending = packed, [], 0
        return self
