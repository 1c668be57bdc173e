"""Mutants of sketches: whatever is changed, a reader refuses in one line and in time, or answers.

    python -m tests.core.sketch.mutants 20000     counts what happened, and shows what should not have

Plain mutants (a byte changed, a file cut or grown) keep their checksums, so that they must be refused or answer as
before. Repaired mutants are someone's who wants to fool the reader: hostile values anywhere in the manifest, in the
Parquet file, the index or the blocks, with every checksum made right again. They must be refused by a FormatError, or
answer (what a forger states is what the sketch says), and none may take long.
"""

from __future__ import annotations

import copy
import io
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import hushgram as hg
from hushgram.errors import FormatError
from hushgram.sketch import manifest as manifests
from tests.golden import make as golden

__all__ = ["SECONDS", "Bench", "answers", "main", "strange_heavy"]

#: What a mutant may take of a processor.
SECONDS = 1.0
ASKED = [*golden.WORDS[:3], "/never"]
HOSTILE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 63, 64, 65, 255, 1 << 31, 1 << 32, (1 << 32) + 64, 1 << 40, 1 << 53, 1 << 62,
    (1 << 63) - 1, 1 << 63, 1 << 64, -(1 << 63), 10**30, -(10**30), 0.5, -1.5, 1e308, float("inf"), float("nan"),
    "", "0", "1", "-1", "1/3", "1/0", "1e90", "1e-90", "1e999", "9" * 190, "0.0000001", "nan", "inf", "x", "\ud800",
    "../../etc/passwd", "heavy.bin", "heavy-00001.bin", "user", "record", "auto", "paper", "fingerprints", "threshold",
    "weights", "public", "laplace", "gaussian", "truncated_geometric", "alp-1", "buckets-1", "0" * 16, "f" * 16,
    "0" * 64, [], [0], [1 << 62], [64] * 70, [[]], {}, {"a": 1}, [None], "\0", "é" * 9,
]  # fmt: skip


def make(root: Path) -> list[Path]:
    """The sketches that are changed: every kind."""
    out = []
    for name in golden.EVERY:
        out.append(root / name)
        shutil.copytree(golden.HOME / f"{name}.sketch", out[-1])
    params = hg.ReleaseParams(epsilon="4", max_contributions=8, max_per_key=2)
    out.append(root / "public")
    hg.release_public(golden.USERS, golden.KEYS, golden.WORDS[:7], params, out[-1], release_key=golden.KEY)
    return out


def answers(path: Path) -> Any:
    """Everything that a reader does with a sketch."""
    sketch = hg.Sketch.open(path)
    found = [sketch.estimate(ASKED).to_pydict()]
    if sketch.plan.layout is not None:
        found.append(repr(sketch.total(ASKED[:3])))
        found.append(sketch.estimate(ASKED, estimator="unbiased", interval="credible").to_pydict())
        found.append(repr(sketch.total(ASKED[:3], estimator="unbiased")))
    found.append(sketch.heavy(all=True).to_pydict())
    found.append(sketch.guarantee.sentence())
    sketch.verify()
    return repr(found)


class Bench:
    """Makes mutants and reads them, in one directory."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.random = root, random.Random(seed)
        self.originals = make(root / "originals")
        self.right = {path: answers(path) for path in self.originals}
        self.seen: Counter[str] = Counter()
        self.slowest = 0.0
        self.sizes: Sequence[int] = (0, 1, 3, 1000, 200_000)  # rows of a strange list

    def run(self, count: int) -> Iterator[str]:
        """What should not have happened, for each mutant with which it did."""
        for number in range(count):
            original = self.random.choice(self.originals)
            work = self.root / "mutant"
            shutil.copytree(original, work)
            repaired = self.random.random() < 0.75
            told = self._repaired(work) if repaired else self._plain(work)
            problem = self._judge(work, original, repaired)
            if problem:
                yield f"mutant {number} of {original.name}: {told}: {problem}"
            shutil.rmtree(work)

    def _judge(self, work: Path, original: Path, repaired: bool) -> str:
        begun = time.process_time()
        try:
            found = answers(work)
            self.seen["answered"] += 1
            if not repaired and found != self.right[original]:
                return "answers differently"
        except FormatError as error:
            self.seen["refused"] += 1
            if "\n" in str(error) or len(str(error)) > 600:
                return f"message of {len(str(error))} characters"
        except BaseException as error:
            self.seen[type(error).__name__] += 1
            return f"{type(error).__name__}: {str(error)[:200]}"
        took = time.process_time() - begun
        self.slowest = max(self.slowest, took)
        return f"took {took:.1f} s" if took > SECONDS else ""

    # --- plain --------------------------------------------------------------------------------------------------

    def _plain(self, work: Path) -> str:
        file = self.random.choice(sorted(work.iterdir()))
        content = bytearray(file.read_bytes())
        kind = self.random.choice(("flip", "flip", "flip", "byte", "cut", "grow", "swap"))
        at = self.random.randrange(max(len(content), 1))
        if kind == "flip":
            content[at] ^= 1 << self.random.randrange(8)
        elif kind == "byte":
            content[at] = self.random.randrange(256)
        elif kind == "cut":
            del content[at:]
        elif kind == "grow":
            content += bytes(self.random.randrange(1, 50))
        else:
            other = self.random.choice(sorted(work.iterdir()))
            content = bytearray(other.read_bytes())
        file.write_bytes(content)
        return f"{kind} of {file.name} at {at}"

    # --- repaired -----------------------------------------------------------------------------------------------

    def _repaired(self, work: Path) -> str:
        change: Callable[[Path, dict[str, Any]], str] = self.random.choice(
            [self._field] * 8 + [self._bytes] * 3 + [self._parquet] * 2
        )
        body = json.loads((work / "manifest.json").read_text())
        told = change(work, body)
        if self.random.random() < 0.1:
            told += " and " + self._field(work, body)
        body.pop("checksum", None)
        try:
            body["checksum"] = manifests._checksum(body)
        except UnicodeEncodeError:  # a lone surrogate has no bytes: as a program would write it
            body["checksum"] = "0" * 64
        (work / "manifest.json").write_text(json.dumps(body))
        return told

    def _field(self, work: Path, body: dict[str, Any]) -> str:
        """A hostile value somewhere, or a field that is gone, doubled or moved."""
        path, parent, step = self._place(body)
        kind = self.random.choice(("put", "put", "put", "put", "drop", "near", "near", "repeat"))
        old = parent[step]
        if kind == "drop":
            del parent[step]
            return f"{path} dropped"
        if kind == "near" and isinstance(old, int) and not isinstance(old, bool):
            parent[step] = old + self.random.choice((-1, 1, -64, 64, old, -old, 8 * old, 1000 * old))
        elif kind == "repeat" and isinstance(old, list):
            parent[step] = old * self.random.choice((0, 2, 3))
        else:
            parent[step] = copy.deepcopy(self.random.choice(HOSTILE))
        return f"{path} = {str(parent[step])[:60]}"

    def _place(self, body: dict[str, Any]) -> tuple[str, Any, Any]:
        parent: Any = body
        path = ""
        while True:
            steps = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
            step = self.random.choice(steps)
            path += f".{step}"
            inner = parent[step]
            if not isinstance(inner, dict | list) or not inner or self.random.random() < 0.1:
                return path, parent, step
            parent = inner

    def _bytes(self, work: Path, body: dict[str, Any]) -> str:
        """Any other file, changed anywhere, with its new size and digest stated."""
        file = self.random.choice([path for path in sorted(work.iterdir()) if path.name != "manifest.json"])
        content = bytearray(file.read_bytes())
        for _ in range(self.random.choice((1, 1, 1, 2, 8))):
            at = self.random.randrange(len(content))
            content[at] = self.random.choice(
                (0, 1, 127, 128, 255, content[at] ^ (1 << self.random.randrange(8)))
            )
        if self.random.random() < 0.1:
            content = content[: self.random.randrange(len(content) + 1)]
        self._state(work, body, file.name, bytes(content))
        return f"{file.name} changed"

    def _parquet(self, work: Path, body: dict[str, Any]) -> str:
        """A valid Parquet file that hushgram would not write."""
        rows, content, kind = strange_heavy(self.random, self.sizes)
        name, heavy = body["files"][0]["name"], body["heavy"]
        heavy["rows"] += rows - heavy.get("files", [heavy["rows"]])[0]
        if "files" in heavy:
            heavy["files"][0] = rows
        self._state(work, body, name, content)
        return f"{name}: Parquet, {kind} of {rows} rows"

    def _state(self, work: Path, body: dict[str, Any], name: str, content: bytes) -> None:
        (work / name).write_bytes(content)
        entry = manifests.FileEntry.of(name, content)
        for stated in body["files"]:
            if stated["name"] == name:
                stated.update(size=entry.size, sha256=entry.sha256)


def strange_heavy(draws: random.Random, sizes: Sequence[int]) -> tuple[int, bytes, str]:
    """Rows, bytes and kind of a valid Parquet file that hushgram would not write."""
    rows = draws.choice(sizes)
    kind = draws.choice(("constant", "types", "nulls", "names", "unsorted", "dictionary", "long"))
    prints, values = np.arange(rows, dtype=np.uint64), np.full(rows, 10**6)
    columns: dict[str, Any] = {"fingerprint": pa.array(prints), "value": pa.array(values)}
    columns["key"] = pa.array([b"k%d" % i for i in range(rows)], pa.binary())
    if kind == "types":
        columns["value"] = pa.array(values.astype(np.float64))
    elif kind == "nulls" and rows:
        columns["value"] = pa.array([None] * rows, pa.int64())
    elif kind == "names":
        columns = {"fingerprint": columns["value"], "fingerprint ": columns["key"]}
    elif kind == "unsorted":
        columns["fingerprint"] = pa.array(prints[::-1])
    elif kind == "long":
        columns["key"] = pa.array([b"x" * 10_000] * rows if rows < 5000 else [b"x"] * rows, pa.binary())
    if draws.random() < 0.5:
        columns.pop("key", None)
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, use_dictionary=kind == "dictionary", compression="zstd")
    return rows, sink.getvalue(), kind


def main(count: int, seed: int = 1) -> int:
    """Run so many mutants; the number of those that went wrong."""
    wrong: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), seed)
        for problem in bench.run(count):
            wrong[problem.rpartition(": ")[2][:60]] += 1
            print(problem, flush=True)
        print(dict(bench.seen), f"slowest {bench.slowest:.2f} s", f"{sum(wrong.values())} wrong")
    return sum(wrong.values())


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])) > 0)
