"""The complete histogram in the encoding of the release: all blocks, with noise on every cell.

In:  (group, Histogram) of all groups, exact and private; the planned release as a side input.
Out: `EncodedBlock` for every block, also where nothing was counted. Released: as private as the encoding says, see
     `hushgram.encodings`.

What a group adds to a block is exact and private; parts are grouped by ranges of blocks, and noise is the last thing
that the combine step of a block does: no block leaves it without. There are at most `BLOCK_RANGES`, by the plan's
number of blocks: with one piece per group and block, 10^10 keys would have 10^9 of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import apache_beam as beam

from hushgram.contributions.histogram import Histogram
from hushgram.encodings import EncodedBlock, Layout
from hushgram.noise.entropy import ReleaseKey
from hushgram.sparse_histogram.steps import PlannedRelease, encode_counts, noisy_block
from hushgram.transforms.shuffle import BLOCK_RANGES
from hushgram.transforms.shuffle.coders import BlockParts
from hushgram.transforms.shuffle.combining import groups_at, noise_parts

__all__ = ["EncodeCounts"]


class EncodeCounts(beam.PTransform):
    """Complete histogram → all released blocks."""

    def __init__(self, release_key: ReleaseKey, planned: Any, groups: int) -> None:
        super().__init__()
        self._release_key, self._planned, self._groups = release_key, planned, groups

    def expand(self, shards: Any) -> Any:
        keyed = tuple[int, BlockParts]
        planned = beam.pvalue.AsSingleton(self._planned)
        project = beam.ParDo(_Project(self._release_key, self._groups), planned)
        release = beam.ParDo(_Release(self._release_key), planned)
        return (
            shards
            | "PlaceInBlocks" >> project.with_output_types(keyed)
            | "GroupBlocks" >> beam.GroupByKey()  # (range of blocks, iterable of parts)
            | "ReleaseBlocks" >> release.with_output_types(EncodedBlock)
        )


def _layout(planned: PlannedRelease) -> Layout:
    assert planned.plan.layout is not None
    return planned.plan.layout


def _blocks_per_range(planned: PlannedRelease) -> int:
    return -(-_layout(planned).blocks // BLOCK_RANGES)


class _Project(beam.DoFn):
    """(group, Histogram) → (range of blocks, what the group adds to them), and nothing for its share of all ranges, so
    that each range has a part."""

    def __init__(self, release_key: ReleaseKey, groups: int) -> None:
        self._release_key, self._groups = release_key, groups

    def process(
        self, shard: tuple[int, Histogram], planned: PlannedRelease
    ) -> Iterator[tuple[int, BlockParts]]:
        each, groups = _blocks_per_range(planned), groups_at(self._groups, planned.plan)
        for number in range(shard[0], -(-_layout(planned).blocks // each), groups):
            yield number, BlockParts.of([], 0)
        parts = noise_parts(shard[0], groups, shard[1])
        placed = encode_counts(parts, planned, self._release_key)
        for number, found in groupby(placed, lambda part: part[0] // each):  # blocks come in order
            yield number, BlockParts.of([(block - number * each, part) for block, part in found], each)


class _Release(beam.DoFn):
    """(range of blocks, parts of groups) → the blocks with noise, one after another."""

    def __init__(self, release_key: ReleaseKey) -> None:
        self._release_key = release_key

    def process(
        self, group: tuple[int, Iterable[BlockParts]], planned: PlannedRelease
    ) -> Iterator[EncodedBlock]:
        number, each = group[0], _blocks_per_range(planned)
        parts = [part for part in group[1] if part.arrays]
        for place, block in enumerate(
            range(number * each, min((number + 1) * each, _layout(planned).blocks))
        ):
            added = (part.at(place) for part in parts)
            yield noisy_block(block, (cells for cells in added if len(cells[0])), planned, self._release_key)
