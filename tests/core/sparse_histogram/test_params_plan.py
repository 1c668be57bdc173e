"""Parameters check themselves, what they mean follows from them, and plans follow from public numbers alone."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hushgram as hg
from hushgram.encodings import encoding_of
from hushgram.encodings.alp import MAX_LEVELS
from hushgram.errors import ParameterError
from hushgram.key_selection.threshold import pure_threshold, text_threshold
from hushgram.noise.laplace import NOISE
from hushgram.noise.noises import noise_of
from hushgram.numbers import rational, show
from hushgram.sparse_histogram.params import Params, ReleaseParams, Threshold, Weights
from hushgram.sparse_histogram.plan import (
    Plan,
    expected_sizes,
    make_plan,
    make_public_plan,
    release_events,
)
from hushgram.sparse_histogram.sizing import PROFILE_GRID, Sizes
from hushgram.sparse_histogram.users import CHOICES, UserHistogram
from tests.users import with_nobody

SIZES = Sizes(10**6, 10**5, tuple(10**5 >> i for i in range(len(PROFILE_GRID))), Fraction(2000))


def stated(**changes: Any) -> ReleaseParams:
    return ReleaseParams(**{"epsilon": 1, "max_contributions": 8, **changes})


def again(text: Any) -> Any:
    """What comes back from a file."""
    return json.loads(json.dumps(text))


# --- numbers ------------------------------------------------------------------------------------------------------


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
def test_numbers_are_exactly_what_was_written(given: Any, exact: Fraction) -> None:
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
def test_bad_numbers_are_refused_in_one_line(bad: Any) -> None:
    with pytest.raises(ParameterError) as caught:
        rational(bad, "epsilon", "ReleaseParams")
    assert "ReleaseParams: epsilon" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@given(st.fractions())
@settings(max_examples=100)
def test_show_reads_back(value: Fraction) -> None:
    assert rational(show(value), "x", "T") == value


# --- what is stated -----------------------------------------------------------------------------------------------

DELTA = {"delta": "1e-6"}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": "0"}, "epsilon must be above 0"),
    ({"epsilon": "-1"}, "epsilon must be above 0"),
    ({"epsilon": "nan"}, "epsilon"),
    ({"epsilon": "101"}, "epsilon must be above 0 and at most 100"),
    ({"epsilon": "1e-10"}, "epsilon below 1e-9"),
    ({"delta": "1"}, "delta must be at least 0 and below 1"),
    ({"delta": "-0.1"}, "delta must be at least 0"),
    ({"delta": "1e-70"}, "delta must be 0 or at least 1e-60"),
    ({"max_contributions": 0}, "max_contributions must be from 1"),
    ({"max_contributions": 1 << 21}, "max_contributions must be from 1"),
    ({"max_contributions": 1.5}, "max_contributions must be a whole number"),
    ({"max_contributions": True}, "max_contributions must be a whole number"),
    ({"max_contributions": "many"}, "max_contributions must be a whole number"),
    ({"max_contributions": None}, "max_contributions must be a whole number or"),
    ({"max_per_key": 0}, "max_per_key must be from 1"),
    ({"max_per_key": 9}, r"max_per_key must be at most max_contributions \(8\)"),
    ({"max_contributions": "auto", "max_per_key": 1025}, r"at most max_contributions \(1024\)"),
    ({"max_value": 5}, "granularity must be given"),
    ({"granularity": 5}, "max_value must be given"),
    ({"max_value": 5, "granularity": 2}, "whole multiple of granularity"),
    ({"max_value": 6, "granularity": 2, "max_per_key": 2}, "max_per_key has no effect beside max_value"),
    ({"max_value": 10, "granularity": 2}, r"max_value must be at most max_contributions \(8\), got 10"),
    ({"sizes": 5}, r"sizes must be \(records, keys\), got 5"),
    ({"sizes": (5,)}, r"sizes must be \(records, keys\)"),
    ({"sizes": {"records": 5}}, "sizes must be records and keys, got records"),
    ({"sizes": {"records": 5, "keys": 5, "users": 5}}, "sizes must be records and keys"),
    ({"sizes": (0, 5)}, r"sizes\.records must be from 1"),
    ({"sizes": (5, 1.5)}, r"sizes\.keys must be a whole number"),
    ({"bits_per_key": "0"}, "bits_per_key must be from 0.1 to 10000"),
    ({"bits_per_key": "10001"}, "bits_per_key must be from 0.1 to 10000"),
    ({"preset": "thesis"}, "preset must be paper"),
    ({"selection": Threshold()}, "selection needs delta above 0 and no preset"),
    ({"selection": Weights(), "preset": "paper", **DELTA}, "selection needs delta above 0 and no preset"),
    ({"selection": "threshold", **DELTA}, r"selection must be Threshold\(\) or Weights"),
    ({"selection": Weights(max_keys=0), **DELTA}, r"selection\.max_keys must be from 1"),
    ({"selection": Weights(max_keys=1 << 17), **DELTA}, r"selection\.max_keys must be from 1"),
    ({"selection": Weights(rounds=0), **DELTA}, r"selection\.rounds must be from 1 to 3"),
    ({"selection": Weights(rounds=4), **DELTA}, r"selection\.rounds must be from 1 to 3"),
    ({"selection": Threshold(), "max_contributions": "auto", **DELTA}, "auto needs users and any keys"),
    # with these no release could end
    ({"epsilon": "1e-9", "max_contributions": 1 << 20}, "too small for max_contributions 1048576: the noise"),
    ({"epsilon": "1e-5", "max_contributions": 100}, "the number of keys would have noise above"),
    ({"epsilon": "1e-4", "max_contributions": 1000, **DELTA}, "scale above 8192"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=lambda v: str(v)[:60])
def test_bad_parameters_name_the_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message) as caught:
        stated(**change)
    assert str(caught.value).startswith("ReleaseParams: ")
    assert "\n" not in str(caught.value)


def test_what_a_message_advises_helps() -> None:
    stated(epsilon="1e-5", max_contributions=100, sizes=(10**6, 10**4))
    stated(epsilon="1e-3", max_contributions=1, **DELTA)
    stated(epsilon="1e-2", max_contributions=100, **DELTA)


@pytest.mark.parametrize(
    "gone",
    [
        "optimize",
        "split",
        "encoding",
        "noise",
        "key_selection",
        "alpha",
        "domain_bits",
        "expected_keys",
        "made_up",
    ],
)
def test_an_option_that_is_gone_is_refused_as_any_other_unknown_one(gone: str) -> None:
    with pytest.raises(TypeError, match=gone):
        stated(**{gone: "auto"})
    with pytest.raises(ParameterError, match=f"unknown parameter '{gone}'"):
        ReleaseParams.from_dict({**stated().to_dict(), gone: "auto"})


SAME: list[tuple[ReleaseParams, ReleaseParams]] = [
    (stated(), stated(epsilon="1.0", delta="0", max_per_key=1)),
    (stated(epsilon=0.1), stated(epsilon="1/10")),
    (stated(sizes=(10, 5)), stated(sizes={"keys": 5, "records": 10})),
    (stated(bits_per_key=8), stated(bits_per_key="8.0")),
    (stated(max_value=6, granularity=2), stated(max_value="6.0", granularity="2")),
    (stated(selection=Weights(100), **DELTA), stated(selection=Weights(max_keys=100, rounds=None), **DELTA)),
]
OTHER = [
    stated(),
    stated(epsilon=2),
    stated(**DELTA),
    stated(max_contributions=9),
    stated(max_contributions="auto"),
    stated(max_per_key=2),
    stated(max_value=6, granularity=2),
    stated(max_value=6, granularity=2, max_contributions="auto"),
    stated(max_value=3, granularity=1),
    stated(sizes=(10, 5)),
    stated(sizes=(10, 6)),
    stated(bits_per_key=8),
    stated(preset="paper"),
    stated(selection=Threshold(), **DELTA),
    stated(selection=Weights(), **DELTA),
    stated(selection=Weights(max_keys=5), **DELTA),
    stated(selection=Weights(rounds=2), **DELTA),
]


def test_equal_values_are_equal_and_others_are_not() -> None:
    for one, other in SAME:
        assert one == other
        assert hash(one) == hash(other)
        assert one.resolve() == other.resolve()
        assert one.to_dict() == other.to_dict()
    assert len(set(OTHER)) == len(OTHER)
    assert len({json.dumps(each.to_dict()) for each in OTHER}) == len(OTHER)


@pytest.mark.parametrize("params", OTHER, ids=str)
def test_what_is_stated_reads_back_and_says_no_more_than_that(params: ReleaseParams) -> None:
    text = again(params.to_dict())
    assert ReleaseParams.from_dict(text) == params
    always = {"epsilon", "delta", "max_contributions", "max_per_key"}
    assert len(set(text) - always) == sum(
        bool(getattr(params, name))
        for name in ("granularity", "sizes", "bits_per_key", "preset", "selection")
    )
    if params.epsilon == 1:
        assert params.changed(epsilon=Fraction(2)) == ReleaseParams.from_dict({**text, "epsilon": "2"})
    with pytest.raises(ParameterError, match="epsilon must be above 0"):
        params.changed(epsilon=Fraction(0))


# --- what follows -------------------------------------------------------------------------------------------------

RECORD, BOUNDED, PUBLIC = {"unit": "record"}, {"weights": False}, {"public": True}
#: what is stated, who and what is protected ─► selection, noise on listed counts, encoding of all others
TABLE: list[tuple[dict[str, Any], dict[str, Any], tuple[str, str, str | None]]] = [
    *(({}, each, ("fingerprints", "laplace", "alp")) for each in ({}, RECORD, BOUNDED)),
    ({"max_contributions": 1}, {}, ("fingerprints", "laplace", "alp")),
    ({"max_contributions": "auto"}, {}, ("fingerprints", "laplace", "alp")),
    ({}, PUBLIC, ("public", "laplace", None)),
    ({"max_contributions": 1000}, PUBLIC, ("public", "laplace", None)),
    (DELTA, {}, ("weights", "gaussian", "buckets")),
    ({**DELTA, "max_contributions": 2}, {}, ("weights", "gaussian", "buckets")),
    ({**DELTA, "max_contributions": "auto"}, {}, ("weights", "gaussian", "buckets")),
    ({**DELTA, "selection": Weights(5, 2)}, {}, ("weights", "gaussian", "buckets")),
    ({**DELTA, "max_contributions": 1, "selection": Weights()}, {}, ("weights", "gaussian", "buckets")),
    *((DELTA, each, ("threshold", "laplace", "alp")) for each in (RECORD, BOUNDED)),
    ({**DELTA, "selection": Threshold()}, {}, ("threshold", "laplace", "alp")),
    *(
        ({**DELTA, "max_contributions": 1}, each, ("threshold", "truncated_geometric", "alp"))
        for each in ({}, RECORD, BOUNDED)
    ),
    # tables of the other noise would be too long
    ({**DELTA, "max_contributions": 1, "epsilon": "1/1000"}, {}, ("threshold", "laplace", "alp")),
    # Gaussian noise grows with the root of C, unless one key may take all of it
    ({**DELTA, "max_contributions": 4}, PUBLIC, ("public", "laplace", None)),
    ({**DELTA, "max_contributions": 100}, PUBLIC, ("public", "gaussian", None)),
    ({**DELTA, "max_contributions": 100, "max_per_key": 100}, PUBLIC, ("public", "laplace", None)),
    ({"preset": "paper"}, {}, ("fingerprints", "laplace", "alp")),
    *(
        ({"preset": "paper", **DELTA, "max_contributions": most}, {}, ("threshold", "laplace", "alp"))
        for most in (1, 8)
    ),
]


@pytest.mark.parametrize(("given", "data", "found"), TABLE, ids=str)
def test_what_is_used_follows_from_delta_users_bounds_and_keys(
    given: dict[str, Any], data: dict[str, Any], found: tuple[str, str, str | None]
) -> None:
    params = stated(**given).resolve(**data)
    assert (params.selection, params.noise, params.encoding if params.encodes else None) == found
    assert params.unit == data.get("unit", "user")
    assert params.weighted == (found[0] == "weights")
    assert params.chained == (found[2] == "alp" and "preset" not in given)
    assert params.split.total == params.epsilon
    assert Params.from_dict(again(params.to_dict())) == params
    plan = make_public_plan(params, 50) if data == PUBLIC else make_plan(params, SIZES)
    assert (
        plan.noise_name,
        None if plan.layout is None else plan.layout.encoding.rpartition("-")[0],
    ) == found[1:]


def test_parts_of_epsilon() -> None:
    """Of what sizes and choices leave, list and ALP both have all; weights and the vector of counts divide it."""

    def parts(data: dict[str, Any] | None = None, **changes: Any) -> dict[str, Fraction]:
        split = stated(**changes).resolve(**(data or {})).split
        return {name: part for name, part in vars(split).items() if part}

    thousandths = {"size": Fraction(15, 1000), "threshold": Fraction(985, 1000)}
    assert parts(RECORD) == parts(RECORD, **DELTA) == parts(BOUNDED) == thousandths
    users = {"size": Fraction(15, 1000), "threshold": Fraction(975, 1000), "users": Fraction(1, 100)}
    assert parts() == users
    assert parts(epsilon=2) == {name: 2 * part for name, part in users.items()}
    assert parts(RECORD, sizes=(100, 10)) == {"threshold": 1}
    assert parts(PUBLIC) == parts(PUBLIC, sizes=(100, 10)) == {"threshold": 1}
    assert parts(preset="paper") == {
        "size": Fraction(1, 50),
        "threshold": Fraction(49, 100),
        "encoding": Fraction(49, 100),
    }
    auto = parts(max_contributions="auto")
    assert auto == {
        "size": Fraction(15, 1000),
        "threshold": Fraction(935, 1000),
        "users": Fraction(1, 20),
    }
    two = {**DELTA, "selection": Weights(rounds=2)}
    rest = Fraction(97, 100)
    assert (
        parts(**two)
        == parts(**DELTA)
        == {
            "size": Fraction(1, 50),
            "selection": rest * 49 / 100,
            "vector": rest * 51 / 100,
            "users": Fraction(1, 100),
        }
    )
    assert parts(**DELTA, max_contributions=1, selection=Weights())["size"] == Fraction(1, 50)


@pytest.mark.parametrize(
    ("given", "data", "message"),
    [
        ({"max_contributions": "auto"}, RECORD, "max_contributions auto needs users and any keys"),
        ({"max_contributions": "auto"}, BOUNDED, "max_contributions auto needs users and any keys"),
        ({"max_contributions": "auto"}, PUBLIC, "max_contributions auto needs users and any keys"),
        ({**DELTA, "selection": Weights()}, RECORD, "selection by weights needs users and any keys"),
        ({**DELTA, "selection": Weights()}, PUBLIC, "selection by weights needs users and any keys"),
        ({"preset": "paper"}, PUBLIC, "preset paper has no effect with public keys"),
    ],
)
def test_what_does_not_fit_the_data_is_refused_by_the_caller(
    given: dict[str, Any], data: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=f"^caller: {message}"):
        stated(**given).resolve(**data, caller="caller")


def test_rounds_are_chosen_unless_stated_or_of_no_use() -> None:
    def found(selection: Weights | None = None, most: Any = 8) -> tuple[bool, int]:
        params = stated(**DELTA, max_contributions=most, selection=selection).resolve()
        assert params.split.users == params.epsilon / (20 if most == "auto" else 100)
        return params.choose_rounds, params.rounds

    assert found() == found(Weights()) == found(most="auto") == (True, 3)
    for rounds in (1, 2, 3):
        assert found(Weights(rounds=rounds)) == (False, rounds)
    assert found(Weights(max_keys=1)) == found(Weights(), 1) == (False, 1)
    params = stated(**DELTA).resolve()
    chosen = params.with_rounds(2)
    assert (chosen.choose_rounds, chosen.rounds, chosen.split) == (False, 2, params.split)
    assert len(chosen.gaussian.selection.rounds) == 2


def test_c_is_chosen_on_the_grid_and_keeps_its_part_of_epsilon() -> None:
    params = stated(epsilon=2, max_contributions="auto", max_per_key=3).resolve()
    assert (params.choose_contributions, params.max_contributions, params.split.users) == (
        True, 1024, Fraction(1, 10),
    )  # fmt: skip
    assert params.choices == CHOICES[2:]  # at least what one key may take
    chosen = params.with_contributions(12)
    assert (chosen.choose_contributions, chosen.max_contributions) == (False, 12)
    assert (chosen.split, chosen.choices) == (params.split, params.choices)
    assert stated().resolve().with_contributions(11) == stated().resolve()
    assert stated().resolve().choices == ()


def test_values_are_counted_in_multiples_of_the_granularity() -> None:
    params = stated(max_contributions=100, max_value=50, granularity=5).resolve("record")
    assert (params.max_contributions, params.max_per_key, params.per_count) == (20, 10, 5)
    assert params.record_bounds == (2, 1)
    assert params.grid is not None
    assert (stated().resolve().grid, stated(max_per_key=2).resolve("record").record_bounds) == (None, (8, 2))


CHOSEN = stated(**DELTA, max_contributions="auto").resolve().with_contributions(11).with_rounds(2)


def test_what_was_chosen_reads_back_and_nonsense_is_refused() -> None:
    assert Params.from_dict(again(CHOSEN.to_dict())) == CHOSEN
    text = CHOSEN.to_dict()
    assert set(text) == {"stated", "unit", "selection", "users", "max_contributions", "rounds"}
    fixed = stated(**DELTA, selection=Weights(rounds=2)).resolve().to_dict()
    pure = stated().resolve().to_dict()
    for base, wrong, message in (
        (text, {"unit": "day"}, "unit must be user or record"),
        (text, {"unit": "record"}, "auto needs users"),
        (text, {"selection": "public"}, "auto needs users"),
        (text, {"selection": "threshold"}, "selection must be weights, got 'threshold'"),
        (text, {"max_contributions": 2000}, "max_contributions must be from 1 to 1024"),
        (text, {"rounds": 4}, "rounds must be from 1 to 3"),
        (text, {"scale": 0}, "scale must be from 1"),
        (text, {"stated": {**text["stated"], "noise": "gaussian"}}, "unknown parameter 'noise'"),
        (fixed, {"max_contributions": 8}, "a number was chosen that is stated"),
        (fixed, {"selection": "threshold"}, "by weights needs users|selection must be"),
        (fixed, {"unit": "record"}, "by weights needs users"),
        (pure, {"rounds": 2}, "a number was chosen that is stated"),
        (pure, {"selection": "weights"}, "selection must be fingerprints, got 'weights'"),
        (pure, {"selection": "none"}, "selection must be fingerprints, got 'none'"),
    ):
        with pytest.raises(ParameterError, match=message):
            Params.from_dict({**base, **wrong})


# --- plans --------------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(["0.01", "0.1", "1", "3", "20"]),
    st.sampled_from(["0", "1e-9", "0.01"]),
    st.integers(1, 100),
    st.integers(1, 5),
    st.sampled_from([None, "paper"]),
    st.integers(-(10**6), 10**9),
    st.lists(st.integers(-(10**4), 10**7), min_size=len(PROFILE_GRID), max_size=len(PROFILE_GRID)),
)
@settings(max_examples=60, deadline=None)
@pytest.mark.long
def test_any_released_sizes_give_a_plan(
    epsilon: str, delta: str, most: int, per_key: int, preset: str | None, records: int, profile: list[int]
) -> None:
    """Data never decide whether we fail: noise may make sizes negative, huge or crooked."""
    try:
        params = stated(
            epsilon=epsilon,
            delta=delta,
            max_contributions=most,
            max_per_key=min(per_key, most),
            preset=preset,
        ).resolve(weights=False)
    except ParameterError:
        return  # refused before any data
    sizes = Sizes(records, profile[0], tuple(profile), 2 * most / params.split.size)
    plan = make_plan(params, sizes)
    guarantee = plan.guarantee()
    assert (guarantee.epsilon, guarantee.delta) == (params.epsilon, params.delta)
    assert Plan.from_dict(again(plan.to_dict())) == plan
    assert plan.layout is not None
    assert all(size % 64 == 0 and 0 < size <= 1 << 32 for size in plan.layout.column_sizes)  # type: ignore[attr-defined]
    cap = plan.remainder.most if plan.chained else plan.threshold
    levels, width = plan.layout.levels, plan.layout.width  # type: ignore[attr-defined]
    assert levels == math.ceil(cap / width) <= (1 if plan.chained else MAX_LEVELS)


@pytest.mark.parametrize("delta", ["1e-60", "1e-30"])
@pytest.mark.parametrize("selection", [Threshold(), Weights(rounds=2)])
def test_the_smallest_delta_has_a_plan_that_holds(delta: str, selection: Threshold | Weights) -> None:
    params = stated(delta=delta, selection=selection, sizes=(1000, 100)).resolve(
        weights=isinstance(selection, Weights)
    )
    sizes = expected_sizes(params)
    assert sizes is not None
    assert make_plan(with_nobody(params), sizes).guarantee().delta == params.delta


def test_the_setting_of_the_paper() -> None:
    params = stated(preset="paper", max_contributions=1, sizes=(9000, 1000)).resolve()
    sizes = expected_sizes(params)
    assert sizes is not None
    plan = make_plan(params, sizes)
    assert (plan.domain_bits, plan.layout.levels, plan.layout.width) == (64, 15, 6)  # type: ignore[union-attr]
    assert set(plan.layout.column_sizes) == {10048}  # type: ignore[union-attr] # 10 k, in whole words
    assert plan.threshold == pure_threshold(64, Fraction(1), NOISE, Fraction(2)) == 88  # 2 ln(d/2)/ε = 87.3
    assert {part.kind: part.epsilon for part in plan.guarantee().parts} == {
        "threshold": Fraction(1, 2), "alp": Fraction(1, 2),
    }  # fmt: skip


def test_a_plan_with_less_noise_than_it_claims_is_refused() -> None:
    """Every mechanism by its own privacy map."""
    chained = make_plan(with_nobody(stated().resolve()), SIZES)
    paper = make_plan(stated(preset="paper").resolve(), SIZES)
    names = make_plan(with_nobody(stated(**DELTA, selection=Threshold()).resolve()), SIZES)
    weights = make_plan(with_nobody(stated(**DELTA, selection=Weights(rounds=2)).resolve()), SIZES)
    public = make_public_plan(stated(**DELTA, max_contributions=100).resolve(public=True), 50)
    for plan in (chained, paper, names, weights, public):
        plan.guarantee()
    assert names.top is not None
    assert names.top.domain_bits is None
    tenth = Fraction(9, 10)
    broken = [
        *(replace(plan, scale=plan.scale * tenth) for plan in (chained, paper, names, weights, public)),
        *(
            replace(plan, layout=replace(plan.layout, width=plan.layout.width * tenth))  # type: ignore[union-attr]
            for plan in (chained, paper, names)
        ),
        replace(weights, layout=replace(weights.layout, scale=weights.layout.scale * tenth)),  # type: ignore[union-attr]
        *(
            replace(plan, sizes=replace(plan.sizes, scale=Fraction(100)))
            for plan in (chained, paper, names, weights)
        ),
    ]
    for each in broken:
        with pytest.raises(ParameterError, match=r"^Plan: "):
            each.guarantee()
    with pytest.raises(ParameterError, match="too low for delta"):  # of names; that of cells is free
        replace(names, top=replace(names.top, threshold=names.top.threshold - 1)).guarantee()
    # no two keys of a user may meet: the number of buckets is bound to the classes
    with pytest.raises(ParameterError, match="multiple"):
        replace(weights, layout=replace(weights.layout, size=weights.layout.size + 1)).guarantee()  # type: ignore[union-attr]
    assert weights.rounds is not None
    last = weights.rounds.rounds[-1]
    lower = (*weights.rounds.rounds[:-1], replace(last, threshold=last.threshold * 9 // 10))
    with pytest.raises(ParameterError, match="thresholds are smaller"):
        replace(weights, rounds=replace(weights.rounds, rounds=lower)).guarantee()
    assert "1-differentially private" in chained.guarantee().sentence()
    assert "(1, 0.000001)" in names.guarantee().sentence()


def test_plans_that_no_release_has_are_refused() -> None:
    text = make_plan(stated().resolve(), SIZES).to_dict()
    weights = make_plan(stated(**DELTA, selection=Weights(rounds=2)).resolve(), SIZES).to_dict()
    assert Plan.from_dict(again(text)).to_dict() == text
    assert Plan.from_dict(again(weights)).to_dict() == weights
    for base, wrong, message in (
        (text, {"noise": "gaussian"}, "noise"),
        (weights, {"noise": "laplace"}, "noise must be gaussian, got 'laplace'"),
        (text, {"noise": "uniform"}, "noise 'uniform' is not known here"),
        (text, {"encoding": "toy-1"}, r"encoding 'toy-1' is not known here \(alp-1, buckets-1 can be read\)"),
        (text, {"encoding": None}, "encoding must be that of the parameters"),
        (text, {"domain_bits": None}, "domain_bits"),
        (weights, {"domain_bits": 20}, "domain_bits must be null where selection is weights"),
        (text, {"threshold": 0}, "threshold must be from 1"),
        (text, {"keys": 0}, "keys must be from 1"),
        (text, {"scale": "1"}, "is not that of laplace noise"),
    ):
        with pytest.raises(ParameterError, match=message):
            Plan.from_dict({**base, **wrong})


def test_a_threshold_on_names_takes_the_noise_that_lists_most() -> None:
    """Of equal thresholds that for one key per user, whose variance is smaller."""
    for epsilon, delta in (("1", "1e-6"), ("0.3", "1e-9"), ("3", "1e-4")):
        params = stated(epsilon=epsilon, delta=delta, max_contributions=1).resolve()
        scale, found = 1 / params.split.threshold, {}
        for name in ("laplace", "truncated_geometric"):
            found[name] = text_threshold(
                params.delta, noise_of(name, params.delta), scale, params.sensitivity
            )
        assert found[params.noise] == min(found.values())
        assert make_plan(params, SIZES).heavy_from == min(found.values())
        assert params.noise == "truncated_geometric"


def test_public_keys_at_delta_take_the_smaller_noise() -> None:
    """Gaussian noise grows with the root of C; where Laplace noise is smaller no delta is spent."""
    plan = make_public_plan(stated(**DELTA, max_contributions=100).resolve(public=True), 50)
    assert 42 < plan.scale < 43
    guarantee = plan.guarantee()
    assert (guarantee.epsilon, guarantee.delta) == (1, Fraction(1, 10**6))
    assert [event.kind for event in plan.events()] == ["gaussian"]
    assert plan.params.sensitivity.classes == 0
    assert Plan.from_dict(plan.to_dict()) == plan
    few = make_public_plan(stated(**DELTA, max_contributions=4).resolve(public=True), 50)
    assert (few.noise_name, few.scale, few.guarantee().delta) == ("laplace", 4, 0)
    with pytest.raises(ParameterError, match="smaller"):  # Laplace noise has no δ to spend
        replace(plan, noise_name="laplace").guarantee()


@pytest.mark.parametrize("unit", ["user", "record"])
@pytest.mark.parametrize(
    "changes",
    [{}, DELTA, {**DELTA, "max_contributions": 1}, {"preset": "paper"}, {"sizes": (10**6, 10**5)}],
    ids=str,
)
def test_guarantee_and_ledger_events_are_one_thing(changes: dict[str, Any], unit: Any) -> None:
    params = stated(**changes).resolve(unit)
    params = with_nobody(params)
    sizes = expected_sizes(params) or Sizes(10**6, 10**5, (), Fraction(8000, 3))
    guarantee, events = make_plan(params, sizes).guarantee(), release_events(params)
    assert list(guarantee.parts) == list(events)
    assert {event.relation for event in events} == {guarantee.unit} == {unit}
    assert (guarantee.epsilon, guarantee.delta) == (params.epsilon, params.delta)


def test_a_plan_states_the_numbers_that_c_follows_from() -> None:
    params = stated(epsilon=2, max_contributions="auto").resolve()
    sizes = Sizes(100, 10, (10,) * len(PROFILE_GRID), Fraction(1000))
    with pytest.raises(ParameterError, match="users must be there"):
        make_plan(params.with_contributions(12), sizes).guarantee()
    counted = with_nobody(params)
    told = make_plan(counted.with_contributions(12), sizes)
    guarantee = told.guarantee()
    assert {part.kind: part.epsilon for part in guarantee.parts} == {
        "contributions": Fraction(1, 10),
        "sizing": params.split.size,  # the map of this scale is 22/1000, and all of the share is charged
        "threshold": params.split.threshold,  # what it does not show is encoded for nothing
    }
    assert guarantee.epsilon == params.epsilon
    assert Plan.from_dict(again(told.to_dict())) == told
    assert counted.users is not None
    less = counted.with_users(replace(counted.users, scale=Fraction(9)))
    with pytest.raises(ParameterError, match="noise of users"):
        make_plan(less.with_contributions(12), sizes).guarantee()


def test_a_plan_states_the_numbers_that_its_rounds_follow_from() -> None:
    params = stated(**DELTA, sizes=(10**5, 10**4)).resolve()
    ends = params.user_ends
    users = UserHistogram(ends, (10_000, *(0,) * (len(ends) - 1)), Fraction(100))
    sizes = expected_sizes(params)
    assert sizes is not None
    plan = make_plan(params.with_users(users), sizes)
    assert plan.params.rounds == 1
    assert plan.guarantee().epsilon == 1
    assert Plan.from_dict(again(plan.to_dict())) == plan
    for wrong in (
        params.with_rounds(1),
        params.with_users(replace(users, scale=Fraction(99))),
        params.with_users(users).with_rounds(2),
    ):
        with pytest.raises(ParameterError, match="users"):
            make_plan(wrong, sizes).guarantee()


def test_experts_state_a_selection_by_names_of_the_package() -> None:
    assert (hg.Threshold, hg.Weights) == (Threshold, Weights)
    with pytest.raises(ParameterError, match="is not known here"):
        encoding_of("toy-1")
    with pytest.raises(ParameterError, match="is not known here"):
        noise_of("toy")
