"""The list first: domain and threshold follow from public numbers, within their room, and serve lookups."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import hushgram as hg
from hushgram.noise.noises import noise_of
from hushgram.release_in_memory import simulate
from hushgram.sparse_histogram.list_choice import MOST_FALSE, ListChoice, choose_list
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.plan import Plan, make_plan
from hushgram.sparse_histogram.selection import CELLS_PER_KEY
from hushgram.sparse_histogram.sizing import PROFILE_GRID, Sizes


def zipf(keys: int, records: float, exponent: float = 1.1) -> np.ndarray[Any, np.dtype[np.int64]]:
    weight = np.arange(1, keys + 1) ** -exponent
    return np.maximum(1, np.rint(records * weight / weight.sum())).astype(np.int64)


def choice(counts: Any, scale: Fraction = Fraction(8), bits: int = 8, **changes: Any) -> ListChoice:
    counts = np.asarray(counts)
    profile = tuple(int((counts >= t).sum()) for t in PROFILE_GRID)
    asked: dict[str, Any] = {
        "scale": scale, "keys": len(counts), "records": int(counts.sum()), "profile_at": PROFILE_GRID,
        "profile": profile, "noise": Fraction(500), "bits": Fraction(bits * len(counts)),
        "least_false": Fraction(3 * len(counts), 100), "most_cells": CELLS_PER_KEY,
    }  # fmt: skip
    return choose_list(**{**asked, **changes})


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(8), Fraction(400)])
@pytest.mark.parametrize("stated", [False, True])
def test_a_list_fits_its_room_or_has_few_false_entries(scale: Fraction, stated: bool) -> None:
    counts = zipf(30_000, 4e5)
    changes = {"profile_at": (), "profile": (), "noise": Fraction(0)} if stated else {}
    found = choice(counts, scale, **changes)
    law = noise_of("laplace").law(float(scale))
    false = 2.0**found.domain_bits * float(law.tail(np.array([float(found.threshold)]))[0])
    assert false <= 0.131 * len(counts) or found.bits <= 8 * len(counts)
    assert false <= MOST_FALSE
    assert 32 * len(counts) <= 2**found.domain_bits <= 2 * CELLS_PER_KEY * len(counts)


def test_a_heavy_tail_has_a_top_list_and_more_room_a_lower_threshold() -> None:
    light, heavy = np.random.default_rng(1).integers(1, 120, 30_000), zipf(30_000, 4e5)
    empty = choice(light).top  # it costs nothing, and may come first where nothing is in it
    assert empty is None or empty.threshold > light.max() + 12 * 8
    top = choice(heavy).top
    assert top is not None
    assert choice(heavy).threshold + 90 < top.threshold
    assert choice(heavy).domain_bits <= choice(light).domain_bits  # nothing large is in its cells
    assert choice(heavy, bits=24).threshold < choice(heavy).threshold
    small = choice(light, most_cells=32)
    assert small.domain_bits < choice(light).domain_bits
    assert small.error > choice(light).error


def test_released_sizes_of_any_sign_have_a_plan_that_can_be_read_back() -> None:
    params = ReleaseParams(epsilon="1", max_contributions=8).resolve("record")
    for records, keys in ((-5000, -3000), (0, 0), (10**9, 5), (10**12, 10**9), (1, 10**9)):
        rng = np.random.default_rng(keys % 7)
        profile = (keys, *(int(n) for n in rng.integers(-3000, 3000, len(PROFILE_GRID) - 1)))
        sizes = Sizes(records, keys, profile, Fraction(3200, 3))
        plan = make_plan(params, sizes)
        assert plan.guarantee().epsilon == 1
        assert Plan.from_dict(plan.to_dict()) == plan


def test_lookups_and_totals_gain_from_what_the_list_passes_on() -> None:
    """Beside a release that divides ε between list and encoding."""
    counts, errors, widths = zipf(20_000, 4e5), {}, {}
    middle, rare = np.flatnonzero((counts > 100) & (counts <= 1000)), np.flatnonzero(counts <= 10)[:5000]
    for preset in (None, "paper"):
        params = ReleaseParams(epsilon="1", max_contributions=8, preset=preset)
        sketch = simulate(np.arange(len(counts)), counts, params, release_key=hg.ReleaseKey(bytes(32)))
        estimates = sketch.estimate(middle, interval=None)["estimate"].to_numpy()
        errors[preset] = float(np.sqrt(np.mean((estimates - counts[middle]) ** 2)))
        total = sketch.total(rare)
        widths[preset] = total.high - total.low
    assert errors[None] < 16 < 50 < errors["paper"]
    assert widths[None] < widths["paper"] / 2


@pytest.mark.parametrize("kind", ["even", "few kinds", "tail"])
def test_error_and_bits_are_predicted(kind: str) -> None:
    rng, keys = np.random.default_rng(5), 20_000
    counts = {"even": rng.integers(1, 201, keys), "few kinds": rng.choice([4, 30, 90], keys),
              "tail": np.ceil(rng.lognormal(2, 1.3, keys)).astype(np.int64)}[kind]  # fmt: skip
    params, names = (
        ReleaseParams(epsilon="1", max_contributions=8),
        np.arange(2 * keys),
    )  # half of them absent
    # What is predicted and what is seen, in releases with noisy sizes of their own. (In one of ten, noise hides the
    # tail, and the plan is for small counts alone: of releases 0 to 4 two are such.)
    errors, bits = [], []
    for number in range(5, 9):
        sketch = simulate(names[:keys], counts, params, release_key=hg.ReleaseKey(bytes([number] * 32)))
        estimates = sketch.estimate(names, estimator="posterior", interval=None)["estimate"].to_numpy()[:keys]
        sizes = sketch.plan.sizes
        found = choose_list(
            scale=Fraction(1600, 197), keys=sizes.keys, records=sizes.records,
            profile_at=PROFILE_GRID, profile=sizes.profile, noise=sizes.scale,
            bits=params.resolve().list_bits * sizes.keys,
            least_false=Fraction(3, 100) * sizes.keys, most_cells=CELLS_PER_KEY,
        )  # fmt: skip
        assert (found.domain_bits, found.threshold, found.top) == (
            sketch.plan.domain_bits, sketch.plan.threshold, sketch.plan.top
        )  # fmt: skip
        errors.append((float(found.error), float(np.mean((estimates - counts) ** 2))))
        listed = next(entry.size for entry in sketch.manifest.files if entry.name.startswith("heavy"))
        bits.append((float(found.bits), 8 * listed))
    predicted, seen = np.mean(errors, axis=0) ** 0.5
    assert seen == pytest.approx(predicted, rel=0.25)
    predicted, seen = np.mean(bits, axis=0)
    assert seen == pytest.approx(predicted, rel=0.15)


def test_few_keys_have_room_for_a_low_threshold() -> None:
    counts = np.random.default_rng(6).integers(1, 201, 2000)
    sizes = Sizes(
        int(counts.sum()), 2000, tuple(int((counts >= t).sum()) for t in PROFILE_GRID), Fraction(500)
    )
    params = ReleaseParams(epsilon="1", max_contributions=8).resolve()
    many = tuple(50 * n for n in sizes.profile)
    assert (
        make_plan(params, sizes).threshold + 8
        < make_plan(params, Sizes(50 * sizes.records, 100_000, many, Fraction(500))).threshold
    )
