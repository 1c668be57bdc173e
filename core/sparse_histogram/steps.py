"""The steps of a release on one part of the data each: what the library and the Beam job have in common.

Left of a mechanism a part is exact and private; what `count_users`, `plan_release`, `select_keys`,
`count_listed` and `noisy_block` return is released.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hushgram.contributions.bounding import Contributions
from hushgram.contributions.histogram import NOISE_SHARDS, Histogram, KeyTable
from hushgram.contributions.keys import draw_seeds
from hushgram.encodings import CellPart, EncodedBlock
from hushgram.key_selection.threshold import Heavy, release_shard
from hushgram.noise.entropy import ReleaseKey
from hushgram.sensitivity import ExactVector
from hushgram.sparse_histogram.params import Params
from hushgram.sparse_histogram.plan import Plan, expected_sizes, listed_variance, make_plan
from hushgram.sparse_histogram.sizing import Sizes, Survey, release_sizes
from hushgram.sparse_histogram.spec import ReleaseSpec
from hushgram.sparse_histogram.users import choose, release_users, tally_users

__all__ = [
    "PlannedRelease", "count_listed", "count_users", "encode_counts", "noisy_block", "plan_release", "seeds_of",
    "select_keys", "tally_contributions",
]  # fmt: skip


@dataclass(frozen=True)
class PlannedRelease:
    """The plan, which is public, and the digest of all exact data, which is not: what all later steps need."""

    plan: Plan
    data_digest: bytes

    def noise_key(self, release_key: ReleaseKey) -> ReleaseKey:
        """Return the key of all noise of this release on these data."""
        return release_key.for_data(self.data_digest)


@lru_cache(maxsize=256)
def _variance_at(params: Params, chosen: int) -> Fraction:
    return listed_variance(params.with_contributions(chosen))


def tally_contributions(rows: Contributions, spec: ReleaseSpec) -> ExactVector:
    """Return how many of these users have how much, before they are bounded to C. Exact and private."""
    return tally_users(rows.totals(spec.loose_bounds), spec.params.user_ends)


def count_users(tally: ExactVector, spec: ReleaseSpec) -> Params:
    """Return the parameters with the histogram over all users, and what follows from it: C and rounds. Released."""
    params = spec.params
    params = params.with_users(release_users(tally, params.user_ends, params.split.users, spec.release_key))
    if not params.choose_contributions:
        return params
    assert params.users is not None
    return params.with_contributions(
        choose(
            params.users, lambda c: _variance_at(spec.params, c), params.choices, named_first=params.weighted
        )
    )


def plan_release(
    survey: Survey | None,
    spec: ReleaseSpec,
    params: Params | None = None,
    *,
    shards: int = NOISE_SHARDS,
) -> PlannedRelease:
    """Return the plan for the survey of all of so many shards, by noisy sizes unless the parameters state them.

    Raises where a privacy map does not hold, before anything else is drawn. ``params`` are those with what was chosen
    from the data, where anything was.
    """
    params = params or spec.params
    data_digest = bytes(32) if survey is None else survey.data_digest(shards)
    sizes = expected_sizes(params)
    if survey is None:
        sizes = Sizes(0, 0, (), Fraction(0))
    elif sizes is None:
        noise_key = spec.release_key.for_data(data_digest)
        sizes = release_sizes(survey, params.split.size, params.sensitivity, noise_key)
    assert sizes is not None
    plan = make_plan(params, sizes)
    plan.guarantee()
    return PlannedRelease(plan, data_digest)


def seeds_of(plan: Plan, release_key: ReleaseKey) -> NDArray[np.uint64]:
    """Return public seeds of the hash functions that place the keys; they follow from the release key alone."""
    return draw_seeds(release_key, 0 if plan.layout is None else plan.layout.hashes)


def select_keys(
    shard: int, part: Histogram, planned: PlannedRelease, release_key: ReleaseKey, shards: int = NOISE_SHARDS
) -> tuple[Heavy, Histogram]:
    """Return the keys of one of so many noise shards whose noisy count reaches the threshold, which are released; and
    what passes on of all others to the encoding, which is exact and private."""
    plan = planned.plan
    bits = plan.domain_bits if plan.top is None else plan.top.domain_bits
    return release_shard(
        shard,
        plan.selection.cells(part, bits).admit(plan.listed_sensitivity),
        threshold=plan.threshold,
        noise=plan.noise,
        scale=plan.scale,
        domain_bits=plan.domain_bits,
        release_key=planned.noise_key(release_key),
        shards=shards,
        top=plan.top,
        passes=plan.chained,
    )


def count_listed(
    shard: int, part: Histogram, listed: KeyTable, plan: Plan, release_key: ReleaseKey, data_digest: bytes
) -> Heavy:
    """Return the noisy counts of the selected or public keys of one noise shard, also of those that count 0. Released.

    All keys of the part are listed. Public keys have a release key of their own (`ReleaseSpec.public_key_noise`).
    """
    part.admit(plan.sensitivity)
    counts = np.zeros(len(listed.texts), np.int64)
    if len(part):
        counts[listed.places(part)] = part.counts
    source = release_key.for_data(data_digest).source("selected counts", shard, part.digest())
    noisy = counts + plan.noise.sample(plan.scale, len(counts), source)
    return Heavy(listed.fingerprints, noisy, listed.texts)


def encode_counts(
    shards: Iterable[tuple[int, Histogram]], planned: PlannedRelease, release_key: ReleaseKey
) -> Iterator[tuple[int, CellPart]]:
    """Yield what noise shards add to each block of the encoding. Exact and private until released.

    ``shards`` are those of the histogram, or of what passes on (`select_keys`).
    """
    plan = planned.plan
    assert plan.layout is not None
    cells = ((shard, plan.encoded_cells(part)) for shard, part in shards if len(part))
    return plan.layout.project(cells, seeds_of(plan, release_key), planned.noise_key(release_key))


def noisy_block(
    block: int, parts: Iterable[CellPart], planned: PlannedRelease, release_key: ReleaseKey
) -> EncodedBlock:
    """Return all parts of a block together, with noise on every cell. Released."""
    layout = planned.plan.layout
    assert layout is not None
    cells = layout.empty_block(block)
    for part in parts:
        layout.add(cells, part)
    return layout.release_block(block, cells, planned.noise_key(release_key))
