"""The most frequent keys of a public list, by permute-and-flip and peeling.

In:  exact counts of the list, a key each (`CountDomain`), private; vectors of parts are added up first.
Out: one list of keys, most frequent first, without their counts. ε-DP for all of them together.

One user moves the count of a listed key by at most max_per_key, and all counts the same way, so the
sensitivity of a score is max_per_key and the scores are monotone. Noise follows from the release key, the
list and the exact counts: a retry chooses the same keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apache_beam as beam

from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.numbers import show
from hushgram.pmw.workload import Domain
from hushgram.selection import SelectionParams, top
from hushgram.sensitivity import ExactVector, Unit
from hushgram.transforms.shuffle.vectors import SumParts

__all__ = ["MostFrequent"]


class MostFrequent(beam.PTransform):
    """Exact counts of ``keys``, in their order → [key, …]: ``params.count`` of them.

    Counts that were bounded less than ``params`` are calibrated for are refused. ``release_key`` reproduces
    an earlier run; left out, a fresh one is made.
    """

    def __init__(
        self,
        keys: Sequence[str],
        params: SelectionParams,
        *,
        release_key: ReleaseKey | None = None,
        unit: Unit = "user",
    ) -> None:
        super().__init__()
        if params.count > len(keys):
            raise ParameterError(
                f"MostFrequent: count must be at most the {len(keys)} keys, got {params.count}"
            )
        self._keys, self._params = Domain(tuple(keys)).labels, params
        self._release_key, self._unit = release_key or ReleaseKey.generate(), unit

    def expand(self, counts: Any) -> Any:
        return (
            counts
            | "Whole" >> SumParts(len(self._keys))
            | "ChooseTop" >> beam.Map(_choose, self._keys, self._params, self._release_key, self._unit)
        )

    def display_data(self) -> dict[str, Any]:
        return {"keys": len(self._keys), "count": self._params.count, "epsilon": show(self._params.epsilon)}


def _choose(
    counts: ExactVector, labels: Sequence[str], params: SelectionParams, release_key: ReleaseKey, unit: Unit
) -> list[str]:
    source = release_key.source("most frequent", 0, digest(repr(params), *labels, counts.values))
    return [labels[i] for i in top(counts, params, source, unit)]
