"""Jobs as a user runs them, with the command and the interpreter of the wheel, outside the repository."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tools.engines.provision import Engines

__all__ = ["EPSILON", "JOB_SECONDS", "KEY", "Bench", "contents", "make_data"]

KEY = bytes(range(7, 39)).hex()  # the release key of every job here
EPSILON = "2"
# Far more than a job takes on a busy machine, also where Beam waits three minutes for a worker.
JOB_SECONDS = 600.0
USERS, ROWS, FILES = 1_500, 24_000, 4


@dataclass(frozen=True)
class Bench:
    """Input, key file and configs in one directory; runs commands from the wheel's environment."""

    engines: Engines
    root: Path

    @property
    def env(self) -> dict[str, str]:
        """A clean environment: no PYTHONPATH, and the release key by the name of its file."""
        return {
            "PATH": f"{self.engines.bin}:{os.environ.get('PATH', '')}",
            "HOME": str(self.root),
            "LANG": "C.UTF-8",
            "HUSHGRAM_RELEASE_KEY_FILE": str(self.root / "key"),
        }

    def command(self, *arguments: str) -> list[str]:
        return [str(self.engines.hushgram), *arguments]

    def script(self, path: Path, *arguments: str) -> list[str]:
        return [str(self.engines.python), str(path), *arguments]

    def start(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as sink:
            return subprocess.Popen(
                list(command), stdout=sink, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                cwd=self.root, env=self.env, start_new_session=True,
            )  # fmt: skip

    def run(self, command: Sequence[str], seconds: float = JOB_SECONDS) -> str:
        """Runs to the end and returns what was printed; a failure shows it."""
        done = subprocess.run(
            list(command), capture_output=True, text=True, timeout=seconds, cwd=self.root, env=self.env,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, (
            f"{' '.join(command[:4])} …\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
        )
        return done.stdout + done.stderr

    def release(
        self, name: str, beam: Sequence[str] = (), settings: dict[str, str] | None = None
    ) -> dict[str, bytes]:
        """`hushgram release CONFIG --set … -- BEAM…`; the files of the sketch."""
        target = self.root / f"{name}.sketch"
        every = {"output.path": str(target), **(settings or {})}
        sets = [part for field, value in every.items() for part in ("--set", f"{field}={value}")]
        self.run(self.command("release", "release.yaml", *sets, "--", *beam))
        return contents(target)

    def queries(self, name: str, beam: Sequence[str] = ()) -> bytes:
        """`hushgram sparse-vector CONFIG -- BEAM…`; the answers."""
        target = self.root / f"{name}.jsonl"
        setting = f"output.path={target}"
        self.run(self.command("sparse-vector", "queries.yaml", "--set", setting, "--", *beam))
        return target.read_bytes()


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, by name: what must be equal is all of it, names included."""
    return {
        str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()
    }


def make_data(engines: Engines, root: Path) -> Bench:
    """Zipf page views in a few Parquet files, a key file, and one config for each job."""
    (root / "data").mkdir(parents=True)
    draw = np.random.default_rng(20)
    for i in range(FILES):
        users = draw.integers(0, USERS, ROWS // FILES)
        pages = np.minimum(draw.zipf(1.3, ROWS // FILES), 50_000)
        table = pa.table({"user": [f"u{u}" for u in users], "url": [f"https://e.org/{p}" for p in pages]})
        pq.write_table(table, root / "data" / f"part-{i}.parquet")
    (root / "key").write_text(KEY)
    (root / "key").chmod(0o600)
    source = {"path": str(root / "data" / "*.parquet"), "user": "user", "key": "url"}
    privacy = {"epsilon": float(EPSILON), "delta": 0, "max_contributions": 6, "max_per_key": 2}
    release = {"release": "pages", "input": source, "privacy": privacy, "output": {"path": "unset"}}
    stream = [{"id": f"q{i}", "key": f"https://e.org/{i}"} for i in range(1, 40)]
    queries = {
        "sparse_vector": "alerts", "input": source, "privacy": privacy, "output": {"path": "unset"},
        "stream": [{"id": "all", "prefix": "https://e.org/"}, *stream],
        "svt": {"threshold": 60, "cutoff": 8, "answers": "gap"},
    }  # fmt: skip
    # JSON is YAML.
    (root / "release.yaml").write_text(json.dumps(release))
    (root / "queries.yaml").write_text(json.dumps(queries))
    return Bench(engines, root)
