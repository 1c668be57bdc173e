"""The decoder as a whole: sane on anything that can be released, exact in its small print, fast."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hushgram.decoding import AlpLikelihood
from hushgram.errors import ParameterError
from hushgram.sparse_histogram.sizing import PROFILE_GRID

from .worlds import assembled, made, simulate, zipf
from .worlds import decoder as decoder_of


@st.composite
def releases(draw: Any) -> tuple[AlpLikelihood, np.ndarray, np.ndarray, np.ndarray]:
    """Any release at all, however hostile its noise, and some lookups."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    levels = draw(st.sampled_from([0, 1, 3, 6, 15, 16, 40]))
    sizes = rng.integers(1, 10 ** draw(st.integers(1, 6)), levels)
    threshold = draw(st.sampled_from([1, 2, 27, 500, 10**6]))
    grid = np.array(PROFILE_GRID)[: draw(st.sampled_from([0, 1, 5, len(PROFILE_GRID)]))]
    alp = assembled(
        {
            "flip": draw(st.sampled_from([0.03, 0.2, 0.45])),
            "width": draw(st.sampled_from([0.01, 4.7, 1e4])),
            "sizes": sizes,
            "ones": (rng.random(levels) * (sizes + 1)).astype(np.int64),
            "threshold": threshold,
            "noise": draw(st.sampled_from([0.01, 2.0, 16.0, 3e4, 1e9])),
            "listed": threshold + rng.integers(0, 10 ** draw(st.integers(0, 12)), draw(st.integers(0, 30))),
            "domain_size": draw(st.sampled_from([None, 1.0, 2.0**40, 2.0**64])),
            "records": draw(st.sampled_from([-1e3, 0.0, 1.0, 1e6, 1e12])),
            "profile_at": grid,
            "profile": rng.normal(0.0, 10.0 ** draw(st.integers(0, 9)), len(grid)),
            "profile_noise": draw(st.sampled_from([1.0, 1e5])) if len(grid) else 0.0,
            "keys": draw(st.sampled_from([1.0, 50.0, 1e9])),
        }
    )
    count = draw(st.integers(0, 20))
    listed = rng.random(count) < 0.5
    values = np.where(
        listed, threshold + rng.integers(0, 10**12, count) // 10 ** rng.integers(0, 13, count), -7
    )
    return alp, rng.integers(0, 2, (count, levels)), values, listed


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(releases(), st.sampled_from(["confidence", "credible"]), st.sampled_from([1.0, 0.3]))
def test_answers_are_sane_for_any_release(case: Any, interval: str, present: float) -> None:
    alp, bits, values, listed = case
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decoder = decoder_of(alp)
        for estimator in (None, "confidence", "posterior", "argmax", "unbiased"):
            answer = decoder.estimate(
                bits, values, listed, estimator=estimator, interval=interval, level=0.9, present=present
            )
            assert all(part.shape == (len(listed),) and np.all(np.isfinite(part)) for part in answer)
            estimate, low, high = answer
            assert estimator is not None or np.all((low <= estimate) & (estimate <= high))
            assert np.all((low >= 0.0) & (low <= high))
        for estimator in ("any", "posterior", "unbiased"):
            middle, below, over = decoder.total(bits, values, listed, estimator=estimator, present=present)
            assert below <= middle <= over
            assert np.isfinite([below, middle, over]).all()


def test_each_key_is_decoded_by_itself() -> None:
    """Order, repetition and company of the keys change nothing."""
    world = simulate(zipf(3_000, 60_000))
    decoder = world.decoder
    whole = np.array(decoder.estimate(*world.lookups()))
    chosen = np.random.default_rng(0).integers(0, 3_000, 500)
    assert np.array(decoder.estimate(*world.lookups(chosen))) == pytest.approx(whole[:, chosen])
    alone = [world.decoder.estimate(*world.lookups([index])) for index in chosen[:3]]
    assert pytest.approx(whole[:, chosen[:3]]) == np.array(alone)[:, :, 0].T


def test_huge_values_come_back_as_they_are() -> None:
    decoder = decoder_of(made())
    estimate, low, high = decoder.estimate([[1, 1, 1, 1]] * 2, [10**12, 10**6], [True, True])
    assert estimate == pytest.approx([1e12, 1e6])
    radius = decoder.released.noise.radius(0.95)
    assert (low.tolist(), high.tolist()) == (
        [10**12 - radius, 10**6 - radius],
        [10**12 + radius, 10**6 + radius],
    )


def test_no_columns_no_lookups_no_interval() -> None:
    decoder = decoder_of(made(sizes=[], ones=[]))
    estimate, low, high = decoder.estimate(np.zeros((2, 0)), [0, 30], [False, True])
    assert estimate[0] < estimate[1] < 31
    assert low[0] == 0.0  # nothing is known of it
    assert low[1] >= 1.0
    nothing = decoder_of(made()).estimate(np.zeros((0, 4)), [], [])
    assert [part.shape for part in nothing] == [(0,)] * 3
    assert decoder_of(made()).total(np.zeros((0, 4)), [], []) == (0.0, 0.0, 0.0)
    _, low, high = decoder_of(made()).estimate([[0, 0, 0, 0]], [0], [False], interval=None)
    assert np.isnan([low[0], high[0]]).all()


def test_a_wider_level_gives_a_wider_interval() -> None:
    world = simulate(zipf(3_000, 60_000))
    decoder = world.decoder
    for interval in ("confidence", "credible"):
        _, low, high = decoder.estimate(*world.lookups(), interval=interval, level=0.5)
        _, lower, higher = decoder.estimate(*world.lookups(), interval=interval, level=0.99)
        assert np.all((lower <= low) & (high <= higher))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"estimator": "mean"},
            "estimator must be one of confidence, posterior, argmax, unbiased, got 'mean'",
        ),
        ({"interval": "exact"}, "interval must be one of confidence, credible, got 'exact'"),
        ({"level": 1.0}, "level must be above 0 and below 1, got 1.0"),
        ({"level": float("nan")}, "level must be above 0"),
        ({"present": 0.0}, "present must be above 0 and at most 1, got 0.0"),
    ],
)
def test_wrong_questions_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        decoder_of(made()).estimate([[0, 0, 0, 0]], [0], [False], **changes)


def test_lookups_of_another_sketch_are_refused() -> None:
    with pytest.raises(ParameterError, match="look all of them up in the same sketch"):
        decoder_of(made()).estimate([[0, 0, 0]], [0], [False])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("flip", 0.5),
        ("width", 0.0),
        ("noise", float("inf")),
        ("threshold", 0),
        ("ones", [1, 2, 3]),
        ("ones", [2000, 0, 0, 0]),
        ("sizes", [0, 700, 500, 400]),
        ("profile_at", [2, 1]),
        ("profile", [1.0]),
    ],
)
def test_impossible_releases_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=r" is wrong, got |NoiseLaw: "):
        made(**{field: value})


def test_fifty_thousand_lookups_with_intervals_are_quick() -> None:
    """Well below 90 µs a key, which OpenDP's lookup takes; CPU time, tables included."""
    world = simulate(zipf(50_000, 1e6))
    decoder = world.decoder
    start = time.process_time()
    decoder.estimate(*world.lookups())
    assert time.process_time() - start < 1.0
