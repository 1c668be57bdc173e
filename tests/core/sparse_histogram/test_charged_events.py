"""ρ of a release, as the ledger is charged: from its own noise scales, and never below what they cost."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import hushgram as hg
from hushgram.accounting import Event
from hushgram.key_selection.weighted import WHOLE, new_key_delta
from hushgram.noise.zcdp import zcdp_delta
from hushgram.sparse_histogram.params import Params, ReleaseParams, Threshold, Weights
from hushgram.sparse_histogram.plan import (
    expected_sizes,
    make_plan,
    make_public_plan,
    metrics_events,
    release_events,
)
from hushgram.sparse_histogram.spec import metric_specs

SIZES = {"sizes": (100_000, 10_000)}


def resolved(selection: Threshold | Weights | None = None, *, public: bool = False, **changes: Any) -> Params:
    stated = {
        "epsilon": 1,
        "delta": "1e-6",
        "max_contributions": 8,
        "selection": selection,
        **SIZES,
        **changes,
    }
    return ReleaseParams(**stated).resolve(public=public)


def noisy(params: Params) -> Event:
    events, plain = release_events(params, charged=True), release_events(params)
    assert [(e.kind, e.epsilon, e.delta) for e in events] == [(e.kind, e.epsilon, e.delta) for e in plain]
    return max(events, key=lambda event: (event.version, event.epsilon))


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_weighted_selection_states_its_vector_its_rounds_and_its_thresholds(rounds: int) -> None:
    params = resolved(Weights(max_keys=20, rounds=rounds))
    sizes = expected_sizes(params)
    assert sizes is not None
    plan, event = make_plan(params, sizes), noisy(params)
    assert (event.kind, event.version) == ("weighted-selection", 2)
    assert plan.rounds is not None
    exact = sum(Fraction(WHOLE**2) / (2 * each.scale**2) for each in plan.rounds.rounds)
    exact += Fraction(8) / (2 * plan.scale**2)  # of counts and buckets together
    new = sum(new_key_delta(each.threshold, each.scale, 20) for each in plan.rounds.rounds)
    assert exact < event.cost.rho <= exact + 2 * params.delta
    assert event.cost.rho_delta == min(new, params.delta)
    # and it is not too small: zCDP of the vectors alone costs what GDP says, or more
    assert zcdp_delta(event.cost.rho, event.epsilon) > params.delta - event.cost.rho_delta


def test_c_chosen_from_the_data_is_charged_for_the_worst_choice() -> None:
    auto = resolved(Weights(rounds=2), max_contributions="auto")
    chosen = max(noisy(auto.with_contributions(c)).cost.rho for c in auto.choices)
    assert noisy(auto).cost.rho >= chosen


def test_rounds_that_are_yet_to_be_chosen_are_charged_as_the_worst() -> None:
    params = resolved(Weights(max_keys=20))
    assert params.choose_rounds
    each = [noisy(params.with_rounds(number)) for number in (1, 2, 3)]
    event = noisy(params)
    assert event.cost.rho == max(one.cost.rho for one in each)
    assert event.cost.rho_delta == max(one.cost.rho_delta for one in each)
    events = release_events(params, charged=True)
    assert (events[0].kind, events[0].epsilon) == ("contributions", Fraction(1, 100))
    assert sum(one.epsilon for one in events) == 1


def test_metrics_that_share_a_selection_are_charged_for_it_once() -> None:
    """By ρ of all of their vectors."""
    half = ReleaseParams(
        epsilon="1/2", delta="1e-6", max_contributions=8, selection=Weights(rounds=2), **SIZES
    )
    specs = metric_specs({"a": hg.Metric(half), "b": hg.Metric(half)}, user="user")[1]
    params = [spec.params for spec in specs.values()]
    users, event, others = metrics_events(params, charged=True)
    for each in (users, others):
        assert (each.kind, each.epsilon) == ("contributions", Fraction(1, 200))
    assert (event.kind, event.epsilon, event.delta) == (
        "weighted-selection",
        Fraction(99, 100),
        Fraction(2, 10**6),
    )
    selection, scales = params[0].gaussian.selection, [each.gaussian.scale for each in params]
    exact = sum(Fraction(WHOLE**2) / (2 * each.scale**2) for each in selection.rounds)
    exact += sum(Fraction(8) / (2 * scale**2) for scale in scales)
    assert exact < event.cost.rho <= exact + 4 * half.delta


def test_public_keys_are_c_small_mechanisms_or_one_gaussian_vector() -> None:
    """Laplace noise: C parts of ε/C each, so ρ = ε²/2C, and no δ."""
    assert noisy(resolved(public=True, delta=0)).cost == (1, 0, Fraction(1, 16), 0)
    gaussian = resolved(public=True, max_contributions=100)
    scale = make_public_plan(gaussian, 10).scale
    assert noisy(gaussian).cost == (1, gaussian.delta, 100 / (2 * scale**2), 0)


@pytest.mark.parametrize(
    "params",
    [resolved(delta=0), resolved(Threshold()), resolved(max_contributions=1), resolved(preset="paper")],
)
def test_a_threshold_states_no_rho(params: Params) -> None:
    """All keys of a user may share a fingerprint or a bit, also where others are named."""
    assert {event.version for event in release_events(params, charged=True)} == {1}
