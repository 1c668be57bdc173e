"""The config of ``hushgram clip``: what `JobConfig` has, with a numeric column and a grid of bounds."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from hushgram.pipelines.config import Exact, InputConfig, JobConfig, Model, Name, PrivacyConfig, refuse

__all__ = ["ClipConfig", "ClipInput", "ClipPrivacy", "ClipSplit", "GridConfig"]


class ClipInput(InputConfig):
    """Which records to read; ``column`` is another word for the key here."""

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


class GridConfig(Model):
    """The bounds that the search goes through; all in the column's own numbers."""

    kind: Literal["exponential", "linear"] = "exponential"
    start: Exact = Field(default=Fraction(1), description="the first bound")
    stop: Exact = Field(default=Fraction(10**9), description="the last; larger values are clamped to it")
    ratio: Exact = Field(default=Fraction(6, 5), description="exponential: each bound is so much larger")
    step: Exact = Field(default=Fraction(1), description="linear: bounds are so far apart")
    lower: Exact = Field(default=Fraction(0), description="smaller values are clamped to it")
    unit: Exact | None = Field(
        default=None, description="values are rounded to multiples of it; 1, or 0.01 where they are not whole"
    )
    threshold: int | None = Field(
        default=None, ge=0, description="records that may be left above the bound; follows from epsilon"
    )


class ClipSplit(Model):
    """Shares of epsilon; they add up to 1."""

    bound: Exact = Field(description="share for the search of the bound, such as 1/3")
    sum: Exact = Field(description="share for the sum, such as 1/3")
    count: Exact = Field(description="share for the number of records, such as 1/3")


class ClipPrivacy(PrivacyConfig):
    """The guarantee, and how it is divided."""

    split: ClipSplit | None = None


class ClipConfig(JobConfig):
    """Sum, count and average of a column, clipped at a bound found privately."""

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
