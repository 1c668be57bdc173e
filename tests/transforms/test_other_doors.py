"""The release in Beam YAML, and through Beam's Python expansion service as other languages call it: the same bytes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.transforms.external import ExternalTransform, ImplicitSchemaPayloadBuilder
from apache_beam.yaml import yaml_transform

import hushgram.transforms
from hushgram.release_in_memory import release
from hushgram.sketch.reader import Sketch
from tests.transforms.releases import KEY, SMALL, contents, params, records
from tools.engines.processes import Process, free_port

VIEWS = records(300, users=30)
INTERNAL = "https://example.org/2"
TRANSFORM = "hushgram.transforms.ReleaseSparseHistogram"


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, Any]:
    """Those of a release whose keys are named, in plain values."""
    (tmp_path / "key").write_text(KEY.hex())
    stated: dict[str, Any] = {"epsilon": "8", "delta": "1e-2", "max_contributions": 4}
    place = {"user": "user", "key": "url", "name": "urls", "path": str(tmp_path / "a.sketch")}
    stated["sizes"] = {"records": 2000, "keys": 400}
    return {**stated, **place, "release_key": str(tmp_path / "key"), "output": "rows"}


def by_library(tmp_path: Path, table: pa.Table) -> dict[str, bytes]:
    chosen = params("1e-2", epsilon="8", max_per_key=1, **SMALL)
    release(table["user"], table["url"], chosen, tmp_path / "library", release_key=KEY, name="urls")
    return contents(tmp_path / "library")


def test_a_yaml_pipeline(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """Parquet, a filter, the release, JSON: with the file of providers that the wheel ships."""
    pq.write_table(VIEWS, tmp_path / "views.parquet")
    providers = Path(hushgram.transforms.__path__[0]) / "hushgram-providers.yaml"
    steps = [
        {"type": "ReadFromParquet", "config": {"path": str(tmp_path / "views.parquet")}},
        {"type": "Filter", "config": {"language": "python", "keep": f"url != {INTERNAL!r}"}},
        {"type": "ReleaseSparseHistogram", "config": arguments},
        {"type": "WriteToJson", "config": {"path": str(tmp_path / "rows.json"), "num_shards": 1}},
    ]
    spec = {
        "providers": [{"include": str(providers)}],
        "pipeline": {"type": "chain", "transforms": steps},
    }
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        yaml_transform.expand_pipeline(pipeline, yaml.safe_dump(spec))
    table = VIEWS.filter(pa.array([url != INTERNAL for url in VIEWS["url"].to_pylist()]))
    assert contents(arguments["path"]) == by_library(tmp_path, table)
    rows = [json.loads(line) for line in (tmp_path / "rows.json-00000-of-00001").read_text().splitlines()]
    heavy = Sketch.open(arguments["path"]).heavy()
    assert len(rows) > 1
    assert [row["key"] for row in rows] == heavy["key"].to_pylist()
    assert set(rows[0]) == {"key", "estimate", "low", "high"}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[str]:
    """Beam's expansion service, as a process; its stages run in the process of the runner."""
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "apache_beam.runners.portability.expansion_service_main"]
    options = [f"--port={port}", "--fully_qualified_name_glob=hushgram.transforms.*"]
    embedded = ["--environment_type=beam:env:embedded_python:v1"]
    process = Process("expansion service", [*command, *options, *embedded], tmp_path / "service.log")
    try:
        process.wait_for_port(port, 60)
        yield f"localhost:{port}"
    finally:
        process.stop()


@pytest.mark.long
def test_the_expansion_service(tmp_path: Path, arguments: dict[str, Any], service: str) -> None:
    """What Java's and Go's PythonExternalTransform send: a constructor by name, and a row of arguments."""
    payload = ImplicitSchemaPayloadBuilder({"constructor": TRANSFORM, "kwargs": arguments})
    external = ExternalTransform("beam:transforms:python:fully_qualified_named", payload, service)
    pipeline = beam.Pipeline(runner="FnApiRunner")
    views = pipeline | beam.Create([beam.Row(**row) for row in VIEWS.to_pylist()])
    rows = views | external
    assert rows.element_type._fields == ("key", "estimate", "low", "high")
    pipeline.run().wait_until_finish()
    assert contents(arguments["path"]) == by_library(tmp_path, VIEWS)
