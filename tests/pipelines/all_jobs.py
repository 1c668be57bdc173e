"""One small config for each job over the same records, for tests that all jobs must pass alike."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner, Result

from hushgram.accounting import Budget
from hushgram.errors import HushgramError
from hushgram.ledger import Ledger
from hushgram.pipelines.cli import cli

LEDGER = "sqlite:///ledger.db"
TRACKED = f"dataset: people\nledger: {LEDGER}\n"
SOURCE = "input: {path: data.parquet, user: user, key: url}\nprivacy: {epsilon: 1, max_contributions: 2}\n"
#: job → (command, config, a column that it reads)
JOBS = {
    "release": (
        ["release"],
        f"release: run\n{SOURCE}sizes: {{records: 400, keys: 9}}\noutput: {{path: out/result}}\nshards: 1\n",
        "url",
    ),
    "metrics": (
        ["metrics"],
        f"metrics: run\n{SOURCE}each:\n  views: {{sizes: {{records: 400, keys: 9}}}}\n"
        "  years: {value: age, max_contributions: 200, max_value: 100, granularity: 10,"
        " sizes: {records: 9000, keys: 9}}\n"
        "output: {path: out/result}\nshards: 1\n",
        "age",
    ),
    "sparse-vector": (
        ["sparse-vector"],
        f"sparse_vector: run\n{SOURCE}stream: {{path: queries.jsonl}}\noutput: {{path: out/result}}\n"
        "svt: {threshold: 20, cutoff: 1}\n",
        "url",
    ),
    "clip": (
        ["clip"],
        "clip: run\ninput: {path: data.parquet, user: user, column: age}\noutput: {path: out/result}\n"
        "privacy: {epsilon: 1, max_contributions: 1}\n",
        "age",
    ),
    "answer": (
        ["answer"],
        f"answer: run\n{SOURCE}domain: {{keys: pages.txt}}\nqueries: [{{id: home, keys: ['/0']}}]\n"
        "pmw: {max_updates: 2}\noutput: {path: out/result}\n",
        "url",
    ),
    "randomized-response": (
        ["randomized-response", "randomize"],
        "randomized_response: run\ninput: {path: data.parquet}\nsecrets: {smoker: {column: smokes}}\n"
        "privacy: {epsilon: 1}\noutput: {path: out/result}\n",
        "smokes",
    ),
    "top": (
        ["top"],
        f"top: run\n{SOURCE}keys: pages.txt\ncount: 3\noutput: {{path: out/result}}\n",
        "url",
    ),
}  # fmt: skip


def table() -> pa.Table:
    """The records."""
    draws = np.random.default_rng(5)
    return pa.table(
        {
            "user": draws.integers(0, 100, 400),
            "url": [f"/{page}" for page in draws.integers(0, 9, 400)],
            "age": draws.integers(18, 90, 400),
            "smokes": draws.random(400) < 0.3,
        }
    )


def write_home(folder: Path, epsilon: str = "5") -> None:
    """Data, lists, queries, a config for each job, and a ledger with a budget of `epsilon`."""
    pq.write_table(table(), folder / "data.parquet")
    (folder / "pages.txt").write_text("".join(f"/{page}\n" for page in range(9)))
    (folder / "queries.jsonl").write_text(json.dumps({"id": "home", "key": "/0"}) + "\n")
    for name, (_, config, _) in JOBS.items():
        (folder / f"{name}.yaml").write_text(config)
        (folder / f"{name}-tracked.yaml").write_text(TRACKED + config)
    with Ledger.create(LEDGER) as ledger:
        ledger.add_dataset("people", Budget(epsilon))


def call(job: str, *arguments: str, config: str | None = None) -> Result:
    """`hushgram JOB CONFIG ARGUMENTS`; a mistake of the user is in `exception`, anything else is raised."""
    words = [*JOBS[job][0], config or f"{job}.yaml", *arguments]
    result = CliRunner().invoke(cli, words)
    if result.exception is not None and not isinstance(result.exception, HushgramError | SystemExit):
        raise result.exception
    return result


def exit_code(result: Result) -> int:
    """What the process would end with."""
    problem = result.exception
    return problem.exit_code if isinstance(problem, HushgramError) else result.exit_code
