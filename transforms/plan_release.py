"""Public numbers that follow from all of the data, with noise: the bound C where it is chosen, and the plan.

`CountUsers`
In:  tallies of all users by what they have. Exact and private.
Out: one `Params`: with the histogram over users, and C and rounds where they follow from it. Released (ε-DP, see
     `hushgram.sparse_histogram.users`).

`PlanRelease`
In:  (group, Histogram) of all groups. Exact and private.
Out: one `PlannedRelease`. Its plan is released: it follows from the parameters and from sizes with noise (ε-DP, see
     `hushgram.sparse_histogram.sizing`), or from the parameters alone where they state the sizes. Its digest of all
     data is private and goes to the stages that draw noise, nowhere else.

`ReleaseFigures`
In:  (shard, Contributions) of all users. Exact and private.
Out: one `UserFigures`. Released: how many users lie in each cell of their figures, with noise (ε-DP, see
     `hushgram.mechanisms.user_quantiles`).

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
from hushgram.sparse_histogram.params import Params
from hushgram.sparse_histogram.sizing import Survey
from hushgram.sparse_histogram.spec import ReleaseSpec
from hushgram.sparse_histogram.steps import PlannedRelease, count_users, plan_release, tally_contributions
from hushgram.sparse_histogram.users import nobody
from hushgram.transforms.shuffle import coders as _coders  # noqa: F401 (registers the coders)
from hushgram.transforms.shuffle.combining import SumAll, no_survey, noise_shards, survey_group

__all__ = ["CountUsers", "PlanRelease", "ReleaseFigures", "ReleaseTotal", "TallyUsers"]


class TallyUsers(beam.PTransform):
    """(shard, Contributions) of all users, pruned → tallies of users by what they have of one metric."""

    def __init__(self, spec: ReleaseSpec, metric: int = 0) -> None:
        super().__init__()
        self._spec, self._metric = spec, metric

    def expand(self, kept: Any) -> Any:
        tally = beam.Map(_tally, self._spec, self._metric).with_output_types(ExactVector)
        return kept | "TallyUsers" >> tally


class CountUsers(beam.PTransform):
    """Tallies of users by what they have → one `Params` with noisy numbers, and with C and rounds that follow."""

    def __init__(self, spec: ReleaseSpec) -> None:
        super().__init__()
        self._spec = spec

    def expand(self, tallies: Any) -> Any:
        zero = partial(nobody, self._spec.params.user_ends)
        total = beam.CombineGlobally(ReleaseTotal(zero, count_users, self._spec))
        return tallies | "CountUsers" >> total.with_output_types(Params)

    def display_data(self) -> dict[str, Any]:
        return {"epsilon_users": show(self._spec.params.split.users)}


class PlanRelease(beam.PTransform):
    """Complete histogram → the planned release.

    ``params`` is a collection of one `Params` that is planned for, or None where nothing follows from the data.
    """

    def __init__(self, spec: ReleaseSpec, groups: int, params: Any = None) -> None:
        super().__init__()
        self._spec, self._groups, self._params = spec, groups, params

    def expand(self, shards: Any) -> Any:
        survey = beam.Map(survey_group, self._groups).with_output_types(Survey)
        told = () if self._params is None else (beam.pvalue.AsSingleton(self._params),)
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


def _tally(shard: tuple[int, Contributions], spec: ReleaseSpec, metric: int) -> ExactVector:
    return tally_contributions(shard[1].metric(metric), spec)
