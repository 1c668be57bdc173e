"""Measure bytes sent, memory and CPU time of the release job, and compare formulas: `python -m benchmarks.scaling`.

Each run is a release in a process of its own, of 1, 10 and 50 M rows with 16 to 65,536 shards of users, on the local
runner, which writes both shuffles of rows to disk. What it measures is compared with the formulas of
`hushgram.transforms.shuffle.Cost`, which docs/scaling.md explains and applies to larger inputs. With --quick, 1 M rows.
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
from hushgram.transforms.shuffle import Cost

__all__ = ["main"]

# Users of the data have so many rows each (`make_data`).
_ROWS_PER_USER = 10
# How far a formula may be from what is measured, in either direction.
_WITHIN = 1.25

RUN = """
import json, logging, sys, time, weakref
from hushgram import ReleaseKey, ReleaseParams, Threshold
from hushgram.inputs import Source
from hushgram.pipelines.run import progress
from hushgram.pipelines.run.beam_runners import new_pipeline, pipeline_options
from hushgram.transforms.shuffle import coders
from hushgram.transforms.shuffle.combining import LocalResources, Shards, shards_for
from hushgram.transforms.read_records import ReadRecords, plan_records
from hushgram.transforms.release_sparse_histogram import ReleaseSparseHistogram

sent, seen = {}, weakref.WeakValueDictionary()
def note(name, size, rows):
    cell = sent.setdefault(name, [0, 0, 0, 0])
    cell[:] = cell[0] + 1, cell[1] + size, max(cell[2], size), cell[3] + rows
def count(cls):
    inner = cls.encode
    def encode(self, value):
        out = inner(self, value)
        if seen.get(id(value)) is not value:  # Beam encodes a piece more than once: to measure it, to send it
            seen[id(value)] = value
            note(names.get(cls, cls.__name__), len(out), len(value) if hasattr(value, "__len__") else 0)
        return out
    cls.encode = encode
names = {coders.HistogramCoder: "groups"}  # complete ones: the parts of which they are sums go to disk
for cls in (coders.HistogramCoder, coders.HeavyCoder, coders.BlockPartsCoder, coders.EncodedBlockCoder):
    count(cls)
inner = coders.Spilling.keep
def keep(self, value, coder):  # the shuffles that go to disk
    out = inner(self, value, coder)
    note(type(coder).__name__, out.size, len(value))
    return out
coders.Spilling.keep = keep

VERBS = ("Publish", "WriteBlocks", "WriteHeavy", "ReleaseBlocks", "SelectShards", "PlaceInBlocks",
         "ReleaseSizes-UnKey", "SumGroups", "BoundUsers", "SplitRanges", "Take")  # the last of a fused stage names it
def used():
    \"\"\"CPU seconds, and the peak of memory since the last call.\"\"\"
    peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return time.process_time(), peak
times, last = {}, ["start", 0.0]
class Stages(logging.Handler):
    def emit(self, record):
        if isinstance(record.msg, str) and record.msg.startswith("Running bundle for stage") and record.args:
            name = str(record.args[0])
            step(next((verb for verb in VERBS if f"-{verb}" in name), "between stages"))
def step(name):
    now, memory = used()
    cell = times.setdefault(last[0], [0.0, 0])
    cell[:] = cell[0] + now - last[1], max(cell[1], memory)
    last[:] = [name, now]
log = logging.getLogger("apache_beam.runners.portability.fn_api_runner.fn_runner")
log.setLevel(logging.DEBUG)
log.propagate = False
log.addHandler(Stages(logging.DEBUG))

files, path, spill, users, groups, selection = sys.argv[1:]
plan = plan_records([files], Source(ids=("user_id", "url")))
shards = shards_for(plan.bytes, int(users) or None)
shards = Shards(shards.users, int(groups) or shards.groups)
pipeline = new_pipeline(pipeline_options())
chosen = {"delta": "1e-8" if selection else "0", "selection": Threshold() if selection == "threshold" else None}
params = ReleaseParams(epsilon="1", max_contributions=8, **chosen)
job = ReleaseSparseHistogram(params, user="user_id", key="url", path=path, release_key=ReleaseKey(bytes(32)),
                             shards=shards, local=LocalResources(spill=spill), counters=True)
pipeline | ReadRecords(plan, tallies=True, counters=True) | job
result = pipeline.run()
result.wait_until_finish()
step("end")
print(json.dumps({
    "cpu": time.process_time(), "stages": times, "sent": sent, "memory": max(cell[1] for cell in times.values()),
    "counters": progress.read_counters(result),
    "bytes": plan.bytes, "users": shards.users, "groups": shards.groups,
}))
"""


def run(rows: int, shards: int = 0, groups: int = 0, selection: str = "") -> dict[str, Any]:
    """One release of so many rows in a process of its own, with shards of users and groups (0: as chosen by the size).

    With ``selection``, "threshold" or "weights", δ is above 0.
    """
    inputs, spread = make_data(rows), (str(shards), str(groups), selection)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "spill").mkdir()
        out = f"{folder}/out.sketch"
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", RUN, f"{inputs}/*.parquet", out, f"{folder}/spill", *spread],
            capture_output=True, text=True, check=False, cwd=folder,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(done.stderr[-4000:])
        figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        figures["sketch"] = sum(file.stat().st_size for file in Path(out).iterdir())
    return figures


def cost(figures: dict[str, Any]) -> Cost:
    """Return what the formulas say of a run."""
    counters = figures["counters"]
    rows, keys = counters["rows"], counters["keys"]
    return Cost(rows, rows // _ROWS_PER_USER, keys, figures["users"], figures["groups"])


def show(report: Report, figures: dict[str, Any]) -> None:
    """Compare one run with the formulas."""
    counters, predicted = figures["counters"], cost(figures)
    pieces, sent, *_ = figures["sent"]["ContributionsCoder"]
    size = f"{counters['rows'] // 1_000_000} M rows, {figures['users']:,} shards"
    for what, unit, measured, formula in (
        ("CPU seconds", 1, figures["cpu"], predicted.cpu_seconds),
        ("peak memory, MB", 1e6, figures["memory"], predicted.memory),
        ("pieces of the first shuffle", 1, pieces, predicted.pieces),
        ("first shuffle, MB", 1e6, sent, predicted.first_shuffle),
    ):
        report.note(f"{size}: {what}; by the formula", f"{measured / unit:,.1f}; {formula / unit:,.1f}")
        wrong = max(measured, formula) / min(measured, formula)
        report.bar(f"{size}: {what}, one over the other", wrong, _WITHIN, at_most=True)
    pieces, sent, _, keys = figures["sent"]["HistogramCoder"]
    report.note(f"{size}: second shuffle, pieces; keys; MB", f"{pieces:,}; {keys:,}; {sent / 1e6:,.1f}")


def show_stages(report: Report, figures: dict[str, Any]) -> None:
    """Show the stages of one run."""
    counters = figures["counters"]
    rows, kept, keys = counters["rows"], counters["records"], counters["keys"]
    size = f"{rows // 1_000_000} M rows"
    report.note(f"{size}: bytes of input per row", f"{figures['bytes'] / rows:.2f}")
    report.note(f"{size}: records kept; keys", f"{kept:,}; {keys:,}")
    report.note(
        f"{size}: bytes of the sketch; bits per key",
        f"{figures['sketch']:,}; {8 * figures['sketch'] / keys:.1f}",
    )
    for name, (seconds, memory) in sorted(figures["stages"].items(), key=lambda item: -item[1][0]):
        shown = f"{seconds:.2f}; {1e9 * seconds / rows:.1f}; {memory / 1e6:.0f}"
        report.note(f"{size}, {name}: CPU s; ns per row; peak MB", shown)


def main(arguments: list[str]) -> int:
    """Make the runs, smallest first."""
    DATA.mkdir(parents=True, exist_ok=True)
    report = Report("Formulas and measurements")
    runs = []
    for rows in (1_000_000,) if "--quick" in arguments else (1_000_000, 10_000_000, 50_000_000):
        for shards in (16, 256, 4_096, 65_536):
            runs.append(run(rows, shards))
            show(report, runs[-1])
    ten = [figures for figures in runs if figures["counters"]["rows"] == 10_000_000] or runs
    ratio = ten[2]["cpu"] / ten[0]["cpu"]
    report.bar("CPU time with 4,096 shards over that with 16", ratio, 1.3, at_most=True)
    stages = Report("What the stages of a release take, with 16 shards")
    for figures in runs[::4]:
        show_stages(stages, figures)
    return max(report.exit_code(), stages.exit_code())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
