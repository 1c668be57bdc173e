"""The barrier: from the complete histogram to the plan of the release, and to the digest that keys its noise.

In:  (group, Histogram) of all groups. Exact and private.
Out: one `PlannedRelease`. Its plan is released: it follows from the parameters and from sizes with noise (ε-DP, see
     `hushgram.sparse_histogram.sizing`), or from the parameters alone where they state the sizes. Its digest of all
     data is private and goes to the stages that draw noise, nowhere else.

The noise of the sizes is drawn where the last surveys are added, so no exact total leaves the combine step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from hushgram.exact.histogram import Histogram
from hushgram.noise.entropy import ReleaseKey
from hushgram.numbers import show
from hushgram.sensitivity import Unit
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.sizing import Survey
from hushgram.sparse_histogram.steps import ChosenParams, PlannedRelease, plan_release
from hushgram.transforms.shuffle import coders as _coders  # noqa: F401 (registers the coders)
from hushgram.transforms.shuffle.sharding import noise_parts

__all__ = ["PlanFromSurveys", "PlanRelease"]


class PlanRelease(beam.PTransform):
    """Complete histogram → the planned release."""

    def __init__(
        self,
        params: ReleaseParams,
        release_key: ReleaseKey,
        *,
        groups: int,
        unit: Unit = "user",
        chosen: Any = None,
    ) -> None:
        """``chosen``: a collection of one `ChosenParams`, which then stand for ``params``."""
        super().__init__()
        self._params, self._groups = params, groups
        self._chosen = {} if chosen is None else {"chosen": beam.pvalue.AsSingleton(chosen)}
        self._plan = PlanFromSurveys(params, release_key, unit)

    def expand(self, shards: Any) -> Any:
        return (
            shards
            | "Survey" >> beam.ParDo(_Survey(self._groups)).with_output_types(Survey)
            | "ReleaseSizes"
            >> beam.CombineGlobally(self._plan, **self._chosen)
            .without_defaults()
            .with_output_types(PlannedRelease)
        )

    def display_data(self) -> dict[str, Any]:
        return {"epsilon_size": show(self._params.split.size)}


class _Survey(beam.DoFn):
    """Exact sizes and digests of a group."""

    def __init__(self, groups: int) -> None:
        self._groups = groups

    def process(self, shard: tuple[int, Histogram]) -> Iterator[Survey]:
        group, histogram = shard
        yield Survey.of(noise_parts(group, self._groups, histogram))


class PlanFromSurveys(beam.CombineFn):
    """Surveys → the planned release. The sum is exact and stays inside."""

    def __init__(self, params: ReleaseParams, release_key: ReleaseKey, unit: Unit = "user") -> None:
        self._params, self._release_key, self._unit = params, release_key, unit

    def create_accumulator(self, **_: Any) -> Survey:
        return Survey.of([])

    def add_input(self, total: Survey, part: Survey, **_: Any) -> Survey:
        return total + part

    def merge_accumulators(self, totals: Iterable[Survey], **_: Any) -> Survey:
        return sum(totals, self.create_accumulator())

    def compact(self, total: Survey, **_: Any) -> Survey:
        return total

    def extract_output(self, total: Survey, chosen: ChosenParams | None = None) -> PlannedRelease:
        if chosen is None:
            return plan_release(total, self._params, self._release_key, self._unit)
        return plan_release(total, chosen.params, self._release_key, self._unit, chosen.totals)
