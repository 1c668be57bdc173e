"""Ready for Dataflow, as far as that can be shown without a cloud.

The job is built with Dataflow's options and gs:// paths, in and out, and its portable form is opened:
nothing in it may name this machine, its main module or the release key outside the code that needs it.
That the workers can load all of it from the wheel alone is shown in test_wheel.py; that Google runs it is
not shown here.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions, WorkerOptions
from apache_beam.transforms.environments import DockerEnvironment

from hushgram import InteractiveKey, ReleaseKey, ReleaseParams, release
from hushgram.accounting import Budget
from hushgram.errors import ParameterError
from hushgram.inputs.source import Source
from hushgram.ledger import Ledger
from hushgram.mechanisms.svt.params import SvtParams
from hushgram.pipelines.jobs.release import run_release
from hushgram.pipelines.run.beam_runners import hint_memory, new_pipeline, pipeline_options
from hushgram.pipelines.run.job_runner import check_job, load_job
from hushgram.sparse_histogram.spec import ReleaseSpec
from hushgram.transforms.read_records import ReadRecords, plan_records
from hushgram.transforms.release_sparse_histogram import ReleaseSparseHistogram
from hushgram.transforms.sparse_vector import SparseVector
from tests.engines.fake_store import FakeStore
from tests.engines.jobs import contents
from tests.engines.proto import payloads, pickles

ROOT = Path(__file__).resolve().parents[2]
SECRET = ReleaseKey(bytes(range(100, 132)))
DATAFLOW = [
    "--runner=DataflowRunner",
    "--project=a-project",
    "--region=europe-west1",
    "--job_name=urls",
    "--temp_location=gs://bucket/tmp",
    "--staging_location=gs://bucket/staging",
    "--sdk_container_image=europe-docker.pkg.dev/a-project/hushgram/worker:0.1.0",
    "--experiments=use_runner_v2",
]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """gs:// over a directory, with page views in gs://bucket/views/."""
    root = tmp_path / "store"
    monkeypatch.setattr(FakeStore, "root", str(root))
    (root / "bucket" / "views").mkdir(parents=True)
    for part in range(2):
        users = [f"u{i % 37}" for i in range(part * 300, part * 300 + 300)]
        urls = [f"/p/{i * i % 53}" for i in range(300)]
        table = pa.table({"user": users, "url": urls})
        pq.write_table(table, root / "bucket" / "views" / f"{part}.parquet")
    return root


def test_dataflow_is_told_how_much_memory_a_worker_needs() -> None:
    """One hint for all stages, so that they stay together; what the options say comes first; others get none."""
    options = pipeline_options(DATAFLOW)
    hint_memory(options, 10 * 10**12, None)
    pipeline = new_pipeline(options)
    _ = (
        pipeline
        | beam.Create([("ann", "/a")])
        | ReleaseSparseHistogram(
            ReleaseParams(epsilon="1", max_contributions=3), user="user", key="url", path="/tmp/none.sketch"
        )
    )
    environments = pipeline.to_runner_api().components.environments.values()
    (hints,) = [
        dict(environment.resource_hints) for environment in environments if environment.resource_hints
    ]
    (memory,) = map(int, hints.values())
    assert 130 * 10**12 / 65_536 < memory < 200 * 10**12 / 65_536
    given = pipeline_options([*DATAFLOW, "--resource_hint=min_ram=9GB"])
    hint_memory(given, 10**12, None)
    assert given.view_as(StandardOptions).resource_hints == ["min_ram=9GB"]
    local = pipeline_options()
    hint_memory(local, 10**12, None)
    assert not local.view_as(StandardOptions).resource_hints


def build(options: PipelineOptions) -> Any:
    """The portable form of a release and of an online stream in one pipeline."""
    plan = plan_records(["gs://bucket/views/*.parquet"], Source(ids=("user", "url")))
    params = ReleaseParams(epsilon="1", max_contributions=3)
    job = ReleaseSparseHistogram(
        params, user="user", key="url", path="gs://bucket/out.sketch", release_key=SECRET, name="urls"
    )
    pipeline = new_pipeline(options)
    _ = pipeline | "Read" >> ReadRecords(plan) | "Release" >> job
    answers = pipeline | beam.Create([("s", (0, 5))]).with_output_types(tuple[str, tuple[int, int]])
    svt = SvtParams(epsilon="1", threshold=3, cutoff=2)
    _ = answers | "Online" >> SparseVector(
        {"s": svt}, release_key=InteractiveKey(bytes.fromhex(SECRET.hex())), online=True
    )
    # As Dataflow's runner makes it: the image of the options, workers that know the SDK's capabilities.
    image = options.view_as(WorkerOptions).sdk_container_image
    return pipeline.to_runner_api(default_environment=DockerEnvironment.from_container_image(image))


@pytest.fixture
def proto(store: Path) -> Any:
    return build(pipeline_options(DATAFLOW))


def test_the_portable_form_builds(proto: Any) -> None:
    names = {t.unique_name for t in proto.components.transforms.values()}
    assert any("Release/Encode" in name for name in names)
    assert len(dict(payloads(proto))) > 15
    images = [e.payload for e in proto.components.environments.values()]
    assert any(b"hushgram/worker:0.1.0" in image for image in images)


def test_no_local_path_and_no_main_module(proto: Any, tmp_path: Path) -> None:
    here = {str(ROOT), os.getcwd(), str(Path.home()), tempfile.gettempdir(), str(tmp_path), sys.prefix}
    for name, payload in payloads(proto):
        inside = pickles(payload)
        assert b"__main__" not in inside, name
        assert b"tests.engines" not in inside, name
        data = re.sub(rb"[^\x00-\x20]*\.py", b"", inside)  # file names of code are for tracebacks alone
        for path in here - {"/"}:
            assert path.encode() not in data, (name, path)


def not_shown(proto: Any, key: bytes, text: str) -> None:
    for transform in proto.components.transforms.values():
        shown = b"".join(data.payload for data in transform.display_data)
        for public in (shown, transform.unique_name.encode()):
            assert key not in public
            assert text.encode() not in public
    assert text not in str(pipeline_options(DATAFLOW).get_all_options())


def test_the_key_is_in_the_code_alone(proto: Any) -> None:
    """It travels in the pickled stages, which the engine's operators can read; nowhere that is shown or
    logged."""
    bound = ReleaseSpec.of(
        ReleaseParams(epsilon="1", max_contributions=3), user="user", release_key=SECRET
    ).release_key
    code = b"".join(pickles(payload) for _, payload in payloads(proto))
    for release_key in (SECRET, bound):
        key, text = bytes.fromhex(release_key.hex()), release_key.hex()
        assert key in code
        not_shown(proto, key, text)
    assert bytes.fromhex(SECRET.hex()) not in proto.SerializeToString()  # payloads are packed


def test_a_release_from_store_to_store(store: Path) -> None:
    """The same bytes as the library, read from and written to an object store."""
    plan = plan_records(["gs://bucket/views/*.parquet"], Source(ids=("user", "url")))
    params = ReleaseParams(epsilon="1", max_contributions=3)
    run_release(
        params, plan, user="user", key="url", path="gs://bucket/out.sketch", release_key=SECRET, name="urls"
    )
    table = pq.read_table(store / "bucket" / "views")
    release(table["user"], table["url"], params, store / "library", release_key=SECRET, name="urls")
    assert contents(store / "bucket" / "out.sketch") == contents(store / "library")


def test_templates_are_refused_before_anything_is_charged() -> None:
    given = [*DATAFLOW, "--template_location=gs://bucket/template"]
    with pytest.raises(ParameterError, match="templates cannot publish"):
        pipeline_options(given)


def test_the_config_is_checked_as_documented(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`hushgram release configs/dataflow.yaml --check` with the options of its header, up to the graph of the job."""
    monkeypatch.chdir(tmp_path)
    day = store / "logs/pageviews/2026-11-15"
    day.mkdir(parents=True)
    pq.write_table(
        pa.table({"user_id": [f"u{i % 37}" for i in range(300)], "url": ["/a"] * 300}), day / "0.parquet"
    )
    url = "sqlite:///ledger.db"
    with Ledger.create(url) as ledger:
        ledger.add_dataset("pageviews", Budget(1))
    config = ROOT / "configs/dataflow.yaml"
    shown = re.findall(r"--\w+=\S+", config.read_text().partition("# The tests")[0])
    names = {"PROJECT": "a-project", "REGION": "europe-west1", "BUCKET": "bucket", "REGISTRY": "docker.io"}
    options = [re.sub("|".join(names), lambda match: names[match[0]], option) for option in shown]
    assert "--runner=DataflowRunner" in options
    check_job(load_job("release", config, [f"ledger={url}"], "2026-11-15"), options)
    said = capsys.readouterr().out
    assert "gs://sketches/urls-2026-11-15.sketch" in said
    assert "1 file (parquet)" in said
    assert "it fits" in said
    assert said.rstrip().endswith("ok: nothing was run and no budget was spent")
