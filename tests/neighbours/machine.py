"""Neighbouring data through the exact half of every job, up to the mechanisms.

One try draws a job from the config models, hostile data, and a few privacy units. The job's own stages run on the data
without each subset of these units (`tests.neighbours.eager`), with bundles, batches, blocks and shards cut at random,
until values are admitted by mechanisms (`Exact.admit`); noise and files are left out. Two runs whose data differ by one
unit are a pair: eight runs without up to three units make twelve pairs. For each of them

* what the mechanisms admitted must differ by no more than its stated sensitivity, in every norm, the counts of named
  keys and the buckets of all others as one vector;
* the records of all other units that were accepted must be the same;
* what is charged and promised must name the unit that the mechanisms were calibrated for;
* the library must admit the values that the job does;
* randomized response: a record whose secrets change may change its own bits and nothing else of the table.

Whatever a mechanism released about the whole data is what later steps see without some units, too.

A new config field is drawn by its type (`draw.CHOICES`). The function in which a new mechanism admits its value is
named in `_exact_half`, and a new kind of exact value in `_numbers`: until then a job that has them is an error here.

    python -m tests.neighbours --pairs 10000        # make neighbours
"""

from __future__ import annotations

import copy
import gc
import logging
import random
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial, singledispatch
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import hushgram as hg
from hushgram import release_in_memory
from hushgram.contributions import bounding
from hushgram.contributions.histogram import Histogram
from hushgram.contributions.keys import decoded, is_text
from hushgram.encodings.buckets import BucketsLayout
from hushgram.errors import HushgramError
from hushgram.inputs import Source
from hushgram.inputs import plan as input_plan
from hushgram.inputs import source as input_source
from hushgram.inputs.formats import parquet
from hushgram.key_selection import rounds
from hushgram.key_selection.rounds import GaussianMechanism, SelectionPlan
from hushgram.key_selection.threshold import Heavy, TopList
from hushgram.key_selection.weighted import WHOLE, Round
from hushgram.mechanisms.clipping import ClipParams, ClipTally
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.jobs import JOBS
from hushgram.pipelines.jobs.job import Job
from hushgram.sensitivity import CONSTANT, Exact, ExactVector, Sensitivity
from hushgram.sparse_histogram import params, steps
from hushgram.sparse_histogram.plan import Plan
from hushgram.sparse_histogram.sizing import Survey
from hushgram.sparse_histogram.spec import ReleaseSpec
from hushgram.transforms import (
    bound_contributions,
    encode_counts,
    plan_release,
    randomize_responses,
    release_clipped,
    release_domain,
    select_keys,
    sparse_vector,
    weigh_keys,
)
from hushgram.transforms.shuffle import combining
from hushgram.transforms.shuffle import records as shuffle_records
from hushgram.transforms.shuffle.combining import LocalResources
from hushgram.transforms.write_sketch import WriteSketch
from tests.neighbours.data import COLLIDING, Change, Data, Place, World, draw_data
from tests.neighbours.draw import Drawn, draw_job
from tests.neighbours.eager import Eager, eagerly, replaced

__all__ = ["Breach", "Machine", "Ran", "run_tries"]

_MEMORY = Path("/dev/shm")
KEY = ReleaseKey(bytes(range(32)))
# Units of a try: the job runs on the data without each subset of them.
UNITS = 3
# Refusals that may depend on the data: docs/guarantee.md names them.
_STATED_REFUSALS = (
    "max_rejected_share",
    "min_rows",
    "no records",
    "is empty",
    "UTF-16",
    "no column",
    "JSON array",
)
_WEIGHTS = {
    "release": 5,
    "metrics": 3,
    "sparse-vector": 2,
    "top": 2,
    "answer": 2,
    "clip": 1,
    "bounds": 1,
    "randomized-response": 2,
}


class Breach(AssertionError):
    """Neighbouring data whose exact values are further apart than stated."""


@dataclass
class Observed:
    """What one run of a job's exact half showed."""

    admitted: dict[Any, list[tuple[Exact, Sensitivity]]] = field(default_factory=dict)
    accepted: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    blocks: dict[Any, np.ndarray[Any, Any]] = field(default_factory=dict)
    table: list[tuple[Any, ...]] = field(default_factory=list)
    shape: list[Any] = field(default_factory=list)
    job: Any = None


class Machine:
    """Runs tries; each has a number, and the same number is the same try."""

    def __init__(self, jobs: tuple[str, ...] = tuple(JOBS)) -> None:
        self._folder = tempfile.TemporaryDirectory(
            prefix="neighbours-", dir=_MEMORY if _MEMORY.is_dir() else None
        )
        self.root = Path(self._folder.name)
        self._jobs = jobs
        self.seen: Counter[str] = Counter()
        #: pairs by job, and those that were not compared because the job refuses one of the two
        self.ran: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.sketches = _sketches(self.root)

    def close(self) -> None:
        self._folder.cleanup()

    def try_one(self, number: int) -> None:
        """Draw a job and data, and compare all pairs of neighbours; `Breach` where one shows something."""
        rng = random.Random(number)
        name = rng.choices(self._jobs, [_WEIGHTS[job] for job in self._jobs])[0]
        data = draw_data(rng)
        drawn = draw_job(name, rng, self._world(data), self.seen)
        data = _as_promised(data, drawn.job)
        if name == "randomized-response" and rng.random() < 0.3:
            data = data.sorted_by("smokes")
        try:
            self._try(data, drawn, rng)
        except Breach as breach:
            raise Breach(f"try {number}, {name}: {breach}\nconfig: {drawn.fields}") from None

    def _try(self, data: Data, drawn: Drawn, rng: random.Random) -> None:
        job, replies = drawn.job, {}
        promised = {event.relation for event in job.events()} | {job.guarantee().unit}
        assert "source" not in vars(job)  # what is charged does not depend on the data
        units = (_secrets if job.kind == "randomized-response" else _units)(data, job, rng)
        whole = self._run(data, drawn, random.Random(rng.random()), replies)
        if isinstance(whole, str):
            units = units[:1]  # that it is refused without a unit too is all there is to see
        else:
            _check_charged(whole, promised)
        told = dict(replies)
        runs: dict[frozenset[int], Observed | str] = {frozenset(): whole}
        for size in range(1, len(units) + 1):
            for chosen in map(frozenset, combinations(range(len(units)), size)):
                other = data.changed({place: new for at in chosen for place, new in units[at].items()})
                if job.kind == "randomized-response":
                    other = other.shuffled(rng)
                runs[chosen] = self._run(other, drawn, random.Random(rng.random()), dict(told))
                for at in chosen:
                    self._compare(runs[chosen - {at}], runs[chosen], job)
        if isinstance(whole, Observed) and job.kind in ("release", "metrics"):
            self._compare_library(whole, whole.job, told)

    def _compare(self, first: Observed | str, second: Observed | str, job: Job[Any]) -> None:
        if isinstance(first, Observed) and isinstance(second, Observed):
            self.ran[job.kind] += 1
            _compare(first, second, first.job)
            return
        refusals = {found for found in (first, second) if isinstance(found, str)}
        self.ran["refused"] += 1
        self.refused.update(refusals)
        if isinstance(first, str) != isinstance(second, str) and not _stated(refusals):
            raise Breach(f"the job fails on one of two neighbours: {refusals}")

    def _world(self, data: Data) -> World:
        paths = {
            "pattern": [str(self.root / "data")],
            "output": str(self.root / "out"),
            "rejected": str(self.root / "rejected.jsonl"),
            "keys": str(self.root / "keys.txt"),
            "stream": str(self.root / "stream.jsonl"),
            "linear": str(self.root / "linear.jsonl"),
        }
        return World(paths, self.sketches, data.files.format, data.files.input, data.files.clock)

    def _run(self, data: Data, drawn: Drawn, rng: random.Random, replies: dict[Any, Any]) -> Observed | str:
        """The exact half on these data, or why the job refuses them; what is released is added to ``replies``."""
        for place in ("data", "out"):
            shutil.rmtree(self.root / place, ignore_errors=True)
            (self.root / place).unlink(missing_ok=True)
        (self.root / "data").mkdir()
        data.write(self.root / "data")
        job = copy.copy(drawn.job)  # which has not looked at any files yet
        observed = Observed(job=job)
        with _exact_half(observed, replies, rng):
            try:
                with eagerly(rng) as pipeline:
                    job.build(pipeline, str(self.root / "out"), KEY, LocalResources())
            except HushgramError as problem:
                return str(problem)
        _read_table(self.root / "out", observed)
        return observed

    def _compare_library(self, job_saw: Observed, job: Any, replies: dict[Any, Any]) -> None:
        """What the library admits for the records that the job accepted."""
        config = job.config
        if config.user_partition is not None or not job_saw.accepted:
            return
        names = job.source.schema.names
        if len(job.source.formats) > 1 and job.source.source.values:
            return  # numbers keep the type of their file
        if config.input.user is None and "unbounded" in str(job.source.schema.metadata):
            return
        rows = pa.Table.from_pylist(
            [dict(zip(names, row, strict=True)) for row in job_saw.accepted.elements()],
            pa.schema(
                [
                    f if not pa.types.is_dictionary(f.type) else pa.field(f.name, pa.string())
                    for f in job.source.schema
                ]
            ),
        )
        rows = rows.take(pa.array(np.random.default_rng(len(rows)).permutation(len(rows))))
        if job.source.schema.metadata and config.input.user is None:
            return  # several keys per record: the library's records have one
        users = None if config.input.user is None else rows.column(config.input.user)
        keys, observed = rows.column(config.input.key), Observed()
        with _exact_half(observed, dict(replies), random.Random(0)):
            if job.kind == "metrics":
                values = {
                    metric.value: rows.column(metric.value) for metric in job.metrics.values() if metric.value
                }
                hg.release_metrics(
                    users, keys, job.metrics, self.root / "library", values=values, release_key=KEY
                )
            else:
                value = None if config.input.value is None else rows.column(config.input.value)
                if job.public_keys is None:
                    hg.release(
                        users, keys, job.config.stated, values=value, release_key=KEY, carry=job.carried
                    )
                else:
                    hg.release_public(
                        users, keys, job.public_keys, job.config.stated, values=value, release_key=KEY
                    )
        for label in job_saw.admitted.keys() | observed.admitted.keys():
            mine = _joined([value for value, _ in job_saw.admitted.get(label, ())])
            its = _joined([value for value, _ in observed.admitted.get(label, ())])
            if mine != its:
                raise Breach(f"job and library differ at {label[0]}: {_difference(mine, its)}")


@dataclass
class Ran:
    """What some tries came to."""

    pairs: Counter[str]
    fields: Counter[str]
    tries: int
    #: what was found, by the number of the try
    found: dict[int, str]


def run_tries(task: tuple[int, int, float]) -> Ran:
    """Run tries from a number on, until a time."""
    logging.disable(logging.WARNING)
    gc.freeze()  # modules are many objects, and stay
    gc.set_threshold(50_000)
    first, count, until = task
    machine = Machine()
    out = Ran(machine.ran, machine.seen, 0, {})
    try:
        for number in range(first, first + count):
            if time.monotonic() > until:
                break
            out.tries += 1
            try:
                machine.try_one(number)
            except Breach as breach:
                out.found[number] = str(breach)
            except Exception:
                out.found[number] = f"try {number}: {traceback.format_exc()}"
    finally:
        machine.close()
    return out


def _stated(refusals: set[str]) -> bool:
    """Whether a refusal is one that may depend on the data."""
    return any(word in refusal for refusal in refusals for word in _STATED_REFUSALS)


# --- pairs --------------------------------------------------------------------------------------------------------


def _units(data: Data, job: Job[Any], rng: random.Random) -> list[Change]:
    """A few users or records to leave out."""
    places = [(f, at) for f, file in enumerate(data.records) for at in range(len(file))]
    user = job.config.input.user
    found: list[Change] = []
    for chosen in rng.sample(places, len(places)):
        if any(chosen in unit for unit in found):
            continue
        owner = None if user is None else _user_of(data, chosen, user)
        theirs = [place for place in places if owner and _user_of(data, place, user) == owner]
        found.append(dict.fromkeys(theirs or [chosen]))
        if len(found) == UNITS:
            break
    return found


def _as_promised(data: Data, job: Job[Any]) -> Data:
    """The data without stray quotes: where quoted values span lines, CSV files are promised to be well quoted."""
    if not data.files.has("csv") or not job.config.input.csv.newlines_in_values:
        return data
    return data.changed(
        {
            (f, at): None
            for f, file in enumerate(data.records)
            for at, record in enumerate(file)
            if isinstance(record, bytes) and b'"' in record and data.files.formats[f] == "csv"
        }
    )


def _user_of(data: Data, place: Place, user: str) -> tuple[str, ...] | None:
    """Who a record belongs to; None where it belongs to nobody else."""
    record = data.records[place[0]][place[1]]
    if isinstance(record, bytes):
        return None
    text = data.files.formats[place[0]] in ("csv", "log")
    given = record["user"] if record["user"] is not None or not text else ""
    if given is None:
        return None
    if data.files.has("log") and data.files.preset:
        given = given.replace(" ", "+") or "-"
    if user == "user | lower":
        return (given.lower(),)
    return (given, str(record["status"])) if user == "[user, status]" else (given,)


_OTHER_SECRETS = (
    {"smokes": True, "amount": 5, "status": 200}, {"smokes": False, "amount": 0, "status": 404},
    {"smokes": None, "amount": None, "status": None}, {"smokes": True}, {"amount": 100, "smokes": None},
)  # fmt: skip
_UNREADABLE = (
    {"smokes": "maybe", "amount": "x", "status": "?"},
    {"smokes": [1], "amount": {}, "status": "200x"},
)


def _secrets(data: Data, job: Any, rng: random.Random) -> list[Change]:
    """A few records with other secrets."""
    places = [
        (f, at) for f, file in enumerate(data.records) for at, r in enumerate(file) if isinstance(r, dict)
    ]
    secret = set(job.secret_columns())
    out: list[Change] = []
    for place in rng.sample(places, min(UNITS, len(places))):
        typed = data.files.formats[place[0]] == "parquet"
        others = _OTHER_SECRETS if typed else (*_OTHER_SECRETS, *_UNREADABLE)
        changes = {name: value for name, value in rng.choice(others).items() if name in secret}
        if data.files.kind == "decimal":
            changes.pop("amount", None)
        if data.files.kind == "real" and isinstance(changes.get("amount"), int):
            changes["amount"] = float(changes["amount"])
        out.append({place: changes})
    return out


# --- the exact half -----------------------------------------------------------------------------------------------

_label: ContextVar[Any] = ContextVar("label", default=None)


def _any_gaussian_plan(metrics: Any, *, max_keys: int, rounds: int) -> GaussianMechanism:
    each = (Round(Fraction(WHOLE), WHOLE),) * rounds
    return GaussianMechanism(SelectionPlan(max_keys, each, (1,) * (rounds - 1)), 1 << 15, metrics)


@contextmanager
def _exact_half(observed: Observed, replies: dict[Any, Any], rng: random.Random) -> Iterator[None]:
    """Jobs up to their mechanisms: admitted values are noted, noise and files are left out, sizes are random."""
    admit = Exact.admit

    def noted(self: Exact, calibrated: Sensitivity) -> Exact:
        out = admit(self, calibrated)
        label = _label.get()
        if label is None:
            raise NotImplementedError(
                f"a mechanism admits {type(self).__name__} by a function that is not in _exact_half: name it there"
            )
        observed.admitted.setdefault(label, []).append((self, calibrated))
        return out

    def label_of(name: str, told: Any) -> Any:
        told = told.release_key if isinstance(told, ReleaseSpec) else told
        return name, told.hex() if isinstance(told, ReleaseKey) else told

    def labelled(name: str, function: Callable[..., Any], key: int | None = None) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            token = _label.set(label_of(name, "" if key is None else args[key]))
            try:
                out = function(*args, **kwargs)
                return list(out) if isinstance(out, Iterator) else out
            finally:
                _label.reset(token)

        return wrapped

    def replayed(name: str, function: Callable[..., Any]) -> Any:
        """What the function released about the whole data, whatever it is called with; it is called all the same."""
        release = labelled(name, function, 1)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            label = label_of(name, args[1])
            if label not in replies:
                replies[label] = release(*args, **kwargs)
                return replies[label]
            plan = getattr(replies[label], "plan", None)  # which takes long to make
            with replaced({(steps, "make_plan"): lambda *_: plan, (Plan, "guarantee"): lambda _: None}):
                release(*args, **kwargs)
            return replies[label]

        return wrapped

    def heavy(shard: int, part: Histogram, planned: Any, *args: Any) -> tuple[Heavy, Histogram]:
        """Most of the 256 shards are empty: they are all alike."""
        if len(part) or empty.pop("unseen", False):
            return threshold(shard, part, planned, *args)
        plan = planned.plan
        bits = plan.domain_bits if plan.top is None else plan.top.domain_bits
        cells = plan.selection.cells(part, bits)
        return _nothing_listed(shard, cells, domain_bits=plan.domain_bits, top=plan.top, passes=plan.chained)

    def block(number: int, parts: Any, planned: Any, release_key: ReleaseKey) -> Any:
        layout = planned.plan.layout
        if isinstance(layout, BucketsLayout):
            cells = layout.empty_block(number)
            for part in parts:
                layout.add(cells, part)
            observed.blocks[release_key.hex(), number] = cells
            observed.admitted.setdefault(("buckets", release_key.hex()), []).append(
                (ExactVector(np.zeros(0, np.int64), planned.plan.sensitivity), planned.plan.sensitivity)
            )
        return None

    def round_(number: int, shards: Any, plan: Any, key: ReleaseKey, data_digest: bytes) -> Any:
        """States by a hash of the key in place of noise: the same for both neighbours, as released numbers are."""
        return np.concatenate([states(number, part, plan, key) for _, part in shards])

    def states(number: int, part: Histogram, plan: Any, key: ReleaseKey) -> Any:
        if len(part) or empty.pop(f"round {number}", False):
            labelled(f"round {number}", lambda key: part.admit(plan.sensitivity), 0)(key)
        drawn = (part.fingerprints * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(61)).astype(np.int64)
        last = number + 1 == len(plan.rounds)
        other = np.where((drawn == 3 + number) | last, rounds.HOPELESS, rounds.OPEN)
        return np.where((drawn == number) & (part.counts > 0), rounds.SELECTED, other).astype(np.uint8)

    def watched(job: Job[Any], pipeline: Any, **given: Any) -> Any:
        found = records(job, pipeline, **given)
        for batch in (found["records"] if isinstance(found, dict) else found).elements:
            _check_size(batch, job.source)
            observed.accepted.update(_rows(batch))
        return found

    from hushgram.pipelines.config import models

    records = Job.records
    threshold, empty = (
        labelled("threshold", steps.select_keys, 3),
        {"unseen": True, **{f"round {number}": True for number in range(rounds.MAX_ROUNDS)}},
    )
    in_jobs = {
        (select_keys, "select_keys"): heavy,
        (encode_counts, "encode_counts"): labelled("encode", steps.encode_counts, 2),
        (encode_counts, "noisy_block"): block,
        (plan_release, "plan_release"): replayed("sizes", steps.plan_release),
        (plan_release, "release_figures"): labelled("figures", plan_release.release_figures),
        (plan_release, "count_users"): replayed("users", steps.count_users),
        (weigh_keys, "release_round"): round_,
        (select_keys, "count_listed"): labelled("listed", steps.count_listed, 4),
        (sparse_vector, "run_batch"): labelled("svt", sparse_vector.run_batch, 3),
        (release_domain, "top"): labelled("top", release_domain.top),
        (release_clipped, "release_clipped"): labelled("clip", release_clipped.release_clipped),
        (release_domain, "_answer"): labelled("answer", release_domain._answer),
        (randomize_responses, "randomize"): lambda bits, params, source: np.asarray(bits, np.bool_),
        (steps, "release_shard"): _nothing_listed,
        (WriteSketch, "expand"): lambda self, parts: Eager((), parts["plan"].pipeline),
        (Exact, "admit"): noted,
        (Job, "records"): watched,
        (params, "plan_gaussian"): _any_gaussian_plan,  # which takes long to find; no noise is drawn
        (rounds.SelectionPlan, "privacy_map"): lambda *_: True,
    }
    in_library = {
        (release_in_memory, "select_keys"): in_jobs[select_keys, "select_keys"],
        (release_in_memory, "release_round"): round_,
        (release_in_memory, "count_listed"): in_jobs[select_keys, "count_listed"],
        (release_in_memory, "encode_counts"): lambda *args: iter(
            in_jobs[encode_counts, "encode_counts"](*args)
        ),
        (release_in_memory, "noisy_block"): block,
        (release_in_memory, "plan_release"): in_jobs[plan_release, "plan_release"],
        (release_in_memory, "count_users"): in_jobs[plan_release, "count_users"],
        (release_in_memory, "_write"): lambda path, spec, plan, heavy, blocks: list(blocks),
        (release_in_memory, "check_free"): lambda path: None,
    }
    sizes = {
        (shuffle_records, "_MIN_ROWS"): rng.choice((1, 3, 50)),
        (shuffle_records, "_MAX_ROWS"): rng.choice((1, 2, 7, 1000)),
        (shuffle_records, "ROWS_PER_BATCH"): rng.choice((1, 3, 1000)),
        (combining, "MAX_PENDING"): rng.choice((0, 2, 10, 1000)),
        (combining, "_BYTES_PER_GROUP"): rng.choice((1, *(1 << 25,) * 19)),  # more than 256 groups, or fewer
        (combining, "_MAX_GROUPS"): 512,  # thousands take half a minute, and show no more
        (bound_contributions, "KEPT_ROWS"): rng.choice((1, 3, 1000)),
        (encode_counts, "BLOCK_RANGES"): rng.choice((1, 2, 1024)),
        (bounding, "_CROWD_BITS"): rng.choice((1, 4, 12)),
        (input_plan, "ThreadPoolExecutor"): _AtOnce,
        (input_source, "MAX_KEYS_BYTES"): 800,  # decides which records are accepted: the same in all runs
        (input_source, "BATCH_BYTES"): rng.choice((100, 800, 800, 1 << 26, 1 << 26)),
        (parquet, "_BATCH_ROWS"): rng.choice((8, 1 << 18)),
        (models, "Source"): partial(
            Source,
            block_bytes=rng.choice((1, 60, *(300,) * 8, *(10_000,) * 50)),
            item_bytes=rng.choice((7, 40, *(300,) * 8, *(10_000,) * 50)),
        ),
    }
    with replaced({**in_jobs, **in_library, **sizes}):
        yield


class _AtOnce:
    """A pool without threads, which take longer to start than small files to read."""

    def __init__(self, _: int) -> None:
        self.map = map

    def __enter__(self) -> _AtOnce:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _check_size(batch: pa.RecordBatch, plan: Any) -> None:
    """What comes out of records is bounded, whatever they hold: by the limit for a record's keys, and for a batch."""
    size = sum(
        pc.sum(pc.binary_length(column)).as_py() or 0
        for column in map(decoded, batch.columns)
        if is_text(column.type)
    )
    made = plan.source.key_expressions.values()
    several = any(one.several for one in made)
    most = max(input_source.BATCH_BYTES, input_source.MAX_KEYS_BYTES if several else 0)
    alone = batch.num_rows <= 1 or (not several and any(len(one.parts) > 1 for one in made))
    most += 0 if several else 12 * batch.num_rows  # a time is longer as text
    if size > most and not alone and (several or plan.formats == ("parquet",)):
        raise Breach(f"a batch of {batch.num_rows} rows has {size} bytes, and at most {most} are to come out")


def _nothing_listed(
    shard: int,
    part: Histogram,
    *,
    domain_bits: int | None,
    top: TopList | None,
    passes: bool,
    **_: Any,
) -> tuple[Heavy, Histogram]:
    """List nothing, and let all counts pass on as they are, where anything does."""
    texts = None if part.texts is None else part.texts.slice(0, 0)
    nothing = Heavy(part.fingerprints[:0], part.counts[:0], texts)
    if not passes:
        return nothing, part.part(0, 0)
    rest = replace(part, texts=None)
    if domain_bits is None:
        return nothing, rest
    if top is not None:
        rest = (rest if top.domain_bits is None else rest.aligned(top.domain_bits)).reduced(domain_bits)
    return nothing, rest.aligned(domain_bits)


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    plain = [
        column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    for row in zip(*(column.to_pylist() for column in plain), strict=True):
        yield tuple("nan" if isinstance(value, float) and value != value else value for value in row)


def _read_table(folder: Path, observed: Observed) -> None:
    """Released rows of randomized response, and the shape of its files."""
    for part in sorted(folder.glob("*.parquet")) if folder.is_dir() else ():
        table = pq.read_table(part)
        observed.shape.append((part.name, table.num_rows, table.schema))
        observed.table.extend(tuple(row.items()) for row in table.to_pylist())


# --- comparing ----------------------------------------------------------------------------------------------------


def _compare(first: Observed, second: Observed, job: Job[Any]) -> None:
    if job.kind == "randomized-response":
        _compare_tables(first, second)
        return
    changed = first.accepted - second.accepted
    added = second.accepted - first.accepted
    if added:
        raise Breach(f"records that were not accepted before are now: {list(added)[:3]}")
    _check_accepted(changed, job)
    for label in first.admitted.keys() | second.admitted.keys():
        _check_distance(label, first, second, job)


def _check_charged(whole: Observed, promised: set[str]) -> None:
    """Mechanisms protect the unit that is charged and promised."""
    used = {calibrated.unit for held in whole.admitted.values() for _, calibrated in held}
    if used and used != promised:
        raise Breach(
            f"mechanisms protect a {'/'.join(used)}, but {'/'.join(sorted(promised))} is charged and promised"
        )


def _compare_tables(first: Observed, second: Observed) -> None:
    if first.shape != second.shape:
        raise Breach(f"the shape of the table changed with a secret: {first.shape} and {second.shape}")
    before, after = Counter(first.table), Counter(second.table)
    gone, new = before - after, after - before
    if sum(gone.values()) > 1 or sum(new.values()) > 1:
        raise Breach(f"a secret changed more than its own row: {gone} became {new}")
    if _without(first.table, gone) != _without(second.table, new):
        raise Breach("the order of the rows follows the input")


def _without(rows: list[tuple[Any, ...]], gone: Counter[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    left, out = gone.copy(), []
    for row in rows:
        if left[row]:
            left[row] -= 1
        else:
            out.append(row)
    return out


def _check_accepted(changed: Counter[tuple[Any, ...]], job: Job[Any]) -> None:
    """All records that one of the two does not have belong to the unit."""
    if not changed:
        return
    names = job.source.schema.names
    if job.config.input.user is not None:
        at = names.index(job.config.input.user)
        owners = {row[at] for row in changed}
        if len(owners) > 1:
            raise Breach(f"accepted records of several users changed: {sorted(map(str, owners))}")
        return
    most = 1 if not job.source.schema.metadata else job.record_bounds()[0]
    if sum(changed.values()) > most:
        raise Breach(f"{sum(changed.values())} accepted records changed with one record: {list(changed)[:3]}")


def _check_distance(label: Any, first: Observed, second: Observed, job: Job[Any]) -> None:
    pair = [side.admitted.get(label, []) for side in (first, second)]
    stated = {value.sensitivity for held in pair for value, _ in held} - {CONSTANT}
    mine, its = ([value for value, _ in held] for held in pair)
    if label[0] == "buckets":
        (bound,) = stated
        named = _halves_moved(("listed", label[1]), first, second)
        counts = named + _halves_moved(("encode", label[1]), first, second)
        _check_norms(("named keys and others",), counts, bound)
        vector = [*named, *_blocks_moved(first, second, label[1]).tolist()]
        if sum(map(abs, vector)) > bound.l1 or sum(step * step for step in vector) > bound.l2_squared:
            raise Breach(
                f"named keys and buckets moved by {[step for step in vector if step]}, stated {bound}"
            )
        return
    if label[0] == "clip":
        _check_clipped(mine, its, job.params)  # type: ignore[attr-defined]
        return
    for bound in stated or {CONSTANT}:
        # sizes of one release are of the same data as its histogram: the same kind of value at each label
        moved = _moved(_joined(mine), _joined(its))
        if label[0] == "sizes" and not moved:
            continue
        _check_norms(label, moved, bound)


def _halves_moved(label: Any, first: Observed, second: Observed) -> list[int]:
    return _moved(
        *(_joined([value for value, _ in side.admitted.get(label, ())]) for side in (first, second))
    )


def _check_norms(label: Any, moved: list[int], bound: Sensitivity) -> None:
    size = [abs(step) for step in moved]
    if (
        sum(size) > bound.l1
        or max(size, default=0) > bound.max_per_key
        or len(size) > bound.max_contributions
    ):
        raise Breach(f"{label[0]}: moved by {moved}, stated {bound}")
    if sum(step * step for step in size) > bound.l2_squared:
        raise Breach(f"{label[0]}: moved by {moved}, stated L2² {bound.l2_squared}")
    if bound.monotone and min(moved, default=0) < 0 < max(moved, default=0):
        raise Breach(f"{label[0]}: moved in both directions: {moved}")


def _check_clipped(mine: list[Exact], its: list[Exact], params: ClipParams) -> None:
    pair = [next((value for value in held if isinstance(value, ClipTally)), None) for held in (mine, its)]
    one, other = (
        value or ClipTally((0,) * len(params.bounds), (0,) * len(params.bounds), 0) for value in pair
    )
    most = params.max_contributions
    records = [abs(a - b) for a, b in zip((*one.above, one.count), (*other.above, other.count), strict=True)]
    if max(records) > most:
        raise Breach(f"clip: numbers of records moved by {max(records)}, stated {most}")
    for a, b, bound in zip(one.sums, other.sums, params.bounds, strict=True):
        if abs(a - b) > most * bound:
            raise Breach(f"clip: the sum at {bound} moved by {abs(a - b)}, stated {most * bound}")


def _blocks_moved(first: Observed, second: Observed, key: str) -> np.ndarray[Any, Any]:
    places = [place for place in first.blocks.keys() | second.blocks.keys() if place[0] == key]
    both = [(first.blocks.get(place), second.blocks.get(place)) for place in places]
    empty = np.zeros(0, np.int64)
    parts = [_or_zero(a, b) - _or_zero(b, a) for a, b in both]
    return np.concatenate(parts) if parts else empty


def _or_zero(a: Any, b: Any) -> Any:
    return np.zeros_like(b) if a is None else a


def _joined(values: list[Exact]) -> dict[Any, int]:
    """Parts of a value together: a number by name."""
    out: Counter[Any] = Counter()
    for place, value in enumerate(values):
        out.update(_numbers(value, place))
    return {name: n for name, n in out.items() if n}


@singledispatch
def _numbers(value: Exact, place: int) -> dict[Any, int]:
    """The numbers of an exact value by name; ``place`` tells apart parts whose numbers have no names."""
    raise NotImplementedError(f"tests/neighbours/machine.py: no _numbers of {type(value).__name__}")


@_numbers.register
def _(value: Histogram, place: int) -> dict[Any, int]:
    names = value.fingerprints.tolist() if value.texts is None else value.texts.to_pylist()
    return dict(zip(names, value.counts.tolist(), strict=True))


@_numbers.register
def _(value: ExactVector, place: int) -> dict[Any, int]:
    return {(place, i): n for i, n in enumerate(value.values.tolist())}


@_numbers.register
def _(value: Survey, place: int) -> dict[Any, int]:
    return {("n",): value.records, **{("t", i): n for i, n in enumerate(value.profile.tolist())}}


def _moved(mine: dict[Any, int], its: dict[Any, int]) -> list[int]:
    return [step for name in mine.keys() | its.keys() if (step := mine.get(name, 0) - its.get(name, 0))]


def _difference(mine: dict[Any, int], its: dict[Any, int]) -> str:
    shown = {
        name: (mine.get(name, 0), its.get(name, 0))
        for name in mine.keys() | its.keys()
        if mine.get(name) != its.get(name)
    }
    return str(dict(list(shown.items())[:5]))


# --- what configs name ---------------------------------------------------------------------------------------------


# What key expressions make of the data: without such keys, lists and sketches would match few records.
_SHAPED = (
    "x.org", "/a", "a ", " a", "one", "200", '["200","a"]', f'["200","{COLLIDING[0]}"]', '["200","b"]',
    '["ann","x.org"]',
)  # fmt: skip


def _sketches(root: Path) -> tuple[str, ...]:
    """Released sketches: by text, by cells of a few bits, so that keys collide, and by 64 bits."""
    rng = random.Random(1)
    known = ("a", "b", "c", "https://x.org/a", "x" * 40, *COLLIDING, *_SHAPED)
    keys = [key for key in known for _ in range(400)]
    rng.shuffle(keys)
    out = []
    few = {"sizes": (len(keys), 16)}  # so that COLLIDING share a cell
    for name, changes in (("text", {"delta": "1e-6"}), ("cells", few), ("paper", {"preset": "paper"})):
        params = hg.ReleaseParams(epsilon=50, max_contributions=1, **changes)
        sketch = hg.release(None, keys, params, root / f"{name}.sketch", release_key=KEY)
        assert name != "cells" or sketch.plan.domain_bits <= 10
        out.append(str(root / f"{name}.sketch"))
    listed = ("a", "b", "B", "https://x.org/a", "ann", "bob", "404", *COLLIDING, *_SHAPED)
    (root / "keys.txt").write_text("\n".join(listed) + "\n")
    (root / "stream.jsonl").write_text('{"key": "a"}\n{"prefix": "b"}\n{"prefix": ""}\n')
    (root / "linear.jsonl").write_text('{"all": true}\n{"cells": [0]}\n')
    return tuple(out)
