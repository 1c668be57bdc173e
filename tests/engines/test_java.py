"""The Java code of docs/pipeline.md: compiled, expanded by Beam's Python expansion service, and run on Prism."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

import hushgram as hg
from tests.engines.conftest import REQUIRED
from tests.engines.jobs import contents
from tools.engines.prism import Prism
from tools.engines.processes import Process, free_port
from tools.engines.provision import Engines, EnginesUnavailable, java_sdk
from tools.engines.workers import WorkerPools

pytestmark = pytest.mark.engine
KEY = hg.ReleaseKey(bytes(range(32)))
DOCUMENT = Path(__file__).resolve().parents[2] / "docs/pipeline.md"
# The stages of the Java SDK run in this process. LOOPBACK is the same, but has no address before the pipeline runs, and
# the expansion service has to be told one.
PROGRAM = """
import java.util.ArrayList;
import java.util.List;
import org.apache.beam.fn.harness.ExternalWorkerService;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.extensions.python.PythonExternalTransform;
import org.apache.beam.sdk.fn.server.GrpcFnServer;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.options.PortablePipelineOptions;
import org.apache.beam.sdk.schemas.Schema;
import org.apache.beam.sdk.transforms.Create;
import org.apache.beam.sdk.transforms.DoFn;
import org.apache.beam.sdk.transforms.ParDo;
import org.apache.beam.sdk.values.PCollection;
import org.apache.beam.sdk.values.Row;

public class Views {
  static class Print extends DoFn<Row, Void> {
    @ProcessElement
    public void process(@Element Row row) {
      System.out.println("row " + row.getString("key") + " " + row.getDouble("estimate"));
    }
  }

  public static void main(String[] args) throws Exception {
    PortablePipelineOptions options = PipelineOptionsFactory.fromArgs(args).as(PortablePipelineOptions.class);
    GrpcFnServer<ExternalWorkerService> workers = new ExternalWorkerService(options).start();
    options.setDefaultEnvironmentType("EXTERNAL");
    options.setDefaultEnvironmentConfig(workers.getApiServiceDescriptor().getUrl());
    Pipeline pipeline = Pipeline.create(options);
    Schema schema = Schema.builder().addStringField("user_id").addStringField("url").build();
    List<Row> visits = new ArrayList<>();
    for (int i = 0; i < 3000; i++) {
      visits.add(Row.withSchema(schema).addValues("u" + i % 1000, "/" + i % 7).build());
    }
    PCollection<Row> views = pipeline.apply(Create.of(visits).withRowSchema(schema));
    views.apply(
        SNIPPET
    ).apply(ParDo.of(new Print()));
    System.out.println("state " + pipeline.run().waitUntilFinish());
    System.exit(0);
  }
}
"""


def test_the_documented_java_code(engines: Engines, pools: WorkerPools, prism: Prism, tmp_path: Path) -> None:
    javac, java = shutil.which("javac"), shutil.which("java")
    try:
        jars = java_sdk()
    except EnginesUnavailable as problem:
        (pytest.fail if REQUIRED else pytest.skip)(str(problem))
    assert java is not None
    if javac is None:
        pytest.skip("no javac on the path: the code is compiled")
    (tmp_path / "key").write_text(KEY.hex())
    path, port = tmp_path / "urls.sketch", free_port()
    (snippet,) = re.findall(r"```java\n(.*?)\n```", DOCUMENT.read_text(), re.DOTALL)
    changes = {"localhost:8097": f"localhost:{port}", "gs://bucket/urls.sketch": str(path)}
    for documented, here in changes.items():
        assert documented in snippet
        snippet = snippet.replace(documented, here)
    snippet += f'.withKwarg("release_key", "{tmp_path}/key")'
    (tmp_path / "Views.java").write_text(PROGRAM.replace("SNIPPET", snippet))
    compiled = subprocess.run(
        [javac, "-cp", f"{jars}/*", "Views.java"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert compiled.returncode == 0, compiled.stderr
    command = [
        str(engines.python), "-W", "ignore", "-m", "apache_beam.runners.portability.expansion_service_main",
        f"--port={port}", "--fully_qualified_name_glob=hushgram.transforms.*", *pools.local_options,
    ]  # fmt: skip
    service = Process("expansion service", command, tmp_path / "service.log", cwd=tmp_path)
    try:
        service.wait_for_port(port, 60)
        endpoint = next(o for o in prism.options if "job_endpoint" in o).partition("=")[2]
        done = subprocess.run(
            [java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{tmp_path}:{jars}/*", "Views",
             "--runner=PortableRunner", f"--jobEndpoint={endpoint}"],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    finally:
        service.stop()
    assert "state DONE" in done.stdout, done.stdout + done.stderr
    table = pa.table(
        {"user": [f"u{i % 1000}" for i in range(3000)], "url": [f"/{i % 7}" for i in range(3000)]}
    )
    chosen = hg.ReleaseParams(epsilon="1", delta="1e-6", max_contributions=8)
    sketch = hg.release(table["user"], table["url"], chosen, tmp_path / "library", release_key=KEY)
    assert contents(path) == contents(tmp_path / "library")
    rows = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("row ")]
    heavy = sketch.heavy().to_pylist()
    assert len(heavy) > 1
    assert sorted(rows) == sorted([row["key"], f"{float(row['value'])}"] for row in heavy)
