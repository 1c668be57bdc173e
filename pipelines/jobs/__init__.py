"""The jobs: one module each, and one line here.

A module's `JOB` is a subclass of `hushgram.pipelines.jobs.job.Job`. Everything else about running it is the same for
all: the command, `--check`, ledger, progress, logs, metrics and output formats (`hushgram.pipelines.run.job_runner`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgram.pipelines.jobs.job import Job

__all__ = ["JOBS", "job_class"]

#: name at the command line → (module, what it does in one line)
JOBS = {
    "release": (
        "hushgram.pipelines.jobs.release",
        "Release a histogram over a huge key domain as a differentially private sketch.",
    ),
    "metrics": (
        "hushgram.pipelines.jobs.metrics",
        "Release several metrics, such as visits and bytes, from one pass over the data.",
    ),
    "sparse-vector": (
        "hushgram.pipelines.jobs.sparse_vector",
        "Find which queries of a stream exceed a threshold (sparse vector technique).",
    ),
    "clip": (
        "hushgram.pipelines.jobs.clip",
        "Release a clipping bound, sum, count and average of a numeric column.",
    ),
    "answer": (
        "hushgram.pipelines.jobs.answer",
        "Answer many linear queries by private multiplicative weights.",
    ),
    "randomized-response": (
        "hushgram.pipelines.jobs.randomized_response",
        "Randomize secret bits where they are read (local model), and query the result.",
    ),
    "bounds": (
        "hushgram.pipelines.jobs.bounds",
        "Suggest contribution bounds for a release, from private quantiles over users.",
    ),
    "top": ("hushgram.pipelines.jobs.top", "Choose the most frequent keys of a public list."),
}


def job_class(name: str) -> type[Job[Any]]:
    """Return the job with a name; import its module, which imports no Beam."""
    found: type[Job[Any]] = import_module(JOBS[name][0]).JOB
    return found
