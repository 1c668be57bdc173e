"""More than 256 groups: as many noise shards, the same bytes on every runner, and no sketch that shows how many."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow.parquet as pq
import pytest

import hushgram as hg
from hushgram.accounting import Budget
from hushgram.contributions.bounding import Bounds, Contributions
from hushgram.contributions.histogram import Histogram, KeyTable
from hushgram.encodings import alp, buckets
from hushgram.errors import LedgerError
from hushgram.inputs import Source
from hushgram.key_selection.threshold import Heavy
from hushgram.ledger import Ledger
from hushgram.ledger.tracking import TrackedRelease
from hushgram.pipelines.jobs.release import run_release
from hushgram.pipelines.run.beam_runners import pipeline_options
from hushgram.release_in_memory import encoded_blocks
from hushgram.sparse_histogram.sizing import Survey
from hushgram.sparse_histogram.steps import PlannedRelease, plan_release, select_keys
from hushgram.transforms import bound_contributions, encode_counts, weigh_keys
from hushgram.transforms.encode_counts import EncodeCounts
from hushgram.transforms.merge_histograms import WholeCells
from hushgram.transforms.read_records import plan_records
from hushgram.transforms.release_sparse_histogram import ReleaseSparseHistogram
from hushgram.transforms.select_keys import SelectKeys
from hushgram.transforms.shuffle import combining
from hushgram.transforms.shuffle.coders import BlockParts
from hushgram.transforms.shuffle.combining import Shards, groups_at, split_groups
from tests.transforms.releases import (
    KEY,
    SMALL,
    bounded,
    by_threshold,
    collect,
    contents,
    params,
    records,
    same,
    spec,
)

pytestmark = pytest.mark.long

TABLE = records()
PAIRS = list(zip(TABLE["user"].to_pylist(), TABLE["url"].to_pylist(), strict=True))
CHOSEN = {
    "fingerprints": params(**SMALL),
    "threshold": by_threshold("1e-6", **SMALL),
    "weights": params("1e-6", **SMALL),
    "paper": params(preset="paper", **SMALL),
}


def pipeline(path: Path, chosen: Any, shards: Shards) -> dict[str, bytes]:
    with beam.Pipeline(runner="FnApiRunner") as p:
        pairs = p | beam.Create(PAIRS)
        _ = pairs | ReleaseSparseHistogram(
            chosen, user="user", key="url", path=path, release_key=KEY, shards=shards
        )
    return contents(path)


def library(path: Path, chosen: Any, noise_shards: int) -> dict[str, bytes]:
    """The library with another number of noise shards."""
    users, keys = zip(*PAIRS, strict=True)
    with pytest.MonkeyPatch.context() as patch:
        for function in (Histogram.shards, KeyTable.shards, Survey.data_digest):
            patch.setattr(function, "__defaults__", (noise_shards,))
        patch.setattr(plan_release, "__kwdefaults__", {"shards": noise_shards})
        hg.release(users, keys, chosen, path, release_key=KEY)
    return contents(path)


@pytest.mark.parametrize("name", CHOSEN)
def test_the_bytes_are_those_of_the_library_with_as_many_noise_shards(name: str, tmp_path: Path) -> None:
    found = pipeline(tmp_path / "512", CHOSEN[name], Shards(3, 512))
    assert found == library(tmp_path / "library", CHOSEN[name], 512)
    few = library(tmp_path / "256", CHOSEN[name], 256)
    assert few != found  # other noise
    # No name, parameter or field shows how many there are: both manifests differ in what noise decides alone.
    one, two = (json.loads(each["manifest.json"]) for each in (few, found))
    assert one["plan"] == two["plan"]
    assert one.keys() == two.keys()
    assert few.keys() == found.keys()


def test_neither_runner_nor_shards_of_users_change_a_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of noise shards follows from the bytes of the input: 512 here."""
    pq.write_table(TABLE, tmp_path / "in.parquet")
    plan = plan_records([f"{tmp_path}/in.parquet"], Source(ids=("user", "url")))
    monkeypatch.setattr(combining, "_BYTES_PER_GROUP", plan.bytes // 512)
    expected = library(tmp_path / "library", CHOSEN["fingerprints"], 512)
    spread: dict[str, dict[str, Any]] = {
        "few": {"shards": 5},
        "many": {"shards": 2_048},
        "processes": {"options": pipeline_options([], workers=2)},
    }
    for name, more in spread.items():
        path = tmp_path / name
        run_release(CHOSEN["fingerprints"], plan, user="user", key="url", path=path, release_key=KEY, **more)
        assert contents(path) == expected


def groups_of(histogram: Histogram, groups: int) -> list[tuple[int, Histogram]]:
    empty = {group: histogram.part(0, 0) for group in range(groups)}
    return list((empty | dict(split_groups(histogram, groups))).items())


@pytest.mark.parametrize("bits", [8, 9, 10])
@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_a_domain_of_few_cells_has_fewer_groups(delta: str, bits: int) -> None:
    """A cell in two noise shards would be listed twice, each time with a part of its count."""
    chosen = by_threshold(delta, sizes=(2000, 64))
    histogram = bounded(TABLE, chosen)
    whole = plan_release(Survey.of(enumerate(histogram.shards(1024))), spec(chosen), shards=1024)
    assert whole.plan.domain_bits is not None
    whole = replace(whole, plan=replace(whole.plan, domain_bits=bits))
    assert groups_at(1024, whole.plan) == 1 << bits
    cells = [set((part.fingerprints >> np.uint64(64 - bits)).tolist()) for part in histogram.shards(1024)]
    assert (sum(map(len, cells)) > len(set.union(*cells))) == (bits < 10)  # 1,024 groups would share cells

    def stages(p: beam.Pipeline) -> beam.PCollection:
        made = p | beam.Create(groups_of(histogram, 1024)).with_output_types(tuple[int, Histogram])
        side = p | "Plan" >> beam.Create([whole]).with_output_types(PlannedRelease)
        groups = made | WholeCells(side, 1024, texts=delta != "0")
        listed = groups | SelectKeys(KEY, side, 1024)
        encoded = (listed["rest"] if whole.plan.chained else groups) | EncodeCounts(KEY, side, 1024)
        return (groups, listed["heavy"], encoded) | "All" >> beam.Flatten()

    found = collect(stages)
    parts = sorted((e for e in found if isinstance(e, tuple)), key=lambda e: (type(e[1]).__name__, e[0]))
    number, shards = 1 << bits, histogram.shards(1 << bits)
    heavy, merged = parts[:number], parts[number:]
    assert [group for group, _ in merged] == [group for group, _ in heavy] == list(range(number))
    for (_, one), other in zip(merged, shards, strict=True):
        same(one, other)
    both = [select_keys(i, part, whole, KEY, number) for i, part in enumerate(shards)]
    listed, passed = [heavy for heavy, _ in both], [rest for _, rest in both]
    assert [part.values.tolist() for _, part in heavy] == [part.values.tolist() for part in listed]
    for own in (Heavy.concat(listed), Heavy.concat(listed).cells):
        assert own is None or len(np.unique(own.fingerprints)) == len(own)
    if delta != "0":
        cells_of = [[part.cells.values.tolist() for part in each] for each in ([h for _, h in heavy], listed)]  # type: ignore[union-attr]
        assert cells_of[0] == cells_of[1]
        assert any(cells_of[0])
    blocks = sorted((e for e in found if not isinstance(e, tuple)), key=lambda block: block.index)
    expected = list(encoded_blocks(passed if whole.plan.chained else shards, whole, KEY))
    assert [block.content.tolist() for block in blocks] == [block.content.tolist() for block in expected]


@pytest.mark.parametrize("encoding", ["alp", "buckets"])
@pytest.mark.parametrize("ranges", [1, 3, 7, 1024])
def test_ranges_of_blocks_change_no_byte(encoding: str, ranges: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alp, "BLOCK_BITS", 256)
    monkeypatch.setattr(buckets, "BLOCK", 64)
    monkeypatch.setattr(encode_counts, "BLOCK_RANGES", ranges)
    if encoding == "alp":
        chosen = params(bits_per_key=60, **SMALL)
        histogram = bounded(TABLE, chosen)
    else:
        chosen = params("1e-6", selection=hg.Weights(10, 1), **SMALL)
        rows = Contributions.of(TABLE["user"], TABLE["url"], KEY, texts=True)
        assert rows.table is not None
        nothing = np.zeros(len(rows.table.fingerprints), np.bool_)
        histogram = rows.bounded_apart(spec(chosen).bounds(), nothing)[1]
    ready = plan_release(Survey.of(enumerate(histogram.shards())), spec(chosen))
    sent: list[int] = []
    inner = BlockParts.of.__func__  # type: ignore[attr-defined]

    def build(p: beam.Pipeline) -> beam.PCollection:
        made = p | beam.Create(groups_of(histogram, 4)).with_output_types(tuple[int, Histogram])
        side = p | "Plan" >> beam.Create([ready]).with_output_types(PlannedRelease)
        return made | EncodeCounts(KEY, side, 4)

    def of(cls: type[BlockParts], *arguments: Any) -> Any:
        sent.append(1)
        return inner(cls, *arguments)

    monkeypatch.setattr(BlockParts, "of", classmethod(of))
    blocks = sorted(collect(build), key=lambda block: block.index)
    expected = list(encoded_blocks(histogram.shards(), ready, KEY))
    assert len(expected) > 7
    assert len(sent) <= 5 * min(ranges, len(expected))  # one per range of four groups, and the empty one
    for block, other in zip(blocks, expected, strict=True):
        assert (block.index, block.content.tolist()) == (other.index, other.content.tolist())


def test_the_ledger_refuses_another_number_of_noise_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two outputs under one key with independent noise would be two releases."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    with Ledger.create(url) as ledger:
        ledger.add_dataset("views", Budget(3))
    tracked: dict[str, Any] = {
        "user": "user",
        "key": "url",
        "name": "monday",
        "dataset": "views",
        "ledger": url,
    }

    opened: list[TrackedRelease] = []
    real = TrackedRelease.key
    monkeypatch.setattr(TrackedRelease, "key", lambda self: (opened.append(self), real(self))[1])

    def attempt(shards: Shards | int, rows: list[Any]) -> None:
        with beam.Pipeline(runner="FnApiRunner") as p:
            release = ReleaseSparseHistogram(
                CHOSEN["fingerprints"], path=tmp_path / "out", shards=shards, **tracked
            )
            _ = p | beam.Create(rows) | release

    with pytest.raises(Exception, match="reject"):
        attempt(Shards(4, 512), [("ann", 1.5)] * 10)  # fails in a worker, after the key was handed out
    with Ledger(url) as ledger:
        ledger.release_lease(opened[0].reservation)
    for other in (Shards(4, 1024), Shards(4, 256), 4):
        with pytest.raises(LedgerError, match="noise_shards was 512, is"):
            attempt(other, PAIRS)
    attempt(Shards(7, 512), PAIRS)
    assert (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize("most", [1, 7, 50, 10_000])
def test_shards_are_cut_between_users(most: int) -> None:
    rows = Contributions.of(TABLE["user"], TABLE["url"], KEY, texts=True).prune(Bounds(9, 2))
    parts = list(rows.cut_users(most))
    users = [set(zip(part.user_high.tolist(), part.user_low.tolist(), strict=True)) for part in parts]
    assert sum(map(len, users)) == len(set.union(*users))
    assert max(map(len, parts)) < most + 9
    assert len(parts) <= -(-len(rows) // most)
    same(Histogram.merge(part.bounded(Bounds(9, 2)) for part in parts), rows.bounded(Bounds(9, 2)))


@pytest.mark.parametrize("more", [{}, {"max_contributions": "auto"}], ids=["plain", "auto"])
def test_parts_of_a_shard_change_no_byte(
    more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = params("1e-6", **SMALL, **more)
    expected = library(tmp_path / "library", chosen, 256)
    monkeypatch.setattr(bound_contributions, "KEPT_ROWS", 40)
    monkeypatch.setattr(weigh_keys, "SENT_PLACES", 60)
    assert pipeline(tmp_path / "parts", chosen, Shards(2, 4)) == expected
