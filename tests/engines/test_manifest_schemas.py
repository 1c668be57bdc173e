"""The Kubernetes manifests against the schemas of Kubernetes and of the Flink operator, without unknown fields."""

from __future__ import annotations

import copy
import json
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from tests.engines.conftest import REQUIRED
from tests.pipelines.test_manifests import documents
from tools.engines.provision import EnginesUnavailable, manifest_schemas

pytestmark = pytest.mark.engine
NAMES = {
    "CronJob": "cronjob-batch-v1", "Deployment": "deployment-apps-v1", "Service": "service-v1",
    "NetworkPolicy": "networkpolicy-networking-v1",
}  # fmt: skip
VERSIONS = (
    "1.31.0",
    "1.37.0",
)  # the first whose jobs have a failure policy without a feature gate, and the newest


@pytest.fixture(scope="module")
def schemas() -> Path:
    if not REQUIRED:
        pytest.skip("schemas are downloaded: run `make test-flink`")
    try:
        return manifest_schemas()
    except EnginesUnavailable as problem:
        pytest.fail(str(problem), pytrace=False)


def of_kubernetes(schemas: Path, version: str, kind: str) -> jsonschema.Draft7Validator:
    root = f"kubernetes_validate/kubernetes-json-schema/v{version}-local-strict"
    with zipfile.ZipFile(next(schemas.glob("*.whl"))) as wheel:
        definitions, schema = (
            json.loads(wheel.read(f"{root}/{n}.json")) for n in ("_definitions", NAMES[kind])
        )
    registry = Registry().with_resource("_definitions.json", Resource(definitions, DRAFT7))
    return jsonschema.Draft7Validator(schema, registry=registry)


def of_flink(schemas: Path) -> jsonschema.Draft7Validator:
    with zipfile.ZipFile(next(schemas.glob("*.jar"))) as jar:
        text = jar.read("META-INF/fabric8/flinkdeployments.flink.apache.org-v1.yml")
    definition = yaml.load(text, yaml.CSafeLoader)
    (version,) = definition["spec"]["versions"]
    schema = strict(version["schema"]["openAPIV3Schema"])
    schema["properties"] |= {
        "apiVersion": {"const": f"flink.apache.org/{version['name']}"},
        "kind": {},
        "metadata": {},
    }
    return jsonschema.Draft7Validator(schema)


def strict(schema: Any) -> Any:
    """The same where the server would drop fields that it does not know: they are errors."""
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        strict(inner)
    if (
        isinstance(schema, dict)
        and "properties" in schema
        and not schema.get("x-kubernetes-preserve-unknown-fields")
    ):
        schema.setdefault("additionalProperties", False)
    return schema


@pytest.mark.parametrize("document", documents(), ids=lambda one: one["kind"])
def test_manifests_have_the_fields_that_the_servers_know(document: dict[str, Any], schemas: Path) -> None:
    if document["kind"] == "FlinkDeployment":
        validators = [of_flink(schemas)]
    else:
        validators = [of_kubernetes(schemas, version, document["kind"]) for version in VERSIONS]
    wrong = copy.deepcopy(document)
    wrong["spec"]["notAField"] = 1
    for validator in validators:
        assert not [error.message for error in validator.iter_errors(document)]
        assert not validator.is_valid(wrong)
