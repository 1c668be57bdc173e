"""The peers of `benchmarks.methods` are as private as is said, no more than that, and keep to their bytes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks import methods, peers
from hushgram.encodings.buckets import classes
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.gaussian import GRID, gaussian_delta
from hushgram.sensitivity import Sensitivity

pytestmark = pytest.mark.long

KEY = ReleaseKey(bytes(32))
ASKED, ROWS, WIDTH = 3_000, 3, 2_048


def budget(delta: str = "0", contributions: int = 4, bits: float = 40_000) -> peers.SizeAndLoss:
    return peers.SizeAndLoss(Fraction(1), Fraction(delta), contributions, bits)


@pytest.mark.parametrize("signed", [False, True])
def test_a_user_moves_counters_by_no_more_than_their_noise_is_made_for(signed: bool) -> None:
    rng = np.random.default_rng(1)
    made = peers.CounterRows(ASKED, ROWS, 64, rng, signed=signed)  # few counters: keys meet
    counts = rng.integers(0, 50, ASKED)
    most = 0
    for contributions in (1, 4, 40):
        word, scale = peers.counter_noise(ROWS, budget(contributions=contributions))
        assert (word, scale) == ("laplace", contributions * ROWS)
        for _ in range(50):
            user = np.bincount(rng.choice(ASKED, contributions, replace=False), minlength=ASKED)
            moved = np.abs(made.cells(counts + user) - made.cells(counts)).sum()
            assert moved <= contributions * ROWS
            most = max(most, moved - contributions * ROWS)
    assert most == 0  # and the bound is reached


def test_the_gaussian_counts_a_user_whose_keys_are_kept_apart() -> None:
    rng, contributions = np.random.default_rng(2), 8
    made = peers.CounterRows(ASKED, ROWS, WIDTH, rng, signed=True)
    kinds = (made.places % WIDTH) * classes(contributions) // WIDTH  # class in each row
    kept: list[int] = []
    for key in range(ASKED):
        if len(kept) < contributions and all(
            (kinds[row, key] != kinds[row, kept]).all() for row in range(ROWS)
        ):
            kept.append(key)
    user = np.bincount(kept, minlength=ASKED)
    moved = made.cells(user)
    assert set(np.abs(moved)) == {0, 1}
    assert np.count_nonzero(moved) == contributions * ROWS
    delta = Fraction(1, 10**6)
    word, scale = peers.counter_noise(ROWS, budget("1e-6", contributions))
    bounds = Sensitivity(contributions * ROWS, 1)
    assert word == "gaussian"
    assert gaussian_delta((scale,), Fraction(1), bounds) <= delta
    assert gaussian_delta((scale - Fraction(1, GRID),), Fraction(1), bounds) > delta  # no more than needed


def test_laplace_is_taken_where_it_has_the_smaller_variance() -> None:
    assert peers.counter_noise(1, budget("1e-6", 1)) == ("laplace", 1)


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_every_method_answers_within_the_bytes(delta: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(methods.DATA, "small", lambda: methods.zipf(1.1, 2e5, 4_000))
    rows = methods.compare(("small", delta, 2, 8))
    assert [row["method"] for row in rows if not row["method"].endswith("*")] == [
        *methods.OURS,
        *methods.PEERS,
    ]
    ours = max(row["bits"] for row in rows if row["method"] in methods.OURS)
    for row in rows:
        assert 0 < row["bits"] <= 1.02 * ours
        assert row["rmse"]["all keys"] > 0
    rows = methods.against_default(("small", delta, 2, 1))
    assert [row["method"] for row in rows] == ["default", *methods.PEERS]
    assert all(0 < row["bits"] <= 1.02 * rows[0]["bits"] for row in rows)
    beaten = methods.beaten(rows)
    assert all(row["peer"] in methods.PEERS and row["share"] < 0.95 for row in beaten)


def test_a_decoder_that_knows_the_truth_is_no_worse_over_what_it_learned() -> None:
    rng = np.random.default_rng(3)
    truth = np.append(rng.geometric(0.1, 5_000), np.zeros(5_000, np.int64))
    rough = np.maximum(truth + rng.laplace(0, 20, len(truth)), 0.0)
    better = peers.shrunk(rough, truth)
    assert np.mean((better - truth) ** 2) < 0.5 * np.mean((rough - truth) ** 2)
