"""Sizing: from the complete histogram to the plan of the release.

In:  (group, Histogram) of all groups. Exact and private.
Out: one `Plan`. Released: it follows from the parameters and from sizes with noise (ε-DP, see
     `hushgram.sparse_histogram.sizing`), or from the parameters alone where they state the sizes.

The noise is drawn where the last tallies are added, so no exact total leaves the combine step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from hushgram.exact.histogram import Histogram
from hushgram.noise.entropy import ReleaseKey
from hushgram.sparse_histogram.params import ReleaseParams, Split
from hushgram.sparse_histogram.plan import Plan, expected_sizes, make_plan
from hushgram.sparse_histogram.sizing import Tally, release_sizes
from hushgram.transforms.shuffle import coders as _coders  # noqa: F401 (registers the coders)

__all__ = ["PlanFromTallies", "PlanRelease", "checked_plan"]


class PlanRelease(beam.PTransform):
    """Complete histogram → the plan, by a noisy size unless ``params`` state the sizes."""

    def __init__(self, params: ReleaseParams, release_key: ReleaseKey) -> None:
        super().__init__()
        self._params, self._release_key = params, release_key

    def expand(self, shards: Any) -> Any:
        sizes = expected_sizes(self._params)
        if sizes is not None:
            plan = checked_plan(make_plan(self._params, sizes))
            return shards.pipeline | "Expected" >> beam.Create([plan], reshuffle=False).with_output_types(
                Plan
            )
        return (
            shards
            | "Tally" >> beam.ParDo(_Tally()).with_output_types(Tally)
            | "ReleaseSizes"
            >> beam.CombineGlobally(PlanFromTallies(self._params, self._release_key))
            .without_defaults()
            .with_output_types(Plan)
        )

    def display_data(self) -> dict[str, Any]:
        split: Split = self._params.split
        return {"epsilon_size": str(split.size)}


def checked_plan(plan: Plan) -> Plan:
    """The plan, if its privacy maps hold: raises before any further noise is drawn."""
    plan.guarantee()
    return plan


class _Tally(beam.DoFn):
    """Exact n and N_t of a group."""

    def process(self, shard: tuple[int, Histogram]) -> Iterator[Tally]:
        yield Tally.of(shard[1])


class PlanFromTallies(beam.CombineFn):
    """Tallies → plan. The sum is exact and stays inside; noise depends on it alone."""

    def __init__(self, params: ReleaseParams, release_key: ReleaseKey) -> None:
        self._params, self._release_key = params, release_key

    def create_accumulator(self) -> Tally:
        return Tally.zero()

    def add_input(self, total: Tally, part: Tally) -> Tally:
        return total + part

    def merge_accumulators(self, totals: Any) -> Tally:
        out = Tally.zero()
        for total in totals:
            out = out + total
        return out

    def extract_output(self, total: Tally) -> Plan:
        split: Split = self._params.split
        sizes = release_sizes(total, split.size, self._params.max_contributions, self._release_key)
        return checked_plan(make_plan(self._params, sizes))
