"""Whole or not at all, never over something else, and what is said when it cannot be."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import pytest

from hushgram import publishing
from hushgram.errors import OutputError
from hushgram.noise.entropy import BitSource
from hushgram.publishing import check_free, make_private, new_directory, output_errors, publish, put_file


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture(params=["renameat2", "without"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the kernel's own refusal to replace, and on a system that has none."""
    if request.param == "without":
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    return str(request.param)


@pytest.mark.parametrize("kind", ["file", "directory"])
@pytest.mark.parametrize("there", ["nothing", "file", "directory", "empty directory", "link"])
def test_only_what_is_free_is_taken(kind: str, there: str, kernel: str, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    if kind == "file":
        source.write_text("new")
    else:
        make_private(source)
        (source / "a").write_text("new")
        assert mode(source) == 0o700
    if there == "file":
        target.write_text("old")
    elif there == "link":
        target.symlink_to("nowhere")
    elif there != "nothing":
        target.mkdir()
        if there == "directory":
            (target / "a").write_text("old")
    if there == "nothing":
        publish(source, target)
        assert (target if kind == "file" else target / "a").read_text() == "new"
        assert not source.exists()
        assert kind == "file" or mode(target) == 0o777 & ~publishing._umask()
        return
    before = sorted(os.walk(target)), os.readlink(target) if there == "link" else mode(target)
    with pytest.raises(OutputError, match="exists already; a release is never overwritten"):
        publish(source, target)
    assert (sorted(os.walk(target)), os.readlink(target) if there == "link" else mode(target)) == before
    assert source.exists()


def test_a_directory_appears_at_once_or_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "some" / "where"
    with new_directory(target) as work:
        assert mode(work) == 0o700
        put_file(work / "a", b"1")
        assert not target.exists()
    assert (target / "a").read_bytes() == b"1"
    with pytest.raises(KeyError), new_directory(tmp_path / "other") as work:
        put_file(work / {}["name"], b"1")
    with pytest.raises(OutputError, match="exists already"), new_directory(target) as work:
        put_file(work / "a", b"2")
    assert sorted(os.listdir(tmp_path)) == ["some"]
    assert os.listdir(target.parent) == ["where"]
    assert (target / "a").read_bytes() == b"1"


def test_a_file_is_seen_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_file(tmp_path / "a", b"old")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(OutputError, match=r"/a cannot be written: No space left on device"),
        output_errors(tmp_path / "a"),
    ):
        put_file(tmp_path / "a", b"new")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_draft_is_never_somebody_elses_file_or_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that could be known in advance are not used; one that was guessed all the same is refused."""
    victim, folder = tmp_path / "victim", tmp_path / "shared"
    victim.write_bytes(b"precious")
    folder.mkdir()
    for known in (f"a.{os.getpid()}.part", f".a.{os.getpid()}"):  # what drafts were called before
        (folder / known).symlink_to(victim)
    put_file(folder / "a", b"new")
    assert (folder / "a").read_bytes() == b"new"
    assert not (folder / "a").is_symlink()
    assert mode(folder / "a") == 0o666 & ~publishing._umask()

    drafts = []
    monkeypatch.setattr(os, "replace", lambda draft, _: drafts.append(Path(draft).name))
    put_file(folder / "a", b"1")
    put_file(folder / "a", b"2")
    assert len(set(drafts)) == 2
    monkeypatch.undo()

    monkeypatch.setattr(publishing, "os_entropy", lambda: BitSource(bytes(32)))
    guessed = folder / f".{BitSource(bytes(32)).take(16).tobytes().hex()}.part"
    for plant in (lambda: guessed.symlink_to(victim), lambda: guessed.write_bytes(b"theirs")):
        guessed.unlink(missing_ok=True)
        plant()
        with pytest.raises(FileExistsError):
            put_file(folder / "a", b"never")
        assert os.path.lexists(guessed)
    assert guessed.read_bytes() == b"theirs"
    assert victim.read_bytes() == b"precious"
    assert (folder / "a").read_bytes() == b"new"


def test_a_link_in_place_of_the_file_is_replaced_and_lends_no_permissions(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    victim.chmod(0o666)
    (tmp_path / "m.prom").symlink_to(victim)
    put_file(tmp_path / "m.prom", b"new")
    assert victim.read_bytes() == b"precious"
    assert not (tmp_path / "m.prom").is_symlink()
    assert mode(tmp_path / "m.prom") == 0o666 & ~publishing._umask()


def test_what_is_refused_stays_private(tmp_path: Path) -> None:
    work = make_private(tmp_path / "work")
    (work / "manifest.json").write_text("{}")
    (tmp_path / "out").mkdir()
    with pytest.raises(OutputError, match="exists already"):
        publish(work, tmp_path / "out")
    assert mode(work) == 0o700


def test_each_trouble_has_its_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    below = tmp_path / "file" / "out"
    for action in (check_free, make_private):
        with pytest.raises(OutputError, match=r"/file is not a directory; choose another name"):
            action(below)
    with pytest.raises(OutputError, match=r"/file is not a directory"), new_directory(below):
        pass
    with pytest.raises(OutputError, match="was not published: the files of this run are gone from"):
        publish(tmp_path / "work", tmp_path / "out")
    with pytest.raises(OutputError, match="exists already"):
        check_free(tmp_path / "file")
    with (
        pytest.raises(OutputError, match=r"/gone no longer exists"),
        output_errors(tmp_path / "gone"),
    ):
        put_file(tmp_path / "gone" / "a", b"1")
    assert check_free(tmp_path / "a" / "b" / "c") == tmp_path / "a" / "b" / "c"
    assert os.listdir(tmp_path) == ["file"]
