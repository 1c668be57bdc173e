"""The Java and Go code of docs/pipeline.md: compiled, expanded by Beam's Python expansion service, and run."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import hushgram as hg
from tests.engines.conftest import REQUIRED
from tests.engines.jobs import contents
from tools.engines.flink import JobServer
from tools.engines.prism import Prism
from tools.engines.processes import Process, free_port
from tools.engines.provision import BEAM_MODULE, Engines, EnginesUnavailable, java_sdk, locked
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
GO_PROGRAM = """
func view(i int) View { return View{fmt.Sprintf("u%d", i%1000), fmt.Sprintf("/%d", i%7)} }

func show(row Estimate) { fmt.Println("row", row.Key, *row.Estimate) }

func init() {
	beam.RegisterFunction(view)
	beam.RegisterFunction(show)
}

func main() {
	flag.Parse()
	beam.Init()
	pipeline, s := beam.NewPipelineWithRoot()
	numbers := make([]int, 3000)
	for i := range numbers {
		numbers[i] = i
	}
	beam.ParDo0(s, show, estimates(s, beam.ParDo(s, view, beam.CreateList(s, numbers))))
	if err := beamx.Run(context.Background(), pipeline); err != nil {
		panic(err)
	}
	fmt.Println("state DONE")
}
"""


@contextmanager
def expansion_service(python: Path, options: list[str], work: Path) -> Iterator[int]:
    """Beam's expansion service as documented; its port."""
    port = free_port()
    command = [
        str(python), "-W", "ignore", "-m", "apache_beam.runners.portability.expansion_service_main",
        f"--port={port}", "--fully_qualified_name_glob=hushgram.transforms.*", *options,
    ]  # fmt: skip
    service = Process("expansion service", command, work / "service.log", cwd=work)
    try:
        service.wait_for_port(port, 60)
        yield port
    finally:
        service.stop()


def documented(language: str, changes: dict[str, str]) -> str:
    """The code of the page, with what has another value here."""
    (snippet,) = re.findall(rf"```{language}\n(.*?)\n```", DOCUMENT.read_text(), re.DOTALL)
    for there, here in changes.items():
        assert there in snippet
        snippet = snippet.replace(there, here)
    return snippet


def endpoint(options: list[str]) -> str:
    return next(option for option in options if "job_endpoint" in option).partition("=")[2]


def check(folder: Path, printed: str) -> None:
    """Compare sketch and printed rows with those of the library."""
    table = pa.table(
        {"user": [f"u{i % 1000}" for i in range(3000)], "url": [f"/{i % 7}" for i in range(3000)]}
    )
    chosen = hg.ReleaseParams(epsilon="1", delta="1e-6", max_contributions=8)
    sketch = hg.release(table["user"], table["url"], chosen, folder / "library", release_key=KEY)
    assert contents(folder / "urls.sketch") == contents(folder / "library")
    rows = [line.split()[1:] for line in printed.splitlines() if line.startswith("row ")]
    heavy = sketch.heavy().to_pylist()
    assert len(heavy) > 1
    assert sorted((key, float(value)) for key, value in rows) == sorted(
        (row["key"], float(row["value"])) for row in heavy
    )


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
    with expansion_service(engines.python, pools.local_options, tmp_path) as port:
        places = {
            "localhost:8097": f"localhost:{port}",
            "gs://bucket/urls.sketch": str(tmp_path / "urls.sketch"),
        }
        snippet = documented("java", places) + f'.withKwarg("release_key", "{tmp_path}/key")'
        (tmp_path / "Views.java").write_text(PROGRAM.replace("SNIPPET", snippet))
        compiled = subprocess.run(
            [javac, "-cp", f"{jars}/*", "Views.java"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert compiled.returncode == 0, compiled.stderr
        done = subprocess.run(
            [java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{tmp_path}:{jars}/*", "Views",
             "--runner=PortableRunner", f"--jobEndpoint={endpoint(prism.options)}"],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    assert "state DONE" in done.stdout, done.stdout + done.stderr
    check(tmp_path, done.stdout)


def test_the_documented_go_code(
    engines: Engines, pools: WorkerPools, job_server: JobServer, tmp_path: Path
) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("no go on the path: the code is compiled")
    (tmp_path / "key").write_text(KEY.hex())
    with expansion_service(engines.python, pools.options, tmp_path) as port:
        places = {
            "localhost:8097": f"localhost:{port}",
            "gs://bucket/urls.sketch": str(tmp_path / "urls.sketch"),
            '`beam:"output"`': '`beam:"output"`\n\tReleaseKey string `beam:"release_key"`',
            '"rows"}': f'"rows", "{tmp_path}/key"}}',
            'import (\n\t"context"': 'import (\n\t"context"\n\t"flag"\n\t"fmt"',
            'xlang/python"\n': f'xlang/python"\n\t"{BEAM_MODULE}/go/pkg/beam/x/beamx"\n',
        }
        (tmp_path / "main.go").write_text(documented("go", places) + GO_PROGRAM)
        (tmp_path / "go.mod").write_text(
            f"module views\n\ngo 1.24\n\nrequire {BEAM_MODULE} v{locked('apache-beam')}\n"
        )
        for command in (["mod", "tidy"], ["build", "-o", "views", "."]):
            built = subprocess.run(
                [go, *command], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
            )
            assert built.returncode == 0, built.stderr
        done = subprocess.run(
            [str(tmp_path / "views"), "--runner=universal", f"--endpoint={endpoint(job_server.options)}",
             "--environment_type=LOOPBACK"],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    assert "state DONE" in done.stdout, done.stdout + done.stderr
    check(tmp_path, done.stdout)
