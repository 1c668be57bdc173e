"""The complete histogram in the encoding of the release: all blocks, with noise on every cell.

In:  (group, Histogram) of all groups, exact and private; the planned release as a side input.
Out: `EncodedBlock` for every block, also where nothing was counted. Released: as private as the encoding says, see
     `hushgram.encodings`.

What a group adds to a block is exact and private; parts are grouped by block, and noise is the last thing that the
combine step of a block does: no block leaves it without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from hushgram.contributions.histogram import Histogram
from hushgram.encodings import EncodedBlock
from hushgram.noise.entropy import ReleaseKey
from hushgram.sparse_histogram.steps import PlannedRelease, encode_counts, noisy_block
from hushgram.transforms.shuffle.coders import BlockPart
from hushgram.transforms.shuffle.combining import noise_parts

__all__ = ["EncodeCounts"]


class EncodeCounts(beam.PTransform):
    """Complete histogram → all released blocks."""

    def __init__(self, release_key: ReleaseKey, planned: Any, groups: int) -> None:
        super().__init__()
        self._release_key, self._planned, self._groups = release_key, planned, groups

    def expand(self, shards: Any) -> Any:
        keyed = tuple[int, BlockPart]
        planned = beam.pvalue.AsSingleton(self._planned)
        project = beam.ParDo(_Project(self._release_key, self._groups), planned)
        release = beam.ParDo(_Release(self._release_key), planned)
        every = self._planned | "EveryBlock" >> beam.FlatMap(_empty_blocks).with_output_types(keyed)
        some = shards | "PlaceInBlocks" >> project.with_output_types(keyed)
        return (
            (some, every)
            | "WithEmpty" >> beam.Flatten().with_output_types(keyed)
            | "GroupBlocks" >> beam.GroupByKey()  # (block, iterable of parts)
            | "ReleaseBlocks" >> release.with_output_types(EncodedBlock)
        )


def _empty_blocks(planned: PlannedRelease) -> Iterator[tuple[int, BlockPart]]:
    assert planned.plan.layout is not None
    for block in range(planned.plan.layout.blocks):
        yield block, BlockPart(())


class _Project(beam.DoFn):
    """(group, Histogram) → (block, what the group adds to it)."""

    def __init__(self, release_key: ReleaseKey, groups: int) -> None:
        self._release_key, self._groups = release_key, groups

    def process(
        self, shard: tuple[int, Histogram], planned: PlannedRelease
    ) -> Iterator[tuple[int, BlockPart]]:
        parts = noise_parts(shard[0], self._groups, shard[1])
        for block, part in encode_counts(parts, planned, self._release_key):
            yield block, BlockPart(part)


class _Release(beam.DoFn):
    """(block, its parts) → the block with noise."""

    def __init__(self, release_key: ReleaseKey) -> None:
        self._release_key = release_key

    def process(
        self, group: tuple[int, Iterable[BlockPart]], planned: PlannedRelease
    ) -> Iterator[EncodedBlock]:
        block, parts = group
        arrays = (part.arrays for part in parts if part.arrays)
        yield noisy_block(block, arrays, planned, self._release_key)
