"""The steps of a release on one part of the data each: what the library and the Beam job have in common.

Left of a mechanism a part is exact and private; what `choose_contributions`, `plan_release`, `select_keys`,
`count_listed` and `noisy_block` return is released.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hushgram.contributions.bounding import Contributions
from hushgram.contributions.histogram import NOISE_SHARDS, Histogram, KeyTable
from hushgram.contributions.keys import draw_seeds
from hushgram.encodings import CellPart, EncodedBlock
from hushgram.key_selection.threshold import Heavy, release_shard
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.sensitivity import ExactVector
from hushgram.sparse_histogram import kept_share
from hushgram.sparse_histogram.contribution_bounds import UserTally, UserTotals, choose, release_totals
from hushgram.sparse_histogram.kept_share import KeptShare
from hushgram.sparse_histogram.params import Params
from hushgram.sparse_histogram.plan import Plan, expected_sizes, listed_variance, make_plan
from hushgram.sparse_histogram.sizing import Sizes, Survey, release_sizes
from hushgram.sparse_histogram.spec import ReleaseSpec

__all__ = [
    "ChosenParams", "PlannedRelease", "choose_contributions", "count_listed", "count_users", "encode_counts",
    "noisy_block", "plan_release", "release_kept", "seeds_of", "select_keys", "tally_kept",
]  # fmt: skip


@dataclass(frozen=True)
class PlannedRelease:
    """The plan, which is public, and the digest of all exact data, which is not: what all later steps need."""

    plan: Plan
    data_digest: bytes

    def noise_key(self, release_key: ReleaseKey) -> ReleaseKey:
        """Return the key of all noise of this release on these data."""
        return release_key.for_data(self.data_digest)


@dataclass(frozen=True)
class ChosenParams:
    """Parameters with what was chosen from the data, C or rounds, and the released numbers that it follows from."""

    params: Params
    totals: UserTotals | None = None
    users: UserTotals | None = None

    @classmethod
    def by_users(cls, users: UserTotals, params: Params) -> ChosenParams:
        """Return the parameters with the number of rounds that suits users with so many keys."""
        return cls(params.with_rounds(users.rounds()), users=users)

    def of_metric(self, params: Params) -> ChosenParams:
        """Return the same choice for a metric that shares the selection."""
        return replace(self, params=params.with_rounds(self.params.rounds))


@lru_cache(maxsize=256)
def _variance_at(params: Params, chosen: int) -> Fraction:
    return listed_variance(params.with_contributions(chosen))


def count_users(tally: UserTally, spec: ReleaseSpec) -> ChosenParams:
    """Return what follows from noisy numbers of users by open keys, and these. Released."""
    noise_key = spec.release_key.for_data(digest("keys per user", tally.users))
    return ChosenParams.by_users(release_totals(tally, spec.params.users_epsilon, noise_key), spec.params)


def choose_contributions(
    tally: UserTally, spec: ReleaseSpec, before: ChosenParams | None = None
) -> ChosenParams:
    """Return the C with the least error, from exact totals of all users. Released. ``before`` is what was chosen."""
    before = ChosenParams(spec.params) if before is None else before
    params = before.params
    noise_key = spec.release_key.for_data(digest("contributions", tally.users))
    totals = release_totals(tally, params.split.contributions, noise_key)
    chosen = choose(totals, lambda c: _variance_at(params, c), params.choices)
    return ChosenParams(params.with_contributions(chosen), totals, before.users)


def tally_kept(rows: Contributions, spec: ReleaseSpec, chosen: ChosenParams | None = None) -> ExactVector:
    """Return what these users have before and after bounding. Exact and private."""
    bounds = spec.bounds(None if chosen is None else chosen.params)
    return kept_share.tally_kept(rows, replace(bounds, key_classes=None))


def release_kept(tally: ExactVector, spec: ReleaseSpec) -> KeptShare:
    """Return what all users have before and after bounding, with noise. Released."""
    return kept_share.release_kept(tally, spec.params.split.kept, spec.release_key)


def plan_release(
    survey: Survey | None,
    spec: ReleaseSpec,
    chosen: ChosenParams | None = None,
    kept: KeptShare | None = None,
    *,
    shards: int = NOISE_SHARDS,
) -> PlannedRelease:
    """Return the plan for the survey of all of so many shards, by noisy sizes unless the parameters state them.

    Raises where a privacy map does not hold, before anything else is drawn. With ``chosen``, its parameters are used;
    ``kept`` is a part of the plan as it is.
    """
    params = spec.params if chosen is None else chosen.params
    data_digest = bytes(32) if survey is None else survey.data_digest(shards)
    sizes = expected_sizes(params)
    if survey is None:
        sizes = Sizes(0, 0, (), Fraction(0))
    elif sizes is None:
        noise_key = spec.release_key.for_data(data_digest)
        sizes = release_sizes(survey, params.split.size, params.sensitivity, noise_key)
    assert sizes is not None
    plan = replace(make_plan(params, sizes), kept=kept)
    if chosen is not None:
        plan = replace(plan, totals=chosen.totals, users=chosen.users)
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
