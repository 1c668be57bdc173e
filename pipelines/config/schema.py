"""JSON Schema of config files, for editors and for linters of repositories.

    hushgram check --schema release > release.json

A schema accepts every config that the job accepts. It does not know rules about several fields, nor conditions and key
expressions inside of texts: `hushgram check CONFIG --offline` checks these too.
"""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from hushgram.pipelines.jobs import JOBS, job_class

__all__ = ["config_schema", "jobs_with_schema"]


def jobs_with_schema() -> list[str]:
    """Return the jobs that have a config of their own."""
    return [job for job in JOBS if job_class(job).Config.NAME.replace("_", "-") == job]


def config_schema(job: str) -> dict[str, Any]:
    """Return the JSON Schema of the config of a job."""
    schema = job_class(job).Config.model_json_schema(schema_generator=_AsWritten)
    title, _, _ = JOBS[job][1].partition("\n")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": f"hushgram {job}",
        "description": title,
    }


class _AsWritten(GenerateJsonSchema):
    """Describe what may be written; a validator that runs first may accept more than the type of its field."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"non-serializable-default", "skipped-choice"}

    def function_before_schema(self, schema: Any) -> dict[str, Any]:
        if schema["schema"]["type"] not in ("model", "model-fields", "definition-ref"):
            return {}
        return dict(self.generate_inner(schema["schema"]))

    def function_wrap_schema(self, schema: Any) -> dict[str, Any]:
        return {}
