"""Where output goes: what a failed or killed run leaves beside it, on disks and in object stores."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from apache_beam.io.filesystem import FileMetadata

from hushgram.errors import OutputError
from hushgram.pipelines.run.budget import open_budget
from hushgram.pipelines.run.outputs import output_at
from hushgram.processes import Owner
from hushgram.transforms.files import write_file
from tests.engines.fake_store import FakeStore

DEAD = f"{Owner.this().mark().partition('-')[0]}-99999999-1-x"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "store"
    monkeypatch.setattr(FakeStore, "root", str(root))
    return root


def objects(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def write(url: str, content: bytes = b"x") -> None:
    with FakeStore(None).create(url) as file:
        file.write(content)


def fail(target: str) -> None:
    with open_budget(job="release", events=[], target=target) as run:
        write(f"{run.output}/heavy.parquet")
        raise OutputError("the disk is full")


def test_a_failed_run_leaves_nothing_in_a_store(store: Path) -> None:
    write("gs://bucket/day/urls.sketch.old")
    with pytest.raises(OutputError, match="the disk is full"):
        fail("gs://bucket/day/urls.sketch")
    assert objects(store) == ["bucket/day/urls.sketch.old"]


def test_what_a_killed_run_left_in_a_store_goes_with_the_next(store: Path) -> None:
    """Also of another release; never that of a run that may be alive."""
    ours, other = (output_at(f"gs://bucket/day/{name}", name, "directory") for name in ("a", "b"))
    alive = Owner.this().mark()
    for work in (ours.shared_work(DEAD), other.shared_work(DEAD), other.shared_work(alive)):
        write(f"{work}/heavy.parquet")
    with open_budget(job="release", events=[], target="gs://bucket/day/c") as run:
        write(f"{run.output}/manifest.json")
        run.publish()
    kept = other.shared_work(alive).removeprefix("gs://")
    assert objects(store) == [f"{kept}/heavy.parquet", "bucket/day/c/manifest.json"]
    other.remove_leftovers(held=True)  # nobody else may run this release: its ledger says so
    assert objects(store) == ["bucket/day/c/manifest.json"]


FILES = ("blocks-0000.bin", "heavy.parquet", "manifest.json")


def publish(target: str, names: tuple[str, ...] = FILES) -> None:
    with open_budget(job="release", events=[], target=target) as run:
        for name in names:
            write(f"{run.output}/{name}")
        run.publish()


@pytest.mark.parametrize("reached", range(len(FILES)))
def test_a_publish_that_fails_leaves_nothing_in_the_target(
    reached: int, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks and lists of a sketch that was never published stayed there, complete up to the manifest."""
    write("gs://bucket/day/urls.sketch/notes.txt")
    copy = FakeStore.copy

    def fails(self: FakeStore, sources: list[str], targets: list[str]) -> None:
        if targets[0].endswith(FILES[reached]):
            raise OSError("quota exceeded")
        copy(self, sources, targets)

    with monkeypatch.context() as patch:
        patch.setattr(FakeStore, "copy", fails)
        with pytest.raises(OutputError, match="quota exceeded"):
            publish("gs://bucket/day/urls.sketch")
    assert objects(store) == ["bucket/day/urls.sketch/notes.txt"]
    publish("gs://bucket/day/urls.sketch")
    assert objects(store) == sorted(f"bucket/day/urls.sketch/{name}" for name in ("notes.txt", *FILES))


def test_a_publish_that_fails_after_its_manifest_removes_nothing(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store did what it reported as failed: the sketch is visible."""
    copy = FakeStore.copy

    def fails(self: FakeStore, sources: list[str], targets: list[str]) -> None:
        copy(self, sources, targets)
        if targets[0].endswith("manifest.json"):
            raise OSError("timed out")

    monkeypatch.setattr(FakeStore, "copy", fails)
    with pytest.raises(OutputError, match="timed out"):
        publish("gs://bucket/a")
    assert objects(store) == sorted(f"bucket/a/{name}" for name in FILES)


def test_what_a_killed_publish_left_in_the_target_goes(store: Path) -> None:
    """With the next run, whose sketch may have fewer files, and with `hushgram ledger abandon`."""
    left = ("blocks-0007.bin", "heavy-00002.bin", "notes.txt")
    for name in left:
        write(f"gs://bucket/a/{name}")
        write(f"gs://bucket/b/{name}")
    publish("gs://bucket/a")
    assert objects(store / "bucket" / "a") == sorted(("notes.txt", *FILES))
    output_at("gs://bucket/b", "views\nmonday", "directory").remove_leftovers(held=True)
    assert objects(store / "bucket" / "b") == ["notes.txt"]
    output_at("gs://bucket/a", "views\nmonday", "directory").remove_leftovers(held=True)
    assert objects(store / "bucket" / "a") == sorted(("notes.txt", *FILES))  # published


def test_a_run_that_writes_here_for_a_store_leaves_nothing_here(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    with open_budget(job="release", events=[], target="gs://bucket/a.jsonl", shape="file") as run:
        run.path.write_text("{}")
        assert run.path.parent.stat().st_mode & 0o777 == 0o700
        run.publish()
    assert objects(store) == ["bucket/a.jsonl"]
    assert os.listdir(tmp_path / "tmp") == []


@pytest.fixture
def folders(store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store as HDFS is: with folders, which list one level, renames, and a create that replaces nothing."""
    create = FakeStore.create

    def create_new(self: FakeStore, path: str, *args: str) -> Any:
        if os.path.exists(self._local(path)):
            raise OSError(f"Path already exists: {path}")
        return create(self, path, *args)

    def rename(self: FakeStore, sources: list[str], targets: list[str]) -> None:
        for source, target in zip(sources, targets, strict=True):
            os.rename(self._local(source), self._local(target))

    def delete(self: FakeStore, paths: list[str]) -> None:
        for path in map(self._local, paths):
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)

    def listed(self: FakeStore, folder: str) -> list[FileMetadata]:
        local = self._local(folder)  # one level
        return [FileMetadata(f"{folder.rstrip('/')}/{name}", 1, 1) for name in sorted(os.listdir(local))]

    patches = {
        "_list": listed,
        "has_dirs": lambda self: True,
        "exists": lambda self, path: os.path.exists(self._local(path)),
        "create": create_new,
        "rename": rename,
        "delete": delete,
    }
    for name, function in patches.items():
        monkeypatch.setattr(FakeStore, name, function)
    return store


def test_a_store_with_folders_renames_them_and_keeps_none(folders: Path) -> None:
    with open_budget(job="release", events=[], target="gs://bucket/day/a") as run:
        for _ in range(2):  # a retry writes the file again
            write_file(run.output, "manifest.json", b"x")
        run.publish()
    with open_budget(job="bounds", events=[], target="gs://bucket/day/b.json", shape="file") as run:
        write_file(run.output.rpartition("/")[0], "b.json", b"x")
        run.publish()
    with pytest.raises(OutputError, match="the disk is full"):
        fail("gs://bucket/day/c")
    found = sorted(str(path.relative_to(folders)) for path in folders.rglob("*"))
    assert found == [
        "bucket",
        "bucket/day",
        "bucket/day/a",
        "bucket/day/a/manifest.json",
        "bucket/day/b.json",
    ]
    write("gs://bucket/day/d/another file")
    with open_budget(job="release", events=[], target="gs://bucket/day/d") as run:
        write_file(run.output, "manifest.json", b"x")
        with pytest.raises(OutputError, match="exists already"):
            run.publish()


@pytest.mark.parametrize("held", [False, True])
def test_the_same_on_a_disk(held: bool, tmp_path: Path) -> None:
    ours, other = (output_at(str(tmp_path / name), name, "directory") for name in ("a", "b"))
    for place, mark in ((ours, DEAD), (ours, "elsewhere"), (other, DEAD), (other, "elsewhere")):
        assert place.local_work(mark).stat().st_mode & 0o777 == 0o700
    ours.remove_leftovers(held=held)
    names = os.listdir(tmp_path)
    assert len(names) == 2 - held
    assert all(name.endswith(".elsewhere") for name in names)
