"""Release over a public list of keys."""

from collections import Counter

import numpy as np
import pytest

import hushgram as hg
from hushgram.contributions.keys import encode, hash_bytes
from hushgram.errors import InputError, ParameterError
from hushgram.sparse_histogram.spec import ReleaseSpec
from tests.statistics import fits, laplace_pmf

KEY = hg.ReleaseKey(bytes(range(32)))
PARAMS = hg.ReleaseParams(epsilon="1", max_contributions=2)
USERS = [f"u{i % 200}" for i in range(2000)]
KEYS = [f"k{i % 5}" for i in range(2000)]


def test_every_listed_key_has_a_value_and_others_none():
    sketch = hg.release_public(USERS, KEYS, ["k0", "k1", "absent"], PARAMS, release_key=KEY)
    sketch.verify()
    found = sketch.estimate(["k0", "k1", "absent", "k2"])
    assert found["source"].to_pylist() == ["laplace", "laplace", "laplace", "not listed"]
    assert found["low"][3].as_py() is None
    assert found["resolved"].to_pylist() == [True, True, True, False]  # what is listed has a count of its own
    assert found["high"][2].as_py() >= found["estimate"][2].as_py() >= 0
    assert found["estimate"][3].as_py() is None
    assert found["low"][2].as_py() == 0.0
    found = sketch.estimate(["k0", "k1", "absent"], estimator="unbiased")
    assert abs(found["estimate"][2].as_py()) < 40
    # k0: every user who has k0 also has no other listed key but k1 never: 40 users hold each key
    assert abs(found["estimate"][0].as_py() - 40) < 40
    total = sketch.total(["k0", "k1"])
    assert total.low < 80 < total.high
    assert sketch.heavy().column_names == ["fingerprint", "value", "low", "high", "real", "among", "key"]
    assert sketch.guarantee.epsilon == 1


def test_keys_outside_the_list_use_up_nothing():
    users = ["one"] * 11
    keys = ["listed", *[f"other{i}" for i in range(10)]]
    values = [
        hg.release_public(
            users,
            keys,
            ["listed"],
            hg.ReleaseParams(epsilon="100", max_contributions=1),
            release_key=hg.ReleaseKey(bytes([i]) * 32),
        )
        .estimate(["listed"])["estimate"][0]
        .as_py()
        for i in range(8)
    ]
    assert values == [1.0] * 8


def test_record_level_and_bad_lists():
    sketch = hg.release_public(
        None, KEYS, ["k0"], hg.ReleaseParams(epsilon="50", max_contributions=1), release_key=KEY
    )
    assert sketch.estimate(["k0"])["estimate"][0].as_py() == 400
    with pytest.raises(InputError, match="empty"):
        hg.release_public(USERS, KEYS, [], PARAMS)
    with pytest.raises(InputError, match="twice"):
        hg.release_public(USERS, KEYS, ["a", "a"], PARAMS)
    with pytest.raises(ParameterError, match="not in the public list"):
        hg.release_public(USERS, KEYS, ["k0"], PARAMS).total(["k0", "zz"])


def test_gaussian_noise_where_delta_allows_it(tmp_path):
    """40 keys per user: standard deviation 27 instead of 57. Sketch, answers and guarantee say so."""
    params = hg.ReleaseParams(epsilon="1", delta="1e-6", max_contributions=40)
    users = np.repeat(np.arange(300), 40)
    listed = [f"k{i}" for i in range(40)]
    sketch = hg.release_public(users, listed * 300, listed, params, tmp_path / "a", release_key=KEY)
    sketch.verify()
    assert sketch.plan.noise_name == "gaussian"
    assert 26 < sketch.plan.scale < 28
    assert sketch.guarantee.delta == params.delta
    found = sketch.estimate(["k3", "zz"])
    assert found["source"].to_pylist() == ["gaussian", "not listed"]
    width = found["high"][0].as_py() - found["low"][0].as_py()
    assert width == pytest.approx(2 * 1.96 * float(sketch.plan.scale), rel=0.05)
    errors = sketch.heavy()["value"].to_numpy() - 300
    assert 12 < errors.std() < 45
    weighted = hg.ReleaseParams(epsilon="1", delta="1e-6", max_contributions=2, selection=hg.Weights())
    with pytest.raises(ParameterError, match="selection by weights needs users and any keys"):
        hg.release_public(users, listed * 300, listed, weighted)


def test_counts_without_users_are_selected_by_a_threshold() -> None:
    counts = np.maximum(1, 30_000 // np.arange(1, 4001))
    params = hg.ReleaseParams(epsilon="1", delta="1e-6", max_contributions=8)
    sketch = hg.release_histogram(np.arange(4000), counts, params, release_key=hg.ReleaseKey(bytes([5] * 32)))
    assert sketch.plan.params.selection == "threshold"
    at, number = sketch.distribution()
    for least in (256, 1024):  # as many keys as there are, by the list
        assert number[at >= least].sum() == pytest.approx((counts >= least).sum(), rel=0.1)
    weighted = hg.ReleaseParams(epsilon="1", delta="1e-6", max_contributions=8, selection=hg.Weights())
    with pytest.raises(ParameterError, match="needs users"):
        hg.release_histogram(np.arange(4000), counts, weighted)


LISTED = [f"k{i}" for i in range(1000)]


def noise(listed: list[str], keys: list[str] = KEYS, **more) -> dict[str, int]:
    """The noise on each key of a list, by the exact counts of ``keys``."""
    params = hg.ReleaseParams(**{"epsilon": "1", "max_contributions": 1, **more})
    found = hg.release_public(None, keys, listed, params, release_key=KEY).heavy(all=True)
    assert found["key"].to_pylist() == sorted(listed, key=lambda key: hash_bytes(encode([key]).values)[0])
    counts = Counter(keys)
    return {row["key"]: row["value"] - counts[row["key"]] for row in found.to_pylist()}


@pytest.mark.fresh_noise(rate=1e-5)
def test_every_key_has_noise_once_in_shards_without_data_too() -> None:
    """False-alarm rate: 1e-7 per comparison."""
    for keys in (KEYS, []):
        drawn = noise(LISTED, keys)
        assert len(drawn) == len(LISTED)
        assert fits(np.array(list(drawn.values())), {z: laplace_pmf(1, z) for z in range(-20, 21)})
    assert set(noise(["k0"])) == {"k0"}  # 255 shards have no key


def shared(one: dict[str, int], other: dict[str, int]) -> float:
    return float(np.mean([one[key] == other[key] for key in one]))


@pytest.mark.parametrize(
    "more", [{}, {"delta": "1e-6", "max_contributions": 40}], ids=["laplace", "gaussian"]
)
def test_other_data_and_other_lists_have_other_noise_on_every_key(
    more: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the difference of two outputs under one release key would be that of exact counts."""
    first, most = noise(LISTED, **more), 0.5
    assert noise(LISTED, **more) == first
    assert shared(first, noise(LISTED, [*KEYS, "k7"], **more)) < most  # one record
    assert shared(first, noise([*LISTED, "one more"], **more)) < most  # one key that no record has
    monkeypatch.setattr(ReleaseSpec, "public_key_noise", property(lambda spec: spec.release_key))  # broken
    assert shared(noise(LISTED, **more), noise([*LISTED, "one more"], **more)) > most
