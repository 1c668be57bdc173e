"""Exact values carry their sensitivity, and no mechanism draws noise on a value that was bounded less than it needs."""

from __future__ import annotations

import ast
import itertools
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hushgram as hg
from hushgram.contributions.bounding import Bounds, Contributions
from hushgram.contributions.histogram import Histogram, KeyTable
from hushgram.errors import ParameterError
from hushgram.mechanisms.clipping import ClipParams, ClipTally, release_clipped
from hushgram.mechanisms.laplace import LaplaceParams, release_listed
from hushgram.mechanisms.pmw import OfflineParams, OfflinePMW, OnlinePMW, PmwParams
from hushgram.mechanisms.selection import SelectionParams, top
from hushgram.mechanisms.svt.mechanism import run_batch
from hushgram.mechanisms.svt.params import SvtParams
from hushgram.noise.entropy import BitSource, InteractiveKey, ReleaseKey
from hushgram.sensitivity import (
    ANY,
    CONSTANT,
    ONE_RECORD,
    PRIVACY_UNITS,
    UNBOUNDED,
    Exact,
    ExactVector,
    Sensitivity,
    exact,
)
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.plan import make_plan, make_public_plan
from hushgram.sparse_histogram.sizing import Sizes, Survey, of_sizes, release_sizes
from hushgram.sparse_histogram.spec import ReleaseSpec
from hushgram.sparse_histogram.steps import (
    PlannedRelease,
    count_listed,
    encode_counts,
    select_keys,
)
from hushgram.transforms.shuffle.coders import HistogramCoder, SurveyCoder

KEY = ReleaseKey(bytes(range(32)))
SENSITIVITIES = st.builds(
    Sensitivity,
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from(PRIVACY_UNITS),
    st.booleans(),
    st.sampled_from([0, 16, 32, ANY]),
)


# --- sensitivities ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "calibrated", "fits"),
    [
        (Sensitivity(8, 2), Sensitivity(8, 2), True),
        (Sensitivity(7, 1), Sensitivity(8, 2), True),
        (Sensitivity(9, 2), Sensitivity(8, 2), False),
        (Sensitivity(8, 3), Sensitivity(8, 2), False),
        (Sensitivity(1, 1, "record"), Sensitivity(8, 8, "user"), False),
        (Sensitivity(1, 1, "user"), Sensitivity(8, 8, "record"), False),
        (Sensitivity(8, 2), Sensitivity(8, 2, monotone=False), True),
        (Sensitivity(8, 2, monotone=False), Sensitivity(8, 2), False),
        (Sensitivity(8, 2, classes=16), Sensitivity(8, 2), True),
        (Sensitivity(8, 2), Sensitivity(8, 2, classes=16), False),
        (Sensitivity(8, 2, classes=8), Sensitivity(8, 2, classes=16), False),
        (Sensitivity(8, 2, classes=16), Sensitivity(8, 2, classes=16), True),
        (ONE_RECORD, Sensitivity(8, 2, "record", classes=16), True),
        (ONE_RECORD.times(2), Sensitivity(8, 2, "record", classes=16), True),
        (ONE_RECORD.times(3), Sensitivity(8, 2, "record", classes=16), False),
        (ONE_RECORD.added_up(), Sensitivity(8, 2, "record", classes=16), False),
        (CONSTANT, Sensitivity(1, 1, "record"), True),
        (CONSTANT, Sensitivity(1, 1, classes=16), True),
        (UNBOUNDED, Sensitivity(ANY, ANY, monotone=False), False),
        (UNBOUNDED, UNBOUNDED, True),
    ],
)
def test_noise_protects_what_moves_no_further_than_it_is_calibrated_for(held, calibrated, fits):
    assert held.within(calibrated) is fits


@given(SENSITIVITIES, SENSITIVITIES, SENSITIVITIES)
def test_within_is_an_order_and_the_norms_follow_it(one, two, three):
    assert one.within(one)
    if one.within(two) and two.within(three):
        assert one.within(three)
    if one.within(two):
        assert one.l1 <= two.l1
        assert one.l2_squared <= two.l2_squared


@pytest.mark.parametrize(("most", "per_key"), [(1, 1), (4, 1), (7, 3), (6, 6), (5, 8)])
def test_the_l2_norm_is_that_of_the_worst_split(most, per_key):
    limit = min(most, per_key)
    worst = max(
        sum(part * part for part in split)
        for split in itertools.product(range(limit + 1), repeat=most)
        if sum(split) <= most
    )
    assert Sensitivity(most, per_key).l2_squared == worst


def test_times_multiplies_both_bounds_and_keeps_the_rest():
    held = Sensitivity(4, 2, "record", monotone=False, classes=16)
    assert held.times(3) == Sensitivity(12, 6, "record", monotone=False, classes=16)
    assert CONSTANT.times(3) == CONSTANT


@pytest.mark.parametrize(
    "derived",
    [
        lambda: Sensitivity(0, 1),
        lambda: Sensitivity(1, 0),
        lambda: Sensitivity(-1, 1),
        lambda: Sensitivity(4, 1, l2_bound=0),
        lambda: Sensitivity(4, 1, l0_bound=-1),
        lambda: Sensitivity(4, 1).times(0),
        lambda: Sensitivity(4, 1).times(-1),
        lambda: replace(ONE_RECORD, max_contributions=0),
    ],
)
def test_a_bound_that_comes_out_as_zero_is_an_error(derived):
    """It would be within what any noise is calibrated for."""
    with pytest.raises(ParameterError, match=r"Sensitivity: .* must be at least 1, got (0|-)"):
        derived()


def test_a_value_that_nothing_moves_says_so_by_its_type():
    held = [CONSTANT, CONSTANT.times(3), CONSTANT.added_up(), of_sizes(CONSTANT)]
    held += [
        Sensitivity.side_by_side([]),
        Sensitivity.side_by_side([CONSTANT] * 2),
        Survey.of([]).sensitivity,
    ]
    for one in held:
        assert one == CONSTANT
        assert type(one) is type(CONSTANT) is not Sensitivity
    assert (CONSTANT.l0, CONSTANT.l1, CONSTANT.l2_squared) == (0, 0, 0)
    assert not ONE_RECORD.within(CONSTANT)
    assert pickle.loads(pickle.dumps(CONSTANT)) == CONSTANT


def test_parts_side_by_side_protect_one_unit():
    parts = [Sensitivity(4, 2), Sensitivity(3, 3, monotone=False)]
    together = Sensitivity.side_by_side([*parts, CONSTANT])
    assert together == Sensitivity(7, 3, monotone=False, l2_bound=8 + 9, l0_bound=7)
    with pytest.raises(ParameterError, match="one privacy unit"):
        Sensitivity.side_by_side([*parts, ONE_RECORD])


def test_sums_by_group_may_hold_all_of_a_user():
    held = Sensitivity(8, 2, "record", monotone=False, classes=16)
    assert held.added_up() == Sensitivity(8, 8, "record", monotone=False, classes=0)
    assert not held.added_up().within(held)


def test_sizes_move_by_twice_the_counts():
    assert of_sizes(Sensitivity(8, 2, "record", classes=16)) == Sensitivity(16, 8, "record")


def test_sensitivities_say_what_they_are():
    assert str(Sensitivity(1000, 2)) == "at most 1,000 per user and 2 per key"
    assert str(Sensitivity(8, 8, "record")) == "at most 8 per record"
    assert str(Sensitivity(8, 1, classes=16)) == "at most 8 per user and 1 per key, one key per class"
    assert str(ONE_RECORD) == "at most 1 per record"


# --- values -----------------------------------------------------------------------------------------------------


def vector(*sensitivity: object, **changes: object) -> ExactVector:
    return ExactVector(np.array([3, 5]), Sensitivity(*sensitivity, **changes))  # type: ignore[arg-type]


def test_parts_that_were_bounded_together_share_their_sensitivity():
    part = vector(8, 2)
    assert (
        Exact.shared([part, part])
        == Exact.shared([part, ExactVector(np.zeros(2), CONSTANT)])
        == part.sensitivity
    )
    assert Exact.shared([]) == CONSTANT
    assert (part + part).sensitivity == part.sensitivity


@pytest.mark.parametrize(
    "other",
    [
        vector(8, 1),
        vector(9, 2),
        vector(8, 2, "record"),
        vector(8, 2, monotone=False),
        vector(8, 2, classes=16),
        ExactVector(np.zeros(2)),
    ],
)
def test_parts_of_different_bounds_are_never_one_value(other):
    with pytest.raises(AssertionError, match="parts of different bounds"):
        Exact.shared([vector(8, 2), other])
    with pytest.raises(AssertionError, match="parts of different bounds"):
        vector(8, 2) + other


def test_histograms_and_surveys_of_different_bounds_do_not_merge():
    users, keys = ["a", "a", "b"], ["x", "y", "x"]
    rows = Contributions.of(users, keys, KEY, texts=False)
    one, two = rows.bounded(Bounds(2, 1)), rows.bounded(Bounds(3, 1))
    with pytest.raises(AssertionError, match="parts of different bounds"):
        Histogram.merge([one, two])
    with pytest.raises(AssertionError, match="parts of different bounds"):
        Survey.of([(0, one), (1, two)])
    with pytest.raises(AssertionError, match="parts of different bounds"):
        Survey.of([(0, one)]) + Survey.of([(1, two)])


@pytest.mark.parametrize(
    ("held", "told"),
    [
        (
            ExactVector(np.array([1])),
            "the value is not bounded, but the noise is calibrated for at most 8 per user",
        ),
        (
            vector(9, 2),
            "bounded to at most 9 per user and 2 per key, but the noise is calibrated for at most 8",
        ),
        (vector(8, 3), "bounded to at most 8 per user and 3 per key"),
        (vector(1, 1, "record"), "bounded to at most 1 per record"),
        (vector(8, 2, monotone=False), "bounded to"),
        (vector(8, 2), "bounded to"),
        (vector(8, 2, classes=8), "bounded to"),
    ],
)
def test_a_mechanism_admits_nothing_that_it_does_not_protect(held, told):
    with pytest.raises(ParameterError, match=told):
        held.admit(Sensitivity(8, 2, classes=16))


def test_what_is_protected_is_admitted_unchanged():
    held = vector(8, 2, classes=16)
    assert held.admit(Sensitivity(8, 2, classes=16)) is held


def test_a_value_that_nobody_bounded_is_admitted_by_no_noise_at_all():
    with pytest.raises(ParameterError, match="not bounded"):
        ExactVector(np.array([1])).admit(Sensitivity(ANY, ANY, monotone=False))


def test_exact_is_the_callers_promise():
    held = hg.sensitivity.exact([12, 3], max_contributions=8, max_per_key=1)
    assert held.sensitivity == Sensitivity(8, 1)
    assert held.values.tolist() == [12, 3]
    assert exact([1], max_contributions=8).sensitivity == Sensitivity(8, 8)
    assert exact([1], max_contributions=1, unit="record").sensitivity == Sensitivity(1, 1, "record")


@pytest.mark.parametrize("values", [[0.5], [[1, 2]], ["a"], [True], 3])
def test_exact_takes_whole_numbers_alone(values):
    with pytest.raises(ParameterError, match="list of whole numbers"):
        exact(values, max_contributions=1)


@pytest.mark.parametrize(
    ("promise", "told"),
    [
        ({"max_contributions": 0}, "exact: max_contributions must be from 1"),
        ({"max_contributions": -1}, "exact: max_contributions must be from 1"),
        ({"max_contributions": 0.5}, "exact: max_contributions must be a whole number"),
        ({"max_contributions": 8, "max_per_key": 0}, "exact: max_per_key must be from 1"),
        ({"max_contributions": 8, "unit": "users"}, "exact: unit must be user or record, got 'users'"),
    ],
)
def test_a_promise_that_means_nothing_is_refused(promise, told):
    with pytest.raises(ParameterError, match=told):
        exact([1], **promise)


def test_whatever_is_derived_from_no_bound_has_no_bound():
    """And it still goes from worker to worker, to be refused where noise would be drawn."""
    for derived in (
        UNBOUNDED.times(1 << 20),
        UNBOUNDED.added_up(),
        of_sizes(UNBOUNDED),
        of_sizes(UNBOUNDED.times(3)),
    ):
        assert derived == UNBOUNDED
    survey = Survey.of([(0, Histogram.of_counts(["x"], np.array([3]), texts=False))])
    back = SurveyCoder().decode(SurveyCoder().encode(survey))
    with pytest.raises(ParameterError, match="Survey: the value is not bounded"):
        release_sizes(back, Fraction(1), Sensitivity(ANY, ANY), KEY)


# --- the code that bounds states what it did ----------------------------------------------------------------------


def test_bounding_states_the_bounds_it_enforced():
    rows = Contributions.of(["a", "a", "b"], ["x", "y", "x"], KEY, texts=True)
    spec = spec_of(ReleaseParams(epsilon=1, delta="1e-6", max_contributions=8))
    kept = spec.bounds()
    assert kept.key_classes is not None
    assert rows.bounded(kept).sensitivity == Sensitivity(8, 1, classes=kept.key_classes.classes)
    for half in rows.bounded_apart(kept, np.array([True, False])):
        assert half.sensitivity == spec.params.sensitivity == replace(kept.sensitivity, halves=True)
    assert rows.bounded(Bounds(3, 2)).sensitivity == Sensitivity(3, 2)
    assert Histogram.empty(texts=True).sensitivity == CONSTANT
    assert Histogram.of_column(["x", "x"], texts=False).sensitivity == ONE_RECORD
    assert Histogram.of_counts(["x"], np.array([3]), texts=False).sensitivity == UNBOUNDED


def test_keys_that_meet_in_a_cell_add_up():
    held = Contributions.of(["a", "a"], ["x", "y"], KEY, texts=False).bounded(Bounds(8, 2))
    assert held.reduced(20).sensitivity == Sensitivity(8, 8)
    assert held.part(0, 1).sensitivity == held.rounded(KEY).sensitivity == Sensitivity(8, 2)
    assert {part.sensitivity for part in held.shards()} == {Sensitivity(8, 2)}


# --- mechanisms -------------------------------------------------------------------------------------------------

SVT = SvtParams(epsilon=1, threshold=10, sensitivity=2, monotone=True)
MECHANISMS: dict[str, Callable[..., object]] = {
    "release_listed": lambda counts, **unit: release_listed(
        ["a", "b"], counts, LaplaceParams(1, max_contributions=2), KEY, **unit
    ),
    "run_batch": lambda counts, **unit: run_batch(counts, SVT, KEY, "stream", **unit),
    "top": lambda counts, **unit: top(
        counts, SelectionParams(1, sensitivity=2), BitSource(bytes(32)), **unit
    ),
    "OnlinePMW": lambda counts, **unit: OnlinePMW(
        counts, PmwParams(20, max_contributions=2, max_updates=2), InteractiveKey.generate(), **unit
    ),
    "OfflinePMW": lambda counts, **unit: OfflinePMW(
        counts, OfflineParams(20, max_contributions=2, rounds=2), ReleaseKey(bytes(32)), **unit
    ),
}


@pytest.mark.parametrize("bare", [np.array([9, 3]), [9, 3]], ids=["array", "list"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_bare_array_is_refused_in_one_line_that_says_what_to_do(name, bare):
    with pytest.raises(ParameterError) as caught:
        MECHANISMS[name](bare)
    assert str(caught.value) == (
        f"{name}: takes exact values with their sensitivity, got {type(bare).__name__}; "
        "state it: hushgram.sensitivity.exact(values, max_contributions=8)"
    )


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanisms_admit_what_they_are_calibrated_for_and_nothing_else(name):
    mechanism = MECHANISMS[name]
    mechanism(exact([9, 3], max_contributions=2))
    mechanism(exact([9, 3], max_contributions=2, unit="record"), unit="record")
    mechanism(ExactVector(np.array([9, 3]), CONSTANT))
    for wrong in (
        ExactVector(np.array([9, 3])),
        exact([9, 3], max_contributions=3),
        exact([9, 3], max_contributions=2, unit="record"),
    ):
        with pytest.raises(ParameterError, match="but the noise is calibrated for"):
            mechanism(wrong)


@pytest.mark.parametrize("name", ["run_batch", "top"])
def test_the_noise_of_monotone_scores_is_not_for_others(name):
    both = ExactVector(np.array([9, 3]), Sensitivity(2, 2, monotone=False))
    halved = {
        "run_batch": lambda: run_batch(both, replace(SVT, monotone=False), KEY, "stream"),
        "top": lambda: top(both, SelectionParams(1, sensitivity=2, monotone=False), BitSource(bytes(32))),
    }
    halved[name]()
    monotone = {
        "run_batch": lambda: run_batch(both, SVT, KEY, "stream"),
        "top": lambda: top(both, SelectionParams(1, sensitivity=2, monotone=True), BitSource(bytes(32))),
    }
    with pytest.raises(ParameterError, match="but the noise is calibrated for"):
        monotone[name]()


def test_a_stream_admits_any_number_of_answers_of_its_sensitivity():
    """SVT and selection depend on how far one answer moves, not on how many do."""
    many = ExactVector(np.arange(100), Sensitivity(200, 2))
    run_batch(many, SVT, KEY, "stream")
    top(many, SelectionParams(1, sensitivity=2), BitSource(bytes(32)))
    with pytest.raises(ParameterError, match="bounded to at most 200 per user and 3 per key"):
        run_batch(replace(many, sensitivity=Sensitivity(200, 3)), SVT, KEY, "stream")


def planned(unit: str = "user", **changes: object) -> PlannedRelease:
    given: dict[str, object] = {"epsilon": 1, "max_contributions": 4, **changes}
    params = ReleaseParams(**given).resolve(unit)  # type: ignore[arg-type]
    return PlannedRelease(make_plan(params, Sizes(1000, 100, (), Fraction(1000))), bytes(32))


def spec_of(params, **more):
    return replace(ReleaseSpec.of(params, user="user", **more), release_key=KEY)


SETTINGS = [{}, {"delta": "1e-6"}, {"delta": "1e-6", "selection": hg.Threshold()}, {"preset": "paper"}]


@pytest.mark.parametrize("changes", SETTINGS, ids=str)
def test_a_histogram_without_bounds_reaches_no_part_of_a_release(changes):
    release = planned(**changes)
    rows, plan = Contributions.of(["a", "a", "b"], ["x", "y", "x"], KEY, texts=True), release.plan
    bounds = spec_of(plan.params.stated).bounds()
    fits = rows.bounded(bounds)
    if plan.params.weighted:
        fits = rows.bounded_apart(bounds, np.zeros(2, bool))[1]
    shard, part = next((i, shard) for i, shard in enumerate(fits.shards()) if len(shard))
    table = KeyTable(part.fingerprints, part.texts)
    mechanisms = [
        lambda part: list(encode_counts([(shard, part)], release, KEY)),
        lambda part: release_sizes(Survey.of([(0, part)]), Fraction(1), plan.sensitivity, KEY),
        lambda part: (
            count_listed(shard, part, table, plan, KEY, bytes(32))
            if plan.params.weighted
            else select_keys(shard, part, release, KEY)
        ),
    ]
    for mechanism in mechanisms:
        mechanism(part)
        for wrong in (
            UNBOUNDED,
            replace(part.sensitivity, max_contributions=5),
            replace(part.sensitivity, max_per_key=4, monotone=False),
            replace(part.sensitivity, unit="record"),
        ):
            with pytest.raises(ParameterError, match="but the noise is calibrated for"):
                mechanism(replace(part, sensitivity=wrong))


def test_gaussian_buckets_refuse_users_whose_keys_may_meet():
    """One user's keys in one bucket move it by all of C: the noise is for L2 of one key per class."""
    release, none = planned(delta="1e-6"), np.zeros(2, bool)
    rows = Contributions.of(["a", "a"], ["x", "y"], KEY, texts=True)
    together = rows.bounded_apart(Bounds(4, 1), none)[1]
    apart = rows.bounded(spec_of(release.plan.params.stated).bounds())  # by itself, not with named keys
    for wrong in (together, apart):
        shard, part = next((i, shard) for i, shard in enumerate(wrong.shards()) if len(shard))
        with pytest.raises(ParameterError, match="but the noise is calibrated for"):
            list(encode_counts([(shard, part)], release, KEY))


def test_releases_that_protect_a_record_refuse_users_and_the_other_way_round():
    records = Histogram.of_column(["x", "y"], texts=False)
    shard, part = next((i, shard) for i, shard in enumerate(records.shards()) if len(shard))
    select_keys(shard, part, planned("record"), KEY)
    with pytest.raises(
        ParameterError, match="at most 1 per record, but the noise is calibrated for at most 4 per user"
    ):
        select_keys(shard, part, planned("user"), KEY)


def test_other_mechanisms_of_a_release_admit_too():
    for noise, changes in (("laplace", {}), ("gaussian", {"delta": "1e-6", "max_contributions": 100})):
        params = ReleaseParams(**{"epsilon": 1, "max_contributions": 4, **changes})
        spec = spec_of(params, public_keys=["x", "y"])
        plan = make_public_plan(spec.params, 2)
        assert plan.noise_name == noise
        fits = Contributions.of(["a", "b"], ["x", "y"], KEY, texts=True).bounded(Bounds(4, 1))
        assert spec.public_keys is not None
        shard, part = next((i, part) for i, part in enumerate(fits.shards()) if len(part))
        given = (spec.public_keys.shards()[shard], plan, spec.public_key_noise, bytes(32))
        count_listed(shard, part, *given)
        with pytest.raises(ParameterError, match="not bounded"):
            count_listed(shard, replace(part, sensitivity=UNBOUNDED), *given)
    params = ClipParams(epsilon=1, stop=4, max_contributions=2)
    counted = ClipTally((0,) * len(params.bounds), (0,) * len(params.bounds), 3, Sensitivity(2, 2))
    release_clipped(counted, params, KEY)
    for wrong in (Sensitivity(3, 3), UNBOUNDED, Sensitivity(2, 2, "record")):
        with pytest.raises(ParameterError, match="but the noise is calibrated for"):
            release_clipped(replace(counted, sensitivity=wrong), params, KEY)


# --- between workers ----------------------------------------------------------------------------------------------


@given(SENSITIVITIES | st.sampled_from([UNBOUNDED, CONSTANT, ONE_RECORD]))
def test_sensitivities_go_from_worker_to_worker_with_their_values(sensitivity):
    held = replace(Histogram.of_column(["x", "y", "x"], texts=True), sensitivity=sensitivity)
    back = HistogramCoder().decode(HistogramCoder().encode(held))
    assert back.sensitivity == sensitivity
    survey = Survey(3, np.array([2, 1]), ((0, bytes(32)),), sensitivity)
    assert SurveyCoder().decode(SurveyCoder().encode(survey)).sensitivity == sensitivity


# --- every draw of noise ------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
#: What draws noise, by the name of the function or method.
SAMPLERS = {
    "bernoulli",
    "coins",
    "discrete_gaussian",
    "discrete_gaussians",
    "discrete_laplace",
    "flip_bits",
    "geometric",
    "rand_round",
    "sample",
    "sample_tail",
    "successes",
    "uniform_below",
}
#: Functions that draw on a value which another function admitted, and that function.
ADMITTED_BY = {
    "core/encodings/alp.py:randomize_block": "core/sparse_histogram/plan.py:Plan.encoded_cells",
    "core/encodings/alp.py:round_shard": "core/sparse_histogram/plan.py:Plan.encoded_cells",
    "core/encodings/buckets.py:BucketsLayout.release_block": "core/sparse_histogram/plan.py:Plan.encoded_cells",
    "core/mechanisms/pmw/mechanism.py:PrivateWeights._noisy_total": "core/mechanisms/pmw/mechanism.py:PrivateWeights.__init__",  # noqa: E501
    "core/mechanisms/pmw/mechanism.py:OfflinePMW.answer": "core/mechanisms/pmw/mechanism.py:PrivateWeights.__init__",
    "core/mechanisms/selection.py:_exponential": "core/mechanisms/selection.py:top",
    "core/mechanisms/selection.py:_largest": "core/mechanisms/selection.py:top",
    "core/mechanisms/selection.py:_permute_and_flip": "core/mechanisms/selection.py:top",
    "core/key_selection/threshold.py:_named": "core/sparse_histogram/steps.py:select_keys",
    "core/key_selection/threshold.py:_ListedCells.release": "core/sparse_histogram/steps.py:select_keys",
}
#: Functions that draw and admit nothing, and why.
NOT_ADMITTED = {
    "core/mechanisms/calculators.py:_summed": "noise alone: there are no data",
    "core/mechanisms/laplace.py:LaplaceAnswers.answer": "a stream of answers: Δ is the caller's promise",
    "core/mechanisms/randomized_response/mechanism.py:randomize": "one secret bit per record, each with noise of its own",  # noqa: E501
    "core/mechanisms/selection.py:_coins": "a sampler: coins of stated probabilities",
    "core/mechanisms/svt/accuracy.py:measure": "a stream of answers: Δ is the caller's promise",
    "core/mechanisms/svt/mechanism.py:NoiseStream._draw": "a stream of answers: Δ is the caller's promise; `run_batch` admits",  # noqa: E501
    "core/mechanisms/svt/mechanism.py:NoiseStream.values": "a stream of answers: Δ is the caller's promise; `run_batch` admits",  # noqa: E501
}


def functions() -> Iterator[tuple[str, ast.AST]]:
    """Every function of the product outside of the samplers themselves: "file:Class.method", and its tree."""
    for file in sorted(
        file for part in ("core", "transforms", "pipelines") for file in (ROOT / part).rglob("*.py")
    ):
        place = file.relative_to(ROOT).as_posix()
        if not place.startswith("core/noise/"):
            for node in ast.parse(file.read_text()).body:
                yield from _functions(node, place + ":")


def _functions(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.ClassDef):
        for part in node.body:
            yield from _functions(part, f"{name}{node.name}.")
    else:
        yield name + getattr(node, "name", "<module>"), node


def calls(node: ast.AST) -> set[str]:
    """Names of the functions and methods that are called inside of a function."""
    called = (n.func for n in ast.walk(node) if isinstance(n, ast.Call))
    return {
        n.id if isinstance(n, ast.Name) else n.attr for n in called if isinstance(n, ast.Name | ast.Attribute)
    }


@cache
def calls_of_functions() -> list[tuple[str, set[str]]]:
    return [(name, calls(node)) for name, node in functions()]


def test_every_draw_of_noise_is_on_a_value_that_was_admitted():
    found = dict(calls_of_functions())
    draws = {name for name, used in found.items() if used & SAMPLERS}
    alone = {name for name in draws if "admit" not in found[name]}
    assert alone == {*ADMITTED_BY, *NOT_ADMITTED}
    assert all("admit" in found[gate] for gate in ADMITTED_BY.values())
    assert "encoded_cells" in found["core/sparse_histogram/steps.py:encode_counts"]


def test_one_number_moves_by_no_more_than_all_together() -> None:
    """A bound per key above the one on the total says nothing more."""
    assert Sensitivity(1, 3) == Sensitivity(1, 1)
    assert Sensitivity(1, 3).within(Sensitivity(1, 1))
