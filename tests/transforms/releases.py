"""Small data sets and comparisons that the tests of stages and jobs share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that
from numpy.typing import NDArray

from hushgram import ReleaseKey, ReleaseParams, Threshold
from hushgram.contributions.bounding import Bounds, Contributions
from hushgram.contributions.histogram import Histogram
from hushgram.sparse_histogram.sizing import Survey
from hushgram.sparse_histogram.spec import ReleaseSpec
from hushgram.sparse_histogram.steps import PlannedRelease, plan_release
from tests.users import with_nobody

KEY = ReleaseKey(bytes(range(32)))
#: sizes are public here, so that the columns are small and a run is quick
SMALL: dict[str, Any] = {"sizes": (2000, 400)}


def params(delta: str = "0", **changes: Any) -> ReleaseParams:
    """Parameters of a quick release."""
    return ReleaseParams(
        **{"epsilon": "2", "delta": delta, "max_contributions": 4, "max_per_key": 2, **changes}
    )


def by_threshold(delta: str, **changes: Any) -> ReleaseParams:
    """The same, and keys selected by their counts."""
    return params(delta, **({} if delta == "0" else {"selection": Threshold()}), **changes)


def records(rows: int = 3000, users: int = 150, seed: int = 1) -> pa.Table:
    """Skewed users and keys: some users are far over the bounds, some keys are heavy."""
    draw = np.random.default_rng(seed)
    user = (users * draw.random(rows) ** 3).astype(int)
    key = np.minimum(draw.zipf(1.4, rows), 5000)
    return pa.table({"user": [f"u{u}" for u in user], "url": [f"https://example.org/{k}" for k in key]})


def bounded(table: pa.Table, chosen: ReleaseParams) -> Histogram:
    """The bounded histogram by the library."""
    rows = Contributions.of(table["user"], table["url"], KEY, texts=chosen.delta != 0)
    return rows.bounded(Bounds(chosen.max_contributions, chosen.max_per_key))


def spec(chosen: ReleaseParams, **more: Any) -> ReleaseSpec:
    """The specification of a release whose stages draw under `KEY` itself, after users were counted."""
    made = ReleaseSpec.of(chosen, user="user", key="url", **more)
    return replace(made, params=with_nobody(made.params), release_key=KEY)


def planned(histogram: Histogram, chosen: ReleaseParams) -> PlannedRelease:
    """The library's plan for this histogram."""
    return plan_release(Survey.of(enumerate(histogram.shards())), spec(chosen))


def pieces(table: pa.Table, sizes: Sequence[int]) -> list[pa.RecordBatch]:
    """The table as batches of these sizes (the last takes the rest), each with memory of its own."""
    out, at = [], 0
    for size in (*sizes, table.num_rows):
        part = table.slice(at, size)
        at += part.num_rows
        if part.num_rows:
            copy = part.take(pa.array(np.arange(part.num_rows))).combine_chunks()
            out += copy.to_batches()
    return out


def same(one: Histogram, other: Histogram) -> None:
    """Equal in every respect."""
    assert one.fingerprints.tolist() == other.fingerprints.tolist()
    assert one.counts.tolist() == other.counts.tolist()
    assert (one.texts is None) == (other.texts is None)
    if one.texts is not None and other.texts is not None:
        assert one.texts.to_pylist() == other.texts.to_pylist()


def contents(path: str | Path) -> dict[str, bytes]:
    """Every file of a sketch."""
    return {file.name: file.read_bytes() for file in sorted(Path(path).iterdir())}


def release_by_command(folder: Path, table: pa.Table, privacy: str) -> tuple[str, Path]:
    """What ``hushgram release --check`` says of a config with this group `privacy`, and the sketch of a run of it."""
    from click.testing import CliRunner

    from hushgram.pipelines.cli import cli

    pq.write_table(table, folder / "views.parquet")
    config, target = folder / "release.yaml", folder / "command.sketch"
    config.write_text(
        f"release: toys\ninput: {{path: {folder}/views.parquet, user: user, key: url}}\n"
        f"privacy: {privacy}\nsizes: {{records: 2000, keys: 400}}\noutput: {{path: {target}}}\n"
    )
    checked = CliRunner().invoke(cli, ["release", str(config), "--check"], catch_exceptions=False)
    assert (checked.exit_code, target.exists()) == (0, False), checked.output
    run = CliRunner().invoke(cli, ["release", str(config), "--quiet"], catch_exceptions=False)
    assert run.exit_code == 0, run.output
    return checked.output, target


# In this process by name: a function that is pickled keeps the module, not a copy of its lists.
_FOUND: list[Any] = []


def _keep(elements: list[Any]) -> None:
    _FOUND.extend(elements)


def collect(build: Any, options: Sequence[str] = ()) -> list[Any]:
    """The elements of the collection that ``build(pipeline)`` makes, from the in-process runner."""
    _FOUND.clear()
    with beam.Pipeline(runner="FnApiRunner", options=PipelineOptions(list(options))) as pipeline:
        assert_that(build(pipeline), _keep)
    return list(_FOUND)


def words(count: int, seed: int = 3) -> NDArray[np.uint64]:
    """Sorted distinct fingerprints, all over the range."""
    draw = np.random.default_rng(seed)
    return np.unique(draw.integers(0, 1 << 64, count, dtype=np.uint64))
