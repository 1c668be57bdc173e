"""``hushgram metrics``: several metrics of one pass over the records, such as visits and bytes, each as a sketch.

read ─► ReleaseMetrics (bound users once, select keys once; plan, encode and write each metric) ─► out/visits.sketch, …
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import pyarrow as pa
from pydantic import Field, model_validator

from hushgram.accounting import Event, Guarantee
from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey
from hushgram.numbers import show
from hushgram.pipelines.config.models import Exact, JobConfig, Model, Name, refuse
from hushgram.pipelines.jobs.job import Job, Line, LocalResources, Pipeline
from hushgram.pipelines.jobs.release import ReleasePrivacy, SizesConfig, placed
from hushgram.sensitivity import PrivacyUnit
from hushgram.sparse_histogram.params import Params
from hushgram.sparse_histogram.plan import listed_variance, metrics_events, metrics_steps
from hushgram.sparse_histogram.spec import Metric, check_metrics, share_selection

__all__ = ["JOB", "MetricConfig", "Metrics", "MetricsConfig"]

# What a metric may have otherwise than the group `privacy` says.
_OWN = ("max_contributions", "max_per_key", "max_value", "granularity")


class MetricConfig(Model):
    """One metric: what it counts, its bounds, and its share of the budget. Whatever is left out is as in `privacy`."""

    value: str | None = Field(
        default=None, min_length=1, description="a column of numbers to sum; left out, records are counted"
    )
    share: Exact | None = Field(
        default=None,
        description="its share of epsilon and delta, such as 0.5; left out, equal parts of the rest",
    )
    max_contributions: int | None = Field(default=None, ge=1, description="how much one user may add in all")
    max_per_key: int | None = Field(default=None, ge=1, description="how much one user may count for one key")
    max_value: Exact | None = Field(default=None, description="with value: the most of a user for one key")
    granularity: Exact | None = Field(
        default=None, description="with value: sums are rounded to multiples of it"
    )
    sizes: SizesConfig | None = None


class MetricsConfig(JobConfig):
    """Several metrics of the same records, under one budget and one bounding of users."""

    NAME: ClassVar[str] = "metrics"

    metrics: Name = Field(description="the name of this run, such as traffic-{date}")
    privacy: ReleasePrivacy
    each: dict[str, MetricConfig] = Field(description="the metrics by name, such as visits and bytes")

    @property
    def bounds_records(self) -> bool:
        return any(metric.value is not None for metric in self.each.values())

    @cached_property
    def chosen(self) -> dict[str, Metric]:
        """Return every metric with its parameters; a mistake is placed where it was made."""
        shares, out = self._shares(), {}
        for name, metric in self.each.items():
            own = {field: given for field in _OWN if (given := getattr(metric, field)) is not None}
            part = {
                "epsilon": self.privacy.epsilon * shares[name],
                "delta": self.privacy.delta * shares[name],
            }
            privacy = self.privacy.model_copy(update={**own, **part})
            privacy.check_values(metric.value, ("each", name))
            with placed("each", name):
                out[name] = Metric(privacy.params(metric.sizes), metric.value)
        try:
            check_metrics(out)
        except ParameterError as problem:
            raise refuse(("each",), str(problem).removeprefix("metrics: ")) from None
        return out

    @cached_property
    def params(self) -> dict[str, Params]:
        """Return what the parameters of every metric mean for this input."""
        unit: PrivacyUnit = "record" if self.input.user is None else "user"
        found = {}
        for name, metric in self.chosen.items():
            with placed("each", name):
                found[name] = metric.params.resolve(unit)
                found[name].check()
        try:
            return share_selection(found)
        except ParameterError as problem:
            raise refuse(("each",), str(problem).removeprefix("metrics: ")) from None

    def _shares(self) -> dict[str, Fraction]:
        stated = {name: metric.share for name, metric in self.each.items() if metric.share is not None}
        rest, others = 1 - sum(stated.values(), Fraction(0)), len(self.each) - len(stated)
        if min(stated.values(), default=Fraction(1)) <= 0 or rest < 0 or (rest == 0) != (others == 0):
            raise refuse(("each",), f"must have shares above 0 that add up to 1, got {show(1 - rest)} in all")
        return {name: stated.get(name, rest / max(others, 1)) for name in self.each}

    @model_validator(mode="after")
    def _checked(self) -> Self:
        if self.privacy.domain is not None:
            raise refuse(("privacy", "domain"), "has no effect with several metrics; leave it out")
        if not self.each:
            raise refuse(("each",), "must name at least one metric, such as visits")
        _ = self.params  # which checks them
        return self


class Metrics(Job[MetricsConfig]):
    """A sketch for each metric."""

    Config = MetricsConfig
    subject = "The sketches together are"
    shape = "directory"

    def resolve(self) -> None:
        self.metrics = self.config.chosen

    def values(self) -> tuple[str, ...]:
        found = (metric.value for metric in self.metrics.values() if metric.value is not None)
        return tuple(dict.fromkeys(found))

    def record_bounds(self) -> tuple[int, int]:
        """Return bounds of a record's keys under which every metric's bounds hold."""
        keys, per_key = zip(*(params.record_bounds for params in self._params), strict=True)
        return min(keys), min(per_key)

    def events(self) -> list[Event]:
        return metrics_events(self._params, charged=True)

    def guarantee(self) -> Guarantee:
        return Guarantee.of(self.events(), subject=self.subject, steps=metrics_steps(self._params))

    @property
    def _params(self) -> list[Params]:
        return list(self.config.params.values())

    def resolved(self) -> dict[str, Any]:
        return {name: params.to_dict() for name, params in self.config.params.items()}

    def build(self, pipeline: Pipeline, path: str, release_key: ReleaseKey, local: LocalResources) -> None:
        from hushgram.transforms.release_sparse_histogram import ReleaseMetrics
        from hushgram.transforms.shuffle.combining import shards_for

        key = self.config.input.key
        release = ReleaseMetrics(
            self.metrics,
            user=self.config.input.user,
            key=key,
            path=path,
            name=self.name,
            key_expression=key if key in self.source.source.key_expressions else "",
            release_key=release_key,
            shards=shards_for(self.source.bytes, self.config.shards),
            local=local,
            counters=True,
        )
        _ = self.records(pipeline, tallies=True) | "Release" >> release

    def check_lines(self) -> Iterator[Line]:
        from hushgram.pipelines.planning import metric_line

        if steps := metrics_steps(self._params):
            yield "key selection", steps
        for name, metric in self.metrics.items():
            params = self.config.params[name]
            per = params.per_count
            what = "records" if metric.value is None else f"the sum of {metric.value}"
            yield (
                name,
                f"{what}, epsilon {show(params.epsilon)}, at most {show(params.max_contributions * per)} of a user in"
                f" all and {show(params.max_per_key * per)} for one key, {params.encoding} with {params.noise} noise"
                f"{_listed_noise(params)}",
            )
            if forecast := metric_line(self.config, params, self.source.rows or None):
                yield "", forecast

    def closing_lines(self, path: str) -> Iterator[Line]:
        from hushgram.sketch.reader import Sketch

        for name in self.metrics:
            place = f"{path}/{name}.sketch"
            yield name, f"{shlex.quote(place)}: {Sketch.open(place).detection_limit().sentence()}"
        yield "next", f"hushgram query {shlex.quote(f'{path}/{next(iter(self.metrics))}.sketch')} KEY"

    def released(self, path: str) -> pa.Table:
        """Return path, size and digest of each metric."""
        rows = [{"metric": name, **self.released_row(f"{path}/{name}.sketch")} for name in self.metrics]
        return pa.Table.from_pylist(rows).drop_columns(
            ["epsilon", "delta"]
        )  # which are of all metrics together


def _listed_noise(params: Params) -> str:
    """Return the noise on a named key, where keys are selected by weights."""
    if not params.weighted or params.choose_contributions:
        return ""
    noise = float(listed_variance(params)) ** 0.5 * float(params.per_count)
    return f", standard deviation {noise:,.4g} on each named key"


JOB = Metrics
