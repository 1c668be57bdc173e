"""The whole release on arrays, in one process: the reference that the Beam job matches byte for byte.

    users, keys ─► contributions ─► bounded histogram ─┬─► sizes ─► plan
                                                       ├─► threshold release ─┐
                                                       └─► ALP projection ────┴─► sketch directory

Everything left of a mechanism is exact and private and stays in this function.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram import laplace_mechanism as laplace
from hushgram.encodings import alp
from hushgram.errors import InputError
from hushgram.exact.hashing import draw_seeds
from hushgram.exact.histogram import Contributions, Histogram, KeyTable
from hushgram.exact.keys import as_column, encode
from hushgram.noise.entropy import ReleaseKey
from hushgram.sketch.reader import Sketch
from hushgram.sketch.writer import check_free, write_sketch
from hushgram.sparse_histogram import threshold
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.plan import Plan, check_levels, expected_sizes, make_plan, make_public_plan
from hushgram.sparse_histogram.sizing import Tally, release_sizes

__all__ = [
    "bind",
    "list_table",
    "listed_only",
    "project_part",
    "public_part",
    "release",
    "release_histogram",
    "release_public",
    "threshold_part",
]

_LARGEST_COUNT = 1 << 48


def release(
    users: Any,
    keys: Any,
    params: ReleaseParams,
    path: str | Path | None = None,
    *,
    key: ReleaseKey | None = None,
    name: str = "",
) -> Sketch:
    """Release the histogram of ``keys`` with user-level privacy (or record-level, where ``users`` is None).

    ``users`` and ``keys`` are columns of equal length (Arrow, numpy, lists) of text, bytes or whole numbers. The
    result is a sketch at ``path``, or in a temporary directory. ``key`` reproduces an earlier release of the same data
    to the byte; whoever has it can subtract the noise.

    >>> params = ReleaseParams(epsilon="1", max_contributions=2)
    >>> sketch = release(["ann", "bob", "bob"], ["/a", "/a", "/b"], params)
    >>> sketch.estimate(["/a"]).column_names
    ['key', 'estimate', 'low', 'high', 'source']
    """
    key = bind(key or ReleaseKey.generate(), params)
    check_levels(params)
    texts = params.delta != 0
    if path is not None:
        check_free(path)
    if users is None:
        histogram = Histogram.of_column(keys, texts=texts)  # one record is one unit of count
    else:
        rows = Contributions.of(users, keys, key, texts=texts)
        histogram = rows.bounded(params.max_contributions, params.max_per_key)
    return _release(histogram, params, path, key, name)


def release_histogram(
    keys: Any,
    counts: Any,
    params: ReleaseParams,
    path: str | Path | None = None,
    *,
    key: ReleaseKey | None = None,
    name: str = "",
) -> Sketch:
    """Release counts whose L1 sensitivity is ``params.max_contributions`` already: bounding is the caller's promise."""
    check_levels(params)
    numbers = _checked_counts(counts)
    if path is not None:
        check_free(path)
    column = as_column(keys)
    if len(column) != len(numbers):
        raise InputError(f"keys and counts must have the same length, got {len(column)} and {len(numbers)}")
    histogram = Histogram.of_counts(column, numbers, texts=params.delta != 0)
    return _release(histogram, params, path, bind(key or ReleaseKey.generate(), params), name)


def release_public(
    users: Any,
    keys: Any,
    listed: Any,
    params: ReleaseParams,
    path: str | Path | None = None,
    *,
    key: ReleaseKey | None = None,
    name: str = "",
) -> Sketch:
    """Release the counts of a public list of keys: Laplace noise on every one, also those with count 0.

    Records of other keys are left out before bounding, so that they use up nothing of a user's contributions. All
    of ε goes to the noise, of scale C/ε. ``listed`` must be known without looking at the data.
    """
    key = bind(key or ReleaseKey.generate(), params)
    if path is not None:
        check_free(path)
    table = list_table(listed)
    plan = make_public_plan(params, len(table.texts))
    rows, owners = listed_only(keys, users, table)
    if owners is None:
        histogram = Histogram.of_column(rows, texts=True)
    else:
        contributions = Contributions.of(owners, rows, key, texts=True)
        histogram = contributions.bounded(params.max_contributions, params.max_per_key)
    heavy = public_part(histogram, table, plan, key)
    target = Path(path) if path is not None else Path(tempfile.mkdtemp(prefix="hushgram-")) / "release.sketch"
    write_sketch(target, plan, draw_seeds(key, 0), heavy, [], name)
    return Sketch.open(target)


def list_table(listed: Any) -> KeyTable:
    """A public list of distinct keys in canonical order."""
    encoded = encode(listed, "public keys")
    if not len(encoded.values):
        raise InputError("public keys: the list is empty; name at least one key")
    if len(encoded.values) != len(encoded.codes):
        raise InputError("public keys: a key is listed twice; list each key once")
    return KeyTable.build(encoded.values)[0]


def listed_only(keys: Any, users: Any, table: KeyTable) -> tuple[pa.Array, pa.Array | None]:
    """The rows whose key is in the list: keys as canonical bytes, and users."""
    encoded = encode(keys)
    inside = pc.is_in(encoded.values, value_set=table.texts).to_numpy(zero_copy_only=False)[encoded.codes]
    rows = pa.array(np.flatnonzero(inside))
    owners = None if users is None else as_column(users, "users").take(rows)
    return encoded.values.take(pa.array(encoded.codes[inside])), owners


def public_part(histogram: Histogram, table: KeyTable, plan: Plan, key: ReleaseKey) -> threshold.Heavy:
    """Noisy counts of all keys of the list, in its order."""
    counts = np.zeros(len(table.texts), np.int64)
    if len(histogram):
        counts[pc.index_in(histogram.texts, value_set=table.texts).to_numpy(zero_copy_only=False)] = (
            histogram.counts
        )
    settings = laplace.LaplaceParams(plan.params.epsilon, max_contributions=plan.params.max_contributions)
    released = laplace.release_listed(table.texts.to_pylist(), counts, settings, key)
    return threshold.Heavy(table.fingerprints, released.counts, table.texts)


def bind(key: ReleaseKey, params: ReleaseParams) -> ReleaseKey:
    """The key under which a release with these parameters draws.

    Should one key ever meet two settings, their noise is independent instead of the same draws at two scales.
    """
    return key.bound_to("release", json.dumps(params.as_text(), sort_keys=True))


def _release(
    histogram: Histogram, params: ReleaseParams, path: str | Path | None, key: ReleaseKey, name: str
) -> Sketch:
    split = params.split
    sizes = expected_sizes(params)
    if sizes is None:
        sizes = release_sizes(Tally.of(histogram), split.size, params.max_contributions, key)
    plan = make_plan(params, sizes)
    plan.guarantee()
    shards = histogram.shards()
    heavy = threshold.Heavy.concat([threshold_part(i, part, plan, key) for i, part in enumerate(shards)])
    seeds = draw_seeds(key, plan.levels)
    target = Path(path) if path is not None else Path(tempfile.mkdtemp(prefix="hushgram-")) / "release.sketch"
    write_sketch(target, plan, seeds, heavy, _randomized(shards, plan, seeds, key), name)
    return Sketch.open(target)


def threshold_part(shard: int, part: Histogram, plan: Plan, key: ReleaseKey) -> threshold.Heavy:
    """Threshold release of one noise shard under a plan."""
    cells = part if plan.domain_bits is None else part.reduced(plan.domain_bits)
    return threshold.release_shard(
        shard, cells, bound=plan.bound, scale=plan.scale, domain_bits=plan.domain_bits, key=key
    )


def project_part(
    shard: int, part: Histogram, plan: Plan, seeds: NDArray[np.uint64], key: ReleaseKey
) -> list[NDArray[np.uint64]]:
    """Bits that one noise shard sets in each column under a plan. Private until randomized."""
    cells = part if plan.domain_bits is None else part.reduced(plan.domain_bits)
    reached = alp.round_shard(shard, cells, bound=plan.bound, width=plan.width, levels=plan.levels, key=key)
    return alp.project_shard(cells, reached, plan.column_sizes, seeds)


def _randomized(
    shards: list[Histogram], plan: Plan, seeds: NDArray[np.uint64], key: ReleaseKey
) -> Iterator[tuple[alp.Block, NDArray[np.uint8]]]:
    """Every block of every column after randomized response."""
    parts = [project_part(i, part, plan, seeds, key) for i, part in enumerate(shards)]
    for column, size in enumerate(plan.column_sizes):
        packed = np.zeros(size // 8, np.uint8)
        alp.set_bits(packed, np.concatenate([part[column] for part in parts]))
        for block in plan.blocks:
            if block.column == column:
                piece = packed[block.start // 8 : (block.start + block.bits) // 8]
                yield block, alp.randomize_block(block, piece, plan.flip, key)


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
