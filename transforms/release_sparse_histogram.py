"""The whole release as one PTransform: the only module here that joins stages.

    records ─► BoundContributions ─► MergeHistograms ─┬─► PlanRelease ────────┐ (side input)
                                                      └─► SelectKeys ◄────────┤
                                                             └─► EncodeCounts ┴─► WriteSketch
                                                   or ──► CountPublicKeys (keys known beforehand) ─► WriteSketch

For one release key the sketch has the bytes of ``hushgram.release``, whatever the runner, its workers and bundles.

Several metrics of the same records are bounded once, side by side, and from there each is a release of its own:

    records ─► BoundContributions (all metrics of a user) ─┬─► BoundKept (visits) ─► … ─► out/visits.sketch
                                                           └─► BoundKept (bytes)  ─► … ─► out/bytes.sketch

Where keys are selected by weights, that comes first, and once for all metrics:

    records ─► BoundContributions ─► SelectByWeights ─┬─► BoundSelected (visits) ─► … ─► out/visits.sketch
                                                      └─► BoundSelected (bytes)  ─► … ─► out/bytes.sketch
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, Optional

import apache_beam as beam
from apache_beam import coders

from hushgram.contributions.histogram import Histogram, KeyTable
from hushgram.errors import ParameterError
from hushgram.inputs import Check, Limits
from hushgram.inputs.source import read_key_list
from hushgram.noise.entropy import ReleaseKey
from hushgram.numbers import Number, rational, show
from hushgram.sketch.reader import Sketch
from hushgram.sparse_histogram.params import Params, ReleaseParams
from hushgram.sparse_histogram.plan import Plan, make_public_plan, release_events
from hushgram.sparse_histogram.spec import Metric, ReleaseSpec, metric_specs
from hushgram.sparse_histogram.steps import PlannedRelease
from hushgram.transforms.bound_contributions import BoundContributions, BoundKept
from hushgram.transforms.encode_counts import EncodeCounts
from hushgram.transforms.files import SharedKeys, open_file
from hushgram.transforms.merge_histograms import MergeHistograms, WholeCells
from hushgram.transforms.plan_release import CountUsers, PlanRelease, TallyUsers
from hushgram.transforms.select_keys import CountPublicKeys, CountSelected, SelectKeys
from hushgram.transforms.shuffle.combining import LocalResources, Shards, shards_for
from hushgram.transforms.weigh_keys import BoundSelected, SelectByWeights
from hushgram.transforms.write_sketch import Target, WriteSketch

__all__ = ["URN", "EstimateRow", "ReleaseMetrics", "ReleaseSparseHistogram"]

#: how the graph of a pipeline names the transform
URN = "hushgram:transform:release_sparse_histogram:v1"
_CALLER = "ReleaseSparseHistogram"


# Not a class with annotations: those are texts here, and Beam would not know the types that other languages see.
EstimateRow = NamedTuple(  # noqa: UP014
    "EstimateRow",
    [("key", str), ("estimate", Optional[float]), ("low", float), ("high", float)],  # noqa: UP045
)
EstimateRow.__doc__ = "A key of a release with its estimate (None where it is not resolved) and interval."
coders.registry.register_coder(EstimateRow, coders.RowCoder)


class ReleaseSparseHistogram(beam.PTransform):
    """Records → a differentially private sketch at ``path``; the result is a collection of that path.

    Records may be Arrow tables or batches, beam.Row or NamedTuple, dicts, or (user, key) pairs. The sketch is (epsilon,
    delta)-differentially private for what ``params`` say. Each run of a pipeline is a release of its own, and what
    several of them lose together adds up. A dict of ``records`` and ``tallies`` (`ReadRecords`) is taken too: then
    nothing is published before all is read and within the reader's limits.

    All arguments may be plain values, as in Beam YAML or through an expansion service. Constructing the transform
    reads and writes nothing; applying it checks that ``path`` is free.

    Args:
        params: the parameters; or leave it out and give those of `ReleaseParams` by name, such as ``epsilon="1"``.
        key: the column of keys (for pairs the name only describes).
        path: where the sketch goes.
        user: the column of users; left out, a single record is protected in place of a person.
        value: a column of numbers from 0 on whose sums are released in place of counts, under the ``max_value`` and
            ``granularity`` of ``params``.
        public_keys: keys known without looking at the data. Exactly those are released, each with noise, and all of
            epsilon goes to them; nothing of any other key shows. A text is the path of a file with one key per line. Of
            a long list, workers read a copy in the directory that the sketch is written to.
        name: the name of the release.
        key_expression: how the key was derived, for the manifest.
        max_rejected_share: records without a user or key are rejected; where they are more than this share of all, the
            pipeline fails with an `InputError` before anything is published.
        release_key: reproduces an earlier release to the byte, for tests and recovery: whoever has it can subtract the
            noise. It travels in the pipeline's code to the workers, and is not in options, names, display data or logs.
            A text is the path of a file that holds it as 64 hexadecimal digits.
        shards: shards of users in the shuffle, without an effect on the result; or `Shards`, with groups of keys too. A
            group is one element: take 4,096 groups for 10^9 keys, 16,384 for 10^10. Above 256, each number of groups
            has noise of its own.
        local: what the job may use where all workers share one machine; without an effect on the result.
        dataset: the data set of the ledger whose budget is spent, under the id ``name``. Applying the transform
            reserves the budget; the stage that publishes the sketch commits it, so the worker that runs it must reach
            the ledger. A pipeline that failed is run again with the same arguments and resumes; one whose release was
            committed before reads nothing and yields its path. The launching process holds the release until it is
            published or the process ends; applying the transform in it again gives the earlier pipeline up. ``path``
            must be local.
        ledger: the URL of the ledger; by default HUSHGRAM_LEDGER, else a file in the working directory.
        carry: keys that an earlier release named, as for ``hushgram.release``.
        output: "path", or "rows" for `EstimateRow` elements: of the keys in ``lookup``, else of all keys that the
            release names (public keys, or with delta above 0 the selected ones).
        lookup: keys to estimate; it costs no budget.
        counters: whether the job has counters of exact figures (records kept, distinct keys, rejected records). They
            are private: everyone who sees the job on its engine sees them.
        privacy: parameters by name, in place of ``params``.

    >>> import apache_beam as beam, tempfile
    >>> from hushgram import ReleaseParams, Sketch
    >>> path = tempfile.mkdtemp() + "/urls.sketch"
    >>> params = ReleaseParams(epsilon="1", max_contributions=2)
    >>> with beam.Pipeline(runner="FnApiRunner") as pipeline:
    ...     views = pipeline | beam.Create([("ann", "/a"), ("bob", "/a"), ("bob", "/b")])
    ...     sketch = views | ReleaseSparseHistogram(params, user="user", key="url", path=path)
    >>> Sketch.open(path).estimate(["/a"]).column_names
    ['key', 'estimate', 'low', 'high', 'resolved', 'above_zero', 'source', 'among']
    """

    def __init__(
        self,
        params: ReleaseParams | None = None,
        *,
        key: str,
        path: str | os.PathLike[str] | Target,
        user: str | None = None,
        value: str | None = None,
        public_keys: Any = None,
        name: str = "",
        key_expression: str = "",
        max_rejected_share: Number = "0.05",
        release_key: ReleaseKey | str | None = None,
        shards: Shards | int | None = None,
        local: LocalResources | None = None,
        dataset: str | None = None,
        ledger: str | None = None,
        carry: Any = None,
        output: str = "path",
        lookup: Any = None,
        counters: bool = False,
        **privacy: Any,
    ) -> None:
        super().__init__()
        self._key_file = release_key if isinstance(release_key, str) else None
        self._list_file = os.fspath(public_keys) if isinstance(public_keys, str | os.PathLike) else None
        self._spec = ReleaseSpec.of(
            _params_of(params, privacy),
            key=key,
            user=user,
            value=value,
            public_keys=public_keys if self._list_file is None else [self._list_file],  # which `_open` reads
            name=name,
            key_expression=key_expression,
            release_key=None if isinstance(release_key, str) else release_key,
            carry=carry,
            caller=_CALLER,
        )
        if output not in ("path", "rows"):
            raise ParameterError(f"{_CALLER}: output must be path or rows, got {output!r}")
        if output == "rows" and lookup is None and not self._spec.texts:
            raise ParameterError(
                f"{_CALLER}: with delta 0 a release names no keys; give lookup, the keys to estimate"
            )
        self._rows, self._lookup = output == "rows", None if lookup is None else list(lookup)
        self._check, self._counters = _check(max_rejected_share), counters
        self._shards = shards if isinstance(shards, Shards) else shards_for(None, shards)
        self._local, self._path, self._tracking = local, path, (dataset, ledger)

    def _open(self) -> tuple[ReleaseSpec, Target, bool]:
        """Return the specification with its key, the target, and whether it was released before.

        Where a ledger is named, the budget is reserved here, and the key is that of the reservation.
        """
        spec, path, (dataset, ledger) = self._spec, self._path, self._tracking
        if self._key_file is not None:
            spec = spec.with_key(ReleaseKey.from_file(self._key_file))
        if self._list_file is not None:
            spec = spec.with_public_keys(read_key_list(self._list_file, "public_keys", open_file))
        if dataset is None and ledger is None:
            return spec, path if isinstance(path, Target) else Target.of(os.fspath(path)), False
        from hushgram.ledger.tracking import TrackedRelease

        tracked = TrackedRelease.open(
            _CALLER,
            ledger=ledger,
            dataset=dataset,
            release=spec.name,
            path=path,  # type: ignore[arg-type]
            events=release_events(spec.params, charged=True),
            parameters={**spec.stated(), **self._shards.stated},
        )
        assert tracked is not None
        if tracked.done:
            return spec, Target(tracked.target, tracked.target), True
        with tracked.held():
            target = Target.under_ledger(tracked)
            spec = spec.with_key(tracked.key())
        tracked.hold_for_pipeline()
        return spec, target, False

    def expand(self, records: Any) -> Any:
        spec, target, released = self._open()
        if released:
            pipeline = (records["records"] if isinstance(records, dict) else records).pipeline
            path = pipeline | "Released" >> beam.Create([target.path]).with_output_types(str)
        else:
            path = self._release(records, spec, target)
        if not self._rows:
            return path
        return path | "Rows" >> beam.FlatMap(_estimates, self._lookup).with_output_types(EstimateRow)

    def _release(self, records: Any, spec: ReleaseSpec, target: Target) -> Any:
        params, spec = spec.params, spec.sharing_keys(partial(_share_keys, target))
        keep = params.choose_contributions or params.weighted
        noted: dict[str, Any] = {"check": self._check, "counters": self._counters}
        users, local = self._shards.users, self._local
        bound = BoundContributions(spec.bounding, users, local, release=spec, keep=keep, **noted)
        bounded = (
            records | "Bound" >> bound
        )  # Histogram; where keys or C are chosen first, (shard, Contributions)
        if keep:
            counted = bounded | "Users" >> _CountUsersOf(spec, 0)  # one Params
            found = {"params": counted, "main": bounded}
            if spec.params.weighted:
                select = SelectByWeights(spec, 0, self._shards.groups, local, params=counted)
                found |= bounded | "SelectByWeights" >> select  # users and selected keys
            bounded = found
        elif params.counts_users:
            counted = bounded["users"] | "CountUsers" >> CountUsers(spec)  # one Params
            bounded = {"params": counted, "main": bounded["main"]}
        metric = 0 if keep else None
        return bounded | "Release" >> _ReleaseBounded(
            spec, target, self._shards.groups, self._local, metric=metric, counters=self._counters
        )

    def to_runner_api_parameter(self, context: Any) -> tuple[str, bytes]:
        return URN, json.dumps(self.display_data(), ensure_ascii=False).encode()

    def display_data(self) -> dict[str, Any]:
        params = self._spec.params
        return {
            "epsilon": show(params.epsilon),
            "delta": show(params.delta),
            "max_contributions": params.max_contributions,
            "max_per_key": params.max_per_key,
            "user": self._spec.user or "(a record is the privacy unit)",
            "key": self._spec.key,
            "path": self._path.path if isinstance(self._path, Target) else os.fspath(self._path),
        }


# A graph that was saved holds the stages; the transform around them is only a name.
beam.PTransform.register_urn(URN, bytes, lambda proto, payload, context: _Loaded())


class _Loaded(beam.PTransform):
    """A release in a graph that was loaded."""


def _params_of(params: ReleaseParams | None, privacy: Mapping[str, Any]) -> Any:
    """Return the parameters, or those that plain arguments give; rows of another language's schema are mappings."""
    if params is not None:
        if privacy:
            raise ParameterError(f"{_CALLER}: give params or {', '.join(privacy)}, not both")
        return params
    known = inspect.signature(ReleaseParams.__init__).parameters
    for name in privacy:
        if name not in known or name == "self":
            raise ParameterError(f"{_CALLER}: there is no argument {name!r}")
    missing = [name for name in ("epsilon", "max_contributions") if name not in privacy]
    if missing:
        raise ParameterError(f"{_CALLER}: {' and '.join(missing)} must be given")
    plain = {name: value._asdict() if hasattr(value, "_asdict") else value for name, value in privacy.items()}
    return ReleaseParams(**plain)


def _estimates(path: str, lookup: list[Any] | None) -> Iterator[EstimateRow]:
    sketch = Sketch.open(path)
    table, estimate = (sketch.heavy(), "value") if lookup is None else (sketch.estimate(lookup), "estimate")
    for row in table.to_pylist():
        key, value = row["key"], row[estimate]
        text = key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)
        low, high = float(row["low"]), float(row["high"])
        yield EstimateRow(text, None if value is None else float(value), low, high)


class ReleaseMetrics(beam.PTransform):
    """Records → a sketch NAME.sketch in the folder ``path`` for each metric; the result is a collection of the paths.

    Users cross the shuffle once, and a user's keys are kept in one order for all metrics: those that count for one
    metric are a prefix of those that count for another with a larger bound. Metrics whose keys are selected by weights
    share one selection and have the same named keys. All metrics together lose the sum.

    Args:
        metrics: parameters, and the column of values if any, by name.
        path: the folder of the sketches.

    Other arguments are those of `ReleaseSparseHistogram`.
    """

    def __init__(
        self,
        metrics: Mapping[str, Metric],
        *,
        key: str,
        path: str | os.PathLike[str],
        user: str | None = None,
        name: str = "",
        key_expression: str = "",
        max_rejected_share: Number = "0.05",
        release_key: ReleaseKey | None = None,
        shards: Shards | None = None,
        local: LocalResources | None = None,
        counters: bool = False,
    ) -> None:
        super().__init__()
        self._bounding, self._specs = metric_specs(
            metrics, key=key, user=user, name=name, key_expression=key_expression, release_key=release_key
        )
        self._check = _check(max_rejected_share)
        self._shards, self._local, self._counters = shards or shards_for(None), local, counters
        self._path = os.fspath(path)

    def expand(self, records: Any) -> Any:
        targets = {name: Target.of(f"{self._path}/{name}.sketch") for name in self._specs}
        users, groups = self._bounding.user is not None, self._shards.groups
        noted: dict[str, Any] = {"check": self._check, "counters": self._counters}
        if users:
            bound = BoundContributions(self._bounding, self._shards.users, self._local, keep=True, **noted)
            bounded = kept = records | "Bound" >> bound  # (shard, Contributions)
        weighted = [number for number, spec in enumerate(self._specs.values()) if spec.params.weighted]
        if weighted:  # keys are selected once; with one such metric, by the keys that count for it
            first = list(self._specs.values())[weighted[0]]
            alone = weighted[0] if len(weighted) == 1 else None
            leading = kept | "Leading" >> _CountUsersOf(first, weighted[0])  # one Params
            select = SelectByWeights(first, alone, groups, self._local, params=leading)
            found = kept | "SelectByWeights" >> select  # users and selected keys
        paths = []
        for metric, (name, spec) in enumerate(self._specs.items()):
            label = name.capitalize()
            if users:
                counted = None
                if spec.params.counts_users:
                    first_of_all = weighted and metric == weighted[0]
                    counted = (
                        leading if first_of_all else kept | f"Users{label}" >> _CountUsersOf(spec, metric)
                    )
                    if spec.params.weighted and not first_of_all:
                        same = beam.Map(Params.with_rounds_of, beam.pvalue.AsSingleton(leading))
                        counted = counted | f"Rounds{label}" >> same.with_output_types(Params)
                bounded = kept if counted is None else {"params": counted, "main": kept}
                if spec.params.weighted:
                    bounded |= found
            else:
                bound = BoundContributions(spec.bounding, local=self._local, **noted)
                bounded = records | f"Bound{label}" >> bound  # Histogram
            of_users, target = metric if users else None, targets[name]
            release = _ReleaseBounded(
                spec, target, groups, self._local, metric=of_users, counters=self._counters
            )
            paths.append(bounded | label >> release)
        return paths | "Paths" >> beam.Flatten()


class _ReleaseBounded(beam.PTransform):
    """Bounded contributions → the path of the sketch.

    They are parts of the bounded histogram, or a dict of those as "main" and one `Params` as "params". With ``metric``,
    "main" is (shard, Contributions) of which this is one metric; where keys are selected by weights, what
    `SelectByWeights` makes of them is beside.
    """

    def __init__(
        self,
        spec: ReleaseSpec,
        target: Target,
        groups: int,
        local: LocalResources | None,
        *,
        metric: int | None,
        counters: bool,
    ) -> None:
        super().__init__()
        self._spec, self._target, self._metric, self._counters = spec, target, metric, counters
        self._local = local
        self._groups = groups if spec.public_keys is None else _groups_of(spec.public_keys)

    def expand(self, bounded: Any) -> Any:
        spec, groups, release_key = self._spec, self._groups, self._spec.release_key
        if spec.params.weighted:
            return self._weighted(bounded) | "WriteSketch" >> WriteSketch(spec, self._target, groups)
        params = None
        if isinstance(bounded, dict):  # what follows from the histogram over users
            bounded, params = bounded["main"], bounded["params"]
        if self._metric is not None:  # first, users are bounded: to C, which may follow from that
            chosen = params if spec.params.choose_contributions else None
            bounded = bounded | "Bound" >> BoundKept(spec, self._metric, chosen)  # Histogram

        # Second, the parts are summed, each group of noise shards by itself.
        merged = self._merge(bounded)  # (group, Histogram)

        # Third, the plan follows from noisy sizes; then keys are selected, and the counts of all others encoded.
        if spec.public_keys is not None:
            made = make_public_plan(spec.params, len(spec.public_keys.texts))
            create = beam.Create([made], reshuffle=False).with_output_types(Plan)
            released = {
                "plan": merged.pipeline | "PublicPlan" >> create,  # one Plan
                "heavy": merged | "CountPublicKeys" >> CountPublicKeys(spec, made, groups),  # (group, Heavy)
            }
        else:
            planned = merged | "PlanSizes" >> PlanRelease(spec, groups, params)  # one PlannedRelease
            merged = merged | "WholeCells" >> WholeCells(
                planned, groups, texts=spec.texts
            )  # (group, Histogram)
            select = SelectKeys(release_key, planned, groups, counters=self._counters)
            selected = (
                merged | "SelectKeys" >> select
            )  # (group, Heavy), and (group, Histogram) of what passes on
            released = {
                "plan": planned | "PublicPart" >> beam.Map(_plan_of).with_output_types(Plan),  # one Plan
                "heavy": selected["heavy"],
            }
            counts = selected["rest"] if spec.params.chained else merged
            released["blocks"] = counts | "Encode" >> EncodeCounts(
                release_key, planned, groups
            )  # EncodedBlock

        # Last, everything is written. Users or groups, and with them all that follows, are complete only once the
        # tallies among their parts are checked.
        return released | "WriteSketch" >> WriteSketch(spec, self._target, groups)  # path

    def _weighted(self, found: dict[str, Any]) -> dict[str, Any]:
        """Count the keys that were selected by weights, and encode the counts of all others."""
        spec, groups, metric = self._spec, self._groups, self._metric or 0
        stated, params = found["users"], found["params"]  # (shard, StatedRows); one Params
        bounded = stated | "BoundSelected" >> BoundSelected(spec, metric, params)  # Histogram, of both
        merge = MergeHistograms(groups, texts=True, local=self._local, counters=self._counters)
        counts = bounded["counts"] | "MergeCounts" >> merge  # (group, Histogram)
        merge = MergeHistograms(groups, texts=True, local=self._local, counters=self._counters)
        merged = bounded["rest"] | "MergeOthers" >> merge  # (group, Histogram)
        planned = merged | "PlanSizes" >> PlanRelease(spec, groups, params)  # one PlannedRelease
        blocks = merged | "Encode" >> EncodeCounts(spec.release_key, planned, groups)  # EncodedBlock
        named = {"counts": counts, "selected": found["selected"]}
        return {
            "blocks": blocks,
            "plan": planned | "PublicPart" >> beam.Map(_plan_of).with_output_types(Plan),  # one Plan
            "heavy": named | "CountSelected" >> CountSelected(spec, planned, groups),  # (group, Heavy)
        }

    def _merge(self, parts: Any) -> Any:
        """Return (group, Histogram), complete and in whole counts."""
        spec = self._spec
        merge = MergeHistograms(self._groups, texts=spec.texts, local=self._local, counters=self._counters)
        merged = parts | "MergeHistogram" >> merge
        if spec.value is None or spec.user is not None:
            return merged
        rounded = beam.Map(_round, spec.release_key).with_output_types(tuple[int, Histogram])
        return merged | "RoundSums" >> rounded


def _check(max_rejected_share: Number) -> Check:
    share = rational(max_rejected_share, "max_rejected_share", "ReleaseSparseHistogram")
    return Check(Limits(share, min_rows=0), "the records", group="")


class _CountUsersOf(beam.PTransform):
    """(shard, Contributions) of all users → one `Params` with what follows from the histogram over users."""

    def __init__(self, spec: ReleaseSpec, metric: int) -> None:
        super().__init__()
        self._spec, self._metric = spec, metric

    def expand(self, kept: Any) -> Any:
        return kept | TallyUsers(self._spec, self._metric) | CountUsers(self._spec)


def _round(shard: tuple[int, Histogram], release_key: ReleaseKey) -> tuple[int, Histogram]:
    return shard[0], shard[1].rounded(release_key)


def _groups_of(keys: KeyTable) -> int:
    """Return groups for a list of keys, of up to 4 MiB each while there are fewer than 256."""
    return 1 << min((int(keys.texts.nbytes) >> 22).bit_length(), 8)


def _share_keys(target: Target, keys: KeyTable) -> KeyTable:
    return SharedKeys.write(keys, target.work, target.path)


def _plan_of(planned: PlannedRelease) -> Plan:
    return planned.plan
