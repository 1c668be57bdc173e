"""The projection stage: every block of every column, flipped once, the same from parts in any order."""

from __future__ import annotations

import apache_beam as beam
import pytest

from hushgram.contributions.histogram import Histogram
from hushgram.encodings import EncodedBlock, alp
from hushgram.release_in_memory import encoded_blocks
from hushgram.sparse_histogram.steps import PlannedRelease
from hushgram.transforms.encode_counts import EncodeCounts
from hushgram.transforms.shuffle.combining import split_groups
from tests.transforms.releases import KEY, SMALL, bounded, by_threshold, collect, planned, records


@pytest.mark.parametrize(("delta", "groups", "empty"), [("0", 4, False), ("1e-6", 1, False), ("0", 2, True)])
def test_the_stage_gives_the_librarys_blocks(
    delta: str, groups: int, empty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alp, "BLOCK_BITS", 256)  # many blocks in small columns
    chosen = by_threshold(delta, bits_per_key=40, **SMALL)
    texts = delta != "0"
    histogram = Histogram.empty(texts=texts) if empty else bounded(records(), chosen)
    plan = planned(histogram, chosen)
    shards = {group: Histogram.empty(texts=texts) for group in range(groups)} | dict(
        split_groups(histogram, groups)
    )

    def build(p: beam.Pipeline) -> beam.PCollection:
        made = p | "Shards" >> beam.Create(list(shards.items())).with_output_types(tuple[int, Histogram])
        side = p | "Plan" >> beam.Create([plan]).with_output_types(PlannedRelease)
        return made | EncodeCounts(KEY, side, groups)

    found: list[EncodedBlock] = sorted(collect(build), key=lambda block: block.index)
    expected = list(encoded_blocks(histogram.shards(), plan, KEY))
    assert len(expected) > plan.plan.layout.hashes  # type: ignore[union-attr]
    for block, other in zip(found, expected, strict=True):
        assert block.index == other.index
        assert block.content.tolist() == other.content.tolist()
        assert block.sums.tolist() == other.sums.tolist()
