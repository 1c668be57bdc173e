"""`hushgram check`: configs offline, and the JSON Schema of every config that is shipped."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hushgram.pipelines.cli import cli
from hushgram.pipelines.commands.check import jobs_with_schema, schema_of
from hushgram.pipelines.config.document import read_document
from tests.pipelines.all_jobs import JOBS as EVERY_JOB

ROOT = Path(__file__).parents[3]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


def check(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["check", *arguments])


def test_all_configs_are_valid_without_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = check("--offline", *map(str, CONFIGS))
    assert done.exit_code == 0, done.output
    assert done.output.count("ok: the config is valid") == len(CONFIGS)
    assert list(tmp_path.iterdir()) == []


def test_the_words_are_those_of_the_dry_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hushgram.pipelines.run.job_runner import job_lines, load_job

    monkeypatch.chdir(tmp_path)
    said = " ".join(check(str(ROOT / "configs/urls.yaml"), "--offline").output.split())
    lines = list(job_lines(load_job("release", ROOT / "configs/urls.yaml")))
    assert lines
    assert all(" ".join(f"{name} {text}".split()) in said for name, text in lines)


def test_mistakes_are_named_for_each_config(tmp_path: Path) -> None:
    good = (ROOT / "configs/urls.yaml").read_text()
    (tmp_path / "good.yaml").write_text(good)
    (tmp_path / "typo.yaml").write_text(good.replace("epsilon", "epsilom"))
    (tmp_path / "none.yaml").write_text("input: {path: a, key: b}\n")
    done = check(*(str(tmp_path / f"{name}.yaml") for name in ("typo", "good", "none")), "--offline")
    assert done.exit_code == 2
    assert "privacy.epsilom is not a field of this config; did you mean epsilon?" in done.output
    assert "none.yaml names no job" in done.output
    assert done.output.count("ok:") == 1


# JSON Schema, as far as pydantic's schemas use it


def violations(value: Any, schema: Any, root: Any, where: str = "") -> list[str]:
    if "$ref" in schema:
        return violations(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root, where)
    for rule in ("anyOf", "oneOf"):
        if rule in schema:
            tried = [violations(value, one, root, where) for one in schema[rule]]
            return [] if [] in tried else min(tried, key=len)
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(TYPES[kind](value) for kind in kinds):
        return [f"{where}: {value!r} is not {kinds}"]
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: {value!r} is not in {schema['enum']}")
    if isinstance(value, dict):
        known, extra = schema.get("properties", {}), schema.get("additionalProperties", True)
        found += [f"{where}: {name} is missing" for name in schema.get("required", ()) if name not in value]
        for name, inner in value.items():
            if name in known:
                found += violations(inner, known[name], root, f"{where}.{name}")
            elif extra is False:
                found.append(f"{where}: {name} is not known")
            elif isinstance(extra, dict):
                found += violations(inner, extra, root, f"{where}.{name}")
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        found += [line for one in value for line in violations(one, schema["items"], root, f"{where}[]")]
    return found


def _number(value: Any) -> bool:
    return not isinstance(value, bool | str | dict | list | None)


TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": _number,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_each_config_names_its_schema_and_keeps_it(config: Path) -> None:
    named = re.match(r"# yaml-language-server: \$schema=(schemas/([a-z-]+)\.json)\n", config.read_text())
    assert named
    schema = json.loads((config.parent / named[1]).read_text())
    data = read_document(config).data
    assert named[2].replace("-", "_") in data
    assert violations(data, schema, schema) == []
    assert violations({**data, "privcay": {}}, schema, schema) == [": privcay is not known"]
    assert violations({**data, "privacy": {**data["privacy"], "epsilon": []}}, schema, schema)


@pytest.mark.parametrize("job", jobs_with_schema())
def test_shipped_schemas_are_those_of_the_program(job: str) -> None:
    printed = check("--schema", job).output
    assert (ROOT / f"configs/schemas/{job}.json").read_text() == printed, f"hushgram check --schema {job} > …"
    assert json.loads(printed) == schema_of(job)


def test_a_schema_accepts_what_its_job_accepts(tmp_path: Path) -> None:
    for job, (_, text, _) in EVERY_JOB.items():
        (tmp_path / "c.yaml").write_text(text)
        schema = schema_of(job)
        assert violations(read_document(tmp_path / "c.yaml").data, schema, schema) == [], job


def test_an_unknown_job_has_no_schema() -> None:
    done = check("--schema", "relase")
    assert done.exit_code != 0
