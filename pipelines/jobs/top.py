"""``hushgram top``: the most frequent keys of a public list, or of a released sketch's, without their counts.

read ─► keep the list's keys ─► bound users ─► MostFrequent ─► top.jsonl (a header, then a key a line)
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from hushgram.accounting import Event
from hushgram.domains import KeyDomain
from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.pipelines.config import JobConfig, Name, refuse
from hushgram.pipelines.jobs.files import heavy_domain, read_key_list, write_lines
from hushgram.pipelines.jobs.job import Job, Line, LocalResources, Pipeline
from hushgram.selection import SelectionParams

__all__ = ["JOB", "Top", "TopConfig"]


# What the ledger calls each mechanism; the first was there before the others.
_EVENTS = {"permute_and_flip": "noisy_max", "exponential": "exponential", "noisy_max": "laplace_noisy_max"}


class TopConfig(JobConfig):
    """The most frequent keys of a public list."""

    NAME: ClassVar[str] = "top"

    top: Name = Field(description="the name of this run, such as top-{date}")
    keys: str | None = Field(
        default=None, min_length=1, description="a file with one key a line: the public list"
    )
    sketch: str | None = Field(
        default=None, min_length=1, description="a released sketch: its heavy keys are the candidates"
    )
    count: int = Field(default=10, ge=1, le=100_000, description="how many keys to choose")
    mechanism: Literal["permute_and_flip", "exponential", "noisy_max"] | None = Field(
        default=None,
        description="how to choose; left out, permute_and_flip at delta 0 and exponential above it",
    )

    def params(self) -> SelectionParams:
        """The mechanism's parameters; one user moves a count by at most max_per_key, all in one direction."""
        monotone = True  # counts only grow when a user is added
        best = "exponential" if self.privacy.delta else "permute_and_flip"
        return SelectionParams(
            self.privacy.epsilon,
            delta=self.privacy.delta,
            sensitivity=self.privacy.max_per_key,
            count=self.count,
            monotone=monotone,
            mechanism=self.mechanism or best,
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


class Top(Job[TopConfig]):
    """The most frequent keys of a list."""

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

        from hushgram.pipelines.jobs.stages import bounded_cells
        from hushgram.transforms.count_domain import CountDomain
        from hushgram.transforms.select_top import MostFrequent

        _ = (
            bounded_cells(pipeline, self, self.cells, release_key, local)
            | "CountDomain" >> CountDomain(self.cells)
            | "MostFrequent"
            >> MostFrequent(self.keys, self.params, release_key=release_key, unit=self.unit)  # [key, …]
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
        yield (
            "choice",
            f"{params.count:,} of {keys:,} keys by {params.mechanism.replace('_', ' ')}, epsilon "
            f"{float(params.round_epsilon):.4g} a choice",
        )
        # The exponential mechanism's tail, which permute-and-flip never exceeds; Laplace noise has two of them.
        ways = 2 if params.mechanism == "noisy_max" else 1
        bound = ways * math.log(keys * params.count / 0.05) / float(params.rate)
        yield (
            "accuracy",
            (f"with probability 95 %, each chosen key is within {bound:,.0f} records of the best one left"),
        )

    def closing_lines(self, path: str) -> Iterator[Line]:
        for row in self.released(path).to_pylist():
            yield str(row["rank"]), row["key"]

    def released(self, path: str) -> pa.Table:
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file][1:]
        return pa.Table.from_pylist(rows, pa.schema({"rank": pa.int64(), "key": pa.string()}))


def _write(chosen: list[str], path: str, header: dict[str, Any]) -> str:
    return write_lines(path, [header, *({"rank": n, "key": key} for n, key in enumerate(chosen, start=1))])


JOB = Top
