"""The job against the library: one release key, the same bytes, whatever the input's form and the runner's workers."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushgram import ReleaseKey
from hushgram.errors import HushgramError, InputError, OutputError, ParameterError
from hushgram.inputs import Limits, Source
from hushgram.pipelines.jobs.release import run_release
from hushgram.pipelines.run.beam_runners import pipeline_options
from hushgram.pipelines.run.job_runner import KEY_FILE, key_from_environment
from hushgram.release_in_memory import release, release_public
from hushgram.transforms import bound_contributions as bounding
from hushgram.transforms.read_records import plan_records
from hushgram.transforms.release_sparse_histogram import ReleaseSparseHistogram
from hushgram.transforms.shuffle import combining
from tests.transforms.releases import KEY, SMALL, contents, params, records

TABLE = records(2500, users=100)
IDS = ("user", "url")


def library(path: Path, table: pa.Table, chosen: Any, users: bool = True) -> dict[str, bytes]:
    release(table["user"] if users else None, table["url"], chosen, path, release_key=KEY, name="urls")
    return contents(path)


def job(path: Path, inputs: str, chosen: Any, users: bool = True, **more: Any) -> dict[str, bytes]:
    plan = plan_records(
        [inputs], Source(ids=IDS if users else IDS[1:], item_bytes=more.pop("item_bytes", 1 << 26))
    )
    result = run_release(
        chosen,
        plan,
        user="user" if users else None,
        key="url",
        path=path,
        name="urls",
        release_key=KEY,
        **more,
    )
    assert result.path == str(path)
    return contents(path)


def write_parquet(folder: Path, table: pa.Table, files: int) -> str:
    folder.mkdir()
    step = -(-table.num_rows // files)
    for i in range(files):
        pq.write_table(
            table.slice(i * step, step), folder / f"{i:02}.parquet", row_group_size=max(step // 3, 1)
        )
    return f"{folder}/*.parquet"


@pytest.mark.parametrize(("delta", "users"), [("0", True), ("1e-6", True), ("0", False), ("1e-6", False)])
@pytest.mark.long
def test_bytes_are_those_of_the_library(delta: str, users: bool, tmp_path: Path) -> None:
    """δ = 0 and δ > 0, a person or a record protected; files, row groups and shards differ."""
    chosen = params(delta)
    expected = library(tmp_path / "library", TABLE, chosen, users)
    inputs = write_parquet(tmp_path / "in", TABLE, 5 if users else 2)
    assert job(tmp_path / "job", inputs, chosen, users, shards=3 if users else 40, item_bytes=1) == expected


@pytest.mark.parametrize("users", [True, False])
def test_key_expressions_give_the_bytes_of_the_library(users: bool, tmp_path: Path) -> None:
    chosen, key = params("0"), "url | words"  # several keys per record
    user = "user" if users else None
    frame = pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(max_chunksize=1000))
    release(frame, user=user, key=key, params=chosen, path=tmp_path / "library", release_key=KEY, name="urls")
    ids = ("user", key) if users else (key,)
    record = None if users else chosen.resolve("record").record_bounds
    plan = plan_records([write_parquet(tmp_path / "in", TABLE, 2)], Source(ids=ids, record=record))
    run_release(chosen, plan, user=user, key=key, path=tmp_path / "job", name="urls", release_key=KEY)
    assert contents(tmp_path / "job") == contents(tmp_path / "library")


@pytest.mark.long
def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    """multi_processing: DoFns, coders, spilled batches and errors cross process borders."""
    chosen = params()
    expected = library(tmp_path / "library", TABLE, chosen)
    inputs = write_parquet(tmp_path / "in", TABLE, 4)
    assert job(tmp_path / "job", inputs, chosen, options=pipeline_options([], workers=2)) == expected
    assert sorted(os.listdir(tmp_path)) == ["in", "job", "library"]


def test_batch_sizes_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a few rows, accumulators that are cut all the time."""
    from hushgram.transforms.shuffle import records as batching

    chosen = params(**SMALL)
    expected = library(tmp_path / "library", TABLE, chosen)
    monkeypatch.setattr(batching, "_MIN_ROWS", 50)
    monkeypatch.setattr(batching, "_MAX_ROWS", 70)
    monkeypatch.setattr(combining, "MAX_PENDING", 20)
    inputs = write_parquet(tmp_path / "in", TABLE, 2)
    assert job(tmp_path / "job", inputs, chosen, shards=7) == expected


def text_file(folder: Path, form: str) -> str:
    rows = TABLE.to_pylist()
    if form == "csv.gz":
        with gzip.open(folder / "a.csv.gz", "wt", newline="") as file:
            writer = csv.DictWriter(file, ["user", "more", "url"])
            writer.writeheader()
            writer.writerows({**row, "more": 'x,"y'} for row in rows)
        return str(folder / "a.csv.gz")
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder / "a.jsonl")


@pytest.mark.parametrize("form", ["csv.gz", "jsonl"])
def test_every_format_gives_the_same_bytes(form: str, tmp_path: Path) -> None:
    chosen = params(**SMALL)
    expected = library(tmp_path / "library", TABLE, chosen)
    assert job(tmp_path / "job", text_file(tmp_path, form), chosen) == expected


EDGES = {
    "nothing": pa.table({"user": pa.array([], pa.string()), "url": pa.array([], pa.string())}),
    "one record": pa.table({"user": ["ann"], "url": ["/a"]}),
    "one user": pa.table({"user": ["ann"] * 500, "url": [f"/{i % 77}" for i in range(500)]}),
    "one key": pa.table({"user": [f"u{i}" for i in range(500)], "url": ["/a"] * 500}),
}


@pytest.mark.parametrize(("edge", "delta"), [*zip(EDGES, itertools.cycle(["0", "1e-6"]), strict=False)])
@pytest.mark.long
def test_the_edges_release_like_anything_else(edge: str, delta: str, tmp_path: Path) -> None:
    chosen = params(delta, **SMALL)
    expected = library(tmp_path / "library", EDGES[edge], chosen)
    inputs = write_parquet(tmp_path / "in", EDGES[edge], 1)
    assert job(tmp_path / "job", inputs, chosen, limits=Limits(min_rows=0)) == expected


def test_nothing_is_published_of_too_many_rejected_records(tmp_path: Path) -> None:
    table = pa.table({"user": ["ann"] * 9 + [None], "url": ["/a"] * 10})
    plan = plan_records([write_parquet(tmp_path / "in", table, 1)], Source(ids=IDS))
    with pytest.raises(InputError, match=r"00\.parquet, row 10: user is null; more than"):
        run_release(params(**SMALL), plan, user="user", key="url", path=tmp_path / "job")
    assert os.listdir(tmp_path) == ["in"]


def test_file_sizes_tell_nothing_of_the_data(tmp_path: Path) -> None:
    """With public sizes, the bits of an empty input take the room of a full one."""
    chosen = params(**SMALL)
    one, two = (
        library(tmp_path / str(i), table, chosen) for i, table in enumerate((TABLE, EDGES["nothing"]))
    )
    assert len(one["blocks-00000.bin"]) == len(two["blocks-00000.bin"])


def numbers(value: Any) -> set[int]:
    if isinstance(value, dict | list):
        return set().union(*map(numbers, value.values() if isinstance(value, dict) else value))
    return {value} if isinstance(value, int) else set()


def test_exact_figures_stay_with_the_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the result; neither in the manifest nor in a temporary file that outlives the job."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    plan = plan_records([write_parquet(tmp_path / "in", TABLE, 2)], Source(ids=IDS))
    chosen = params(max_contributions=7, **SMALL)
    result = run_release(chosen, plan, user="user", key="url", path=tmp_path / "job", release_key=KEY)
    assert result.exact["rows"] == TABLE.num_rows
    assert result.sketch().verify()
    said = numbers(json.loads((tmp_path / "job/manifest.json").read_text()))
    assert said.isdisjoint({result.exact["rows"], result.exact["records"]})
    assert os.listdir(tmp_path / "tmp") == []


@pytest.mark.parametrize("users", [True, False])
def test_a_public_list_is_released_as_the_library_does(users: bool, tmp_path: Path) -> None:
    listed = [f"https://example.org/{i}" for i in range(1, 40)] + ["never seen"]
    chosen = params()
    owners = TABLE["user"] if users else None
    release_public(owners, TABLE["url"], listed, chosen, tmp_path / "library", release_key=KEY, name="urls")
    inputs = write_parquet(tmp_path / "in", TABLE, 3)
    got = job(tmp_path / "job", inputs, chosen, users, public_keys=listed)
    assert got == contents(tmp_path / "library")
    assert sorted(got) == ["heavy.parquet", "manifest.json"]
    with pytest.raises(InputError, match="listed twice"):
        ReleaseSparseHistogram(chosen, key="url", path=tmp_path / "b", public_keys=["a", "a"])


class _Breaks(beam.DoFn):
    def process(self, element: Any) -> Any:
        raise InputError("logs/a.csv: damaged at byte 7")


def test_a_workers_error_is_one_line_and_nothing_is_left(tmp_path: Path) -> None:
    source = beam.Create([1]) | beam.ParDo(_Breaks())
    with pytest.raises(HushgramError) as caught:
        run_release(params(**SMALL), source, user="user", key="url", path=tmp_path / "job")
    assert isinstance(caught.value, InputError)
    assert str(caught.value) == "logs/a.csv: damaged at byte 7"
    assert os.listdir(tmp_path) == []


def test_a_column_that_is_missing_is_found_before_the_run(tmp_path: Path) -> None:
    plan = plan_records([write_parquet(tmp_path / "in", TABLE, 1)], Source(ids=IDS))
    with pytest.raises(InputError, match="column 'host' is not among those that are read: user, url"):
        run_release(params(), plan, user="host", key="url", path=tmp_path / "job")
    with pytest.raises(OutputError, match="exists already"):
        run_release(params(), plan, user="user", key="url", path=tmp_path / "in")


def test_a_key_file_is_for_tests_and_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_FILE, raising=False)
    assert key_from_environment() is None
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key"))
    with pytest.raises(ParameterError, match=r"key cannot be read: No such file"):
        key_from_environment()
    (tmp_path / "key").write_text(KEY.hex() + "\n")
    assert key_from_environment() == KEY


def test_stages_pickle(tmp_path: Path) -> None:
    step = ReleaseSparseHistogram(
        params("1e-6"), user="user", key="url", path=tmp_path / "a", release_key=KEY
    )
    for part in (
        step._spec,
        step._spec.bounding,
        bounding.BoundUsers(step._spec.bounding),
        ReleaseKey(bytes(32)),
    ):
        assert pickle.loads(pickle.dumps(part)).__class__ is part.__class__
