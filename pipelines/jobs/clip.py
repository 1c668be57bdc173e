"""``hushgram clip``: a clipping bound for a numeric column, found privately, then sum, count and average.

read ─► keep numbers ─► bound records per user ─► count by cell of the grid ─► ReleaseClipped ─► ages.json
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import ConfigDict, Field, model_validator

from hushgram.accounting import Event
from hushgram.errors import InputError
from hushgram.mechanisms.clipping import ClipParams, Clipped
from hushgram.noise.entropy import ReleaseKey
from hushgram.numbers import show
from hushgram.pipelines.config.models import Exact, InputConfig, JobConfig, Model, Name, PrivacyConfig, refuse
from hushgram.pipelines.jobs.job import Job, Line, LocalResources, Pipeline, write_bytes

__all__ = ["JOB", "ClipConfig", "ClipInput", "ClipJob", "ClipPrivacy", "ClipSplit", "GridConfig"]

VERSION = 1


def _with_column(schema: dict[str, Any]) -> None:
    schema["properties"]["column"] = schema["properties"]["key"]
    schema["required"].remove("key")


class ClipInput(InputConfig):
    """Which records to read; ``column`` is another name for the key here."""

    model_config = ConfigDict(json_schema_extra=_with_column)
    WRITTEN = {"key": "column"}

    @model_validator(mode="before")
    @classmethod
    def _column_is_key(cls, data: Any) -> Any:
        if isinstance(data, dict) and "column" in data and "key" not in data:
            return {("key" if name == "column" else name): value for name, value in data.items()}
        return data

    @property
    def column(self) -> str:
        """The numeric column."""
        return self.key

    @property
    def columns(self) -> tuple[str, ...]:
        """The user: the only identifier."""
        return () if self.user is None else (self.user,)


class GridConfig(Model):
    """The bounds that are searched, in the units of the column."""

    kind: Literal["exponential", "linear"] = "exponential"
    start: Exact = Field(default=Fraction(1), description="the first bound")
    stop: Exact = Field(
        default=Fraction(10**9), description="the last bound; larger values are clamped to it"
    )
    ratio: Exact = Field(
        default=Fraction(6, 5), description="exponential grid: ratio of each bound to the one before"
    )
    step: Exact = Field(default=Fraction(1), description="linear grid: distance between bounds")
    lower: Exact = Field(default=Fraction(0), description="smaller values are clamped to it")
    granularity: Exact | None = Field(
        default=None,
        description="values are rounded to multiples of it; 1 for whole numbers of Parquet, else 0.01",
    )
    threshold: int | None = Field(
        default=None, ge=0, description="records that may remain above the bound; by default from epsilon"
    )


class ClipSplit(Model):
    """Shares of epsilon; they add up to 1."""

    bound: Exact = Field(description="share for finding the bound, such as 1/3")
    sum: Exact = Field(description="share for the sum, such as 1/3")
    count: Exact = Field(description="share for the number of records, such as 1/3")


class ClipPrivacy(PrivacyConfig):
    """The guarantee, and how it is split."""

    split: ClipSplit | None = None


class ClipConfig(JobConfig):
    """Release sum, count and average of a column, clipped at a bound that is found privately."""

    NAME: ClassVar[str] = "clip"

    clip: Name = Field(description="the name of this run, such as ages-{date}")
    input: ClipInput
    privacy: ClipPrivacy
    grid: GridConfig = GridConfig()

    @model_validator(mode="after")
    def _pure(self) -> Self:
        if self.privacy.delta:
            raise refuse(("privacy", "delta"), f"must be 0 for clip, got {self.privacy.delta}")
        return self

    def params(self, whole: bool) -> ClipParams:
        """Return the mechanism's parameters; `whole` says whether the column holds whole numbers."""
        granularity = self.grid.granularity
        if granularity is None:
            granularity = Fraction(1) if whole else Fraction(1, 100)
        rest: dict[str, Any] = self.grid.model_dump(exclude={"kind", "granularity"})
        if (split := self.privacy.split) is not None:
            rest["split"] = (split.bound, split.sum, split.count)
        return ClipParams(
            epsilon=self.privacy.epsilon, max_contributions=self.privacy.contributions, grid=self.grid.kind,
            granularity=granularity, **rest,
        )  # fmt: skip


class ClipJob(Job[ClipConfig]):
    """Release bound, sum, count and average of a column."""

    Config = ClipConfig
    subject = "Bound, sum, count and average together are"
    by_record = True

    def resolve(self) -> None:
        self.params = self.config.params(whole=True)  # until the column's type is known

    def columns(self) -> tuple[str, ...]:
        return (self.config.input.column,)

    def column_types(self) -> dict[str, pa.DataType]:
        return {self.config.input.column: pa.float64()}

    def check_schema(self, schema: pa.Schema) -> None:
        from hushgram.mechanisms.svt.exact_answers import queryable

        column = self.config.input.column
        kind = schema.field(column).type
        whole = pa.types.is_integer(kind)
        if not (whole or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise InputError(f"column {column!r} is {kind}; a column to clip must hold numbers")
        self.params = self.config.params(whole)
        self.packed = pa.schema([(column, queryable(column, kind))])

    def events(self) -> list[Event]:
        """Return the search, the sum and the count."""
        bound, total, count = self.params.epsilons
        sensitivity = {"sensitivity": str(self.params.max_contributions)}
        return [
            Event("svt", bound, details=sensitivity, version=2, relation=self.unit),
            Event("laplace", total, relation=self.unit),
            Event("laplace", count, relation=self.unit),
        ]

    def build(self, pipeline: Pipeline, path: str, release_key: ReleaseKey, local: LocalResources) -> None:
        import apache_beam as beam

        from hushgram.transforms.release_clipped import KeepNumbers, ReleaseClipped
        from hushgram.transforms.sparse_vector import RECORD, PackRecords

        source, config, params = self.records(pipeline), self.config.input, self.params
        bound = self.bounding(RECORD, release_key, local, texts=True)
        _ = (
            source
            | "KeepNumbers" >> KeepNumbers(config.column)
            | "PackRecords" >> PackRecords(self.packed, config.user)
            | "Bound" >> bound  # Histogram of packed values
            | "ReleaseClipped" >> ReleaseClipped(params, self.packed, release_key, self.unit)  # Clipped
            | "Write" >> beam.Map(_write, path, self._header())
        )

    def _header(self) -> dict[str, Any]:
        """Return the public description that the output begins with."""
        return {
            "hushgram": self.kind,
            "version": VERSION,
            "name": self.name,
            "column": self.config.input.column,
            "guarantee": self.guarantee().as_json(),
            "parameters": self.params.describe(),
        }

    def check_lines(self) -> Iterator[Line]:
        from hushgram.mechanisms.svt.accuracy import alpha, theorem_alpha

        p = self.params
        size, tail = len(p.bounds), math.log(20)
        own, theorem = alpha(p.svt, size, "0.05"), theorem_alpha(p.svt, size, "0.05")
        bound, total, count = p.epsilons
        yield "epsilon", f"bound {show(bound)}, sum {show(total)}, count {show(count)}"
        yield (
            "search",
            f"{p.grid} grid of {size:,}; stops where about {p.threshold:,} records are left above the bound; with "
            f"probability 95 % that is right within {own:,} records (by the textbook's theorem: {theorem:,})",
        )
        of_sum, of_count = (tail * p.max_contributions / float(epsilon) for epsilon in (total, count))
        times, above = ("(bound - lower)", " of values above lower") if p.lower else ("bound", "")
        yield (
            "noise",
            f"with probability 95 %: sum{above} within {of_sum:,.1f} x {times}, count within {of_count:,.1f}",
        )

    def closing_lines(self, path: str) -> Iterator[Line]:
        result = _result(path)
        of_whom = ""
        if self.unit == "user":
            of_whom = f"; at most {self.params.max_contributions:,} of a user, drawn at random"
        yield (
            "counted",
            f"records with a number{of_whom}; each clamped to {show(self.params.lower)} and the bound",
        )
        if not result["bound_found"]:
            yield "warning", "the bound is the end of the grid: the search did not stop before"

    def closing_table(self, path: str) -> pa.Table:
        result = _result(path)
        shown = {
            "bound": f"{result['bound']:,g}",
            "records counted": f"{result['count']:,}",
            "their sum": f"{result['sum']:,.2f}",
        }
        noise = ["", f"± {result['count_noise']:,}", f"± {result['sum_noise']:,.1f}"]
        if result["average"] is not None:
            shown["their average"] = f"{result['average']:,.4f}"
            noise.append(f"{result['average_low']:,.4f} to {result['average_high']:,.4f}")
        return pa.table({"figure": list(shown), "value": list(shown.values()), "at 95 %": noise})

    def released(self, path: str) -> pa.Table:
        return pa.Table.from_pylist([_result(path)])


def _result(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        result: dict[str, Any] = json.load(file)["result"]
    return result


def _write(clipped: Clipped, path: str, header: dict[str, Any]) -> str:
    text = json.dumps({**header, "result": clipped.as_json()}, indent=2, ensure_ascii=False)
    return write_bytes(path, text.encode() + b"\n")


JOB = ClipJob
