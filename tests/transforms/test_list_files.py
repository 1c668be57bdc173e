"""Several files of listed keys and shards of public keys: the library's bytes, written by one worker or by many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

import hushgram as hg
from hushgram.contributions.histogram import Histogram
from hushgram.key_selection.threshold import Heavy
from hushgram.sketch import manifest
from hushgram.transforms import ReleaseSparseHistogram, files, write_sketch
from hushgram.transforms import release_sparse_histogram as transform
from hushgram.transforms.files import SharedKeys
from hushgram.transforms.select_keys import CountPublicKeys
from hushgram.transforms.shuffle.combining import Shards
from tests.golden import make as golden
from tests.transforms.releases import KEY, collect, contents, pieces, records, spec

VIEWS = records(1500, users=1500)
LISTED = [f"https://example.org/{i}" for i in range(60)]
CHOSEN: dict[str, dict[str, Any]] = {
    "list": {"max_contributions": 4, "bits_per_key": 20},
    "two lists": {"epsilon": "1"},
    "texts": {"epsilon": "8", "delta": "1e-2", "preset": "paper"},
    "names": {"epsilon": "1", "delta": "1e-6"},
    "weighted": {"epsilon": "8", "delta": "1e-2", "selection": hg.Weights(8, 1)},
    "public": {},
}


@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.long
def test_one_worker_or_many_write_the_librarys_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = 512 if name in ("list", "two lists", "names") else 8  # cells are many
    monkeypatch.setattr(manifest, "KEYS_PER_FILE", few)
    monkeypatch.setattr(transform, "_groups_of", lambda keys: 16)
    chosen = hg.ReleaseParams(**{"epsilon": "4", "max_contributions": 1, **CHOSEN[name]})
    table, more = VIEWS, {}
    if name == "two lists":
        table = VIEWS.from_pydict({"user": golden.MANY_USERS, "url": golden.MANY_KEYS})
    if name == "public":
        more = {"public_keys": LISTED}
        hg.release_public(table["user"], table["url"], LISTED, chosen, tmp_path / "library", release_key=KEY)
    else:
        hg.release(table["user"], table["url"], chosen, tmp_path / "library", release_key=KEY)
    expected = contents(tmp_path / "library")
    sketch = hg.Sketch.open(tmp_path / "library")
    sketch.verify()
    assert (sketch.plan.top is not None) == (name in ("two lists", "names"))
    assert bool(sketch.manifest.cell_rows) == (name == "names")
    files = len([file for file in expected if file.startswith("heavy-0")])
    assert files == len(sketch.manifest.list_rows + sketch.manifest.cell_rows) > 1
    keys = [*table["url"].to_pylist()[:200], "/never"]
    one = hg.Sketch.open(tmp_path / "library")
    assert one.estimate(keys[:1]).equals(sketch.estimate(keys).slice(0, 1))  # which reads all files
    for most in (0, 256):
        monkeypatch.setattr(write_sketch, "_MAX_GATHERED", most)
        columns: dict[str, Any] = {"user": "user", "key": "url", "release_key": KEY, "shards": Shards(3, 16)}
        with beam.Pipeline(runner="FnApiRunner") as pipeline:
            release = ReleaseSparseHistogram(chosen, **columns, path=tmp_path / str(most), **more)
            _ = pipeline | beam.Create(pieces(table, [7, 900])) | release
        assert contents(tmp_path / str(most)) == expected


@pytest.mark.parametrize("rows", [0, 3])
def test_files_without_keys_are_written(rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of files follows from the number of listed keys alone, wherever these are."""
    monkeypatch.setattr(manifest, "KEYS_PER_FILE", 2)
    chosen = hg.ReleaseParams(epsilon="1", max_contributions=1)
    given = spec(chosen, public_keys=LISTED[:rows] or ["one"])
    plan = transform.make_public_plan(given.params, max(rows, 1))
    table = given.public_keys
    assert table is not None
    first = Heavy(table.fingerprints[:0], table.fingerprints[:0].astype("i8"), table.texts[:0])
    # all keys in the last group, as if their fingerprints began with ones
    prints = table.fingerprints[:rows] | (255 << 56)
    last = Heavy(prints, prints.astype("i8") >> 8, table.texts[:rows])
    monkeypatch.setattr(write_sketch, "_MAX_GATHERED", 0)
    target = write_sketch.Target.of(str(tmp_path / "a"))

    def build(p: beam.Pipeline) -> Any:
        parts = {
            "heavy": p | "H" >> beam.Create([(15, last), (0, first)]).with_output_types(tuple[int, Heavy]),
            "plan": p | "P" >> beam.Create([plan]).with_output_types(type(plan)),
        }
        return parts | write_sketch.WriteSketch(given, target, 16)

    collect(build)
    names = sorted(contents(tmp_path / "a"))
    lists = ["heavy-00000.parquet", "heavy-00001.parquet"] if rows else ["heavy.parquet"]
    assert names == [*lists, "manifest.json"]


def test_public_keys_are_counted_by_their_group_alone() -> None:
    """Every key once, whatever the number of groups, and the same noise; groups without records too."""
    given = spec(hg.ReleaseParams(epsilon="1", max_contributions=4), public_keys=LISTED)
    plan, found = transform.make_public_plan(given.params, len(LISTED)), []
    for groups in (1, 16, 256):
        nothing = [(group, Histogram.empty(texts=True)) for group in range(groups)]

        def build(p: beam.Pipeline, groups: int = groups, nothing: list[Any] = nothing) -> Any:
            shards = p | beam.Create(nothing).with_output_types(tuple[int, Histogram])
            return shards | CountPublicKeys(given, plan, groups)

        parts = sorted(collect(build), key=lambda part: part[0])
        assert [group for group, _ in parts] == list(range(groups))
        for group, part in parts:
            assert all(int(each) * groups >> 64 == group for each in part.fingerprints)
        whole = Heavy.concat([part for _, part in parts])
        found.append((whole.texts.to_pylist(), whole.values.tolist()))
    assert found[0] == found[1] == found[2]
    assert sorted(found[0][0]) == sorted(key.encode() for key in LISTED)


def test_a_key_list_is_read_from_several_released_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that computes a stage again after the list was removed."""
    monkeypatch.setattr(files, "_MAX_IN_GRAPH", 0)
    monkeypatch.setattr(manifest, "KEYS_PER_FILE", 8)
    files._read_keys.cache_clear()
    path = tmp_path / "urls.sketch"
    chosen = hg.ReleaseParams(epsilon="1", max_contributions=1)
    table = spec(chosen, public_keys=LISTED).public_keys
    assert table is not None
    shared = SharedKeys.write(table, str(tmp_path), str(path))
    hg.release_public(VIEWS["user"], VIEWS["url"], LISTED, chosen, path, release_key=KEY)
    (tmp_path / SharedKeys.NAME).unlink()
    assert len(list(path.glob("heavy-*.parquet"))) == 8
    assert shared.texts.equals(table.texts)
    assert shared.fingerprints.tolist() == table.fingerprints.tolist()
