"""Choosing C: from the contributions of all users to parameters with a bound that fits them.

In:  (shard, Contributions) of all users, each cut to the most keys that C can be. Exact and private.
Out: one `ChosenParams`. Released: it follows from how many users have totals in each cell, with noise (ε-DP, see
     `hushgram.sparse_histogram.contributions`).

The noise is drawn where the last tallies are added, so no exact number leaves the combine step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apache_beam as beam

from hushgram.exact.contributions import Contributions
from hushgram.noise.entropy import ReleaseKey
from hushgram.numbers import show
from hushgram.sparse_histogram.contributions import UserTally
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.steps import ChosenParams, choose_params, held_bounds
from hushgram.transforms.shuffle import coders as _coders  # noqa: F401 (registers the coders)

__all__ = ["ChooseContributions"]


class ChooseContributions(beam.PTransform):
    """Contributions of all users → parameters with the chosen C."""

    def __init__(self, params: ReleaseParams, release_key: ReleaseKey, metric: int = 0) -> None:
        super().__init__()
        self._params, self._release_key, self._metric = params, release_key, metric

    def expand(self, held: Any) -> Any:
        return (
            held
            | "TallyUsers" >> beam.Map(_tally, self._params, self._metric).with_output_types(UserTally)
            | "ChooseBound"
            >> beam.CombineGlobally(_Choose(self._params, self._release_key)).with_output_types(ChosenParams)
        )

    def display_data(self) -> dict[str, Any]:
        return {"epsilon_contributions": show(self._params.split.contributions)}


def _tally(shard: tuple[int, Contributions], params: ReleaseParams, metric: int) -> UserTally:
    return UserTally.of(shard[1].metric(metric).totals(held_bounds(params)))


class _Choose(beam.CombineFn):
    """Tallies → parameters. The sum is exact and stays inside."""

    def __init__(self, params: ReleaseParams, release_key: ReleaseKey) -> None:
        self._params, self._release_key = params, release_key

    def create_accumulator(self) -> UserTally:
        return UserTally.zero()

    def add_input(self, total: UserTally, part: UserTally) -> UserTally:
        return total + part

    def merge_accumulators(self, totals: Iterable[UserTally]) -> UserTally:
        return sum(totals, self.create_accumulator())

    def extract_output(self, total: UserTally) -> ChosenParams:
        return choose_params(total, self._params, self._release_key)
