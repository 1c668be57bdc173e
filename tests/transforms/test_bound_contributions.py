"""Bounding: the library's result from any cut, order, thread and spilled batch, in bounded memory."""

from __future__ import annotations

import itertools
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgram.contributions.bounding import BoundingSpec, Bounds, Contributions
from hushgram.contributions.histogram import Histogram
from hushgram.inputs import Check, Limits
from hushgram.transforms import bound_contributions as bounding
from hushgram.transforms.bound_contributions import BoundContributions, BoundUsers
from hushgram.transforms.shuffle import combining
from hushgram.transforms.shuffle import records as take
from hushgram.transforms.shuffle.coders import ContributionsCoder
from hushgram.transforms.shuffle.combining import LocalResources
from tests.transforms.releases import KEY, bounded, collect, params, pieces, records, same

CHOSEN = params()
MOST, EACH = CHOSEN.max_contributions, CHOSEN.max_per_key


def spec(texts: bool = False) -> BoundingSpec:
    return BoundingSpec("user", "url", KEY, (Bounds(MOST, EACH),), texts)


def parts_of(table: pa.Table, sizes: list[int], texts: bool = False) -> list[Contributions]:
    return [Contributions.of(b["user"], b["url"], KEY, texts=texts) for b in pieces(table, sizes)]


@given(
    st.lists(st.integers(1, 200), max_size=6), st.integers(0, 5), st.booleans(), st.integers(0, 40)
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_any_cut_order_and_tree_of_merges_gives_the_library(
    sizes: list[int], turn: int, texts: bool, pending: int
) -> None:
    table = records(400, users=15, seed=len(sizes))
    parts = parts_of(table, sizes, texts)
    parts = parts[turn % len(parts) :] + parts[: turn % len(parts)]
    fn = BoundUsers(spec(texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combining, "MAX_PENDING", pending)
        held = [fn.create_accumulator(), fn.create_accumulator()]
        for i, part in enumerate(parts):
            held[i % 2] = fn.add_input(held[i % 2], part)
        merged = fn.merge_accumulators([fn.compact(held[0]), held[1]])
        same(fn.extract_output(merged), bounded(table, params("1e-6" if texts else "0")))


def test_no_user_counts_more_than_the_bounds_and_the_check_can_fail() -> None:
    """The sum over parts that were bounded one by one exceeds the bounds: the mistake of bounding too late."""
    table = pa.table({"user": ["ann"] * 300, "url": [f"/{i % 30}" for i in range(300)]})
    parts = parts_of(table, [100, 100])
    fn = BoundUsers(spec())
    whole = fn.extract_output(
        fn.merge_accumulators([fn.add_input(fn.create_accumulator(), part) for part in parts])
    )
    assert whole.counts.sum() == MOST
    assert whole.counts.max() <= EACH
    too_late = Histogram.merge([part.bounded(Bounds(MOST, EACH)) for part in parts])
    assert too_late.counts.sum() > MOST


def test_a_huge_user_is_held_in_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combining, "MAX_PENDING", 1000)
    fn = BoundUsers(spec())
    held, max_contributions = fn.create_accumulator(), 0
    for batch in range(50):
        keys = np.arange(batch * 500, batch * 500 + 500)
        held = fn.add_input(held, Contributions.of(["heavy"] * 500, keys, KEY, texts=False))
        max_contributions = max(max_contributions, held.merged + held.pending)
    assert max_contributions <= 2000
    assert fn.extract_output(held).counts.sum() == MOST


def test_a_batch_of_one_user_sends_one_users_keys() -> None:
    fn = bounding._PruneBatches(spec(), 4, LocalResources())
    fn.setup()
    fn.start_bundle()
    table = pa.table({"user": ["heavy"] * 200_000, "url": pa.array(np.arange(200_000))})
    assert list(fn.process(table)) == []  # few rows are left, and wait for those of other batches
    (sent,) = list(fn.finish_bundle())
    assert len(ContributionsCoder().decode(sent.value[1]).keys) == MOST


@pytest.mark.parametrize(("rows", "in_range"), [(3, 64), (20, 5), (20, 7), (10_000, 3)])
def test_pieces_are_collected_without_an_effect_on_the_result(
    rows: int, in_range: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rows a piece is to have: many batches and shards, few pieces, one histogram."""
    monkeypatch.setattr(bounding, "ROWS_PER_PIECE", rows)
    monkeypatch.setattr(bounding, "_SHARDS_PER_RANGE", in_range)
    monkeypatch.setattr(take, "_MIN_ROWS", 1)
    table, chosen = records(3000), params(max_contributions=MOST)
    fn = bounding._PruneBatches(spec(), 30, LocalResources())
    fn.setup()
    fn.start_bundle()
    sent = [piece for batch in pieces(table, [100] * 29) for piece in fn.process(batch)]
    sent += [piece.value for piece in fn.finish_bundle()]
    straddling = 30 // in_range if 30 % (30 // in_range or 1) else 0  # shards that lie in two ranges
    assert len(sent) <= (30 + straddling) * (3000 // (30 * rows) + 1)
    shards = [
        Contributions.concat(
            [ContributionsCoder().decode(part) for shard, part in sent if shard == i]
        ).bounded(Bounds(MOST, 2))
        for i in {shard for shard, _ in sent}
    ]
    same(Histogram.merge(shards), bounded(table, chosen))


def test_batches_that_hardly_shrink_are_sent_as_they_are() -> None:
    """A cut that would leave out little is left to the other side of the shuffle."""
    rows = Contributions.of(np.arange(1000), np.arange(1000), KEY, texts=False)
    assert rows.prune_if_many(Bounds(4, 1)) is rows
    assert (
        len(
            Contributions.of(np.arange(1000) % 10, np.arange(1000), KEY, texts=False)
            .prune_if_many(Bounds(4, 1))
            .keys
        )
        == 40
    )


@pytest.mark.parametrize(("texts", "threads", "spilled"), [(False, 1, False), (True, 2, True)])
def test_the_stage_gives_the_library(texts: bool, threads: int, spilled: bool, tmp_path: Path) -> None:
    table = records()
    chosen = params("1e-6" if texts else "0")
    local = LocalResources(threads, str(tmp_path) if spilled else None)
    stage = BoundContributions(spec(texts), 3, local)
    found = collect(lambda p: p | beam.Create(pieces(table, [900, 10, 700])) | stage)
    assert len(found) == 1  # small shards are bounded together
    same(Histogram.merge(found), bounded(table, chosen))
    assert bool(list(tmp_path.iterdir())) == spilled


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("texts", "spilled"), [(False, True), (True, False)])
def test_many_shards_take_two_shuffles(
    keep: bool, texts: bool, spilled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges of shards first, then the shards: the same histogram, whole users in every shard, and the tallies."""
    monkeypatch.setattr(bounding, "SHARDS_AT_ONCE", 4)
    monkeypatch.setattr(bounding, "SPLIT_ROWS", 300)
    monkeypatch.setattr(combining, "_TOGETHER", 200)
    table = records()
    local = LocalResources(1, str(tmp_path) if spilled else None)
    stage = BoundContributions(spec(texts), 30, local, keep=keep, check=Check(Limits()))
    found = collect(lambda p: p | beam.Create(pieces(table, [900, 10, 700])) | stage)
    if keep:
        shards = [int((int(high) >> 32) * 30 >> 32) for _, rows in found for high in rows.user_high]
        assert shards == [shard for shard, rows in found for _ in rows.user_high]
        found = [rows.bounded(Bounds(MOST, EACH)) for _, rows in found]
    else:
        assert 1 < len(found) < 30
    same(Histogram.merge(found), bounded(table, params("1e-6" if texts else "0")))


def test_tallies_pass_two_shuffles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounding, "SHARDS_AT_ONCE", 4)
    stage = BoundContributions(spec(), 30, check=Check(Limits()))
    nobody = [("ann", "/a"), (None, "/a"), (None, "/b")]
    with pytest.raises(Exception, match="user is null"):
        collect(lambda p: p | beam.Create(nobody) | stage)


def test_small_batches_travel_together() -> None:
    """A thousand batches of three rows are one piece of work, not a thousand."""
    fn = bounding._PruneBatches(spec(), 2, LocalResources(), check=Check(Limits()))
    fn.setup()
    fn.start_bundle()
    for batch in itertools.islice(records(3000).to_batches(max_chunksize=3), 1000):
        assert list(fn.process(batch) or ()) == []
    assert len(list(fn.finish_bundle())) == 2 + 1  # two shards, and the tally


@pytest.mark.parametrize("texts", [False, True])
def test_records_without_users_count_one_each(texts: bool) -> None:
    table, counted = records(800), BoundingSpec(None, "url", KEY, (Bounds(1, 1),), texts)
    found = collect(lambda p: p | beam.Create(pieces(table, [300])) | BoundContributions(counted))
    same(Histogram.merge(found), Histogram.of_column(table["url"], texts=texts))
