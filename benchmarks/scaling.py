"""Measure bytes sent, memory and CPU time of the release job, as formulas of its input: `python -m benchmarks.scaling`.

Runs at 1 M and 10 M rows (with --full also 100 M) on the local runner with everything sent through the coders, as
between machines; prints bytes and CPU seconds of each stage, and the constants that docs/scaling.md uses. There are no
bars: the figures are of this machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.bars import Report
from benchmarks.pipeline import DATA, make_data

__all__ = ["main"]

_IN_MEMORY = 20_000_000

RUN = """
import json, logging, resource, sys, time, weakref
import apache_beam as beam
from hushgram import ReleaseKey, ReleaseParams
from hushgram.inputs import Source
from hushgram.pipelines.run import progress
from hushgram.pipelines.run.beam_runners import new_pipeline, pipeline_options
from hushgram.transforms.shuffle import coders
from hushgram.transforms.shuffle.combining import LocalResources
from hushgram.transforms.read_records import ReadRecords, plan_records
from hushgram.transforms.release_sparse_histogram import ReleaseSparseHistogram
from hushgram.transforms.shuffle.combining import shards_for

sent, seen = {}, weakref.WeakValueDictionary()
def count(cls):
    inner = cls.encode
    def encode(self, value):
        out = inner(self, value)
        if seen.get(id(value)) is value:  # Beam encodes a piece more than once: to measure it, to send it
            return out
        seen[id(value)] = value
        cell = sent.setdefault(cls.__name__.strip("_"), [0, 0, 0])
        cell[0] += 1
        cell[1] += len(out)
        cell[2] = max(cell[2], len(out))
        return out
    cls.encode = encode
for cls in (
    coders.ContributionsCoder, coders.HistogramCoder, coders.HeavyCoder, coders.SurveyCoder,
    coders.BlockPartCoder, coders.EncodedBlockCoder,
):
    count(cls)

VERBS = ("Publish", "WriteBlocks", "WriteHeavy", "ReleaseBlocks", "SelectShards", "PlaceInBlocks",
         "ReleaseSizes-UnKey",
         "SumGroups", "BoundUsers", "Take")  # the last of them in a fused stage names it
times, last = {}, [None, 0.0]
class Stages(logging.Handler):
    def emit(self, record):
        if isinstance(record.msg, str) and record.msg.startswith("Running bundle for stage") and record.args:
            now, name = time.process_time(), str(record.args[0])
            words = next((verb for verb in VERBS if f"-{verb}" in name), "between stages")
            if last[0] is not None:
                times[last[0]] = times.get(last[0], 0.0) + now - last[1]
            last[:] = [words, now]
log = logging.getLogger("apache_beam.runners.portability.fn_api_runner.fn_runner")
log.setLevel(logging.DEBUG)
log.propagate = False
log.addHandler(Stages(logging.DEBUG))

plan = plan_records([sys.argv[1]], Source(ids=("user_id", "url")))
shards = shards_for(plan.bytes)
began, cpu = time.monotonic(), time.process_time()
pipeline = new_pipeline(pipeline_options())
params = ReleaseParams(epsilon="1", max_contributions=8)
job = ReleaseSparseHistogram(params, user="user_id", key="url", path=sys.argv[2], release_key=ReleaseKey(bytes(32)),
                             shards=shards, local=LocalResources(spill=sys.argv[3] if len(sys.argv) > 3 else None),
                             counters=True)
pipeline | ReadRecords(plan, tallies=True, counters=True) | job
result = pipeline.run()
result.wait_until_finish()
end = time.monotonic()
times[last[0]] = times.get(last[0], 0.0) + time.process_time() - last[1]
print(json.dumps({
    "seconds": end - began, "cpu": time.process_time() - cpu, "stages": times, "sent": sent,
    "counters": progress.read_counters(result), "bytes": plan.bytes, "users": shards.users, "groups": shards.groups,
    "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}))
"""


def run(rows: int) -> dict[str, Any]:
    """One release of so many rows; what it sent, held and took."""
    inputs = make_data(rows)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as shuffle:
        # A large shuffle goes to disk by reference, as in the job itself; its bytes are then not counted.
        spill = [shuffle] if rows > _IN_MEMORY else []
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", RUN, f"{inputs}/*.parquet", f"{folder}/out.sketch", *spill],
            capture_output=True, text=True, check=False, cwd=folder,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(done.stderr[-4000:])
        figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        figures["sketch"] = sum(file.stat().st_size for file in Path(folder, "out.sketch").iterdir())
    return figures


def show(report: Report, rows: int, figures: dict[str, Any]) -> None:
    """The figures of one run, a row or a key."""
    counters = figures["counters"]
    kept, keys = counters.get("records", 0), max(counters.get("keys", 0), 1)
    size = f"{rows // 1_000_000} M rows"
    report.note(f"{size}: s; CPU s", f"{figures['seconds']:.1f}; {figures['cpu']:.1f}")
    report.note(f"{size}: bytes of input a row", f"{figures['bytes'] / rows:.2f}")
    report.note(f"{size}: records kept; keys", f"{kept:,}; {keys:,}")
    report.note(f"{size}: user shards; groups", f"{figures['users']}; {figures['groups']}")
    report.note(f"{size}: memory, GiB", f"{figures['memory'] / 2**30:.2f}")
    report.note(
        f"{size}: bytes of the sketch; bits per key",
        f"{figures['sketch']:,}; {8 * figures['sketch'] / keys:.1f}",
    )
    for name, (pieces, sent, largest) in sorted(figures["sent"].items()):
        report.note(
            f"{size}, sent by {name}: pieces; MiB; largest; bytes a row; a key",
            f"{pieces:,}; {sent / 2**20:,.1f}; {largest / 2**20:,.2f}; {sent / rows:.2f}; {sent / keys:.2f}",
        )
    for name, seconds in sorted(figures["stages"].items(), key=lambda item: -item[1]):
        report.note(f"{size}, {name}: CPU s; ns a row", f"{seconds:.2f}; {1e9 * seconds / rows:.1f}")


def main(arguments: list[str]) -> int:
    """The runs, smallest first."""
    DATA.mkdir(parents=True, exist_ok=True)
    sizes = [1_000_000, 10_000_000]
    if "--quick" in arguments:
        sizes = sizes[:1]
    if "--full" in arguments:
        sizes.append(100_000_000)
    report = Report("What a release sends, holds and takes")
    for rows in sizes:
        show(report, rows, run(rows))
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
