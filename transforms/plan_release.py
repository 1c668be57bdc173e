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

from hushgram.accounting.guarantee import Unit
from hushgram.exact.histogram import Histogram
from hushgram.noise.entropy import ReleaseKey
from hushgram.numbers import show
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.sizing import Survey
from hushgram.sparse_histogram.steps import PlannedRelease, plan_release
from hushgram.transforms.shuffle import coders as _coders  # noqa: F401 (registers the coders)
from hushgram.transforms.shuffle.sharding import noise_parts

__all__ = ["PlanFromSurveys", "PlanRelease"]


class PlanRelease(beam.PTransform):
    """Complete histogram → the planned release."""

    def __init__(
        self, params: ReleaseParams, release_key: ReleaseKey, *, groups: int, unit: Unit = "user"
    ) -> None:
        super().__init__()
        self._params, self._groups = params, groups
        self._plan = PlanFromSurveys(params, release_key, unit)

    def expand(self, shards: Any) -> Any:
        return (
            shards
            | "Survey" >> beam.ParDo(_Survey(self._groups)).with_output_types(Survey)
            | "ReleaseSizes"
            >> beam.CombineGlobally(self._plan).without_defaults().with_output_types(PlannedRelease)
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

    def create_accumulator(self) -> Survey:
        return Survey.of([])

    def add_input(self, total: Survey, part: Survey) -> Survey:
        return total + part

    def merge_accumulators(self, totals: Iterable[Survey]) -> Survey:
        return sum(totals, self.create_accumulator())

    def extract_output(self, total: Survey) -> PlannedRelease:
        return plan_release(total, self._params, self._release_key, self._unit)
