"""Growth of time, bytes and error with rows, keys, ε and C: `python -m benchmarks.growth [--quick]`.

Time and bytes: the release job on Beam's local runner, CPU seconds of a process of its own, least of two. Error:
all keys of Zipf(1.1) counts (50,000 keys, 10^6 records), which are known to be in the data.
There are no bars but one: time does not grow faster than rows (`benchmarks.pipeline` has that up to 50 M rows).
"""

from __future__ import annotations

import sys
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import hushgram as hg
from benchmarks.bars import Report
from benchmarks.data import zipf
from benchmarks.pipeline import DATA, least, make_data, measure
from hushgram.noise.entropy import ReleaseKey
from hushgram.release_in_memory import simulate

__all__ = ["main"]

ROWS = 1_000_000
SIZES = (100_000, 1_000_000, 10_000_000)
UNIVERSES = (1_000, 10_000, 100_000, 1_000_000)
EPSILONS = ("0.1", "0.3", "1", "3", "10")
BOUNDS = (1, 3, 8, 32, 128)

RELEASE = """
import json, pathlib, sys, time
from hushgram import ReleaseParams
from hushgram.inputs import Source
from hushgram.pipelines.jobs.release import run_release
from hushgram.transforms.read_records import plan_records
began, cpu = time.time(), time.process_time()
plan = plan_records([sys.argv[1]], Source(ids=("user_id", "url")))
params = ReleaseParams(epsilon=sys.argv[3], max_contributions=int(sys.argv[4]))
run_release(params, plan, user="user_id", key="url", path=sys.argv[2])
size = sum(file.stat().st_size for file in pathlib.Path(sys.argv[2]).iterdir())
print(json.dumps({"seconds": time.time() - began, "cpu": time.process_time() - cpu, "bytes": size}))
"""


def job(folder: Path, epsilon: str = "1", contributions: int = 8) -> dict[str, float]:
    """One release; the least of two runs."""
    runs = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as work:
            runs.append(measure(RELEASE, f"{folder}/*.parquet", f"{work}/out.sketch", epsilon, contributions))
    return least(*runs)


def with_keys(keys: int) -> Path:
    """A million rows of so many keys, all alike."""
    folder = DATA / f"even-{keys}"
    if not folder.exists():
        draw = np.random.default_rng(keys)
        url = pa.array(draw.integers(0, keys, ROWS)).cast(pa.string())
        folder.mkdir(parents=True)
        table = pa.table({"user_id": draw.integers(0, ROWS // 10, ROWS), "url": url})
        pq.write_table(table, folder / "000.parquet")
    return folder


def error(epsilon: str, contributions: int, delta: str = "0") -> float:
    """RMSE of all keys at the default bits."""
    counts = zipf(1.1, 1e6, 50_000)
    keys = np.arange(len(counts))
    params = hg.ReleaseParams(epsilon=epsilon, delta=delta, max_contributions=contributions)
    sketch = simulate(keys, counts, params, release_key=ReleaseKey(bytes(32)))
    found = sketch.estimate(keys, interval=None, present=1.0)["estimate"].to_numpy()
    return float(np.sqrt(np.mean((found - counts) ** 2)))


def main(quick: bool) -> int:
    """All of them."""
    report = Report("Growth with rows, keys, ε and C")
    sizes = SIZES[:2] if quick else SIZES
    by_rows = {rows: job(make_data(rows)) for rows in sizes}
    for rows, run in by_rows.items():
        report.note(f"{rows:,} rows: CPU s; bytes of the sketch", f"{run['cpu']:.2f}; {run['bytes']:,.0f}")
    few, many = sizes[-2:]
    ratio = by_rows[many]["cpu"] / by_rows[few]["cpu"] / (many / few)
    report.bar(f"CPU time of {many:,} rows over {many // few} x that of {few:,}", ratio, 1.15, at_most=True)
    line = {"release": [[rows, run["cpu"]] for rows, run in by_rows.items()]}
    report.draw("growth-rows", "CPU time of a release by rows", "rows", "CPU seconds", line)
    by_keys = {keys: job(with_keys(keys)) for keys in (UNIVERSES[::2] if quick else UNIVERSES)}
    for keys, run in by_keys.items():
        what = f"{ROWS:,} rows drawn evenly from {keys:,} keys: CPU s; bytes"
        report.note(what, f"{run['cpu']:.2f}; {run['bytes']:,.0f}")
    line = {"sketch": [[keys, run["bytes"]] for keys, run in by_keys.items()]}
    report.draw(
        "growth-keys", "Bytes of a sketch by keys, a million rows", "keys to draw from", "bytes", line
    )
    for epsilon, bound in [("0.1", 8), ("10", 8), ("1", 1), ("1", 64)][: 2 if quick else 4]:
        run = job(make_data(ROWS), epsilon, bound)
        what = f"{ROWS:,} rows at ε = {epsilon}, C = {bound}: CPU s; bytes"
        report.note(what, f"{run['cpu']:.2f}; {run['bytes']:,.0f}")
    errors(report, quick)
    return report.exit_code()


def errors(report: Report, quick: bool) -> None:
    """Error by ε at C = 8, and by C at ε = 1, at δ = 0 and above."""
    epsilons, bounds = (EPSILONS[::2], BOUNDS[::2]) if quick else (EPSILONS, BOUNDS)
    deltas = {"δ = 0": "0", "δ = 10⁻⁶": "1e-6"}
    by_epsilon = {
        shown: [[float(Fraction(e)), error(e, 8, delta)] for e in epsilons] for shown, delta in deltas.items()
    }
    by_bound = {shown: [[c, error("1", c, delta)] for c in bounds] for shown, delta in deltas.items()}
    for what, rows in (("ε", by_epsilon), ("C", by_bound)):
        for name, points in rows.items():
            shown = ", ".join(f"{x:g}: {y:.2f}" for x, y in points)
            report.note(f"RMSE of all keys by {what}, {name}", shown)
    report.draw("growth-epsilon", "Error of all keys by ε, C = 8", "ε", "RMSE", by_epsilon)
    report.draw("growth-c", "Error of all keys by C, ε = 1", "C", "RMSE", by_bound)


if __name__ == "__main__":
    DATA.mkdir(parents=True, exist_ok=True)
    sys.exit(main("--quick" in sys.argv[1:]))
