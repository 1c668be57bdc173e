"""``--check``, the same for every job: the way of a run up to its first draw of noise.

Config, files that it names, budget, inputs (opened, first blocks parsed), columns and types, the output's place and
the stages themselves: whatever would stop the run stops the check, with the same message and exit code. Nothing is
drawn, spent or left behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hushgram.inputs import InputPlan
from hushgram.noise.entropy import ReleaseKey
from hushgram.numbers import show
from hushgram.pipelines.console import say
from hushgram.pipelines.jobs.job import Job, Line
from hushgram.pipelines.logs import check_writable
from hushgram.pipelines.run_directory import temporary_files_of_a_run
from hushgram.pipelines.table_output import human_bytes, print_lines

__all__ = ["check_job"]


def check_job(
    job: Job[Any],
    beam_options: Iterable[str] = (),
    *,
    style: str = "table",
    output: str | None = None,
    metrics: str | None = None,
) -> None:
    """Prints guarantee, parameters and what to expect; raises whatever a run would raise."""
    from hushgram.pipelines.runner import open_job_budget
    from hushgram.pipelines.runners import new_pipeline, pipeline_options
    from hushgram.transforms.shuffle.batching import LocalResources

    config = job.config
    check_writable("--metrics", metrics)
    check_writable("--output", output)
    with temporary_files_of_a_run():
        options = pipeline_options(list(beam_options), config.workers)
        told = open_job_budget(job).look()
        job.open_inputs()
        job.build(
            new_pipeline(options), f"{config.output.path}.check", ReleaseKey.generate(), LocalResources()
        )
        lines = [*_about(job), ("ledger", told), *job.check_lines(), *_input_lines(job.source)]
        print_lines(lines, style, output)
    if style == "table":
        say("ok: nothing was run and no budget was spent")


def _about(job: Job[Any]) -> Iterator[Line]:
    guarantee = job.guarantee()
    yield job.config.NAME.replace("_", " "), job.name
    yield "guarantee", f"{guarantee.sentence()} {guarantee.meaning()}"
    yield "budget", ", ".join(f"{part.name} {show(part.epsilon)}" for part in guarantee.parts)
    yield "output", job.config.output.path
    yield "workers", str(job.config.workers)


def _input_lines(plan: InputPlan) -> Iterator[Line]:
    from hushgram.pipelines.progress import EXACT

    files = f"{len(plan.files):,} file{'s' if len(plan.files) != 1 else ''} ({', '.join(plan.formats)})"
    rows = f", {plan.rows:,} rows ({EXACT})" if plan.rows is not None else ""
    yield "input", f"{files}, {human_bytes(plan.bytes)}{rows}"
    yield "columns", ", ".join(f"{f.name} {getattr(f.type, 'value_type', f.type)}" for f in plan.schema)
