"""The whole release on arrays, in one process: the reference that the Beam job matches byte for byte.

    users, keys ─► contributions ─► bounded histogram ─┬─► sizes ─► plan
                                                       ├─► selected keys ─┐
                                                       └─► encoded counts ┴─► sketch directory

Everything left of a mechanism is exact and private and stays in these functions.
"""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.contributions.bounding import BoundingSpec, Contributions
from hushgram.contributions.histogram import Histogram, KeyTable
from hushgram.contributions.keys import as_column
from hushgram.contributions.sums import MAX_SUM, Grid, checked_sums, checked_values
from hushgram.encodings import EncodedBlock
from hushgram.errors import InputError, ParameterError
from hushgram.inputs.frames import UNSTATED, Frame, Records, columns_by_name, is_frame
from hushgram.key_selection.rounds import (
    SELECTED,
    carried_states,
    next_states,
    release_round,
    weigh,
)
from hushgram.key_selection.threshold import Heavy
from hushgram.noise.entropy import ReleaseKey
from hushgram.publishing import PrivateDirectory, check_free
from hushgram.sensitivity import PrivacyUnit
from hushgram.sketch.reader import Sketch
from hushgram.sketch.storage import write_sketch
from hushgram.sparse_histogram.params import Params, ReleaseParams
from hushgram.sparse_histogram.plan import Plan, make_public_plan, release_events
from hushgram.sparse_histogram.sizing import Survey
from hushgram.sparse_histogram.spec import Metric, ReleaseSpec, checked_params, metric_specs
from hushgram.sparse_histogram.steps import (
    PlannedRelease,
    count_listed,
    count_users,
    encode_counts,
    noisy_block,
    plan_release,
    seeds_of,
    select_keys,
    tally_contributions,
)

__all__ = [
    "encoded_blocks", "release", "release_histogram", "release_metrics", "release_public", "simulate",
]  # fmt: skip

_LARGEST_COUNT = 1 << 48


def release(
    users: Any,
    keys: Any = None,
    params: ReleaseParams = UNSTATED,
    path: str | Path | None = None,
    *,
    user: str | Sequence[str] | None = UNSTATED,
    key: str | Sequence[str] = UNSTATED,
    values: Any = None,
    release_key: ReleaseKey | None = None,
    name: str = "",
    dataset: str | None = None,
    ledger: str | None = None,
    carry: Any = None,
) -> Sketch:
    """Release the histogram of keys with user-level privacy.

    ``release(users, keys, params)`` takes two columns of equal length, ``release(frame, user="user_id", key="url",
    params=params)`` two columns of a frame (Arrow table or record batch, pandas, polars) by their names. Columns hold
    text, bytes, whole numbers, dates or booleans, which mean the same as in files.

    An Arrow RecordBatchReader, a polars LazyFrame and a DuckDB relation are read in batches, the named columns alone.
    What can count of each user stays in memory, and records do not. A reader is used up by it: a second call finds
    nothing in it.

    Args:
        users: the column of users, or a frame; None (or ``user=None``) protects a record in place of a user.
        keys: the column of keys.
        params: the parameters; with ``values`` they state ``max_value`` and ``granularity``.
        path: where the sketch goes; left out, a temporary directory that goes with the sketch.
        user: the name of the frame's column of users, or an expression as for ``key``.
        key: the name of the frame's column of keys, a list of them, or a key expression such as ``"url | host"`` or
            ``["country", "time | truncate hour"]``, as input.key of a config. Records of which it makes no key are left
            out; lookups apply it too.
        values: a column of numbers from 0 on, or the name of one, whose sums are released in place of counts.
        release_key: reproduces an earlier release of the same data to the byte; whoever has it can subtract the noise.
        name: the name of the release; with ``dataset`` its id in the ledger.
        dataset: the data set of the ledger whose budget is spent. The release is reserved, published and committed as a
            job is: charged once, resumed after a crash, and returned as it is where it was released before. It
            needs ``name`` and ``path``.
        ledger: the URL of the ledger; by default HUSHGRAM_LEDGER, else a file in the working directory.
        carry: keys that an earlier release named (`Sketch.named_keys`), with weighted key selection. They are public:
            each is counted without being selected, also where nobody has it, and selection is left to other keys.

    Returns:
        The sketch.

    >>> params = ReleaseParams(epsilon="1", max_contributions=2)
    >>> sketch = release(["ann", "bob", "bob"], ["/a", "/a", "/b"], params)
    >>> sketch.estimate("/a").column_names
    ['key', 'estimate', 'low', 'high', 'resolved', 'above_zero', 'source', 'among']
    """
    tracked = (dataset, ledger)
    taken = _taken("release", users, keys, user, key, values)
    return _release_records("release", taken, params, path, None, release_key, name, tracked, carry)


def release_public(
    users: Any,
    keys: Any = None,
    public_keys: Any = None,
    params: ReleaseParams = UNSTATED,
    path: str | Path | None = None,
    *,
    user: str | Sequence[str] | None = UNSTATED,
    key: str | Sequence[str] = UNSTATED,
    values: Any = None,
    release_key: ReleaseKey | None = None,
    name: str = "",
    dataset: str | None = None,
    ledger: str | None = None,
) -> Sketch:
    """Release the counts of public keys: noise on every one, also those with count 0.

    Records of other keys are left out before bounding, so that they use up nothing of a user's contributions. All
    of ε goes to the noise: Laplace noise of scale C/ε, or Gaussian noise where δ is above 0 and that is smaller.
    Columns, or ``release_public(frame, user="...", key="...", public_keys=..., params=params)``; arguments are those
    of `release`, and:

    Args:
        public_keys: the keys, which must be known without looking at the data.
    """
    listed = () if public_keys is None else public_keys
    taken = _taken("release_public", users, keys, user, key, values)
    return _release_records(
        "release_public", taken, params, path, listed, release_key, name, (dataset, ledger)
    )


def _taken(function: str, users: Any, keys: Any, user: Any, key: Any, values: Any) -> Frame | Records:
    """Return what the arguments of a release name: a frame, or the columns themselves."""
    given = () if values is None else (values,)
    if is_frame(users) or user is not UNSTATED or key is not UNSTATED:
        return Frame.of(function, users, keys, user, key, given)
    return Records(users, keys, given)


def _release_records(
    caller: str,
    taken: Frame | Records,
    params: ReleaseParams,
    path: str | Path | None,
    public_keys: Any,
    release_key: ReleaseKey | None,
    name: str,
    tracked: tuple[str | None, str | None],
    carry: Any = None,
) -> Sketch:
    frame = taken if isinstance(taken, Frame) else None
    user = taken.user if isinstance(taken, Frame) else taken.users
    spec = ReleaseSpec.of(
        params,
        user=None if user is None else "user",
        value="value" if taken.values else None,
        public_keys=public_keys,
        name=name,
        key_expression="" if frame is None else frame.key_expression,
        release_key=release_key,
        carry=carry,
        caller=caller,
    )
    if tracked != (None, None):
        return _release_tracked(caller, spec, taken, path, *tracked)
    if path is not None:
        check_free(path)
    return _release_spec(spec, taken, path)


def _release_spec(spec: ReleaseSpec, taken: Frame | Records, path: str | Path | None) -> Sketch:
    bounds = spec.params.record_bounds if spec.user is None else None
    batches: Iterable[Records] = taken.records(bounds) if isinstance(taken, Frame) else (taken,)
    if spec.user is None:
        return _release(_counted(spec, batches), spec, path)
    return _release_rows(_contributions(spec.bounding, batches), spec, path)


# Rows of contributions that come together before those that cannot count are dropped.
_MERGED_ROWS = 1 << 21


def _contributions(bounding: BoundingSpec, batches: Iterable[Records]) -> Contributions:
    """Return the contributions of all batches, without rows that cannot count where there are many."""
    parts: list[Contributions] = []
    held = 0
    for batch in batches:
        values = [checked_values(column, len(batch.keys)) for column in batch.values]
        parts.append(bounding.contributions(batch.users, batch.keys, values))
        if len(parts) > 1 and sum(map(len, parts)) > 2 * held + _MERGED_ROWS:
            parts = [Contributions.concat(parts).prune(*bounding.bounds)]
            held = len(parts[0])
    return Contributions.concat(parts)


def _release_tracked(
    caller: str,
    spec: ReleaseSpec,
    taken: Frame | Records,
    path: str | Path | None,
    dataset: str | None,
    ledger: str | None,
) -> Sketch:
    """Release under the ledger: reserve, write beside the path, prepare, rename, commit."""
    from hushgram.ledger.tracking import TrackedRelease

    tracked = TrackedRelease.open(
        caller,
        ledger=ledger,
        dataset=dataset,
        release=spec.name,
        path=path,
        events=release_events(spec.params, charged=True),
        parameters=spec.stated(),
    )
    assert tracked is not None
    target = Path(tracked.target)
    if tracked.done:
        return Sketch.open(target)
    with tracked.held():
        check_free(target)
        work = Path(tracked.work())
        try:
            _release_spec(spec.with_key(tracked.key()), taken, work)
            tracked.publish(work)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return Sketch.open(target)


def release_histogram(
    keys: Any,
    counts: Any = None,
    params: ReleaseParams = UNSTATED,
    path: str | Path | None = None,
    *,
    key: str = UNSTATED,
    count: str = UNSTATED,
    release_key: ReleaseKey | None = None,
    name: str = "",
    unit: PrivacyUnit = "user",
) -> Sketch:
    """Release counts whose L1 sensitivity is ``params.max_contributions`` already: bounding is the caller's promise.

    Where ``params`` state a granularity, counts may be any numbers from 0 on and are rounded to it. The promise must
    then hold with whatever a user adds to each key rounded up to the granularity, since rounding may move a sum by as
    much. Columns, or ``release_histogram(frame, key="...", count="...", params=params)``.

    Args:
        keys: the column of keys, or a frame.
        counts: the column of counts.
        params: the parameters.
        path: where the sketch goes; left out, a temporary directory that goes with the sketch.
        key: the name of the frame's column of keys.
        count: the name of the frame's column of counts.
        release_key: as for `release`.
        name: the name of the release.
        unit: the privacy unit whose contributions were bounded so: a user, or a single record.

    Returns:
        The sketch.
    """
    if is_frame(keys) or key is not UNSTATED or count is not UNSTATED:
        keys, counts = columns_by_name("release_histogram", keys, counts, key=key, count=count)
    return simulate(keys, counts, params, path, release_key=release_key, name=name, unit=unit)


def simulate(
    keys: Any,
    counts: Any,
    params: ReleaseParams,
    path: str | Path | None = None,
    *,
    release_key: ReleaseKey | None = None,
    name: str = "",
    unit: PrivacyUnit = "user",
    at_once: bool = False,
    scale: int = 1,
) -> Sketch:
    """Release synthetic counts as `release_histogram` does: nobody contributed to them, so nothing was bounded.

    With ``at_once`` keys are selected in one shard: other bytes, noise of the same law, several times faster. ``scale``
    is that of a prediction at 1/scale of the keys (`Params`).
    """
    if path is not None:
        check_free(path)
    column, granularity = as_column(keys), checked_params(params, "release_histogram").granularity
    spec = ReleaseSpec.of(
        params,
        user="user" if unit == "user" else None,
        value=None if granularity is None else "value",
        name=name,
        release_key=release_key,
        weights=False,
        caller="release_histogram",
    )
    spec = replace(spec, params=replace(spec.params, scale=scale))
    if granularity is None:
        numbers = _checked_counts(counts)
        if len(column) != len(numbers):
            raise InputError(
                f"keys and counts must have the same length, got {len(column)} and {len(numbers)}"
            )
        histogram = Histogram.of_counts(column, numbers, texts=spec.texts)
    else:
        sums = checked_sums(counts, len(column), granularity)
        many = replace(spec.bounding, values=(("value", Grid(granularity, MAX_SUM)),))
        histogram = many.histogram(column, [sums]).rounded(spec.release_key)
    return _release(replace(histogram, sensitivity=spec.params.sensitivity), spec, path, at_once=at_once)


def release_metrics(
    users: Any,
    keys: Any = None,
    metrics: Mapping[str, Metric] = UNSTATED,
    path: str | Path = UNSTATED,
    *,
    user: str | Sequence[str] | None = UNSTATED,
    key: str | Sequence[str] = UNSTATED,
    values: Mapping[str, Any] | None = None,
    release_key: ReleaseKey | None = None,
    name: str = "",
) -> dict[str, Sketch]:
    """Release several metrics of the same records with one bounding of users: a sketch for each in the folder ``path``.

    What all sketches lose together is the sum of ε and of δ of their parameters. Metrics whose keys are selected by
    weights share one selection, and have the same named keys: each gives its part for selection to it, and all noise
    is one mechanism.

    Args:
        users: the column of users, or a frame; None protects a record in place of a user.
        keys: the column of keys.
        metrics: the metrics by name; the columns that they name are those of the frame, or of ``values``.
        path: the folder of the sketches.
        user: the name of the frame's column of users.
        key: the name of the frame's column of keys.
        values: columns of numbers by name, where users and keys are given as columns.
        release_key: as for `release`.
        name: the name of the release.

    Returns:
        The sketches by name.

    >>> import pyarrow as pa, tempfile
    >>> visits = ReleaseParams(epsilon="1/2", max_contributions=2)
    >>> bytes = ReleaseParams(epsilon="1/2", max_contributions=2000, max_value=1000, granularity=100)
    >>> metrics = {"visits": Metric(visits), "bytes": Metric(bytes, "size")}
    >>> frame = pa.table({"who": ["ann", "bob"], "url": ["/a", "/a"], "size": [512, 20.5]})
    >>> found = release_metrics(frame, metrics=metrics, path=tempfile.mkdtemp(), user="who", key="url")
    >>> list(found)
    ['visits', 'bytes']
    """
    if path is UNSTATED:
        raise ParameterError('release_metrics: state path="...", the folder of the sketches')
    framed = is_frame(users) or user is not UNSTATED or key is not UNSTATED
    frame = Frame.of("release_metrics", users, keys, user, key) if framed else None
    protected = None if (users if frame is None else frame.user) is None else "user"
    expression = "" if frame is None else frame.key_expression
    bounding, specs = metric_specs(
        metrics, user=protected, name=name, key_expression=expression, release_key=release_key
    )
    named = bounding.value_columns
    batches: Iterable[Records]
    if frame is None:
        if missing := set(named) - set(values or {}):
            raise ParameterError(f"release_metrics: values must hold the column {sorted(missing)[0]!r}")
        batches = [Records(users, keys, tuple((values or {})[each] for each in named))]
    else:
        if protected is None and frame.several:
            raise ParameterError(
                f"release_metrics: {frame.key!r} gives several keys per record, which needs a column of users"
            )
        batches = Frame.of("release_metrics", users, keys, user, key, named).records()
    rows = None
    if protected is not None:
        rows = _contributions(bounding, batches).prune(*bounding.bounds)
    else:
        batches = list(batches)
    out = {}
    leading: Params | None = None
    for number, (each, spec) in enumerate(specs.items()):
        place = Path(path) / f"{each}.sketch"
        check_free(place)
        if spec.params.shared is not None:
            assert rows is not None
            params = count_users(tally_contributions(rows.metric(number), spec), spec)
            if leading is None:  # keys are selected once, by those that count for any of these metrics
                leading, present = params, rows.present()
                selected = _selected_keys(present, leading, spec)
            params = params.with_rounds_of(leading)
            out[each] = _release_selected(present.metric(number, present=True), params, selected, spec, place)
        elif rows is None:
            places = [named.index(column) for column in spec.bounding.value_columns]
            own = [batch._replace(values=tuple(batch.values[i] for i in places)) for batch in batches]
            out[each] = _release(_counted(spec, own), spec, place)
        else:
            out[each] = _release_rows(rows.metric(number), spec, place)
    return out


def _counted(spec: ReleaseSpec, batches: Iterable[Records]) -> Histogram:
    """Return the histogram of records without users."""
    parts = (
        spec.bounding.histogram(
            batch.keys, [checked_values(column, len(batch.keys)) for column in batch.values], batch.record
        )
        for batch in batches
    )
    histogram = Histogram.merge(parts)
    return histogram if spec.value is None else histogram.rounded(spec.release_key)


def _release_rows(rows: Contributions, spec: ReleaseSpec, path: str | Path | None) -> Sketch:
    """Bound the contributions of all users and release them."""
    if not spec.params.counts_users:
        return _release(rows.bounded(spec.bounds()), spec, path)
    rows = rows.prune(spec.loose_bounds)
    params = count_users(tally_contributions(rows, spec), spec)
    if spec.params.weighted:
        rows = rows.present()
        return _release_selected(rows, params, _selected_keys(rows, params, spec), spec, path)
    return _release(rows.bounded(spec.bounds(params)), spec, path, params)


def _selected_keys(rows: Contributions, params: Params, spec: ReleaseSpec) -> NDArray[np.bool_]:
    """Select keys of the table by weights."""
    assert rows.table is not None
    states, selection = carried_states(rows.table, spec.carried), params.gaussian.selection
    for number in range(len(selection.rounds)):
        shards = weigh(rows, selection.max_keys, states).shards()
        data_digest = Survey.of(enumerate(shards)).data_digest()
        found = release_round(number, enumerate(shards), selection, spec.release_key, data_digest)
        states = next_states(states, found)
    return np.asarray(states == SELECTED)


def _release_selected(
    rows: Contributions,
    params: Params,
    selected: NDArray[np.bool_],
    spec: ReleaseSpec,
    path: str | Path | None,
) -> Sketch:
    """Count the selected keys, encode the counts of all others, write."""
    assert rows.table is not None
    named, rest = rows.bounded_apart(spec.bounds(params), selected)
    shards = rest.shards()
    planned = plan_release(Survey.of(enumerate(shards)), spec, params)
    counts = named.shards()
    table = rows.table.keep(selected)[0]
    table = table if spec.carried is None else KeyTable.union([table, spec.carried])[0]
    listed = _count_listed(counts, table, planned.plan, spec.release_key)
    blocks = encoded_blocks(shards, planned, spec.release_key)
    return _write(path, spec, planned.plan, listed, blocks)


def _count_listed(shards: list[Histogram], table: KeyTable, plan: Plan, release_key: ReleaseKey) -> Heavy:
    """Return the noisy counts of all keys of the table. Released."""
    data_digest = Survey.of_digests(enumerate(shards)).data_digest()
    parts = enumerate(zip(shards, table.shards(), strict=True))
    return Heavy.concat(
        [count_listed(i, part, keys, plan, release_key, data_digest) for i, (part, keys) in parts]
    )


def _release(
    histogram: Histogram,
    spec: ReleaseSpec,
    path: str | Path | None,
    params: Params | None = None,
    *,
    at_once: bool = False,
) -> Sketch:
    """Release the bounded histogram: plan, select keys, encode counts, write."""
    shards, table = histogram.shards(), spec.public_keys
    if table is not None:
        plan = make_public_plan(spec.params, len(table.texts))
        return _write(path, spec, plan, _count_listed(shards, table, plan, spec.public_key_noise), iter(()))
    planned = plan_release(Survey.of(enumerate(shards)), spec, params)
    selected = [histogram] if at_once else shards
    listed, passed = zip(
        *(select_keys(i, part, planned, spec.release_key, len(selected)) for i, part in enumerate(selected)),
        strict=True,
    )
    encoded = list(passed) if planned.plan.chained else shards
    blocks = encoded_blocks(encoded, planned, spec.release_key)
    return _write(path, spec, planned.plan, Heavy.concat(list(listed)), blocks)


def encoded_blocks(
    shards: list[Histogram], planned: PlannedRelease, release_key: ReleaseKey
) -> Iterator[EncodedBlock]:
    """Yield every block of the encoding, in order. Released."""
    layout = planned.plan.layout
    assert layout is not None
    parts = dict(encode_counts(enumerate(shards), planned, release_key))
    for block in range(layout.blocks):
        found = parts.pop(block, None)
        yield noisy_block(block, [] if found is None else [found], planned, release_key)


def _write(
    path: str | Path | None, spec: ReleaseSpec, plan: Plan, heavy: Heavy, blocks: Iterator[EncodedBlock]
) -> Sketch:
    if path is not None:
        seeds = seeds_of(plan, spec.release_key)
        return Sketch.open(write_sketch(path, plan, seeds, heavy, blocks, spec.name, spec.key_expression))
    folder = PrivateDirectory()
    try:
        sketch = _write(folder.path / "release.sketch", spec, plan, heavy, blocks)
    except BaseException:
        folder.close()
        raise
    weakref.finalize(sketch, folder.close)  # with the sketch, or when the process ends
    return sketch


def _checked_counts(counts: Any) -> NDArray[np.int64]:
    """Return counts as 64-bit integers; they must be whole, not negative and below 2^48."""
    array = np.asarray(counts)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise InputError(
            f"counts must be one column of whole numbers, got {array.dtype} of {array.ndim} dimensions"
        )
    if array.dtype.kind == "f" and not bool(np.all(np.isfinite(array) & (array == np.floor(array)))):
        raise InputError("counts must be whole numbers; round them first")
    if len(array) and (array.min() < 0 or array.max() >= _LARGEST_COUNT):
        raise InputError("counts must be from 0 to 2^48 - 1; leave out keys with others")
    return array.astype(np.int64)
