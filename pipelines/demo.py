"""The demo: made-up page views, a release of them by the job, and lookups beside the truth.

The truth is what nobody has in practice. It comes in two columns: all views, and those that count once each
user is held to `max_contributions`; the sketch estimates the second, and its intervals are about that one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.exact.contributions import Contributions
from hushgram.exact.histogram import Histogram
from hushgram.exact.keys import fingerprints
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.generate import PageViews, write_page_views
from hushgram.sketch.reader import Sketch
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.steps import held_bounds, key_for

__all__ = ["DemoResult", "Line", "TotalLine", "run_demo"]

_LOOKUPS = 19  # and one page that nobody visited
# Beyond this many rows the exact count after bounding would need more memory than the release itself.
_MOST_BOUNDED_ROWS = 5_000_000

Say = Callable[[str], None]


@dataclass(frozen=True)
class Line:
    """A lookup beside the truth; `counted` is None where it was not computed."""

    key: str
    views: int
    counted: int | None
    estimate: float
    low: float
    high: float
    source: str
    #: estimate, low and high of the same count, released with buckets instead of ALP
    buckets: tuple[float, float, float] | None = None

    @property
    def covered(self) -> bool | None:
        """Whether the interval holds the truth that the sketch estimates."""
        return None if self.counted is None else self.low <= self.counted <= self.high


@dataclass(frozen=True)
class TotalLine:
    """The sum over a set of keys beside the truth."""

    what: str
    keys: int
    views: int
    counted: int | None
    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class DemoResult:
    """All that the demo found out."""

    sketch: Sketch
    lookups: tuple[Line, ...]
    totals: tuple[TotalLine, ...]
    generated: float
    released: float
    asked: float


def run_demo(
    views: PageViews,
    params: ReleaseParams,
    folder: Path,
    *,
    workers: int = 1,
    quiet: bool = False,
    say: Say = print,
    release_key: ReleaseKey | None = None,
) -> DemoResult:
    """Generates into `folder`, releases with the Beam job, and compares. `say` tells what happens."""
    from hushgram.inputs import Source
    from hushgram.pipelines.release import run_release
    from hushgram.pipelines.runners import pipeline_options
    from hushgram.transforms.read_records import plan_records

    data, target = folder / "pageviews", folder / "urls.sketch"
    if target.exists() or data.exists():
        raise ParameterError(f"--keep {folder}: holds a demo already; remove it or give another place")
    begun = time.monotonic()
    truth = write_page_views(views, data)
    generated = time.monotonic() - begun
    pages = np.count_nonzero(truth)
    say(f"1. {views.rows:,} made-up page views of {pages:,} URLs in {data} ({generated:.1f} s)")
    release_key = release_key or ReleaseKey.generate()
    plan = plan_records([str(data)], Source(ids=("user_id", "url")))
    result = run_release(
        params, plan, user="user_id", key="url", path=target, name="demo", release_key=release_key,
        options=pipeline_options([], workers), quiet=quiet,
    )  # fmt: skip
    sketch = result.sketch()
    speed = views.rows / result.seconds
    say(f"2. released in {result.seconds:.1f} s ({speed:,.0f} rows/s), {sketch.size:,} bytes")
    say(f"   {sketch.guarantee.sentence()}")
    counted = (
        _counted(data, params, key_for(params, release_key)) if views.rows <= _MOST_BOUNDED_ROWS else None
    )
    begun = time.monotonic()
    lookups = _look_up(views, truth, counted, sketch)
    totals = _add_up(views, truth, counted, sketch)
    return DemoResult(sketch, lookups, totals, generated, result.seconds, time.monotonic() - begun)


def _counted(data: Path, params: ReleaseParams, release_key: ReleaseKey) -> Histogram:
    """The exact histogram after bounding, in one process."""
    held: Contributions | None = None
    for file in sorted(data.glob("*.parquet")):
        for batch in pq.ParquetFile(file).iter_batches(1 << 19):
            fresh = Contributions.of(batch.column("user_id"), batch.column("url"), release_key, texts=False)
            held = fresh if held is None else Contributions.concat([held, fresh])
            held = held.cut(held_bounds(params))
    assert held is not None
    return held.bounded(held_bounds(params))


def _look_up(
    views: PageViews, truth: NDArray[np.int64], counted: Histogram | None, sketch: Sketch
) -> tuple[Line, ...]:
    """Twenty keys from the most visited to one that nobody visited."""
    ranks = _spread(np.flatnonzero(truth))
    keys = [*views.url_texts(ranks).to_pylist(), "https://example.org/nobody/was-here"]
    seen = [*truth[ranks].tolist(), 0]
    exact = [None] * len(keys) if counted is None else counted.counts_of(fingerprints(keys)).tolist()
    rows = sketch.estimate(keys).to_pylist()
    others = _with_buckets(views, truth, counted, sketch.plan.params, keys)
    return tuple(
        Line(row["key"], views_, count, row["estimate"], row["low"], row["high"], row["source"], other)
        for row, views_, count, other in zip(rows, seen, exact, others, strict=True)
    )


def _with_buckets(
    views: PageViews,
    truth: NDArray[np.int64],
    counted: Histogram | None,
    params: ReleaseParams,
    keys: list[str],
) -> list[tuple[float, float, float] | None]:
    """The same keys from a second release of the same made-up counts, with buckets instead of ALP."""
    import hushgram

    if counted is None:
        return [None] * len(keys)
    texts = views.url_texts(np.flatnonzero(truth))
    counts = counted.counts_of(fingerprints(texts))
    again = hushgram.ReleaseParams(
        epsilon=params.epsilon, delta=params.delta, max_contributions=params.max_contributions,
        max_per_key=params.max_per_key, encoding="buckets", noise="laplace",
    )  # fmt: skip
    found = hushgram.release_histogram(texts, counts, again).estimate(keys).to_pylist()
    return [(row["estimate"], row["low"], row["high"]) for row in found]


def _spread(visited: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pages from the most visited rank to the last, evenly on a logarithmic scale."""
    count = len(visited)
    wanted = min(_LOOKUPS, count)
    places = np.unique(np.geomspace(1, count, wanted).astype(np.int64) - 1)
    missing = np.setdiff1d(np.arange(min(count, 100)), places)[: wanted - len(places)]
    return visited[np.sort(np.concatenate((places, missing)))]


def _add_up(
    views: PageViews, truth: NDArray[np.int64], counted: Histogram | None, sketch: Sketch
) -> tuple[TotalLine, ...]:
    visited = np.flatnonzero(truth)
    sets = (
        ("all pages of /wiki/", visited[visited % 8 == 2]),
        ("every 100th page", visited[::100]),
        ("the 1,000 rarest pages", visited[-1000:]),  # chosen by count
        ("pages that nobody visited", np.flatnonzero(truth == 0)[:1000]),
    )
    lines = []
    for what, chosen in sets:
        keys = views.url_texts(chosen)
        exact = None if counted is None else int(counted.counts_of(fingerprints(keys)).sum())
        total: Any = sketch.total(keys)
        lines.append(
            TotalLine(
                what, len(chosen), int(truth[chosen].sum()), exact, total.estimate, total.low, total.high
            )
        )
    return tuple(lines)
