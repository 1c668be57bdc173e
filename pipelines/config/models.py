"""Configs of all jobs: frozen pydantic models, and `load_config`, which reads one from YAML.

    config = load_config("configs/urls.yaml", ["privacy.epsilon=0.5"], ReleaseConfig, date="2026-11-15")
    config.privacy.epsilon           # Fraction(1, 2): exactly what was written, never a float
    config.input.columns             # the columns that the job reads
    config.params()                  # hushgram.ReleaseParams, checked

A job of another kind derives from `JobConfig` and sets NAME to the field that holds its name:

    class TopConfig(JobConfig):
        NAME: ClassVar[str] = "top"
        top: Name
        keys: str

Relative paths are relative to the working directory, as for every other command. ``{date}`` in any text except
input.pattern is replaced by the date given with ``--date`` (``{date:%Y/%m/%d}`` for another form of it).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar, get_type_hints

import pyarrow as pa
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import PydanticCustomError

from hushgram.contributions.users import UserPart
from hushgram.errors import ParameterError
from hushgram.inputs import Limits, Source
from hushgram.inputs.conditions import parse
from hushgram.inputs.formats import FORMATS
from hushgram.inputs.formats.format import Format
from hushgram.inputs.key_expressions import list_expression, parse_key_expression
from hushgram.numbers import rational
from hushgram.pipelines.config.document import (
    ConfigError,
    Location,
    explain,
    read_document,
    resolve_date,
    substitute_date,
)

__all__ = [
    "AS_TUPLE", "ConfigError", "Exact", "InputConfig", "InputFields", "JobConfig", "Model", "Name",
    "OutputConfig", "PartitionConfig", "PrivacyConfig", "QueriesConfig", "config_schema",
    "load_config", "refuse", "resolve_date",
]  # fmt: skip

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,199}")


def refuse(location: Location, message: str) -> PydanticCustomError:
    """Return a model validator's error about one field: ``raise refuse(("privacy", "alpha"), "must be …")``.

    `location` counts from the model that validates, so a group of fields need not know where it is used.
    """
    return PydanticCustomError("field", "{message}", {"location": location, "message": message})


def _exact(value: Any) -> Fraction:
    """Return a number as it was written, as a rational; YAML gave an int, a Decimal or text such as "1/3"."""
    try:
        return rational(value, "", "")
    except ParameterError as problem:
        raise ValueError(str(problem).lstrip(": ")) from None


def _name(value: Any) -> str:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise ValueError(
            f"must be a name of letters, digits and . _ : @ + - (at most 200), got {text!r:.80}; "
            "such as urls-daily or urls-{date}"
        )
    return text


Exact = Annotated[Fraction, BeforeValidator(_exact), WithJsonSchema({"type": ["number", "string"]})]
Name = Annotated[str, BeforeValidator(_name), WithJsonSchema({"type": ["string", "integer"]})]
# For fields of tuples: YAML has lists.
AS_TUPLE = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)


class Model(BaseModel):
    """Base of every config model: frozen, and a field that is not known is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=False)

    #: fields by the names that messages give them, where these are others
    WRITTEN: ClassVar[Mapping[str, str]] = {}


class InputFields(Model):
    """The records to read, and the columns of user and key. Formats add their options below."""

    path: tuple[str, ...] = Field(description="path or pattern such as data/*.parquet, or a list of them")
    format: str = Field(default="auto", description="file format; auto chooses by the ending")
    key: str = Field(description="the column whose values are counted, such as url")
    user: str | None = Field(
        default=None, description="the column that identifies a user; without it, records are protected"
    )
    where: str | None = Field(
        default=None, description="read only records that match this condition, such as status = 200"
    )
    folder_columns: bool = Field(default=True, description="read folders such as dt=2026-11-15 as columns")
    rejected_records: str | None = Field(default=None, description="file for rejected records (private)")
    max_rejected_share: Exact = Field(
        default=Fraction(1, 20), description="refuse the input if a larger share of its records is rejected"
    )
    min_rows: int = Field(
        default=1, ge=0, description="refuse the input if it has fewer records; 0 allows an empty input"
    )

    @field_validator("path", mode="before")
    @classmethod
    def _paths(cls, value: Any) -> Any:
        paths = [value] if isinstance(value, str) else value
        if (
            not isinstance(paths, list | tuple)
            or not paths
            or not all(isinstance(p, str) and p for p in paths)
        ):
            raise ValueError(
                f"must be a path, a pattern such as data/*.parquet, or a list of them, got {value!r}"
            )
        return tuple(paths)

    @field_validator("where")
    @classmethod
    def _condition(cls, value: str | None) -> str | None:
        try:
            _ = None if value is None else parse(value)
        except ParameterError as problem:
            raise ValueError(str(problem).removeprefix("where: ")) from None
        return value

    @field_validator("max_rejected_share")
    @classmethod
    def _share(cls, value: Fraction) -> Fraction:
        if not 0 <= value <= 1:
            raise ValueError(f"must be from 0 to 1, got {value}; 0.05 is the default")
        return value

    @field_validator("key", "user", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """Turn a list of columns into the text of a key expression."""
        try:
            return list_expression(value) if isinstance(value, list) else value
        except ParameterError as problem:
            raise ValueError(str(problem)) from None

    @field_validator("key", "user")
    @classmethod
    def _column(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value == "":
            raise ValueError("must name a column, got ''")
        try:
            key_expression = None if value is None else parse_key_expression(value)
        except ParameterError as problem:
            raise ValueError(str(problem)) from None
        if key_expression is not None and key_expression.several and info.field_name == "user":
            raise ValueError(f"must be one for each record, got {value!r}")
        return value

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        for format in FORMATS.values():
            group = () if format.flat else (format.name,)
            try:
                given = self._options_of(format)
            except ParameterError as problem:
                field, _, message = str(problem).partition(" ")
                raise refuse((*group, field), message) from None
            if format.flat and given is not None and self.format not in ("auto", format.name):
                fields = " or ".join(f.name for f in dataclasses.fields(given))
                raise refuse(
                    ("format",), f"must be {format.name} where {fields} is given, got {self.format!r}"
                )
        return self

    def _options_of(self, format: Format) -> Any:
        """Return the options of a format if the config gives any, checked."""
        if format.options is None:
            return None
        owner = self if format.flat else getattr(self, format.name)
        values = {f.name: getattr(owner, f.name) for f in dataclasses.fields(format.options)}
        given = values.keys() & owner.model_fields_set or (format.flat and self.format == format.name)
        return format.options(**values) if given else None

    @property
    def limits(self) -> Limits:
        """The limits that the input must keep."""
        return Limits(self.max_rejected_share, self.min_rows)

    @property
    def options(self) -> tuple[Any, ...]:
        """The options of formats that are given."""
        found = (self._options_of(format) for format in FORMATS.values())
        return tuple(options for options in found if options is not None)

    def source(
        self,
        columns: Iterable[str] = (),
        *,
        types: Mapping[str, pa.DataType] | None = None,
        values: Iterable[str] = (),
        secrets: Iterable[str] = (),
        record: tuple[int, int] | None = None,
    ) -> Source:
        """Return what a job reads: user and key, and other columns.

        Args:
            columns: columns beside user and key.
            types: types of columns in text files.
            values: columns that are added up.
            secrets: columns that decide nothing about their records.
            record: the bounds on keys of one record, where there are no users.
        """
        values = tuple(values)
        return Source(
            ids=self.columns,
            columns=tuple(dict.fromkeys((*columns, *values))),
            values=values,
            format=self.format,
            options=self.options,
            where=None if self.where is None else parse(self.where),
            types=tuple({**dict.fromkeys(values, pa.float64()), **(types or {})}.items()),
            keep_rejected=self.rejected_records is not None,
            record=record,
            secrets=tuple(secrets),
            folders=self.folder_columns,
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """User (where there is one) and key, in this order, without repetition."""
        return tuple(dict.fromkeys(name for name in (self.user, self.key) if name is not None))


def _option_fields(options: type[Any]) -> dict[str, Any]:
    """Return the fields of a format's options, for pydantic."""
    kinds = get_type_hints(options)
    return {
        f.name: (
            Annotated[kinds[f.name], AS_TUPLE],
            Field(default=f.default, description=f.metadata["about"]),
        )
        for f in dataclasses.fields(options)
    }


def _format_fields() -> dict[str, Any]:
    """Return the fields that the registry of formats adds to the `input` group."""
    fields: dict[str, Any] = {"format": (Literal[("auto", *FORMATS)], "auto")}
    for format in FORMATS.values():
        if format.options is not None:
            own = _option_fields(format.options)
            model = create_model(format.options.__name__, __base__=Model, **own)
            fields |= own if format.flat else {format.name: (model, model())}
    return fields


if TYPE_CHECKING:

    class InputConfig(InputFields):
        """`InputFields` with the options of every format."""

else:
    InputConfig = create_model("InputConfig", __base__=InputFields, __module__=__name__, **_format_fields())


class PrivacyConfig(Model):
    """The guarantee asked for. A release adds the fields of its mechanism (`ReleasePrivacy`)."""

    epsilon: Exact = Field(description="privacy loss of one user, such as 1.0")
    delta: Exact = Field(
        default=Fraction(0), description="0 for pure differential privacy, or a probability such as 1e-6"
    )
    max_contributions: int | None = Field(
        default=None, ge=1, description="how much one user may contribute in total, such as 8"
    )
    max_per_key: int = Field(default=1, ge=1, description="how much one user may contribute to one key")

    @field_validator("epsilon")
    @classmethod
    def _epsilon(cls, value: Fraction) -> Fraction:
        if value <= 0:
            raise ValueError(f"must be above 0, got {value}; 1.0 is a common choice")
        return value

    @field_validator("delta")
    @classmethod
    def _delta(cls, value: Fraction) -> Fraction:
        if not 0 <= value < 1:
            raise ValueError(f"must be at least 0 and below 1, got {value}; 0 or 1e-6 are common choices")
        return value

    @property
    def contributions(self) -> int:
        """max_contributions; 1 if the privacy unit is a record and it is not given."""
        return 1 if self.max_contributions is None else self.max_contributions

    @property
    def per_key(self) -> int | Fraction:
        """The most that a user may contribute to one key."""
        return self.max_per_key


class OutputConfig(Model):
    """Where the result goes. It must not exist yet: a release is never overwritten."""

    path: str = Field(min_length=1, description="a path that does not exist yet, such as out/urls.sketch")


class PartitionConfig(Model):
    """One part of the users, by a hash of the user: only their records are read, and only their budget is charged."""

    modulo: int = Field(ge=2, le=1 << 20, description="number of parts, the same in all releases")
    part: int = Field(ge=0, description="which part, counted from 0")

    @model_validator(mode="after")
    def _inside(self) -> Self:
        if self.part >= self.modulo:
            raise refuse(("part",), f"must be below modulo ({self.modulo}), got {self.part}")
        return self


class QueriesConfig(Model):
    """Queries: a file of JSON lines, or the queries themselves."""

    path: str | None = Field(
        default=None, description="file with one query per line as JSON, such as queries.jsonl"
    )
    queries: Annotated[tuple[dict[str, Any], ...] | None, AS_TUPLE] = Field(
        default=None, description="the queries themselves, as a list"
    )

    @model_validator(mode="after")
    def _path_or_queries(self) -> Self:
        if (self.path is None) == (self.queries is None):
            raise refuse(("path",), "or queries is needed, and not both")
        return self


class JobConfig(Model):
    """Fields of every job. A subclass names its own job in the field called NAME."""

    NAME: ClassVar[str] = "release"

    input: InputConfig
    privacy: PrivacyConfig
    output: OutputConfig
    dataset: Name | None = Field(default=None, description="data set of the ledger that is charged")
    ledger: str | None = Field(
        default=None, description="URL of the ledger, such as sqlite:///ledger.db or postgresql://host/db"
    )
    user_partition: PartitionConfig | None = Field(
        default=None, description="one of several disjoint parts of the users, such as {modulo: 12, part: 3}"
    )
    workers: int = Field(default=1, ge=1, le=256, description="number of worker processes on this machine")
    shards: int | None = Field(
        default=None, ge=1, le=65536, description="number of groups of the shuffle; no effect on the result"
    )

    @property
    def several_keys(self) -> bool:
        """Whether a record is the privacy unit and may have several keys."""
        made = parse_key_expression(self.input.key)
        return self.input.user is None and made is not None and made.several

    @property
    def bounds_records(self) -> bool:
        """Whether bounds on contributions concern single records too, since a record counts by a value."""
        return getattr(self.input, "value", None) is not None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.privacy.max_contributions is None and (self.input.user is not None or self.several_keys):
            counted = "keys of one record" if self.several_keys else "records of one user"
            raise refuse(
                ("privacy", "max_contributions"),
                f"is missing; say how many {counted} may count, such as 8 (the noise grows with it)",
            )
        return self

    @model_validator(mode="after")
    def _bounds_someone(self) -> Self:
        most = self.privacy.max_contributions
        bounds = isinstance(most, int) and most > 1
        if bounds and self.input.user is None and not self.several_keys and not self.bounds_records:
            raise refuse(
                ("privacy", "max_contributions"),
                f"is {most}, but input.user names no column: add it to protect users, or leave max_contributions out "
                "to protect each record by itself",
            )
        return self

    @model_validator(mode="after")
    def _partitioned(self) -> Self:
        if self.user_partition is not None and (self.input.user is None or self.dataset is None):
            raise refuse(
                ("user_partition",), "needs input.user, whose hash decides, and dataset, whose parts they are"
            )
        return self

    @property
    def user_part(self) -> UserPart | None:
        """The part of the users that the job reads; None for all of them."""
        found = self.user_partition
        if found is None or self.dataset is None:
            return None
        return UserPart(self.dataset, found.modulo, found.part)

    @property
    def job_name(self) -> str:
        """The name of this run: the value of the field called NAME."""
        return str(getattr(self, self.NAME))


M = TypeVar("M", bound=JobConfig)


def load_config(path: str | Path, overrides: Iterable[str], model: type[M], date: str | None = None) -> M:
    """Read and check a config; every mistake is a `ConfigError` that says where it is.

    Args:
        path: the YAML file.
        overrides: ``a.b=value`` texts, applied in order.
        model: the job's config class.
        date: replaces ``{date}``: ``YYYY-MM-DD``, ``today`` or ``yesterday`` (UTC).
    """
    document = read_document(path, overrides)
    substitute_date(document, resolve_date(date))
    try:
        return model.model_validate(document.data)
    except ValidationError as problem:
        raise explain(problem, document, model) from None


def config_schema(config: type[JobConfig], title: str) -> dict[str, Any]:
    """Return the JSON Schema of the configs of a job, for editors and for linters of repositories.

    It accepts every config that the job accepts. It does not know rules about several fields, nor conditions and key
    expressions inside of texts: `hushgram check CONFIG --offline` checks these too.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **config.model_json_schema(schema_generator=_AsWritten),
        "title": f"hushgram {config.NAME.replace('_', '-')}",
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
