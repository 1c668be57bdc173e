"""Jobs of the black-box audit: the stages that a command such as ``hushgram release`` runs, on files, under fresh keys.

A run is ``job.build``: the stages of the job itself, applied without a runner (`tests.neighbours.eager`). Some work is
saved, and nothing of what is drawn changes by it:

* The input is read once. No key has a part in that.
* Nothing is written. What the last stage would write is what a pair sees.
* Of the 256 noise shards of a list, only those that a pair looks at and those with keys are released: the noise of
  each is its own, and an empty one passes nothing on.
* Where the key has no part in the exact histogram (``Pair.whole`` is False), the stages before the mechanisms run for
  every fiftieth release and must give the same histogram each time; between these, the mechanisms alone run again, each
  time under a fresh key. Where keys are selected by weights, that is what the library does with the users' rows.

`test_blackbox` shows that what is seen so is what the job writes under the same key, also on a runner.
"""

from __future__ import annotations

import csv
import io
import random
import tempfile
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from hushgram import release_in_memory
from hushgram.contributions.bounding import Contributions
from hushgram.contributions.histogram import Histogram
from hushgram.contributions.keys import fingerprints
from hushgram.key_selection.threshold import Heavy
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.jobs import job_class, top
from hushgram.pipelines.jobs.job import Job
from hushgram.sensitivity import CONSTANT, ExactVector
from hushgram.sparse_histogram import params, steps
from hushgram.sparse_histogram.plan import make_public_plan
from hushgram.sparse_histogram.sizing import Survey
from hushgram.sparse_histogram.spec import ReleaseSpec, metric_specs
from hushgram.transforms import plan_release, select_keys
from hushgram.transforms.release_sparse_histogram import _ReleaseBounded
from hushgram.transforms.shuffle.combining import LocalResources, noise_parts
from hushgram.transforms.weigh_keys import SelectByWeights
from hushgram.transforms.write_sketch import WriteSketch
from tests.neighbours.eager import Eager, eagerly
from tests.privacy.blackbox import RUNS, WHOLE_RUNS, Case

__all__ = ["Pair", "Runs", "Seen", "job_case", "running"]

_AGAIN = 50  # releases of one exact histogram
_KEPT_PLANS = lru_cache(1 << 12)(steps.make_plan)


@cache
def _print(key: str) -> int:
    return int(fingerprints([key])[0])


@dataclass(frozen=True)
class Seen:
    """The parts of a released sketch that a pair looks at."""

    plan: Any
    heavy: Heavy
    blocks: list[Any]
    release_key: ReleaseKey

    def value(self, key: str) -> int | None:
        """Return the noisy count of a key in the list, or of its cell in the list of cells beside it."""
        for part in self.heavy.lists:
            bits = 64 if part.texts is not None else self.plan.domain_bits or 64
            found = np.flatnonzero(part.fingerprints == np.uint64(_print(key) >> (64 - bits)))
            if len(found):
                return int(part.values[found[0]])
        return None

    def named(self, key: str) -> bool:
        """Return whether the key is in the list of names."""
        print_ = np.uint64(_print(key))
        return any(part.texts is not None and print_ in part.fingerprints for part in self.heavy.lists)

    def encoded(self, key: str) -> Any:
        """Return what the encoding shows of a key."""
        place = self.plan.encoded_places(np.array([_print(key)], np.uint64))
        seeds = steps.seeds_of(self.plan, self.release_key)
        contents = [block.content for block in self.blocks]  # in order
        read = self.plan.layout.look_up(place, seeds, lambda block: np.frombuffer(contents[block], np.uint8))
        return read[0]


class _InOrder(random.Random):
    """What a runner decides, where it leaves elements in their order and in one bundle."""

    def random(self) -> float:
        return 0.3

    def shuffle(self, x: Any) -> None:
        pass


class Runs:
    """Releases of one job; made by `running`."""

    def __init__(self, job: Any, pipeline: Any, watched: tuple[str, ...], path: str) -> None:
        self._job, self._pipeline, self._path = job, pipeline, path
        self._shards = {_print(key) >> 56 for key in watched}
        self.batches: list[Any] | None = None
        self._released: list[Any] = []
        self._exact: list[tuple[Any, list[tuple[int, Histogram]]]] = []  # (release, its groups)
        self._again: list[Callable[[ReleaseKey], Seen]] = []
        self._tallies: list[ExactVector] = []  # of users, for each metric
        self._rows: Contributions | None = None  # of users, where keys are selected by weights

    def whole(self, release_key: ReleaseKey) -> list[Any]:
        """Run all stages of the job; return what it releases: a `Seen` for each sketch, or the keys of `top`."""
        before, self._exact = self._exact, []
        self._released, self._again, self._tallies = [], [], []
        self._job.build(self._pipeline, self._path, release_key, LocalResources())
        self.same = not before or _digests(before) == _digests(self._exact)
        return self._released

    def again(self, release_key: ReleaseKey) -> list[Any]:
        """Run the mechanisms on the exact histograms of the last `whole` under another key."""
        user = self._job.config.input.user
        if self._job.kind == "metrics":
            specs = list(metric_specs(self._job.metrics, user=user, release_key=release_key)[1].values())
        else:
            job = self._job
            given = {"user": user, "value": _value(job), "public_keys": job.public_keys}
            specs = [ReleaseSpec.of(job.config.stated, **given, release_key=release_key)]
        if self._rows is not None:
            return self._weighted(specs)
        if not self._again:
            self._again = [self._mechanisms(n, *exact) for n, exact in enumerate(self._exact)]
        return [release(spec.release_key) for release, spec in zip(self._again, specs, strict=True)]

    def _weighted(self, specs: list[ReleaseSpec]) -> list[Any]:
        """Select keys by weights, count them and encode all others, as the library does."""
        assert self._rows is not None
        out: list[Any] = []

        def written(_path: Any, spec: ReleaseSpec, plan: Any, heavy: Heavy, blocks: Any) -> None:
            out.append(Seen(plan, heavy, list(blocks), spec.release_key))

        with mock.patch.object(release_in_memory, "_write", written):
            leading = self._counted(specs[0], 0)
            selected = release_in_memory._selected_keys(self._rows, leading, specs[0])
            for number, spec in enumerate(specs):
                params = self._counted(spec, number).with_rounds_of(leading)
                own = self._rows.metric(number, present=True)
                release_in_memory._release_selected(own, params, selected, spec, None)
        return out

    def _counted(self, spec: ReleaseSpec, number: int) -> Any:
        """Return the parameters with what follows from noisy numbers of users, where these are released."""
        return steps.count_users(self._tallies[number], spec) if self._tallies else spec.params

    def _mechanisms(
        self, number: int, release: Any, merged: list[tuple[int, Histogram]]
    ) -> Callable[[ReleaseKey], Seen]:
        spec = release._spec
        if spec.public_keys is not None:
            plan = make_public_plan(spec.params, len(spec.public_keys.texts))
            parts = [part for each in merged for part in noise_parts(each[0], release._groups, each[1])]
            data_digest, tables = Survey.of_digests(parts).data_digest(), spec.public_keys.shards()
            asked = [(shard, part) for shard, part in parts if len(tables[shard].texts)]

            def listed(key: ReleaseKey) -> Seen:
                own = replace(spec, release_key=key).public_key_noise
                found = [
                    steps.count_listed(shard, part, tables[shard], plan, own, data_digest)
                    for shard, part in asked
                ]
                return Seen(plan, Heavy.concat(found), [], key)

            return listed
        groups = release._groups
        shards = [part for group, histogram in merged for part in noise_parts(group, groups, histogram)]
        survey = Survey.of(shards)
        object.__setattr__(survey, "data_digest", cache(survey.data_digest))
        looked_at = [(shard, part) for shard, part in shards if shard in self._shards]
        filled = [(shard, part) for shard, part in shards if len(part)]
        asked = [(shard, part) for shard, part in shards if shard in self._shards or len(part)]

        def sparse(key: ReleaseKey) -> Seen:
            own = replace(spec, release_key=key)
            planned = steps.plan_release(survey, own, self._counted(own, number))
            listed = {shard: steps.select_keys(shard, part, planned, key) for shard, part in asked}
            heavy = [listed[shard][0] for shard, _ in looked_at]
            encoded = [(shard, listed[shard][1]) for shard, _ in filled] if planned.plan.chained else filled
            parts = dict(steps.encode_counts(encoded, planned, key))
            blocks = [
                steps.noisy_block(block, [parts[block]] if block in parts else [], planned, key)
                for block in range(planned.plan.layout.blocks)  # type: ignore[union-attr]
            ]
            return Seen(planned.plan, Heavy.concat(heavy), blocks, key)

        return sparse

    # What takes the place of stages while `running`

    def records(self, job: Job[Any], pipeline: Any, **named: Any) -> Eager:
        if self.batches is None:
            read = _RECORDS(job, pipeline, **named)
            self.batches = (read["records"] if isinstance(read, dict) else read).elements
        return Eager(self.batches, pipeline)

    def select_keys(self, shard: int, part: Histogram, *rest: Any) -> tuple[Heavy, Histogram]:
        if shard in self._shards or len(part):  # which may pass something on
            return steps.select_keys(shard, part, *rest)
        texts = None if part.texts is None else part.texts[:0]
        return Heavy(part.fingerprints[:0], part.counts[:0], texts), replace(
            part, texts=None, sensitivity=CONSTANT
        )

    def merged(self, release: Any, parts: Any) -> Any:
        out = _MERGED(release, parts)
        self._exact.append((release, sorted(out.elements, key=lambda pair: pair[0])))
        return out

    def count_users(self, tally: ExactVector, spec: ReleaseSpec) -> Any:
        self._tallies.append(tally)
        return steps.count_users(tally, spec)

    def weighed(self, select: Any, kept: Any) -> Any:
        rows = Contributions.concat([part for _, part in sorted(kept.elements, key=lambda pair: pair[0])])
        self._rows = rows.present()
        return _WEIGHED(select, kept)

    def sketch(self, writer: Any, parts: dict[str, Any]) -> Eager:
        (plan,) = parts["plan"].elements
        heavy = Heavy.concat([part for _, part in sorted(parts["heavy"].elements, key=lambda pair: pair[0])])
        blocks = sorted(parts["blocks"].elements, key=lambda block: block.index) if "blocks" in parts else []
        self._released.append(Seen(plan, heavy, blocks, writer._spec.release_key))
        return Eager((), parts["plan"].pipeline)

    def keys(self, chosen: list[str], _path: str, _header: Any) -> None:
        self._released.append(chosen)


def _digests(exact: list[tuple[Any, list[tuple[int, Histogram]]]]) -> list[list[bytes]]:
    return [[histogram.digest() for _, histogram in merged] for _, merged in exact]


_RECORDS, _MERGED, _WEIGHED = Job.records, _ReleaseBounded._merge, SelectByWeights.expand


def _value(job: Any) -> str | None:
    found: str | None = job.config.input.value
    return found


@contextmanager
def running(job: Any, watched: tuple[str, ...], path: str) -> Iterator[Runs]:
    """Give `Runs` of a job, which would write to ``path``."""
    with eagerly(_InOrder()) as pipeline, ExitStack() as stack:
        runs = Runs(job, pipeline, watched, path)
        changes: dict[tuple[Any, str], Any] = {
            (Job, "records"): lambda *given, **named: runs.records(*given, **named),
            (select_keys, "select_keys"): runs.select_keys,
            (_ReleaseBounded, "_merge"): lambda *given: runs.merged(*given),
            (plan_release, "count_users"): runs.count_users,
            (SelectByWeights, "expand"): lambda *given: runs.weighed(*given),
            (WriteSketch, "expand"): lambda *given: runs.sketch(*given),
            (top, "_write"): runs.keys,
            (steps, "make_plan"): _KEPT_PLANS,
        }
        for (owner, name), value in changes.items():
            stack.enter_context(mock.patch.object(owner, name, value))
        yield runs


@dataclass(frozen=True)
class Pair:
    """A job on data without and with one privacy unit: its releases, each reduced to an outcome."""

    config: dict[str, Any]
    without: list[tuple[Any, ...]]
    unit: list[tuple[Any, ...]]
    outcome: Callable[..., Hashable]
    watched: tuple[str, ...] = ()
    #: files that the config names beside its input, as {folder} in it
    beside: Callable[[Path], None] = field(default=lambda folder: None)
    whole: bool = False  #: whether every release runs all stages of the job
    job_name: str = "release"
    columns: tuple[str, ...] = ("user", "key")
    #: of ε for selection by weights, in place of about a half: nearly all precision is that of what is looked at
    selection_share: Fraction | None = None
    file: str = "data.csv"

    def content(self, added: bool) -> bytes:
        """Return the input file."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(
            [self.columns, *self.without, *(self.unit if added else [])]
        )
        return text.getvalue().encode()

    def job(self, added: bool, folder: Path) -> Any:
        """Write all files below ``folder``; return the job on them."""
        (folder / self.file).write_bytes(self.content(added))
        self.beside(folder)
        names = {"user": "user"} if "user" in self.columns else {}
        given = {
            self.job_name.replace("-", "_"): "audit",
            "output": {"path": str(folder / "out")},
            **_placed(self.config, folder),
        }
        limits = {"path": str(folder / self.file), "max_rejected_share": 1, "min_rows": 0}
        given["input"] = {"key": "key", **names, **limits, **given.get("input", {})}
        kind = job_class(self.job_name)
        return kind(kind.Config.model_validate(given))

    def __call__(self, added: bool, runs: int) -> Iterator[Hashable]:
        share = params._SELECTION if self.selection_share is None else self.selection_share
        with (
            mock.patch.object(params, "_SELECTION", share),
            tempfile.TemporaryDirectory() as folder,
            running(self.job(added, Path(folder)), self.watched, f"{folder}/out") as releases,
        ):
            for number in range(runs):
                if self.whole or number % _AGAIN == 0:
                    released = releases.whole(ReleaseKey.generate())
                    if not self.whole and not releases.same:
                        raise AssertionError("the release key has a part in what is exact; set whole")
                else:
                    released = releases.again(ReleaseKey.generate())
                yield self.outcome(*released)


def _placed(config: Any, folder: Path) -> Any:
    """Return a config with the names of files below ``folder``."""
    if isinstance(config, dict):
        return {name: _placed(value, folder) for name, value in config.items()}
    return config.replace("{folder}", str(folder)) if isinstance(config, str) else config


def job_case(name: str, pair: Pair, **more: Any) -> Case:
    """The case of a pair, with the claim of its config."""
    privacy = pair.config["privacy"]
    epsilon, delta = (float(Fraction(privacy.get(word, 0))) for word in ("epsilon", "delta"))
    runs = WHOLE_RUNS if pair.whole or pair.selection_share is not None else RUNS
    return Case(name, epsilon, pair, delta=delta, runs=runs, **more)
