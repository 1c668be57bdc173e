"""The whole release as one PTransform: the only module here that joins stages.

    records ─► BoundContributions ─► MergeHistograms ─┬─► PlanRelease ────────┐ (side input)
                                                      ├─► SelectKeys ◄────────┤
                                                      └─► EncodeCounts ◄──────┴─► WriteSketch
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

import os
from collections.abc import Mapping
from typing import Any

import apache_beam as beam

from hushgram.contributions.bounding import Contributions
from hushgram.contributions.histogram import Histogram
from hushgram.inputs import Check, Limits
from hushgram.noise.entropy import ReleaseKey
from hushgram.numbers import Number, rational, show
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.plan import Plan, make_public_plan, release_events
from hushgram.sparse_histogram.spec import Metric, ReleaseSpec, metric_specs
from hushgram.sparse_histogram.steps import PlannedRelease
from hushgram.transforms.bound_contributions import BoundContributions, BoundKept
from hushgram.transforms.encode_counts import EncodeCounts
from hushgram.transforms.merge_histograms import MergeHistograms
from hushgram.transforms.plan_release import ChooseContributions, PlanRelease
from hushgram.transforms.select_keys import CountPublicKeys, CountSelected, SelectKeys
from hushgram.transforms.shuffle.combining import CheckTallies, LocalResources, Shards, shards_for
from hushgram.transforms.weigh_keys import BoundSelected, SelectByWeights, selected_rows
from hushgram.transforms.write_sketch import Target, WriteSketch

__all__ = ["ReleaseMetrics", "ReleaseSparseHistogram"]


class ReleaseSparseHistogram(beam.PTransform):
    """Records → a differentially private sketch at ``path``; the result is a collection of that path.

    Records may be Arrow tables or batches, beam.Row or NamedTuple, dicts, or (user, key) pairs. The sketch is (epsilon,
    delta)-differentially private for what ``params`` say. Each run of a pipeline is a release of its own, and what
    several of them lose together adds up.

    Args:
        params: the parameters.
        key: the column of keys (for pairs the name only describes).
        path: where the sketch goes.
        user: the column of users; left out, a single record is protected in place of a person.
        value: a column of numbers from 0 on whose sums are released in place of counts, under the ``max_value`` and
            ``granularity`` of ``params``.
        public_keys: keys known without looking at the data. Exactly those are released, each with noise, and all of
            epsilon goes to them; nothing of any other key shows.
        name: the name of the release.
        key_expression: how the key was derived, for the manifest.
        max_rejected_share: records without a user or key are rejected; where they are more than this share of all, the
            pipeline fails with an `InputError` before anything is published.
        release_key: reproduces an earlier release to the byte, for tests and recovery: whoever has it can subtract the
            noise. It travels in the pipeline's code to the workers, and is not in options, names, display data or logs.
        shards: shards of the shuffles; without an effect on the result.
        local: what the job may use where all workers share one machine; without an effect on the result.
        dataset: the data set of the ledger whose budget is spent, under the id ``name``. Constructing the transform
            reserves the budget; the stage that publishes the sketch commits it, so the worker that runs it must reach
            the ledger. A pipeline that failed is run again with the same arguments and resumes; one whose release was
            committed before reads nothing and yields its path. ``path`` must be local.
        ledger: the URL of the ledger; by default HUSHGRAM_LEDGER, else a file in the working directory.
        carry: keys that an earlier release named, as for ``hushgram.release``.

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
        params: ReleaseParams,
        *,
        key: str,
        path: str | os.PathLike[str] | Target,
        user: str | None = None,
        value: str | None = None,
        public_keys: Any = None,
        name: str = "",
        key_expression: str = "",
        max_rejected_share: Number = "0.05",
        release_key: ReleaseKey | None = None,
        shards: Shards | None = None,
        local: LocalResources | None = None,
        dataset: str | None = None,
        ledger: str | None = None,
        carry: Any = None,
    ) -> None:
        super().__init__()
        #: a collection that is waited for before anything is published, such as `ReadRecords.checked`
        self.after: Any = None
        self._spec = ReleaseSpec.of(
            params,
            key=key,
            user=user,
            value=value,
            public_keys=public_keys,
            name=name,
            key_expression=key_expression,
            release_key=release_key,
            carry=carry,
            caller="ReleaseSparseHistogram",
        )
        self._check = _check(max_rejected_share)
        self._shards, self._local = shards or shards_for(None), local
        self._released: str | None = None
        if dataset is not None or ledger is not None:
            self._track(path, dataset, ledger)
        else:
            self._target = path if isinstance(path, Target) else Target.of(os.fspath(path))

    def _track(self, path: Any, dataset: str | None, ledger: str | None) -> None:
        """Reserve the budget and take the key of the reservation; find out whether it was released before."""
        from hushgram.ledger.tracking import TrackedRelease

        spec = self._spec
        tracked = TrackedRelease.open(
            "ReleaseSparseHistogram",
            ledger=ledger,
            dataset=dataset,
            release=spec.name,
            path=path,
            events=release_events(spec.params, spec.unit, public=spec.public_keys is not None, charged=True),
            parameters=spec.stated(),
        )
        assert tracked is not None
        if tracked.done:
            self._released, self._target = tracked.target, Target(tracked.target, tracked.target)
            return
        with tracked.undone_on_error():
            self._target = Target.under_ledger(tracked)
            self._spec = spec.with_key(tracked.key())

    def expand(self, records: Any) -> Any:
        if self._released is not None:
            return records.pipeline | "Released" >> beam.Create([self._released]).with_output_types(str)
        keep = self._spec.params.choose_contributions or self._spec.params.weighted
        bound = BoundContributions(self._spec.bounding, self._shards.users, self._local, keep=keep)
        bounded = (
            records | "Bound" >> bound
        )  # Histogram; where keys or C are chosen first, (shard, Contributions)
        checked = bound.tallies | "CheckTaken" >> CheckTallies(self._check)
        if self.after is not None:
            checked = (checked, self.after) | "AllChecked" >> beam.Flatten()
        if self._spec.params.weighted:
            select = SelectByWeights(self._spec, 0, self._shards.groups, self._local)
            bounded = bounded | "SelectByWeights" >> select  # users and selected keys
        release = _ReleaseBounded(self._spec, self._target, self._shards.groups, metric=0 if keep else None)
        return (bounded, checked) | "Release" >> release

    def display_data(self) -> dict[str, Any]:
        params = self._spec.params
        return {
            "epsilon": show(params.epsilon),
            "delta": show(params.delta),
            "max_contributions": params.max_contributions,
            "max_per_key": params.max_per_key,
            "user": self._spec.user or "(a record is the privacy unit)",
            "key": self._spec.key,
            "path": self._target.path,
        }


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
    ) -> None:
        super().__init__()
        self._bounding, self._specs = metric_specs(
            metrics, key=key, user=user, name=name, key_expression=key_expression, release_key=release_key
        )
        self._check = _check(max_rejected_share)
        self._shards, self._local = shards or shards_for(None), local
        self._targets = {name: Target.of(f"{os.fspath(path)}/{name}.sketch") for name in metrics}

    def expand(self, records: Any) -> Any:
        users = self._bounding.user is not None
        if users:
            bound = BoundContributions(self._bounding, self._shards.users, self._local, keep=True)
            bounded = kept = records | "Bound" >> bound  # (shard, Contributions)
            checked = bound.tallies | "CheckTaken" >> CheckTallies(self._check)
        weighted = [number for number, spec in enumerate(self._specs.values()) if spec.params.weighted]
        if weighted:  # keys are selected once; with one such metric, by the keys that count for it
            first = list(self._specs.values())[weighted[0]]
            alone = weighted[0] if len(weighted) == 1 else None
            select = SelectByWeights(first, alone, self._shards.groups, self._local)
            found = kept | "SelectByWeights" >> select  # users and selected keys
        paths = []
        for metric, (name, spec) in enumerate(self._specs.items()):
            label = name.capitalize()
            if users:
                bounded = found if spec.params.weighted else kept
            else:
                bound = BoundContributions(spec.bounding, local=self._local)
                bounded = records | f"Bound{label}" >> bound  # Histogram
                checked = bound.tallies | f"CheckTaken{label}" >> CheckTallies(self._check)
            groups = self._shards.groups
            release = _ReleaseBounded(spec, self._targets[name], groups, metric=metric if users else None)
            paths.append((bounded, checked) | label >> release)
        return paths | "Paths" >> beam.Flatten()


class _ReleaseBounded(beam.PTransform):
    """(bounded contributions, what is waited for) → the path of the sketch.

    With ``metric``, contributions are (shard, Contributions) of which this is one metric, or what `SelectByWeights`
    makes of them; else parts of the bounded histogram.
    """

    def __init__(self, spec: ReleaseSpec, target: Target, groups: int, *, metric: int | None) -> None:
        super().__init__()
        self._spec, self._target, self._metric = spec, target, metric
        self._groups = groups if spec.public_keys is None else 1

    def expand(self, given: tuple[Any, Any]) -> Any:
        spec, groups, release_key = self._spec, self._groups, self._spec.release_key
        bounded, checked = given
        if spec.params.weighted:
            return {**self._weighted(bounded), "after": checked} | "WriteSketch" >> WriteSketch(
                spec, self._target
            )
        chosen = None
        if self._metric is not None:
            # First, C is chosen from the data where the parameters ask for that, and users are bounded to it.
            if spec.params.choose_contributions:
                choose = ChooseContributions(spec, self._metric)
                chosen = bounded | "ChooseContributions" >> choose  # one ChosenParams
            bounded = bounded | "Bound" >> BoundKept(spec, self._metric, chosen)  # Histogram

        # Second, the parts are summed, each group of noise shards by itself.
        merged = self._merge(bounded)  # (group, Histogram)

        # Third, the plan follows from noisy sizes; then keys are selected, and the counts of all others encoded.
        if spec.public_keys is not None:
            made = make_public_plan(spec.params, len(spec.public_keys.texts), spec.unit)
            create = beam.Create([made], reshuffle=False).with_output_types(Plan)
            released = {
                "plan": merged.pipeline | "PublicPlan" >> create,  # one Plan
                "heavy": merged | "CountPublicKeys" >> CountPublicKeys(spec, made),  # (0, Heavy)
            }
        else:
            planned = merged | "PlanSizes" >> PlanRelease(spec, groups, chosen)  # one PlannedRelease
            released = {
                "plan": planned | "PublicPart" >> beam.Map(_plan_of).with_output_types(Plan),  # one Plan
                "heavy": merged | "SelectKeys" >> SelectKeys(release_key, planned, groups),  # (group, Heavy)
            }
            if spec.params.encodes:
                released["blocks"] = merged | "Encode" >> EncodeCounts(
                    release_key, planned, groups
                )  # EncodedBlock

        # Last, everything is written; nothing is published before the records are checked.
        return {**released, "after": checked} | "WriteSketch" >> WriteSketch(spec, self._target)  # path

    def _weighted(self, found: dict[str, Any]) -> dict[str, Any]:
        """Count the keys that were selected by weights, and encode the counts of all others."""
        spec, groups, metric = self._spec, self._groups, self._metric or 0
        stated = found["users"]  # (shard, StatedRows)
        chosen = None
        if spec.params.choose_contributions:
            rows = stated | "SelectedRows" >> beam.Map(selected_rows, metric).with_output_types(
                tuple[int, Contributions]
            )
            chosen = rows | "ChooseContributions" >> ChooseContributions(spec)  # one ChosenParams
        counted = stated | "BoundSelected" >> BoundSelected(spec, metric, chosen, selected=True)  # Histogram
        counts = counted | "MergeCounts" >> MergeHistograms(groups, texts=True)  # (group, Histogram)
        plan = PlanRelease(spec, groups, chosen)
        released = {}
        if spec.params.encodes:
            rest = stated | "BoundOthers" >> BoundSelected(spec, metric, chosen, selected=False)  # Histogram
            merged = rest | "MergeOthers" >> MergeHistograms(groups, texts=True)  # (group, Histogram)
            planned = merged | "PlanSizes" >> plan  # one PlannedRelease
            released["blocks"] = merged | "Encode" >> EncodeCounts(
                spec.release_key, planned, groups
            )  # EncodedBlock
        else:
            planned = plan.without_sizes(stated.pipeline)  # one PlannedRelease
        named = {"counts": counts, "selected": found["selected"]}
        return {
            **released,
            "plan": planned | "PublicPart" >> beam.Map(_plan_of).with_output_types(Plan),  # one Plan
            "heavy": named | "CountSelected" >> CountSelected(spec, planned, groups),  # (group, Heavy)
        }

    def _merge(self, parts: Any) -> Any:
        """Return (group, Histogram), complete and in whole counts."""
        spec = self._spec
        merged = parts | "MergeHistogram" >> MergeHistograms(self._groups, texts=spec.texts)
        if spec.value is None or spec.user is not None:
            return merged
        rounded = beam.Map(_round, spec.release_key).with_output_types(tuple[int, Histogram])
        return merged | "RoundSums" >> rounded


def _check(max_rejected_share: Number) -> Check:
    share = rational(max_rejected_share, "max_rejected_share", "ReleaseSparseHistogram")
    return Check(Limits(share, min_rows=0), "the records", group="")


def _round(shard: tuple[int, Histogram], release_key: ReleaseKey) -> tuple[int, Histogram]:
    return shard[0], shard[1].rounded(release_key)


def _plan_of(planned: PlannedRelease) -> Plan:
    return planned.plan
