"""Public numbers that follow from all of the data, with noise: the bound C where it is chosen, and the plan.

`ChooseContributions`
In:  (shard, Contributions) of all users, pruned for the largest C that can be chosen. Exact and private.
Out: one `ChosenParams`. Released: it follows from how many users have totals in each cell, with noise (ε-DP, see
     `hushgram.sparse_histogram.contribution_bounds`).

`CountUsers`
In:  `UserTally` of users by open keys. Exact and private.
Out: one `ChosenParams`. Released in the same way.

`PlanRelease`
In:  (group, Histogram) of all groups. Exact and private.
Out: one `PlannedRelease`. Its plan is released: it follows from the parameters and from sizes with noise (ε-DP, see
     `hushgram.sparse_histogram.sizing`), or from the parameters alone where they state the sizes. Its digest of all
     data is private and goes to the stages that draw noise, nowhere else.

`ReleaseFigures`
In:  (shard, Contributions) of all users. Exact and private.
Out: one `UserFigures`. Released: how many users lie in each cell of their figures, with noise (ε-DP, see
     `hushgram.mechanisms.user_quantiles`).

`ReleaseKept`
In:  (shard, Contributions) of all users, before bounding. Exact and private.
Out: one `KeptShare`. Released (ε-DP, see `hushgram.sparse_histogram.kept_share`).

Noise is drawn where the last parts are added, so no exact total leaves the combine step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np

from hushgram.contributions.bounding import Contributions
from hushgram.mechanisms.user_quantiles import QuantileParams, UserFigures, release_figures, tally_users
from hushgram.noise.entropy import ReleaseKey
from hushgram.numbers import show
from hushgram.sensitivity import CONSTANT, ExactVector
from hushgram.sparse_histogram.contribution_bounds import UserTally
from hushgram.sparse_histogram.kept_share import KeptShare, nobody
from hushgram.sparse_histogram.sizing import Survey
from hushgram.sparse_histogram.spec import ReleaseSpec
from hushgram.sparse_histogram.steps import (
    ChosenParams,
    PlannedRelease,
    choose_contributions,
    count_users,
    plan_release,
    release_kept,
    tally_kept,
)
from hushgram.transforms.shuffle import coders as _coders  # noqa: F401 (registers the coders)
from hushgram.transforms.shuffle.combining import SumAll, no_survey, noise_shards, survey_group

__all__ = [
    "ChooseContributions",
    "CountUsers",
    "PlanRelease",
    "ReleaseFigures",
    "ReleaseKept",
    "ReleaseTotal",
]


class ChooseContributions(beam.PTransform):
    """Contributions of all users → parameters with the C that suits one metric of them.

    ``chosen`` is a collection of one `ChosenParams` with what was chosen before, or None.
    """

    def __init__(self, spec: ReleaseSpec, metric: int = 0, chosen: Any = None) -> None:
        super().__init__()
        self._spec, self._metric, self._chosen = spec, metric, chosen

    def expand(self, kept: Any) -> Any:
        tally = beam.Map(_tally, self._spec, self._metric).with_output_types(UserTally)
        chosen = () if self._chosen is None else (beam.pvalue.AsSingleton(self._chosen),)
        total = ReleaseTotal(UserTally.zero, choose_contributions, self._spec)
        choose = beam.CombineGlobally(total, *chosen)
        return kept | "TallyUsers" >> tally | "ChooseBound" >> choose.with_output_types(ChosenParams)

    def display_data(self) -> dict[str, Any]:
        return {"epsilon_contributions": show(self._spec.params.split.contributions)}


class CountUsers(beam.PTransform):
    """Tallies of users by keys → one `ChosenParams` with the rounds and shares that follow from noisy numbers."""

    def __init__(self, spec: ReleaseSpec) -> None:
        super().__init__()
        self._spec = spec

    def expand(self, tallies: Any) -> Any:
        total = beam.CombineGlobally(ReleaseTotal(UserTally.zero, count_users, self._spec))
        return tallies | "CountUsers" >> total.with_output_types(ChosenParams)

    def display_data(self) -> dict[str, Any]:
        return {"epsilon_users": show(self._spec.params.split.users)}


class ReleaseKept(beam.PTransform):
    """Contributions of all users → one `KeptShare`: what they have before and after bounding, with noise.

    ``chosen`` is a collection of one `ChosenParams`, or None where the specification states C.
    """

    def __init__(self, spec: ReleaseSpec, metric: int, chosen: Any = None) -> None:
        super().__init__()
        self._spec, self._metric, self._chosen = spec, metric, chosen

    def expand(self, kept: Any) -> Any:
        chosen = None if self._chosen is None else beam.pvalue.AsSingleton(self._chosen)
        tally = beam.Map(_tally_kept, self._spec, self._metric, chosen).with_output_types(ExactVector)
        release = beam.CombineGlobally(ReleaseTotal(nobody, release_kept, self._spec))
        return kept | "TallyKept" >> tally | "ReleaseKept" >> release.with_output_types(KeptShare)


class PlanRelease(beam.PTransform):
    """Complete histogram → the planned release.

    ``chosen`` is a collection of one `ChosenParams` whose parameters are planned for, or None; ``kept`` one of one
    `KeptShare`, which the plan holds, or None.
    """

    def __init__(self, spec: ReleaseSpec, groups: int, chosen: Any = None, kept: Any = None) -> None:
        super().__init__()
        self._spec, self._groups, self._chosen, self._kept = spec, groups, chosen, kept

    def expand(self, shards: Any) -> Any:
        survey = beam.Map(survey_group, self._groups).with_output_types(Survey)
        told = [None if one is None else beam.pvalue.AsSingleton(one) for one in (self._chosen, self._kept)]
        release = partial(plan_release, shards=noise_shards(self._groups))
        plan = beam.CombineGlobally(ReleaseTotal(no_survey, release, self._spec), *told)
        planned = plan.without_defaults().with_output_types(PlannedRelease)
        return shards | "Survey" >> survey | "ReleaseSizes" >> planned

    def display_data(self) -> dict[str, Any]:
        return {"epsilon_size": show(self._spec.params.split.size)}


class ReleaseFigures(beam.PTransform):
    """Contributions of all users → noisy numbers of users by their figures."""

    def __init__(self, params: QuantileParams, release_key: ReleaseKey) -> None:
        super().__init__()
        self._params, self._key = params, release_key

    def expand(self, kept: Any) -> Any:
        tally = beam.Map(_tally_figures, self._params).with_output_types(ExactVector)
        release = ReleaseTotal(partial(_nobody, self._params), release_figures, self._params, self._key)
        return (
            kept
            | "TallyFigures" >> tally
            | "ReleaseFigures" >> beam.CombineGlobally(release).with_output_types(UserFigures)
        )

    def display_data(self) -> dict[str, Any]:
        return {"epsilon": show(self._params.epsilon)}


class ReleaseTotal(SumAll):
    """Exact parts → what ``release`` makes of their sum, which stays inside."""

    def __init__(self, zero: Callable[[], Any], release: Callable[..., Any], *arguments: Any) -> None:
        super().__init__(zero)
        self._release, self._arguments = release, arguments

    def extract_output(self, total: Any, *told: Any) -> Any:
        return self._release(total, *self._arguments, *told)


def _tally_figures(shard: tuple[int, Contributions], params: QuantileParams) -> ExactVector:
    return tally_users(shard[1], params)


def _nobody(params: QuantileParams) -> ExactVector:
    return ExactVector(np.zeros(sum(map(len, params.ends)), np.int64), CONSTANT)


def _tally(shard: tuple[int, Contributions], spec: ReleaseSpec, metric: int) -> UserTally:
    return UserTally.of(shard[1].metric(metric).totals(spec.loose_bounds))


def _tally_kept(
    shard: tuple[int, Contributions], spec: ReleaseSpec, metric: int, chosen: ChosenParams | None
) -> ExactVector:
    return tally_kept(shard[1].metric(metric), spec, chosen)
