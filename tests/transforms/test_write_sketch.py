"""The sink: the library's files, whole or not at all, the same again on every retry."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from hushgram import Sketch
from hushgram.contributions.histogram import Histogram
from hushgram.encodings import EncodedBlock
from hushgram.errors import OutputError
from hushgram.key_selection.threshold import Heavy
from hushgram.processes import Owner
from hushgram.publishing import work_name
from hushgram.release_in_memory import encoded_blocks
from hushgram.sketch import manifest, storage
from hushgram.sparse_histogram.plan import Plan
from hushgram.sparse_histogram.steps import seeds_of, select_keys
from hushgram.transforms import write_sketch as sketch_sink
from hushgram.transforms.write_sketch import Target, WriteSketch, discard_work
from tests.transforms.releases import KEY, SMALL, bounded, collect, contents, params, planned, records, spec
from tests.transforms.stores import StoreFileSystem

CHOSEN = params(preset="paper", **SMALL)  # with several blocks
PLANNED = planned(bounded(records(), CHOSEN), CHOSEN)
PLAN = PLANNED.plan
SEEDS = seeds_of(PLAN, KEY)
SHARDS: list[Histogram] = bounded(records(), CHOSEN).shards()
HEAVY = [select_keys(i, part, PLANNED, KEY)[0] for i, part in enumerate(SHARDS)]
BLOCKS: list[EncodedBlock] = list(encoded_blocks(SHARDS, PLANNED, KEY))


def write(target: Target, name: str = "urls") -> list[str]:
    def build(p: beam.Pipeline) -> beam.PCollection:
        heavy = list(enumerate(HEAVY))[::-1]  # arrival order has no effect
        bits = BLOCKS[::-1]
        parts = {
            "heavy": p | "H" >> beam.Create(heavy).with_output_types(tuple[int, Heavy]),
            "blocks": p | "B" >> beam.Create(bits).with_output_types(EncodedBlock),
            "plan": p | "P" >> beam.Create([PLAN]).with_output_types(Plan),
        }
        return parts | WriteSketch(spec(CHOSEN, name=name), target)

    return collect(build)


@pytest.mark.parametrize("place", ["new", "empty directory"])
def test_files_are_those_of_the_library(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (manifest, storage, storage, sketch_sink):  # several files of bits
        monkeypatch.setattr(module, "BLOCKS_PER_FILE", 2)
    expected = storage.write_sketch(tmp_path / "library", PLAN, SEEDS, Heavy.concat(HEAVY), BLOCKS, "urls")
    if place == "empty directory":
        (tmp_path / "job").mkdir()
    target = Target.of(str(tmp_path / "job"))
    assert write(target) == [str(tmp_path / "job")]
    assert contents(tmp_path / "job") == contents(expected)
    assert len(contents(expected)) > 4
    assert sorted(os.listdir(tmp_path)) == ["job", "library"]
    Sketch.open(tmp_path / "job").verify()


def test_on_an_object_store_the_manifest_is_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = storage.write_sketch(tmp_path / "library", PLAN, SEEDS, Heavy.concat(HEAVY), BLOCKS, "urls")
    (tmp_path / "store").mkdir()
    monkeypatch.setattr(StoreFileSystem, "root", str(tmp_path / "store"))
    monkeypatch.setattr(StoreFileSystem, "created", [])
    target = Target.of("store://bucket/day/urls.sketch/")
    assert write(target) == ["store://bucket/day/urls.sketch"]
    assert StoreFileSystem.created[-1] == "store://bucket/day/urls.sketch/manifest.json"
    stored = {name.split("|")[-1]: content for name, content in contents(tmp_path / "store").items()}
    assert stored == contents(expected)
    discard_work(target)
    assert len(contents(tmp_path / "store")) == len(stored)
    with pytest.raises(OutputError, match="holds a sketch already"):
        Target.of("store://bucket/day/urls.sketch")


def test_what_exists_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("x")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("file", "full", "link"):
        with pytest.raises(
            OutputError, match="exists already; a release is never overwritten: remove it or choose"
        ):
            Target.of(str(tmp_path / name))
    with pytest.raises(OutputError, match="no file system for nope://"):
        Target.of("nope://bucket/x.sketch")


def test_the_hidden_directory_is_the_runs_own_and_goes_with_a_dead_run(tmp_path: Path) -> None:
    one, again = Target.of(str(tmp_path / "a")), Target.of(str(tmp_path / "a"))
    assert one.work != again.work
    dead = tmp_path / work_name("b", mark=f"{Owner.this().mark().partition('-')[0]}-99999999-1-x")
    for path in (dead, Path(one.work), tmp_path / ".c.hushgram-else"):
        path.mkdir()
        (path / "heavy.parquet").write_text("x")
    Target.of(str(tmp_path / "a"))
    assert sorted(os.listdir(tmp_path)) == sorted([Path(one.work).name, ".c.hushgram-else"])


def publisher(target: Target, name: str = "urls") -> Any:
    return sketch_sink._Publish(spec(CHOSEN, name=name), target)


def files_of(target: Target) -> list[Any]:
    """Writes all files but the manifest, twice, as a retry would."""
    heavy = sketch_sink._WriteHeavy(target.work)
    bits = sketch_sink._WriteBlocks(target.work)
    group = BLOCKS
    first = [*heavy.process((0, enumerate(HEAVY)), PLAN), *bits.process((0, group))]
    again = [*bits.process((0, group[::-1])), *heavy.process((0, list(enumerate(HEAVY))[::-1]), PLAN)]
    assert sorted(map(repr, first)) == sorted(map(repr, again))
    return again


def test_publishing_twice_is_publishing_once(tmp_path: Path) -> None:
    target = Target.of(str(tmp_path / "a"))
    written = files_of(target)
    assert not (tmp_path / "a").exists()
    assert list(publisher(target).process(PLAN, written)) == [target.path]
    before = contents(tmp_path / "a")
    assert list(publisher(target).process(PLAN, written[::-1])) == [target.path]
    assert contents(tmp_path / "a") == before


def test_another_sketch_is_never_replaced(tmp_path: Path) -> None:
    target = Target.of(str(tmp_path / "a"))
    written = files_of(target)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / manifest.MANIFEST_NAME).write_text("{}")
    with pytest.raises(OutputError, match="exists already"):
        list(publisher(target).process(PLAN, written))
    assert contents(tmp_path / "a") == {manifest.MANIFEST_NAME: b"{}"}
    discard_work(target)
    discard_work(target)
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_that_is_not_seen_here_is_an_error(tmp_path: Path) -> None:
    target = Target.of(str(tmp_path / "a"))
    written = files_of(target)
    os.unlink(f"{target.work}/{written[0].entry.name}")
    with pytest.raises(OutputError, match="is not visible here; give a path that all workers share"):
        list(publisher(target).process(PLAN, written))
    assert not (tmp_path / "a").exists()


def test_a_place_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match=r"/file/b/a cannot be written: .*/file is not a directory"):
        Target.of(str(tmp_path / "file" / "b" / "a"))
    target = Target.of(str(tmp_path / "folder" / "a"))
    (tmp_path / "folder").write_text("x")
    with pytest.raises(OutputError, match=r"cannot be written: .*/folder is not a directory"):
        list(sketch_sink._WriteHeavy(target.work).process((0, enumerate(HEAVY)), PLAN))
