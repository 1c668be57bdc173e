"""The steps of a release on one part of the data each: what the library and the Beam job have in common.

Left of a mechanism a part is exact and private; what `heavy_of_shard`, `heavy_of_list` and `released_block` give is
released.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram import laplace_mechanism as laplace
from hushgram.encodings import EncodedBlock
from hushgram.encodings.encoding import Part
from hushgram.errors import InputError, ParameterError
from hushgram.exact.contributions import Apart, Bounds
from hushgram.exact.hashing import draw_seeds, mix
from hushgram.exact.histogram import Histogram, KeyTable
from hushgram.exact.identifiers import one_array
from hushgram.exact.keys import array_of, encode, hash_bytes
from hushgram.exact.weights import Grid
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.sensitivity import ONE_RECORD, ExactVector, Sensitivity, Unit
from hushgram.sparse_histogram.contributions import GRID, UserTally, UserTotals, choose, release_totals
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.plan import Plan, expected_sizes, listed_variance, make_plan
from hushgram.sparse_histogram.sizing import Survey, release_sizes
from hushgram.sparse_histogram.threshold import Heavy, release_shard

__all__ = [
    "ChosenParams", "PlannedRelease", "block_parts", "bounds", "checked_params", "choose_params",
    "count_records", "heavy_of_list", "heavy_of_shard", "held_bounds", "key_for", "only_public_keys",
    "plan_release", "public_key_table", "released_block", "seeds_of", "unit_of", "values_for",
]  # fmt: skip


# Sums without users are held in grains: 2^39 records of one key fit 64 bits.
_MOST_OF_A_RECORD = 1 << 12


def checked_params(params: object) -> ReleaseParams:
    """The parameters, where they are that; a forgotten or misplaced argument is said so."""
    if not isinstance(params, ReleaseParams):
        raise ParameterError(f"params must be ReleaseParams, got {type(params).__name__}")
    return params


def key_for(params: ReleaseParams, release_key: ReleaseKey | None) -> ReleaseKey:
    """The key under which a release with these parameters draws; a fresh one where none is given."""
    text = checked_params(params).as_text()
    return (release_key or ReleaseKey.generate()).for_parameters("release", text)


def values_for(params: ReleaseParams, values: object, users: object, what: str) -> Grid | None:
    """The grid of the values; a ParameterError where there are values and no grid, or the reverse."""
    if values is not None and users is None and params.max_per_key > _MOST_OF_A_RECORD:
        raise ParameterError(
            f"{what}: without users max_value must be at most {_MOST_OF_A_RECORD:,} units; raise unit"
        )
    if (params.unit is None) != (values is None):
        missing = "params with max_value and unit" if params.unit is None else "a column of values"
        raise ParameterError(f"{what}: adding up values needs {missing}")
    return params.grid


def count_records(
    keys: Any,
    weights: tuple[pa.Array, Grid] | None,
    release_key: ReleaseKey | None,
    *,
    texts: bool,
    rows: Sensitivity = ONE_RECORD,
) -> Histogram:
    """Without users: every row counts one, or its value in grains (`Histogram.in_units` when all are together).

    ``rows`` says how many rows one record may have.
    """
    if weights is None or release_key is None:
        return Histogram.of_counts(keys, None, texts=texts, sensitivity=rows)
    most = rows.times(weights[1].most)
    salt = release_key.source("rounding").words(1)[0]

    def draws() -> NDArray[np.uint64]:
        encoded = encode(keys)
        return mix(hash_bytes(encoded.values) ^ salt)[encoded.codes]

    return Histogram.of_counts(keys, weights[1].grains(weights[0], draws), texts=texts, sensitivity=most)


def unit_of(users: object) -> Unit:
    """Who is protected: a user where there are users (a column, or its name), else a record."""
    return "record" if users is None else "user"


@dataclass(frozen=True)
class PlannedRelease:
    """The plan, which is public, and the digest of all exact data, which is not: what all later steps need."""

    plan: Plan
    data_digest: bytes

    def noise_key(self, release_key: ReleaseKey) -> ReleaseKey:
        """The key of all noise of this release on these data."""
        return release_key.for_data(self.data_digest)


@dataclass(frozen=True)
class ChosenParams:
    """Parameters with a C that was chosen from the data, and the released numbers that it follows from."""

    params: ReleaseParams
    totals: UserTotals


@lru_cache(maxsize=256)
def _variance_at(params: ReleaseParams, chosen: int) -> Fraction:
    return listed_variance(params.with_contributions(chosen))


def choose_params(tally: UserTally, params: ReleaseParams, release_key: ReleaseKey) -> ChosenParams:
    """From exact totals of all users to the C with the least error. Released."""
    noise_key = release_key.for_data(digest("contributions", tally.users))
    totals = release_totals(tally, params.split.contributions, noise_key)
    candidates = [chosen for chosen in GRID if chosen >= params.max_per_key]
    chosen = choose(totals, lambda c: _variance_at(params, c), candidates)
    return ChosenParams(params.with_contributions(chosen), totals)


def plan_release(
    survey: Survey,
    params: ReleaseParams,
    release_key: ReleaseKey,
    unit: Unit = "user",
    totals: UserTotals | None = None,
) -> PlannedRelease:
    """From the survey of all shards to the plan, by noisy sizes unless ``params`` state them.

    Raises where a privacy map does not hold, before anything else is drawn.
    """
    data_digest = survey.data_digest()
    sizes = expected_sizes(params)
    if sizes is None:
        noise_key = release_key.for_data(data_digest)
        most = replace(params.sensitivity, unit=unit)
        sizes = release_sizes(survey, params.split.size, most, noise_key)
    plan = replace(make_plan(params, sizes, unit), totals=totals)
    plan.guarantee()
    return PlannedRelease(plan, data_digest)


def seeds_of(plan: Plan, release_key: ReleaseKey) -> NDArray[np.uint64]:
    """Public seeds of the hash functions that place the keys; they follow from the release key alone."""
    return draw_seeds(release_key, 0 if plan.space is None else plan.space.hashes)


def held_bounds(params: ReleaseParams) -> Bounds:
    """What a user may contribute at most, before C and the classes of keys are known."""
    return Bounds(params.max_contributions, params.max_per_key, weighted=params.unit is not None)


def bounds(params: ReleaseParams, release_key: ReleaseKey) -> Bounds:
    """What a user may contribute, with the classes of keys where the noise needs them."""
    count = 0 if params.choose_contributions else params.sensitivity.classes
    apart = Apart(draw_seeds(release_key, 1)[0], count) if count else None
    return replace(held_bounds(params), apart=apart)


def heavy_of_shard(shard: int, part: Histogram, planned: PlannedRelease, release_key: ReleaseKey) -> Heavy:
    """Threshold release of one noise shard. Released."""
    plan = planned.plan
    return release_shard(
        shard,
        plan.kind.cells(part, plan.domain_bits).admit(plan.listed_sensitivity),
        threshold=plan.threshold,
        noise=plan.noise,
        scale=plan.scale,
        domain_bits=plan.domain_bits,
        release_key=planned.noise_key(release_key),
    )


def block_parts(
    shards: Iterable[tuple[int, Histogram]], planned: PlannedRelease, release_key: ReleaseKey
) -> Iterator[tuple[int, Part]]:
    """What noise shards add to each block of the encoding. Exact and private until released."""
    plan = planned.plan
    assert plan.space is not None
    cells = (
        (shard, plan.kind.cells(part.admit(plan.sensitivity), plan.domain_bits))
        for shard, part in shards
        if len(part)
    )
    return plan.space.project(cells, seeds_of(plan, release_key), planned.noise_key(release_key))


def released_block(
    block: int, parts: Iterable[Part], planned: PlannedRelease, release_key: ReleaseKey
) -> EncodedBlock:
    """All parts of a block together, with noise on every cell. Released."""
    space = planned.plan.space
    assert space is not None
    cells = space.empty_block(block)
    for part in parts:
        space.add(cells, part)
    return space.release_block(block, cells, planned.noise_key(release_key))


# --- a public list ----------------------------------------------------------------------------------------------


def public_key_table(keys: Any) -> KeyTable:
    """A public list of distinct keys in canonical order."""
    encoded = encode(keys, "public keys")
    if not len(encoded.values):
        raise InputError("public keys: the list is empty; name at least one key")
    if len(encoded.values) != len(encoded.codes):
        raise InputError("public keys: a key is listed twice; list each key once")
    return KeyTable.build(encoded.values)[0]


def only_public_keys(keys: Any, table: KeyTable, *beside: Any) -> tuple[Any, ...]:
    """The rows whose key is in the list: keys as canonical bytes, and other columns (or None) beside them."""
    encoded = encode(keys)
    inside = pc.is_in(encoded.values, value_set=table.texts).to_numpy(zero_copy_only=False)[encoded.codes]
    rows = pa.array(np.flatnonzero(inside))
    others = (
        None if column is None else one_array(array_of(column, "users")).take(rows) for column in beside
    )
    return encoded.values.take(pa.array(encoded.codes[inside])), *others


def heavy_of_list(histogram: Histogram, table: KeyTable, plan: Plan, release_key: ReleaseKey) -> Heavy:
    """Noisy counts of all keys of a public list, in its order. Released."""
    counts = np.zeros(len(table.texts), np.int64)
    if len(histogram):
        places = pc.index_in(histogram.texts, value_set=table.texts).to_numpy(zero_copy_only=False)
        counts[places] = histogram.counts
    settings = laplace.LaplaceParams(plan.params.epsilon, max_contributions=plan.params.max_contributions)
    noise_key = release_key.for_data(digest("public list", counts))
    exact = ExactVector(counts, histogram.sensitivity)
    released = laplace.release_listed(table.texts.to_pylist(), exact, settings, noise_key, plan.unit)
    return Heavy(table.fingerprints, released.counts, table.texts)
