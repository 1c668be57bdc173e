"""The whole release on arrays, in one process: the reference that the Beam job matches byte for byte.

    users, keys ─► contributions ─► bounded histogram ─┬─► sizes ─► plan
                                                       ├─► threshold release ─┐
                                                       └─► encoded counts ────┴─► sketch directory

Everything left of a mechanism is exact and private and stays in this function.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushgram.encodings import EncodedBlock, encoding_named
from hushgram.errors import InputError, ParameterError
from hushgram.exact.contributions import Contributions
from hushgram.exact.histogram import Histogram
from hushgram.exact.keys import as_column
from hushgram.exact.weights import MOST_SUM, Grid, checked_sums, checked_values
from hushgram.inputs.frames import UNSTATED, columns_by_name, is_frame
from hushgram.noise.entropy import ReleaseKey
from hushgram.private_directory import PrivateDirectory
from hushgram.publishing import check_free
from hushgram.sensitivity import Unit
from hushgram.sketch.reader import Sketch
from hushgram.sketch.writer import write_sketch
from hushgram.sparse_histogram.contributions import UserTally, UserTotals
from hushgram.sparse_histogram.metrics import Metric, checked_metrics, metric_keys
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.plan import Plan, make_public_plan
from hushgram.sparse_histogram.sizing import Survey
from hushgram.sparse_histogram.steps import (
    PlannedRelease,
    block_parts,
    bounds,
    checked_params,
    choose_params,
    count_records,
    heavy_of_list,
    heavy_of_shard,
    held_bounds,
    key_for,
    only_public_keys,
    plan_release,
    public_key_table,
    released_block,
    seeds_of,
    unit_of,
    values_for,
)
from hushgram.sparse_histogram.threshold import Heavy

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
) -> Sketch:
    """Release the histogram of keys with user-level privacy.

    ``release(users, keys, params)`` takes two columns of equal length, ``release(frame, user="user_id", key="url",
    params=params)`` two columns of a frame (Arrow table or record batch, pandas, polars) by their names. Columns hold
    text, bytes, whole numbers, dates or booleans, which mean the same as in files. Where ``users`` or ``user`` is
    None, a record is protected in place of a user. With ``values``, a column of numbers from 0 on or the name of one,
    their sums are released in place of counts; ``params`` then state ``max_value`` and ``unit``. The result is a sketch
    at ``path``, or in a temporary directory that goes with it. ``release_key`` reproduces an earlier
    release of the same data to the byte; whoever has it can subtract the noise.

    >>> params = ReleaseParams(epsilon="1", max_contributions=2)
    >>> sketch = release(["ann", "bob", "bob"], ["/a", "/a", "/b"], params)
    >>> sketch.estimate("/a").column_names
    ['key', 'estimate', 'low', 'high', 'above_zero', 'source', 'among']
    """
    if is_frame(users) or user is not UNSTATED or key is not UNSTATED:
        users, keys, values = _columns("release", users, keys, user, key, values)
    release_key = key_for(params, release_key)
    texts = params.delta != 0
    weights = _weights(params, values, users, keys, "release")
    if path is not None:
        check_free(path)
    rows = None
    if users is not None:
        rows = Contributions.of(users, keys, release_key, texts=texts, values=(weights,))
    histogram, params, totals = _bounded(rows, keys, weights, params, release_key, texts=texts)
    return _release(histogram, params, path, release_key, name, unit_of(users), totals)


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
    unit: Unit = "user",
) -> Sketch:
    """Release counts whose L1 sensitivity is ``params.max_contributions`` already: bounding is the caller's promise.

    Where ``params`` state a unit, counts may be any numbers from 0 on and are rounded to it. The promise must then hold
    with whatever a user adds to each key rounded up to the unit, since rounding may move a sum by as much.

    Columns, or ``release_histogram(frame, key="...", count="...", params=params)`` as for `release`. ``unit`` says
    whose contributions were bounded so: those of a user, or of a single record.
    """
    if is_frame(keys) or key is not UNSTATED or count is not UNSTATED:
        keys, counts = columns_by_name("release_histogram", keys, counts, key=key, count=count)
    checked_params(params)
    if encoding_named(params.encoding).classes(params.noise, params.max_contributions) is not None:
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
    unit: Unit = "user",
) -> Sketch:
    """As `release_histogram`, for counts that are made up: whether they were bounded so is nobody's concern."""
    _refuse_choice(params, "release_histogram")
    if path is not None:
        check_free(path)
    column, texts = as_column(keys), params.delta != 0
    release_key = key_for(params, release_key)

    def promised(histogram: Histogram) -> Histogram:
        return replace(histogram, sensitivity=replace(params.sensitivity, unit=unit))

    if params.unit is not None:
        sums = count_records(
            column,
            (checked_sums(counts, len(column), params.unit), Grid(params.unit, MOST_SUM)),
            release_key,
            texts=texts,
        )
        return _release(promised(sums.in_units(release_key)), params, path, release_key, name, unit)
    numbers = _checked_counts(counts)
    if len(column) != len(numbers):
        raise InputError(f"keys and counts must have the same length, got {len(column)} and {len(numbers)}")
    histogram = promised(Histogram.of_counts(column, numbers, texts=texts))
    return _release(histogram, params, path, release_key, name, unit)


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
) -> Sketch:
    """Release the counts of a public list of keys: Laplace noise on every one, also those with count 0.

    Records of other keys are left out before bounding, so that they use up nothing of a user's contributions. All
    of ε goes to the noise, of scale C/ε. ``public_keys`` must be known without looking at the data. Columns, or
    ``release_public(frame, user="...", key="...", public_keys=..., params=params)`` as for `release`.
    """
    if is_frame(users) or user is not UNSTATED or key is not UNSTATED:
        users, keys, values = _columns("release_public", users, keys, user, key, values)
    checked_params(params)
    _refuse_choice(params, "release_public")
    release_key = key_for(params, release_key)
    if path is not None:
        check_free(path)
    table = public_key_table(public_keys)
    plan = make_public_plan(params, len(table.texts), unit_of(users))
    weights = _weights(params, values, users, keys, "release_public")
    rows, of_users, listed = only_public_keys(keys, table, users, None if weights is None else weights[0])
    weights = None if weights is None else (listed, weights[1])
    held = None
    if of_users is not None:
        held = Contributions.of(of_users, rows, release_key, texts=True, values=(weights,))
    histogram, _, _ = _bounded(held, rows, weights, params, release_key, texts=True)
    heavy = heavy_of_list(histogram, table, plan, release_key)
    return _write(path, plan, heavy, iter(()), release_key, name)


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

    ``metrics`` are `Metric`s by name. The columns that they name are those of the frame, or of ``values`` where users
    and keys are given as columns. What all sketches lose together is the sum of their ε and of their δ.

    >>> import tempfile
    >>> visits = ReleaseParams(epsilon="1/2", max_contributions=2)
    >>> bytes = ReleaseParams(epsilon="1/2", max_contributions=2000, max_value=1000, unit=100)
    >>> metrics = {"visits": Metric(visits), "bytes": Metric(bytes, "size")}
    >>> frame = pa.table({"who": ["ann", "bob"], "url": ["/a", "/a"], "size": [512, 20.5]})
    >>> found = release_metrics(frame, metrics=metrics, path=tempfile.mkdtemp(), user="who", key="url")
    >>> list(found)
    ['visits', 'bytes']
    """
    metrics = checked_metrics(metrics)
    if is_frame(users) or user is not UNSTATED or key is not UNSTATED:
        frame = users
        users, keys = columns_by_name("release_metrics", frame, keys, user=user, key=key)
        named = {metric.value for metric in metrics.values() if metric.value is not None}
        values = {
            each: columns_by_name("release_metrics", frame, None, value=each)[0] for each in sorted(named)
        }
    base, noise_keys = metric_keys(metrics, release_key)
    weights = []
    for word, metric in metrics.items():
        column = None if metric.value is None else (values or {}).get(metric.value)
        weights.append(_weights(metric.params, column, users, keys, f"release_metrics: {word}"))
    texts = any(metric.params.delta for metric in metrics.values())
    held = None if users is None else Contributions.of(users, keys, base, texts=texts, values=weights)
    if held is not None:
        held = held.cut(*(held_bounds(metric.params) for metric in metrics.values()))
    out = {}
    for number, (word, metric) in enumerate(metrics.items()):
        noise_key, said = key_for(metric.params, noise_keys[word]), f"{name}/{word}" if name else word
        place = Path(path) / f"{word}.sketch"
        check_free(place)
        rows = None if held is None else held.metric(number)
        histogram, params, totals = _bounded(
            rows, keys, weights[number], metric.params, noise_key, texts=texts
        )
        out[word] = _release(histogram, params, place, noise_key, said, unit_of(users), totals)
    return out


def _bounded(
    rows: Contributions | None,
    keys: Any,
    weights: tuple[pa.Array, Grid] | None,
    params: ReleaseParams,
    release_key: ReleaseKey,
    *,
    texts: bool,
) -> tuple[Histogram, ReleaseParams, UserTotals | None]:
    """The bounded histogram in whole units: of users' rows, or without users of the records themselves."""
    if rows is None:
        _refuse_choice(params, "release without users")
        histogram = count_records(keys, weights, release_key, texts=texts)
        return histogram if weights is None else histogram.in_units(release_key), params, None
    totals = None
    if params.choose_contributions:
        rows = rows.cut(held_bounds(params))
        tally = UserTally.of(rows.totals(held_bounds(params)))
        chosen = choose_params(tally, params, release_key)
        params, totals = chosen.params, chosen.totals
    return rows.bounded(bounds(params, release_key)), params, totals


def _release(
    histogram: Histogram,
    params: ReleaseParams,
    path: str | Path | None,
    release_key: ReleaseKey,
    name: str,
    unit: Unit,
    totals: UserTotals | None = None,
) -> Sketch:
    shards = histogram.shards()
    planned = plan_release(Survey.of(enumerate(shards)), params, release_key, unit, totals)
    heavy = Heavy.concat([heavy_of_shard(i, part, planned, release_key) for i, part in enumerate(shards)])
    blocks = encoded_blocks(shards, planned, release_key)
    return _write(path, planned.plan, heavy, blocks, release_key, name)


def encoded_blocks(
    shards: list[Histogram], planned: PlannedRelease, release_key: ReleaseKey
) -> Iterator[EncodedBlock]:
    """Every block of the encoding, in order. Released."""
    space = planned.plan.space
    assert space is not None
    parts = dict(block_parts(enumerate(shards), planned, release_key))
    for block in range(space.blocks):
        found = parts.pop(block, None)
        yield released_block(block, [] if found is None else [found], planned, release_key)


def _write(
    path: str | Path | None,
    plan: Plan,
    heavy: Heavy,
    blocks: Iterator[EncodedBlock],
    release_key: ReleaseKey,
    name: str,
) -> Sketch:
    if path is not None:
        return Sketch.open(write_sketch(path, plan, seeds_of(plan, release_key), heavy, blocks, name))
    folder = PrivateDirectory()
    try:
        sketch = _write(folder.path / "release.sketch", plan, heavy, blocks, release_key, name)
    except BaseException:
        folder.close()
        raise
    weakref.finalize(sketch, folder.close)  # with the sketch, or when the process ends
    return sketch


def _columns(what: str, frame: Any, stray: object, user: Any, key: Any, values: Any) -> list[Any]:
    """Users, keys and values (None where counts are wanted) of a frame."""
    if values is None:
        return [*columns_by_name(what, frame, stray, user=user, key=key), None]
    return columns_by_name(what, frame, stray, user=user, key=key, values=values)


def _weights(
    params: ReleaseParams, values: Any, users: Any, keys: Any, what: str
) -> tuple[pa.Array, Grid] | None:
    grid = values_for(checked_params(params), values, users, what)
    return None if grid is None else (checked_values(values, len(keys)), grid)


def _refuse_choice(params: ReleaseParams, what: str) -> None:
    if params.choose_contributions:
        raise ParameterError(f"{what}: max_contributions auto needs users and any keys; state a number")


def _checked_counts(counts: Any) -> NDArray[np.int64]:
    """Counts as 64-bit integers; they must be whole, not negative and below 2^48."""
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
