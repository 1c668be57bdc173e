"""The config of ``hushgram release``: what `JobConfig` has, with the fields of the sketch's mechanisms."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from hushgram.pipelines.config import Exact, JobConfig, Model, Name, PrivacyConfig

__all__ = ["ReleaseConfig", "ReleasePrivacy", "SizesConfig"]


class SizesConfig(Model):
    """Public sizes of the data. Where they are given, no budget is spent on learning them."""

    records: int = Field(
        ge=1, le=1 << 62, description="about how many records there are, from public knowledge"
    )
    keys: int = Field(
        ge=1, le=1 << 62, description="about how many distinct keys there are, from public knowledge"
    )


class ReleasePrivacy(PrivacyConfig):
    """The guarantee, and how the sketch spends it."""

    alpha: Exact | None = Field(
        default=None, description="randomized response flips a bit with probability 1/(alpha + 2)"
    )


class ReleaseConfig(JobConfig):
    """A private sketch of how often each key occurs."""

    NAME: ClassVar[str] = "release"

    release: Name = Field(description="the name of this release, such as urls-daily or urls-{date}")
    privacy: ReleasePrivacy
    sizes: SizesConfig | None = None
