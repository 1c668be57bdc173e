"""The histogram stage: the sum of the parts, in every group, whatever the parts and the groups."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgram.contributions.histogram import Histogram
from hushgram.transforms.merge_histograms import MergeHistograms, SumHistograms
from hushgram.transforms.shuffle import combining
from hushgram.transforms.shuffle.combining import LocalResources
from tests.transforms.releases import collect, pieces, records, same

TABLE = records(1200)


def parts(texts: bool, sizes: list[int]) -> list[Histogram]:
    return [Histogram.of_column(batch["url"], texts=texts) for batch in pieces(TABLE, sizes)]


@given(st.lists(st.integers(1, 300), max_size=5), st.booleans(), st.integers(0, 200))
@settings(max_examples=30, deadline=None)
def test_any_cut_and_tree_of_merges_gives_the_sum(sizes: list[int], texts: bool, pending: int) -> None:
    fn = SumHistograms(texts=texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combining, "MAX_PENDING", pending)
        held = [fn.create_accumulator(), fn.create_accumulator()]
        for i, part in enumerate(reversed(parts(texts, sizes))):
            held[i % 2] = fn.add_input(held[i % 2], part)
        got = fn.extract_output(fn.merge_accumulators([held[1], fn.compact(held[0])]))
    same(got, Histogram.of_column(TABLE["url"], texts=texts))


def test_nothing_sums_to_nothing() -> None:
    fn = SumHistograms(texts=True)
    same(fn.extract_output(fn.create_accumulator()), Histogram.empty(texts=True))


@pytest.mark.parametrize("spills", [False, True])
@pytest.mark.parametrize(("texts", "groups"), [(False, 8), (True, 1)])
def test_the_stage_completes_every_group(texts: bool, groups: int, spills: bool, tmp_path: Path) -> None:
    made = parts(texts, [400, 5])
    merge = MergeHistograms(
        groups, texts=texts, local=LocalResources(spill=str(tmp_path) if spills else None)
    )
    found = collect(lambda p: p | beam.Create(made).with_output_types(Histogram) | merge)
    assert any(tmp_path.iterdir()) == spills
    assert sorted(group for group, _ in found) == list(range(groups))
    whole = [part for _, part in sorted(found, key=lambda pair: pair[0])]
    same(Histogram.merge(whole), Histogram.of_column(TABLE["url"], texts=texts))


@pytest.mark.parametrize("spills", [False, True])
def test_groups_without_a_key_are_there_too(spills: bool, tmp_path: Path) -> None:
    one = Histogram(np.array([3 << 60], np.uint64), np.array([7]))
    merge = MergeHistograms(16, texts=False, local=LocalResources(spill=str(tmp_path) if spills else None))
    found = collect(lambda p: p | beam.Create([one]).with_output_types(Histogram) | merge)
    assert sorted((group, int(part.counts.sum())) for group, part in found) == [
        (i, 7 * (i == 3)) for i in range(16)
    ]
