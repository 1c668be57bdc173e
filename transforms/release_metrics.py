"""Several metrics of the same records, in one pass: counts beside sums, each a sketch of its own.

    records ─► HoldContributions (all metrics of a user side by side) ─┬─► bound by visits ─► … ─► out/visits.sketch
                                                                       └─► bound by bytes  ─► … ─► out/bytes.sketch

Users cross the shuffle once, and a user's keys are kept in one order for all metrics: those that count for one metric
are a prefix of those that count for another with a larger bound. From there each metric is the release of
`hushgram.transforms.release_sparse_histogram`, with its own ε and its own noise. All of them together lose the sum.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import apache_beam as beam

from hushgram.noise.entropy import ReleaseKey
from hushgram.numbers import Number
from hushgram.sparse_histogram.metrics import Metric, checked_metrics, metric_keys
from hushgram.sparse_histogram.steps import held_bounds
from hushgram.transforms.bound_contributions import BoundContributions, HoldContributions
from hushgram.transforms.release_sparse_histogram import ReleaseSparseHistogram
from hushgram.transforms.shuffle.batching import LocalResources
from hushgram.transforms.shuffle.sharding import Shards, shards_for

__all__ = ["ReleaseMetrics"]


class ReleaseMetrics(beam.PTransform):
    """Records → a sketch NAME.sketch in the folder ``path`` for each metric; the result is a collection of the paths.

    Records, ``user``, ``key`` and ``release_key`` as for `ReleaseSparseHistogram`; a `Metric` has parameters and the
    column of its values, or none where records are counted.
    """

    def __init__(
        self,
        metrics: Mapping[str, Metric],
        *,
        key: str,
        path: str | os.PathLike[str],
        user: str | None = None,
        name: str = "",
        recipe: str = "",
        release_key: ReleaseKey | None = None,
        shards: Shards | None = None,
        local: LocalResources | None = None,
        max_bad_share: Number = "0.05",
    ) -> None:
        super().__init__()
        self._metrics = checked_metrics(metrics)
        self._bounding_key, keys = metric_keys(self._metrics, release_key)
        self._user, self._key = user, key
        self._shards, self._local = shards or shards_for(None), local or LocalResources()
        self._releases = [
            ReleaseSparseHistogram(
                metric.params,
                user=user,
                key=key,
                value=metric.value,
                path=f"{os.fspath(path)}/{word}.sketch",
                name=f"{name}/{word}" if name else word,
                recipe=recipe,
                release_key=keys[word],
                shards=shards,
                local=local,
                max_bad_share=max_bad_share,
            )
            for word, metric in self._metrics.items()
        ]

    def expand(self, records: Any) -> Any:
        words = [word.capitalize() for word in self._metrics]
        if self._user is None:
            written = [records | word >> one for word, one in zip(words, self._releases, strict=True)]
        else:
            bounding = self._bounding(self._user)
            held = records | "Hold" >> HoldContributions(bounding)
            tallies = bounding.taken.tallies
            written = [
                (held, tallies) | word >> _OfHeld(one, number)
                for number, (word, one) in enumerate(zip(words, self._releases, strict=True))
            ]
        return written | "Paths" >> beam.Flatten()

    def _bounding(self, user: str) -> BoundContributions:
        parameters = [metric.params for metric in self._metrics.values()]
        return BoundContributions(
            user,
            self._key,
            self._bounding_key,
            *map(held_bounds, parameters),
            texts=any(params.delta for params in parameters),
            shards=self._shards.users,
            values=[metric.weights for metric in self._metrics.values()],
            local=self._local,
        )


class _OfHeld(beam.PTransform):
    """One metric of held contributions → its sketch."""

    def __init__(self, release: ReleaseSparseHistogram, metric: int) -> None:
        super().__init__()
        self._release, self._metric = release, metric

    def expand(self, taken: tuple[Any, Any]) -> Any:
        held, tallies = taken
        return self._release.of_held(held, self._release.waits(tallies), self._metric)
