"""Parameters check themselves, and plans follow from public numbers alone."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgram.encodings.alp import MAX_LEVELS, level_keys
from hushgram.errors import HushgramError, ParameterError
from hushgram.key_selection import threshold
from hushgram.noise.laplace import NOISE
from hushgram.noise.noises import NOISES, noise_of
from hushgram.numbers import rational, show
from hushgram.sparse_histogram.contribution_bounds import GRID, UserTotals
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.plan import (
    Plan,
    _layout_spec,
    expected_sizes,
    make_plan,
    make_public_plan,
    release_events,
)
from hushgram.sparse_histogram.selection import CELLS_PER_KEY, FINGERPRINTS
from hushgram.sparse_histogram.share_choice import choose_selection
from hushgram.sparse_histogram.sizing import PROFILE_GRID, Sizes


@pytest.mark.parametrize(
    ("given", "exact"),
    [
        ("0.1", Fraction(1, 10)),
        (0.1, Fraction(1, 10)),
        ("1/3", Fraction(1, 3)),
        ("1e-6", Fraction(1, 10**6)),
        (2, Fraction(2)),
        ("1_000", Fraction(1000)),
        (" .5", Fraction(1, 2)),
    ],
)
def test_numbers_are_exactly_what_was_written(given, exact):
    assert rational(given, "x", "T") == exact


@pytest.mark.parametrize(
    "bad",
    [
        "nan",
        "inf",
        "-inf",
        float("nan"),
        "",
        "abc",
        "1e-400",
        "1e999999999",
        "1/0",
        None,
        True,
        [1],
        "1" * 500,
        "0x10",
    ],
)
def test_bad_numbers_are_refused_in_one_line(bad):
    with pytest.raises(ParameterError) as caught:
        rational(bad, "epsilon", "ReleaseParams")
    assert "ReleaseParams: epsilon" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@given(st.fractions())
@settings(max_examples=100)
def test_show_reads_back(value):
    assert rational(show(value), "x", "T") == value


SIZED = {"expected_keys": 100, "expected_records": 1000}
BAD = [
    ({"epsilon": "0"}, "epsilon"),
    ({"epsilon": "-1"}, "epsilon"),
    ({"epsilon": "1e-400"}, "epsilon"),
    ({"epsilon": "nan"}, "epsilon"),
    ({"epsilon": "101"}, "epsilon"),
    ({"epsilon": "1e-10"}, "epsilon"),
    ({"delta": "1"}, "delta"),
    ({"delta": "-0.1"}, "delta"),
    ({"delta": "1e-70"}, "delta"),
    ({"alpha": "0"}, "alpha"),
    ({"alpha": "-3"}, "alpha"),
    ({"max_contributions": 0}, "max_contributions"),
    ({"max_contributions": 1.5}, "max_contributions"),
    ({"max_contributions": True}, "max_contributions"),
    ({"max_per_key": 9}, "max_per_key"),
    ({"max_per_key": 0}, "max_per_key"),
    ({"split": {"size": "0.1", "threshold": "0.1", "alp": "0.1"}}, "add up to 1"),
    ({"split": {"threshold": "1/2", "alp": "1/2"}}, "split.size"),
    ({"split": {"size": "0.5", "threshold": "0.5"}}, "more than 0"),
    ({"split": {"other": "1"}}, "unknown part"),
    ({"epsilon": "1e-9", "max_contributions": 1 << 20}, "too small for max_contributions"),
    ({"columns": "wide"}, "columns"),
    ({"width": "narrow"}, "width"),
    ({"bits_per_key": "0"}, "bits_per_key"),
    ({"false_keys": "0"}, "false_keys"),
    ({"false_keys": 1 << 30, "domain_bits": 64}, "false_keys"),
    ({"expected_keys": 1 << 49, "expected_records": 1 << 50}, "false_keys"),
    ({"epsilon": "1e-5", "max_contributions": 100}, "state expected_keys"),
    ({"alpha": "0.01", "optimize": "totals"}, "raise alpha"),
    (
        {"alpha": "1000", "epsilon": "1e-4", "max_contributions": 1 << 19, "optimize": "totals", **SIZED},
        "lower alpha",
    ),
    ({"split": {"size": "0.02", "threshold": "0.01", "alp": "0.97"}}, "larger share"),
    ({"domain_bits": 7}, "domain_bits"),
    ({"domain_bits": 65}, "domain_bits"),
    ({"expected_keys": 5}, "go together"),
    ({"expected_keys": 0, "expected_records": 5}, "expected_keys"),
    (
        {
            "expected_keys": 5,
            "expected_records": 5,
            "split": {"size": "0.2", "threshold": "0.4", "alp": "0.4"},
        },
        "split.size must be 0",
    ),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=lambda v: str(v)[:40])
def test_bad_parameters_name_the_field(change, message):
    with pytest.raises(ParameterError, match=message) as caught:
        ReleaseParams(**{"epsilon": "1", "max_contributions": 8, **change})
    assert str(caught.value).startswith("ReleaseParams: ")
    assert "\n" not in str(caught.value)


def test_params_round_trip_and_add_up():
    for params in (
        ReleaseParams(epsilon="1/3", max_contributions=8, max_per_key=2),
        ReleaseParams(
            epsilon="1",
            delta="1e-9",
            max_contributions=1,
            split={"size": "0.1", "threshold": "0.6", "alp": "0.3"},
        ),
        ReleaseParams.paper(epsilon=0.7, max_contributions=3, expected_keys=10, expected_records=100),
    ):
        again = ReleaseParams.from_dict(json.loads(json.dumps(params.to_dict())))
        assert again == params
        assert params.split.size + params.split.threshold + params.split.encoding == params.epsilon
    with pytest.raises(ParameterError, match="unknown parameter"):
        ReleaseParams.from_dict({"epsilon": "1", "max_contributions": 1, "epsilom": "2"})


def sizes_for(keys=1000, records=5000, scale=Fraction(100)):
    return Sizes(records, keys, tuple(max(keys // t, 0) for t in PROFILE_GRID), scale)


epsilons = st.sampled_from(["0.01", "0.1", "1", "3", "20"])


@given(
    epsilons,
    st.sampled_from(["0", "1e-9", "0.01"]),
    st.integers(1, 100),
    st.integers(1, 5),
    st.sampled_from(["0.5", "3", "10"]),
    st.integers(-(10**6), 10**9),
    st.lists(st.integers(-(10**4), 10**7), min_size=len(PROFILE_GRID), max_size=len(PROFILE_GRID)),
)
@settings(max_examples=60, deadline=None)
@pytest.mark.long
def test_any_released_sizes_give_a_plan(epsilon, delta, most, per_key, alpha, records, profile):
    """Data never decide whether we fail: noise may make sizes negative, huge or crooked."""
    try:
        params = ReleaseParams(
            epsilon=epsilon,
            delta=delta,
            max_contributions=most,
            max_per_key=min(per_key, most),
            alpha=alpha,
            key_selection="threshold",
        )
    except ParameterError:
        return  # refused before any data
    sizes = Sizes(records, profile[0], tuple(profile), 2 * most / params.split.size)
    plan = make_plan(params, sizes)
    guarantee = plan.guarantee()
    assert (guarantee.epsilon, guarantee.delta) == (params.epsilon, params.delta)
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    assert all(size % 64 == 0 and 0 < size <= 1 << 32 for size in plan.layout.column_sizes)
    cap = plan.remainder.most if plan.chained else plan.threshold
    assert plan.layout.levels == math.ceil(cap / plan.layout.width) <= (1 if plan.chained else MAX_LEVELS)


@pytest.mark.parametrize("delta", ["1e-60", "1e-57", "1e-30"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_smallest_delta_has_a_plan_that_holds(delta, noise):
    params = ReleaseParams(
        epsilon="1", delta=delta, max_contributions=8, noise=noise, selection_rounds=2, **SIZED
    )
    assert make_plan(params, expected_sizes(params)).guarantee().delta == params.delta


@pytest.mark.parametrize("false_keys", ["0.03", "5"])
@pytest.mark.parametrize("domain_bits", [None, 40])
def test_no_number_of_keys_leads_to_a_higher_threshold(false_keys, domain_bits):
    params = ReleaseParams(epsilon="1", max_contributions=3, false_keys=false_keys, domain_bits=domain_bits)
    scale = make_plan(params, sizes_for(scale=Fraction(300))).scale
    highest = FINGERPRINTS.highest_threshold(params, NOISE, scale)
    keys = [16, 17, 1000, 1 << 30, 1 << 50, *((1 << b) // CELLS_PER_KEY + 1 for b in range(20, 63, 3))]
    found = [FINGERPRINTS.threshold(params, n, NOISE, scale)[1] for n in keys]
    assert max(found) <= highest <= max(found) + 3


def test_guarantee_is_computed_not_restated():
    plan = make_plan(ReleaseParams(epsilon="1", max_contributions=8), sizes_for(scale=Fraction(3200, 3)))
    from dataclasses import replace

    for broken in (
        replace(plan, scale=plan.scale / 2),
        replace(plan, layout=replace(plan.layout, width=plan.layout.width - Fraction(1, 1000))),
    ):
        with pytest.raises(ParameterError, match="Plan"):
            broken.guarantee()
    changes = {"delta": "1e-6", "max_contributions": 8, "key_selection": "threshold"}
    text = make_plan(ReleaseParams(epsilon="1", **changes), sizes_for(scale=Fraction(3200, 3)))
    with pytest.raises(ParameterError, match="too low"):  # of names; that of cells is free
        replace(text, top=replace(text.top, threshold=text.top.threshold - 1)).guarantee()
    alone = make_plan(
        ReleaseParams(epsilon="1", **changes, optimize="totals"), sizes_for(scale=Fraction(800))
    )
    with pytest.raises(ParameterError, match="too low"):
        replace(alone, threshold=alone.threshold - 1).guarantee()
    assert "1-differentially private" in plan.guarantee().sentence()
    assert "(1, 0.000001)" in text.guarantee().sentence()


def test_paper_setting():
    params = ReleaseParams.paper(epsilon="1", max_contributions=1, expected_keys=1000, expected_records=9000)
    plan = make_plan(params, expected_sizes(params))
    assert (plan.domain_bits, plan.layout.levels, plan.layout.width) == (64, 15, 6)
    assert set(plan.layout.column_sizes) == {10048}  # 10 k, in whole words
    assert (
        plan.threshold == threshold.pure_threshold(64, Fraction(1), NOISE, Fraction(2)) == 88
    )  # 2 ln(d/2)/ε = 87.3


def test_level_keys_follow_the_profile():
    sizes = Sizes(0, 100, tuple(100 if t <= 8 else 0 for t in PROFILE_GRID), Fraction(800))
    spec = _layout_spec(ReleaseParams(epsilon="1", max_contributions=1), sizes, 100, 12)
    first, second, third = level_keys(spec, Fraction(4), 3)
    assert first == 100
    assert 50 <= second <= 100
    assert third < 10


def test_markov_sizes_without_a_profile():
    sizes = Sizes(1000, 100, (), Fraction(0))
    spec = _layout_spec(ReleaseParams(epsilon="1", max_contributions=1), sizes, 100, 20)
    assert level_keys(spec, Fraction(5), 4) == [100, 100, Fraction(1000, 15), 50]


def test_public_plan():
    plan = make_public_plan(ReleaseParams(epsilon="1", max_contributions=4), 50)
    assert plan.guarantee().epsilon == 1
    assert plan.scale == 4
    assert issubclass(ParameterError, HushgramError)


def test_noise_auto_lists_the_most_keys():
    """The lower threshold decides, not the variance: from three keys per user on it is that of Gaussian noise. Where
    the list passes on what it does not show, its noise is another one."""
    for most, encoding, optimize, expected in (
        (1, "alp", "keys", "truncated_geometric"),
        (1, "buckets", None, "truncated_geometric"),
        (3, "alp", "totals", "gaussian"),
        (3, "alp", "keys", "laplace"),
        (8, "buckets", None, "gaussian"),
    ):
        changes = {
            "max_contributions": most, "encoding": encoding, "key_selection": "threshold", "optimize": optimize
        }  # fmt: skip
        params = ReleaseParams(epsilon="1", delta="1e-6", **changes)
        assert params.noise == expected
        plan = make_plan(params, Sizes(10**6, 10**5, (), Fraction(2000)))
        names = [name for name in NOISES if most == 1 or not noise_of(name).one_key]
        names = [name for name in names if name != "gaussian" or not params.chained]
        others = [ReleaseParams(epsilon="1", delta="1e-6", noise=name, **changes) for name in names]
        best = min(make_plan(each, plan.sizes).heavy_from for each in others)
        assert plan.heavy_from == best
        plan.guarantee()


def test_a_threshold_below_the_joint_one_is_refused():
    params = ReleaseParams(
        epsilon="1", delta="1e-6", max_contributions=8, key_selection="threshold", noise="gaussian"
    )
    assert params.optimize == "totals"  # a list with Gaussian noise passes nothing on
    plan = make_plan(params, Sizes(10**6, 10**5, (), Fraction(2000)))
    plan.guarantee()
    with pytest.raises(ParameterError, match="too low for delta"):
        replace(plan, threshold=plan.threshold - 2).guarantee()


def test_public_keys_at_delta_take_the_smaller_noise():
    """Gaussian noise grows with the root of C; where Laplace noise is smaller no delta is spent."""
    plan = make_public_plan(ReleaseParams(epsilon="1", delta="1e-6", max_contributions=100), 50)
    assert plan.noise_name == "gaussian"
    assert 42 < plan.scale < 43
    guarantee = plan.guarantee()
    assert (guarantee.epsilon, guarantee.delta) == (1, Fraction(1, 10**6))
    assert [event.kind for event in plan.events()] == ["gaussian"]
    assert plan.params.sensitivity.classes == 0
    assert Plan.from_dict(plan.to_dict()).to_dict() == plan.to_dict()
    few = make_public_plan(ReleaseParams(epsilon="1", delta="1e-6", max_contributions=4), 50)
    assert (few.noise_name, few.scale, few.guarantee().delta) == ("laplace", 4, 0)
    stated = make_public_plan(
        ReleaseParams(epsilon="1", delta="1e-6", max_contributions=4, noise="gaussian", encoding="buckets"),
        50,
    )
    assert stated.noise_name == "gaussian"
    assert stated.guarantee().delta == Fraction(1, 10**6)


def test_a_public_plan_with_less_noise_than_it_claims_is_refused():
    plan = make_public_plan(ReleaseParams(epsilon="1", delta="1e-6", max_contributions=100), 50)
    with pytest.raises(ParameterError, match="smaller"):
        replace(plan, scale=plan.scale - Fraction(1, 16)).guarantee()
    with pytest.raises(ParameterError, match="smaller"):  # Laplace noise has no δ to spend
        replace(plan, noise_name="laplace", params=plan.params._changed(noise="laplace")).guarantee()


# --- noise and shares -----------------------------------------------------------------------------------------------


def test_noise_auto_is_the_smaller_one_and_stands_in_the_parameters():
    def chosen(**changes):
        given = {"epsilon": 1, "delta": "1e-6", "max_contributions": 20, "key_selection": "threshold"}
        return ReleaseParams(**{**given, "optimize": "totals", **changes})

    assert chosen().noise == "gaussian"
    assert chosen(optimize=None).noise == "laplace"  # what the list does not show passes on
    assert chosen(max_contributions=1).noise == "truncated_geometric"
    assert (
        chosen(max_contributions=1, epsilon="1/1000").noise == "gaussian"
    )  # tables of the other would be too long
    assert chosen(delta=0).noise == "laplace"
    assert chosen(max_per_key=20).noise == "laplace"  # one key may take all of C: nothing is gained
    assert chosen(noise="laplace").noise == "laplace"
    for params in (chosen(), chosen(noise="laplace"), chosen(encoding="buckets")):
        assert ReleaseParams.from_dict(params.to_dict()) == params
    old = {name: value for name, value in chosen(noise="laplace").to_dict().items() if name != "noise"}
    assert ReleaseParams.from_dict(old).noise == "laplace"  # releases from before there was a choice


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"noise": "gaussian", "delta": 0}, "needs delta above 0"),
        ({"noise": "uniform"}, "noise must be auto or one of laplace, gaussian"),
        (
            {
                "noise": "gaussian",
                "epsilon": "0.0001",
                "max_contributions": 1000,
                "key_selection": "threshold",
            },
            "scale above 32768",
        ),
        ({"epsilon": "0.0001", "max_contributions": 1000}, "scale above 8192"),
        (
            {"noise": "gaussian", "key_selection": "threshold", "optimize": "keys"},
            "noise gaussian goes with key_selection weighted, or with optimize totals",
        ),
        ({"key_selection": "weights"}, "key_selection must be weighted or threshold"),
        ({"key_selection": "weighted", "noise": "laplace"}, "needs delta above 0 and noise gaussian"),
        ({"key_selection": "weighted", "delta": 0}, "needs delta above 0 and noise gaussian"),
        ({"split": "best"}, "split must be auto or shares by name"),
        ({"encoding": "bucket"}, "encoding must be one of alp, buckets"),
        ({"encoding": "buckets", "split": {"size": "0.02", "threshold": "0.5", "alp": "0.48"}}, "alp"),
    ],
)
def test_mistakes_about_noise_and_shares(changes, words):
    with pytest.raises(ParameterError, match=words):
        ReleaseParams(**{"epsilon": 1, "delta": "1e-6", "max_contributions": 20, **changes})


def test_split_auto_follows_the_released_sizes():
    params = ReleaseParams(epsilon=1, max_contributions=8, encoding="buckets")
    assert params.fit_split
    few = Sizes(10**6, 10**5, tuple(10**5 >> i for i in range(len(PROFILE_GRID))), Fraction(800))
    many = Sizes(10**8, 10**5, tuple(10**5 if t <= 160 else 0 for t in PROFILE_GRID), Fraction(800))
    shares = []
    for sizes in (few, many):
        plan = make_plan(params, sizes)
        assert not plan.params.fit_split
        split = plan.params.split
        assert split.size + split.threshold + split.encoding == 1
        assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
        plan.guarantee()
        shares.append(split.threshold)
    assert shares[0] < shares[1]  # where many keys are just below the threshold, a lower one is worth more


def test_split_auto_divides_counts_and_buckets_by_the_released_sizes():
    """Where other keys fill the buckets more than noise does, counts get more; what is spent stays the same."""
    params = ReleaseParams(epsilon=1, delta="1e-6", max_contributions=8, split="auto", selection_rounds=2)
    assert params.fit_split
    few = Sizes(10**6, 10**5, tuple(10**5 >> i for i in range(len(PROFILE_GRID))), Fraction(800))
    many = Sizes(10**8, 10**5, tuple(10**5 if t <= 160 else 0 for t in PROFILE_GRID), Fraction(800))
    plans = [make_plan(params, sizes) for sizes in (few, many)]
    for plan in plans:
        assert plan.params.split.total == 1
        assert plan.params.split.selection == params.split.selection
        assert plan.params.gaussian.selection == params.gaussian.selection
        assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
        plan.guarantee()
    assert plans[0].params.split.counts < plans[1].params.split.counts
    assert plans[0].scale > plans[1].scale


def test_a_split_that_was_not_among_the_choices_is_not_accepted():
    """The mechanism covers each choice, and a broken plan that has the smaller noise of both is refused."""
    params = ReleaseParams(epsilon=1, delta="1e-6", max_contributions=8, split="auto", selection_rounds=2)
    plan = make_plan(params, Sizes(10**6, 10**5, (), Fraction(0)))
    smallest = min(each.gaussian.counts_scale for each in params.fitted)
    assert smallest < plan.scale
    with pytest.raises(ParameterError, match="smaller than the split"):
        replace(plan, scale=smallest).guarantee()


@pytest.mark.parametrize("encoding", ["none", "alp"])
def test_split_auto_by_weights_without_buckets_is_the_default(encoding):
    """Where users are not counted, nothing is known before selection, and pure noise cannot be moved after it."""
    params = {
        "epsilon": 1, "delta": "1e-6", "max_contributions": 8, "encoding": encoding, "selection_rounds": 2
    }  # fmt: skip
    assert ReleaseParams(**params, split="auto") == ReleaseParams(**params)


@pytest.mark.parametrize("encoding", ["none", "alp", "buckets"])
@pytest.mark.long
def test_split_auto_chooses_the_share_of_selection_for_such_users(encoding):
    """Of few keys all are named with little: counts get more. What is spent stays the same, for every choice."""
    asked = {"epsilon": 1, "delta": "1e-6", "max_contributions": 8, "encoding": encoding, "split": "auto"}
    users = UserTotals((0, 2_000, *(20_000,) * 5, *(0,) * (len(GRID) - 7)), Fraction(200))
    found = []
    for keys in (20, 10**6):
        params = ReleaseParams(**asked, expected_keys=keys, expected_records=10**6)
        assert params.choose_split
        for each in (*params.branches(1), *params.branches(2)):
            assert each.split.total == 1
            assert not each.choose_split
        chosen = choose_selection(params, users)
        assert chosen.to_dict() in [each.to_dict() for each in params.branches(2)]
        plan = replace(make_plan(chosen, expected_sizes(params)), users=users)
        assert plan.guarantee().epsilon == 1
        assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
        found.append(chosen.split)
    assert found[0].selection < found[1].selection
    assert found[0].counts > found[1].counts
    nobody = UserTotals((0,) * len(GRID), Fraction(200))
    assert choose_selection(params, nobody).split == params.split


def test_split_auto_of_alp_and_stated_shares_of_buckets():
    params = ReleaseParams(epsilon=1, max_contributions=8, split="auto")
    assert not params.fit_split
    assert params.split.threshold == Fraction(98, 100) * Fraction(7, 10)
    stated = ReleaseParams(
        epsilon=1,
        max_contributions=8,
        encoding="buckets",
        split={"size": "0.02", "threshold": "0.5", "buckets": "0.48"},
    )
    assert not stated.fit_split
    assert stated.split.encoding == Fraction(48, 100)


def test_guarantee_of_buckets_is_one_part_for_both_vectors():
    for changes, name in (({}, "laplace"), ({"delta": "1e-6", "key_selection": "threshold"}, "gaussian")):
        params = ReleaseParams(epsilon=1, max_contributions=20, encoding="buckets", **changes)
        plan = make_plan(params, Sizes(10**6, 10**5, (), Fraction(2000)))
        parts = {part.kind: part.epsilon for part in plan.guarantee().parts}
        assert parts == {"sizing": Fraction(1, 50), name: Fraction(49, 50)}
        smaller = replace(plan, scale=plan.scale * Fraction(9, 10))
        with pytest.raises(ParameterError):
            smaller.guarantee()
        other = replace(plan.layout, scale=plan.layout.scale * Fraction(9, 10))
        with pytest.raises(ParameterError):
            replace(plan, layout=other).guarantee()
        if changes:  # no two keys of a user may meet: the number of buckets is bound to the classes
            with pytest.raises(ParameterError, match="multiple"):
                replace(plan, layout=replace(plan.layout, size=plan.layout.size + 1)).guarantee()


@pytest.mark.parametrize("unit", ["user", "record"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"delta": "1e-6"},
        {"delta": "1e-6", "noise": "gaussian"},
        {"encoding": "buckets"},
        {"encoding": "buckets", "delta": "1e-6"},
        {"expected_keys": 10**5, "expected_records": 10**6},
    ],
)
def test_guarantee_and_ledger_events_are_one_thing(changes, unit):
    params = ReleaseParams(epsilon=1, max_contributions=20, selection_rounds=2, **changes)
    sizes = expected_sizes(params) or Sizes(10**6, 10**5, (), Fraction(8000, 3))
    guarantee, events = make_plan(params, sizes, unit).guarantee(), release_events(params, unit)
    assert list(guarantee.parts) == list(events)
    assert {event.relation for event in events} == {guarantee.unit} == {unit}
    assert (guarantee.epsilon, guarantee.delta) == (params.epsilon, params.delta)


def test_contributions_auto_keeps_its_part_of_epsilon():
    params = ReleaseParams(epsilon=2, max_contributions="auto")
    assert (params.choose_contributions, params.max_contributions) == (True, 1024)
    assert params.split.contributions == Fraction(1, 10)
    assert ReleaseParams.from_dict(params.to_dict()) == params
    chosen = params.with_contributions(12)
    assert (chosen.choose_contributions, chosen.max_contributions) == (False, 12)
    assert chosen.split == params.split
    with pytest.raises(ParameterError, match="user_totals are missing"):
        make_plan(chosen, Sizes(100, 10, (10,) * len(PROFILE_GRID), Fraction(1000))).guarantee()
    plan = make_plan(chosen, Sizes(100, 10, (10,) * len(PROFILE_GRID), Fraction(1000)))
    told = replace(plan, totals=UserTotals((0,) * len(GRID), Fraction(10)))
    guarantee = told.guarantee()
    assert {part.kind: part.epsilon for part in guarantee.parts} == {
        "contributions": Fraction(1, 10),
        "sizing": params.split.size,  # the map of this scale is 24/1000, and all of the share is charged
        "threshold": params.split.threshold,  # what it does not show is encoded for nothing
    }
    assert guarantee.epsilon == chosen.epsilon
    assert Plan.from_dict(json.loads(json.dumps(told.to_dict()))) == told
    with pytest.raises(ParameterError, match="user_totals"):
        replace(plan, totals=UserTotals((0,) * len(GRID), Fraction(9))).guarantee()


@pytest.mark.parametrize(
    "changes",
    [
        {"split": {"size": "0.02", "threshold": "0.49", "alp": "0.49"}},
        {
            "max_contributions": 8,
            "split": {"size": "0.02", "threshold": "0.4", "alp": "0.4", "contributions": "0.18"},
        },
        {"max_contributions": "many"},
    ],
)
def test_mistakes_about_contributions_auto(changes):
    with pytest.raises(ParameterError):
        ReleaseParams(**{"epsilon": 1, "max_contributions": "auto", **changes})


def test_what_a_key_loses_at_most_is_never_told_too_small():
    """200 users of 600 keys each have one key in common, of which C keeps a part; and nobody at all."""
    from hushgram.noise.entropy import ReleaseKey
    from hushgram.sparse_histogram.contribution_bounds import UserTally, release_totals

    rng = np.random.default_rng(3)
    held = 0
    for number in range(100):
        totals = release_totals(
            UserTally.of(np.full(200, 600)), Fraction(1, 50), ReleaseKey(bytes([number] * 32))
        )
        held += totals.most_lost(100) >= 200 - np.count_nonzero(rng.random(200) < 100 / 600)
    assert held >= 95 - 3 * 2.2
    nobody = release_totals(UserTally.zero(), Fraction(1, 50), ReleaseKey(bytes(32)))
    words = nobody.in_words(8)
    assert "an unknown share of what users add was dropped" in words
    assert "about 0 from any key" not in words


def test_rounds_are_chosen_unless_shares_are_stated() -> None:
    weighted: dict[str, Any] = {"epsilon": 1, "delta": "1e-6", "encoding": "none"}
    assert ReleaseParams(**weighted, max_contributions=8).choose_rounds
    shares = {"selection": "1/2", "counts": "1/2"}
    stated = ReleaseParams(**weighted, max_contributions=8, split=shares)
    assert (stated.choose_rounds, stated.selection_rounds, stated.split.users) == (False, 2, 0)
    with_users = {"users": "1/10", "selection": "1/2", "counts": "2/5"}
    assert ReleaseParams(**weighted, max_contributions=8, split=with_users).choose_rounds
    one = ReleaseParams(**weighted, max_contributions=8, max_keys_selection=1, selection_rounds="auto")
    assert (one.choose_rounds, one.selection_rounds) == (False, 1)
    for split, rounds in ((shares, "auto"), (with_users, 2)):
        with pytest.raises(
            ParameterError, match=r"split\.users must be above 0 where selection_rounds is auto"
        ):
            ReleaseParams(**weighted, max_contributions=8, split=split, selection_rounds=rounds)
    params = ReleaseParams(**weighted, max_contributions=8)
    assert ReleaseParams.from_dict(params.to_dict()).to_dict() == params.to_dict()


def test_a_plan_states_the_numbers_that_its_rounds_follow_from() -> None:
    params = ReleaseParams(epsilon=1, delta="1e-6", max_contributions=8, encoding="none")
    users = UserTotals((10_000, *(0,) * (len(GRID) - 1)), Fraction(200))
    plan = replace(make_plan(params.with_rounds(1), Sizes(0, 0, (), Fraction(0))), users=users)
    assert plan.guarantee().epsilon == 1
    assert Plan.from_dict(plan.to_dict()) == plan
    for wrong in (
        replace(plan, users=None),
        replace(plan, users=replace(users, scale=Fraction(199))),
        replace(make_plan(params.with_rounds(2), plan.sizes), users=users),
    ):
        with pytest.raises(ParameterError, match="keys_per_user"):
            wrong.guarantee()
