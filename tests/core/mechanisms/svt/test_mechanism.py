"""The mechanisms on arrays and one by one: meaning, distribution, accuracy, and what gaps are worth."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from hushgram.errors import ParameterError
from hushgram.mechanisms.svt import (
    ABOVE,
    BELOW,
    HALTED,
    AboveThreshold,
    NumericSparse,
    Sparse,
    SvtParams,
    alpha,
    error_ratio,
    measure,
    refine,
    run_batch,
    theorem_2,
    theorem_4,
    theorem_alpha,
)
from hushgram.noise.entropy import BitSource, ReleaseKey
from tests.exact_counts import exact_counts
from tests.privacy.svt_exact import BOTTOM, HALT, TOP, Model, laws_of

KEY = ReleaseKey(bytes(range(32)))


def source(name: str, number: int = 0) -> BitSource:
    return KEY.source(name, number)


def test_halts_after_cutoff_and_says_so():
    svt = Sparse(epsilon="50", threshold=100, cutoff=2, source=source("halt"))
    outcomes = [svt.ask(f).outcome for f in (0, 900, 0, 900, 900, 0)]
    assert outcomes == [BELOW, ABOVE, BELOW, ABOVE, HALTED, HALTED]
    assert svt.halted


def test_arrays_and_single_answers_mean_the_same():
    exact = np.array([0, 900, 0, 900, 900, 0])
    for variant in ("optimal", "dwork-roth"):
        svt = Sparse(epsilon="50", threshold=100, cutoff=2, variant=variant, source=source("array"))
        assert svt.ask_many(exact).outcome.tolist() == [0, 1, 0, 1, -1, -1]
        assert svt.ask_many(exact).outcome.tolist() == [-1] * 6


def test_chunks_do_not_change_the_meaning():
    exact = np.zeros(200_000, dtype=np.int64)
    exact[[5, 70_000, 150_000, 199_999]] = 10_000
    for variant in ("optimal", "dwork-roth"):
        svt = Sparse(
            epsilon="20",
            threshold=5_000,
            cutoff=4,
            variant=variant,
            answers="numeric",
            source=source("chunk"),
        )
        released = svt.ask_many(exact)
        assert released.above.tolist() == [5, 70_000, 150_000, 199_999]
        assert (np.abs(released.value[released.above] - 10_000) < 100).all()
        assert (np.abs(released.gap[released.above] - 5_000) < 500).all()


def test_gap_and_value_only_where_asked():
    assert AboveThreshold(epsilon="9", threshold=0, source=source("a")).ask(500).gap is None
    gap = AboveThreshold(epsilon="9", threshold=0, answers="gap", source=source("b")).ask(500)
    assert gap.gap is not None
    assert gap.value is None
    both = NumericSparse(epsilon="9", threshold=0, source=source("c")).ask(500)
    assert None not in (both.gap, both.value)


def test_answers_must_be_whole_numbers_and_are_clamped():
    svt = Sparse(epsilon="1", threshold=0, source=source("d"))
    with pytest.raises(ParameterError, match="whole numbers"):
        svt.ask_many([0.5])
    assert svt.ask_many([np.iinfo(np.int64).max]).outcome.tolist() == [ABOVE]
    huge = Sparse(epsilon="1", threshold=0, source=source("e"))
    assert huge.ask_many(np.array([2**64 - 1], dtype=np.uint64)).outcome.tolist() == [ABOVE]
    one = Sparse(epsilon="1", threshold=0, cutoff=9, source=source("f"))
    assert [one.ask(answer).outcome for answer in (2**63, -(2**63), 2**90, -(2**90), np.int8(-100))] == [
        ABOVE,
        BELOW,
        ABOVE,
        BELOW,
        BELOW,
    ]
    for wrong in (1.7, True, "3", None):
        with pytest.raises(ParameterError, match="whole numbers"):
            one.ask(wrong)


def test_batch_noise_is_a_function_of_key_stream_and_answers():
    params = SvtParams(epsilon="1", threshold=100, cutoff=50, answers="numeric")
    exact = np.arange(0, 200, dtype=np.int64)
    first, again = (
        run_batch(exact_counts(exact), params, KEY, "s"),
        run_batch(exact_counts(exact), params, KEY, "s"),
    )
    assert (first.outcome == again.outcome).all()
    assert (first.value == again.value).all()
    other = run_batch(exact_counts(exact), params, KEY, "t")
    changed = run_batch(exact_counts(exact + np.eye(1, 200, 7, dtype=np.int64)[0]), params, KEY, "s")
    assert (first.outcome != other.outcome).any()
    assert (first.outcome != changed.outcome).any()
    for more in ({"sequence": np.arange(1, 201)}, {"release": b"other data of the release"}):
        assert (run_batch(exact_counts(exact), params, KEY, "s", **more).outcome != first.outcome).any()


# --- distribution ---------------------------------------------------------------------------------------

RUNS = 3000
# χ² with 5 degrees of freedom exceeds 45 with probability 1.5e-8.
REJECT_AT = 45.0


def outcomes_of_runs(exact, params) -> Counter:
    runs = Counter()
    for run in range(RUNS):
        released = Sparse.from_params(params, source(f"runs-{params.variant}", run)).ask_many(exact)
        runs[tuple(released.outcome.tolist())] += 1
    return runs


def statistic(exact, runs, model) -> float:
    """Pearson's χ² of real runs against the model: the five likeliest outputs, and all others together."""
    mark = {BOTTOM: BELOW, TOP: ABOVE, HALT: HALTED}
    values = np.arange(-9, 3)
    where = tuple(int(np.flatnonzero(values == f)[0]) for f in exact)
    cells = []
    for output in model.outputs(len(exact)):
        expected = RUNS * float(model.probabilities(output, values)[where])
        cells.append((expected, runs[tuple(mark[s[0]] for s in output)]))
    cells.sort(reverse=True)
    rest = tuple(map(sum, zip(*cells[5:], strict=True)))
    return sum((seen - expected) ** 2 / expected for expected, seen in [*cells[:5], rest])


@pytest.mark.parametrize("variant", ["optimal", "dwork-roth"])
@pytest.mark.fresh_noise(rate=1e-5)
def test_outcomes_have_the_exact_distribution(variant):
    """False alarm below 1e-7; noise that is 30 % off on either side is rejected."""
    params = SvtParams(epsilon="4", threshold=0, cutoff=2, variant=variant)
    exact, noise = np.array([-8, -2, -8]), params.noise
    runs = outcomes_of_runs(exact, params)

    def model(factor: float) -> Model:
        return Model(*laws_of(noise, factor), 2, noise.redraw)

    assert statistic(exact, runs, model(1.0)) < REJECT_AT
    assert statistic(exact, runs, model(0.7)) > REJECT_AT
    assert statistic(exact, runs, model(1.3)) > REJECT_AT


# --- accuracy -------------------------------------------------------------------------------------------

BETA = 0.1


def failure_rate(params: SvtParams, width: int, queries: int, runs: int) -> float:
    """Share of runs with a mistake when every answer lies just beyond α: the hardest stream allowed."""
    low, high = params.threshold - width - 1, params.threshold + width + 1
    exact = np.full(queries, low, dtype=np.int64)
    exact[np.arange(1, params.cutoff + 1) * queries // params.cutoff - 1] = high
    expected = (exact == high).astype(np.int8)
    last = int(np.flatnonzero(expected)[-1])
    wrong = 0
    for run in range(runs):
        released = Sparse.from_params(params, source("accuracy", run)).ask_many(exact)
        wrong += bool((released.outcome[: last + 1] != expected[: last + 1]).any())
    return wrong / runs


@pytest.mark.parametrize(
    ("cutoff", "delta", "variant"),
    [
        (1, "0", "dwork-roth"),
        (5, "0", "dwork-roth"),
        (5, "1e-6", "dwork-roth"),
        (1, "0", "optimal"),
        (5, "0", "optimal"),
    ],
)
@pytest.mark.long
def test_failures_at_alpha_stay_below_beta(cutoff, delta, variant):
    """At a true rate of β a binomial of 400 passes the limit with probability 1e-7: no false alarm."""
    params = SvtParams(epsilon="1", threshold=10_000, cutoff=cutoff, delta=delta, variant=variant)
    limit = BETA + 0.085
    if variant == "dwork-roth":
        assert failure_rate(params, theorem_alpha(params, 200, BETA), 200, 400) <= limit
    assert failure_rate(params, alpha(params, 200, BETA), 200, 400) <= limit
    assert failure_rate(params, alpha(params, 200, BETA) // 3, 200, 100) > limit  # the twin that must fail


def test_formulas_of_the_theorems():
    assert theorem_2(1000, "0.05", "0.5") == pytest.approx(8 * (np.log(1000) + np.log(40)) / 0.5)
    assert theorem_4(1000, "0.05", 7, "1") == pytest.approx(56 * (np.log(1000) + np.log(280)))
    assert theorem_4(1000, "0.05", 7, "1", "1e-6") == pytest.approx(
        np.sqrt(512 * 7 * np.log(1e6)) * (np.log(1000) + np.log(280))
    )
    assert theorem_2(1000, "0.05", "1", sensitivity=4) == pytest.approx(4 * theorem_2(1000, "0.05", "1"))
    with pytest.raises(ParameterError, match="beta"):
        theorem_2(10, "0", "1")


@pytest.mark.parametrize("cutoff", [1, 10, 100])
def test_alpha_is_below_the_theorem(cutoff):
    params = SvtParams(epsilon="1", threshold=0, cutoff=cutoff, variant="dwork-roth")
    assert alpha(params, 10_000, "0.05") < theorem_alpha(params, 10_000, "0.05")
    optimal = SvtParams(epsilon="1", threshold=0, cutoff=cutoff, monotone=True)
    assert alpha(optimal, 10_000, "0.05") < alpha(params, 10_000, "0.05")


# --- gaps and follow-up measurements --------------------------------------------------------------------


def test_error_ratio_is_the_formula_of_the_paper():
    """(1 + s)³/((1 + s)³ + 2c²): tends to a third for monotone queries, to two thirds for others."""
    for cutoff in (1, 10, 1000):
        for monotone in (True, False):
            params = SvtParams(
                epsilon="1/20", threshold=0, cutoff=cutoff, monotone=monotone, answers="numeric"
            )
            s = (cutoff if monotone else 2 * cutoff) ** (2 / 3)
            assert error_ratio(params) == pytest.approx(
                (1 + s) ** 3 / ((1 + s) ** 3 + 2 * cutoff**2), rel=0.01
            )


def test_refined_values_have_less_error():
    params = SvtParams(epsilon="1", threshold=5_000, cutoff=40, monotone=True, answers="numeric")
    exact = np.full(40, 20_000)
    plain, refined = [], []
    for run in range(60):
        released = Sparse.from_params(params, source("refine", run)).ask_many(exact)
        plain.append(((released.value - exact) ** 2).mean())
        refined.append(((refine(params, released.gap, released.value) - exact) ** 2).mean())
    assert np.mean(refined) / np.mean(plain) == pytest.approx(error_ratio(params), abs=0.12)


def test_measure_divides_by_what_was_selected():
    values, scale = measure(np.array([100, 200]), epsilon="1/2", sensitivity=3, source=source("measure"))
    assert scale == 12
    assert len(values) == 2
    with pytest.raises(ParameterError, match="epsilon"):
        measure(np.array([1]), epsilon="0", sensitivity=1, source=source("measure"))


def test_every_kind_of_noise_has_its_stated_law():
    """Threshold, queries and values are drawn with their own scales; one that is off by 30 % is seen."""
    from fractions import Fraction

    from hushgram.mechanisms.svt import NoiseScales
    from hushgram.mechanisms.svt.mechanism import NoiseStream
    from tests.statistics import fits, laplace_pmf

    noise = NoiseScales("split", Fraction(3), Fraction(5), Fraction(7), False)
    stream = NoiseStream(noise, BitSource(bytes(range(32))))
    drawn = {
        3.0: [stream.threshold() for _ in range(4000)],
        5.0: stream.queries(4000).tolist(),
        7.0: stream.values(4000).tolist(),
    }
    for scale, values in drawn.items():
        law = {z: laplace_pmf(scale, z) for z in range(-300, 301)}
        assert fits(values, law)
        assert not fits(values, {z: laplace_pmf(scale * 1.3, z) for z in range(-300, 301)})
