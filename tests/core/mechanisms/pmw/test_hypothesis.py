"""The learnt histogram: whole numbers, repeatable arithmetic, multiplicative updates."""

import numpy as np
import pytest

from hushgram.errors import ParameterError
from hushgram.mechanisms.pmw.hypothesis import MAX_TOTAL, Hypothesis, repeatable_exp
from hushgram.mechanisms.pmw.workload import GRID, Domain, Workload


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


@pytest.mark.parametrize("total", [10, 10**6, MAX_TOTAL])
@pytest.mark.long
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
    h = Hypothesis(64, MAX_TOTAL, None, 50)
    for row in rng.integers(0, 2, (50, 64)) * GRID:
        h.learn(row, int(rng.integers(0, MAX_TOTAL)) * GRID, replay=2, rate=0.1, sign=1)
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
    assert Workload.of([[0, 1 / 3, 1]]).grid.tolist() == [[0, GRID // 3, GRID]]
    with pytest.raises(ParameterError, match="'z' is not among the 3 keys"):
        Domain(("a", "b", "c")).position("z")
    with pytest.raises(ParameterError, match=r"from 0 to 1, got -0\.5"):
        Workload.of([[-0.5]])
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


@pytest.mark.parametrize("cells", [200, 10_000])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.9, 1.0])
def test_every_width_from_one_cell_to_all_is_learned(cells, share):
    """Told the counts of 30 sets of cells without noise, the hypothesis has them; single cells at once."""
    rng = np.random.default_rng(cells)
    width = max(1, round(share * cells))
    shares = rng.permutation(1 / np.arange(1, cells + 1))
    truth = (shares / shares.sum() * 10**6).astype(np.int64)
    rows = np.zeros((30, cells), dtype=np.int64)
    for i, row in enumerate(rows):  # single cells are the largest ones, each once
        row[np.argsort(-truth)[i] if width == 1 else rng.choice(cells, width, replace=False)] = GRID
    told = rows @ truth
    h = Hypothesis(cells, int(truth.sum()), None, len(rows))
    queries = Workload(rows.astype(np.uint16))
    for i, (row, answer) in enumerate(zip(rows, told, strict=True)):
        h.learn(row, int(answer), replay=1, rate=0.0, sign=1)
        if width == 1:
            assert h.estimate(queries, 0, i + 1) == pytest.approx(told[: i + 1], rel=0.1)
    h.replay(60)
    assert h.estimate(queries) == pytest.approx(told, rel=0.01)


@pytest.mark.parametrize("weight", [1, 0.5, 0.01])
def test_a_new_answer_is_never_overshot(weight):
    """The step of one answer ends between the old estimate and the answer, whatever the weights (Bhatia-Davis)."""
    rng = np.random.default_rng(7)
    for _ in range(200):
        cells = int(rng.integers(2, 50))
        h = Hypothesis(cells, 10**6, rng.integers(1, 1000, cells), 1)
        row = np.rint(rng.random(cells) ** 4 * weight * GRID).astype(np.int64)
        work = Workload(row[None, :].astype(np.uint16))
        before, answer = int(h.estimate(work)[0]), int(rng.integers(0, 10**6)) * GRID
        h.learn(row, answer, replay=1, rate=0.0, sign=1)
        after = int(h.estimate(work)[0])
        slack = 2 * GRID
        assert min(before, answer) - slack <= after <= max(before, answer) + slack


def test_noise_that_cannot_be_met_pushes_no_cell_to_the_edge():
    """Keys whose noisy counts add up to three times the total, and one below zero."""
    h, one = Hypothesis(100, 1000, None, 31), np.eye(100, dtype=np.int64) * GRID
    for i in range(30):
        h.learn(one[i], 100 * GRID, replay=4, rate=0.0, sign=1, noise=10.0 * GRID)
    h.learn(one[50], -70 * GRID, replay=4, rate=0.0, sign=-1, noise=10.0 * GRID)
    h.replay(500)
    counts = h.counts()
    assert counts.sum() == pytest.approx(1000, rel=1e-6)
    assert counts[:30] == pytest.approx(1000 / 30, rel=0.05)
    assert counts[50] < 1
