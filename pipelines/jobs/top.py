"""``hushgram top``: the most frequent keys of a public list, or of a released sketch's, without their counts.

read ─► keep the list's keys ─► bound users ─► SelectTop ─► top.jsonl (a header, then one key per line)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from hushgram.accounting import Event
from hushgram.errors import ParameterError
from hushgram.mechanisms.domains import KeyDomain
from hushgram.mechanisms.selection import SelectionParams
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.pipelines.config.models import JobConfig, Name, refuse
from hushgram.pipelines.jobs.job import (
    Job,
    Line,
    LocalResources,
    Pipeline,
    heavy_domain,
    read_key_list,
    read_lines,
    write_lines,
)

__all__ = ["JOB", "TopConfig", "TopJob"]


# What the ledger calls each mechanism; the first was there before the others.
_EVENTS = {"permute_and_flip": "noisy_max", "exponential": "exponential", "noisy_max": "laplace_noisy_max"}


class TopConfig(JobConfig):
    """Choose the most frequent keys of a public list."""

    NAME: ClassVar[str] = "top"

    top: Name = Field(description="the name of this run, such as top-{date}")
    keys: str | None = Field(
        default=None, min_length=1, description="a file with one key per line: the public list"
    )
    sketch: str | None = Field(
        default=None, min_length=1, description="a released sketch: its heavy keys are the candidates"
    )
    count: int = Field(default=10, ge=1, le=100_000, description="how many keys to choose")
    mechanism: Literal["permute_and_flip", "exponential", "noisy_max"] | None = Field(
        default=None,
        description="default: permute_and_flip if delta is 0, exponential otherwise",
    )

    def params(self) -> SelectionParams:
        """Return the mechanism's parameters; one user moves a count by at most max_per_key, all in one direction."""
        return SelectionParams(
            self.privacy.epsilon,
            delta=self.privacy.delta,
            sensitivity=self.privacy.max_per_key,
            count=self.count,
            monotone=True,  # counts only grow when a user is added
            mechanism=self.mechanism or ("exponential" if self.privacy.delta else "permute_and_flip"),
        )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.keys is None) == (self.sketch is None):
            raise refuse(("keys",), "or sketch is needed, and not both")
        try:
            self.params()
        except ParameterError as problem:
            raise ValueError(str(problem)) from None
        return self


class TopJob(Job[TopConfig]):
    """Choose the most frequent keys of a list or of a sketch."""

    Config = TopConfig
    subject = "The chosen keys are"

    def resolve(self) -> None:
        config = self.config
        self.params = config.params()
        if config.sketch is not None:
            self.cells = heavy_domain(config.sketch, "sketch")[0]
        else:
            self.cells = KeyDomain.of(read_key_list(str(config.keys), "keys"))
        self.keys = self.cells.labels
        if config.count > len(self.keys):
            source = config.sketch or config.keys
            raise ParameterError(
                f"count must be at most the {len(self.keys)} keys of {source}, got {config.count}"
            )

    def events(self) -> list[Event]:
        details = {"count": str(self.params.count), "keys": str(len(self.keys))}
        kind = _EVENTS[self.params.mechanism]
        return [Event(kind, self.params.epsilon, self.params.delta, details=details, relation=self.unit)]

    def resolved(self) -> dict[str, Any]:
        return {"keys": digest(*self.keys).hex()}

    def build(self, pipeline: Pipeline, path: str, release_key: ReleaseKey, local: LocalResources) -> None:
        import apache_beam as beam

        from hushgram.transforms.count_domain import CountDomain
        from hushgram.transforms.release_domain import SelectTop

        _ = (
            self.bounded_cells(pipeline, self.cells, release_key, local)
            | "CountDomain" >> CountDomain(self.cells)
            | "SelectTop"
            >> SelectTop(self.keys, self.params, release_key=release_key, unit=self.unit)  # [key, …]
            | "WriteTop" >> beam.Map(_write, path, self._header())
        )

    def _header(self) -> dict[str, Any]:
        return {
            "hushgram": self.kind,
            "version": 1,
            "name": self.name,
            "keys": len(self.keys),
            "count": self.params.count,
            "mechanism": self.params.mechanism,
            "guarantee": self.guarantee().sentence(),
        }

    def check_lines(self) -> Iterator[Line]:
        params, keys = self.params, len(self.keys)
        name, each = params.mechanism.replace("_", " "), float(params.round_epsilon)
        yield "choice", f"{params.count:,} of {keys:,} keys by {name}, epsilon {each:.4g} per choice"
        # The exponential mechanism's tail, which permute-and-flip never exceeds; Laplace noise has two of them.
        ways = 2 if params.mechanism == "noisy_max" else 1
        bound = ways * math.log(keys * params.count / 0.05) / float(params.rate)
        yield (
            "accuracy",
            f"with probability 95 %, each chosen key is within {bound:,.0f} records of the best one left",
        )

    def closing_table(self, path: str) -> pa.Table:
        return self.released(path)

    def released(self, path: str) -> pa.Table:
        return pa.Table.from_pylist(read_lines(path)[1:], pa.schema({"rank": pa.int64(), "key": pa.string()}))


def _write(chosen: list[str], path: str, header: dict[str, Any]) -> str:
    return write_lines(path, [header, *({"rank": n, "key": key} for n, key in enumerate(chosen, start=1))])


JOB = TopJob
