"""The wheel alone: its packages, and every function of a job loaded where nothing else is installed."""

from __future__ import annotations

import json
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

import hushgram
from hushgram.pipelines.run.beam_runners import pipeline_options
from tests.engines.jobs import Bench
from tests.engines.test_dataflow import DATAFLOW, build, store
from tools.engines.provision import Engines, build_wheel

__all__ = ["store"]  # a fixture

ROOT = Path(__file__).resolve().parents[2]

LOAD = """
import json, pathlib, sys
import apache_beam as beam
from apache_beam.coders.coders import deserialize_coder
from apache_beam.internal import pickler
from apache_beam.portability.api import beam_runner_api_pb2

proto = beam_runner_api_pb2.Pipeline.FromString(pathlib.Path(sys.argv[1]).read_bytes())
loaded = []
for transform in proto.components.transforms.values():
    if transform.spec.urn == "beam:transform:pardo:v1":
        fn = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload).do_fn
        if fn.urn != "beam:dofn:pickled_python_info:v1":  # one of Beam's own, by its name
            continue
        got = pickler.loads(fn.payload)
        loaded.append([transform.unique_name, type(got[0] if isinstance(got, tuple) else got).__module__])
    elif transform.spec.urn.startswith("beam:transform:combine"):
        fn = beam_runner_api_pb2.CombinePayload.FromString(transform.spec.payload).combine_fn
        beam.CombineFn.from_runner_api(fn, None)
        loaded.append([transform.unique_name, "combine"])
for coder in proto.components.coders.values():
    if coder.spec.urn == "beam:coder:pickled_python:v1":
        deserialize_coder(coder.spec.payload)
homes = sorted({m.__file__ for n, m in sys.modules.items() if n.startswith("hushgram") and m.__file__})
print(json.dumps({"loaded": loaded, "homes": homes, "path": sys.path}))
"""


def packages() -> set[str]:
    """Every package of the tree, by its import name."""
    found = {"hushgram.configs"}
    for folder, name in (
        ("core", "hushgram"),
        ("transforms", "hushgram.transforms"),
        ("pipelines", "hushgram.pipelines"),
    ):
        for init in (ROOT / folder).rglob("__init__.py"):
            inner = init.parent.relative_to(ROOT / folder).parts
            found.add(".".join((name, *inner)))
    return found


def test_the_project_file_names_every_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["tool"]["setuptools"]["packages"]) == packages()


def test_the_wheel_holds_every_module(tmp_path: Path) -> None:
    names = set(zipfile.ZipFile(build_wheel(tmp_path)).namelist())
    for folder, home in (
        ("core", "hushgram"),
        ("transforms", "hushgram/transforms"),
        ("pipelines", "hushgram/pipelines"),
    ):
        for module in (ROOT / folder).rglob("*.py"):
            assert f"{home}/{module.relative_to(ROOT / folder)}" in names
    assert not [name for name in names if name.startswith(("tests", "tools", "benchmarks"))]


@pytest.mark.engine
def test_every_function_loads_from_the_wheel_alone(engines: Engines, store: Path, tmp_path: Path) -> None:
    """What the portable form carries is opened by an interpreter that has the wheel and not the
    repository."""
    proto = build(pipeline_options(DATAFLOW))
    (tmp_path / "pipeline").write_bytes(proto.SerializeToString())
    (tmp_path / "load.py").write_text(LOAD)
    done = subprocess.run(
        [str(engines.python), "-I", str(tmp_path / "load.py"), str(tmp_path / "pipeline")],
        capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told["loaded"]) > 15
    assert {module for _, module in told["loaded"]} >= {
        "hushgram.transforms.write_sketch",
        "hushgram.transforms.sparse_vector",
    }
    assert told["homes"]
    assert all("site-packages/hushgram/" in home for home in told["homes"])
    assert not [path for path in told["path"] if path.startswith(str(ROOT))]


@pytest.mark.engine
def test_the_command_runs_from_the_wheel_alone(bench: Bench) -> None:
    assert hushgram.__version__ in bench.run(bench.command("--version"))
    sketch = bench.release("wheel")
    assert "manifest.json" in sketch
    bench.run(bench.command("verify", str(bench.root / "wheel.sketch")))
