"""The barrier: the library's plan and digest, from surveys in any order and grouping."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import apache_beam as beam
import numpy as np
import pytest

from hushgram import ReleaseKey
from hushgram.contributions.histogram import Histogram
from hushgram.errors import ParameterError
from hushgram.sparse_histogram import steps
from hushgram.sparse_histogram.sizing import Survey
from hushgram.sparse_histogram.steps import PlannedRelease, plan_release
from hushgram.transforms.plan_release import PlanRelease, ReleaseTotal
from hushgram.transforms.shuffle.combining import noise_parts, split_groups
from tests.transforms.releases import (
    KEY,
    SMALL,
    bounded,
    by_threshold,
    collect,
    params,
    planned,
    records,
    spec,
)

CHOSEN = params()
HISTOGRAM = bounded(records(), CHOSEN)


def no_survey() -> Survey:
    return Survey.of([])


def groups_of(histogram: Histogram, groups: int) -> dict[int, Histogram]:
    empty = {group: Histogram.empty(texts=histogram.texts is not None) for group in range(groups)}
    return empty | dict(split_groups(histogram, groups))


@pytest.mark.parametrize("groups", [1, 4, 256])
def test_surveys_add_up_in_any_order(groups: int) -> None:
    fn = ReleaseTotal(no_survey, plan_release, spec(CHOSEN))
    surveys = [Survey.of(noise_parts(g, groups, part)) for g, part in groups_of(HISTOGRAM, groups).items()]
    for order in (surveys, surveys[::-1]):
        one, two = fn.create_accumulator(), fn.create_accumulator()
        for i, survey in enumerate(order):
            one, two = (fn.add_input(one, survey), two) if i % 3 else (one, fn.add_input(two, survey))
        found = fn.extract_output(fn.merge_accumulators([two, one]))
        assert found == planned(HISTOGRAM, CHOSEN)
    other = ReleaseTotal(
        no_survey, plan_release, dataclasses.replace(spec(CHOSEN), release_key=ReleaseKey(bytes(32)))
    )
    assert other.extract_output(fn.merge_accumulators(surveys)) != planned(HISTOGRAM, CHOSEN)


def test_a_survey_that_lacks_a_shard_is_no_barrier() -> None:
    shards = list(enumerate(HISTOGRAM.shards()))
    for wrong in (shards[:-1], [*shards, shards[0]], [*shards[:-1], shards[0]]):
        with pytest.raises(AssertionError, match="256 noise shards once"):
            plan_release(Survey.of(wrong), spec(CHOSEN))


@pytest.mark.parametrize("sizes", [{}, SMALL])
@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_the_stage_gives_the_librarys_plan(sizes: dict[str, Any], delta: str) -> None:
    chosen = by_threshold(delta, **sizes)
    histogram = bounded(records(), chosen)
    made = beam.Create(list(groups_of(histogram, 4).items())).with_output_types(tuple[int, Histogram])
    found = collect(lambda p: p | made | PlanRelease(spec(chosen), 4))
    assert found == [planned(histogram, chosen)]
    if sizes:
        assert (found[0].plan.sizes.records, found[0].plan.sizes.scale) == (2000, 0)


def test_a_plan_whose_maps_do_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(HISTOGRAM, CHOSEN).plan
    broken = dataclasses.replace(plan, scale=plan.scale / 2)
    monkeypatch.setattr(steps, "make_plan", lambda *_: broken)
    with pytest.raises(ParameterError, match="noise of the lists is too small"):
        planned(HISTOGRAM, CHOSEN)


def draws(histogram: Histogram, delta: str, sizes: dict[str, Any]) -> tuple[PlannedRelease, list[bytes]]:
    """What the sources of every noisy step of every shard and block begin with."""
    from hushgram.noise import entropy

    seen: list[bytes] = []
    source = entropy.ReleaseKey.source

    def spy(self: ReleaseKey, step: str, shard: int = 0, digest: bytes = b"") -> entropy.BitSource:
        if step != "column-seeds":  # public, and the same for the same key
            seen.append(source(self, step, shard, digest).take(16).tobytes())
        return source(self, step, shard, digest)

    from hushgram.release_in_memory import encoded_blocks

    chosen = by_threshold(delta, **sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entropy.ReleaseKey, "source", spy)
        ready = planned(histogram, chosen)
        passed = [steps.select_keys(i, part, ready, KEY)[1] for i, part in enumerate(histogram.shards())]
        list(encoded_blocks(passed, ready, KEY))
    return ready, seen


@pytest.mark.parametrize("sizes", [{}, SMALL], ids=["sized", "stated"])
@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_any_change_of_data_changes_all_noise(delta: str, sizes: dict[str, Any]) -> None:
    """One unit of one key, in one of 256 shards: no draw of any step, shard or block is the same."""
    histogram = bounded(records(), params(delta))
    counts = histogram.counts.copy()
    counts[len(counts) // 2] += 1
    other = dataclasses.replace(histogram, counts=counts)
    shards = zip(histogram.shards(), other.shards(), strict=True)
    assert sum(a.digest() != b.digest() for a, b in shards) == 1
    (one, first), (two, second) = draws(histogram, delta, sizes), draws(other, delta, sizes)
    again = draws(histogram, delta, sizes)
    assert (one, first) == again  # noise is a function
    assert len(first) > 200  # a shard without keys, or a block, may have nothing to draw
    assert not set(first) & set(second)
    assert one.data_digest != two.data_digest


def test_the_digest_tells_texts_and_shards_apart() -> None:
    """The same counts in another shard, or another text of the same length, are other data."""
    import pyarrow as pa

    prints = np.array([5, 9], np.uint64)
    parts = [
        Histogram(prints, np.array([1, 2])),
        Histogram(prints, np.array([2, 1])),
        Histogram(prints << np.uint64(56), np.array([1, 2])),
        Histogram(prints, np.array([1, 2]), pa.array([b"ab", b"c"], pa.large_binary())),
        Histogram(prints, np.array([1, 2]), pa.array([b"a", b"bc"], pa.large_binary())),
        Histogram(prints, np.array([1, 2]), pa.array([b"ab", b"d"], pa.large_binary())),
    ]
    digests = [Survey.of(enumerate(part.shards())).data_digest() for part in parts]
    assert len(set(digests)) == len(parts)
    sliced = Histogram(prints[1:], np.array([2]), pa.array([b"zz", b"c"], pa.large_binary()).slice(1))
    assert (
        sliced.digest() == Histogram(prints[1:], np.array([2]), pa.array([b"c"], pa.large_binary())).digest()
    )
    assert all(one != two for one, two in pairwise(digests))


def test_sizes_are_drawn_anew_for_other_data_of_the_same_sizes() -> None:
    """Two keys trade their counts: number of records and profile stay, the noise on them does not."""
    histogram = bounded(records(), params("0"))
    counts = histogram.counts.copy()
    i, j = int(counts.argmin()), int(counts.argmax())
    counts[i], counts[j] = counts[j], counts[i]
    other = dataclasses.replace(histogram, counts=counts)
    one, two = (planned(part, params("0")).plan.sizes for part in (histogram, other))
    assert one != two
