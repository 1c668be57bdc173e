"""Key selection by weights: users' rows to selected keys, in one to three rounds.

In:  (shard, Contributions) of all users, pruned. Exact and private.
Out: ``users``, (shard, `StatedRows`): the same rows with the state of every key. Exact and private.
     ``selected``, (group, Heavy without counts): the selected keys of each group. Released (`hushgram.key_selection`).

One round:

    (shard, rows) ─ weigh ─► (group, (shard, weights)) ─ merge ─► one noisy weight per key ─► (shard, (group, states))
         │                                                                                          │
         └───────────────────────────── join by shard ◄─────────────────────────────────────────────┘

A key is weighed where its group is, with the weights that all users give it, and its state goes back to each shard of
users that has it: no set of keys travels as a side input. States come back in the order in which the keys were sent,
one
byte each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import apache_beam as beam
import numpy as np
from numpy.typing import NDArray

from hushgram.contributions.bounding import Contributions
from hushgram.contributions.histogram import Histogram, KeyTable
from hushgram.key_selection.rounds import (
    OPEN,
    SELECTED,
    SelectionPlan,
    carried_states,
    next_states,
    release_round,
    weigh,
)
from hushgram.key_selection.threshold import Heavy
from hushgram.noise.entropy import ReleaseKey
from hushgram.sparse_histogram.params import Params
from hushgram.sparse_histogram.spec import ReleaseSpec
from hushgram.transforms.shuffle import SENT_PLACES
from hushgram.transforms.shuffle.coders import (
    ArraysCoder,
    ContributionsCoder,
    HistogramCoder,
    SpilledBatch,
    Spilling,
    register,
)
from hushgram.transforms.shuffle.combining import DigestShards, LocalResources, noise_parts, split_groups

__all__ = ["BoundSelected", "SelectByWeights", "StatedRows"]


@dataclass(frozen=True)
class StatedRows:
    """Rows of a shard of users, or where they are spilled, and the state of every key of their table. Exact and
    private."""

    kept: Contributions | SpilledBatch
    states: NDArray[np.uint8] | None = None

    @property
    def rows(self) -> Contributions:
        """Return all rows."""
        rows: Contributions = _ROWS.load(self.kept)
        return rows


@dataclass(frozen=True)
class _Sent:
    """Weights that one shard of users sends to a group, or where they are spilled."""

    shard: int
    kept: Histogram | SpilledBatch


@dataclass(frozen=True)
class _Merged:
    """The summed weights of a group, and where the keys of each shard of users are among them."""

    weights: Histogram
    shards: tuple[tuple[int, NDArray[Any]], ...]


@dataclass(frozen=True)
class _Group:
    """The summed weights of a group, or where they are spilled.

    Where shards sent much, there are several, each with all weights and some of the shards. All of them draw the same
    noise; the ``first`` alone is digested and names keys.
    """

    kept: _Merged | SpilledBatch
    first: bool = True


@dataclass(frozen=True)
class _States:
    """States of the keys that one shard of users sent to a group; with ``users``, the rows that they are joined to."""

    group: int
    states: NDArray[np.uint8]
    users: StatedRows | None = None


class SelectByWeights(beam.PTransform):
    """(shard, Contributions) → {"users": (shard, StatedRows), "selected": (group, Heavy)}.

    ``metric`` is that whose keys are weighed; None weighs those of all metrics that share the selection. Plan and key
    are those of ``spec``, which for several metrics is that of the first; ``params`` is a collection of its `Params`.

    Where the number of rounds is chosen from the data, those beyond it have no keys.
    """

    def __init__(
        self,
        spec: ReleaseSpec,
        metric: int | None,
        groups: int,
        local: LocalResources | None = None,
        *,
        params: Any,
    ) -> None:
        super().__init__()
        self._params, self._chosen = spec.params, params if spec.params.choose_rounds else None
        self._release_key, self._groups = spec.release_key, groups
        self._metric, self._spill = metric, None if local is None else local.spill
        self._carried = spec.carried

    def expand(self, kept: Any) -> dict[str, Any]:
        keep = beam.ParDo(_Keep(self._spill, self._metric, self._carried))
        users = kept | "KeepRows" >> keep.with_output_types(tuple[int, StatedRows])  # (shard, StatedRows)
        once = kept.pipeline | "Once" >> beam.Create([self._groups], reshuffle=False)
        empty = once | "EveryGroup" >> beam.FlatMap(_every_group).with_output_types(tuple[int, _Sent])
        selected = []
        if self._carried is not None:  # named whatever the data are: also where nobody has them
            split = beam.FlatMap(_carried, self._carried).with_output_types(tuple[int, Heavy])
            selected.append(once | "Carried" >> split)  # (group, Heavy)
        for number in range(self._params.rounds):  # the most where they are chosen
            one = _Round(
                self._params, self._chosen, self._release_key, self._groups, number, empty, self._spill
            )
            found = users | f"Round{number + 1}" >> one
            users = found["users"]
            selected.append(found["selected"])
        named = tuple(selected) | "AllRounds" >> beam.Flatten().with_output_types(tuple[int, Heavy])
        return {"users": users, "selected": named}


class _Round(beam.PTransform):
    """One round; the result is as that of `SelectByWeights`. ``empty`` has nothing for each group."""

    def __init__(
        self,
        params: Params,
        chosen: Any,
        release_key: ReleaseKey,
        groups: int,
        number: int,
        empty: Any,
        spill: str | None,
    ) -> None:
        super().__init__()
        self._params, self._chosen = params, chosen
        self._release_key, self._groups, self._number = release_key, groups, number
        self._empty, self._spill = empty, spill

    def expand(self, users: Any) -> dict[str, Any]:
        sent, states = tuple[int, _Sent], tuple[int, _States]
        weigh_rows = _Weigh(self._spill, self._params.max_keys, self._groups)
        weighed = users | "Weigh" >> beam.ParDo(weigh_rows).with_output_types(sent)
        merged = (
            (weighed, self._empty)
            | "WithEmpty" >> beam.Flatten().with_output_types(sent)
            | "GroupWeights" >> beam.GroupByKey()
            | "MergeWeights" >> beam.ParDo(_Merge(self._spill)).with_output_types(tuple[int, _Group])
        )  # (group, _Group)
        digests = DigestShards(self._groups, _weights)
        firsts = merged | "First" >> beam.Filter(_is_first).with_output_types(tuple[int, _Group])
        survey = firsts | "DigestWeights" >> digests  # one digest of all weights of the round
        plan = self._params.gaussian.selection if self._chosen is None else None
        release = _ReleaseRound(plan, self._release_key, self._groups, self._number)
        sides = [beam.pvalue.AsSingleton(side) for side in (survey, self._chosen) if side is not None]
        found = merged | "ReleaseRound" >> beam.ParDo(release, *sides).with_outputs("selected", main="states")
        # Beam's outputs of several kinds have no types of their own.
        found["states"].element_type, found["selected"].element_type = states, tuple[int, Heavy]
        here = users | "ToJoin" >> beam.MapTuple(_to_join).with_output_types(states)
        both = (here, found["states"]) | "RowsAndStates" >> beam.Flatten().with_output_types(states)
        joined = both | "Join" >> beam.GroupByKey()
        return {
            "users": joined | "Restate" >> beam.MapTuple(_join).with_output_types(tuple[int, StatedRows]),
            "selected": found["selected"],
        }


def _every_group(groups: int) -> Iterator[tuple[int, _Sent]]:
    return ((group, _Sent(-1, Histogram.empty(texts=True))) for group in range(groups))


def _carried(groups: int, table: KeyTable) -> Iterator[tuple[int, Heavy]]:
    none = np.zeros(len(table.fingerprints), np.int64)
    return split_groups(Heavy(table.fingerprints, none, table.texts), groups)


class _Keep(Spilling):
    """(shard, Contributions) → (shard, StatedRows), of one metric or all."""

    def __init__(self, spill: str | None, metric: int | None, carried: KeyTable | None) -> None:
        super().__init__(spill)
        self._metric, self._carried = metric, carried

    def process(self, element: tuple[int, Contributions]) -> Iterator[Any]:
        shard, every = element
        rows = (every if self._metric is None else every.metric(self._metric)).present()
        states = None if rows.table is None else carried_states(rows.table, self._carried)
        yield shard, StatedRows(self.keep(rows, _ROWS), states)


def _to_join(shard: int, users: StatedRows) -> tuple[int, _States]:
    return shard, _States(-1, np.zeros(0, np.uint8), users)


class _Weigh(Spilling):
    """(shard, StatedRows) → (group, weights of the open keys)."""

    def __init__(self, spill: str | None, max_keys: int, groups: int) -> None:
        super().__init__(spill)
        self._max_keys, self._groups = max_keys, groups

    def process(self, element: tuple[int, StatedRows]) -> Iterator[tuple[int, _Sent]]:
        shard, users = element
        closed = users.states is not None and not np.any(
            users.states == OPEN
        )  # the round before was the last
        rows = None if closed else users.rows
        if rows is not None and len(rows):
            weights = weigh(rows, self._max_keys, users.states)
            for group, part in split_groups(weights, self._groups):
                yield group, _Sent(shard, self.keep(part, _WEIGHTS))


class _Merge(Spilling):
    """(group, weights of shards) → their sum, in the order of the shards that sent them."""

    def process(self, element: tuple[int, Iterable[_Sent]]) -> Iterator[tuple[int, _Group]]:
        group, sent = element
        ordered = sorted(sent, key=lambda part: part.shard)
        parts: list[Histogram] = [_WEIGHTS.load(part.kept) for part in ordered]
        table, places = KeyTable.union([KeyTable(part.fingerprints, part.texts) for part in parts])
        counts = np.concatenate([part.counts for part in parts])
        whole = Histogram.of_keys(np.concatenate(places), counts, table, Histogram.shared(parts))
        where = [(part.shard, place) for part, place in zip(ordered, places, strict=True) if len(place)]
        ends = np.cumsum([len(place) for _, place in where])
        cuts = np.searchsorted(ends, np.arange(0, ends[-1] if where else 1, SENT_PLACES), side="right")
        for low, high in pairwise([*np.unique(cuts).tolist(), len(where)]):
            yield group, _Group(self.keep(_Merged(whole, tuple(where[low:high])), _MERGED), low == 0)


def _is_first(element: tuple[int, _Group]) -> bool:
    return element[1].first


def _weights(group: _Group) -> Histogram:
    weights: Histogram = _MERGED.load(group.kept).weights
    return weights


class _ReleaseRound(beam.DoFn):
    """(group, _Group) → (shard, states) for every shard of users, and the selected keys of the group."""

    def __init__(self, plan: SelectionPlan | None, release_key: ReleaseKey, groups: int, number: int) -> None:
        self._plan, self._release_key, self._groups, self._number = plan, release_key, groups, number

    def process(
        self, element: tuple[int, _Group], data_digest: bytes, chosen: Params | None = None
    ) -> Iterator[Any]:
        group, merged = element[0], _MERGED.load(element[1].kept)
        plan = self._plan if chosen is None else chosen.gaussian.selection
        assert plan is not None
        parts = noise_parts(group, self._groups, merged.weights)
        states = release_round(self._number, parts, plan, self._release_key, data_digest)
        for shard, places in merged.shards:
            yield shard, _States(group, states[places])
        if not element[1].first:
            return
        assert merged.weights.texts is not None
        named, _ = KeyTable(merged.weights.fingerprints, merged.weights.texts).keep(states == SELECTED)
        names = Heavy(named.fingerprints, np.zeros(len(named.fingerprints), np.int64), named.texts)
        yield beam.pvalue.TaggedOutput("selected", (group, names))


def _join(shard: int, parts: Iterable[_States]) -> tuple[int, StatedRows]:
    """Give rows their new states: groups are ranges of the table, in order."""
    first, *found = sorted(parts, key=lambda part: part.group)
    assert first.users is not None
    states = np.concatenate([np.zeros(0, np.uint8), *(part.states for part in found)])
    return shard, StatedRows(first.users.kept, next_states(first.users.states, states))


# --- coders -------------------------------------------------------------------------------------------------------

_ROWS, _WEIGHTS = ContributionsCoder(), HistogramCoder()


def _pack(kept: Any, coder: ArraysCoder) -> list[Any]:
    if not isinstance(kept, SpilledBatch):
        return [np.zeros(1, "<u1"), *coder.to_arrays(kept)]
    place = np.array([kept.offset, kept.size], "<i8")
    return [np.ones(1, "<u1"), place, np.frombuffer(kept.path.encode(), np.uint8)]


def _unpack(arrays: list[Any], coder: ArraysCoder) -> Any:
    spilled, *rest = arrays
    return (
        SpilledBatch(rest[1].tobytes().decode(), *rest[0].tolist()) if spilled[0] else coder.from_arrays(rest)
    )


class _StatedRowsCoder(ArraysCoder):
    kind = StatedRows

    def to_arrays(self, value: StatedRows) -> list[Any]:
        states = np.zeros(0, np.uint8) if value.states is None else value.states
        return [np.array([value.states is not None], "<u1"), states, *_pack(value.kept, _ROWS)]

    def from_arrays(self, arrays: list[Any]) -> StatedRows:
        stated, states, *rest = arrays
        return StatedRows(_unpack(rest, _ROWS), states if stated[0] else None)


class _SentCoder(ArraysCoder):
    kind = _Sent

    def to_arrays(self, value: _Sent) -> list[Any]:
        return [np.array([value.shard], "<i8"), *_pack(value.kept, _WEIGHTS)]

    def from_arrays(self, arrays: list[Any]) -> _Sent:
        return _Sent(int(arrays[0][0]), _unpack(arrays[1:], _WEIGHTS))


class _MergedCoder(ArraysCoder):
    kind = _Merged

    def to_arrays(self, value: _Merged) -> list[Any]:
        shards = np.array([shard for shard, _ in value.shards], "<i8")
        weights = _WEIGHTS.to_arrays(value.weights)
        index = "<u4" if len(value.weights) < 1 << 32 else "<u8"
        return [shards, *(places.astype(index) for _, places in value.shards), *weights]

    def from_arrays(self, arrays: list[Any]) -> _Merged:
        shards, *rest = arrays
        places = tuple(zip(shards.tolist(), rest[: len(shards)], strict=True))
        return _Merged(_WEIGHTS.from_arrays(rest[len(shards) :]), places)


class _GroupCoder(ArraysCoder):
    kind = _Group

    def to_arrays(self, value: _Group) -> list[Any]:
        return [np.array([value.first], "<u1"), *_pack(value.kept, _MERGED)]

    def from_arrays(self, arrays: list[Any]) -> _Group:
        return _Group(_unpack(arrays[1:], _MERGED), bool(arrays[0][0]))


class _StatesCoder(ArraysCoder):
    kind = _States

    def to_arrays(self, value: _States) -> list[Any]:
        users = [] if value.users is None else _STATED.to_arrays(value.users)
        return [np.array([value.group], "<i8"), value.states, *users]

    def from_arrays(self, arrays: list[Any]) -> _States:
        group, states, *users = arrays
        return _States(int(group[0]), states, _STATED.from_arrays(users) if users else None)


_STATED, _MERGED = _StatedRowsCoder(), _MergedCoder()
register(_StatedRowsCoder, _SentCoder, _GroupCoder, _StatesCoder)


class BoundSelected(beam.PTransform):
    """(shard, StatedRows) → {"counts", "rest"}: parts of the bounded histograms of the selected keys and of all others,
    bounded together, of one metric.

    ``params`` is a collection of its `Params`.
    """

    def __init__(self, spec: ReleaseSpec, metric: int, params: Any) -> None:
        super().__init__()
        self._spec, self._metric, self._params = spec, metric, params

    def expand(self, users: Any) -> Any:
        params = beam.pvalue.AsSingleton(self._params)
        bound = beam.FlatMap(_bound, self._spec, self._metric, params).with_outputs("rest", main="counts")
        found = users | "BoundSelected" >> bound
        # Beam's outputs of several kinds have no types of their own.
        found["counts"].element_type = found["rest"].element_type = Histogram
        return {"counts": found["counts"], "rest": found["rest"]}


def _bound(element: tuple[int, StatedRows], spec: ReleaseSpec, metric: int, params: Params) -> Iterator[Any]:
    users = element[1]
    assert users.states is not None
    rows = users.rows.metric(metric, present=True)
    counts, rest = rows.bounded_apart(spec.bounds(params), users.states == SELECTED)
    yield counts
    yield beam.pvalue.TaggedOutput("rest", rest)
