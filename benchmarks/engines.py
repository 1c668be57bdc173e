"""The release job on engines, beside the local runner on the same machine: `python -m benchmarks.engines`.

A Flink cluster of one JobManager and two TaskManagers is started on this machine (two cores are what it is meant
for), then both run the same release of the same files in turns. Every run is a process of its own, from the wheel.
The cluster runs before the clock starts, as a cluster does; its Python workers start inside the measured time.

    python -m benchmarks.engines --quick      # 1 M rows
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.bars import Report
from benchmarks.pipeline import DATA, make_data
from tools.engines.flink import FlinkCluster, JobServer
from tools.engines.prism import Prism
from tools.engines.processes import EngineError
from tools.engines.provision import Engines, EnginesUnavailable, provision
from tools.engines.workers import WorkerPools

__all__ = ["RELEASE", "main", "release"]

JOB_SECONDS = 1200.0
BAR_ROWS = 10_000_000  # below it, what is measured is the start of the workers
KEY = bytes(range(32)).hex()

RELEASE = """
import hashlib, json, pathlib, sys, time
from hushgram import ReleaseKey, ReleaseParams
from hushgram.inputs import Source
from hushgram.pipelines.jobs.release import run_release
from hushgram.pipelines.run.beam_runners import pipeline_options
from hushgram.transforms.read_records import plan_records
began, cpu = time.time(), time.process_time()
plan = plan_records([sys.argv[1]], Source(ids=("user_id", "url")))
params = ReleaseParams(epsilon="1", max_contributions=8)
run_release(params, plan, user="user_id", key="url", path=sys.argv[2], release_key=ReleaseKey.from_hex(sys.argv[3]),
            options=pipeline_options(sys.argv[4:]))
seconds, cpu = time.time() - began, time.process_time() - cpu
files = sorted(pathlib.Path(sys.argv[2]).iterdir())
digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
print(json.dumps({"seconds": seconds, "cpu": cpu, "digest": digest}))
"""


def release(engines: Engines, inputs: Path, beam: list[str]) -> dict[str, float | str]:
    """One release of these files by the wheel's interpreter: seconds of the job, and a digest of the sketch."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [f"{inputs}/*.parquet", f"{folder}/out.sketch", KEY, *beam]
        done = subprocess.run(
            [str(engines.python), "-W", "ignore", "-c", RELEASE, *arguments],
            capture_output=True, text=True, check=False, cwd=folder, timeout=JOB_SECONDS,
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"release {' '.join(beam)} …\n{done.stderr[-4000:]}")
    figures: dict[str, float | str] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def compare(report: Report, engines: Engines, rows: int, tries: int, work: Path) -> None:
    """Local runner, Flink with two slots and Prism, in turns."""
    inputs = make_data(rows)
    pools = WorkerPools(engines.python, work)
    cluster = FlinkCluster(engines, work, slots=1)
    server = JobServer(engines, cluster, work)
    prism = Prism(engines, work) if engines.prism else None
    flink = ["--runner=FlinkRunner", f"--flink_master={cluster.address}", "--parallelism=2"]
    flink += [*server.options, *pools.options, "--environment_cache_millis=10000"]
    runs: dict[str, list[dict[str, float | str]]] = {"local": [], "Flink": [], "Prism": []}
    try:
        for _ in range(tries):
            runs["local"].append(release(engines, inputs, []))
            runs["Flink"].append(release(engines, inputs, flink))
        if prism is not None:
            runs["Prism"].append(release(engines, inputs, [*prism.options, *pools.local_options]))
    finally:
        for part in (server, cluster, pools, *([prism] if prism else [])):
            part.stop()
    for name, done in runs.items():
        if done:
            report.note(f"{name}: {rows:,} rows, s", ", ".join(f"{run['seconds']:.1f}" for run in done))
    pairs = zip(runs["local"], runs["Flink"], strict=True)
    best = min(float(there["seconds"]) / float(here["seconds"]) for here, there in pairs)
    if rows >= BAR_ROWS:
        report.bar("Flink, two TaskManagers: times the local runner", best, 3, at_most=True, unit="x")
    else:
        report.note("Flink, two TaskManagers: times the local runner (no bar at this size)", best)
    digests = {run["digest"] for done in runs.values() for run in done}
    report.bar("different sketches among all of these runs", len(digests), 1, at_most=True)


def main(quick: bool) -> int:
    """All bars; with ``quick`` on a million rows."""
    report = Report("The release job on engines")
    DATA.mkdir(parents=True, exist_ok=True)
    try:
        engines = provision()
        with tempfile.TemporaryDirectory(prefix="hushgram-engines-") as work:
            compare(report, engines, 1_000_000 if quick else BAR_ROWS, 1 if quick else 2, Path(work))
    except (EnginesUnavailable, EngineError) as problem:
        report.note(f"not measured: {problem}")
        return 1
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main("--quick" in sys.argv[1:]))
