"""Reading: a release from CSV and from JSON lines against one from Parquet, and each reader against pyarrow.

    python -m benchmarks.inputs [rows]

Bars: a release of the same records from CSV or JSON lines takes at most twice the time of one from Parquet,
plus the time that pyarrow alone needs to parse the file; a filter or a shaped key costs at most a quarter
more than a release without, and sums of a column in place of counts at most 15 % more, from Parquet and from CSV, in
the same run (the bars are meant for 10,000,000 rows). Access logs have no bar; their rate is shown.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq

from benchmarks.bars import Report
from hushgram.inputs import InputPlan, Source, conditions, read_item
from hushgram.inputs.formats.log import LogOptions
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.run.job_runner import import_beam
from hushgram.pipelines.synthetic import PageViews, write_page_views
from hushgram.sparse_histogram.params import ReleaseParams

import_beam()
from hushgram.pipelines.jobs.release import run_release  # noqa: E402
from hushgram.transforms.read_records import plan_records  # noqa: E402

ROWS = 3_000_000
#: what else the machine does takes caches and memory from a release: the least of several times is its own
ROUNDS = 5
#: what is asked of the input beside user and key: (name, options of `release`, how much more it may cost)
EXTRAS: list[tuple[str, dict[str, Any], float]] = [
    ("a filter", {"where": "url NOT LIKE '%/admin/%' AND url != '/'"}, 1.25),
    ("a regular expression", {"where": "url NOT MATCHES '(?i)bot|crawl'"}, 1.25),
    ("a shaped key", {"key": "url | strip_query | lower"}, 1.25),
    ("a key of two columns", {"key": "[url | path 1, url]"}, 1.25),
    ("a shaped key and a filter", {"key": "url | strip_fragment", "where": "url != '/'"}, 1.25),
    ("sums of a column", {"value": "bytes"}, 1.15),
]
LINE = '10.0.0.{} - - [16/Nov/2026:10:00:00 +0000] "GET {} HTTP/1.1" 200 512 "-" "Mozilla/5.0 (X11; Linux)"\n'


def timed(work: Callable[[], Any]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def make_files(folder: Path, rows: int) -> dict[str, Path]:
    """The same records as Parquet, CSV, JSON lines and an access log (the log has a tenth of them)."""
    write_page_views(PageViews(rows=rows), folder / "views")
    (folder / "parquet").mkdir()
    for part in sorted((folder / "views").iterdir()):
        views = pq.read_table(part)
        sizes = (np.arange(views.num_rows) * 7919) % 20_011  # bytes sent, as it were
        pq.write_table(views.append_column("bytes", pa.array(sizes)), folder / "parquet" / part.name)
        part.unlink()
    files = {name: folder / f"views.{name}" for name in ("csv", "jsonl", "log")}
    schema = pa.schema({"user_id": pa.int64(), "url": pa.string(), "bytes": pa.int64()})
    with (
        pacsv.CSVWriter(files["csv"], schema) as csv,
        files["jsonl"].open("w") as jsonl,
        files["log"].open("w") as log,
    ):
        for part in sorted((folder / "parquet").iterdir()):
            for number, batch in enumerate(pq.ParquetFile(part).iter_batches(100_000)):
                csv.write_batch(batch)
                pairs = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
                jsonl.writelines(f'{{"user_id": {user}, "url": "{url}"}}\n' for user, url, _ in pairs)
                if number % 10 == 0:
                    log.writelines(LINE.format(user % 250, url) for user, url, _ in pairs)
    return {"parquet": folder / "parquet", **files}


def plan_of(path: Path, **options: Any) -> InputPlan:
    return plan_records([str(path)], Source(**{"ids": ("user_id", "url"), **options}))


def read(plan: InputPlan) -> int:
    return sum(chunk.batch.num_rows for item in plan.items for chunk in read_item(item, plan))


def release(
    path: Path,
    folder: Path,
    key: str = "url",
    where: str | None = None,
    value: str | None = None,
    **options: Any,
) -> float:
    params = ReleaseParams(epsilon="1", max_contributions=8)
    if value is not None:
        params = ReleaseParams(epsilon="1", max_contributions=80_000, max_value=10_000, granularity=625)
        options |= {"columns": (value,), "values": (value,), "types": ((value, pa.float64()),)}
    target = Path(tempfile.mkdtemp(dir=folder)) / "out.sketch"
    secret = ReleaseKey(bytes(32))

    def work() -> None:
        plan = plan_of(
            path, ids=("user_id", key), where=None if where is None else conditions.parse(where), **options
        )
        run_release(params, plan, user="user_id", key=key, value=value, path=target, release_key=secret)

    return timed(work)


def best_times(path: Path, folder: Path) -> list[float]:
    """The least times of a release as it is, and of one with each of the extras, measured in turn."""
    asked = [{}, *(options for _, options, _ in EXTRAS)]
    rounds = [[release(path, folder, **options) for options in asked] for _ in range(ROUNDS)]
    return [min(times) for times in zip(*rounds, strict=True)]


def main(rows: int) -> int:
    bars = Report(f"Reading {rows:,} records; CPU seconds, so that other programs do not count")
    with tempfile.TemporaryDirectory(prefix="hushgram-bench-") as name:
        folder = Path(name)
        files = make_files(folder, rows)
        parsed = {
            "csv": timed(lambda: pacsv.read_csv(files["csv"])),
            "jsonl": timed(lambda: pajson.read_json(files["jsonl"])),
        }
        for kind in ("parquet", "csv", "jsonl"):
            seconds = timed(lambda kind=kind: read(plan_of(files[kind])))  # type: ignore[misc]
            bars.note(f"read {kind}", f"{rows / seconds / 1e6:.2f} M rows/s")
        lines = plan_of(files["log"], ids=("ip", "path"), options=(LogOptions(preset="access-log"),))
        begun = time.process_time()
        count = read(lines)
        bars.note("read access log", f"{count / (time.process_time() - begun) / 1e6:.2f} M lines/s")
        release(files["parquet"], Path(tempfile.mkdtemp(dir=folder)))  # warm
        took = {kind: best_times(files[kind], folder) for kind in ("parquet", "csv")}
        (plain, *_), json = took["parquet"], release(files["jsonl"], folder)
        bars.note("release from parquet", f"{plain:.2f} s")
        for kind, seconds in (("csv", took["csv"][0]), ("jsonl", json)):
            most = 2 * plain + parsed[kind]
            bars.bar(f"release from {kind}", seconds, most, at_most=True, unit="s")
        for kind, (without, *each) in took.items():
            for (what, _, most), seconds in zip(EXTRAS, each, strict=True):
                name = f"release from {kind} with {what}, against without"
                bars.bar(name, seconds / without, most, at_most=True, unit="x")
    return bars.exit_code()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS))
