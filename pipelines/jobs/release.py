"""``hushgram release``: a histogram over a huge key domain as a private sketch.

    read ─► ReleaseSparseHistogram (bound, merge, plan, threshold, encode, write) ─► urls.sketch

`run_release` is the same without a config, for programs:

    plan = plan_records(["data/*.parquet"], Source(ids=("user_id", "url")))
    result = run_release(params, plan, user="user_id", key="url", path="out/urls.sketch")
    result.sketch().estimate(["https://example.org/"])

The sketch is the one of ``hushgram.release`` on the same records and release key, byte for byte. The exact figures of
the result are for the operator's terminal alone: they are not differentially private.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PlainSerializer, WrapValidator, model_validator

from hushgram.accounting import Event, Guarantee
from hushgram.errors import InputError, ParameterError
from hushgram.inputs import InputPlan, Limits
from hushgram.inputs.source import first_line
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.numbers import show
from hushgram.pipelines.config.models import Exact, InputConfig, JobConfig, Model, Name, PrivacyConfig, refuse
from hushgram.pipelines.jobs.job import Job, Line, LocalResources, Pipeline
from hushgram.pipelines.terminal import EXACT, file_size
from hushgram.sensitivity import PrivacyUnit
from hushgram.sparse_histogram.params import Params, ReleaseParams
from hushgram.sparse_histogram.plan import release_events, release_steps
from hushgram.sparse_histogram.users import MAX_CHOICE

if TYPE_CHECKING:
    from apache_beam import PTransform
    from apache_beam.options.pipeline_options import PipelineOptions

    from hushgram.sketch.reader import Sketch

__all__ = [
    "JOB", "DomainConfig", "Release", "ReleaseConfig", "ReleaseInput", "ReleasePrivacy", "ReleaseResult", "SizesConfig",
    "run_release",
]  # fmt: skip

# Messages of ReleaseParams begin with the parameter that is wrong; these have another name in the config.
_PARAMETER = re.compile(r"ReleaseParams: ([a-z_.]+)\b\s*(.*)", re.DOTALL)
_FIELDS = {
    "sizes": ("sizes",),
    "sizes.records": ("sizes", "records"),
    "sizes.keys": ("sizes", "keys"),
}
# What a release takes, by the name that config and library share.
_CHOICES = ("bits_per_key", "granularity", "max_value", "preset")
# A field that takes auto too, with the error messages that it has without.
_OR_AUTO = WrapValidator(lambda value, check: value if value == "auto" else check(value))
_AS_IT_IS = PlainSerializer(lambda value: value)


class SizesConfig(Model):
    """Public sizes of the data. Where they are given, no budget is spent on learning them."""

    records: int = Field(
        ge=1, le=1 << 50, description="about how many records, or their sum with input.value"
    )
    keys: int = Field(ge=1, le=1 << 50, description="about how many distinct keys, from public knowledge")


class DomainConfig(Model):
    """Which keys there can be, where that is known without looking at the data."""

    public_keys: str = Field(
        min_length=1, description="a file with one key per line; each gets noise, also at 0"
    )


class ReleasePrivacy(PrivacyConfig):
    """The guarantee, and how the sketch spends it. Whatever is left out has the library's default."""

    max_contributions: Annotated[int | None, _OR_AUTO, _AS_IT_IS] = Field(
        default=None,
        ge=1,
        description="how much one user may contribute in all, such as 8; auto chooses it from the data",
    )
    preset: Literal["paper"] | None = Field(default=None, description="the setting of the ALP paper")
    bits_per_key: Exact | None = Field(default=None, description="space of the sketch, such as 8")
    max_value: Exact | None = Field(
        default=None,
        description="with input.value: the most that a user may add to one key, in place of max_per_key",
    )
    granularity: Exact | None = Field(
        default=None,
        description="with input.value: sums are rounded to multiples of it, such as max_value/16",
    )
    domain: DomainConfig | None = Field(default=None, description="public_keys: FILE, or leave it out")

    @property
    def contributions(self) -> int | Fraction:  # type: ignore[override]  # in terms of the values
        if self.chooses_contributions:
            return MAX_CHOICE * (self.granularity or 1)
        return self.max_contributions or 1

    @property
    def per_key(self) -> int | Fraction:
        return self.max_per_key if self.max_value is None else self.max_value

    @property
    def chooses_contributions(self) -> bool:
        """Return whether C is chosen from the data."""
        return str(self.max_contributions) == "auto"

    def params(self, sizes: SizesConfig | None = None) -> ReleaseParams:
        """Return the parameters of a release, as the library checks them."""
        chosen: dict[str, Any] = {
            name: getattr(self, name) for name in _CHOICES if getattr(self, name) is not None
        }
        if sizes is not None:
            chosen["sizes"] = (max(int(sizes.records / (self.granularity or 1)), 1), sizes.keys)
        most: Any = self.contributions
        if self.max_value is not None and self.max_contributions is None:
            most = self.max_value  # of a record, which adds to one key
        return ReleaseParams(
            epsilon=self.epsilon,
            delta=self.delta,
            max_contributions="auto" if self.chooses_contributions else most,
            max_per_key=self.max_per_key,
            **chosen,
        )

    def check_values(self, value: str | None, group: tuple[str, ...] = ("privacy",)) -> None:
        """Refuse bounds on values where none are summed, and the reverse."""
        for name in ("max_value", "granularity"):
            given = getattr(self, name) is not None
            if given and value is None:
                raise refuse((*group, name), "goes with a value, the column of numbers to sum (input.value)")
            if not given and value is not None:
                raise refuse(
                    (*group, name),
                    "must be given with input.value: at most max_value per user and key, rounded to multiples of"
                    " granularity, such as a sixteenth of it",
                )


class ReleaseInput(InputConfig):
    """Which records to read, and what of them."""

    value: str | None = Field(
        default=None,
        min_length=1,
        description="a column of numbers: their sums are released in place of counts",
    )

    @model_validator(mode="after")
    def _other_column(self) -> Self:
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
    carry: str | None = Field(
        default=None,
        min_length=1,
        description="an earlier sketch, such as out/urls-{yesterday}.sketch, or a file with one key per line: its named"
        " keys are public, and are counted without being selected again",
    )

    @cached_property
    def _params(self) -> Params:
        unit: PrivacyUnit = "record" if self.input.user is None else "user"
        params = self.stated.resolve(unit, public=self.privacy.domain is not None)
        params.check()
        return params

    @cached_property
    def stated(self) -> ReleaseParams:
        """Return the parameters as the library checks them."""
        return self.privacy.params(self.sizes)

    def params(self) -> Params:
        """Return what the parameters mean for this input."""
        return self._params

    @model_validator(mode="after")
    def _public(self) -> Self:
        self.privacy.check_values(self.input.value)
        if self.privacy.chooses_contributions and (
            self.input.user is None or self.privacy.domain is not None
        ):
            raise refuse(
                ("privacy", "max_contributions"),
                "auto needs a column of users and no public keys; state a number",
            )
        if self.privacy.domain is None:
            return self
        for name in sorted(set(_CHOICES) - {"max_value", "granularity"}):
            if getattr(self.privacy, name) is not None:
                raise refuse(("privacy", name), "has no effect with public keys; leave it out")
        if self.sizes is not None:
            raise refuse(("sizes",), "have no effect with public keys; leave them out")
        return self

    @model_validator(mode="after")
    def _checked(self) -> Self:
        with placed("privacy"):
            self.params()
        if self.carry is not None and not self.params().weighted:
            raise refuse(
                ("carry",),
                "needs delta above 0, a column of users with max_contributions above 1, and no public keys",
            )
        return self


@contextmanager
def placed(*group: str) -> Iterator[None]:
    """Turn a mistake in parameters into one in the field of that group."""
    try:
        yield
    except ParameterError as problem:
        match = _PARAMETER.match(str(problem))
        if match is None:
            raise ValueError(str(problem)) from None
        raise refuse(_FIELDS.get(match[1], (*group, *match[1].split("."))), match[2]) from None


# Below this share the operator is warned about what bounding drops.
_KEPT_SHARE = 0.9
# A larger input is not read by --check.
_MAX_MEASURED = 256 << 20


def _carried_keys(path: str) -> list[Any] | None:
    """Return the keys that a sketch names, or those of a file; None where there is neither, as on the first date."""
    from pyarrow import ArrowException, fs

    from hushgram.inputs.source import read_key_list
    from hushgram.sketch.reader import Sketch

    try:  # as commands that read a sketch: with the credentials of the environment
        system, place = fs.FileSystem.from_uri(path if "://" in path else os.path.abspath(path))
        kind = system.get_file_info(place).type
    except (OSError, ArrowException) as problem:
        raise InputError(f"carry: {path} cannot be read: {first_line(problem)}") from None
    if kind == fs.FileType.Directory:
        return list(Sketch.open(path.removeprefix("file://")).named_keys())
    if kind == fs.FileType.NotFound:
        return None
    return read_key_list(path, "carry", lambda _: system.open_input_file(place))


def _bytes(key: Any) -> bytes:
    return key.encode() if isinstance(key, str) else bytes(key)


class Release(Job[ReleaseConfig]):
    """A sketch of how often each key occurs."""

    Config = ReleaseConfig
    subject = "The sketch is"
    shape = "directory"

    def resolve(self) -> None:
        self.params = self.config.params()
        self.public_keys: list[bytes] | None = None
        if self.config.privacy.domain is not None:
            from hushgram.inputs.source import read_key_list
            from hushgram.pipelines.terminal import odd_keys, print_line
            from hushgram.transforms.files import open_file

            path = self.config.privacy.domain.public_keys
            self.public_keys = read_key_list(path, "privacy.domain.public_keys", open_file)
            for warning in odd_keys(self.public_keys):
                print_line(f"warning: privacy.domain.public_keys: {warning}", err=True)
        self.carried = None if self.config.carry is None else _carried_keys(self.config.carry)

    def values(self) -> tuple[str, ...]:
        return () if self.config.input.value is None else (self.config.input.value,)

    def record_bounds(self) -> tuple[int, int]:
        return self.params.record_bounds

    def events(self) -> list[Event]:
        return release_events(self.params, charged=True)

    def guarantee(self) -> Guarantee:
        steps = release_steps(self.params)
        if not steps and self.params.choose_contributions:
            steps = "Each user counts at most max_contributions, which is chosen from a noisy histogram over users."
        return replace(super().guarantee(), steps=steps)

    def resolved(self) -> dict[str, Any]:
        listed = None if self.public_keys is None else digest(*self.public_keys).hex()
        carried = None if not self.carried else digest(*map(_bytes, self.carried)).hex()
        return {"params": self.params.to_dict(), "public_keys": listed, "carried": carried}

    def build(self, pipeline: Pipeline, path: str, release_key: ReleaseKey, local: LocalResources) -> None:
        from hushgram.transforms.release_sparse_histogram import ReleaseSparseHistogram
        from hushgram.transforms.shuffle.combining import shards_for

        config, key = self.config.input, self.config.input.key
        release = ReleaseSparseHistogram(
            self.config.stated,
            user=config.user,
            key=key,
            value=config.value,
            path=path,
            public_keys=self.public_keys,
            name=self.name,
            key_expression=key if key in self.source.source.key_expressions else "",
            release_key=release_key,
            shards=shards_for(self.source.bytes, self.config.shards),
            local=local,
            carry=self.carried,
            counters=True,
        )
        _ = self.records(pipeline, tallies=True) | "Release" >> release

    def check_lines(self) -> Iterator[Line]:
        if self.config.carry is not None:
            found = f"{len(self.carried):,} keys of" if self.carried is not None else "nothing:"
            gone = "" if self.carried is not None else " does not exist, all keys are selected anew"
            yield "carried", f"{found} {self.config.carry}{gone}"
        if self.public_keys is not None:
            yield from _public_lines(self.params, len(self.public_keys))
            return
        from hushgram.pipelines.planning import expected_lines

        yield "bits_per_key", show(self.params.bits_per_key)
        if self.config.input.value is not None:
            yield (
                "values",
                "from 0 on; records with a negative one, such as a refund, are rejected: release their amounts by a"
                " second config, as positive numbers",
            )
        yield from expected_lines(self.config, self.config.stated, self.source.rows or None)

    def measure(self, options: PipelineOptions) -> Mapping[str, int]:
        """Return exact figures of all records, bounded as a run bounds them where C is stated; releases nothing.

        Where keys are selected by weights, a run keeps this much or more: selected keys need no classes of buckets.
        """
        if self.config.input.user is None or self.public_keys is not None or self.params.choose_contributions:
            return {}
        from hushgram.pipelines.run.beam_runners import is_local

        if self.source.bytes > _MAX_MEASURED or not is_local(
            options
        ):  # a dry run submits no job to an engine
            return {}
        from hushgram.pipelines.run.job_runner import run_built
        from hushgram.sparse_histogram.spec import ReleaseSpec
        from hushgram.transforms.bound_contributions import BoundContributions
        from hushgram.transforms.merge_histograms import MergeHistograms

        config = self.config.input
        spec = ReleaseSpec.of(self.config.stated, key=config.key, user=config.user, value=config.value)
        bounding = replace(spec.bounding, bounds=(spec.bounds(),))

        def build(pipeline: Pipeline, local: LocalResources) -> None:
            records = self.records(pipeline, keep_rejected=False)
            bounded = records | "Bound" >> BoundContributions(bounding, local=local, counters=True)
            _ = bounded | "Merge" >> MergeHistograms(1, texts=spec.texts, counters=True)

        return run_built(build, options, title=self.name, total_bytes=None, quiet=True).exact

    def exact_lines(self, exact: Mapping[str, int]) -> Iterator[Line]:
        """Yield the share of all records, or of the sum of their values, that is counted after bounding."""
        whole = self.config.input.user is not None and self.public_keys is None
        offered = exact.get("offered")
        if not whole or not offered or "records" not in exact:
            return
        share, what = exact["records"] / offered, "records" if self.params.granularity is None else "the sum"
        yield "kept", f"{share:.1%} of {what} after bounding ({EXACT}); single keys may lose more, or less"
        if share < _KEPT_SHARE:
            bounds = (
                "max_contributions or max_per_key" if what == "records" else "max_contributions or max_value"
            )
            yield (
                "warning",
                f"bounding dropped {1 - share:.0%} of {what} ({EXACT}), which no interval accounts for; raise {bounds}"
                " if noise allows it (hushgram plan)",
            )

    def closing_lines(self, path: str) -> Iterator[Line]:
        from hushgram.sketch.reader import Sketch

        sketch = Sketch.open(path)
        yield "size", file_size(sketch.size)
        if self.public_keys is not None:
            yield from _public_lines(self.params, len(self.public_keys))
        else:
            yield named_line(sketch)
            if sketch.plan.layout is not None or sketch.plan.sizes.scale:
                yield "released sizes", f"{sketch.sizes_in_words()} (may be published)"
            limit = sketch.detection_limit()
            yield "detection limit", limit.sentence()
            few = limit.keys is not None and limit.keys + limit.error < 1
            sizes, stated = sketch.plan.sizes, sketch.plan.params.sizes is not None
            if few or ((sizes.scale or stated) and limit.count > sizes.records * sketch.per_count):
                yield (
                    "warning",
                    "the noise hides nearly every count of so little data: raise epsilon, lower max_contributions, or"
                    " release more records together; hushgram plan CONFIG compares settings",
                )
            if (kept := sketch.kept_in_words()) is not None:
                yield "kept", f"{kept} (may be published)"
        quoted = shlex.quote(path)
        yield "next", f"hushgram query {quoted} KEY"
        yield "", f"hushgram heavy {quoted}"
        yield "", f"hushgram inspect {quoted}"


def named_line(sketch: Sketch) -> Line:
    """Return how many keys are named or listed, and the noise on their counts."""
    listed, plan, per = sketch.manifest.heavy_rows, sketch.plan, sketch.per_count
    noise = float(plan.noise.variance(plan.scale)) ** 0.5 * per
    return (
        "named keys" if plan.selection.texts else "listed keys",
        f"{listed:,}, each with a noisy {sketch.measure} of standard deviation {noise:,.4g}",
    )


def _public_lines(params: Params, keys: int) -> Iterator[Line]:
    """Yield what to expect of a release of public keys."""
    from hushgram.mechanisms.laplace import LaplaceParams, max_error
    from hushgram.sparse_histogram.plan import make_public_plan

    plan, per = make_public_plan(params, keys), params.per_count
    yield (
        "public keys",
        f"{keys:,}, each with {plan.noise_name.capitalize()} noise of scale {show(plan.scale * per)}",
    )
    if plan.noise_name == "laplace":
        noise = LaplaceParams(params.epsilon, max_contributions=params.max_contributions)
        worst = float(max_error(keys, noise) * per)
    else:
        worst = plan.noise.law(float(plan.scale)).interval(1 - 0.05 / keys) * float(per)
    what = "count" if params.granularity is None else "sum"
    yield "error", f"with probability 95 % no {what} is off by more than {worst:,.10g}"


@dataclass(frozen=True)
class ReleaseResult:
    """A finished release: where it is, how long it took, and what the job counted.

    ``exact`` is for the operator alone: rows read, rejected records ("rejected", and each reason), records kept after
    bounding, distinct keys. It is empty on a runner that does not tell.
    """

    path: str
    seconds: float
    exact: dict[str, int]

    def sketch(self) -> Sketch:
        """Return the sketch, opened and checked."""
        from hushgram.sketch.reader import Sketch

        return Sketch.open(self.path)


def run_release(
    params: ReleaseParams,
    source: InputPlan | PTransform,
    *,
    key: str,
    path: str | os.PathLike[str],
    shards: int | None = None,
    options: PipelineOptions | None = None,
    rejected_records: str | None = None,
    limits: Limits | None = None,
    quiet: bool = True,
    **release_arguments: Any,
) -> ReleaseResult:
    """Run one release and wait for it.

    A user's mistake raises a `HushgramError`, whatever process met it, and nothing is left behind.

    Args:
        params: the parameters.
        source: the plan of an input (`plan_records`), or a PTransform that gives records.
        key: the column of keys.
        path: where the sketch goes; must be free, or an empty directory.
        shards: shards of users in the shuffle; without an effect on the result.
        options: of the pipeline.
        rejected_records: where rejected records go.
        limits: input beyond them is refused before anything is published.
        quiet: whether no progress is shown.
        release_arguments: those of `ReleaseSparseHistogram`: user, value, public_keys, name, release_key.

    Returns:
        Where the sketch is, and exact figures for the operator.
    """
    from hushgram.pipelines.run.beam_runners import hint_memory, pipeline_options
    from hushgram.pipelines.run.job_runner import run_built
    from hushgram.transforms.read_records import ReadRecords, read_records
    from hushgram.transforms.release_sparse_histogram import ReleaseSparseHistogram
    from hushgram.transforms.shuffle.combining import shards_for
    from hushgram.transforms.write_sketch import Target, discard_work

    size, target = None, Target.of(os.fspath(path))
    if isinstance(source, InputPlan):
        size, read = source.bytes, source.schema.names
        for column in (release_arguments.get("user"), key, release_arguments.get("value")):
            if column is not None and column not in read:
                raise InputError(f"column {column!r} is not among those that are read: {', '.join(read)}")
        release_arguments["key_expression"] = key if key in source.source.key_expressions else ""

    def build(pipeline: Pipeline, local: LocalResources) -> None:
        spread: dict[str, Any] = {"shards": shards_for(size, shards), "local": local, "counters": True}
        release = ReleaseSparseHistogram(params, key=key, path=target, **spread, **release_arguments)
        if isinstance(source, InputPlan):
            reader = ReadRecords(source, limits, tallies=True, counters=True)
            records = read_records(pipeline, reader, rejected_records)
        else:
            records = pipeline | "Records" >> source
        _ = records | "Release" >> release

    try:
        chosen = pipeline_options() if options is None else options
        if size is not None:
            hint_memory(chosen, size, shards)
        title = release_arguments.get("name") or "release"
        finished = run_built(build, chosen, title=title, total_bytes=size, quiet=quiet)
    finally:
        discard_work(target)
    return ReleaseResult(target.path, finished.seconds, finished.exact)


JOB = Release
