"""The Kubernetes manifests: known kinds with the fields that they need, and commands that the program accepts."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from hushgram.pipelines.cli import cli
from hushgram.pipelines.commands.job import job_command
from hushgram.pipelines.run.beam_runners import is_local, pipeline_options
from hushgram.pipelines.run.engine_jobs import runner_name

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "packaging/kubernetes"
KINDS = {
    "CronJob": "batch/v1", "Deployment": "apps/v1", "Service": "v1", "NetworkPolicy": "networking.k8s.io/v1",
    "FlinkDeployment": "flink.apache.org/v1beta1",
}  # fmt: skip
CONTAINER = {
    "name", "image", "command", "args", "env", "ports", "resources", "securityContext", "volumeMounts",
}  # fmt: skip


def documents() -> list[dict[str, Any]]:
    return [one for path in sorted(FOLDER.glob("*.yaml")) for one in yaml.safe_load_all(path.read_text())]


def of(kind: str) -> dict[str, Any]:
    [found] = [one for one in documents() if one["kind"] == kind]
    return found


@pytest.mark.parametrize("document", documents(), ids=lambda one: one["kind"])
def test_every_object_is_known(document: dict[str, Any]) -> None:
    assert set(document) == {"apiVersion", "kind", "metadata", "spec"}
    assert document["apiVersion"] == KINDS[document["kind"]]
    assert re.fullmatch("[a-z0-9-]+", document["metadata"]["name"])


def test_the_cron_job_runs_a_release_that_the_program_accepts() -> None:
    spec = of("CronJob")["spec"]
    assert set(spec) <= {
        "schedule", "timeZone", "concurrencyPolicy", "startingDeadlineSeconds", "jobTemplate", "suspend",
    }  # fmt: skip
    assert len(spec["schedule"].split()) == 5
    assert spec["concurrencyPolicy"] == "Forbid"
    job = spec["jobTemplate"]["spec"]
    assert set(job) <= {"backoffLimit", "podFailurePolicy", "template", "activeDeadlineSeconds"}
    pod = job["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # which podFailurePolicy requires
    assert pod["terminationGracePeriodSeconds"] > 60  # the launcher waits that long for a cancelled job
    [container] = pod["containers"]
    assert set(container) <= CONTAINER
    [rule] = job["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["containerName"] == container["name"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounted) == {volume["name"] for volume in pod["volumes"]}

    name, *arguments = container["args"]
    assert name in cli.list_commands(None)
    context = job_command(name).make_context(name, arguments)
    config = Path(context.params["config"])
    assert str(config.parent) == mounted["configs"]
    assert (ROOT / "configs" / config.name).exists()
    options = pipeline_options(context.params["beam_options"])
    assert runner_name(options) == "FlinkRunner"
    assert not is_local(options)
    every = options.get_all_options()
    flink, server = of("FlinkDeployment"), of("Service")
    assert every["flink_master"] == f"{flink['metadata']['name']}-rest:8081"
    ports = {port["name"]: port["port"] for port in server["spec"]["ports"]}
    assert every["job_endpoint"] == f"{server['metadata']['name']}:{ports['job']}"
    assert every["artifact_endpoint"] == f"{server['metadata']['name']}:{ports['artifact']}"
    named = {env["name"] for env in container["env"]}
    assert named <= {"HUSHGRAM_LEDGER", "HUSHGRAM_WRAP_KEY", "TMPDIR"}


def test_every_task_manager_has_a_worker_pool() -> None:
    spec = of("FlinkDeployment")["spec"]
    assert {
        "image",
        "flinkVersion",
        "serviceAccount",
        "flinkConfiguration",
        "jobManager",
        "taskManager",
    } == set(spec)
    assert spec["flinkVersion"] == f"v{spec['image'].removeprefix('flink:').replace('.', '_')}"
    main, pool = spec["taskManager"]["podTemplate"]["spec"]["containers"]
    assert main["name"] == "flink-main-container"  # the name that the operator looks for
    assert set(pool) <= CONTAINER
    assert pool["command"][:2] == ["python", "-m"]
    __import__(pool["command"][2])
    cron = of("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"]
    port = pool["args"][0].removeprefix("--port=")
    assert f"--environment_config=localhost:{port}" in cron
    cache = int(next(arg for arg in cron if "cache_millis" in arg).rpartition("=")[2])
    delay = spec["flinkConfiguration"]["restart-strategy.fixed-delay.delay"]
    assert int(delay.split()[0]) * 1000 > cache


def test_the_job_server_is_that_of_the_cluster_and_of_the_locked_beam() -> None:
    [server] = of("Deployment")["spec"]["template"]["spec"]["containers"]
    beam = re.search(r"^apache-beam==(\S+)", (ROOT / "requirements.lock").read_text(), re.M)[1]
    flink = of("FlinkDeployment")["spec"]["image"].removeprefix("flink:")
    assert server["image"] == f"apache/beam_flink{flink}_job_server:{beam}"
    labels = of("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert of("Service")["spec"]["selector"] == labels == of("Deployment")["spec"]["selector"]["matchLabels"]


def _locked(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if re.match(r"[A-Za-z0-9._-]+==", line))


def test_the_run_time_lock_is_a_part_of_the_other() -> None:
    every, runtime = _locked("requirements.lock"), _locked("requirements-runtime.lock")
    assert runtime.items() <= every.items()
    assert not runtime.keys() & {"pytest", "mypy", "polars", "opendp", "matplotlib", "playwright"}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [
        *extras["dependencies"],
        *(one for name in ("beam", "ledger", "postgres") for one in extras["optional-dependencies"][name]),
    ]
    names = {re.split(r"[\[>=]", one)[0].lower() for one in needed} - {"hushgram"}
    assert names <= {name.lower() for name in runtime}


@pytest.mark.parametrize("image", ["Dockerfile", "launcher.Dockerfile"])
def test_images_install_the_run_time_lock_and_extras_that_exist(image: str) -> None:
    text = (ROOT / "packaging" / image).read_text()
    assert set(re.findall(r"requirements[a-z-]*\.lock", text)) == {"requirements-runtime.lock"}
    [extras] = re.findall(r"\.whl\)\[([a-z,]+)\]", text)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= set(known)
    assert "postgres" in extras
