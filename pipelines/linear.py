"""The job of ``hushgram linear randomize``: records in, a released table of randomized responses out.

    job = LinearJob(load_config("configs/survey.yaml", [], LinearConfig))
    run_linear(job, path="out/survey", secret=key)

    read an item ─► flip secret bits ─► write its part      (one step, on the worker that reads)
    all parts ─► manifest                                   (last)

For one release key and one input the table has the same bytes on every runner and worker count.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from hushgram.accounting import Event
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.linear_config import LinearConfig
from hushgram.pipelines.progress import run_pipeline
from hushgram.pipelines.runners import new_pipeline, pipeline_options
from hushgram.pipelines.source import plan_config
from hushgram.randomized_response.mechanism import RandomizedResponseParams
from hushgram.randomized_response.table import manifest_text
from hushgram.transforms.randomize_responses import RandomizeResponses, Secret

__all__ = ["LinearJob", "run_linear"]


@dataclass(frozen=True)
class LinearJob:
    """A config made exact: what it costs, and what the ledger writes down."""

    config: LinearConfig

    @property
    def events(self) -> list[Event]:
        """What the ledger charges: one randomized response for each secret bit."""
        params = self.config.params()
        return [Event("rr", params.bit_epsilon, details={"secret": name}) for name in self.config.secrets]

    @property
    def parameters(self) -> dict[str, Any]:
        """All public choices that can change the output."""
        return {
            "privacy": {"epsilon": self.config.privacy.epsilon},
            "secrets": {name: secret.model_dump() for name, secret in self.config.secrets.items()},
            "public": list(self.config.public),
        }


def run_linear(
    job: LinearJob,
    *,
    path: str | Path,
    release_key: ReleaseKey,
    options: PipelineOptions | None = None,
    quiet: bool = True,
) -> Any:
    """Runs the job and writes the table under ``path``; returns Beam's result."""
    config = job.config
    options = pipeline_options(workers=config.workers) if options is None else options
    secrets = [
        Secret(
            name,
            held.column,
            held.equals,
            None if held.at_least is None else float(held.at_least),
            held.condition(),
        )
        for name, held in config.secrets.items()
    ]
    read = dict.fromkeys([*(column for held in secrets for column in held.columns), *config.public])
    plan = plan_config(config.input, read)
    params = config.params()
    pipeline = new_pipeline(options)
    _ = (
        pipeline
        | "RandomizeResponses"
        >> RandomizeResponses(plan, secrets, config.public, params, path=str(path), release_key=release_key)
        | "WriteManifest"
        >> beam.Map(_write_manifest, str(path), params, list(config.secrets), list(config.public))
    )
    return run_pipeline(pipeline, options, title=config.job_name, total_bytes=plan.bytes, quiet=quiet)


def _write_manifest(
    parts: dict[str, dict[str, Any]],
    path: str,
    params: RandomizedResponseParams,
    secrets: list[str],
    public: list[str],
) -> str:
    text = manifest_text(params, secrets=secrets, public=public, parts=parts)
    with FileSystems.create(FileSystems.join(path, "manifest.json"), mime_type="text/plain") as sink:
        sink.write(text.encode())
    return path
