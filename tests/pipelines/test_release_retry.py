"""A worker that fails on its first tries changes no byte: noise is a function, not an event."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from hushgram.inputs import Source
from hushgram.pipelines.release import build_release, run_release
from hushgram.pipelines.runners import pipeline_options
from hushgram.release_in_memory import release
from hushgram.transforms import bound_contributions as bounding
from hushgram.transforms import encode_counts as projection
from hushgram.transforms import merge_histograms as histogram
from hushgram.transforms import plan_release as sizing
from hushgram.transforms import read_records as records
from hushgram.transforms import release_threshold as threshold
from hushgram.transforms import write_sketch as sketch_sink
from hushgram.transforms.read_records import ReadRecords, plan_records
from hushgram.transforms.shuffle import combining
from hushgram.transforms.shuffle.batching import LocalResources
from tests.pipelines.retries import RetryingRunner, failing
from tests.transforms.releases import KEY, contents, params
from tests.transforms.releases import records as make_records

TABLE = make_records(2500, users=100)
METHODS = [
    (records._ReadItem, "process"),
    (bounding._CutUsers, "process"),
    (bounding._CutUsers, "finish_bundle"),
    (combining._Combine, "process"),
    (histogram._Split, "process"),
    (sizing._Survey, "process"),
    (sizing.PlanFromSurveys, "extract_output"),
    (threshold._Release, "process"),
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


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_failing_workers_change_no_byte(delta: str, folder: Path) -> None:
    """Every stage fails in one try of two or so, before or after it has sent its results; see `retries`."""
    chosen = params(delta)
    release(TABLE["user"], TABLE["url"], chosen, folder / "library", release_key=KEY)
    plan = plan_records([f"{folder}/*.parquet"], Source(ids=("user", "url"), item_bytes=1))
    spill = folder / "spill"
    spill.mkdir()
    step = build_release(
        chosen,
        plan,
        user="user",
        key="url",
        path=folder / "job",
        release_key=KEY,
        local=LocalResources(2, str(spill)),
    )
    runner = RetryingRunner()
    pipeline = beam.Pipeline(runner, PipelineOptions())
    pipeline | ReadRecords(plan) | step
    with failing(METHODS) as failed:
        pipeline.run().wait_until_finish()
    assert {label.split(".")[0] for label in failed} == {owner.__name__ for owner, _ in METHODS}
    assert runner.failures >= len(METHODS)
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
