"""Several metrics of the same records under one bounding of users: names, bounds and keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from hushgram.errors import ParameterError
from hushgram.exact.weights import Grid
from hushgram.noise.entropy import ReleaseKey
from hushgram.sparse_histogram.contributions import MOST
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.steps import checked_params, values_for

__all__ = ["METRIC_NAME", "Metric", "checked_metrics", "metric_keys"]

#: what a metric may be called: its name is that of a file
METRIC_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


class Metric(NamedTuple):
    """What is released of the records: how often they occur, or with ``value`` the sum of that column."""

    params: ReleaseParams
    value: str | None = None

    @property
    def weights(self) -> tuple[str, Grid] | None:
        """The column and its grid, where values are added up."""
        grid = self.params.grid
        return None if self.value is None or grid is None else (self.value, grid)


def checked_metrics(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """The metrics; a ParameterError where names or parameters do not go together."""
    if not metrics:
        raise ParameterError("metrics: name at least one")
    for name, metric in metrics.items():
        if not isinstance(name, str) or not METRIC_NAME.fullmatch(name):
            raise ParameterError(
                f"metrics: a name must be lower-case letters, digits, - and _, at most 40 of them, got {name!r}"
            )
        values_for(checked_params(metric.params), metric.value, name, f"metrics: {name}")
    if len({metric.params.delta == 0 for metric in metrics.values()}) > 1:
        raise ParameterError("metrics: delta must be 0 for all of them or for none: users are bounded once")
    most = max(metric.params.max_contributions for metric in metrics.values())
    if most > MOST and any(metric.params.choose_contributions for metric in metrics.values()):
        raise ParameterError(
            f"metrics: max_contributions auto goes with at most {MOST:,} units of a user in the others; raise unit"
        )
    return dict(metrics)


def metric_keys(
    metrics: Mapping[str, Metric], release_key: ReleaseKey | None
) -> tuple[ReleaseKey, dict[str, ReleaseKey]]:
    """The key by which users are bounded, the same for all metrics, and one for the noise of each."""
    asked = {name: [metric.value, metric.params.as_text()] for name, metric in metrics.items()}
    base = (release_key or ReleaseKey.generate()).for_parameters("metrics", asked)
    return base, {name: base.for_parameters("metric", {"name": name}) for name in metrics}
