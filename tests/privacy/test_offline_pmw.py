"""Offline PMW: exact transcript probabilities on a tiny domain, their worst privacy loss, and broken twins.

A transcript is the list of (query chosen, value measured); everything released is a function of it. The model is
written from the lecture: P[transcript | x] = Π_t P[choice t | errors] · P[noise = value − f]. First the code is seen to
put exactly these errors, rates and scales to the samplers; then the model is searched for its worst loss.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.selection_laws import exponential, permute_and_flip
from hushgram.mechanisms import selection
from hushgram.mechanisms.pmw import (
    GRID,
    MEASURED,
    OfflineParams,
    OfflinePMW,
    Workload,
)
from hushgram.mechanisms.pmw import mechanism as pmw_module
from hushgram.mechanisms.pmw.hypothesis import Hypothesis
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.zcdp import rho_for, zcdp_delta
from tests.exact_counts import exact_counts

KEY = ReleaseKey(bytes(range(32)))
QUERIES = Workload.of([[1, 0], [0, 1], [1, 1]])
TOTAL = 4


def learnt(params, told):
    """The hypothesis' answers after these measurements: public."""
    h = Hypothesis(2, TOTAL, None, params.rounds)
    for at, value in told:
        guess = h.estimate(QUERIES)
        sign = 1 if value > guess[at] else -1
        h.learn(QUERIES.grid[at].astype(np.int64), value, replay=params.replay, rate=0.0, sign=sign)
    return h.estimate(QUERIES)


def probability(params, x, transcript, guesses, law=permute_and_flip, rate=None, scale=None):
    exact = QUERIES.exact(np.array(x))
    rate, scale = float(rate or params.rate), float(scale or params.scale)
    left, out = [0, 1, 2], 1.0
    for round_, (at, value) in enumerate(transcript):
        errors = [int(abs(exact[i] - guesses[transcript[:round_]][i])) for i in left]
        out *= law(errors, rate)[left.index(at)]
        out *= math.exp(-abs(value - int(exact[at])) / scale)
        left.remove(at)
    return out


def transcripts(rounds, values):
    for chosen in itertools.permutations(range(3), rounds):
        for told in itertools.product(values, repeat=rounds):
            yield tuple(zip(chosen, told, strict=True))


def tables(params, rounds=2, **more):
    values = [v * GRID for v in (-1, 1, 4)]
    found = list(transcripts(rounds, values))
    guesses = {t[:n]: learnt(params, t[:n]) for t in found for n in range(rounds)}
    points = list(itertools.product(range(4), repeat=2))
    return {t: {x: probability(params, x, t, guesses, **more) for x in points} for t in found}


def worst(params, **more):
    """max |ln P[transcript | x]/P[transcript | x']|: one user adds 1 to one cell."""
    loss = 0.0
    for table in tables(params, **more).values():
        for (a, b), p in table.items():
            for other in ((a + 1, b), (a, b + 1)):
                if other in table:
                    loss = max(loss, abs(math.log(p / table[other])))
    return loss


def test_the_code_puts_errors_rate_and_scale_of_the_model_to_the_samplers(monkeypatch):
    params = OfflineParams(2, rounds=2, total=TOTAL)
    asked, script, values = [], [2, 0], [5 * GRID, -GRID]

    def pick(scores, rate, source):
        asked.append((scores.tolist(), rate))
        return script[len(asked) - 1]

    def noise(scale, size, source):
        assert (scale, size) == (params.scale, 1)
        return np.array([values[len(asked) - 1] - exact[[2, 0][len(asked) - 1]]])

    exact = QUERIES.exact(np.array([3, 1]))
    monkeypatch.setitem(selection.MECHANISMS, "permute_and_flip", pick)
    monkeypatch.setattr(pmw_module, "discrete_laplace", noise)
    pmw = OfflinePMW(exact_counts(np.array([3, 1])), params, KEY)
    answers = pmw.answer(QUERIES)
    first, second = learnt(params, ()), learnt(params, ((2, values[0]),))
    assert asked == [
        (np.abs(exact - first).tolist(), params.rate),
        (np.abs(exact - second)[:2].tolist(), params.rate),
    ]
    assert (answers.origin == MEASURED).tolist() == [True, False, True]
    assert pmw.updates == 2


def test_loss_is_at_most_epsilon():
    params = OfflineParams(2, rounds=2, total=TOTAL)
    assert params.guarantee() == (2, 0)
    assert 1 < worst(params) <= 2 + 1e-9


def test_broken_twins_are_seen():
    params = OfflineParams(2, rounds=2, total=TOTAL)
    assert worst(params, rate=4 * params.rate) > 2.5  # choices for monotone scores, and for one round
    assert worst(params, scale=params.scale / 2) > 2.3  # noise for one measurement, two made
    assert (
        worst(params, rate=4 * params.rate, scale=params.scale / 2) > 3
    )  # the budget of one round for each of two


def test_delta_buys_rounds_within_its_rho():
    params = OfflineParams(1, delta="1e-6", rounds=100, total=TOTAL)
    pure = OfflineParams(1, rounds=100, total=TOTAL)
    choice, measurement = params.round_epsilons
    rho = params.rounds * (choice**2 / 8 + measurement**2 / 2)
    assert rho <= rho_for(Fraction(1), Fraction(1, 10**6))
    assert zcdp_delta(rho, Fraction(1)) <= Fraction(1, 10**6)
    assert params.scale < pure.scale / 2
    assert params.mechanism == "exponential"


def test_one_round_with_delta_is_below_it_and_its_broken_twin():
    """The exact δ of one choice and one measurement at ε: Σ max(0, p − e^ε q) over choices, integrated over values."""
    params = OfflineParams("1/2", delta="0.05", rounds=1, total=TOTAL)

    def delta(factor):
        rate, scale = float(params.rate) * factor, float(params.scale) / factor
        points, worst = list(itertools.product(range(4), repeat=2)), 0.0
        guess = learnt(params, ())
        for a, b in points:
            for c, d in ((a + 1, b), (a, b + 1)):
                for x, y in (((a, b), (c, d)), ((c, d), (a, b))):
                    f, g = QUERIES.exact(np.array(x)), QUERIES.exact(np.array(y))
                    p = exponential(np.abs(f - guess).tolist(), rate)
                    q = exponential(np.abs(g - guess).tolist(), rate)
                    total = 0.0
                    for i in range(3):
                        z = np.linspace(-12 * scale, 12 * scale, 20_001)
                        here = p[i] * np.exp(-np.abs(z) / scale)
                        there = q[i] * np.exp(-np.abs(z + f[i] - g[i]) / scale)
                        total += (
                            np.maximum(0, here - math.exp(0.5) * there).sum() * (z[1] - z[0]) / (2 * scale)
                        )
                    worst = max(worst, total)
        return worst

    assert delta(1.0) <= 0.05
    assert delta(2.5) > 0.05


def test_retry_repeats_and_anything_else_changes():
    counts, params = np.array([30, 10, 5]), OfflineParams("0.1", rounds=3, total=45)
    queries = Workload.of([[1, 0, 0], [0, 1, 0], [0.5, 0.5, 0.5], [0, 0, 1]])

    def run(counts=counts, queries=queries, key=KEY):
        return OfflinePMW(exact_counts(counts), params, key).answer(queries).scaled.tolist()

    assert run() == run()
    assert run(key=ReleaseKey(bytes(32))) != run()
    assert run(counts=counts + np.array([0, 0, 1])) != run()
    assert run(queries=Workload(queries.grid[::-1].copy())) != run()[::-1]


def test_it_stops_early_where_nothing_is_left_to_learn_and_answers_once():
    counts, params = np.full(16, 1000), OfflineParams(10, rounds=50, total=16_000)
    queries = Workload.of(np.random.default_rng(0).random((200, 16)))
    pmw = OfflinePMW(exact_counts(counts), params, KEY)
    answers = pmw.answer(queries)
    assert pmw.stopped
    assert pmw.updates < 50
    assert np.abs(answers.scaled - queries.exact(counts)).max() / GRID < 200
    with pytest.raises(Exception, match="paid for one workload"):
        pmw.answer(queries)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0}, "epsilon must be above 0"),
        ({"delta": 1}, "delta must be at least 0 and below 1"),
        ({"rounds": 0}, "rounds must be from 1 to 4096"),
        ({"replay": 0}, "replay must be from 1"),
        ({"stop": -1}, "stop must be above 0"),
        ({"epsilon": "1e-13"}, "would drown everything"),
        ({"max_contributions": 10**6}, "max_contributions must be from 1"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(Exception, match=message):
        OfflineParams(**{"epsilon": 1, **change})
