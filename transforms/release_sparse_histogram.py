"""The whole release as one PTransform: the only module here that joins stages.

    records ─► BoundContributions ─► MergeHistograms ─┬─► PlanRelease ─────────┐ (side input)
                                                      ├─► ReleaseThreshold ◄───┤
                                                      └─► EncodeCounts ◄───────┴─► WriteSketch
                                                   or ──► ReleasePublicList (keys known beforehand) ─► WriteSketch

For one release key the sketch has the bytes of ``hushgram.release``, whatever the runner, its workers and
bundles.
"""

from __future__ import annotations

import os
from typing import Any

import apache_beam as beam

from hushgram.errors import ParameterError
from hushgram.exact.histogram import Histogram, KeyTable
from hushgram.inputs import Check, Limits
from hushgram.noise.entropy import ReleaseKey
from hushgram.numbers import Number, rational, show
from hushgram.sensitivity import Unit
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.plan import Plan, make_public_plan
from hushgram.sparse_histogram.steps import (
    PlannedRelease,
    bounds,
    key_for,
    public_key_table,
    unit_of,
    values_for,
)
from hushgram.transforms.bound_contributions import (
    BoundContributions,
    BoundHeld,
    CountRecords,
    HoldContributions,
)
from hushgram.transforms.choose_contributions import ChooseContributions
from hushgram.transforms.encode_counts import EncodeCounts
from hushgram.transforms.merge_histograms import MergeHistograms
from hushgram.transforms.plan_release import PlanRelease
from hushgram.transforms.release_public_list import ReleasePublicList
from hushgram.transforms.release_threshold import ReleaseThreshold
from hushgram.transforms.shuffle.batching import LocalResources
from hushgram.transforms.shuffle.sharding import Shards, shards_for
from hushgram.transforms.shuffle.vectors import CheckTallies
from hushgram.transforms.write_sketch import Target, WriteSketch

__all__ = ["ReleaseSparseHistogram"]


class ReleaseSparseHistogram(beam.PTransform):
    """Records → a differentially private sketch at ``path``; the result is a collection of that path.

    Records may be Arrow tables or batches, beam.Row or NamedTuple, dicts, or (user, key) pairs; ``user`` and
    ``key`` name columns (for pairs they only describe). With ``value``, a column of numbers from 0 on, their sums are
    released in place of counts, under the ``max_value`` and ``unit`` of ``params``. Without ``user`` a single record is
    protected instead of a person. The sketch is (epsilon, delta)-differentially private for what ``params`` say.
    Each run of a pipeline is a release of its own, and what several of them lose together adds up.

    Records without a user or key are set aside. Where they are more than ``max_bad_share`` of all, the pipeline fails
    with an `InputError` before anything is published.

    With ``public_keys``, a list known without looking at the data, exactly those keys are released, each with
    noise, and all of epsilon goes to them; nothing of any other key shows.

    ``release_key`` reproduces an earlier release to the byte and is for tests and recovery: whoever has it can
    subtract the noise. It travels in the pipeline's code to the workers, and is not in options, names,
    display data or logs.

    >>> import apache_beam as beam, tempfile
    >>> from hushgram import ReleaseParams, Sketch
    >>> path = tempfile.mkdtemp() + "/urls.sketch"
    >>> params = ReleaseParams(epsilon="1", max_contributions=2)
    >>> with beam.Pipeline(runner="FnApiRunner") as pipeline:
    ...     views = pipeline | beam.Create([("ann", "/a"), ("bob", "/a"), ("bob", "/b")])
    ...     sketch = views | ReleaseSparseHistogram(params, user="user", key="url", path=path)
    >>> Sketch.open(path).estimate(["/a"]).column_names
    ['key', 'estimate', 'low', 'high', 'above_zero', 'source', 'among']
    """

    def __init__(
        self,
        params: ReleaseParams,
        *,
        key: str,
        path: str | os.PathLike[str],
        user: str | None = None,
        value: str | None = None,
        public_keys: Any = None,
        name: str = "",
        recipe: str = "",
        max_bad_share: Number = "0.05",
        release_key: ReleaseKey | None = None,
        shards: Shards | None = None,
        local: LocalResources | None = None,
    ) -> None:
        super().__init__()
        #: a collection that must have come before anything is published, such as `ReadRecords.checked`
        self.after: Any = None
        share = rational(max_bad_share, "max_bad_share", "ReleaseSparseHistogram")
        self._check = Check(Limits(share, min_rows=0), "the records", group="")
        if not isinstance(params, ReleaseParams):
            raise ParameterError(
                f"ReleaseSparseHistogram: params must be ReleaseParams, got {type(params).__name__}"
            )
        self._public_keys = None if public_keys is None else public_key_table(public_keys)
        if params.choose_contributions and (user is None or public_keys is not None):
            raise ParameterError(
                "ReleaseSparseHistogram: max_contributions auto needs users and any keys; state a number"
            )
        grid = values_for(params, value, user, "ReleaseSparseHistogram")
        self._value = None if value is None or grid is None else (value, grid)
        self._params, self._user, self._key, self._said = params, user, key, (name, recipe)
        self._release_key = key_for(params, release_key)
        self._shards = shards or shards_for(None)
        self._local = local or LocalResources()
        self.target = Target.of(os.fspath(path))

    def expand(self, records: Any) -> Any:
        bounding = self._bounding()
        if self._params.choose_contributions:
            held = records | "Hold" >> HoldContributions(bounding)  # (shard, Contributions)
            return self.of_held(held, self.waits(bounding.taken.tallies))
        return self._of_parts(records | "Bound" >> bounding, self.waits(bounding.taken.tallies))  # Histogram

    def waits(self, tallies: Any) -> Any:
        """What must have come before anything is published: that not too many records were set aside."""
        checked = tallies | "CheckTaken" >> CheckTallies(self._check)
        waits = (checked,) if self.after is None else (checked, self.after)
        return waits | "AllChecked" >> beam.Flatten()

    def of_held(self, held: Any, after: Any, metric: int = 0) -> Any:
        """From (shard, Contributions) of all users, of which this is one metric, to the path."""
        chosen = None
        if self._params.choose_contributions:
            choose = ChooseContributions(self._params, self._release_key, metric)
            chosen = held | "ChooseContributions" >> choose
        bound = BoundHeld(chosen or self._params, self._release_key, metric)
        return self._of_parts(held | "Bound" >> bound, after, chosen)

    def _of_parts(self, parts: Any, after: Any, chosen: Any = None) -> Any:
        """From parts of the bounded histogram to the path."""
        public = self._public_keys
        released = self._sparse(parts, chosen) if public is None else self._public(parts, public)
        released["after"] = after
        return released | "WriteSketch" >> WriteSketch(self.target, self._release_key, *self._said)

    def _merged(self, parts: Any, groups: int) -> Any:
        """(group, Histogram), complete and in whole units."""
        shards = parts | "MergeHistogram" >> MergeHistograms(groups, texts=self._texts)
        if self._value is None or self._user is not None:
            return shards
        held = tuple[int, Histogram]
        return shards | "RoundSums" >> beam.MapTuple(self._rounded).with_output_types(held)

    def _rounded(self, group: int, sums: Histogram) -> tuple[int, Histogram]:
        return group, sums.in_units(self._release_key)

    def _sparse(self, parts: Any, chosen: Any) -> dict[str, Any]:
        """Any key at all: threshold and encoding, under a plan from noisy sizes."""
        params, release_key, groups = self._params, self._release_key, self._shards.groups
        shards = self._merged(parts, groups)
        plans = PlanRelease(params, release_key, groups=groups, unit=self._unit, chosen=chosen)
        planned = shards | "PlanSizes" >> plans  # one PlannedRelease
        heavy = shards | "Threshold" >> ReleaseThreshold(
            planned, release_key, groups=groups
        )  # (group, Heavy)
        blocks = shards | "Encode" >> EncodeCounts(planned, release_key, groups=groups)  # EncodedBlock
        plan = planned | "PublicPart" >> beam.Map(_plan_of).with_output_types(Plan)
        return {"heavy": heavy, "blocks": blocks, "plan": plan}

    def _public(self, parts: Any, table: KeyTable) -> dict[str, Any]:
        """A list that is known beforehand: noise on every key of it, and nothing else."""
        plan = make_public_plan(self._params, len(table.texts), self._unit)
        shards = self._merged(parts, 1)  # (0, Histogram)
        heavy = shards | "Laplace" >> ReleasePublicList(table, plan, self._release_key)  # (0, Heavy)
        made = parts.pipeline | "PublicPlan" >> beam.Create([plan], reshuffle=False).with_output_types(Plan)
        return {"heavy": heavy, "plan": made}

    @property
    def _unit(self) -> Unit:
        return unit_of(self._user)

    @property
    def _texts(self) -> bool:
        return self._params.delta != 0 or self._public_keys is not None

    def _bounding(self) -> Any:
        if self._user is None:
            return CountRecords(
                self._key,
                texts=self._texts,
                public_keys=self._public_keys,
                value=self._value,
                release_key=self._release_key,
                local=self._local,
            )
        return BoundContributions(
            self._user,
            self._key,
            self._release_key,
            bounds(self._params, self._release_key),
            texts=self._texts,
            shards=self._shards.users,
            public_keys=self._public_keys,
            values=(self._value,),
            local=self._local,
        )

    def display_data(self) -> dict[str, Any]:
        params = self._params
        return {
            "epsilon": show(params.epsilon),
            "delta": show(params.delta),
            "max_contributions": params.max_contributions,
            "max_per_key": params.max_per_key,
            "user": self._user or "(a record is the unit of privacy)",
            "key": self._key,
            "path": self.target.path,
        }


def _plan_of(planned: PlannedRelease) -> Plan:
    return planned.plan
