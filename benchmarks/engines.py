"""The release job on engines, beside the local runner on the same machine: `python -m benchmarks.engines`.

A Flink cluster of one JobManager and two TaskManagers is started on this machine (two cores are what it is meant
for), then both run the same release of the same files in turns. Every run is a process of its own, from the wheel.
The cluster is warm: it runs before the clock starts, has run three jobs, which is when Java has compiled most of what a
job needs, and its worker pools have a Python process ready, which they start between jobs. CPU seconds are those of all
processes while the job runs: launcher, job server, JobManager, TaskManagers and Python workers. The bar is on them:
wall times need a machine that does nothing else.

    python -m benchmarks.engines --quick      # 1 M rows
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.bars import Report
from benchmarks.pipeline import DATA, make_data
from tools.engines.flink import FlinkCluster, JobServer
from tools.engines.prism import Prism
from tools.engines.processes import EngineError
from tools.engines.provision import Engines, EnginesUnavailable, provision
from tools.engines.workers import WorkerPools

__all__ = ["RELEASE", "main", "release"]

JOB_SECONDS = 1200.0
SHARDS = 128  # on Flink: by hash, the few shards of an input of this size are unevenly spread over two TaskManagers
CACHE_SECONDS = 5  # how long Python workers are kept for the next stage
REST_SECONDS = 15  # between runs: workers of the last job end, and the pools start others
WARM_JOBS = 3
# Flink's defaults; the clusters of tests notice a dead TaskManager sooner.
HEARTBEAT = {"heartbeat.interval": "10000", "heartbeat.timeout": "50000"}
BAR = 1.6  # times the local runner
BAR_ROWS = 10_000_000  # below it, what is measured is the start of the workers
KEY = bytes(range(32)).hex()

RELEASE = """
import hashlib, json, pathlib, sys, time
from hushgram import ReleaseKey, ReleaseParams
from hushgram.inputs import Source
from hushgram.pipelines.jobs.release import run_release
from hushgram.pipelines.run.beam_runners import pipeline_options
from hushgram.transforms.read_records import plan_records
began = time.time()
plan = plan_records([sys.argv[1]], Source(ids=("user_id", "url")))
params = ReleaseParams(epsilon="1", max_contributions=8)
run_release(params, plan, user="user_id", key="url", path=sys.argv[2], release_key=ReleaseKey.from_hex(sys.argv[3]),
            shards=int(sys.argv[4]) or None, options=pipeline_options(sys.argv[5:]))
seconds = time.time() - began
files = sorted(pathlib.Path(sys.argv[2]).iterdir())
digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
print(json.dumps({"seconds": seconds, "digest": digest}))
"""


def release(
    engines: Engines, inputs: Path, beam: list[str], shards: int = 0, parts: Sequence[Any] = ()
) -> dict[str, Any]:
    """One release of these files by the wheel's interpreter: seconds of the job, CPU seconds (also of ``parts`` of an
    engine), and a digest of the sketch."""
    time.sleep(REST_SECONDS)
    before = _cpu_seconds(parts)
    with tempfile.TemporaryDirectory() as folder:
        arguments = [f"{inputs}/*.parquet", f"{folder}/out.sketch", KEY, str(shards), *beam]
        done = subprocess.run(
            [str(engines.python), "-W", "ignore", "-c", RELEASE, *arguments],
            capture_output=True, text=True, check=False, cwd=folder, timeout=JOB_SECONDS,
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"release {' '.join(beam)} …\n{done.stderr[-4000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return {**figures, "cpu": _cpu_seconds(parts) - before}


def _cpu_seconds(parts: Sequence[Any]) -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return float(ended.ru_utime + ended.ru_stime + sum(part.cpu_seconds() for part in parts))


def compare(report: Report, engines: Engines, rows: int, tries: int, work: Path) -> None:
    """Local runner, Flink with two slots and Prism, in turns."""
    inputs = make_data(rows)
    pools = WorkerPools(engines.python, work)
    cluster = FlinkCluster(engines, work, slots=1, settings=HEARTBEAT)
    server = JobServer(engines, cluster, work)
    prism = Prism(engines, work) if engines.prism else None
    flink = ["--runner=FlinkRunner", f"--flink_master={cluster.address}", "--parallelism=2"]
    flink += [*server.options, *pools.options, f"--environment_cache_millis={CACHE_SECONDS * 1000}"]
    runs: dict[str, list[dict[str, Any]]] = {"local": [], "Flink": [], "Prism": []}
    parts: list[Any] = [server, cluster, pools]
    try:
        first = [release(engines, inputs, flink, SHARDS, parts) for _ in range(WARM_JOBS)]
        for _ in range(tries):
            runs["local"].append(release(engines, inputs, []))
            runs["Flink"].append(release(engines, inputs, flink, SHARDS, parts))
        if prism is not None:
            runs["Prism"].append(release(engines, inputs, [*prism.options, *pools.local_options]))
    finally:
        for part in [*parts, *([prism] if prism else [])]:
            part.stop()
    report.note(f"Flink, first jobs of the cluster: {rows:,} rows, s (CPU s)", _figures(first))
    for name, done in runs.items():
        if done:
            told = _figures(done) if name != "Prism" else f"{done[0]['seconds']:.1f}"
            report.note(f"{name}: {rows:,} rows, s{' (CPU s)' if name != 'Prism' else ''}", told)
    best = {
        what: min(run[what] for run in runs["Flink"]) / min(run[what] for run in runs["local"])
        for what in ("seconds", "cpu")
    }
    told = "Flink, two TaskManagers: CPU seconds of all processes, times the local runner's"
    if rows >= BAR_ROWS:
        report.bar(told, best["cpu"], BAR, at_most=True, unit="x")
    else:
        report.note(f"{told} (no bar at this size)", best["cpu"])
    report.note("the same by wall time (more processes get more of a busy machine)", best["seconds"])
    digests = {run["digest"] for done in (*runs.values(), first) for run in done}
    report.bar("different sketches among all of these runs", len(digests), 1, at_most=True)


def _figures(runs: list[dict[str, Any]]) -> str:
    return ", ".join(f"{run['seconds']:.1f} ({run['cpu']:.1f})" for run in runs)


def main(quick: bool) -> int:
    """All bars; with ``quick`` on a million rows."""
    report = Report("The release job on engines")
    DATA.mkdir(parents=True, exist_ok=True)
    try:
        engines = provision()
        with tempfile.TemporaryDirectory(prefix="hushgram-engines-") as work:
            compare(report, engines, 1_000_000 if quick else BAR_ROWS, 1 if quick else 3, Path(work))
    except (EnginesUnavailable, EngineError) as problem:
        report.note(f"not measured: {problem}")
        return 1
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main("--quick" in sys.argv[1:]))
