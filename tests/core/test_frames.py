"""Releases of frames: Arrow, pandas and polars give the bytes of their columns, and files give the same."""

from __future__ import annotations

import datetime
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import hushgram as hg
from hushgram.contributions.keys import canonical
from hushgram.errors import InputError, ParameterError
from hushgram.inputs import read_item
from tests.core.inputs.helpers import plan_of

KEY = hg.ReleaseKey(bytes(range(32)))
PARAMS = hg.ReleaseParams(epsilon="2", delta="1e-3", max_contributions=2, max_per_key=1)
DAYS = [datetime.date(2026, 11, 1) + datetime.timedelta(days=i % 7) for i in range(300)]
TABLE = pa.table(
    {
        "user_id": [f"u{i % 60}" for i in range(300)],
        "url": [f"/page/{i % 9}" for i in range(300)],
        "day": DAYS,
        "bot": [i % 3 == 0 for i in range(300)],
        "number": [i % 11 for i in range(300)],
    }
)
FRAMES: dict[str, Any] = {
    "table": TABLE,
    "record batch": TABLE.combine_chunks().to_batches()[0],
    "table of chunks": pa.concat_tables([TABLE.slice(0, 100), TABLE.slice(100)]),
    "dictionaries": pa.table({name: TABLE[name].combine_chunks().dictionary_encode() for name in TABLE.column_names}),
    "pandas": TABLE.to_pandas(),
    "pandas on Arrow": TABLE.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas categories": TABLE.to_pandas().astype("category"),
    "polars": pl.DataFrame(TABLE.to_pydict()),
    "polars categories": pl.DataFrame(TABLE.to_pydict()).cast({"user_id": pl.Categorical, "url": pl.Categorical}),
}  # fmt: skip


def readers() -> dict[str, Any]:
    """Return frames that are read in batches; a reader is used up by reading it."""
    duckdb = pytest.importorskip("duckdb")
    small = TABLE.to_batches(max_chunksize=70)
    return {
        "reader": pa.RecordBatchReader.from_batches(TABLE.schema, small),
        "LazyFrame": pl.DataFrame(TABLE.to_pydict()).lazy().filter(pl.col("number") >= 0),
        "DuckDB": duckdb.from_arrow(TABLE),
        "older polars": _Lazy(pl.DataFrame(TABLE.to_pydict())),
    }


class _Lazy:
    """A LazyFrame without `collect_batches`."""

    columns = ()

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def collect_schema(self) -> Any:
        return self._frame.schema

    def select(self, names: list[str]) -> _Lazy:
        return _Lazy(self._frame.select(names))

    def head(self, rows: int) -> _Lazy:
        return _Lazy(self._frame.head(rows))

    def collect(self) -> pl.DataFrame:
        return self._frame


def content(sketch: hg.Sketch) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(sketch.path.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("key", ["url", "day", "bot", "number"])
@pytest.mark.parametrize("kind", FRAMES)
def test_every_frame_gives_the_bytes_of_its_columns(kind: str, key: str) -> None:
    plain = [str(value) for value in TABLE[key].to_pylist()]
    expected = hg.release(
        TABLE["user_id"].to_pylist(), [text.lower() for text in plain], PARAMS, release_key=KEY
    )
    found = hg.release(FRAMES[kind], user="user_id", key=key, params=PARAMS, release_key=KEY)
    assert content(found) == content(expected)


@pytest.mark.parametrize("kind", FRAMES)
def test_public_lists_histograms_and_records(kind: str) -> None:
    frame, listed = FRAMES[kind], ["2026-11-01", "2026-11-02"]
    pure = hg.ReleaseParams(epsilon="2", max_contributions=2)
    found = hg.release_public(
        frame, user="user_id", key="day", public_keys=listed, params=pure, release_key=KEY
    )
    expected = hg.release_public(TABLE["user_id"], [str(day) for day in DAYS], listed, pure, release_key=KEY)
    assert content(found) == content(expected)
    if kind not in ("dictionaries", "pandas categories"):  # counts as categories are no counts
        one = hg.ReleaseParams(epsilon="2", delta="0", max_contributions=1)
        found = hg.release_histogram(frame, key="url", count="number", params=one, release_key=KEY)
        expected = hg.release_histogram(TABLE["url"], TABLE["number"], one, release_key=KEY)
        assert content(found) == content(expected)
    found = hg.release(frame, user=None, key="url", params=PARAMS, release_key=KEY)
    assert content(found) == content(hg.release(None, TABLE["url"], PARAMS, release_key=KEY))
    assert found.guarantee.unit == "record"


@pytest.mark.parametrize("user", ["user_id", "day", "bot", "number"])
@pytest.mark.parametrize("key", ["url", "day", "bot", "number"])
def test_files_and_the_library_spell_alike(user: str, key: str, tmp_path: Path) -> None:
    library = hg.release(TABLE, user=user, key=key, params=PARAMS, release_key=KEY)
    pq.write_table(TABLE, tmp_path / "a.parquet")
    pa_csv.write_csv(TABLE, tmp_path / "a.csv")
    lines = (json.dumps(row, default=str) for row in TABLE.to_pylist())
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    for name in ("a.parquet", "a.csv", "a.jsonl"):
        plan = plan_of(tmp_path / name, ids=tuple(dict.fromkeys((user, key))))
        batches = [chunk.batch for item in plan.items for chunk in read_item(item, plan)]
        records = pa.Table.from_batches(batches)
        assert len(records) == len(TABLE)
        assert content(hg.release(records, user=user, key=key, params=PARAMS, release_key=KEY)) == content(
            library
        ), name


def test_what_files_refuse_the_library_refuses() -> None:
    for value in (1.5, [1], {"a": 1}, datetime.time(1), datetime.timedelta(1)):
        with pytest.raises(
            InputError,
            match="keys: values must be text, bytes, whole numbers, decimals",
        ):
            hg.release(["u"], [value], PARAMS)


@pytest.mark.parametrize("kind", ["reader", "LazyFrame", "DuckDB", "older polars"])
@pytest.mark.long
def test_batches_give_the_bytes_of_the_whole(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "hushgram.release_in_memory._MERGED_ROWS", 40
    )  # parts are merged and pruned on the way
    pure = hg.ReleaseParams(epsilon="2", max_contributions=2)
    one = hg.ReleaseParams(epsilon="2", max_contributions=1)
    sums = hg.ReleaseParams(epsilon="2", max_contributions=20, max_value=10, granularity=1)
    metrics = {"all": hg.Metric(pure), "sums": hg.Metric(sums, "number")}

    def released(frame: Callable[[], Any], folder: str) -> list[dict[str, bytes]]:
        named: Any = {"user": "user_id", "key": "url", "release_key": KEY}
        found = [
            hg.release(frame(), params=PARAMS, **named),
            hg.release(frame(), params=pure, **{**named, "key": ["bot", "url | path 1"]}),
            hg.release(frame(), params=sums, values="number", **named),
            hg.release(frame(), params=PARAMS, **{**named, "user": None}),
            hg.release(frame(), params=pure, **{**named, "user": None, "key": "url | words"}),
            hg.release_public(frame(), public_keys=["/page/1"], params=pure, **named),
            hg.release_histogram(
                frame(), key="url", count="number", params=one, release_key=KEY
            ),
        ]  # fmt: skip
        for user in ("user_id", None):
            path = Path(tempfile.mkdtemp(dir=tmp), folder)
            found += hg.release_metrics(
                frame(), metrics=metrics, path=path, **{**named, "user": user}
            ).values()
        return [content(sketch) for sketch in found]

    with tempfile.TemporaryDirectory() as tmp:
        assert released(lambda: readers()[kind], "batches") == released(lambda: TABLE, "whole")


def test_a_reader_without_batches_is_an_empty_frame() -> None:
    empty = TABLE.slice(0, 0)
    found = hg.release(
        pa.RecordBatchReader.from_batches(TABLE.schema, []), user="user_id", key="url", params=PARAMS, release_key=KEY
    )  # fmt: skip
    assert content(found) == content(
        hg.release(empty, user="user_id", key="url", params=PARAMS, release_key=KEY)
    )


@pytest.mark.parametrize("kind", FRAMES)
def test_key_expressions_are_those_of_files(kind: str, tmp_path: Path) -> None:
    """Texts that files spell alike: the columns of every frame, made by one expression."""
    pq.write_table(TABLE, tmp_path / "a.parquet")
    for key in ("url | path 1", "[bot, url | lower, number, day | truncate week]", "url | words"):
        plan = plan_of(tmp_path / "a.parquet", ids=("user_id", key))
        records = pa.Table.from_batches([c.batch for item in plan.items for c in read_item(item, plan)])
        expected = hg.release(records["user_id"], records[key], PARAMS, release_key=KEY)
        written = ["bot", "url | lower", "number", "day | truncate week"] if key.startswith("[") else key
        found = hg.release(FRAMES[kind], user="user_id", key=written, params=PARAMS, release_key=KEY)
        assert found.manifest.key_expression == key
        lists = [{n: b for n, b in content(one).items() if n != "manifest.json"} for one in (found, expected)]
        assert lists[0] == lists[1]


def test_lookups_apply_the_expression_and_records_without_a_key_are_left_out() -> None:
    urls = ["https://a.org/x", "https://a.org/y?z", "https://b.org"] * 40
    users = [f"u{i}" for i in range(len(urls))]
    frame = pa.table({"u": [*users, "v"], "k": [*urls, "no URL"]})
    sketch = hg.release(frame, user="u", key="k | host", params=PARAMS, release_key=KEY)
    assert sketch.estimate("https://a.org/new").equals(sketch.estimate("a.org"))
    with pytest.raises(InputError, match=r"k \| host is null; more than a twentieth"):
        hg.release(pa.table({"u": users, "k": ["/no/host"] * 120}), user="u", key="k | host", params=PARAMS)
    times = pa.table({"u": ["a"], "k": [datetime.datetime(2026, 11, 18)]})
    with pytest.raises(InputError, match=r"k \| truncate hour"):
        hg.release(times, user="u", key=["u", "k"], params=PARAMS)


def test_objects_of_polars_are_not_their_addresses() -> None:
    def frame(value: object) -> pl.DataFrame:
        return pl.DataFrame({"u": [1], "k": pl.Series([value], dtype=pl.Object)})

    with pytest.raises(InputError, match="keys: values must be"):
        hg.release(frame(object()), user="u", key="k", params=PARAMS)
    found = hg.release(frame("a"), user="u", key="k", params=PARAMS, release_key=KEY)
    assert content(found) == content(hg.release([1], ["a"], PARAMS, release_key=KEY))


def test_a_null_among_the_values_of_a_dictionary_is_a_null() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))
    with pytest.raises(InputError, match="keys: row 1 is null"):
        canonical(column)
    with pytest.raises(InputError, match="keys: row 1 is null"):
        hg.release(["u", "v"], column, PARAMS)


@pytest.mark.parametrize(
    ("error", "words", "arguments", "named"),
    [
        (InputError, "user: no column 'user'; did you mean 'user_id'?", (), {"user": "user", "key": "url"}),
        (InputError, "key: no column 'x'. The columns are: user_id, url", (), {"user": "user_id", "key": "x"}),
        (ParameterError, "state the column of the user, user=\"...\", or user=None", (), {"key": "url"}),
        (ParameterError, 'state the column of the key, key="..."', (), {"user": "user_id"}),
        (ParameterError, "key must be a column, or a list of columns", (), {"user": "user_id", "key": ["url"]}),
        (ParameterError, "key must be the name of a column, got int", (), {"user": "user_id", "key": 7}),
        (ParameterError, "no step 'hots'; there are lower", (), {"user": "user_id", "key": "url | hots"}),
        (InputError, "key: no column 'ulr'; did you mean 'url'?", (), {"user": "user_id", "key": ["day", "ulr"]}),
        (ParameterError, "only a key may have a step that gives several", (), {"user": "url | words", "key": "day"}),
        (ParameterError, "after a frame, state everything by name", ("user_id", "url"), {}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["table", "record batch", "pandas", "polars"])
def test_mistakes_in_names_are_said_in_one_line(
    kind: str, error: Any, words: str, arguments: Any, named: Any
) -> None:
    more = {} if arguments else {"params": PARAMS}
    with pytest.raises(error) as caught:
        hg.release(FRAMES[kind], *arguments, **named, **more)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_mistakes() -> None:
    users, urls = TABLE["user_id"], TABLE["url"]
    with pytest.raises(ParameterError, match=r"name columns of a frame.*got ChunkedArray"):
        hg.release(users, user="user_id", key="url", params=PARAMS)
    with pytest.raises(ParameterError, match=r"params must be ReleaseParams, such as .*, got unstated"):
        hg.release(TABLE, user="user_id", key="url")
    with pytest.raises(ParameterError, match="params must be ReleaseParams"):
        hg.release_histogram(TABLE, key="url", count="number")
    with pytest.raises(InputError, match="counts must be one column of whole numbers"):
        hg.release_histogram(
            TABLE, key="url", count="user_id", params=hg.ReleaseParams(epsilon="1", max_contributions=1)
        )
    for twice in (pa.table([users, urls], ["a", "a"]), pd.DataFrame([["u", "k"]], columns=["a", "a"])):
        with pytest.raises(InputError, match="column 'a' occurs 2 times"):
            hg.release(twice, user=None, key="a", params=PARAMS)
    nulls = pd.DataFrame({"u": ["a", None], "k": ["x", "y"]})
    with pytest.raises(InputError, match="users: row 1 is null"):
        hg.release(nulls, user="u", key="k", params=PARAMS)


def test_a_single_key_is_one_key() -> None:
    sketch = hg.release(TABLE, user="user_id", key="url", params=PARAMS, release_key=KEY)
    for one in ("/page/1", b"/page/1", 7, np.int64(7), np.str_("/page/1"), True, DAYS[0]):
        assert sketch.estimate(one).equals(sketch.estimate([one]))
        assert sketch.estimate(one).num_rows == 1
        assert sketch.total(one) == sketch.total([one])
        assert sketch.heavy(keys=one).equals(sketch.heavy(keys=[one]))
    assert sketch.estimate(np.datetime64("2026-11-01")).equals(sketch.estimate(DAYS[0]))
    assert sketch.estimate(TABLE["url"][1]).equals(sketch.estimate("/page/1"))
    assert sketch.estimate(True)["key"].to_pylist() == ["true"]
    assert sketch.estimate(DAYS[0])["key"].to_pylist() == ["2026-11-01"]


def test_public_names() -> None:
    for name in dir(hg):
        assert getattr(hg, name) is not None
    assert {"release", "release_public", "release_histogram", "Sketch", "ReleaseParams", "svt"} <= set(
        dir(hg)
    )
    assert set(hg.__all__) <= set(dir(hg))
    assert not {"import_module", "Any", "TYPE_CHECKING"} & set(dir(hg))
    for module in pkgutil.iter_modules(hg.__path__):
        if module.name not in ("__main__", "pipelines", "transforms"):
            found = importlib.import_module(f"hushgram.{module.name}")
            for name in getattr(found, "__all__", ()):
                assert hasattr(found, name), f"hushgram.{module.name}.{name}"


def test_python_m_hushgram() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "hushgram", "--version"], capture_output=True, text=True, env=dict(os.environ)
    )
    assert ran.returncode == 0
    assert hg.__version__ in ran.stdout
