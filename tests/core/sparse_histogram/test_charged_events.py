"""ρ of a release, as the ledger is charged: from its own noise scales, and never below what they cost."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from hushgram.accounting import Event
from hushgram.key_selection.weighted import WHOLE, new_key_delta
from hushgram.noise.zcdp import zcdp_delta
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.plan import expected_sizes, make_plan, make_public_plan, release_events

SIZES = {"expected_records": 100_000, "expected_keys": 10_000}


def noisy(params: ReleaseParams, **options: bool) -> Event:
    events = release_events(params, "user", charged=True, **options)
    plain = release_events(params, "user", **options)
    assert [(e.kind, e.epsilon, e.delta) for e in events] == [(e.kind, e.epsilon, e.delta) for e in plain]
    return max(events, key=lambda event: (event.version, event.epsilon))


@pytest.mark.parametrize("rounds", [1, 2])
def test_weighted_selection_states_all_vectors_and_its_thresholds(rounds: int) -> None:
    params = ReleaseParams(
        epsilon=1, delta="1e-6", max_contributions=8, selection_rounds=rounds, max_keys_selection=20, **SIZES
    )
    sizes = expected_sizes(params)
    assert sizes is not None
    plan, event = make_plan(params, sizes), noisy(params)
    assert (event.kind, event.version) == ("weighted-selection", 2)
    assert plan.rounds is not None
    assert plan.layout is not None
    of_cells = plan.layout.noise_scale
    assert of_cells is not None
    exact = sum(Fraction(WHOLE**2) / (2 * each.scale**2) for each in plan.rounds.rounds)
    exact += sum(Fraction(8) / (2 * scale**2) for scale in (plan.scale, of_cells))
    new = sum(new_key_delta(each.threshold, each.scale, 20) for each in plan.rounds.rounds)
    assert exact < event.cost.rho <= exact + 2 * params.delta
    assert event.cost.rho_delta == min(new, params.delta)
    # and it is not too small: zCDP of the vectors alone costs what GDP says, or more
    assert zcdp_delta(event.cost.rho, event.epsilon) > params.delta - event.cost.rho_delta


def test_c_chosen_from_the_data_is_charged_for_the_worst_choice() -> None:
    auto = ReleaseParams(epsilon=1, delta="1e-6", max_contributions="auto", **SIZES)
    chosen = max(noisy(auto.with_contributions(c)).cost.rho for c in auto.choices)
    assert noisy(auto).cost.rho >= chosen


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_threshold_on_counts_states_rho(noise: str) -> None:
    params = ReleaseParams(
        epsilon=1,
        delta="1e-6",
        max_contributions=8,
        key_selection="threshold",
        encoding="alp",
        optimize="totals",
        noise=noise,
        **SIZES,
    )
    sizes = expected_sizes(params)
    assert sizes is not None
    plan, event = make_plan(params, sizes), noisy(params)
    assert 0 < event.cost.rho - Fraction(8) / (2 * plan.scale**2) <= 2 * params.delta
    assert event.cost.rho_delta <= params.delta
    assert event.cost.rho < event.epsilon**2 / 2


def test_public_keys_with_laplace_noise_are_c_small_mechanisms() -> None:
    """C parts of ε/C each: ρ = ε²/2C, and no δ."""
    params = ReleaseParams(epsilon=1, max_contributions=8)
    event = noisy(params, public=True)
    assert event.cost == (1, 0, Fraction(1, 16), 0)
    gaussian = ReleaseParams(epsilon=1, delta="1e-6", max_contributions=100).for_public_keys("test")
    scale = make_public_plan(gaussian, 10).scale
    assert noisy(gaussian, public=True).cost == (1, gaussian.delta, 100 / (2 * scale**2), 0)


@pytest.mark.parametrize(
    "choice", [{}, {"delta": "1e-6", "key_selection": "threshold", "encoding": "alp", "noise": "laplace"}]
)
def test_fingerprints_state_no_rho(choice: dict[str, Any]) -> None:
    """All keys of a user may share a fingerprint, also where others are named."""
    params = ReleaseParams(epsilon=1, max_contributions=8, **choice, **SIZES)
    assert {event.version for event in release_events(params, "user", charged=True)} == {1}


@pytest.mark.parametrize("split", [None, "auto"])
def test_what_is_yet_to_be_chosen_is_charged_as_the_worst(split: str | None) -> None:
    params = ReleaseParams(
        epsilon=1, delta="1e-6", max_contributions=8, max_keys_selection=20, encoding="none", split=split
    )
    assert params.choose_rounds
    both = [*params.branches(1), *params.branches(2)]
    assert len(both) == (2 if split is None else 8)
    event = noisy(params)
    assert event.cost.rho == max(noisy(each).cost.rho for each in both)
    assert event.cost.rho_delta == max(noisy(each).cost.rho_delta for each in both)
    events = release_events(params, "user", charged=True)
    assert (events[0].kind, events[0].epsilon) == ("contributions", Fraction(1, 200))
    assert sum(each.epsilon for each in events) == 1
