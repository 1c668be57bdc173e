"""Releases of every job under a fixed key: their bytes, so that no change of the code changes them unseen.

python -m tests.pipelines.pinned DIR     prints the hashes as JSON

Sentences are left out (they may be corrected), and so is the checksum over them.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hushgram.pipelines.cli import cli

KEY = "5a" * 32
RELEASE = (
    "release: urls\ninput: {path: in/*.parquet, %skey: url}\n"
    "privacy: {epsilon: 1.0, delta: %s, max_contributions: %d, max_per_key: 2%s}\noutput: {path: out/%s}\n"
)
ONE_PER_KEY = RELEASE.replace("max_per_key: 2", "max_per_key: 1")
CONFIGS = {
    "pure": ("release", RELEASE % ("user: user, ", "0", 8, "", "pure")),
    "text": ("release", ONE_PER_KEY % ("", "1e-6", 1, "", "text")),
    "names": ("release", ONE_PER_KEY % ("user: user, ", "1e-6", 1, "", "names")),
    "paper": ("release", RELEASE % ("user: user, ", "0", 8, ", preset: paper", "paper")),
    "weighted": ("release", RELEASE % ("user: user, ", "1e-6", 8, "", "weighted")),
    "auto": ("release", RELEASE.replace("%d", "%s") % ("user: user, ", "0", "auto", "", "auto")),
    "public": ("release", RELEASE % ("user: user, ", "0", 8, ", domain: {public_keys: keys.txt}", "public")),
    "record": ("release", ONE_PER_KEY % ("", "0", 1, "", "record")),
    "sums": (
        "release",
        "release: ages\ninput: {path: in/*.parquet, user: user, key: url, value: age}\n"
        "privacy: {epsilon: 1.0, max_contributions: 800, max_value: 100, granularity: 12.5}\n"
        "output: {path: out/sums}\n",
    ),
    "metrics": (
        "metrics",
        "metrics: both\ninput: {path: in/*.parquet, user: user, key: url}\n"
        "privacy: {epsilon: 1.0, max_contributions: 8}\noutput: {path: out/metrics}\n"
        "each: {views: {}, ages: {value: age, max_contributions: 800, max_value: 100, granularity: 12.5,"
        " share: 0.7}}\n",
    ),
    "queries": (
        "sparse-vector",
        "sparse_vector: alerts\ninput: {path: in/*.parquet, user: user, key: url}\n"
        "stream:\n"
        '  - {id: one, key: "/1"}\n  - {id: many, prefix: "/"}\n  - {id: old, where: "age >= 40"}\n'
        "  - {id: young, column: age, between: [18, 29]}\n"
        "svt: {method: sparse-vector, threshold: 300, cutoff: 3, answers: numeric}\n"
        "privacy: {epsilon: 1.0, max_contributions: 8}\noutput: {path: out/queries}\n",
    ),
    "every": (
        "sparse-vector",
        "sparse_vector: alerts\ninput: {path: in/*.parquet, user: user, key: url}\n"
        'stream:\n  - {id: one, key: "/1"}\n  - {id: many, prefix: "/"}\n  - {id: old, where: "age >= 40"}\n'
        "svt: {method: histogram, threshold: 300}\n"
        "privacy: {epsilon: 1.0, delta: 1e-6, max_contributions: 8}\noutput: {path: out/every}\n",
    ),
    "clip": (
        "clip",
        "clip: ages\ninput: {path: in/*.parquet, user: user, column: age}\ngrid: {kind: exponential}\n"
        "privacy: {epsilon: 1.0, max_contributions: 2}\noutput: {path: out/clip}\n",
    ),
    "answer": (
        "answer",
        "answer: sums\ninput: {path: in/*.parquet, user: user, key: url}\ndomain: {keys: keys.txt}\n"
        'queries:\n  - {id: a, keys: ["/1", "/2"]}\n  - {id: b, prefix: "/1"}\n  - {id: all, all: true}\n'
        "pmw: {max_updates: 5}\nprivacy: {epsilon: 1.0, max_contributions: 8}\noutput: {path: out/answer}\n",
    ),
    "linear": (
        "randomized-response randomize",
        "randomized_response: survey\ninput: {path: in/*.parquet}\nsecrets:\n"
        "  smoker: {column: smokes}\n  rich: {column: age, at_least: 60}\n"
        "public: [city]\nprivacy: {epsilon: 2.0}\noutput: {path: out/linear}\n",
    ),
    "top": (
        "top",
        "top: pages\ninput: {path: in/*.parquet, user: user, key: url}\nkeys: keys.txt\ncount: 5\n"
        "privacy: {epsilon: 1.0, max_contributions: 8}\noutput: {path: out/top}\n",
    ),
}  # fmt: skip


def write_inputs(folder: Path) -> None:
    """The same records every time."""
    rng = np.random.default_rng(20261117)
    rows = 20_000
    url = np.minimum(rng.zipf(1.3, rows), 3000)
    table = pa.table(
        {
            "user": [f"u{i}" for i in rng.integers(0, 1500, rows)],
            "url": [f"/{i}" for i in url],
            "age": rng.integers(18, 90, rows),
            "smokes": rng.random(rows) < 0.25,
            "city": rng.choice(["Paris", "Rome"], rows),
        }
    )
    (folder / "in").mkdir()
    for part in range(2):
        pq.write_table(table.slice(part * 10_000, 10_000), folder / f"in/{part}.parquet")
    (folder / "keys.txt").write_text("".join(f"/{i}\n" for i in range(1, 60)))
    (folder / "key").write_text(KEY)


def run(folder: Path, name: str) -> dict[str, str]:
    """The hashes of one job's output, by file."""
    command, config = CONFIGS[name]
    (folder / f"{name}.yaml").write_text(config)
    os.environ["HUSHGRAM_RELEASE_KEY_FILE"] = str(folder / "key")
    before = os.getcwd()
    os.chdir(folder)
    try:
        cli.main(args=[*command.split(), f"{name}.yaml", "--quiet"], standalone_mode=False)
    finally:
        os.chdir(before)
        del os.environ["HUSHGRAM_RELEASE_KEY_FILE"]
    return dict(_hashes(folder / "out" / name))


def _hashes(path: Path) -> Iterator[tuple[str, str]]:
    files = [file for file in sorted(path.rglob("*")) if file.is_file()] if path.is_dir() else [path]
    for file in files:
        name = file.relative_to(path).as_posix() if path.is_dir() else "file"
        yield name, hashlib.sha256(_without_sentences(file.read_bytes())).hexdigest()


def _without_sentences(content: bytes) -> bytes:
    try:
        lines = [json.loads(content)]
    except ValueError:
        try:
            lines = [json.loads(line) for line in content.splitlines()]
        except ValueError:
            return content
    return json.dumps([_strip(line) for line in lines], sort_keys=True).encode()


def _strip(value: Any) -> Any:
    if isinstance(value, dict):
        if isinstance(value.get("guarantee"), str):
            value = {**value, "guarantee": ""}
        return {
            k: _strip(v) for k, v in value.items() if k not in ("sentence", "words", "checksum", "hushgram")
        }
    return [_strip(v) for v in value] if isinstance(value, list) else value


if __name__ == "__main__":
    home = Path(sys.argv[1])
    write_inputs(home)
    print(json.dumps({name: run(home, name) for name in CONFIGS}, indent=1))
