"""The projection stage: every block of every column, flipped once, the same from parts in any order."""

from __future__ import annotations

from fractions import Fraction

import apache_beam as beam
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgram.encodings import alp
from hushgram.encodings.alp import Block, randomize_block, set_bits
from hushgram.exact.hashing import draw_seeds
from hushgram.exact.histogram import Histogram
from hushgram.release_in_memory import _randomized
from hushgram.sparse_histogram.plan import Plan, expected_sizes, make_plan
from hushgram.transforms.encode_counts import ProjectAlp, RandomizeBlock
from hushgram.transforms.shuffle.blocks import BlockBits, BlockPart
from hushgram.transforms.shuffle.sharding import split_groups
from tests.transforms.releases import KEY, SMALL, bounded, collect, params, records

BLOCK = Block(2, 0, 0, 256)
FLIP = Fraction(1, 5)


def flipped(offsets: list[int]) -> list[int]:
    packed = np.zeros(32, np.uint8)
    set_bits(packed, np.array(offsets, np.uint64))
    return [int(byte) for byte in randomize_block(BLOCK, packed, FLIP, KEY)]


@given(st.lists(st.lists(st.integers(0, 255), max_size=60), min_size=1, max_size=6), st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_parts_in_any_order_and_tree_give_the_same_bits(parts: list[list[int]], turn: int) -> None:
    fn = RandomizeBlock(params(), KEY)
    held = [fn.create_accumulator(), fn.create_accumulator(), fn.create_accumulator()]
    for i, offsets in enumerate(parts[turn % len(parts) :] + parts[: turn % len(parts)]):
        part = BlockPart(BLOCK, np.array(offsets, np.uint32))
        held[i % 2] = fn.add_input(held[i % 2], part)
    got = fn.extract_output(fn.merge_accumulators([fn.compact(held[1]), held[2], held[0]]))
    assert got.block == BLOCK
    assert got.bits.tolist() == flipped([offset for offsets in parts for offset in offsets])


def test_an_untouched_block_is_flipped_like_any_other() -> None:
    fn = RandomizeBlock(params(), KEY)
    got = fn.extract_output(fn.add_input(fn.create_accumulator(), BlockPart(BLOCK, np.zeros(0, np.uint32))))
    assert got.bits.tolist() == flipped([])
    assert 20 < int(np.bitwise_count(got.bits).sum()) < 90  # 51 expected; nine deviations


@pytest.mark.parametrize(("delta", "groups", "empty"), [("0", 4, False), ("1e-6", 1, False), ("0", 2, True)])
def test_the_stage_gives_the_librarys_blocks(
    delta: str, groups: int, empty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alp, "BLOCK_BITS", 256)  # many blocks in small columns
    chosen = params(delta, **SMALL)
    texts = delta != "0"
    histogram = Histogram.empty(texts=texts) if empty else bounded(records(), chosen)
    plan = make_plan(chosen, expected_sizes(chosen))  # type: ignore[arg-type]
    shards = {group: Histogram.empty(texts=texts) for group in range(groups)} | dict(
        split_groups(histogram, groups)
    )

    def build(p: beam.Pipeline) -> beam.PCollection:
        made = p | "Shards" >> beam.Create(list(shards.items())).with_output_types(tuple[int, Histogram])
        side = p | "Plan" >> beam.Create([plan]).with_output_types(Plan)
        return made | ProjectAlp(chosen, side, KEY, groups=groups)

    found: list[BlockBits] = sorted(collect(build), key=lambda part: part.block.index)
    expected = list(_randomized(histogram.shards(), plan, draw_seeds(KEY, plan.levels), KEY))
    assert len(expected) > plan.levels
    assert [part.block for part in found] == [block for block, _ in expected]
    for part, (_, bits) in zip(found, expected, strict=True):
        assert part.bits.tolist() == bits.tolist()
