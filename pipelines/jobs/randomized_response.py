"""``hushgram randomized-response randomize``: records in, a released table of randomized responses out.

    read an item ─► flip secret bits ─► released rows       (one step, on the worker that reads)
    all rows ─► parts ─► manifest                           (last)

For one release key and one input the table has the same bytes on every runner and worker count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, ClassVar, Self

import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from hushgram.accounting import Event, Guarantee
from hushgram.errors import ParameterError
from hushgram.inputs.conditions import Condition, kinds_together, parse
from hushgram.inputs.source import overlapping
from hushgram.mechanisms.randomized_response.mechanism import RandomizedResponseParams, hoeffding
from hushgram.mechanisms.randomized_response.rows import Secret, check_columns
from hushgram.mechanisms.randomized_response.table import ResponseTable, guarantee, manifest_text
from hushgram.noise.entropy import ReleaseKey
from hushgram.numbers import show
from hushgram.pipelines.config.models import AS_TUPLE, Exact, InputConfig, JobConfig, Model, Name, refuse
from hushgram.pipelines.jobs.job import Job, Line, LocalResources, Pipeline, write_bytes

__all__ = ["JOB", "RandomizedResponseJob", "ResponseConfig", "ResponseInput", "SecretConfig"]


class ResponseInput(InputConfig):
    """Which records to read. In the local model a record is the privacy unit, and no column is counted."""

    key: str = Field(default="", description="not used: in the local model no column is counted")

    @property
    def columns(self) -> tuple[str, ...]:
        """No column is an identifier here."""
        return ()

    @model_validator(mode="after")
    def _local(self) -> Self:
        if self.user is not None:
            raise refuse(("user",), "must be left out: in the local model each record is protected by itself")
        if self.key:
            raise refuse(("key",), "must be left out; name the columns under secrets and public")
        if self.rejected_records is not None:
            raise refuse(
                ("rejected_records",),
                "must be left out: in the local model no record leaves its reader as it is",
            )
        return self


class SecretConfig(Model):
    """A secret bit: a column of booleans, or a condition; `equals` and `at_least` are short for one."""

    column: str = Field(default="", description="the column that holds or decides the bit")
    where: str | None = Field(default=None, description="the bit is whether this condition is true")
    equals: str | None = Field(default=None, description="the bit is whether the column has this value")
    at_least: Exact | None = Field(default=None, description="the bit is whether the number is at least this")

    @field_validator("equals", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.equals is not None and self.at_least is not None:
            raise refuse(("at_least",), "and equals exclude each other; keep one")
        if bool(self.column) == (self.where is not None):
            raise refuse(("column",), "or where is needed, and not both")
        if self.where is not None and (self.equals, self.at_least) != (None, None):
            raise refuse(("where",), "is a complete condition; leave out equals and at_least")
        self.condition()
        return self

    def condition(self) -> Condition | None:
        """Return the condition of `where`, parsed."""
        try:
            return None if self.where is None else parse(self.where)
        except ParameterError as problem:
            raise refuse(("where",), str(problem).removeprefix("where: ")) from None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that hold or decide the bit."""
        condition = self.condition()
        return (self.column,) if condition is None else condition.columns

    def named(self, name: str) -> Secret:
        """Return the secret bit under its public name."""
        least = None if self.at_least is None else float(self.at_least)
        return Secret(name, self.column, self.equals, least, self.condition())


class ResponseConfig(JobConfig):
    """Randomized response: flip every secret bit where it is read, and publish the table."""

    NAME: ClassVar[str] = "randomized_response"

    randomized_response: Name = Field(description="the name of this run, such as survey-2026")
    input: ResponseInput
    secrets: dict[str, SecretConfig] = Field(min_length=1, description="secret bits by their public names")
    public: Annotated[tuple[str, ...], AS_TUPLE] = Field(
        default=(), description="columns that are published as they are"
    )

    @field_validator("secrets", mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        """Accept ``churned: churned``, short for ``churned: {column: churned}``."""
        if isinstance(value, list):
            return {name: {"column": name} for name in value}
        if not isinstance(value, dict):
            return value
        return {name: {"column": held} if isinstance(held, str) else held for name, held in value.items()}

    @property
    def bounds_records(self) -> bool:
        return True  # refused below, in its own words

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.privacy.delta:
            raise refuse(("privacy", "delta"), "must be 0: randomized response has no delta")
        if self.privacy.max_contributions is not None or self.privacy.max_per_key != 1:
            raise refuse(
                ("privacy", "max_contributions"), "must be left out: epsilon holds for each record by itself"
            )
        tested = () if self.input.where is None else parse(self.input.where).columns
        for name, secret in self.secrets.items():
            if (column := overlapping(self.public, secret.columns)) is not None:
                raise refuse(("public",), f"holds {column!r}, which the secret {name!r} is made of")
            if (column := overlapping(tested, secret.columns)) is not None:
                raise refuse(
                    ("input", "where"),
                    f"tests {column!r}, which the secret {name!r} is made of: the records that are left would tell it",
                )
            if name in self.public:
                raise refuse(("secrets",), f"have the name {name!r} of a public column; choose another one")
        try:
            self.params()
        except ParameterError as problem:
            raise refuse(("privacy", "epsilon"), str(problem).partition("epsilon ")[2]) from None
        return self

    def params(self) -> RandomizedResponseParams:
        """Return ε of a record, shared by its secret bits."""
        return RandomizedResponseParams(self.privacy.epsilon, secrets=len(self.secrets))


class RandomizedResponseJob(Job[ResponseConfig]):
    """Release a table of flipped bits."""

    Config = ResponseConfig
    subject = "The table is"
    shape = "directory"

    def resolve(self) -> None:
        self.params = self.config.params()
        self.secrets = [held.named(name) for name, held in self.config.secrets.items()]

    def columns(self) -> Iterable[str]:
        return dict.fromkeys([*self.secret_columns(), *self.config.public])

    def secret_columns(self) -> Iterable[str]:
        return dict.fromkeys(column for held in self.secrets for column in held.columns)

    def check_schema(self, schema: pa.Schema) -> None:
        check_columns(schema, self.secrets, self.config.public)

    def column_types(self) -> dict[str, pa.DataType]:
        return kinds_together(held.where.kinds for held in self.secrets if held.where is not None)

    def events(self) -> list[Event]:
        """Return one randomized response for each secret bit."""
        return [
            Event("rr", self.params.bit_epsilon, details={"secret": name}, relation="secret bit")
            for name in self.config.secrets
        ]

    def guarantee(self) -> Guarantee:
        return guarantee(self.params)

    def build(self, pipeline: Pipeline, path: str, release_key: ReleaseKey, local: LocalResources) -> None:
        import apache_beam as beam

        from hushgram.transforms.randomize_responses import RandomizeResponses

        config, params = self.config, self.params
        _ = (
            pipeline
            | "RandomizeResponses"
            >> RandomizeResponses(
                self.source,
                self.secrets,
                config.public,
                params,
                path=path,
                release_key=release_key,
                limits=config.input.limits,
                counters=True,
            )
            | "WriteManifest" >> beam.Map(_write, path, params, list(config.secrets), list(config.public))
        )

    def check_lines(self) -> Iterator[Line]:
        params, public = self.params, ", ".join(self.config.public) or "no column"
        bits = f"{params.secrets} secret bits at epsilon {show(params.bit_epsilon)}"
        yield "secrets", f"{bits}, flipped with {params.flip:.4f}"
        yield "public", f"published as they are: {public}, and the number of records"
        for rows in (10_000, 1_000_000):
            margin = hoeffding(rows, params)
            yield (
                "accuracy",
                f"a count over {rows:,} records: within {margin:,.0f} with probability 95 % (Hoeffding)",
            )

    def closing_lines(self, path: str) -> Iterator[Line]:
        for row in self.released(path).to_pylist():
            low, high = row["low"], row["high"]
            yield row["secret"], f"about {row['estimate']:,.0f} records ({low:,.0f} to {high:,.0f})"

    def released(self, path: str) -> pa.Table:
        return ResponseTable.open(path).ask_all()


def _write(
    parts: dict[str, dict[str, Any]],
    path: str,
    params: RandomizedResponseParams,
    secrets: list[str],
    public: list[str],
) -> str:
    from apache_beam.io.filesystems import FileSystems

    text = manifest_text(params, secrets=secrets, public=public, parts=parts)
    write_bytes(FileSystems.join(path, "manifest.json"), text.encode())
    return path


JOB = RandomizedResponseJob
