"""Rounds of weighted key selection on arrays: weights by brute force, states, and the noise of a round."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import isqrt

import numpy as np
import pytest

from hushgram.contributions.bounding import Bounds, Contributions
from hushgram.contributions.histogram import Histogram
from hushgram.errors import ParameterError
from hushgram.key_selection.rounds import (
    HOPELESS,
    MAX_ROUNDS,
    OPEN,
    SELECTED,
    MetricShares,
    SelectionPlan,
    best_rounds,
    next_states,
    plan_gaussian,
    release_round,
    weigh,
)
from hushgram.key_selection.weighted import WHOLE, Round
from hushgram.noise.entropy import ReleaseKey
from hushgram.sensitivity import Sensitivity

KEY = ReleaseKey(bytes(range(32)))


def rows_of(pairs: list[tuple[int, int]]) -> Contributions:
    users, keys = (np.array([pair[i] for pair in pairs]) for i in (0, 1))
    return Contributions.of(users, keys, KEY, texts=True).prune(Bounds(1 << 20, 1)).present()


def by_brute_force(rows: Contributions, max_keys: int, states: np.ndarray | None) -> dict[bytes, int]:
    """Weights of open keys, user by user; rows are in the order of priority."""
    assert rows.table is not None
    texts = rows.table.texts.to_pylist()
    open_ = np.ones(len(texts), bool) if states is None else states == OPEN
    out = {text: 0 for text, is_open in zip(texts, open_, strict=True) if is_open}
    every: dict[tuple[int, int], list[int]] = {}
    for high, low, key in zip(
        rows.user_high.tolist(), rows.user_low.tolist(), rows.keys.tolist(), strict=True
    ):
        if open_[key]:
            every.setdefault((high, low), []).append(key)
    for keys in every.values():
        kept = keys[:max_keys]
        for key in kept:
            out[texts[key]] += isqrt(WHOLE * WHOLE // len(kept))
    return out


@pytest.mark.parametrize("max_keys", [1, 2, 5, 100])
@pytest.mark.parametrize("stated", [False, True])
def test_weights_are_those_of_each_user_by_itself(max_keys: int, stated: bool) -> None:
    rng = np.random.default_rng(max_keys)
    rows = rows_of([(int(rng.integers(40)), int(rng.zipf(1.5) % 60)) for _ in range(900)])
    assert rows.table is not None
    states = rng.integers(0, 3, len(rows.table.fingerprints)).astype(np.uint8) if stated else None
    found = weigh(rows, max_keys, states)
    assert found.texts is not None
    expected = by_brute_force(rows, max_keys, states)
    assert dict(zip(found.texts.to_pylist(), found.counts.tolist(), strict=True)) == expected


@pytest.mark.parametrize("max_keys", [1, 3, 50])
def test_one_user_moves_the_weights_by_the_stated_norms(max_keys: int) -> None:
    rng = np.random.default_rng(3)
    for keys in (1, 2, 3, 7, 60):
        one = weigh(rows_of([(1, int(key)) for key in rng.permutation(1000)[:keys]]), max_keys)
        assert np.count_nonzero(one.counts) == min(keys, max_keys) <= one.sensitivity.l0
        assert (one.counts**2).sum() <= one.sensitivity.l2_squared == WHOLE**2
        assert one.counts.sum() <= one.sensitivity.l1
        assert one.counts.max() <= one.sensitivity.max_per_key


def plan(rounds: int = 2) -> SelectionPlan:
    return SelectionPlan(4, (Round(Fraction(WHOLE), 4 * WHOLE),) * rounds, (WHOLE,) * (rounds - 1))


@pytest.mark.fresh_noise(rate=1e-5)
def test_a_round_selects_by_noisy_weights_and_only_keys_that_are_weighed() -> None:
    """20,000 keys of each weight: shares within five standard deviations (a false alarm in a million runs)."""
    size = 20_000
    weights = np.repeat(np.array([0, 1, 2, 4, 8]) * WHOLE, size)
    prints = np.arange(len(weights), dtype=np.uint64)
    import pyarrow as pa

    texts = pa.array([str(i).encode() for i in prints], pa.large_binary())
    part = Histogram(prints, weights, texts, plan().sensitivity)
    states = release_round(0, [(0, part)], plan(), KEY, bytes(32)).reshape(5, size)
    normal = np.vectorize(lambda x: 0.5 * __import__("math").erfc(x / 2**0.5))
    for row, weight in zip(states, (0, 1, 2, 4, 8), strict=True):
        selected, open_ = float(normal(4 - weight)) * (weight > 0), float(normal(1 - weight))
        for chance, found in ((selected, row == SELECTED), (1 - open_, row == HOPELESS)):
            assert abs(found.mean() - chance) <= 5 * (chance * (1 - chance) / size) ** 0.5 + 1e-3 * (
                weight > 0
            )
    assert not (states[0] == SELECTED).any()
    last = release_round(1, [(0, part)], plan(), KEY, bytes(32))
    assert not (last == OPEN).any()


def test_keys_of_weight_0_are_never_selected_even_far_below_the_noise() -> None:
    low = SelectionPlan(4, (Round(Fraction(WHOLE), 1),))
    import pyarrow as pa

    part = Histogram(
        np.arange(1000, dtype=np.uint64),
        np.zeros(1000, np.int64),
        pa.array([str(i).encode() for i in range(1000)], pa.large_binary()),
        low.sensitivity,
    )
    assert not release_round(0, [(0, part)], low, KEY, bytes(32)).any()


def test_a_value_with_a_larger_norm_is_not_admitted() -> None:
    rows = rows_of([(1, key) for key in range(9)])
    with pytest.raises(ParameterError, match="bounded to"):
        release_round(0, [(0, weigh(rows, 9))], plan(), KEY, bytes(32))


def test_states_after_a_round() -> None:
    before = np.array([HOPELESS, OPEN, SELECTED, OPEN], np.uint8)
    found = np.array([SELECTED, HOPELESS], np.uint8)
    assert next_states(before, found).tolist() == [HOPELESS, SELECTED, SELECTED, HOPELESS]
    assert next_states(None, found) is found


@pytest.mark.parametrize(
    ("users", "rounds"),
    [
        ([(1000, 1)], 1),
        ([(900, 1), (100, 4)], 1),
        ([(500, 1), (500, 2)], 2),
        ([(1000, 3.9)], 2),
        ([(1000, 4)], 3),
        ([(-5, 1)], 3),  # noise alone
        ([(990, 1), (10, 1000)], 3),
        ([(0, 1), (0, 4)], 3),
        ([], 3),
    ],
)
def test_rounds_follow_from_keys_per_user(users: list[tuple[int, float]], rounds: int) -> None:
    assert best_rounds(users) == rounds


@pytest.mark.parametrize("rounds", range(1, MAX_ROUNDS + 1))
def test_a_plan_holds_and_less_noise_does_not(rounds: int) -> None:
    """Of the vector, of any round, and a lower threshold of the last one."""
    counts, epsilon, delta = Sensitivity(12, 3), Fraction(3, 4), Fraction(1, 10**6)
    own = MetricShares(Fraction(1, 2), Fraction(1, 4), delta, ((counts.l2_squared, counts.l0),))
    made = plan_gaussian((("", own),), max_keys=10, rounds=rounds).metric("", counts)
    held = made.selection
    assert (len(held.rounds), len(held.hopeless)) == (rounds, rounds - 1)
    assert held.privacy_map(made.scale, epsilon, delta, counts)
    assert not held.privacy_map(made.scale * 9 / 10, epsilon, delta, counts)
    for number, each in enumerate(held.rounds):
        less = Round(each.scale * 9 / 10, each.threshold)
        chosen = (*held.rounds[:number], less, *held.rounds[number + 1 :])
        assert not replace(held, rounds=chosen).privacy_map(made.scale, epsilon, delta, counts)
    last = held.rounds[-1]
    lower = replace(held, rounds=(*held.rounds[:-1], Round(last.scale, last.threshold * 9 // 10)))
    assert not lower.privacy_map(made.scale, epsilon, delta, counts)
    assert SelectionPlan.from_dict(held.to_dict()) == held


def test_a_plan_of_rounds_that_cannot_be_is_refused() -> None:
    one = Round(Fraction(WHOLE), 4 * WHOLE)
    for rounds, hopeless in (((), ()), ((one,) * 4, (1,) * 3), ((one,) * 2, ()), ((one,), (1,))):
        with pytest.raises(ParameterError, match="up to 3 rounds, and a number beside each but the last"):
            SelectionPlan(4, rounds, hopeless)
    text = plan(3).to_dict()
    assert SelectionPlan.from_dict(text) == plan(3)
    for wrong in ({"weight": 2 * WHOLE}, {"max_keys": 0}, {"hopeless": [1]}, {"hopeless": [-1, 1]}):
        with pytest.raises(ParameterError):
            SelectionPlan.from_dict({**text, **wrong})


@pytest.mark.parametrize("rounds", range(1, MAX_ROUNDS + 1))
def test_metrics_that_share_a_selection_are_one_mechanism(rounds: int) -> None:
    """Three equal metrics: selection as for one with all of ε and δ, vectors with √3 of its noise."""
    counts, delta, third = Sensitivity(5, 1), Fraction(1, 10**6), Fraction(1, 3)

    def part(share: Fraction, *most: int) -> MetricShares:
        return MetricShares(share / 2, share / 2, delta * share, tuple((c, c) for c in most))

    whole = plan_gaussian((("", part(Fraction(1), 5)),), max_keys=10, rounds=rounds)
    alone = whole.metric("", counts)
    parts = tuple((name, part(third, 5)) for name in "abc")
    mechanism = plan_gaussian(parts, max_keys=10, rounds=rounds)
    shared = [mechanism.metric(name, counts) for name in "abc"]
    assert {each.selection.rounds for each in shared} == {shared[0].selection.rounds}
    for mine, its in zip(shared[0].selection.rounds, alone.selection.rounds, strict=True):
        assert mine.scale == pytest.approx(float(its.scale), rel=2e-3)
    assert float(shared[0].scale) == pytest.approx(float(alone.scale) * 3**0.5, rel=5e-3)
    for name, each in zip("abc", shared, strict=True):
        held = each.selection
        assert [other for other, _ in held.others] == [other for other in "abc" if other != name]
        assert held.privacy_map(each.scale, Fraction(1), delta, counts)
        assert SelectionPlan.from_dict(held.to_dict()) == held
        # a reader that forgets the others would accept noise for one metric alone
        forgetful = replace(held, others=())
        assert forgetful.privacy_map(each.scale * 9 / 10, Fraction(1), delta, counts)
        assert not held.privacy_map(each.scale * 9 / 10, Fraction(1), delta, counts)
    # C of another metric is chosen later: its candidates cost hardly more than one of them
    choosing = (parts[0], ("b", part(third, 1, 2, 4, 8, 16)), parts[2])
    wider = plan_gaussian(choosing, max_keys=10, rounds=rounds).metric("a", counts)
    assert 1 <= wider.scale / shared[0].scale < Fraction(102, 100)


def test_a_part_of_a_metric_reads_back_and_refuses_nonsense() -> None:
    part = MetricShares(Fraction(1, 3), Fraction(1, 4), Fraction(1, 10**6), ((4, 4), (8, 8)))
    assert part.epsilon == Fraction(7, 12)
    assert MetricShares.from_dict(part.to_dict()) == part
    for wrong in (
        {"selection": "0"}, {"vector": "0"}, {"delta": "0"}, {"bounds": []},
        {"bounds": [{"l2_squared": 0, "l0": 1}]},
    ):  # fmt: skip
        with pytest.raises(ParameterError):
            MetricShares.from_dict({**part.to_dict(), **wrong})
