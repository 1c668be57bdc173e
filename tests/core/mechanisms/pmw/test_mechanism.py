"""Online PMW as a person uses it: accuracy against Laplace, the update bound, retries, errors."""

import pickle

import numpy as np
import pytest

from hushgram.errors import BudgetExceeded, ParameterError
from hushgram.mechanisms.laplace import LaplaceAnswers
from hushgram.mechanisms.pmw import (
    FROM_HYPOTHESIS,
    GRID,
    HALTED,
    MEASURED,
    OnlinePMW,
    PmwParams,
    Workload,
    prior_weights,
)
from hushgram.mechanisms.pmw.synthetic import answer_fixed
from hushgram.noise.entropy import InteractiveKey, ReleaseKey
from tests.exact_counts import exact_counts

SECRET = bytes(range(32))
CELLS, RECORDS, QUERIES = 256, 1_000_000, 4000


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    shares = 1 / np.arange(1, CELLS + 1)
    counts = rng.multinomial(RECORDS, rng.permutation(shares / shares.sum()))
    queries = Workload(rng.integers(0, GRID + 1, (QUERIES, CELLS)).astype(np.uint16))
    return counts, queries, queries.exact(counts) / GRID


def errors(answers, truth):
    return np.abs(answers.values - truth) / RECORDS


def test_beats_laplace_by_far_and_keeps_its_bound(data):
    counts, queries, truth = data
    pmw = OnlinePMW(
        exact_counts(counts), PmwParams(1, queries=QUERIES, max_updates=200), InteractiveKey(SECRET)
    )
    answers = pmw.answer(queries)
    laplace = LaplaceAnswers(1, QUERIES, GRID, InteractiveKey(SECRET)).answer(queries.exact(counts), b"all")
    assert errors(answers, truth).max() < np.abs(laplace / GRID - truth).max() / RECORDS / 3
    assert pmw.updates == (answers.origin == MEASURED).sum() <= 200
    slack, measured = pmw.params.slack("1e-6")
    bar = pmw.params.svt.threshold / GRID
    assert np.abs(answers.values - truth)[answers.origin == FROM_HYPOTHESIS].max() <= bar + slack
    assert np.abs(answers.values - truth)[answers.origin == MEASURED].max() <= measured


def test_after_the_bound_every_answer_is_marked_and_comes_from_the_hypothesis(data):
    counts, queries, _ = data
    pmw = OnlinePMW(
        exact_counts(counts),
        PmwParams(1, queries=QUERIES, max_updates=20, threshold=100),
        InteractiveKey(SECRET),
    )
    answers = pmw.answer(queries)
    last = np.flatnonzero(answers.origin == MEASURED)[-1]
    assert pmw.updates == 20
    assert pmw.halted
    assert (answers.origin[last + 1 :] == HALTED).all()
    assert (answers.origin[:last] != HALTED).all()
    assert (answers.scaled[last + 1 :] == pmw.hypothesis.estimate(queries, last + 1)).all()


def test_the_saved_hypothesis_answers_what_was_learnt(data):
    counts, queries, truth = data
    pmw = OnlinePMW(
        exact_counts(counts), PmwParams(1, queries=QUERIES, max_updates=200), InteractiveKey(SECRET)
    )
    pmw.answer(queries)
    synthetic = pmw.hypothesis.counts()
    assert synthetic.sum() == pytest.approx(pmw.total, rel=1e-6)
    again = (queries.grid / GRID) @ synthetic
    assert np.abs(again - truth).max() / RECORDS < 0.02
    uniform = (queries.grid / GRID) @ np.full(CELLS, RECORDS / CELLS)
    assert np.abs(again - truth).max() < np.abs(uniform - truth).max() / 5


def test_retry_gives_the_same_answers_and_anything_else_gives_other_noise(data):
    counts, queries, _ = data
    params = PmwParams(1, queries=QUERIES, max_updates=30)
    first = OnlinePMW(exact_counts(counts), params, InteractiveKey(SECRET)).answer(queries)
    again = OnlinePMW(exact_counts(counts.copy()), params, InteractiveKey(SECRET)).answer(
        Workload(queries.grid.copy())
    )
    assert (first.scaled == again.scaled).all()
    assert (first.origin == again.origin).all()
    other = counts.copy()
    other[0] += 1
    changed = queries.grid.copy()
    changed[-1, 0] ^= 1
    for pmw, asked in [
        (OnlinePMW(exact_counts(other), params, InteractiveKey(SECRET)), queries),
        (OnlinePMW(exact_counts(counts), params, InteractiveKey(bytes(32))), queries),
        (OnlinePMW(exact_counts(counts), params, InteractiveKey(SECRET)), Workload(changed)),
    ]:
        noise = pmw.answer(asked)
        where = (first.origin == MEASURED) & (noise.origin == MEASURED)
        assert where[:5].any()
        assert (noise.scaled[where] != first.scaled[where]).mean() > 0.9


def test_one_at_a_time_and_batches_both_work(data):
    counts, queries, truth = data
    pmw = OnlinePMW(exact_counts(counts), PmwParams(5, queries=60, max_updates=60), InteractiveKey(SECRET))
    for i in range(10):
        value, origin = pmw.ask(queries.grid[i] / GRID)
        assert abs(value - truth[i]) / RECORDS < 0.05
        assert origin in (FROM_HYPOTHESIS, MEASURED)
    answers = pmw.answer(Workload(queries.grid[10:60]))
    assert pmw.asked == 60
    assert errors(answers, truth[10:60]).max() < 0.02


def test_a_prior_saves_updates(data):
    counts, queries, _ = data
    params = PmwParams(1, queries=QUERIES, max_updates=200)
    plain = OnlinePMW(exact_counts(counts), params, InteractiveKey(SECRET))
    plain.answer(queries)
    noisy = counts + np.random.default_rng(2).laplace(0, 200, CELLS)
    informed = OnlinePMW(exact_counts(counts), params, InteractiveKey(SECRET), prior=prior_weights(noisy))
    informed.answer(queries)
    assert informed.updates < plain.updates / 2


def test_plain_update_of_the_notes_learns_too(data):
    counts, queries, truth = data
    params = PmwParams(20, queries=QUERIES, max_updates=400, replay=0, eta="0.2", total=RECORDS)
    answers = OnlinePMW(exact_counts(counts), params, InteractiveKey(SECRET)).answer(queries)
    start = np.abs((queries.grid / GRID) @ np.full(CELLS, RECORDS / CELLS) - truth).max() / RECORDS
    assert errors(answers, truth).max() < start / 2


def test_parameters_from_accuracy():
    params = PmwParams.from_accuracy("0.2", epsilon=1, cells=64, total=10**9, queries=1000)
    assert params.replay == 0
    assert max(params.slack()) <= 0.05 * 10**9
    rng = np.random.default_rng(4)
    counts = rng.multinomial(10**9, rng.dirichlet(np.full(64, 0.1)))
    queries = Workload((rng.integers(0, 2, (1000, 64)) * GRID).astype(np.uint16))
    pmw = OnlinePMW(exact_counts(counts), params, InteractiveKey(SECRET))
    answers = pmw.answer(queries)
    assert np.abs(answers.values - queries.exact(counts) / GRID).max() <= 0.2 * 10**9
    assert not pmw.halted
    with pytest.raises(ParameterError, match="needs 665422 updates, over 100000"):
        PmwParams.from_accuracy("0.01", epsilon=1, cells=64, total=10**6, queries=1000)
    with pytest.raises(ParameterError, match="needs total >= "):
        PmwParams.from_accuracy("0.1", epsilon=1, cells=64, total=10**6, queries=1000)


def test_approximate_dp_is_finer_than_pure():
    pure, approximate = PmwParams(1), PmwParams(1, delta="1e-6")
    assert approximate.svt.noise.query < pure.svt.noise.query * 0.4
    assert approximate.guarantee() == (1, approximate.delta)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": 0}, "epsilon must be above 0"),
        ({"max_updates": 0}, "max_updates must be from 1"),
        ({"max_updates": 5000}, "max_updates must be from 1 to 4096"),
        ({"threshold": "-3"}, "threshold must be above 0"),
        ({"total": 0}, "total must be from 1"),
        ({"delta": 1}, "delta must be"),
        ({"max_contributions": 0}, "max_contributions must be from 1"),
        ({"epsilon": "1e-12"}, "would drown everything"),
    ],
)
def test_wrong_parameters_name_the_field(given, message):
    with pytest.raises(ParameterError, match=message):
        PmwParams(given.pop("epsilon", 1), **given)


def test_wrong_queries_and_counts():
    params = PmwParams(1, queries=3)
    with pytest.raises(ParameterError, match="not empty"):
        OnlinePMW(exact_counts(np.array([], np.int64)), params, InteractiveKey(SECRET))
    with pytest.raises(ParameterError, match="whole numbers"):
        OnlinePMW(exact_counts(np.array([1.5])), params, InteractiveKey(SECRET))
    pmw = OnlinePMW(exact_counts(np.array([5, 6])), params, InteractiveKey(SECRET))
    with pytest.raises(ParameterError, match=r"weights must be from 0 to 1, got 1\.5"):
        pmw.ask([0.5, 1.5])
    with pytest.raises(ParameterError, match="3 weights, the domain 2"):
        pmw.ask([0.5, 1, 0])
    with pytest.raises(BudgetExceeded, match="4 queries asked, but the threshold was set for 3"):
        pmw.answer(Workload.of(np.zeros((4, 2))))


def test_exact_counts_are_neither_shown_nor_pickled():
    pmw = OnlinePMW(exact_counts(np.array([123_456, 7])), PmwParams(1), InteractiveKey(SECRET))
    assert "123" not in repr(pmw)
    with pytest.raises(TypeError, match="not written"):
        pickle.dumps(pmw)


def test_huge_counts_are_clamped_not_fatal():
    pmw = OnlinePMW(exact_counts(np.full(3, 2**62)), PmwParams(1), InteractiveKey(SECRET))
    assert len(pmw.answer(Workload.of(np.ones((2, 3))))) == 2


def test_a_fixed_stream_is_answered_as_it_comes_in_and_may_be_run_again():
    """The same answers as one batch after another, under the key of a release."""
    counts, work = np.array([900, 50, 50]), Workload.of([[1, 0, 0], [0, 1, 1], [0, 0, 1]])
    params = PmwParams(2, max_updates=2, queries=3)
    stream = OnlinePMW(exact_counts(counts), params, InteractiveKey(SECRET))
    batches = [Workload(work.grid[:2]), Workload(work.grid[2:])]
    expected = [stream.answer(one).scaled.tolist() for one in batches]
    learnt = stream.finish().units.tolist()
    for _ in range(2):
        outcome = answer_fixed(exact_counts(counts), params, ReleaseKey(SECRET), batches)
        assert outcome.answers.scaled.tolist() == [one for part in expected for one in part]
        assert (outcome.updates, outcome.units.tolist()) == (stream.updates, learnt)
    with pytest.raises(ParameterError, match="needs a ReleaseKey, got InteractiveKey"):
        answer_fixed(exact_counts(counts), params, InteractiveKey(SECRET), batches)
