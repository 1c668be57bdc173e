"""Key selection on the complete histogram: keys whose noisy count reaches the threshold, or public keys.

`SelectKeys`
In:  (group, Histogram) of all groups, exact and private; the planned release as a side input.
Out: ``heavy``, (group, Heavy). Released: ε- or (ε, δ)-differentially private, see `hushgram.key_selection.threshold`.
     Noise is drawn for each noise shard of a group, empty ones included.
     ``rest``, (group, Histogram): what passes on to the encoding of keys that are not listed, where it counts that.
     Exact and private. Which keys are listed is decided once, where it also follows what passes on.

`CountPublicKeys`
In:  (group, Histogram) of all groups, the complete histogram of public keys. Exact and private.
Out: (group, Heavy). Released: every public key with its noisy count, also those with count 0: the Laplace or Gaussian
     mechanism on one vector of counts, see `hushgram.mechanisms.laplace`. Each group draws the noise of its own keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from hushgram.contributions.histogram import Histogram, KeyTable
from hushgram.key_selection.threshold import Heavy
from hushgram.noise.entropy import ReleaseKey
from hushgram.sparse_histogram.plan import Plan
from hushgram.sparse_histogram.spec import ReleaseSpec
from hushgram.sparse_histogram.steps import (
    PlannedRelease,
    count_listed,
    select_keys,
)
from hushgram.transforms.shuffle import coders as _coders  # noqa: F401 (registers the coders)
from hushgram.transforms.shuffle.combining import (
    DigestShards,
    groups_at,
    noise_parts,
    noise_shards,
    operator_counter,
)

__all__ = ["CountPublicKeys", "CountSelected", "SelectKeys"]


class SelectKeys(beam.PTransform):
    """Complete histogram → {"heavy": the keys whose noisy count reaches the threshold, "rest": what passes on}."""

    def __init__(self, release_key: ReleaseKey, planned: Any, groups: int, *, counters: bool = False) -> None:
        super().__init__()
        self._fn, self._planned = _Select(release_key, groups, counters), planned

    def expand(self, shards: Any) -> Any:
        select = beam.ParDo(self._fn, beam.pvalue.AsSingleton(self._planned))
        found = shards | "SelectShards" >> select.with_outputs("rest", main="heavy")
        # Beam's outputs of several kinds have no types of their own.
        found["heavy"].element_type, found["rest"].element_type = tuple[int, Heavy], tuple[int, Histogram]
        return {"heavy": found["heavy"], "rest": found["rest"]}


class _Select(beam.DoFn):
    """Counts the distinct keys too, for the operator alone."""

    def __init__(self, release_key: ReleaseKey, groups: int, counters: bool) -> None:
        self._release_key, self._groups, self._counters = release_key, groups, counters

    def setup(self) -> None:
        self._keys = operator_counter("keys", self._counters)

    def process(self, shard: tuple[int, Histogram], planned: PlannedRelease) -> Iterator[Any]:
        group, histogram = shard
        self._keys.inc(len(histogram))
        groups = groups_at(self._groups, planned.plan)
        shards = noise_shards(groups)
        parts = noise_parts(group, groups, histogram)
        heavy, rest = zip(
            *(select_keys(i, part, planned, self._release_key, shards) for i, part in parts), strict=True
        )
        yield group, Heavy.concat(list(heavy))
        if planned.plan.chained:
            yield beam.pvalue.TaggedOutput("rest", (group, Histogram.concat(rest)))


class CountPublicKeys(beam.PTransform):
    """Complete histogram → noisy counts of the public keys of each group, in their order."""

    def __init__(self, spec: ReleaseSpec, plan: Plan, groups: int) -> None:
        super().__init__()
        self._spec, self._plan, self._groups = spec, plan, groups

    def expand(self, shards: Any) -> Any:
        spec, data_digest = self._spec, shards | "DigestCounts" >> DigestShards(self._groups)
        fixed = (spec.public_keys, self._plan, spec.public_key_noise, self._groups)
        count = beam.Map(_count_listed, *fixed, beam.pvalue.AsSingleton(data_digest))
        return shards | "CountPublicKeys" >> count.with_output_types(tuple[int, Heavy])


def _count_listed(
    shard: tuple[int, Histogram],
    table: KeyTable,
    plan: Plan,
    release_key: ReleaseKey,
    groups: int,
    data_digest: bytes,
) -> tuple[int, Heavy]:
    group, counts = shard
    parts = zip(noise_parts(group, groups, counts), noise_parts(group, groups, table), strict=True)
    found = [count_listed(i, part, own, plan, release_key, data_digest) for (i, part), (_, own) in parts]
    return group, Heavy.concat(found)


class CountSelected(beam.PTransform):
    """{"counts": (group, Histogram), "selected": (group, Heavy without counts)} → (group, Heavy) with noisy counts."""

    def __init__(self, spec: ReleaseSpec, planned: Any, groups: int) -> None:
        super().__init__()
        self._release_key, self._planned, self._groups = spec.release_key, planned, groups

    def expand(self, parts: dict[str, Any]) -> Any:
        data_digest = parts["counts"] | "DigestCounts" >> DigestShards(self._groups)
        sides = (beam.pvalue.AsSingleton(self._planned), beam.pvalue.AsSingleton(data_digest))
        count = beam.Map(_count_selected, self._release_key, self._groups, *sides)
        # One coder for both, which CoGroupByKey does not state: through an expansion service, runners read it wrong.
        either = beam.Flatten().with_output_types(tuple[int, Any])
        every = [
            parts[name] | f"To{name.capitalize()}" >> beam.Map(_same).with_output_types(tuple[int, Any])
            for name in ("counts", "selected")
        ]
        return (
            every
            | "CountsAndNames" >> either
            | "JoinCounts" >> beam.GroupByKey()
            | "CountSelected" >> count.with_output_types(tuple[int, Heavy])
        )


def _same(element: Any) -> Any:
    return element


def _count_selected(
    element: tuple[int, Iterable[Histogram | Heavy]],
    release_key: ReleaseKey,
    groups: int,
    planned: PlannedRelease,
    data_digest: bytes,
) -> tuple[int, Heavy]:
    group, joined = element[0], list(element[1])
    (counts,) = (part for part in joined if isinstance(part, Histogram))
    named = [KeyTable(part.fingerprints, part.texts) for part in joined if isinstance(part, Heavy)]
    table = KeyTable.union(named)[0]
    return _count_listed((group, counts), table, planned.plan, release_key, groups, data_digest)
