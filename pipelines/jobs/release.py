"""``hushgram release``: a histogram over a huge key domain as a private sketch.

    read ─► ReleaseSparseHistogram (bound, merge, plan, threshold, encode, write) ─► urls.sketch

`hushgram.pipelines.release.run_release` is the same without a config, for programs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, PlainSerializer, WrapValidator, model_validator

from hushgram.accounting import Event
from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.numbers import show
from hushgram.pipelines.config import Exact, InputConfig, JobConfig, Model, Name, PrivacyConfig, refuse
from hushgram.pipelines.jobs.job import Job, Line, LocalResources, Pipeline
from hushgram.sparse_histogram.contributions import MOST
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.plan import release_events

__all__ = [
    "JOB", "DomainConfig", "Release", "ReleaseConfig", "ReleaseInput", "ReleasePrivacy", "SizesConfig", "SplitConfig",
]  # fmt: skip

# Messages of ReleaseParams begin with the parameter that is wrong; these have another name in the config.
_PARAMETER = re.compile(r"ReleaseParams: (?:the shares of )?([a-z_.]+)\b\s*(.*)", re.DOTALL)
_FIELDS = {"expected_records": ("sizes", "records"), "expected_keys": ("sizes", "keys")}
# What the mechanisms of a sketch take, by the name that config and library share.
_CHOICES = (
    "alpha", "bits_per_key", "columns", "domain_bits", "encoding", "false_keys", "max_value", "noise", "unit", "width",
)  # fmt: skip
# A field that takes the word auto too, with the error messages that it has without.
_OR_AUTO = WrapValidator(lambda value, check: value if value == "auto" else check(value))
_AS_IT_IS = PlainSerializer(lambda value: value.model_dump() if isinstance(value, Model) else value)


class SizesConfig(Model):
    """Public sizes of the data. Where they are given, no budget is spent on learning them."""

    records: int = Field(
        ge=1, le=1 << 50, description="about how many records, or their sum with input.value"
    )
    keys: int = Field(ge=1, le=1 << 50, description="about how many distinct keys, from public knowledge")


class SplitConfig(Model):
    """Shares of epsilon; they add up to 1. The encoding's goes by its own word too: ``alp``."""

    size: Exact = Field(description="share for learning the sizes, such as 0.02; 0 where sizes are given")
    threshold: Exact = Field(description="share for the keys listed by themselves, such as 0.49")
    encoding: Exact | None = Field(default=None, description="share for all other keys, such as 0.49")
    contributions: Exact | None = Field(
        default=None, description="share for choosing max_contributions where that is auto, such as 0.05"
    )
    alp: Exact | None = Field(default=None, description="the same, where the encoding is alp")
    buckets: Exact | None = Field(default=None, description="the same, where the encoding is buckets")


class DomainConfig(Model):
    """Which keys there can be, where that is known without looking at the data."""

    public_keys: str = Field(
        min_length=1, description="a file with one key a line; each gets noise, also at 0"
    )


class ReleasePrivacy(PrivacyConfig):
    """The guarantee, and how the sketch spends it. Whatever is left out has the library's default."""

    max_contributions: Annotated[int | None, _OR_AUTO, _AS_IT_IS] = Field(
        default=None,
        ge=1,
        description="how much one user may contribute in all, such as 8; auto chooses it from the data",
    )
    preset: Literal["paper"] | None = Field(default=None, description="the setting of the ALP paper")
    encoding: str | None = Field(default=None, description="how all other keys are released, such as alp")
    noise: str | None = Field(
        default=None, description="noise on counts: auto (the smaller), laplace, gaussian"
    )
    alpha: Exact | None = Field(default=None, description="a bit flips with probability 1/(alpha + 2)")
    split: Annotated[SplitConfig | None, _OR_AUTO, _AS_IT_IS] = Field(
        default=None, description="shares of epsilon by name, or auto: after the sizes are released"
    )
    bits_per_key: Exact | None = Field(default=None, description="space of the sketch, such as 8")
    columns: Literal["tapered", "flat"] | None = None
    domain_bits: int | None = Field(default=None, description="fingerprint bits where delta is 0, 8 to 64")
    false_keys: Exact | None = Field(
        default=None, description="false keys where delta is 0: a share of all (0.03) or a number (from 1)"
    )
    width: Literal["exact", "paper"] | None = None
    max_value: Exact | None = Field(
        default=None,
        description="with input.value: the most that a user may add to one key, in place of max_per_key",
    )
    unit: Exact | None = Field(
        default=None, description="with input.value: the grid to which sums are rounded, such as max_value/16"
    )
    domain: DomainConfig | None = Field(default=None, description="public_keys: FILE, or leave it out")

    @property
    def contributions(self) -> int | Fraction:  # type: ignore[override]  # in terms of the values
        if self.chooses_contributions:
            return MOST * (self.unit or 1)
        return self.max_contributions or 1

    @property
    def per_key(self) -> int | Fraction:
        return self.max_per_key if self.max_value is None else self.max_value

    @property
    def chooses_contributions(self) -> bool:
        """Whether C is chosen from the data."""
        return str(self.max_contributions) == "auto"

    def params(self, sizes: SizesConfig | None = None) -> ReleaseParams:
        """The parameters of a release, as the library checks them."""
        chosen: dict[str, Any] = {
            name: getattr(self, name) for name in _CHOICES if getattr(self, name) is not None
        }
        if self.split is not None:
            stated: SplitConfig | str = self.split
            chosen["split"] = stated if isinstance(stated, str) else stated.model_dump(exclude_none=True)
        if sizes is not None:
            records = max(int(sizes.records / (self.unit or 1)), 1)
            chosen.update(expected_records=records, expected_keys=sizes.keys)
        most: Any = self.contributions
        if self.max_value is not None and self.max_contributions is None:
            most = self.max_value  # of a record, which adds to one key
        make = ReleaseParams.paper if self.preset == "paper" else ReleaseParams
        return make(
            epsilon=self.epsilon,
            delta=self.delta,
            max_contributions="auto" if self.chooses_contributions else most,
            max_per_key=self.max_per_key,
            **chosen,
        )

    def check_values(self, value: str | None, group: tuple[str, ...] = ("privacy",)) -> None:
        """Refuses bounds on values where none are added up, and the reverse."""
        for name in ("max_value", "unit"):
            given = getattr(self, name) is not None
            if given and value is None:
                raise refuse(
                    (*group, name), "goes with a value, the column of numbers to add up (input.value)"
                )
            if not given and value is not None:
                raise refuse(
                    (*group, name),
                    "must be given with input.value: at most max_value of a user for one key, rounded to unit, such as"
                    " a sixteenth of it",
                )


class ReleaseInput(InputConfig):
    """Which records to read, and what of them."""

    value: str | None = Field(
        default=None,
        min_length=1,
        description="a column of numbers: their sums are released in place of counts",
    )

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.value is not None and self.value in (self.user, self.key):
            raise refuse(("value",), f"must be another column than user and key, got {self.value!r}")
        return self


class ReleaseConfig(JobConfig):
    """A private sketch of how often each key occurs."""

    NAME: ClassVar[str] = "release"

    release: Name = Field(description="the name of this release, such as urls-daily or urls-{date}")
    input: ReleaseInput
    privacy: ReleasePrivacy
    sizes: SizesConfig | None = None

    def params(self) -> ReleaseParams:
        """The parameters of the release, as the library checks them."""
        return self.privacy.params(self.sizes)

    @model_validator(mode="after")
    def _public(self) -> Self:
        self.privacy.check_values(self.input.value)
        if self.privacy.chooses_contributions and (
            self.input.user is None or self.privacy.domain is not None
        ):
            raise refuse(
                ("privacy", "max_contributions"),
                "auto needs a column of users and no public list of keys; state a number",
            )
        if self.privacy.domain is None:
            return self
        if self.privacy.delta != 0:
            raise refuse(
                ("privacy", "delta"), f"must be 0 with a public list of keys, got {self.privacy.delta}"
            )
        for name in sorted({"preset", "split", *_CHOICES} - {"max_value", "unit"}):
            if getattr(self.privacy, name) is not None:
                raise refuse(("privacy", name), "has no effect with a public list of keys; leave it out")
        if self.sizes is not None:
            raise refuse(("sizes",), "have no effect with a public list of keys; leave them out")
        return self

    @model_validator(mode="after")
    def _checked(self) -> Self:
        with placed("privacy"):
            check_record(self, self.params())
        return self


def check_record(config: JobConfig, params: ReleaseParams) -> None:
    """Refuses noise that needs keys of one record to be in different buckets: only users' keys are kept apart."""
    if config.several_keys and params.sensitivity.classes:
        raise refuse(
            ("privacy", "noise"),
            f"must be laplace with encoding buckets where {config.input.key!r} gives several keys per record",
        )


@contextmanager
def placed(*group: str) -> Iterator[None]:
    """A mistake in parameters is one in the field of that group."""
    try:
        yield
    except ParameterError as problem:
        match = _PARAMETER.match(str(problem))
        if match is None:
            raise ValueError(str(problem)) from None
        raise refuse(_FIELDS.get(match[1], (*group, *match[1].split("."))), match[2]) from None


class Release(Job[ReleaseConfig]):
    """A sketch of how often each key occurs."""

    Config = ReleaseConfig
    subject = "The sketch is"
    shape = "directory"

    def resolve(self) -> None:
        self.params = self.config.params()
        self.public_keys: list[bytes] | None = None
        if self.config.privacy.domain is not None:
            from hushgram.inputs.key_lists import read_key_list
            from hushgram.transforms.files import open_file

            path = self.config.privacy.domain.public_keys
            self.public_keys = read_key_list(path, "privacy.domain.public_keys", open_file)

    def values(self) -> tuple[str, ...]:
        return () if self.config.input.value is None else (self.config.input.value,)

    def record_bounds(self) -> tuple[int, int]:
        return self.params.record_bounds

    def events(self) -> list[Event]:
        return release_events(self.params, self.unit, public=self.public_keys is not None)

    def resolved(self) -> dict[str, Any]:
        listed = None if self.public_keys is None else digest(*self.public_keys).hex()
        return {"params": self.params.as_text(), "public_keys": listed}

    def build(self, pipeline: Pipeline, path: str, release_key: ReleaseKey, local: LocalResources) -> None:
        from hushgram.pipelines.jobs.stages import records
        from hushgram.pipelines.release import build_release

        release = build_release(
            self.params,
            self.source,
            user=self.config.input.user,
            key=self.config.input.key,
            value=self.config.input.value,
            path=path,
            public_keys=self.public_keys,
            name=self.name,
            release_key=release_key,
            shards=self.config.shards,
            local=local,
        )
        _ = records(pipeline, self) | "Release" >> release

    def check_lines(self) -> Iterator[Line]:
        if self.public_keys is not None:
            yield from _public_lines(self.params, len(self.public_keys))
            return
        from hushgram.pipelines.planning import expected_lines

        yield from _choices(self.params)
        yield from expected_lines(self.config, self.params, self.source.rows or None)

    def closing_lines(self, path: str) -> Iterator[Line]:
        from hushgram.pipelines.table_output import human_bytes
        from hushgram.sketch.reader import Sketch

        sketch = Sketch.open(path)
        yield "size", human_bytes(sketch.size)
        if self.public_keys is not None:
            yield from _public_lines(self.params, len(self.public_keys))
        else:
            yield "about", f"{sketch.sizes_in_words()} (may be published)"
            yield "worth", sketch.resolution().sentence()
            if sketch.plan.totals is not None:
                yield (
                    "contributions",
                    sketch.plan.totals.in_words(sketch.plan.params.max_contributions, sketch.per_count),
                )
        quoted = shlex.quote(path)
        yield "next", f"hushgram query {quoted} KEY"
        yield "", f"hushgram heavy {quoted}"
        yield "", f"hushgram inspect {quoted}"

    def released(self, path: str) -> pa.Table:
        """The heavy keys."""
        from hushgram.sketch.reader import Sketch

        return Sketch.open(path).heavy()


def _choices(params: ReleaseParams) -> Iterator[Line]:
    resolved = params.as_text()
    for name in ("alpha", "columns", "bits_per_key", "domain_bits", "false_keys", "width"):
        given = resolved.get(name)
        if given is not None and not (name in ("domain_bits", "false_keys") and params.delta != 0):
            yield name, str(given)


def _public_lines(params: ReleaseParams, keys: int) -> Iterator[Line]:
    """A release over a public list."""
    from hushgram.laplace_mechanism import LaplaceParams, max_error

    noise = LaplaceParams(params.epsilon, max_contributions=params.max_contributions)
    per = params.per_count
    yield "public keys", f"{keys:,}, each with Laplace noise of scale {show(noise.scale * per)}"
    worst = float(max_error(keys, noise) * per)
    yield "error", f"with probability 95 % no count is off by more than {worst:,.10g}"


JOB = Release
