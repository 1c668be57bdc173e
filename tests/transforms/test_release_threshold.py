"""The threshold stage: the library's rows for every noise shard, also where nothing was counted."""

from __future__ import annotations

import apache_beam as beam
import pytest

from hushgram.contributions.histogram import Histogram
from hushgram.key_selection.threshold import Heavy
from hushgram.sparse_histogram.steps import PlannedRelease, select_keys
from hushgram.transforms.select_keys import SelectKeys
from hushgram.transforms.shuffle.combining import split_groups
from tests.transforms.releases import KEY, SMALL, bounded, by_threshold, collect, planned, records


def library(histogram: Histogram, plan: PlannedRelease) -> tuple[Heavy, Histogram]:
    listed, passed = zip(
        *(select_keys(i, part, plan, KEY) for i, part in enumerate(histogram.shards())), strict=True
    )
    return Heavy.concat(list(listed)), Histogram.concat(passed)


@pytest.mark.parametrize(("delta", "groups", "empty"), [("0", 8, False), ("1e-6", 4, False), ("0", 2, True)])
def test_the_stage_gives_the_librarys_rows(delta: str, groups: int, empty: bool) -> None:
    chosen = by_threshold(delta, epsilon="4", **SMALL)
    texts = delta != "0"
    histogram = Histogram.empty(texts=texts) if empty else bounded(records(), chosen)
    plan = planned(histogram, chosen)
    shards = {group: Histogram.empty(texts=texts) for group in range(groups)} | dict(
        split_groups(histogram, groups)
    )

    def build(p: beam.Pipeline) -> beam.PCollection:
        made = p | "Shards" >> beam.Create(list(shards.items())).with_output_types(tuple[int, Histogram])
        side = p | "Plan" >> beam.Create([plan]).with_output_types(PlannedRelease)
        both = made | SelectKeys(KEY, side, groups)
        return [
            both[name] | name >> beam.Map(lambda pair, name: (name, *pair), name) for name in both
        ] | beam.Flatten()

    found = sorted(collect(build), key=lambda each: each[:2])
    assert [each[:2] for each in found] == [
        (name, group) for name in ("heavy", "rest") for group in range(groups)
    ]
    got = Heavy.concat([part for _, _, part in found[:groups]])
    rest = Histogram.concat([part for _, _, part in found[groups:]])
    expected, passed = library(histogram, plan)
    assert (len(passed) > 0) is not empty
    assert rest.fingerprints.tolist() == passed.fingerprints.tolist()
    assert rest.counts.tolist() == passed.counts.tolist()
    assert len(expected) > 0
    assert got.fingerprints.tolist() == expected.fingerprints.tolist()
    assert got.values.tolist() == expected.values.tolist()
    if texts:
        assert got.texts.to_pylist() == expected.texts.to_pylist()  # type: ignore[union-attr]
