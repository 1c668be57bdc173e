"""Results as Arrow, pandas and polars frames, and drawn."""

from __future__ import annotations

import sys

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import hushgram as hg
from hushgram.errors import MissingPackage, ParameterError
from hushgram.sketch.over_time import compare, series

KEY = hg.ReleaseKey(bytes(range(32)))
PARAMS = hg.ReleaseParams(epsilon="4", delta="1e-3", max_contributions=2, max_per_key=1)
USERS, KEYS = [f"u{i}" for i in range(400)], [f"/{'abcd'[i % 4 if i % 2 else 0]}" for i in range(400)]


def sketch(day: int = 1) -> hg.Sketch:
    return hg.release(USERS, KEYS, PARAMS, release_key=KEY, name=f"urls-2026-11-0{day}")


def test_all_results_become_frames() -> None:
    one, two = sketch(), sketch(2)
    asked = ["/a", "/none"]
    results = [
        one.estimate(asked),
        one.heavy(),
        one.total(asked),
        series([one, two], asked),
        compare(one, two),
    ]
    for result in results:
        assert isinstance(result.table, pa.Table)
        assert isinstance(result.to_pandas(), pd.DataFrame)
        assert isinstance(result.to_polars(), pl.DataFrame)
        assert list(result.to_pandas().columns) == result.to_polars().columns == result.table.column_names
        assert len(result.to_polars()) == result.table.num_rows
        assert result._repr_html_().startswith("<table>")
    assert one.total(asked).to_pandas()["keys"].tolist() == [2]


def test_a_result_is_an_arrow_table_for_whoever_wants_one() -> None:
    found = sketch().estimate(["/a", "<b>"])
    assert pa.table(found).equals(found.table)
    assert pl.DataFrame(found).equals(found.to_polars())
    assert found == sketch().estimate(["/a", "<b>"])
    assert found != sketch().estimate(["/b"])
    assert (len(found), found.num_rows, found.column_names[0]) == (2, 2, "key")
    assert found["key"].to_pylist() == found.to_pydict()["key"] == ["/a", "<b>"]
    assert "<b>" not in found._repr_html_()
    assert "20 more rows" in sketch().estimate([f"/{i}" for i in range(40)])._repr_html_()


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sketch().total("/a")
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(MissingPackage, match=f"pip install {name}"):
            getattr(found, f"to_{name}")()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackage, match=r"hushgram\[plot\]"):
        sketch().plot()


def test_plot() -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    one = sketch()
    axes = one.plot(truth={"/a": 250})
    heavy = one.heavy().sort_by([("value", "descending")])["key"].to_pylist()
    assert [label.get_text() for label in axes.get_yticklabels()] == heavy
    again = one.plot(["/a", "/$none" + "x" * 90], ax=axes)
    assert again is axes
    assert len(axes.get_yticklabels()[1].get_text()) <= 49
    pure = hg.release(USERS, KEYS, hg.ReleaseParams(epsilon="4", max_contributions=2), release_key=KEY)
    assert len(pure.plot(top=2).get_yticklabels()) <= 2
    nothing = hg.release([], [], PARAMS, release_key=KEY)
    with pytest.raises(ParameterError, match="nothing to draw"):
        nothing.plot()
    pyplot.close("all")
