"""What is expected to be best is best where it is clear, and costs no data."""

from fractions import Fraction

import numpy as np
import pytest

from hushgram.mechanisms.pmw import GRID, OfflineParams, OfflinePMW, OnlinePMW, PmwParams, Workload
from hushgram.mechanisms.pmw.mechanism import expected_errors, synthetic_counts
from hushgram.noise.entropy import InteractiveKey, ReleaseKey
from tests.exact_counts import exact_counts

pytestmark = pytest.mark.long


def workload(count, cells=64):
    return Workload(np.random.default_rng(count).integers(0, GRID + 1, (count, cells)).astype(np.uint16))


@pytest.mark.parametrize(("count", "best"), [(2, "laplace"), (5000, "offline")])
def test_few_queries_by_laplace_many_by_weights(count, best):
    assert expected_errors(workload(count), epsilon=Fraction(1), total=100_000).best == best


def test_offline_at_delta_is_better_still():
    given = {"online": PmwParams(1, max_updates=3, queries=100, total=100_000), "total": 100_000}
    pure = expected_errors(workload(100), epsilon=Fraction(1), **given)
    relaxed = expected_errors(workload(100), epsilon=Fraction(1), delta=Fraction(1, 10**6), **given)
    assert relaxed.offline < pure.offline


def test_the_prediction_is_right_on_other_data():
    """Counts that nobody made up for it: the mechanism predicted best is within 1.5 of the best measured."""
    rng = np.random.default_rng(3)
    counts = rng.multinomial(100_000, rng.dirichlet(np.full(64, 0.3)))
    for count in (3, 2000):
        queries = workload(count)
        truth = queries.exact(counts)
        predicted = expected_errors(queries, epsilon=Fraction(1), total=100_000)
        stream = PmwParams(1, max_updates=min(400, count), queries=count, total=100_000)
        whole = OfflineParams(1, rounds=min(200, count), total=100_000)
        key = ReleaseKey(bytes(range(32)))
        measured = {
            "online": np.abs(
                OnlinePMW(exact_counts(counts), stream, InteractiveKey(bytes(range(32))))
                .answer(queries)
                .scaled
                - truth
            ).max()
            / GRID,
            "offline": np.abs(
                OfflinePMW(exact_counts(counts), whole, key).answer(queries).scaled - truth
            ).max()
            / GRID,
            "laplace": predicted.laplace,
        }
        assert measured[predicted.best] <= 1.5 * min(measured.values())


def test_synthetic_counts_are_the_same_everywhere():
    counts = synthetic_counts(10, 1000)
    assert sorted(counts.tolist(), reverse=True) == [341, 170, 113, 85, 68, 56, 48, 42, 37, 34]
    assert (synthetic_counts(10, 1000) == counts).all()
