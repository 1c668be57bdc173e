"""The learnt histogram: whole numbers, repeatable arithmetic, multiplicative updates."""

import numpy as np
import pytest

from hushgram.errors import ParameterError
from hushgram.pmw.hypothesis import MOST_TOTAL, Hypothesis, repeatable_exp
from hushgram.pmw.workload import GRID, Domain, Workload


def test_repeatable_exp_is_exp():
    z = -np.concatenate([np.linspace(0, 40, 4001), np.geomspace(1e-12, 600, 500)])
    assert repeatable_exp(z) == pytest.approx(np.exp(z), rel=1e-11)
    assert repeatable_exp(np.array([0.0]))[0] == 1.0


def test_starts_uniform_and_answers_in_whole_numbers():
    h = Hypothesis(4, 1000)
    assert h.estimate(Workload.of([[1, 0, 0, 0], [1, 1, 1, 1], [0.5, 0, 0, 0]])).tolist() == [
        250 * GRID,
        1000 * GRID,
        125 * GRID,
    ]


def test_plain_update_is_multiplicative():
    h = Hypothesis(3, 1000)
    row = np.array([GRID, 0, GRID // 2])
    h.learn(row, 900 * GRID, replay=0, rate=0.3, sign=1)
    expected = np.exp(0.3 * row / GRID)
    assert h.counts() == pytest.approx(1000 * expected / expected.sum(), rel=1e-6)


@pytest.mark.parametrize("total", [10, 10**6, MOST_TOTAL])
def test_replay_fits_consistent_answers(total):
    rng = np.random.default_rng(0)
    truth = rng.dirichlet(np.full(20, 0.5)) * total
    rows = rng.integers(0, GRID + 1, (30, 20))
    h = Hypothesis(20, total, None, 30)
    for row in rows:
        h.learn(row, int(row @ truth), replay=20, rate=0.1, sign=1)
    h.replay(2000)
    assert np.abs(h.counts() - truth).max() < 0.02 * total


def test_noise_and_contradictions_do_not_break_it():
    h = Hypothesis(5, 100, None, 40)
    row = np.array([GRID, 0, 0, 0, 0])
    for i in range(40):
        h.learn(row, (-(10**15) if i % 2 else 10**15), replay=3, rate=0.1, sign=1)
    counts = h.counts()
    assert np.isfinite(counts).all()
    assert counts.min() >= 0
    assert counts.sum() == pytest.approx(100, rel=1e-6)


def test_one_cell_and_the_widest_domain():
    one = Hypothesis(1, 50, None, 1)
    one.learn(np.array([GRID]), 20 * GRID, replay=2, rate=0.1, sign=-1)
    assert one.counts().tolist() == [50.0]
    wide = Hypothesis(1 << 20, 10**9, None, 1)
    wide.learn(np.arange(1 << 20) % (GRID + 1), 10**9 * GRID // 4, replay=1, rate=0.1, sign=-1)
    assert wide.counts().sum() == pytest.approx(10**9, rel=1e-3)


def test_products_stay_exact_whole_numbers():
    """The replay's sums do not depend on the order in which they are added: all are whole and below 2^53."""
    rng = np.random.default_rng(6)
    h = Hypothesis(64, MOST_TOTAL, None, 50)
    for row in rng.integers(0, 2, (50, 64)) * GRID:
        h.learn(row, int(rng.integers(0, MOST_TOTAL)) * GRID, replay=2, rate=0.1, sign=1)
    backwards = [sum(int(a) * int(b) for a, b in zip(r[::-1], h._h[::-1], strict=True)) for r in h._asked]
    assert (h._asked @ h._h).tolist() == backwards
    assert abs(h._asked).max() * h._h.sum() < 2**53


def test_priors_are_checked():
    with pytest.raises(ParameterError, match="prior"):
        Hypothesis(2, 10, np.array([1, 0]))
    with pytest.raises(ParameterError, match="empty"):
        Hypothesis(0, 10)
    h = Hypothesis(2, 400, np.array([3, 1]))
    assert h.counts().tolist() == [300.0, 100.0]


def test_domain_and_queries_name_what_is_wrong():
    domain = Domain(("a", "b", "c"))
    assert domain.weights(["a", "c"]).tolist() == [GRID, 0, GRID]
    assert domain.weights({"b": 1 / 3}).tolist() == [0, GRID // 3, 0]
    with pytest.raises(ParameterError, match="'z' is not among the 3 keys"):
        domain.weights(["z"])
    with pytest.raises(ParameterError, match=r"from 0 to 1, got -0\.5"):
        domain.weights({"a": -0.5})
    with pytest.raises(ParameterError, match="from 0 to 1, got nan"):
        Workload.of([[float("nan")]])
    with pytest.raises(ParameterError, match="empty"):
        Domain(())
    with pytest.raises(ParameterError, match="'a' is listed twice"):
        Domain(("a", "b", "a"))
    with pytest.raises(ParameterError, match="matrix"):
        Workload.of([0.5])
    with pytest.raises(ParameterError, match=r"from 0 to 1, got 1\.3"):
        Workload(np.array([[65_520]], np.uint16))


def test_exact_products_are_exact():
    rng = np.random.default_rng(9)
    grid = rng.integers(0, GRID + 1, (700, 513)).astype(np.uint16)
    counts = rng.integers(0, 2**45 // 513, 513)
    expected = [sum(int(w) * int(x) for w, x in zip(row, counts, strict=True)) for row in grid[:40]]
    assert Workload(grid).exact(counts)[:40].tolist() == expected
    assert (Workload(grid).exact(counts, 100, 300) == Workload(grid).exact(counts)[100:300]).all()
