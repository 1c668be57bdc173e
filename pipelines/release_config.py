"""The config of ``hushgram release``: what `JobConfig` has, with the fields of the sketch's mechanisms."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from hushgram.errors import ParameterError
from hushgram.pipelines.config import Exact, JobConfig, Model, Name, PrivacyConfig, refuse
from hushgram.sparse_histogram.params import ReleaseParams

__all__ = ["DomainConfig", "ReleaseConfig", "ReleasePrivacy", "SizesConfig", "SplitConfig"]

# Messages of ReleaseParams begin with the parameter that is wrong; these have another name in the config.
_PARAMETER = re.compile(r"ReleaseParams: (?:the shares of )?([a-z_.]+)\b\s*(.*)", re.DOTALL)
_FIELDS = {"expected_records": ("sizes", "records"), "expected_keys": ("sizes", "keys")}


class SizesConfig(Model):
    """Public sizes of the data. Where they are given, no budget is spent on learning them."""

    records: int = Field(ge=1, le=1 << 50, description="about how many records, from public knowledge")
    keys: int = Field(ge=1, le=1 << 50, description="about how many distinct keys, from public knowledge")


class SplitConfig(Model):
    """Shares of epsilon; they add up to 1."""

    size: Exact = Field(description="share for learning the sizes, such as 0.02; 0 where sizes are given")
    threshold: Exact = Field(description="share for the keys listed by themselves, such as 0.49")
    alp: Exact = Field(description="share for the bits that answer for all other keys, such as 0.49")


class DomainConfig(Model):
    """Which keys there can be, where that is known without looking at the data."""

    public_keys: str = Field(
        min_length=1, description="a file with one key a line; each gets noise, also at 0"
    )


class ReleasePrivacy(PrivacyConfig):
    """The guarantee, and how the sketch spends it. Whatever is left out has the library's default."""

    preset: Literal["paper"] | None = Field(default=None, description="the setting of the ALP paper")
    alpha: Exact | None = Field(default=None, description="a bit flips with probability 1/(alpha + 2)")
    split: SplitConfig | None = None
    bits_per_key: Exact | None = Field(default=None, description="space of the sketch, such as 8")
    columns: Literal["tapered", "flat"] | None = None
    domain_bits: int | None = Field(default=None, description="fingerprint bits where delta is 0, 8 to 64")
    false_keys: Exact | None = Field(
        default=None, description="false keys where delta is 0: a share of all (0.03) or a number (from 1)"
    )
    width: Literal["exact", "paper"] | None = None
    domain: DomainConfig | None = Field(default=None, description="public_keys: FILE, or leave it out")


class ReleaseConfig(JobConfig):
    """A private sketch of how often each key occurs."""

    NAME: ClassVar[str] = "release"

    release: Name = Field(description="the name of this release, such as urls-daily or urls-{date}")
    privacy: ReleasePrivacy
    sizes: SizesConfig | None = None

    def params(self) -> ReleaseParams:
        """The parameters of the release, as the library checks them."""
        chosen: dict[str, Any] = {
            name: getattr(self.privacy, name)
            for name in ("alpha", "bits_per_key", "columns", "domain_bits", "false_keys", "width")
            if getattr(self.privacy, name) is not None
        }
        if self.privacy.split is not None:
            chosen["split"] = dict(self.privacy.split)
        if self.sizes is not None:
            chosen.update(expected_records=self.sizes.records, expected_keys=self.sizes.keys)
        make = ReleaseParams.paper if self.privacy.preset == "paper" else ReleaseParams
        return make(
            epsilon=self.privacy.epsilon,
            delta=self.privacy.delta,
            max_contributions=self.privacy.contributions,
            max_per_key=self.privacy.max_per_key,
            **chosen,
        )

    @model_validator(mode="after")
    def _listed(self) -> Self:
        if self.privacy.domain is None:
            return self
        if self.privacy.delta != 0:
            raise refuse(
                ("privacy", "delta"), f"must be 0 with a public list of keys, got {self.privacy.delta}"
            )
        for name in (
            "preset",
            "alpha",
            "split",
            "bits_per_key",
            "columns",
            "domain_bits",
            "false_keys",
            "width",
        ):
            if getattr(self.privacy, name) is not None:
                raise refuse(("privacy", name), "has no effect with a public list of keys; leave it out")
        if self.sizes is not None:
            raise refuse(("sizes",), "have no effect with a public list of keys; leave them out")
        return self

    @model_validator(mode="after")
    def _checked(self) -> Self:
        try:
            self.params()
        except ParameterError as problem:
            match = _PARAMETER.match(str(problem))
            if match is None:
                raise ValueError(str(problem)) from None
            raise refuse(_FIELDS.get(match[1], ("privacy", *match[1].split("."))), match[2]) from None
        return self
