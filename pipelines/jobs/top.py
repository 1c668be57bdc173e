"""``hushgram top``: the most frequent keys of a public list, chosen by permute-and-flip, without their counts.

read ─► keep the list's keys ─► bound users ─► MostFrequent ─► top.jsonl (a header, then a key a line)
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa
from pydantic import Field, model_validator

from hushgram.accounting import Event
from hushgram.domains import KeyDomain
from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.numbers import show
from hushgram.pipelines.config import JobConfig, Name, refuse
from hushgram.pipelines.jobs.files import read_key_list, write_lines
from hushgram.pipelines.jobs.job import Job, Line
from hushgram.selection import SelectionParams

if TYPE_CHECKING:
    import apache_beam as beam

    from hushgram.transforms.shuffle.batching import LocalResources

__all__ = ["JOB", "Top", "TopConfig"]


class TopConfig(JobConfig):
    """The most frequent keys of a public list."""

    NAME: ClassVar[str] = "top"

    top: Name = Field(description="the name of this run, such as top-{date}")
    keys: str = Field(min_length=1, description="a file with one key a line: the public list")
    count: int = Field(default=10, ge=1, le=100_000, description="how many keys to choose")

    def params(self) -> SelectionParams:
        """The mechanism's parameters; one user moves a count by at most max_per_key, all in one direction."""
        # a record is one unit; max_contributions for caution
        record = self.input.user is None
        per_key = self.privacy.contributions if record else self.privacy.max_per_key
        monotone = True  # counts only grow when a user is added
        return SelectionParams(self.privacy.epsilon, sensitivity=per_key, count=self.count, monotone=monotone)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.privacy.delta:
            raise refuse(("privacy", "delta"), "must be 0: permute-and-flip is purely private")
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
        self.keys = tuple(read_key_list(config.keys, "keys"))
        self.cells = KeyDomain.of(self.keys)
        if config.count > len(self.keys):
            raise ParameterError(
                f"count must be at most the {len(self.keys)} keys of {config.keys}, got {config.count}"
            )

    def events(self) -> list[Event]:
        details = {"count": str(self.params.count), "keys": str(len(self.keys))}
        return [Event("noisy_max", self.params.epsilon, details=details)]

    def resolved(self) -> dict[str, Any]:
        return {"keys": digest(*self.keys).hex()}

    def build(
        self, pipeline: beam.Pipeline, path: str, release_key: ReleaseKey, local: LocalResources
    ) -> None:
        import apache_beam as beam

        from hushgram.pipelines.jobs.stages import bounded_cells
        from hushgram.transforms.count_domain import CountDomain
        from hushgram.transforms.select_top import MostFrequent

        _ = (
            bounded_cells(pipeline, self, self.cells, release_key, local)
            | "CountDomain" >> CountDomain(self.cells)
            | "MostFrequent" >> MostFrequent(self.keys, self.params, release_key=release_key)  # [key, …]
            | "WriteTop" >> beam.Map(_write, path, self._header())
        )

    def _header(self) -> dict[str, Any]:
        return {
            "hushgram": self.kind,
            "version": 1,
            "name": self.name,
            "keys": len(self.keys),
            "count": self.params.count,
            "guarantee": self.guarantee().sentence(),
        }

    def check_lines(self) -> Iterator[Line]:
        params, keys = self.params, len(self.keys)
        yield (
            "choice",
            f"{params.count:,} of {keys:,} keys, epsilon {show(params.epsilon / params.count)} a round",
        )
        # The exponential mechanism's tail, which permute-and-flip never exceeds.
        bound = math.log(keys * params.count / 0.05) / float(params.rate)
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
