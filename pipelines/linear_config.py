"""The config of ``hushgram linear randomize``: records with secret bits, flipped where they are read."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from hushgram.errors import ParameterError
from hushgram.inputs.conditions import Condition, parse
from hushgram.pipelines.config import Exact, InputConfig, JobConfig, Model, Name, refuse
from hushgram.randomized_response.mechanism import RandomizedResponseParams

__all__ = ["LinearConfig", "LinearInput", "SecretConfig"]


class LinearInput(InputConfig):
    """Which records to read. In the local model a record is the unit, and no column is counted."""

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
            raise refuse(("column",), "or where: give one of them")
        if self.where is not None and (self.equals, self.at_least) != (None, None):
            raise refuse(("where",), "says it all; leave out equals and at_least")
        self.condition()
        return self

    def condition(self) -> Condition | None:
        """The condition of `where`, parsed."""
        try:
            return None if self.where is None else parse(self.where)
        except ParameterError as problem:
            raise refuse(("where",), str(problem).removeprefix("where: ")) from None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that hold or decide the bit."""
        condition = self.condition()
        return (self.column,) if condition is None else condition.columns


class LinearConfig(JobConfig):
    """Randomized responses: flip every secret bit where it is read, publish the table."""

    NAME: ClassVar[str] = "linear"

    linear: Name = Field(description="the name of this run, such as survey-2026")
    input: LinearInput
    secrets: dict[str, SecretConfig] = Field(min_length=1, description="secret bits by their public names")
    public: tuple[str, ...] = Field(default=(), description="columns that are published as they are")

    @field_validator("public", mode="before")
    @classmethod
    def _tuple(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("secrets", mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        """``churned: churned`` is short for ``churned: {column: churned}``."""
        if isinstance(value, list):
            return {name: {"column": name} for name in value}
        if not isinstance(value, dict):
            return value
        return {name: {"column": held} if isinstance(held, str) else held for name, held in value.items()}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.privacy.delta:
            raise refuse(("privacy", "delta"), "must be 0: randomized response is purely private")
        if self.privacy.max_contributions is not None or self.privacy.max_per_key != 1:
            raise refuse(
                ("privacy", "max_contributions"), "must be left out: epsilon holds for each record by itself"
            )
        for name, secret in self.secrets.items():
            for column in set(secret.columns) & set(self.public):
                raise refuse(("public",), f"holds {column!r}, which the secret {name!r} is made of")
            if name in self.public:
                raise refuse(("secrets",), f"have the name {name!r} of a public column; choose another one")
        try:
            self.params()
        except ParameterError as problem:
            raise refuse(("privacy", "epsilon"), str(problem).partition("epsilon ")[2]) from None
        return self

    def params(self) -> RandomizedResponseParams:
        """ε of a record, shared by its secret bits."""
        return RandomizedResponseParams(self.privacy.epsilon, secrets=len(self.secrets))
