"""Every calculator: its bound is never below what it bounds, and states formula and theorem."""

import doctest
import math

import numpy as np
import pytest

from hushgram.errors import ParameterError
from hushgram.mechanisms import calculators
from hushgram.mechanisms.calculators import CALCULATORS
from hushgram.mechanisms.svt import ABOVE, Sparse, SvtParams
from hushgram.noise import zcdp
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.sampling import discrete_laplace

KEY = ReleaseKey(bytes(range(32)))
CASES = {
    "advanced-composition": [
        {"epsilon": e, "steps": k, "delta": d}
        for e in ("0.01", "0.1", "1")
        for k in (1, 20, 300)
        for d in ("1e-9", "0.01")
    ],
    "zcdp": [{"rho": r, "delta": d} for r in ("0.001", "0.1", "3") for d in ("1e-9", "0.01")],
    "rdp": [
        {"order": a, "loss": t, "delta": d}
        for a in ("1.5", "2", "64")
        for t in ("0.01", "1")
        for d in ("1e-9", "0.01")
    ],
    "pure-to-zcdp": [{"epsilon": e} for e in ("0.01", "0.5", "1", "4")],
    "laplace-error": [
        {"queries": k, "epsilon": e, "records": 10**6, "beta": b}
        for k in (1, 7, 20_000)
        for e in ("0.1", "10")
        for b in ("0.5", "1e-4")
    ],
    "laplace-records": [
        {"queries": k, "epsilon": e, "alpha": "0.01"} for k in (1, 7, 20_000) for e in ("0.1", "10")
    ],
    "laplace-histogram": [
        {"cells": x, "epsilon": e, "records": 10**5, "beta": b}
        for x in (1, 10, 1000, 10**6)
        for e in ("0.1", "3")
        for b in ("0.5", "0.01")
    ],
    "above-threshold": [
        {"queries": k, "epsilon": e, "beta": b}
        for k in (1, 50, 10**6)
        for e in ("0.1", "5")
        for b in ("0.5", "0.001")
    ],
    "sparse": [
        {"queries": k, "cutoff": c, "epsilon": "1", "delta": d}
        for k, c in ((100, 1), (1000, 10), (10**5, 100))
        for d in ("0", "1e-6")
    ],
}


@pytest.mark.parametrize(("name", "given"), [(name, case) for name, cases in CASES.items() for case in cases])
def test_a_bound_is_never_below_what_it_bounds(name, given):
    found = CALCULATORS[name](**given)
    assert found.bound >= found.exact.value
    assert found.formula
    assert any(year in found.theorem for year in ("Lecture", "20"))
    assert all(math.isfinite(row["value"]) for row in found.rows())


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_pmw_answers_to_alpha_with_the_records_of_the_theorem(delta):
    found = CALCULATORS["pmw-records"](cells=32, queries=200, alpha="0.3", epsilon=2, delta=delta)
    assert found.exact.value <= 0.3


def test_the_exact_alpha_is_that_of_the_mechanism():
    """Sparse itself on the hardest stream: no more than β of the runs err at the exact α, more at 60 % of it."""
    k, c, runs, beta = 60, 3, 1500, 0.2
    params = SvtParams(epsilon=1, threshold=0, cutoff=c, variant="dwork-roth")
    exact = calculators._hardest(params, k, beta)

    def failures(width):
        stream = np.full(k, -width)
        stream[k // c - 1 :: k // c] = width
        wrong = 0
        for run in range(runs):
            out = Sparse.from_params(params, KEY.source(f"width {width}", run)).ask_many(stream).outcome
            wrong += ((out == ABOVE) != (stream > 0)).any()
        return wrong / runs

    spread = 5 * math.sqrt(beta * (1 - beta) / runs)  # a false alarm once in 10^6
    assert failures(exact) <= beta + spread
    assert failures(int(0.6 * exact)) > beta + spread


def test_the_exact_quantile_of_the_worst_of_many_draws():
    k, runs, beta = 50, 4000, 0.1
    from fractions import Fraction

    t = calculators._quantile(k, Fraction(1), Fraction(1, 10))
    worst = np.abs(discrete_laplace(Fraction(k), runs * k, KEY.source("worst"))).reshape(runs, k).max(axis=1)
    spread = 5 * math.sqrt(beta * (1 - beta) / runs)
    assert abs((worst > t).mean() - beta) < spread
    assert (worst > t * 0.8).mean() > beta + spread


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("advanced-composition", {"epsilon": 0, "steps": 3, "delta": "0.1"}, "epsilon must be above 0"),
        ("advanced-composition", {"epsilon": 1, "steps": 0, "delta": "0.1"}, "steps must be from 1"),
        ("zcdp", {"rho": 1, "delta": 1}, "delta must be below 1"),
        ("rdp", {"order": 1, "loss": 1, "delta": "0.1"}, "order must be above 1"),
        ("laplace-error", {"queries": 0, "epsilon": 1, "records": 5}, "queries must be from 1"),
        ("laplace-histogram", {"cells": 5, "epsilon": "1e-40", "records": 5}, "would drown"),
        ("sparse", {"queries": 3, "cutoff": 5, "epsilon": 1}, "queries must be from 5"),
        ("pmw-records", {"cells": 4, "queries": 9, "alpha": "0.001", "epsilon": "0.001"}, "updates"),
    ],
)
def test_refusals(name, given, message):
    with pytest.raises(ParameterError, match=message):
        CALCULATORS[name](**given)


def test_examples():
    assert doctest.testmod(calculators).failed == 0
    assert doctest.testmod(zcdp).failed == 0
