"""`hushgram demo`: generate page views, release them with the Beam job, and compare lookups with the truth.

In practice nobody has the truth. It comes in two columns: `views` counts all views, `counted` those that remain after
each user is bounded by `max_contributions`. The sketch estimates `counted`, and its intervals are for `counted`.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hushgram.contributions.bounding import Contributions
from hushgram.contributions.histogram import Histogram
from hushgram.contributions.keys import fingerprints
from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.synthetic import PageViews, write_page_views
from hushgram.pipelines.terminal import format_options, print_line, print_table, round_columns
from hushgram.publishing import PrivateDirectory
from hushgram.sketch.reader import Sketch
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.spec import ReleaseSpec

__all__ = ["DemoResult", "command", "run_demo"]

_LOOKUPS = 19  # and one page that nobody visited
# Beyond this many rows, counting exactly after bounding would need more memory than the release itself.
_MAX_BOUNDED_ROWS = 5_000_000


@click.command("demo")
@click.option(
    "--rows", type=int, default=2_000_000, show_default=True,
    help="Page views to generate, at most 100,000,000.",
)  # fmt: skip
@click.option("--epsilon", default="1", show_default=True, help="Privacy loss of one user.")
@click.option(
    "--delta", default="0", show_default=True,
    help="0 releases fingerprints of keys; above 0, heavy keys are released as text.",
)  # fmt: skip
@click.option(
    "--max-contributions", type=int, default=8, show_default=True, help="Records that count per user (C)."
)
@click.option(
    "--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Number of processes."
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Seed of the generated data (not of the noise)."
)
@click.option("--keep", type=click.Path(), help="Keep data and sketch in this directory.")
@format_options
def command(
    rows: int,
    epsilon: str,
    delta: str,
    max_contributions: int,
    workers: int,
    seed: int,
    keep: str | None,
    style: str,
    output: str | None,
) -> None:
    """Generate page views, release them, and compare estimates with the true counts. Takes about a minute."""
    views = PageViews(rows=rows, seed=seed)
    params = ReleaseParams(epsilon=epsilon, delta=delta, max_contributions=max_contributions)
    with contextlib.nullcontext(Path(keep)) if keep else PrivateDirectory() as folder:
        if style != "table" or output is not None:
            result = run_demo(views, params, folder, workers=workers, report=partial(print_line, err=True))
            print_table(result.lookups, style, output)
            return
        result = run_demo(views, params, folder, workers=workers)
        print_line()
        numbers = ("estimate", "low", "high")
        print_table(round_columns(result.lookups), "table", right=numbers)
        print_line()
        print_table(round_columns(result.totals, sums=True), "table", right=numbers)
        held = result.lookups["covered"].drop_null().to_pylist()
        if held:
            print_line()
            print_line(f"{sum(held)} of {len(held)} intervals contain the counted number (95 % should)")
        if keep:
            print_line()
            print_line(f"next: hushgram query {folder / 'urls.sketch'} {result.lookups['key'][0]}")


@dataclass(frozen=True)
class DemoResult:
    """The released sketch, and tables of lookups and totals with the truth."""

    sketch: Sketch
    lookups: pa.Table
    totals: pa.Table


def run_demo(
    views: PageViews,
    params: ReleaseParams,
    folder: Path,
    *,
    workers: int = 1,
    quiet: bool = False,
    report: Callable[[str], None] = print_line,
    release_key: ReleaseKey | None = None,
) -> DemoResult:
    """Generate data in `folder`, release it, and compare; `report` gets a line per step."""
    from hushgram.pipelines.run.job_runner import load_job, run_stages

    data, target = folder / "pageviews", folder / "urls.sketch"
    if target.exists() or data.exists():
        raise ParameterError(
            f"--keep {folder} already contains a demo; remove it or choose another directory"
        )
    started = time.monotonic()
    truth = write_page_views(views, data)
    seconds = time.monotonic() - started
    report(
        f"1. {views.rows:,} synthetic page views of {np.count_nonzero(truth):,} URLs in {data} ({seconds:.1f} s)"
    )
    config = {
        "release": "demo",
        "input": {"path": f"{data}/*.parquet", "user": "user_id", "key": "url"},
        "privacy": {
            "epsilon": str(params.epsilon),
            "delta": str(params.delta),
            "max_contributions": params.max_contributions,
        },
        "output": {"path": str(target)},
        "workers": workers,
    }
    (folder / "demo.yaml").write_text(json.dumps(config, indent=2))
    release_key = release_key or ReleaseKey.generate()
    job = load_job("release", folder / "demo.yaml")
    result = run_stages(job, path=target, release_key=release_key, quiet=quiet)
    sketch = Sketch.open(target)
    speed = views.rows / result.seconds
    report(f"2. released in {result.seconds:.1f} s ({speed:,.0f} rows/s), {sketch.size:,} bytes")
    report(f"   {sketch.guarantee.sentence()}")
    exact = None
    if views.rows <= _MAX_BOUNDED_ROWS:
        exact = _bounded(data, params, release_key)
    started = time.monotonic()
    lookups, totals = _lookups(views, truth, exact, sketch), _totals(views, truth, exact, sketch)
    report(
        f"3. queried in {time.monotonic() - started:.1f} s; 'counted' is the truth after bounding each user"
    )
    return DemoResult(sketch, lookups, totals)


def _bounded(data: Path, params: ReleaseParams, release_key: ReleaseKey) -> Histogram:
    """Return the exact histogram after bounding, computed in one process."""
    spec = ReleaseSpec.of(params, user="user_id", key="url", release_key=release_key)
    kept: Contributions | None = None
    for file in sorted(data.glob("*.parquet")):
        for batch in pq.ParquetFile(file).iter_batches(1 << 19):
            fresh = spec.bounding.contributions(batch.column("user_id"), batch.column("url"))
            kept = fresh if kept is None else Contributions.concat([kept, fresh])
            kept = kept.prune(spec.loose_bounds)
    assert kept is not None
    return kept.bounded(spec.bounds())


def _lookups(views: PageViews, truth: NDArray[np.int64], exact: Histogram | None, sketch: Sketch) -> pa.Table:
    """Return 20 keys, from the most visited page to one that nobody visited."""
    ranks = _spread(np.flatnonzero(truth))
    keys = [*views.url_texts(ranks).to_pylist(), "https://example.org/nobody/was-here"]
    found = sketch.estimate(keys)
    counted = pa.array(
        [None] * len(keys) if exact is None else exact.counts_of(fingerprints(keys)), pa.int64()
    )
    low, high = found["low"], found["high"]
    return pa.table({
        "key": keys, "views": [*truth[ranks].tolist(), 0], "counted": counted, "estimate": found["estimate"],
        "low": low, "high": high, "source": found["source"],
        "covered": pc.and_(pc.less_equal(low, counted), pc.less_equal(counted, high)),
    })  # fmt: skip


def _spread(visited: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return pages from the most visited rank to the last, evenly spaced on a logarithmic scale."""
    count = len(visited)
    wanted = min(_LOOKUPS, count)
    places = np.unique(np.geomspace(1, count, wanted).astype(np.int64) - 1)
    missing = np.setdiff1d(np.arange(min(count, 100)), places)[: wanted - len(places)]
    return visited[np.sort(np.concatenate((places, missing)))]


def _totals(views: PageViews, truth: NDArray[np.int64], exact: Histogram | None, sketch: Sketch) -> pa.Table:
    visited = np.flatnonzero(truth)
    sets = {
        "all pages of /wiki/": visited[visited % 8 == 2],
        "every 100th page": visited[::100],
        "the 1,000 rarest pages": visited[-1000:],  # chosen by count
        "pages that nobody visited": np.flatnonzero(truth == 0)[:1000],
    }
    rows = []
    for name, chosen in sets.items():
        keys = views.url_texts(chosen)
        counted = None if exact is None else int(exact.counts_of(fingerprints(keys)).sum())
        total = sketch.total(keys)
        row = {"total over": name, "keys": len(chosen), "views": int(truth[chosen].sum()), "counted": counted}
        rows.append({**row, "estimate": total.estimate, "low": total.low, "high": total.high})
    return pa.Table.from_pylist(rows)
