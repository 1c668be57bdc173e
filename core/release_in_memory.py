"""The whole release on arrays, in one process: the reference that the Beam job matches byte for byte.

    users, keys ─► contributions ─► bounded histogram ─┬─► sizes ─► plan
                                                       ├─► selected keys ─┐
                                                       └─► encoded counts ┴─► sketch directory

Everything left of a mechanism is exact and private and stays in these functions.
"""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.contributions.bounding import Contributions
from hushgram.contributions.histogram import Histogram, KeyTable
from hushgram.contributions.keys import as_column
from hushgram.contributions.sums import MAX_SUM, Grid, checked_sums, checked_values
from hushgram.encodings import EncodedBlock, encoding_named
from hushgram.errors import InputError, ParameterError
from hushgram.inputs.columns import UNSTATED, columns_by_name, is_frame
from hushgram.key_selection.rounds import SELECTED, carried_states, next_states, release_round, weigh
from hushgram.key_selection.threshold import Heavy
from hushgram.noise.entropy import ReleaseKey
from hushgram.publishing import PrivateDirectory, check_free, remove_dead_work, work_name
from hushgram.sensitivity import PrivacyUnit
from hushgram.sketch.reader import Sketch
from hushgram.sketch.storage import write_sketch
from hushgram.sparse_histogram.contribution_bounds import UserTally
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.plan import Plan, make_public_plan, release_events
from hushgram.sparse_histogram.sizing import Survey
from hushgram.sparse_histogram.spec import Metric, ReleaseSpec, checked_params, metric_specs
from hushgram.sparse_histogram.steps import (
    ChosenParams,
    PlannedRelease,
    choose_contributions,
    count_public_keys,
    count_selected,
    encode_counts,
    noisy_block,
    plan_release,
    seeds_of,
    select_keys,
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
    user: str | None = UNSTATED,
    key: str = UNSTATED,
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

    Args:
        users: the column of users, or a frame; None (or ``user=None``) protects a record in place of a user.
        keys: the column of keys.
        params: the parameters; with ``values`` they state ``max_value`` and ``granularity``.
        path: where the sketch goes; left out, a temporary directory that goes with the sketch.
        user: the name of the frame's column of users.
        key: the name of the frame's column of keys.
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
    if is_frame(users) or user is not UNSTATED or key is not UNSTATED:
        users, keys, values = _columns("release", users, keys, user, key, values)
    tracked = (dataset, ledger)
    return _release_columns(
        "release", users, keys, values, params, path, None, release_key, name, tracked, carry
    )


def release_public(
    users: Any,
    keys: Any = None,
    public_keys: Any = None,
    params: ReleaseParams = UNSTATED,
    path: str | Path | None = None,
    *,
    user: str | None = UNSTATED,
    key: str = UNSTATED,
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
    if is_frame(users) or user is not UNSTATED or key is not UNSTATED:
        users, keys, values = _columns("release_public", users, keys, user, key, values)
    listed = () if public_keys is None else public_keys
    return _release_columns(
        "release_public", users, keys, values, params, path, listed, release_key, name, (dataset, ledger)
    )


def _release_columns(
    caller: str,
    users: Any,
    keys: Any,
    values: Any,
    params: ReleaseParams,
    path: str | Path | None,
    public_keys: Any,
    release_key: ReleaseKey | None,
    name: str,
    tracked: tuple[str | None, str | None],
    carry: Any = None,
) -> Sketch:
    spec = ReleaseSpec.of(
        params,
        user=None if users is None else "user",
        value=None if values is None else "value",
        public_keys=public_keys,
        name=name,
        release_key=release_key,
        carry=carry,
        caller=caller,
    )
    if tracked != (None, None):
        return _release_tracked(caller, spec, users, keys, values, path, *tracked)
    if path is not None:
        check_free(path)
    return _release_spec(spec, users, keys, values, path)


def _release_spec(spec: ReleaseSpec, users: Any, keys: Any, values: Any, path: str | Path | None) -> Sketch:
    columns = [] if values is None else [checked_values(values, len(keys))]
    if users is None:
        return _release(_counted(spec, keys, columns), spec, path)
    rows = spec.bounding.contributions(users, keys, columns)
    return _release_rows(rows, spec, path)


def _release_tracked(
    caller: str,
    spec: ReleaseSpec,
    users: Any,
    keys: Any,
    values: Any,
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
        events=release_events(spec.params, spec.unit, public=spec.public_keys is not None, charged=True),
        parameters=spec.stated(),
    )
    assert tracked is not None
    target = Path(tracked.target)
    if tracked.done:
        return Sketch.open(target)
    remove_dead_work(target.parent)
    work = target.with_name(work_name(target.name))
    try:
        with tracked.undone_on_error():
            check_free(target)
            _release_spec(spec.with_key(tracked.key()), users, keys, values, work)
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
    checked_params(params, "release_histogram")
    if encoding_named(params.encoding).classes(params.cells_noise, params.max_contributions) is not None:
        raise ParameterError(
            f"release_histogram: {params.noise} noise on {params.encoding} needs to bound users itself;"
            " use release, or noise laplace"
        )
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
) -> Sketch:
    """Release synthetic counts as `release_histogram` does: nobody contributed to them, so nothing was bounded."""
    if params.choose_contributions:
        raise ParameterError(
            "release_histogram: max_contributions auto needs users and any keys; state a number"
        )
    if path is not None:
        check_free(path)
    column, granularity = as_column(keys), params.granularity
    spec = ReleaseSpec.of(
        params,
        user="user" if unit == "user" else None,
        value=None if granularity is None else "value",
        name=name,
        release_key=release_key,
        caller="release_histogram",
    )
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
    promised = replace(params.sensitivity, unit=unit)
    return _release(replace(histogram, sensitivity=promised), spec, path)


def release_metrics(
    users: Any,
    keys: Any = None,
    metrics: Mapping[str, Metric] = UNSTATED,
    path: str | Path = UNSTATED,
    *,
    user: str | None = UNSTATED,
    key: str = UNSTATED,
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
    frame = users
    by_name = is_frame(users) or user is not UNSTATED or key is not UNSTATED
    if by_name:
        users, keys = columns_by_name("release_metrics", frame, keys, user=user, key=key)
    protected = None if users is None else "user"
    bounding, specs = metric_specs(metrics, user=protected, name=name, release_key=release_key)
    named = bounding.value_columns
    if by_name:
        values = {each: columns_by_name("release_metrics", frame, None, value=each)[0] for each in named}
    if missing := set(named) - set(values or {}):
        raise ParameterError(f"release_metrics: values must hold the column {sorted(missing)[0]!r}")
    found = {each: checked_values((values or {})[each], len(keys)) for each in named}
    rows = None
    if users is not None:
        rows = bounding.contributions(users, keys, [found[each] for each in named]).prune(*bounding.bounds)
    out = {}
    shared = [spec for spec in specs.values() if spec.params.shared is not None]
    if shared:
        assert rows is not None
        present = rows.present()
        selected = _selected_keys(present, shared[0])
    for number, (each, spec) in enumerate(specs.items()):
        place = Path(path) / f"{each}.sketch"
        check_free(place)
        if spec.params.shared is not None:
            out[each] = _release_selected(present, selected, spec, place, number)
        elif rows is None:
            counted = _counted(spec, keys, [found[column] for column in spec.bounding.value_columns])
            out[each] = _release(counted, spec, place)
        else:
            out[each] = _release_rows(rows.metric(number), spec, place)
    return out


def _counted(spec: ReleaseSpec, keys: Any, columns: list[Any]) -> Histogram:
    """Return the histogram of records without users."""
    histogram = spec.bounding.histogram(keys, columns)
    return histogram if spec.value is None else histogram.rounded(spec.release_key)


def _release_rows(rows: Contributions, spec: ReleaseSpec, path: str | Path | None) -> Sketch:
    """Bound the contributions of all users and release them."""
    if spec.params.weighted:
        present = rows.prune(spec.loose_bounds).present()
        return _release_selected(present, _selected_keys(present, spec), spec, path)
    chosen = None
    if spec.params.choose_contributions:
        rows = rows.prune(spec.loose_bounds)
        chosen = choose_contributions(UserTally.of(rows.totals(spec.loose_bounds)), spec)
    histogram = rows.bounded(spec.bounds(None if chosen is None else chosen.params))
    return _release(histogram, spec, path, chosen)


def _selected_keys(rows: Contributions, spec: ReleaseSpec) -> NDArray[np.bool_]:
    """Select keys of the table by weights."""
    selection = spec.params.gaussian.selection
    assert rows.table is not None
    states = carried_states(rows.table, spec.carried)
    for number in range(len(selection.rounds)):
        shards = weigh(rows, selection.max_keys, states).shards()
        data_digest = Survey.of(enumerate(shards)).data_digest()
        found = [
            release_round(number, i, part, selection, spec.release_key, data_digest)
            for i, part in enumerate(shards)
        ]
        states = next_states(states, np.concatenate(found))
    return np.asarray(states == SELECTED)


def _release_selected(
    rows: Contributions,
    selected: NDArray[np.bool_],
    spec: ReleaseSpec,
    path: str | Path | None,
    metric: int = 0,
) -> Sketch:
    """Count the selected keys for one metric, encode the counts of all others, write."""
    assert rows.table is not None
    counted, rest = (rows.of_keys(keys).metric(metric, present=True) for keys in (selected, ~selected))
    chosen = None
    if spec.params.choose_contributions:
        chosen = choose_contributions(UserTally.of(counted.totals(spec.loose_bounds)), spec)
    params = None if chosen is None else chosen.params
    shards = rest.bounded(spec.bounds(params)).shards() if spec.params.encodes else []
    planned = plan_release(Survey.of(enumerate(shards)) if shards else None, spec, chosen)
    counts = counted.bounded(spec.count_bounds(params)).shards()
    data_digest = Survey.of(enumerate(counts)).data_digest()
    table = rows.table.keep(selected)[0]
    tables = (table if spec.carried is None else KeyTable.union([table, spec.carried])[0]).shards()
    listed = [
        count_selected(i, part, table, planned.plan, spec.release_key, data_digest)
        for i, (part, table) in enumerate(zip(counts, tables, strict=True))
    ]
    blocks = encoded_blocks(shards, planned, spec.release_key) if spec.params.encodes else iter(())
    return _write(path, spec, planned.plan, Heavy.concat(listed), blocks)


def _release(
    histogram: Histogram, spec: ReleaseSpec, path: str | Path | None, chosen: ChosenParams | None = None
) -> Sketch:
    """Release the bounded histogram: plan, select keys, encode counts, write."""
    if spec.public_keys is not None:
        plan = make_public_plan(spec.params, len(spec.public_keys.texts), spec.unit)
        return _write(path, spec, plan, count_public_keys(histogram, spec, plan), iter(()))
    shards = histogram.shards()
    planned = plan_release(Survey.of(enumerate(shards)), spec, chosen)
    listed = [select_keys(i, part, planned, spec.release_key) for i, part in enumerate(shards)]
    blocks = encoded_blocks(shards, planned, spec.release_key) if spec.params.encodes else iter(())
    return _write(path, spec, planned.plan, Heavy.concat(listed), blocks)


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
        return Sketch.open(write_sketch(path, plan, seeds, heavy, blocks, spec.name))
    folder = PrivateDirectory()
    try:
        sketch = _write(folder.path / "release.sketch", spec, plan, heavy, blocks)
    except BaseException:
        folder.close()
        raise
    weakref.finalize(sketch, folder.close)  # with the sketch, or when the process ends
    return sketch


def _columns(what: str, frame: Any, stray: object, user: Any, key: Any, values: Any) -> list[Any]:
    """Return users, keys and values (None where counts are wanted) of a frame."""
    if values is None:
        return [*columns_by_name(what, frame, stray, user=user, key=key), None]
    return columns_by_name(what, frame, stray, user=user, key=key, values=values)


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
        raise InputError(f"counts must be from 0 to 2^48 - 1, got {array.min()} to {array.max()}")
    return array.astype(np.int64)
