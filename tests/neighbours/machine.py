"""Neighbouring data through the exact half of every job, up to the mechanisms.

One try draws a job from the config models, hostile data, and one privacy unit to leave out. The job's own stages run on
both data sets (`tests.neighbours.eager`), with bundles, batches, blocks and shards cut at random, until values are
admitted by mechanisms (`Exact.admit`); noise and files are left out. Then

* what the mechanisms admitted must differ by no more than its stated sensitivity, in every norm;
* the records of all other units that were accepted must be the same;
* what is charged and promised must name the unit that the mechanisms were calibrated for;
* the library must admit the values that the job does;
* randomized response: a record whose secrets change may change its own bits and nothing else of the table.

Whatever a mechanism released about the first data set is what later steps see on the second one too.

    python -m tests.neighbours --pairs 10000        # make neighbours
"""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import hushgram as hg
from hushgram import release_in_memory
from hushgram.clipping import ClipParams, Tally
from hushgram.encodings.buckets import BucketsSpace
from hushgram.errors import HushgramError
from hushgram.exact.histogram import Histogram
from hushgram.inputs import Source
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.jobs import JOBS
from hushgram.pipelines.jobs.job import Job
from hushgram.sensitivity import Exact, ExactVector, Sensitivity
from hushgram.sparse_histogram import steps
from hushgram.sparse_histogram.contributions import UserTally
from hushgram.sparse_histogram.sizing import Survey
from hushgram.sparse_histogram.threshold import Heavy
from hushgram.transforms import (
    answer_linear_queries,
    bound_contributions,
    choose_contributions,
    encode_counts,
    merge_histograms,
    plan_release,
    randomize_responses,
    release_clipped,
    release_public_list,
    release_threshold,
    select_top,
    sparse_vector,
)
from hushgram.transforms.shuffle import batching, columns
from hushgram.transforms.shuffle.batching import LocalResources
from hushgram.transforms.write_sketch import WriteSketch
from tests.neighbours.data import COLLIDING, Data, World, draw_data
from tests.neighbours.draw import Drawn, draw_job
from tests.neighbours.eager import Eager, eagerly

__all__ = ["PAIRS", "Breach", "Machine", "run_tries"]

KEY = ReleaseKey(bytes(range(32)))
# Neighbours that are compared with one run of a job.
PAIRS = 5
# Refusals that may depend on the data: docs/guarantee.md names them.
_STATED_REFUSALS = (
    "max_bad_share",
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
        self._folder = tempfile.TemporaryDirectory(prefix="neighbours-")
        self.root = Path(self._folder.name)
        self._jobs = jobs
        self.seen: Counter[str] = Counter()
        self.ran: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.sketches = _sketches(self.root)

    def close(self) -> None:
        self._folder.cleanup()

    def try_one(self, number: int) -> int:
        """Draw a job and data, and compare them with a few neighbours; `Breach` where one shows something.

        Returns the number of pairs.
        """
        rng = random.Random(number)
        name = rng.choices(self._jobs, [_WEIGHTS[job] for job in self._jobs])[0]
        data = draw_data(rng)
        drawn = draw_job(name, rng, self._world(data), self.seen)
        if name == "randomized-response" and rng.random() < 0.3:
            data = data.sorted_by("smokes")
        first, replies = self._run(data, drawn, random.Random(rng.random()), {})
        for _ in range(PAIRS):
            change = _secret_changed if name == "randomized-response" else _unit_left_out
            other = change(data, drawn.job, rng)
            second, _ = self._run(other, drawn, random.Random(rng.random()), replies)
            try:
                self._compare(first, second, name)
            except Breach as breach:
                raise Breach(f"try {number}, {name}: {breach}\nconfig: {drawn.fields}") from None
        if isinstance(first, Observed) and name in ("release", "metrics"):
            try:
                self._compare_library(first, first.job, replies)
            except Breach as breach:
                raise Breach(f"try {number}, {name}: {breach}\nconfig: {drawn.fields}") from None
        return PAIRS

    def _compare(self, first: Observed | str, second: Observed | str, name: str) -> None:
        refusals = {found for found in (first, second) if isinstance(found, str)}
        if isinstance(first, Observed) and isinstance(second, Observed):
            self.ran[name] += 1
            _compare(first, second, first.job)
            return
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
        return World(paths, self.sketches, data.files.format, data.files.input)

    def _run(
        self, data: Data, drawn: Drawn, rng: random.Random, replies: dict[Any, Any]
    ) -> tuple[Observed | str, dict[Any, Any]]:
        """The exact half on these data, or why the job refuses them."""
        for place in ("data", "out"):
            shutil.rmtree(self.root / place, ignore_errors=True)
            (self.root / place).unlink(missing_ok=True)
        (self.root / "data").mkdir()
        data.write(self.root / "data")
        job = type(drawn.job)(drawn.job.config)
        observed, told = Observed(job=job), dict(replies)
        with _exact_half(observed, told, rng):
            try:
                with eagerly(rng) as pipeline:
                    job.build(pipeline, str(self.root / "out"), KEY, LocalResources())
            except HushgramError as problem:
                return str(problem), told
        _read_table(self.root / "out", observed)
        return observed, told

    def _compare_library(self, job_saw: Observed, job: Any, replies: dict[Any, Any]) -> None:
        """What the library admits for the records that the job accepted."""
        config = job.config
        if config.user_partition is not None or not job_saw.accepted:
            return
        names = job.source.schema.names
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
                    hg.release(users, keys, job.params, values=value, release_key=KEY)
                else:
                    hg.release_public(users, keys, job.public_keys, job.params, values=value, release_key=KEY)
        for label in job_saw.admitted.keys() | observed.admitted.keys():
            mine = _joined([value for value, _ in job_saw.admitted.get(label, ())])
            its = _joined([value for value, _ in observed.admitted.get(label, ())])
            if mine != its:
                raise Breach(f"job and library differ at {label[0]}: {_difference(mine, its)}")


def run_tries(task: tuple[int, int, float]) -> tuple[Counter[str], Counter[str], str | None, int]:
    """Run tries from a number on, until a time; what ran, the fields drawn, a breach if there was one, and pairs."""
    logging.disable(logging.WARNING)
    first, count, until = task
    machine, done = Machine(), 0
    try:
        for number in range(first, first + count):
            if time.monotonic() > until:
                break
            done += machine.try_one(number)
    except Breach as breach:
        return machine.ran, machine.seen, str(breach), done
    finally:
        machine.close()
    return machine.ran, machine.seen, None, done


def _stated(refusals: set[str]) -> bool:
    """Whether a refusal is one that may depend on the data."""
    return any(word in refusal for refusal in refusals for word in _STATED_REFUSALS)


# --- pairs --------------------------------------------------------------------------------------------------------


def _unit_left_out(data: Data, job: Job[Any], rng: random.Random) -> Data:
    """The data without one user or one record."""
    places = [(f, at) for f, file in enumerate(data.records) for at in range(len(file))]
    if not places:
        return data
    chosen = rng.choice(places)
    if _opens_a_quote(data, chosen, job):
        return data
    user = job.config.input.user
    unit = None if user is None else _user_of(data, chosen, user)
    if unit is None:
        return data.without({chosen})
    return data.without({place for place in places if _user_of(data, place, user) == unit})


def _opens_a_quote(data: Data, place: tuple[int, int], job: Job[Any]) -> bool:
    """Whether a line may take others with it: where quoted values span lines, files are promised to be well quoted."""
    record, csv = data.records[place[0]][place[1]], job.config.input.csv
    return (
        data.files.format == "csv" and isinstance(record, bytes) and b'"' in record and csv.newlines_in_values
    )


def _user_of(data: Data, place: tuple[int, int], user: str) -> tuple[str, ...] | None:
    """Who a record belongs to; None where it belongs to nobody else."""
    record = data.records[place[0]][place[1]]
    if isinstance(record, bytes):
        return None
    text = data.files.format in ("csv", "log")
    given = record["user"] if record["user"] is not None or not text else ""
    if given is None:
        return None
    if data.files.format == "log" and data.files.preset:
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


def _secret_changed(data: Data, job: Any, rng: random.Random) -> Data:
    """The data with other secrets in one record, and its records in another order."""
    places = [
        (f, at) for f, file in enumerate(data.records) for at, r in enumerate(file) if isinstance(r, dict)
    ]
    if not places:
        return data
    secret = set(job.secret_columns())
    others = _OTHER_SECRETS if data.files.format == "parquet" else (*_OTHER_SECRETS, *_UNREADABLE)
    changes = {name: value for name, value in rng.choice(others).items() if name in secret}
    if data.files.kind == "decimal":
        changes.pop("amount", None)
    if data.files.kind == "real" and isinstance(changes.get("amount"), int):
        changes["amount"] = float(changes["amount"])
    return data.changed(rng.choice(places), **changes).shuffled(rng)


# --- the exact half -----------------------------------------------------------------------------------------------

_label: ContextVar[Any] = ContextVar("label", default="?")


@contextmanager
def _exact_half(observed: Observed, replies: dict[Any, Any], rng: random.Random) -> Iterator[None]:
    """Jobs up to their mechanisms: admitted values are noted, noise and files are left out, sizes are random."""
    admit = Exact.admit

    def noted(self: Exact, calibrated: Sensitivity) -> Exact:
        out = admit(self, calibrated)
        observed.admitted.setdefault(_label.get(), []).append((self, calibrated))
        return out

    def labelled(name: str, function: Callable[..., Any], key: int | None = None, reply: bool = False) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            told = args[key] if key is not None else ""
            label = (name, told.hex() if isinstance(told, ReleaseKey) else told)
            token = _label.set(label)
            try:
                out = function(*args, **kwargs)
                out = list(out) if isinstance(out, Iterator) else out
            finally:
                _label.reset(token)
            return replies.setdefault(label, out) if reply else out

        return wrapped

    def block(number: int, parts: Any, planned: Any, release_key: ReleaseKey) -> Any:
        space = planned.plan.space
        if isinstance(space, BucketsSpace):
            cells = space.empty_block(number)
            for part in parts:
                space.add(cells, part)
            observed.blocks[release_key.hex(), number] = cells
            observed.admitted.setdefault(("buckets", release_key.hex()), []).append(
                (ExactVector(np.zeros(0, np.int64), planned.plan.sensitivity), planned.plan.sensitivity)
            )
        return None

    def watched(pipeline: Any, job: Job[Any]) -> Any:
        found = records(pipeline, job)
        for batch in found.elements:
            observed.accepted.update(_rows(batch))
        return found

    from hushgram.pipelines import plan_input
    from hushgram.pipelines.jobs import stages

    records = stages.records
    nothing = partial(_nothing_listed)
    in_jobs = {
        (release_threshold, "heavy_of_shard"): labelled("threshold", steps.heavy_of_shard, 3),
        (encode_counts, "block_parts"): labelled("encode", steps.block_parts, 2),
        (encode_counts, "released_block"): block,
        (plan_release, "plan_release"): labelled("sizes", steps.plan_release, 2, reply=True),
        (choose_contributions, "choose_params"): labelled(
            "contributions", steps.choose_params, 2, reply=True
        ),
        (release_public_list, "heavy_of_list"): labelled("public", steps.heavy_of_list, 3),
        (sparse_vector, "run_batch"): labelled("svt", sparse_vector.run_batch, 3),
        (select_top, "top"): labelled("top", select_top.top),
        (release_clipped, "release_clipped"): labelled("clip", release_clipped.release_clipped),
        (answer_linear_queries, "_answer"): labelled("answer", answer_linear_queries._answer),
        (randomize_responses, "randomize"): lambda bits, params, source: np.asarray(bits, np.bool_),
        (steps, "release_shard"): nothing,
        (WriteSketch, "expand"): lambda self, parts: Eager((), parts["plan"].pipeline),
        (Exact, "admit"): noted,
        (stages, "records"): watched,
    }
    in_library = {
        (release_in_memory, "heavy_of_shard"): in_jobs[release_threshold, "heavy_of_shard"],
        (release_in_memory, "block_parts"): lambda *args: iter(in_jobs[encode_counts, "block_parts"](*args)),
        (release_in_memory, "released_block"): block,
        (release_in_memory, "plan_release"): in_jobs[plan_release, "plan_release"],
        (release_in_memory, "choose_params"): in_jobs[choose_contributions, "choose_params"],
        (release_in_memory, "heavy_of_list"): in_jobs[release_public_list, "heavy_of_list"],
        (release_in_memory, "_write"): lambda path, plan, heavy, blocks, key, name: list(blocks),
        (release_in_memory, "check_free"): lambda path: None,
    }
    sizes = {
        (batching, "_ROWS_LEAST"): rng.choice((1, 3, 50)),
        (batching, "_ROWS_MOST"): rng.choice((1, 2, 7, 1000)),
        (columns, "ROWS_PER_BATCH"): rng.choice((1, 3, 1000)),
        (bound_contributions, "_ROWS_PENDING"): rng.choice((0, 2, 10, 1000)),
        (merge_histograms, "_KEYS_PENDING"): rng.choice((0, 2, 1000)),
        (plan_input, "Source"): partial(
            Source,
            block_bytes=rng.choice((1, 60, 300, 300, *(10_000,) * 6)),
            item_bytes=rng.choice((1, 300, *(10_000,) * 6)),
        ),
    }
    with ExitStack() as stack:
        for (owner, name), value in {**in_jobs, **in_library, **sizes}.items():
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


def _nothing_listed(shard: int, part: Histogram, **_: Any) -> Heavy:
    return Heavy(
        part.fingerprints[:0], part.counts[:0], None if part.texts is None else part.texts.slice(0, 0)
    )


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
    told = {event.relation for event in job.events()} | {job.guarantee().unit}
    used = {calibrated.unit for held in first.admitted.values() for _, calibrated in held}
    if used - told or (used and told - used):
        raise Breach(
            f"mechanisms protect a {'/'.join(used)}, but {'/'.join(sorted(told))} is charged and promised"
        )
    changed = first.accepted - second.accepted
    added = second.accepted - first.accepted
    if added:
        raise Breach(f"records that were not accepted before are now: {list(added)[:3]}")
    _check_accepted(changed, job)
    for label in first.admitted.keys() | second.admitted.keys():
        _check_distance(label, first, second, job)


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
    stated = {value.sensitivity for held in pair for value, _ in held if value.sensitivity.l1}
    mine, its = ([value for value, _ in held] for held in pair)
    if label[0] == "buckets":
        moved = _blocks_moved(first, second, label[1])
        bound = next(iter(stated))
        if np.abs(moved).sum() > bound.l1 or (bound.classes and (moved**2).sum() > bound.l2_squared):
            raise Breach(f"buckets moved by {moved[moved != 0].tolist()}, stated {bound}")
        return
    if label[0] == "clip":
        _check_clipped(mine, its, job.params)  # type: ignore[attr-defined]
        return
    for bound in stated:
        # sizes of one release are of the same data as its histogram: the same kind of value at each label
        moved = _moved(_joined(mine), _joined(its))
        if label[0] == "sizes" and not moved:
            continue
        _check_norms(label, moved, bound)


def _check_norms(label: Any, moved: list[int], bound: Sensitivity) -> None:
    size = [abs(step) for step in moved]
    if sum(size) > bound.l1 or max(size, default=0) > bound.max_per_key or len(size) > bound.l0:
        raise Breach(f"{label[0]}: moved by {moved}, stated {bound}")
    if sum(step * step for step in size) > bound.l2_squared:
        raise Breach(f"{label[0]}: moved by {moved}, stated L2² {bound.l2_squared}")
    if bound.monotone and min(moved, default=0) < 0 < max(moved, default=0):
        raise Breach(f"{label[0]}: moved in both directions: {moved}")


def _check_clipped(mine: list[Exact], its: list[Exact], params: ClipParams) -> None:
    pair = [next((value for value in held if isinstance(value, Tally)), None) for held in (mine, its)]
    one, other = (value or Tally((0,) * len(params.bounds), (0,) * len(params.bounds), 0) for value in pair)
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
    for number, value in enumerate(values):
        if isinstance(value, Histogram):
            names = value.fingerprints.tolist() if value.texts is None else value.texts.to_pylist()
            out.update(dict(zip(names, value.counts.tolist(), strict=True)))
        elif isinstance(value, ExactVector):
            out.update({(number, i): n for i, n in enumerate(value.values.tolist())})
        elif isinstance(value, Survey):
            out.update({("n",): value.records})
            out.update({("t", i): n for i, n in enumerate(value.profile.tolist())})
        elif isinstance(value, UserTally):
            out.update({("users", i): n for i, n in enumerate(value.users.tolist())})
    return {name: n for name, n in out.items() if n}


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


def _sketches(root: Path) -> tuple[str, ...]:
    """Two released sketches, by text and by cells of a few bits, so that keys collide."""
    rng = random.Random(1)
    keys = [key for key in ("a", "b", "c", "https://x.org/a", "x" * 40, *COLLIDING) for _ in range(400)]
    rng.shuffle(keys)
    out = []
    for name, changes in (
        ("text", {"delta": "1e-6"}),
        ("cells", {"domain_bits": 8}),
        ("cells10", {"domain_bits": 10}),
    ):
        params = hg.ReleaseParams(epsilon=50, max_contributions=1, **changes)
        hg.release(None, keys, params, root / f"{name}.sketch", release_key=KEY)
        out.append(str(root / f"{name}.sketch"))
    (root / "keys.txt").write_text("\n".join(("a", "b", "B", "https://x.org/a", "200", "ann")) + "\n")
    (root / "stream.jsonl").write_text('{"key": "a"}\n{"prefix": "b"}\n')
    (root / "linear.jsonl").write_text('{"all": true}\n{"cells": [0]}\n')
    return tuple(out)
