"""The doors of a sketch, as someone finds them who makes every checksum right again."""

from __future__ import annotations

import functools
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np

import hushgram as hg
from hushgram.sketch.heavy import read_heavy
from hushgram.sketch.manifest import Manifest
from tests.core.sketch.mutants import Bench, answers, strange_heavy
from tests.fuzz.mutations import Try, mutated

__all__ = ["SKETCH_DOORS"]


@functools.cache
def _bench(folder: Path) -> Bench:
    return Bench(folder, seed=0)


@functools.cache
def _contents(original: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in original.iterdir()}


@functools.cache
def _opened(original: Path) -> hg.Sketch:
    return hg.Sketch.open(original)


def _copied(original: Path, root: Path) -> Path:
    """A copy of a sketch; of an earlier copy, the files that were changed are written anew."""
    work = root / original.name
    work.mkdir(parents=True, exist_ok=True)
    for name, content in _contents(original).items():
        path = work / name
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
    return work


def manifest(draws: random.Random, folder: Path) -> None:
    """Manifests with a repaired checksum."""
    original = draws.choice(_bench(folder).originals)
    content = mutated(draws, _contents(original)["manifest.json"])
    try:
        body = json.loads(content)
        body.pop("checksum", None)
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        body["checksum"] = hashlib.sha256(text.encode()).hexdigest()
        content = json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, AttributeError, UnicodeEncodeError, RecursionError):
        pass
    Manifest.from_bytes(content, "manifest.json")


def heavy(draws: random.Random, folder: Path) -> None:
    """Lists of heavy keys: damaged bytes, and now and then valid Parquet that hushgram would not write."""
    original = draws.choice(_bench(folder).originals)
    stated = _opened(original)._storage.manifest
    files = len(stated.list_rows)
    every = stated.list_rows + stated.cell_rows
    number = draws.randrange(len(every))
    name = stated.files[number].name
    rows, content = every[number], _contents(original)[name]
    if draws.random() < 0.05:
        rows, content, _ = strange_heavy(draws, (0, 1, 3, 1000))
    if draws.random() < 0.9:
        content = mutated(draws, content)
    read_heavy(content, stated.plan, rows, name, number % files, files)


def blocks(draws: random.Random, folder: Path) -> None:
    """Blocks of an encoding: any bytes, looked up."""
    sketches = [_opened(path) for path in _bench(folder).originals]
    sketch = draws.choice([sketch for sketch in sketches if sketch.plan.layout is not None])
    layout, storage = sketch.plan.layout, sketch._storage
    assert layout is not None
    content = storage.block(draws.randrange(layout.blocks)).tobytes()
    if layout.block_lengths() is None:  # their length is the block's own affair
        content = mutated(draws, content)
    else:  # and here the reader's, which compares it
        content = draws.randbytes(len(content))
    read = np.frombuffer(content, np.uint8)
    layout.block_sums(0, read)
    if layout.blocks == 1:
        layout.look_up(np.array([draws.getrandbits(64)], np.uint64), storage.manifest.seeds, lambda _: read)


def sketch(draws: random.Random, folder: Path) -> None:
    """Whole sketches: a hostile value anywhere. All bytes are read; one of two hundred is also decoded."""
    bench = _bench(folder)
    original = draws.choice(bench.originals)
    work = _copied(original, folder / "work")
    bench.random, bench.sizes = draws, (0, 1, 3, 1000)
    bench._repaired(work)
    if draws.random() < 0.005:
        answers(work)
        return
    found: Any = hg.Sketch.open(work)
    found.guarantee.sentence()
    found.verify()


SKETCH_DOORS: dict[str, Try] = {
    "sketch manifest": manifest,
    "sketch heavy": heavy,
    "sketch blocks": blocks,
    "sketch": sketch,
}
