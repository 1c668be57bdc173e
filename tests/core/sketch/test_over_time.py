"""Series, smoothing and changes: dates, missing days, differing parameters, coverage, and false discoveries."""

from __future__ import annotations

import datetime
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import hushgram as hg
from hushgram.errors import HushgramError, ParameterError
from hushgram.pipelines.cli import cli
from hushgram.sketch.over_time import _benjamini_hochberg, _laplace_difference, compare, series, smooth
from hushgram.sketch.reader import Sketch

NAMES = [f"/page-{i}" for i in range(40)]


def public(counts: np.ndarray, path: Path | None = None, name: str = "", **params: object) -> Sketch:
    made = hg.ReleaseParams(**{"epsilon": "1/5", "max_contributions": 1, **params})  # type: ignore[arg-type]
    return hg.release_public(None, np.repeat(np.array(NAMES), counts), NAMES, made, path, name=name)


def sketches(folder: Path, days: list[int], **params: object) -> list[Sketch]:
    counts = np.arange(40) * 50
    return [public(counts, folder / f"urls-2026-11-{day:02d}.sketch", **params) for day in days]


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_keys_that_no_list_shows_have_no_smoothed_estimate_but_an_interval(
    delta: str, tmp_path: Path
) -> None:
    """Their dates tell no more together than each alone: true counts may be the largest that is never listed."""
    counts = np.repeat([1, 3, 500], [900, 50, 50])
    params = hg.ReleaseParams(epsilon="1", delta=delta, max_contributions=1)
    made = [
        hg.release_histogram(
            np.arange(len(counts)), counts, params, tmp_path / f"urls-2026-11-0{day}.sketch",
            release_key=hg.ReleaseKey(bytes([day] * 32)),
        )
        for day in (1, 2, 3)
    ]  # fmt: skip
    rows = [row for row in series(made, [0, 901, 960]).table.to_pylist() if row["of"] == "key"]
    held = [row["smoothed_low"] <= counts[int(row["key"])] <= row["smoothed_high"] for row in rows]
    assert sum(held) >= len(held) - 1  # of nine intervals of 95 %
    for row in rows:
        assert (row["smoothed"] is None) == (counts[int(row["key"])] < 500)
        assert row["smoothed"] is not None or row["smoothed_high"] == row["high"]
    found = compare(made[0], made[1], np.arange(100)).table.to_pylist()
    assert all(row["low"] <= row["difference"] <= row["high"] for row in found)


# --- smoothing ------------------------------------------------------------------------------------------------------


def walks(change: float, series_: int = 300, days: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """True counts that move by ``change`` noise deviations per day, and noisy ones."""
    draws = np.random.default_rng(int(change * 1000) + series_)
    true = 400.0 + np.cumsum(draws.normal(0, 20.0 * change, (days, series_)), axis=0)
    return true, true + np.round(draws.normal(0, 20.0, true.shape))


@pytest.mark.parametrize("change", [0.0, 0.05, 0.1, 0.2])
def test_bar_smoothed_series_are_sharper_and_their_intervals_hold(change: float) -> None:
    true, seen = walks(change)
    middle, low, high = smooth(range(30), seen, np.full(seen.shape, 20.0))
    assert math.sqrt(((middle - true) ** 2).mean()) <= 0.6 * 20.0
    assert 0.93 <= ((low <= true) & (true <= high)).mean() <= 0.98


def test_smoothing_is_the_exact_posterior_of_the_model() -> None:
    """Against the normal distribution of all days at once, for each q by itself."""
    import hushgram.sketch.over_time as module

    days, rate = [0, 1, 4, 5], 0.5
    seen, noise = np.array([[10.0], [14.0], [np.nan], [30.0]]), 2.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_RATES", np.array([rate]))
        middle, low, high = smooth(days, seen, np.full(seen.shape, noise))
    change = np.sqrt(rate) * noise
    prior = 1e7 + change**2 * np.minimum.outer(np.array(days), np.array(days))  # a walk from an unknown start
    there = [0, 1, 3]
    gain = prior[:, there] @ np.linalg.inv(prior[np.ix_(there, there)] + noise**2 * np.eye(3))
    exact = gain @ seen[there, 0]
    spread = np.sqrt(np.diag(prior - gain @ prior[there]))
    assert middle[:, 0] == pytest.approx(exact, abs=1e-3)
    assert (high - low)[:, 0] / 2 == pytest.approx(1.96 * spread, rel=1e-3)


def test_a_series_that_begins_late_or_is_never_seen() -> None:
    seen = np.array([[np.nan, np.nan], [100.0, np.nan], [104.0, np.nan]])
    middle, low, high = smooth([0, 1, 2], seen, np.full(seen.shape, 5.0))
    assert np.isnan(middle[:, 1]).all()
    assert 95 < middle[0, 0] < 109
    assert high[0, 0] - low[0, 0] > high[1, 0] - low[1, 0]


# --- series ---------------------------------------------------------------------------------------------------------


def test_series_of_sketches(tmp_path: Path) -> None:
    made = sketches(tmp_path, [1, 2, 3, 5])
    found = series(made[::-1], NAMES[:10])
    assert found.missing == (datetime.date(2026, 11, 4),)
    assert found.differs == {}
    rows = [row for row in found.table.to_pylist() if row["of"] == "key"]
    assert len(rows) == 40
    assert [row["date"].day for row in rows[::10]] == [1, 2, 3, 5]
    for row in rows:
        assert row["low"] <= row["high"]
        if row["estimate"] is not None:  # null where a single day does not resolve the key
            assert row["low"] <= row["estimate"] <= row["high"]
        assert row["smoothed_low"] <= row["smoothed"] <= row["smoothed_high"]
    totals = [row for row in found.table.to_pylist() if row["of"] == "total"]
    assert all(abs(row["smoothed"] - 50 * sum(range(10))) < 250 for row in totals)
    assert all(row["estimate"] is None for row in found.table.to_pylist() if row["of"] == "others")


def test_other_parameters_are_named(tmp_path: Path) -> None:
    made = sketches(tmp_path, [1, 2])
    made += sketches(tmp_path, [3], epsilon="1/2")
    assert series(made, NAMES[:2]).differs == {datetime.date(2026, 11, 3): "epsilon 0.2 and 0.5"}
    with pytest.raises(ParameterError, match="two sketches have the date"):
        series([made[0], made[0]], NAMES[:2])
    with pytest.raises(ParameterError, match="no date in the name"):
        series([public(np.ones(40, int))], NAMES[:2])


@pytest.mark.parametrize(
    ("other", "params", "named"),
    [
        ({}, {"max_contributions": 2}, "max_contributions 1 and 2"),
        ({}, {"max_contributions": 2, "max_per_key": 2}, "max_contributions 1 and 2; max_per_key 1 and 2"),
        ({"users": range(40)}, {}, "privacy unit record and user"),
        ({"values": [1.0] * 40}, {"max_value": "1", "granularity": "1"}, "measure count and sum"),
        ({"keys": "[country, page]"}, {}, "keys of a column and [country, page]"),
    ],
)
def test_sketches_that_count_different_things_are_refused(
    other: dict[str, object], params: dict[str, object], named: str, tmp_path: Path
) -> None:
    """Their numbers were once compared, with a note at most: keys of one were not found in the other and all fell."""
    first = public(np.ones(40, int), tmp_path / "urls-2026-11-01.sketch")
    made = hg.ReleaseParams(**{"epsilon": "1/5", "max_contributions": 1, **params})  # type: ignore[arg-type]
    path = tmp_path / "urls-2026-11-02.sketch"
    second = hg.release_public(
        other.get("users"), NAMES, NAMES, made, path, values=other.get("values")  # type: ignore[arg-type]
    )  # fmt: skip
    if "keys" in other:
        second.manifest = replace(second.manifest, key_expression=str(other["keys"]))
    for owner, ask in (("compare", compare), ("series", lambda *both: series(both, NAMES[:2]))):
        with pytest.raises(ParameterError, match=owner) as problem:
            ask(first, second)
        assert named in str(problem.value)
        assert "urls-2026-11-01.sketch and " in str(problem.value)


def test_keys_of_another_column_are_refused_or_named(tmp_path: Path) -> None:
    """A sketch does not say of which column its keys are: all keys of one fell, all of the other rose."""
    first = public(np.full(40, 50), tmp_path / "carriers-2026-11-01.sketch")
    names = [f"airport {number}" for number in range(40)]
    params = hg.ReleaseParams(epsilon="1/5", max_contributions=1)
    second = hg.release_public(None, names * 50, names, params, tmp_path / "airports-2026-11-02.sketch")
    with pytest.raises(ParameterError, match=r"no key is named by both .*; if they are not, give keys"):
        compare(first, second)
    told = "named keys, of which none is in both"
    assert compare(first, second, [NAMES[0], names[0]]).differs == told
    assert series([first, second], NAMES[:2]).differs == {datetime.date(2026, 11, 2): told}


def test_selected_keys_and_an_encoding(tmp_path: Path) -> None:
    """Keys that are named on some days only are estimated from the encoding on others."""
    draws = np.random.default_rng(3)
    params = hg.ReleaseParams(epsilon="2", delta="1e-6", max_contributions=4)
    users, keys = draws.integers(0, 3000, 12_000), draws.zipf(1.4, 12_000) % 300
    made = [
        hg.release(
            users,
            keys,
            params,
            tmp_path / f"urls-2026-11-0{day}.sketch",
            name=f"urls-2026-11-0{day}",
            release_key=hg.ReleaseKey(bytes([day]) * 32),
        )
        for day in (1, 2)
    ]
    found = series(made, ["1", "2", "250"])
    rows = found.table.to_pylist()
    assert {row["source"] for row in rows} >= {"selected", "buckets"}
    assert all(row["smoothed"] is not None for row in rows if row["of"] == "key")
    assert compare(*made).found == 0
    assert compare(*made, keys=["1", "250"]).among == 2


# --- changes --------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_false_discoveries_and_power() -> None:
    """40 pairs; the bar of 200 is in benchmarks.over_time. A false alarm of this test is below 1 in 1,000."""
    draws = np.random.default_rng(11)
    false, large = [], []
    for _ in range(40):
        before = draws.integers(200, 900, 40)
        change = np.where(draws.random(40) < 0.2, draws.integers(-150, 150, 40), 0)
        first, second = public(before), public(before + change)
        deviation = math.sqrt(2 * first.plan.noise.law(float(first.plan.scale)).variance)
        table = compare(first, second, NAMES).table.to_pylist()
        found = [NAMES.index(row["key"]) for row in table if row["change"]]
        false.append(sum(change[i] == 0 for i in found) / max(len(found), 1))
        large += [i in found for i in np.flatnonzero(np.abs(change) > 6 * deviation)]
        for row in table:
            if row["change"]:
                assert (row["change"] == "rose") == (row["difference"] > 0)
    assert np.mean(false) < 0.12
    assert np.mean(large) >= 0.9


def test_p_values_are_those_of_the_noise() -> None:
    draws = np.random.default_rng(2)
    for one, two in ((5.0, 5.0), (5.0, 20.0)):
        gap = np.abs(draws.laplace(0, one, 200_000) - draws.laplace(0, two, 200_000))
        for away in (1.0, 10.0, 40.0):
            exact = float(_laplace_difference(np.array([away]), one, two)[0])
            assert (gap >= away).mean() == pytest.approx(exact, abs=5 * math.sqrt(exact / 200_000))
    chosen = _benjamini_hochberg(np.array([0.9, 0.001, 0.03, 0.02]), 0.05, 4)
    assert chosen.tolist() == [False, True, True, True]
    assert _benjamini_hochberg(np.array([0.9, 0.001, 0.03, 0.02]), 0.05, 1000).sum() == 0


def test_keys_listed_for_their_counts_are_counted_among_all() -> None:
    draws = np.random.default_rng(4)
    params = hg.ReleaseParams(epsilon="1", delta="1e-6", max_contributions=2, selection=hg.Threshold())
    users, keys = draws.integers(0, 2000, 6000), draws.zipf(1.3, 6000) % 400
    first, second = (hg.release(users, keys, params) for _ in range(2))
    found = compare(first, second)
    assert found.among == max(first.plan.keys, second.plan.keys) > found.table.num_rows
    assert found.found == 0


# --- commands -------------------------------------------------------------------------------------------------------


def call(*arguments: str) -> str:
    done = CliRunner().invoke(cli, list(arguments))
    if isinstance(done.exception, HushgramError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_commands(tmp_path: Path) -> None:
    sketches(tmp_path, [1, 2, 4])
    pattern, plot = f"{tmp_path}/urls-{{date}}.sketch", tmp_path / "series.svg"
    said = call("series", pattern, "--key", NAMES[3], "--plot", str(plot))
    assert "No sketch for 2026-11-03." in said
    assert plot.read_text().startswith("<svg")
    lines = call("series", pattern, "--key", NAMES[3], "--format", "json").splitlines()
    assert [json.loads(line)["of"] for line in lines[:3]] == ["key", "total", "others"]
    first, second = (str(tmp_path / f"urls-2026-11-0{day}.sketch") for day in (1, 2))
    assert "0 of 40 compared keys changed" in call("compare", first, second)
    rows = call("compare", first, second, "--all", "--key", NAMES[0], "--format", "json").splitlines()
    assert [json.loads(row)["key"] for row in rows] == [NAMES[0]]
    for wrong in (
        ("series", f"{tmp_path}/none-{{date}}.sketch", "--key", "a"),
        ("compare", first, str(plot)),
    ):
        with pytest.raises(HushgramError):
            call(*wrong)
