"""Drafts of what commands write: links and files that somebody planted in the folder are neither followed nor used."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hushgram.pipelines.pages import write_page
from hushgram.pipelines.run.logs import JobLog, check_writable
from hushgram.pipelines.terminal import write_output

ROOT = Path(__file__).parents[2]


def metrics(path: Path) -> None:
    check_writable("--metrics", path)
    with JobLog("release", "text", path):
        pass


WRITERS: dict[str, Callable[[Path], object]] = {
    "--output": lambda path: write_output("rows\n", str(path)),
    "report": lambda path: write_page(str(path), "<!doctype html>", replace=True),
    "--metrics": metrics,
}


@pytest.mark.parametrize("kind", ["link", "file"])
@pytest.mark.parametrize("writer", WRITERS)
def test_planted_drafts_are_neither_followed_nor_used(writer: str, kind: str, tmp_path: Path) -> None:
    shared, victim = tmp_path / "shared", tmp_path / "victim"
    shared.mkdir()
    victim.write_bytes(b"precious")
    planted = [shared / f"out.{os.getpid()}.part", shared / f".out.{os.getpid()}"]
    for each in planted:
        if kind == "link":
            each.symlink_to(victim)
        else:
            os.link(victim, each)  # theirs to read, whatever is written into it
    WRITERS[writer](shared / "out")
    assert victim.read_bytes() == b"precious"
    assert (shared / "out").lstat().st_nlink == 1
    assert not (shared / "out").is_symlink()
    assert (shared / "out").stat().st_size > 0
    assert sorted(path.name for path in shared.iterdir()) == sorted(["out", *(each.name for each in planted)])


def test_only_one_function_writes_drafts() -> None:
    """Whoever writes a file that replaces another does so by `put_file`."""
    found = {
        path.relative_to(ROOT).as_posix()
        for package in ("core", "transforms", "pipelines")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr == "replace"
        and ast.unparse(node.value) in ("os", "draft")
    }
    assert found == {"core/publishing.py"}
