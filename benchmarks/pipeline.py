"""The release job end to end, beside pyarrow, plain Beam and PipelineDP: `python -m benchmarks.pipeline`.

Data are generated once into .build/bench (Zipf(1.05) over two million URLs, ten records a user). Every run is a process
of its own. Times are wall times, the least of some runs that take turns; CPU seconds stand beside them, for machines
that are busy with other things. PipelineDP gets an environment of its own in .build/peers, made at the first run.

    python -m benchmarks.pipeline --quick     # 1 M rows at most, no bar on growth
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.bars import Report

ROOT = Path(__file__).parents[1]
DATA = ROOT / ".build" / "bench"
PEERS = ROOT / ".build" / "peers"
URLS = 2_000_000
PEER_ROWS = 200_000
_CHUNK = 5_000_000

RELEASE = """
import json, resource, sys, time
began = time.time()
from hushgram import ReleaseParams
from hushgram.inputs import Source
from hushgram.pipelines.jobs.release import run_release
from hushgram.transforms.read_records import plan_records
loaded, cpu = time.time(), time.process_time()
plan = plan_records([sys.argv[1]], Source(ids=("user_id", "url")))
stated = {"epsilon": "1", "delta": sys.argv[3], "max_contributions": 8, "max_per_key": 1, **json.loads(sys.argv[4])}
params = ReleaseParams.from_dict(stated)
run_release(params, plan, user="user_id", key="url", path=sys.argv[2])
print(json.dumps({"seconds": time.time() - loaded, "cpu": time.process_time() - cpu, "whole": time.time() - began,
                  "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}))
"""
GROUP = """
import json, sys, time
import pyarrow.parquet as pq
began, cpu = time.time(), time.process_time()
pq.read_table(sys.argv[1]).group_by("url").aggregate([([], "count_all")])
print(json.dumps({"seconds": time.time() - began, "cpu": time.process_time() - cpu}))
"""
PIPELINE_DP = """
import json, logging, sys, time
import apache_beam as beam, pipeline_dp, pyarrow.parquet as pq
logging.disable(logging.CRITICAL)
table = pq.read_table(sys.argv[1]).slice(0, int(sys.argv[2]))
rows = list(zip(table["user_id"].to_pylist(), table["url"].to_pylist()))
def count(records, backend):
    budget = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-6)
    params = pipeline_dp.AggregateParams(
        noise_kind=pipeline_dp.NoiseKind.LAPLACE, metrics=[pipeline_dp.Metrics.COUNT],
        max_partitions_contributed=8, max_contributions_per_partition=1)
    extract = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0], partition_extractor=lambda row: row[1], value_extractor=lambda row: 0)
    counts = pipeline_dp.DPEngine(budget, backend).aggregate(records, params, extract)
    budget.compute_budgets()
    return counts
began, cpu = time.time(), time.process_time()
if sys.argv[3] == "local":
    for _ in count(rows, pipeline_dp.LocalBackend()):
        pass
else:
    with beam.Pipeline(runner="FnApiRunner") as pipeline:  # what DirectRunner falls back to, without a download
        counts = count(pipeline | beam.Create(rows), pipeline_dp.BeamBackend())
        counts | beam.combiners.Count.Globally() | beam.Map(lambda count: None)
print(json.dumps({"seconds": time.time() - began, "cpu": time.process_time() - cpu}))
"""
PLAIN_BEAM = """
import json, logging, sys, time
import apache_beam as beam, pyarrow.parquet as pq
logging.disable(logging.CRITICAL)
urls = pq.read_table(sys.argv[1]).slice(0, int(sys.argv[2]))["url"].to_pylist()
began, cpu = time.time(), time.process_time()
with beam.Pipeline(runner="FnApiRunner") as pipeline:  # counts without privacy, users or a bound
    counts = pipeline | beam.Create(urls) | beam.combiners.Count.PerElement()
    counts | beam.combiners.Count.Globally() | beam.Map(lambda count: None)
print(json.dumps({"seconds": time.time() - began, "cpu": time.process_time() - cpu}))
"""


def make_data(rows: int) -> Path:
    """Parquet files with this many records, in files of five million."""
    folder = DATA / f"zipf-{rows}"
    if folder.exists():
        return folder
    work = Path(tempfile.mkdtemp(dir=DATA.parent if DATA.parent.exists() else None))
    share = np.cumsum(np.arange(1, URLS + 1) ** -1.05)
    draw = np.random.default_rng(7)
    for number, start in enumerate(range(0, rows, _CHUNK)):
        size = min(_CHUNK, rows - start)
        rank = np.searchsorted(share, draw.random(size) * share[-1])
        url = pc.binary_join_element_wise("https://example.org/page/", pa.array(rank).cast(pa.string()), "")
        table = pa.table({"user_id": draw.integers(0, max(rows // 10, 1), size), "url": url})
        pq.write_table(table, work / f"{number:03}.parquet", row_group_size=1 << 20)
    DATA.mkdir(parents=True, exist_ok=True)
    shutil.move(work, folder)
    return folder


def measure(script: str, *arguments: Any, python: str | Path = sys.executable) -> dict[str, float]:
    """Run a script of its own process; the last line that it prints is its figures."""
    command = [str(python), "-W", "ignore", "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=DATA)
    if done.returncode:
        raise SystemExit(f"{script.splitlines()[1]} …\n{done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def release(inputs: Path, delta: str = "0", **params: str) -> dict[str, float]:
    """One release of these files."""
    with tempfile.TemporaryDirectory() as folder:
        return measure(RELEASE, f"{inputs}/*.parquet", f"{folder}/out.sketch", delta, json.dumps(params))


def least(*runs: dict[str, float]) -> dict[str, float]:
    """Each figure at its least."""
    return {name: min(run[name] for run in runs) for name in runs[0]}


def against_pyarrow(report: Report, rows: int, tries: int) -> dict[str, float]:
    """Ours and pyarrow in turns on the same files."""
    folder = make_data(rows)
    pairs = [(measure(GROUP, folder), release(folder)) for _ in range(tries)]
    floor, ours = least(*(pair[0] for pair in pairs)), least(*(pair[1] for pair in pairs))
    best = min(mine["seconds"] / other["seconds"] for other, mine in pairs)
    report.note(
        f"pyarrow reads and groups {rows:,} rows, s (CPU s)", f"{floor['seconds']:.2f} ({floor['cpu']:.2f})"
    )
    report.note(f"release of {rows:,} rows, s (CPU s)", f"{ours['seconds']:.2f} ({ours['cpu']:.2f})")
    report.more("floor", rows / floor["seconds"])
    report.bar("release: times the wall time of pyarrow read + group_by", best, 5, at_most=True, unit="x")
    report.bar(f"peak memory at {rows:,} rows", ours["memory"], 3, at_most=True, unit="GiB")
    return ours


def against_beam(report: Report, rows: int, ours: dict[str, float]) -> None:
    """Compare rows per second with PipelineDP's COUNT, on Beam and on its local backend, and a plain count on Beam."""
    peers = {"plain Beam, Count.PerElement (no privacy)": (PLAIN_BEAM, sys.executable, "beam")}
    python = peer_python()
    if python is None:
        report.note("PipelineDP cannot be installed here: not measured")
    else:
        peers["PipelineDP COUNT on Beam"] = PIPELINE_DP, python, "beam"
        peers["PipelineDP COUNT, its local backend"] = PIPELINE_DP, python, "local"
    report.note(f"release of {rows:,} rows, rows/s", f"{rows / ours['seconds']:,.0f}")
    rates = {f"hushgram, {rows // 1_000_000} M rows": rows / ours["seconds"]}
    for name, (script, interpreter, backend) in peers.items():
        theirs = measure(script, make_data(1_000_000), PEER_ROWS, backend, python=interpreter)
        rates[name] = PEER_ROWS / theirs["seconds"]
        report.note(f"{name} on {PEER_ROWS:,} rows, rows/s", f"{rates[name]:,.0f}")
        times, busy = rows / ours["seconds"] / rates[name], (rows / ours["cpu"]) / (PEER_ROWS / theirs["cpu"])
        if name == "PipelineDP COUNT on Beam":
            report.bar("release: times the rows/s of PipelineDP on Beam", times, 100, unit="x")
            report.note("the same by CPU seconds", f"{busy:,.0f} x")
        else:
            report.note(
                f"release: times the rows/s of {name}; by CPU seconds", f"{times:,.0f} x; {busy:,.0f} x"
            )
    report.more("rates", rates)


def peer_python(name: str = "pipeline-dp", *wanted: str) -> Path | None:
    """The interpreter of the environment of a peer, with PipelineDP or the packages that are ``wanted``."""
    folder = PEERS / name
    python = Path(os.environ.get(f"{name.upper().replace('-', '_')}_PYTHON", folder / "bin" / "python"))
    if python.exists():
        return python
    print(f"installing {name} into .build/peers (once) ...", flush=True)
    made = subprocess.run([sys.executable, "-m", "venv", folder], check=False).returncode == 0
    wanted = wanted or ("pipeline-dp==0.3.1", "apache-beam", "pyarrow")
    install = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", *wanted]
    if made and subprocess.run(install, check=False).returncode == 0:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    return None


def growth(report: Report, tries: int) -> None:
    """1 M, 10 M and 50 M rows in turns, as many tries of each: seconds a row may grow by 15 %."""
    sizes = (1_000_000, 10_000_000, 50_000_000)
    rounds = [[release(make_data(rows)) for rows in sizes] for _ in range(tries)]
    small, middle, large = (least(*runs) for runs in zip(*rounds, strict=True))
    shown = " / ".join(f"{run['seconds']:.2f}" for run in (small, middle, large))
    report.note(f"release of 1 M / 10 M / 50 M rows, s, least of {tries}", shown)
    for what, few, many, times in (("10 M rows: time over 10 x that of 1 M", small, middle, 10),
                                   ("50 M rows: time over 5 x that of 10 M", middle, large, 5)):  # fmt: skip
        report.bar(what, many["seconds"] / few["seconds"] / times, 1.15, at_most=True)
        report.note("the same by CPU seconds", f"{many['cpu'] / few['cpu'] / times:.2f}")
    each = ", ".join(f"{run[2]['seconds'] / run[1]['seconds'] / 5:.2f}" for run in rounds)
    report.note("50 M over 5 x 10 M, each round by itself", each)
    report.note("peak memory at 50 M rows, GiB", large["memory"])


def small(report: Report) -> None:
    """A thousand rows, with all imports."""
    began = time.monotonic()
    run = release(make_data(1_000))
    report.bar(
        "1,000 rows, from start to end of the process", time.monotonic() - began, 10, at_most=True, unit="s"
    )
    report.note("the job alone, CPU s", run["cpu"])


def main(quick: bool) -> int:
    """All bars; with ``quick`` on a million rows."""
    report = Report("The release job, end to end")
    DATA.mkdir(parents=True, exist_ok=True)
    rows, tries = (1_000_000, 1) if quick else (10_000_000, 2)
    small(report)
    ours = against_pyarrow(report, rows, tries)
    against_beam(report, rows, ours)
    if not quick:
        growth(report, tries)
    texts = release(make_data(rows), "1e-6")
    report.note(f"release of {rows:,} rows with key texts (delta 1e-6), s (CPU s)",
                f"{texts['seconds']:.2f} ({texts['cpu']:.2f})")  # fmt: skip
    report.note("the same, peak memory, GiB", texts["memory"])
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main("--quick" in sys.argv[1:]))
