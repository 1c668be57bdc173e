"""Listed keys in several files: each is a list by itself, and a lookup reads those that it needs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hushgram as hg
from hushgram.encodings import EncodedBlock
from hushgram.errors import FormatError
from hushgram.pipelines.cli import cli
from hushgram.sketch import manifest
from hushgram.sketch.heavy import file_of, list_parts
from hushgram.sketch.manifest import list_files
from hushgram.sketch.storage import Storage, write_sketch
from tests.golden import make as golden

HOME = Path(golden.__file__).parent / "sketches"
SEVERAL = ["several-files", "several-names", "several-named"]


@pytest.fixture
def sketch(tmp_path: Path) -> Path:
    return Path(shutil.copytree(HOME / "several-files.sketch", tmp_path / "a.sketch"))


def test_the_number_of_files_is_the_least_power_of_two() -> None:
    for rows in (0, 1, 2, 1 << 21, (1 << 21) + 1, 1 << 22, (1 << 22) + 1, 3 << 21, 10**9):
        files = list_files(rows)
        assert files.bit_count() == 1
        assert rows <= files << 21
        assert files == 1 or rows > files << 20


@pytest.mark.parametrize("name", SEVERAL)
def test_several_files_answer_as_one(name: str, tmp_path: Path) -> None:
    opened = hg.Sketch.open(HOME / f"{name}.sketch")
    stated = opened.manifest
    heavy = opened._storage.heavy
    assert len(stated.list_rows) == list_files_of(heavy.rows, golden.FEW[name]) >= 4
    written = write_sketch(
        tmp_path / "one", opened.plan, stated.seeds, heavy, blocks_of(opened), stated.release
    )
    one = hg.Sketch.open(written)
    assert one.manifest.list_rows == (stated.heavy_rows,)
    assert one.manifest.sums == stated.sums
    assert one.heavy(all=True).equals(opened.heavy(all=True))
    assert one.estimate(golden.ASKED).equals(opened.estimate(golden.ASKED))


def blocks_of(sketch: hg.Sketch) -> Iterator[EncodedBlock]:
    layout = sketch.plan.layout
    assert layout is not None
    for number in range(layout.blocks):
        content = sketch._storage.block(number)
        yield EncodedBlock(number, content, layout.block_sums(number, content))


def list_files_of(rows: int, each: int) -> int:
    files = 1
    while rows > files * each:
        files *= 2
    return files


def test_a_lookup_reads_only_the_files_of_its_keys() -> None:
    """Where the list says nothing of keys that are not listed."""
    whole = hg.Sketch.open(HOME / "several-named.sketch")
    assert whole.heavy().num_rows  # all files are read
    for key in ("/page/0", "/page/7", "/never"):
        sketch = hg.Sketch.open(HOME / "several-named.sketch")
        assert sketch.estimate([key]).equals(whole.estimate([key]))
        assert 1 <= len(sketch._storage._lists) <= 2 < len(sketch.manifest.list_rows)
        assert sketch.estimate([]).num_rows == 0
        assert sketch.heavy(all=True).num_rows == sketch.manifest.heavy_rows
        assert not sketch._storage._lists  # they are not held twice


@pytest.mark.parametrize("files", [1, 2, 8, 1 << 14])
def test_every_key_is_in_one_file_and_every_file_is_there(files: int) -> None:
    for name in ("two-lists", *SEVERAL):
        storage = Storage(HOME / f"{name}.sketch")
        heavy, plan = storage.heavy, storage.manifest.plan
        parts = list_parts(heavy, plan, files)
        assert list(parts) == list(range(files))
        assert np.concatenate([part.fingerprints for part in parts.values()]).tolist() == list(
            heavy.fingerprints
        )
        if heavy.cells is not None:
            beside = [part.cells for part in parts.values() if part.cells is not None]
            assert np.concatenate([part.fingerprints for part in beside]).tolist() == list(
                heavy.cells.fingerprints
            )
        assert all(np.all(file_of(part.fingerprints, plan, files) == i) for i, part in parts.items())
        some = list_parts(heavy, plan, files, every=False)
        assert some.keys() == {i for i, part in parts.items() if part.rows}


def state(sketch: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest, with every size and digest made right."""
    body = json.loads((sketch / "manifest.json").read_text())
    change(body)
    for file in body["files"]:
        if (sketch / file["name"]).exists():
            entry = manifest.FileEntry.of(file["name"], (sketch / file["name"]).read_bytes())
            file.update(size=entry.size, sha256=entry.sha256)
    body.pop("checksum")
    body["checksum"] = manifest._checksum(body)
    (sketch / "manifest.json").write_text(json.dumps(body))


def swapped(body: dict[str, Any], sketch: Path) -> None:
    """The content of two files, and how many keys they have."""
    one, other = (sketch / body["files"][i]["name"] for i in (0, 1))
    contents = one.read_bytes(), other.read_bytes()
    other.write_bytes(contents[0])
    one.write_bytes(contents[1])
    rows = body["heavy"]["files"]
    rows[0], rows[1] = rows[1], rows[0]


def doubled(body: dict[str, Any], sketch: Path) -> None:
    """One file twice."""
    first, second = (sketch / body["files"][i]["name"] for i in (0, 1))
    shutil.copy(first, second)
    rows = body["heavy"]["files"]
    body["heavy"]["rows"] += rows[0] - rows[1]
    rows[1] = rows[0]


def reordered(body: dict[str, Any], sketch: Path) -> None:
    body["files"][:2] = body["files"][1::-1]


def dropped(body: dict[str, Any], sketch: Path) -> None:
    body["heavy"]["rows"] -= body["heavy"]["files"].pop()
    del body["files"][len(body["heavy"]["files"])]


def halved(body: dict[str, Any], sketch: Path) -> None:
    """As many files as half of the power of two."""
    half = len(body["heavy"]["files"]) // 2
    body["heavy"]["files"] = body["heavy"]["files"][:half]
    body["heavy"]["rows"] = sum(body["heavy"]["files"])
    body["files"] = body["files"][:half] + body["files"][2 * half :]


def unstated(body: dict[str, Any], sketch: Path) -> None:
    del body["heavy"]["files"]


def miscounted(body: dict[str, Any], sketch: Path) -> None:
    body["heavy"]["files"][0] += 1


def alone(body: dict[str, Any], sketch: Path) -> None:
    body["heavy"]["files"] = [body["heavy"]["rows"]]


CHANGES = {
    swapped: "heavy-0000[01].bin: a fingerprint is one of another file",
    doubled: "heavy-00001.bin: a fingerprint is one of another file",
    halved: "a fingerprint is one of another file",
    reordered: "'files' must name heavy-00000.bin, heavy-00001.bin",
    dropped: "'heavy.files': a power of two",
    miscounted: "'heavy.files': a power of two",
    alone: "'heavy.files': a power of two",
    unstated: "'files' must name heavy.bin",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_files_that_do_not_belong_together_are_refused(sketch: Path, change: Callable[..., None]) -> None:
    state(sketch, lambda body: change(body, sketch))
    with pytest.raises(FormatError, match=CHANGES[change]) as caught:
        hg.Sketch.open(sketch).verify()
    assert "\n" not in str(caught.value)


def test_a_file_that_is_missing_is_named(sketch: Path) -> None:
    os.unlink(sketch / "heavy-00001.bin")
    with pytest.raises(FormatError, match=r"heavy-00001\.bin: the file is missing; copy the sketch again"):
        hg.Sketch.open(sketch)


def test_more_files_than_cells_are_refused(sketch: Path) -> None:
    def change(body: dict[str, Any]) -> None:
        body["heavy"]["files"] = [0] * (1 << 18) + [0] * ((1 << 18) - 1) + [body["heavy"]["rows"]]
        body["plan"]["domain_bits"], body["plan"]["top"]["domain_bits"] = 8, 8

    state(sketch, change)
    with pytest.raises(FormatError):
        hg.Sketch.open(sketch)


@pytest.mark.parametrize("name", SEVERAL)
def test_commands_read_several_files(name: str) -> None:
    path = str(HOME / f"{name}.sketch")
    rows = hg.Sketch.open(path).manifest.heavy_rows
    for arguments in (["verify"], ["inspect"], ["heavy", "--limit", "3"], ["query", "/page/0"]):
        done = CliRunner().invoke(cli, [arguments[0], path, *arguments[1:]])
        assert done.exit_code == 0, (arguments, done.output)
    shown = CliRunner().invoke(cli, ["inspect", path]).output
    assert f"{rows:,}" in shown
