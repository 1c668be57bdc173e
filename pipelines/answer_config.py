"""The configs of ``hushgram answer`` and ``hushgram top``: what `JobConfig` has, with a finite public
domain.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from hushgram.pipelines.config import Exact, JobConfig, Model, Name, refuse

__all__ = ["AnswerConfig", "AnswerDomain", "PmwConfig", "QueriesFile"]


class AnswerDomain(Model):
    """What the queries speak about: one of four kinds, all public."""

    keys: str | None = Field(default=None, description="a file with one key a line")
    sketch: str | None = Field(default=None, description="a released sketch: its heavy keys are the domain")
    buckets: int | None = Field(
        default=None, ge=1, le=1 << 20, description="hash all keys to so many buckets, such as 1024"
    )
    edges: tuple[float, ...] | None = Field(
        default=None, description="ranges of a numeric key, such as [0, 18, 30, 50, 120]"
    )

    @field_validator("edges", mode="before")
    @classmethod
    def _edges(cls, value: Any) -> Any:
        return tuple(float(edge) for edge in value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in ("keys", "sketch", "buckets", "edges") if getattr(self, name) is not None]
        if len(given) != 1:
            raise refuse(
                (), f"must have exactly one of keys, sketch, buckets, edges, got {', '.join(given) or 'none'}"
            )
        return self


class QueriesFile(Model):
    """Linear queries: a file of JSON lines, or the queries themselves."""

    path: str | None = Field(default=None, description="JSON lines, one query each, such as queries.jsonl")
    queries: tuple[dict[str, Any], ...] | None = Field(
        default=None,
        description='the queries themselves, such as [{keys: ["/a", "/b"]}, {weights: {"/a": 0.5}}]',
    )

    @field_validator("queries", mode="before")
    @classmethod
    def _tuple(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.path is None) == (self.queries is None):
            raise refuse(("path",), "or queries is needed, and not both")
        return self


class PmwConfig(Model):
    """The mechanism. Left out, thresholds follow from the noise; ``alpha`` takes them from the theorem."""

    max_updates: int | None = Field(
        default=None, ge=1, le=100_000, description="updates allowed, such as 400"
    )
    threshold: Exact | None = Field(default=None, description="error in counts that calls for an update")
    total: int | None = Field(default=None, ge=1, description="records in the domain, if that is public")
    replay: int | None = Field(default=None, ge=0, le=1000, description="steps over past answers, such as 2")
    eta: Exact | None = Field(default=None, description="rate of the plain update, where replay is 0")
    alpha: Exact | None = Field(
        default=None, description="error as a share of the total: all parameters from the theorem"
    )
    beta: Exact = Field(default=Fraction(1, 20), description="probability that alpha is exceeded")
    prior: str | None = Field(
        default=None, description="a released sketch to begin from instead of the uniform histogram: free"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.alpha is None:
            return self
        for name in ("max_updates", "threshold", "replay", "eta"):
            if getattr(self, name) is not None:
                raise refuse((name,), "and alpha exclude each other: alpha sets it")
        if self.total is None:
            raise refuse(("total",), "is missing; alpha needs a public number of records")
        return self


class AnswerConfig(JobConfig):
    """Many linear queries over a finite domain, answered by online private multiplicative weights."""

    NAME: ClassVar[str] = "answer"

    answer: Name = Field(description="the name of this run, such as visits-{date}")
    domain: AnswerDomain
    queries: QueriesFile
    pmw: PmwConfig = PmwConfig()

    @field_validator("queries", mode="before")
    @classmethod
    def _inline(cls, value: Any) -> Any:
        return {"queries": value} if isinstance(value, list) else value

    @model_validator(mode="after")
    def _prior(self) -> Self:
        if self.pmw.prior is not None and self.domain.keys is None:
            raise refuse(
                ("pmw", "prior"), "needs domain.keys; a domain from a sketch begins from that sketch"
            )
        return self
