"""Sparse vector parameters: scales, privacy map, and refusals that name the field."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from hushgram.accounting.composition import calibrated_run_epsilon, composed_delta
from hushgram.errors import ParameterError
from hushgram.mechanisms.svt import SvtParams, alpha, privacy_map, run_loss


def make(**changes):
    return SvtParams(**{"epsilon": "1", "threshold": 100, **changes})


def loss_of(params):
    return privacy_map(
        params.noise, sensitivity=params.sensitivity, cutoff=params.cutoff, monotone=params.monotone
    )


@pytest.mark.parametrize("cutoff", [1, 2, 7, 50, 1000])
@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("answers", ["none", "gap", "numeric"])
def test_optimal_split_spends_exactly_epsilon(cutoff, monotone, answers):
    params = make(cutoff=cutoff, monotone=monotone, answers=answers, sensitivity=3)
    assert loss_of(params) == params.epsilon


@pytest.mark.parametrize("cutoff", [1, 2, 7, 50])
def test_notes_spend_exactly_epsilon(cutoff):
    params = make(cutoff=cutoff, variant="dwork-roth", sensitivity=2, answers="numeric")
    assert loss_of(params) == params.epsilon
    assert params.noise.query == 2 * params.noise.threshold


def test_scales_of_the_notes():
    assert make(variant="dwork-roth").noise.threshold == 2  # 2Δ/ε
    assert make(variant="dwork-roth").noise.query == 4
    assert make(variant="dwork-roth", cutoff=5, sensitivity=3, epsilon="1/2").noise.threshold == 60
    sigma = make(variant="dwork-roth", cutoff=5, delta="1e-6").noise.threshold
    exact = math.sqrt(32 * 5 * math.log(1e6))
    assert exact <= float(sigma) < exact * 1.00001


@pytest.mark.parametrize("moves", [(1, True), (1, False), (40, True), (40, False)])
def test_split_minimises_the_spread(moves):
    cutoff, monotone = moves
    best = make(cutoff=cutoff, monotone=monotone).noise
    m = cutoff * (1 if monotone else 2)
    for share in (Fraction(i, 50) for i in range(1, 50)):
        other = (1 / share) ** 2 + (m / (1 - share)) ** 2
        assert best.spread <= other * Fraction(1001, 1000)


@pytest.mark.parametrize("delta", ["1e-9", "1e-6", "0.001", "0.1"])
@pytest.mark.parametrize("epsilon", ["0.1", "1", "5"])
@pytest.mark.parametrize("cutoff", [1, 3, 30, 300])
def test_calibrated_is_never_worse_than_the_notes(epsilon, delta, cutoff):
    optimal = make(epsilon=epsilon, delta=delta, cutoff=cutoff)
    notes = make(epsilon=epsilon, delta=delta, cutoff=cutoff, variant="dwork-roth")
    pure = make(epsilon=epsilon, cutoff=cutoff)
    assert optimal.noise.spread <= notes.noise.spread
    assert optimal.noise.spread <= pure.noise.spread
    assert alpha(optimal, 1000, "0.05") <= alpha(notes, 1000, "0.05")
    if optimal.noise.redraw:
        run = run_loss(optimal.noise, 1, monotone=False)
        assert composed_delta(run, cutoff, optimal.epsilon) <= optimal.delta
    else:
        assert loss_of(optimal) <= optimal.epsilon


def test_composition_formula_against_dp_accounting():
    """An independent path: dp-accounting's own fine grid, pessimistic, lies just above the exact sum."""
    from dp_accounting.pld import common, privacy_loss_distribution

    single = privacy_loss_distribution.from_privacy_parameters(
        common.DifferentialPrivacyParameters(0.25, 0), value_discretization_interval=1e-3
    )
    theirs = single.self_compose(10).get_delta_for_epsilon(1.0)
    ours = float(composed_delta(Fraction(1, 4), 10, Fraction(1)))
    assert ours == pytest.approx(theirs, rel=1e-2)


def test_composition_by_hand():
    """Two runs: only the outcome with both losses against us counts."""
    e = math.exp(0.8)
    by_hand = (e**2 - math.exp(1)) / (1 + e) ** 2
    assert float(composed_delta(Fraction(4, 5), 2, Fraction(1))) == pytest.approx(by_hand, rel=1e-12)
    assert calibrated_run_epsilon(Fraction(1), Fraction(0), 4) == Fraction(1, 4)


def test_validity_of_the_constant_is_checked():
    with pytest.raises(ParameterError, match=r"epsilon <= 4 ln\(1/delta\) = 0\.4214.*variant optimal"):
        make(delta="0.9", variant="dwork-roth")
    make(delta="0.9")  # the accountant has no such limit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": "0"}, "epsilon must be above 0"),
        ({"epsilon": "nan"}, "epsilon must be a finite number"),
        ({"cutoff": 0}, "cutoff must be from 1 to 20000, got 0"),
        ({"threshold": 1.5}, "threshold must be a whole number"),
        ({"delta": "1"}, "delta must be at least 0 and below 1, got 1"),
        ({"delta": "-1/2"}, "delta must be at least 0"),
        ({"variant": "best"}, "variant must be one of optimal, dwork-roth, got 'best'"),
        ({"answers": "all"}, "answers must be one of none, gap, numeric, got 'all'"),
        ({"answers": "numeric", "value_share": "1"}, "value_share must be above 0 and below 1"),
        ({"sensitivity": 0}, "sensitivity must be from 1"),
        ({"epsilon": "1e-15"}, "noise of scale .* would drown everything"),
        ({"epsilon": "1e-9", "sensitivity": 10**9}, "would drown everything"),
        ({"answers": "numeric", "value_share": "1e-16"}, "would drown everything"),
        ({"monotone": "no"}, "monotone must be True or False, got 'no'"),
        ({"monotone": 1}, "monotone must be True or False, got 1"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(ParameterError, match=message) as refused:
        make(**change)
    assert "\n" not in str(refused.value)


def test_description_is_exact_text():
    shown = make(cutoff=3, answers="numeric", epsilon="1/3").describe()
    assert shown["epsilon"] == "1/3"
    assert shown["noise"]["value_scale"] == "18"


@pytest.mark.parametrize("delta", ["1e-9", "0.001", "0.1", "0.5"])
@pytest.mark.parametrize("cutoff", [1, 2, 10, 200])
def test_the_constant_of_the_notes_holds_up_to_its_limit(delta, cutoff):
    """Their proof takes e^ε' − 1 for ε'; the exact composition at ε = 4 ln(1/δ) shows that the result stands."""
    epsilon = Fraction(4 * math.log(1 / float(Fraction(delta)))).limit_denominator(10**6) * Fraction(
        999, 1000
    )
    params = make(epsilon=epsilon, delta=delta, cutoff=cutoff, variant="dwork-roth")
    run = run_loss(params.noise, 1, monotone=False)
    assert composed_delta(run, cutoff, epsilon) <= params.delta
