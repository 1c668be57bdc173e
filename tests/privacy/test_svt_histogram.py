"""Noise on every answer: the norms that queries state hold for every user, are reached, and give ε and δ."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from hushgram.contributions.histogram import Histogram
from hushgram.contributions.keys import fingerprints
from hushgram.errors import ParameterError
from hushgram.mechanisms.svt import ABOVE, HistogramParams, run_batch
from hushgram.mechanisms.svt.exact_answers import QueryPlan
from hushgram.mechanisms.svt.queries import check_stream, parse_query
from hushgram.noise.entropy import ReleaseKey
from hushgram.sensitivity import ExactVector, Sensitivity, exact
from tests.privacy import test_laplace

KEY = ReleaseKey(bytes(range(32)))
KEYS = ("a", "ab", "abc", "b", "c")
_HOUR = 3_600_000_000
RECORDS = pa.table(
    {
        "url": ["a", "b", "c", "d"],
        "n": pa.array([0, 1, 2, None], pa.int64()),
        "t": pa.array([0, 5 * _HOUR + 1, 21 * _HOUR, None], pa.timestamp("us", tz="UTC")),
    }
)


def _at(hour: int, minute: int, offset: int) -> str:
    """A time of the first day of 1970, as clocks show it that are ``offset`` hours ahead."""
    local = hour + offset
    return f"1970-01-0{1 + local // 24}T{local % 24:02}:{minute:02}:00+{offset:02}:00"


# Disjoint, with ends in different time zones: half of them are in falling order as text.
HOURS = [[_at(hour, 0, hour % 2 * 12), _at(hour, 59, (hour + 1) % 2 * 12)] for hour in range(22)]
STREAMS = {
    "keys": [{"key": "a"}, {"key": "b"}, {"key": "zz"}],
    "a key twice": [{"key": "a"}, {"key": "a"}, {"key": "b"}],
    "nested prefixes": [{"prefix": ""}, {"prefix": "a"}, {"prefix": "ab"}, {"prefix": "b"}],
    "keys beside prefixes": [{"prefix": "b"}, {"key": "a"}, {"key": "c"}],
    "keys within prefixes": [{"prefix": "a"}, {"key": "ab"}, {"key": "c"}],
}
OF_RECORDS = {
    "ranges": [{"column": "n", "between": bounds} for bounds in ([0, 1], [1, 2], [2, 5])],
    "values": [{"where": "n = 0"}, {"where": "n in (1, 2)"}, {"where": "n in (2, 2.0)"}],
    "conditions": [{"where": "n = 0"}, {"where": "n < 9"}],
    "ranges of no number": [{"column": "n", "between": [0.2, 0.8]}],
    "hours": [{"column": "t", "between": ends} for ends in HOURS],
}


def plan_of(fields: list[dict[str, object]]) -> QueryPlan:
    queries = check_stream((parse_query(one, i, "q") for i, one in enumerate(fields)), "test")
    return QueryPlan(queries, RECORDS.schema, "url")


def moves(plan: QueryPlan, most: int, per_key: int) -> list[np.ndarray]:
    """What every user that is within the bounds adds to the answers."""
    rows = len(RECORDS) if plan.reads_records else len(KEYS)
    out = []
    for counts in itertools.product(range(per_key + 1), repeat=rows):
        if sum(counts) <= most:
            total, numbers = plan.zeros(), np.array(counts, dtype=np.int64)
            if plan.reads_records:
                plan.add_records(total, RECORDS, numbers)
            else:
                texts = pa.array([key.encode() for key in KEYS], pa.large_binary())
                order = np.argsort(fingerprints(pa.array(KEYS)))
                part = Histogram(
                    fingerprints(pa.array(KEYS))[order], numbers[order], texts.take(pa.array(order))
                )
                plan.add_keys(total, part)
            out.append(
                plan.reading().answers(ExactVector(total, Sensitivity(most, per_key)), [plan.size])[0].values
            )
    return out


@pytest.mark.parametrize(("most", "per_key"), [(1, 1), (3, 1), (3, 2), (4, 4)])
@pytest.mark.parametrize("name", [*STREAMS, *OF_RECORDS])
def test_no_user_moves_the_answers_further_and_one_moves_them_as_far(name, most, per_key):
    plan = plan_of({**STREAMS, **OF_RECORDS}[name])
    stated = plan.sensitivity(Sensitivity(most, per_key))
    found = moves(plan, most, per_key)
    assert max(int(v.max()) for v in found) <= stated.max_per_key
    assert max(int((v**2).sum()) for v in found) <= stated.l2_squared
    assert max(int((v > 0).sum()) for v in found) <= stated.l0
    farthest = max(int(v.sum()) for v in found)
    assert farthest <= stated.l1
    if per_key == most:  # one record may be all of C, so the worst one decides
        assert farthest == stated.l1


def test_ranges_of_instants_are_compared_by_instant():
    """Once 22 disjoint ranges were taken for ranges that nobody moves: reversed, each had a depth of −1."""
    assert sum(low > high for low, high in HOURS) == 11  # as text
    one, plan = Sensitivity(1, 1), plan_of(OF_RECORDS["hours"])
    assert (plan.sensitivity(one).l1, plan.sensitivity(one).l2_squared) == (1, 1)
    reversed_ = [[high, low] for low, high in HOURS]
    for ends in reversed_:
        with pytest.raises(ParameterError, match="'t' must begin with the smaller value") as refused:
            plan_of([{"column": "t", "between": ends}])
        assert "got {!r} above {!r} as timestamp".format(*ends) in str(refused.value)
    with pytest.raises(ParameterError, match="must begin with the smaller value"):
        plan_of([{"column": "t", "between": ends} for ends in (HOURS[0], *reversed_)])


def test_the_root_of_the_number_of_contributions_is_no_bound():
    """The broken twin: √C·h for the L2 norm, where one query counts C keys of a user."""
    plan = plan_of([{"prefix": ""}])
    worst = max(int((v**2).sum()) for v in moves(plan, 4, 1))
    assert worst == plan.sensitivity(Sensitivity(4, 1)).l2_squared == 16 > 4


@pytest.mark.parametrize("name", ["nested prefixes", "a key twice", "keys within prefixes"])
@pytest.mark.long
def test_epsilon_by_enumeration_and_overlap_left_out_exceeds_it(name):
    plan = plan_of(STREAMS[name])
    params = HistogramParams(epsilon=1, threshold=2, sensitivity=plan.sensitivity(Sensitivity(2, 2)))
    nothing = [0] * plan.size
    losses = [test_laplace.loss(float(params.scale), nothing, v.tolist()) for v in moves(plan, 2, 2)]
    assert 0.98 < max(losses) <= 1 + 1e-9
    assert params.privacy_map() == (1, 0)
    wrong = 2.0  # C/ε, as if no key counted twice
    assert max(test_laplace.loss(wrong, nothing, v.tolist()) for v in moves(plan, 2, 2)) > 1.9


def test_gaussian_noise_where_it_is_less():
    moved = Sensitivity(100, 1)
    pure, relaxed = (
        HistogramParams(epsilon=1, delta=delta, threshold=0, sensitivity=moved) for delta in (0, "1e-6")
    )
    assert (pure.noise.name, relaxed.noise.name) == ("laplace", "gaussian")
    assert relaxed.spread < pure.spread / 8
    assert relaxed.privacy_map()[1] <= Fraction(1, 10**6)
    assert (
        HistogramParams(epsilon=1, delta="1e-6", threshold=0, sensitivity=Sensitivity(1, 1)).noise.name
        == "laplace"
    )


@pytest.mark.fresh_noise(rate=1e-5)
def test_every_answer_has_its_noise_and_its_value():
    """Sums of squares of 20,000 draws: false alarm below 1e-6, a scale 30 % off is rejected."""
    values = np.full(20_000, 50)
    params = HistogramParams(epsilon=1, threshold=50, sensitivity=Sensitivity(8, 8))
    out = run_batch(exact(values, max_contributions=8), params, KEY, "s")
    variance = float(((out.value - 50) ** 2).mean())
    assert abs(variance / (2 * 64) - 1) < 5 * math.sqrt(5 / 20_000)
    assert ((out.outcome == ABOVE) == (out.value >= 50)).all()
    assert (out.gap == out.value - 50).all()
    again = run_batch(exact(values, max_contributions=8), params, KEY, "s")
    assert (again.value == out.value).all()
    assert params.error(20_000, "0.05") >= np.abs(out.value - 50).max()


def test_answers_that_move_further_are_refused():
    params = HistogramParams(epsilon=1, threshold=50, sensitivity=Sensitivity(8, 4))
    for moved in ({"max_contributions": 9, "max_per_key": 4}, {"max_contributions": 8, "max_per_key": 5}):
        with pytest.raises(ParameterError, match="calibrated for"):
            run_batch(exact([1, 2], **moved), params, KEY, "s")
    with pytest.raises(ParameterError, match="epsilon must be above 0"):
        HistogramParams(epsilon=0, threshold=1, sensitivity=Sensitivity(1, 1))
