"""The config of ``hushgram queries``: what `JobConfig` has, with one or several streams and a mechanism."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from hushgram.pipelines.config import Exact, JobConfig, Model, Name, refuse

__all__ = ["QueriesConfig", "StreamConfig", "SvtConfig"]


class SvtConfig(Model):
    """The mechanism of a stream."""

    mechanism: Literal["above_threshold", "sparse"] = "sparse"
    threshold: int = Field(description="a query is above when its answer is at least this, such as 1000")
    cutoff: int | None = Field(
        default=None, ge=1, le=20_000, description="yes-answers after which the stream halts, such as 20"
    )
    answers: Literal["none", "gap", "numeric"] = "none"
    variant: Literal["optimal", "dwork-roth"] = "optimal"
    value_share: Exact = Field(
        default=Fraction(1, 2), description="share of epsilon for the values where answers is numeric"
    )
    beta: Exact = Field(
        default=Fraction(1, 20), description="probability with which the stated accuracy may fail"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.mechanism == "above_threshold" and self.cutoff not in (None, 1):
            raise refuse(("cutoff",), "must be 1 or left out where mechanism is above_threshold")
        if self.mechanism == "sparse" and self.cutoff is None:
            raise refuse(("cutoff",), "is missing; say after how many yes-answers to halt, such as 20")
        if not 0 < self.beta < 1:
            raise refuse(("beta",), f"must be above 0 and below 1, got {self.beta}; 0.05 is common")
        if not 0 < self.value_share < 1:
            raise refuse(("value_share",), f"must be above 0 and below 1, got {self.value_share}")
        return self

    @property
    def halts_after(self) -> int:
        """The cutoff; 1 for above_threshold."""
        return 1 if self.cutoff is None else self.cutoff


class StreamConfig(Model):
    """One stream of queries: a file of JSON lines, or the queries themselves."""

    name: Name | None = Field(default=None, description="the name of this stream in the output")
    path: str | None = Field(default=None, description="JSON lines, one query each, such as queries.jsonl")
    queries: tuple[dict[str, Any], ...] | None = Field(
        default=None,
        description='the queries themselves, such as [{key: "https://a/b"}, {prefix: "https://a/"}]',
    )
    share: Exact | None = Field(
        default=None, description="share of the budget where there are several streams; equal if left out"
    )
    svt: SvtConfig | None = Field(default=None, description="a mechanism of its own for this stream")

    @field_validator("queries", mode="before")
    @classmethod
    def _tuple(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.path is None) == (self.queries is None):
            raise refuse(("path",), "or queries is needed, and not both")
        if self.share is not None and not 0 < self.share <= 1:
            raise refuse(("share",), f"must be above 0 and at most 1, got {self.share}")
        return self


class QueriesConfig(JobConfig):
    """Which of these queries are above a threshold?"""

    NAME: ClassVar[str] = "queries"

    queries: Name = Field(description="the name of this run, such as alerts-{date}")
    stream: StreamConfig | None = None
    streams: tuple[StreamConfig, ...] | None = None
    svt: SvtConfig | None = None

    @field_validator("stream", mode="before")
    @classmethod
    def _inline(cls, value: Any) -> Any:
        return {"queries": value} if isinstance(value, list) else value

    @field_validator("streams", mode="before")
    @classmethod
    def _list(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.stream is None) == (not self.streams):
            raise refuse(("stream",), "or streams is needed, such as stream: {path: queries.jsonl}")
        if self.svt is None and any(stream.svt is None for stream in self.all_streams):
            raise refuse(("svt",), "is missing; such as {threshold: 1000, cutoff: 20}")
        names = [stream.name or f"stream-{i}" for i, stream in enumerate(self.all_streams, start=1)]
        if len(set(names)) < len(names):
            raise refuse(("streams",), "must have different names")
        shares = [stream.share for stream in self.all_streams]
        given = [share for share in shares if share is not None]
        if given and len(given) < len(shares):
            raise refuse(("streams",), "must all have a share, or none of them")
        if given and sum(given) > 1:
            raise refuse(("streams",), f"must have shares that add up to at most 1, got {sum(given)}")
        return self

    @property
    def all_streams(self) -> tuple[StreamConfig, ...]:
        """The streams in order."""
        return (self.stream,) if self.stream is not None else self.streams or ()
