"""A worker that fails on its first tries changes no byte: noise is a function, not an event."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from hushgram.inputs import Source
from hushgram.pipelines.jobs.release import run_release
from hushgram.pipelines.run.beam_runners import pipeline_options
from hushgram.release_in_memory import release
from hushgram.sparse_histogram.params import Threshold
from hushgram.transforms import bound_contributions as bounding
from hushgram.transforms import encode_counts as projection
from hushgram.transforms import merge_histograms as histogram
from hushgram.transforms import plan_release as sizing
from hushgram.transforms import read_records as records
from hushgram.transforms import select_keys as threshold
from hushgram.transforms import weigh_keys as weights
from hushgram.transforms import write_sketch as sketch_sink
from hushgram.transforms.read_records import ReadRecords, plan_records
from hushgram.transforms.release_sparse_histogram import ReleaseSparseHistogram
from hushgram.transforms.shuffle import combining
from hushgram.transforms.shuffle.combining import LocalResources
from tests.pipelines.retries import RetryingRunner, failing
from tests.transforms.releases import KEY, contents, params
from tests.transforms.releases import records as make_records

TABLE = make_records(2500, users=100)
METHODS = [
    (records._ReadItem, "process"),
    (bounding._PruneBatches, "process"),
    (bounding._PruneBatches, "finish_bundle"),
    (combining._Combine, "process"),
    (histogram._Split, "process"),
    (sizing.ReleaseTotal, "extract_output"),
    (threshold._Select, "process"),
    (projection._Project, "process"),
    (projection._Release, "process"),
    (sketch_sink._WriteHeavy, "process"),
    (sketch_sink._WriteBlocks, "process"),
    (sketch_sink._Publish, "process"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(3):
        pq.write_table(
            TABLE.slice(i * 800, 800 if i < 2 else None), tmp_path / f"part-{i}.parquet", row_group_size=300
        )
    return tmp_path


WEIGHTED = [
    *(method for method in METHODS if method[0] is not threshold._Select),
    (weights._Keep, "process"),
    (weights._ReleaseRound, "process"),
]


@pytest.mark.parametrize(
    ("delta", "selection", "methods"),
    [("0", None, METHODS), ("1e-6", Threshold(), METHODS), ("1e-6", None, WEIGHTED)],
    ids=["fingerprints", "threshold", "weights"],
)
@pytest.mark.long
def test_failing_workers_change_no_byte(
    delta: str, selection: Threshold | None, methods: list, folder: Path
) -> None:
    """Every stage fails in one try of two or so, before or after it has sent its results; see `retries`."""
    chosen = params(delta, selection=selection)
    release(TABLE["user"], TABLE["url"], chosen, folder / "library", release_key=KEY)
    plan = plan_records([f"{folder}/*.parquet"], Source(ids=("user", "url"), item_bytes=1))
    spill = folder / "spill"
    spill.mkdir()
    step = ReleaseSparseHistogram(
        chosen,
        user="user",
        key="url",
        path=folder / "job",
        release_key=KEY,
        local=LocalResources(2, str(spill)),
    )
    runner = RetryingRunner()
    pipeline = beam.Pipeline(runner, PipelineOptions())
    pipeline | ReadRecords(plan) | step
    with failing(methods) as failed:
        pipeline.run().wait_until_finish()
    assert {label.split(".")[0] for label in failed} == {owner.__name__ for owner, _ in methods}
    assert runner.failures >= len(methods)
    assert contents(folder / "job") == contents(folder / "library")


def test_the_harness_fails_where_noise_is_drawn_afresh(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: with noise that is an event, a second computation shows."""
    from hushgram.noise.entropy import BitSource, ReleaseKey, os_entropy

    def fresh(self: ReleaseKey, step: str, shard: int = 0, digest: bytes = b"") -> BitSource:
        return os_entropy()

    monkeypatch.setattr(ReleaseKey, "source", fresh)
    plan = plan_records([f"{folder}/*.parquet"], Source(ids=("user", "url")))
    first = run_release(params(), plan, user="user", key="url", path=folder / "a", release_key=KEY)
    second = run_release(params(), plan, user="user", key="url", path=folder / "b", release_key=KEY)
    assert contents(first.path) != contents(second.path)


def test_every_bundle_computed_twice_changes_no_byte(folder: Path) -> None:
    """Beam's own option: each bundle is replayed, files are written and published, and then it runs once more."""
    release(TABLE["user"], TABLE["url"], params(), folder / "library", release_key=KEY)
    plan = plan_records([f"{folder}/*.parquet"], Source(ids=("user", "url")))
    options = pipeline_options(["--direct_runner_bundle_repeat=1"])
    run_release(params(), plan, user="user", key="url", path=folder / "job", release_key=KEY, options=options)
    assert contents(folder / "job") == contents(folder / "library")
