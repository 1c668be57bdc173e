"""The total of everything that is not named: it covers the truth, adds up, and is refused where it was not released."""

from functools import cache

import numpy as np
import pytest

import hushgram as hg
from hushgram.errors import ParameterError

USERS = np.repeat(np.arange(2000), 10)
KEYS = np.array([f"k{k}" for k in np.random.default_rng(3).zipf(1.3, len(USERS)) % 5000])


def params(**changes):
    return hg.ReleaseParams(**{"epsilon": "4", "max_contributions": 10, **changes})


CHOICES = [
    {},
    {"encoding": "buckets"},
    {"delta": "1e-6"},
    {"delta": "1e-6", "encoding": "alp"},
    {"delta": "1e-6", "key_selection": "threshold", "encoding": "alp"},
    {"delta": "1e-6", "key_selection": "threshold", "encoding": "buckets", "noise": "gaussian"},
]


PAIRS = {(u, k) for u, k in zip(USERS.tolist(), KEYS.tolist(), strict=True)}


@cache
def release(number, seed):
    return hg.release(USERS, KEYS, params(**CHOICES[number]), release_key=hg.ReleaseKey(bytes([seed]) * 32))


def truth(sketch, limit):
    """The exact number of distinct (user, key) pairs whose key is not among the named ones."""
    shown = sketch.heavy(keys=sorted(set(KEYS.tolist()))).sort_by(
        [("value", "descending"), ("fingerprint", "ascending")]
    )
    named = set(shown["key"].to_pylist()[:limit])
    return sum(1 for _, key in PAIRS if key not in named)


@pytest.mark.parametrize("limit", [None, 3])
@pytest.mark.parametrize("number", range(len(CHOICES)))
def test_the_interval_holds_and_sums_add_up(number, limit):
    inside = 0
    for seed in range(6):
        sketch = release(number, seed)
        found = sketch.others(limit=limit)
        assert found.low <= found.estimate <= found.high
        inside += found.low <= truth(sketch, limit) <= found.high
        values = np.sort(sketch.heavy()["value"].to_numpy())[::-1]
        named = values[:limit].sum()
        total = sketch.plan.sizes.records + (values.sum() if sketch.plan.selection.name == "weighted" else 0)
        assert found.estimate == pytest.approx(max(total - named, 0))
    assert inside >= 5


def test_sums_of_values_are_in_their_terms():
    chosen = params(max_contributions=5, max_value=1, granularity="0.25")
    sketch = hg.release(
        USERS, KEYS, chosen, values=np.full(len(KEYS), 0.5), release_key=hg.ReleaseKey(bytes(32))
    )
    named = sketch.heavy()["value"].to_numpy().sum()
    assert sketch.others().estimate == pytest.approx(max(sketch.plan.sizes.records * 0.25 - named, 0))


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"delta": "1e-6", "encoding": "none"}, "selected keys alone"),
        ({"delta": "1e-6", "encoding": "none", "key_selection": "threshold"}, "selected keys alone"),
        ({"expected_records": 20_000, "expected_keys": 4000}, "was stated, not released"),
    ],
)
def test_totals_that_were_not_released_are_refused(choice, words):
    with pytest.raises(ParameterError, match=words):
        hg.release(USERS, KEYS, params(**choice)).others()


def test_there_are_no_others_beside_public_keys():
    with pytest.raises(ParameterError, match="not in the public list"):
        hg.release_public(USERS, KEYS, ["k1"], params()).others()


@pytest.mark.parametrize("number", range(len(CHOICES)))
def test_several_sets_at_once_have_the_totals_that_each_has_alone(number):
    sketch = release(number, 0)
    sets = [["k1", "k2", "nowhere"], [], ["k1"], [f"k{k}" for k in range(100)]]
    assert sketch.totals(sets) == [sketch.total(keys) for keys in sets]
    assert sketch.totals([]) == []
    with pytest.raises(ParameterError, match="estimator"):
        sketch.totals([["k1"]], estimator="other")
