"""Public and carried keys reach workers as a file: a small graph, the library's bytes, and no file that stays."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.yaml import yaml_transform
from click.testing import CliRunner

import hushgram as hg
import hushgram.transforms
from hushgram.contributions.histogram import KeyTable
from hushgram.contributions.keys import encode
from hushgram.errors import InputError, OutputError
from hushgram.pipelines.cli import cli
from hushgram.pipelines.jobs.release import run_release
from hushgram.transforms import ReleaseSparseHistogram, files
from hushgram.transforms.files import SharedKeys
from hushgram.transforms.release_sparse_histogram import _groups_of
from tests.transforms.releases import KEY, contents, params, pieces, records
from tests.transforms.stores import StoreFileSystem

VIEWS = records(300, users=30)
LISTED = [*sorted(set(VIEWS["url"].to_pylist()))[:20], "/nobody has this"]
CHOSEN = hg.ReleaseParams(epsilon="1", max_contributions=4)
COLUMNS: dict[str, Any] = {"user": "user", "key": "url", "release_key": KEY}


def table(keys: list[str]) -> KeyTable:
    return KeyTable.build(encode(keys).values)[0]


@pytest.fixture(autouse=True)
def nothing_read() -> None:
    files._read_keys.cache_clear()


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every list is a file, however short."""
    monkeypatch.setattr(files, "_MAX_IN_GRAPH", 0)


def graph_size(transform: beam.PTransform) -> int:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    _ = pipeline | beam.Create(pieces(VIEWS, [100])) | transform
    return len(pipeline.to_runner_api().SerializeToString())


@pytest.mark.long
def test_the_graph_with_a_million_public_keys_is_small(tmp_path: Path) -> None:
    """And the sketch has the bytes of the library, though the keys are counted in several groups."""
    keys = [f"https://example.org/{i}" for i in range(1_000_000)]
    release = ReleaseSparseHistogram(CHOSEN, **COLUMNS, path=tmp_path / "job", public_keys=keys)
    assert _groups_of(release._spec.public_keys) > 1  # type: ignore[arg-type]
    pipeline = beam.Pipeline(runner="FnApiRunner")
    _ = pipeline | beam.Create(pieces(VIEWS, [100])) | release
    assert len(pipeline.to_runner_api().SerializeToString()) < 1_000_000  # bytes
    pipeline.run().wait_until_finish()
    place = {"path": tmp_path / "library", "release_key": KEY}
    hg.release_public(VIEWS["user"], VIEWS["url"], keys, CHOSEN, **place)
    assert contents(tmp_path / "job") == contents(tmp_path / "library")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "job", tmp_path / "library"]


def test_the_graph_stays_small_with_carried_keys_and_short_lists(tmp_path: Path) -> None:
    weighted = hg.ReleaseParams(epsilon="2", delta="1e-4", max_contributions=4)
    many = [f"/{i}" for i in range(100_000)]
    carried = ReleaseSparseHistogram(weighted, **COLUMNS, path=tmp_path / "a", carry=many)
    assert graph_size(carried) < 1_000_000
    short = [f"/{i}" for i in range(5_000)]
    assert table(short).texts.nbytes < files._MAX_IN_GRAPH
    assert (
        graph_size(ReleaseSparseHistogram(CHOSEN, **COLUMNS, path=tmp_path / "b", public_keys=short))
        < 1_000_000
    )
    assert not list(tmp_path.glob(".b*"))  # nothing was written


class OfSize:
    """Stands for the texts of a list so long."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


@pytest.mark.parametrize("size", [0, 1 << 20, 10**8, 10**9, 10**10, 25 * 10**9])
def test_no_group_of_keys_is_large(size: int) -> None:
    keys = KeyTable(np.zeros(0, np.uint64), OfSize(size))  # type: ignore[arg-type]
    assert size / _groups_of(keys) < 100e6


@pytest.mark.parametrize("more", [{}, {"user": None}, {"delta": "1e-6", "max_contributions": 40}])
def test_a_list_that_is_a_file_gives_the_librarys_bytes(
    tmp_path: Path, always: None, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    monkeypatch.setattr("hushgram.transforms.release_sparse_histogram._groups_of", lambda keys: 16)
    user = more.get("user", "user")
    chosen = params(max_per_key=1, **{k: v for k, v in more.items() if k != "user"})
    place = {"path": tmp_path / "library", "release_key": KEY}
    users = None if user is None else VIEWS["user"]
    hg.release_public(users, VIEWS["url"], LISTED, chosen, **place)
    release = ReleaseSparseHistogram(
        chosen, **{**COLUMNS, "user": user}, path=tmp_path / "job", public_keys=LISTED
    )
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        _ = pipeline | beam.Create(pieces(VIEWS, [7, 120])) | release
        (work,) = tmp_path.glob(".job.hushgram-*")
        assert [file.name for file in work.iterdir()] == [SharedKeys.NAME]
    assert contents(tmp_path / "job") == contents(tmp_path / "library")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "job", tmp_path / "library"]


def test_carried_keys_in_a_file(tmp_path: Path, always: None) -> None:
    chosen = hg.ReleaseParams(epsilon="2", delta="1e-4", max_contributions=4)
    hg.release(VIEWS["user"], VIEWS["url"], chosen, tmp_path / "library", release_key=KEY, carry=LISTED)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        release = ReleaseSparseHistogram(chosen, **COLUMNS, path=tmp_path / "job", carry=LISTED)
        _ = pipeline | beam.Create(pieces(VIEWS, [7])) | release
    assert contents(tmp_path / "job") == contents(tmp_path / "library")


def test_in_an_object_store(tmp_path: Path, always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "store").mkdir()
    monkeypatch.setattr(StoreFileSystem, "root", str(tmp_path / "store"))
    monkeypatch.setattr(StoreFileSystem, "created", [])
    path = "store://bucket/urls.sketch"
    for name in (
        "heavy-00001.parquet",
        "blocks-00007.bin",
        "blocks.index",
    ):  # of an earlier run, which failed
        (tmp_path / "store" / f"bucket|urls.sketch|{name}").write_bytes(b"other noise")
    (tmp_path / "store" / "bucket|urls.sketch.md").write_bytes(b"somebody's")
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        release = ReleaseSparseHistogram(CHOSEN, **COLUMNS, path=path, public_keys=LISTED)
        _ = pipeline | beam.Create(pieces(VIEWS, [7])) | release
    assert StoreFileSystem.created[0] == f"{path}/{SharedKeys.NAME}"
    left = sorted(file.name.rpartition("|")[2] for file in (tmp_path / "store").iterdir())
    assert left == ["heavy.parquet", "manifest.json", "urls.sketch.md"]


def test_the_list_travels_as_a_path_and_is_read_once(tmp_path: Path, always: None) -> None:
    keys = table([f"/{i}" for i in range(10_000)])
    shared = SharedKeys.write(keys, str(tmp_path))
    packed = pickle.dumps(shared)
    assert len(packed) < 500
    again = [pickle.loads(packed) for _ in range(2)]
    assert again[0].texts.equals(keys.texts)
    np.testing.assert_array_equal(again[1].fingerprints, keys.fingerprints)
    assert again[0].texts is again[1].texts


def test_a_stage_that_runs_again_takes_the_keys_from_the_sketch(tmp_path: Path, always: None) -> None:
    work, path = tmp_path / "work", tmp_path / "urls.sketch"
    hg.release_public(VIEWS["user"], VIEWS["url"], LISTED, CHOSEN, path=path, release_key=KEY)
    shared = SharedKeys.write(table(LISTED), str(work), str(path))
    (work / SharedKeys.NAME).unlink()
    assert shared.texts.equals(table(LISTED).texts)
    other = SharedKeys.write(table(LISTED[1:]), str(work), str(path))
    (work / SharedKeys.NAME).unlink()
    with pytest.raises(OutputError, match="is not visible here; give an output path that all workers share"):
        _ = other.texts


def test_find_is_right_for_long_and_short_lists() -> None:
    keys = table([f"/{i}" for i in range(100)])
    for asked in (["/5", "/x", "/99"], [f"/{i}" for i in range(50, 300)], []):
        values = pa.array([key.encode() for key in asked], pa.large_binary())
        texts = keys.texts.to_pylist()
        assert keys.find(values).tolist() == [
            texts.index(key) if key in texts else -1 for key in values.to_pylist()
        ]
    # two texts of one fingerprint are told apart
    twins = KeyTable(np.array([1, 1, 2], np.uint64), pa.array([b"a", b"b", b"c"], pa.large_binary()))
    assert twins.find(pa.array([b"b", b"x"], pa.large_binary())).tolist() == [1, -1]


@pytest.fixture
def by_library(tmp_path: Path) -> dict[str, bytes]:
    pq.write_table(VIEWS, tmp_path / "views.parquet")
    (tmp_path / "keys.txt").write_text("\n".join(LISTED))
    (tmp_path / "key").write_text(KEY.hex())
    path = tmp_path / "library"
    hg.release_public(VIEWS["user"], VIEWS["url"], LISTED, CHOSEN, path=path, release_key=KEY, name="urls")
    return contents(path)


def test_from_yaml_by_the_path_of_a_file(tmp_path: Path, always: None, by_library: dict[str, bytes]) -> None:
    arguments = {
        "epsilon": "1", "max_contributions": 4, "user": "user", "key": "url", "name": "urls",
        "path": str(tmp_path / "job"), "release_key": str(tmp_path / "key"),
        "public_keys": str(tmp_path / "keys.txt"),
    }  # fmt: skip
    steps = [
        {"type": "ReadFromParquet", "config": {"path": str(tmp_path / "views.parquet")}},
        {"type": "ReleaseSparseHistogram", "config": arguments},
    ]
    providers = Path(hushgram.transforms.__path__[0]) / "hushgram-providers.yaml"
    spec = {"providers": [{"include": str(providers)}], "pipeline": {"type": "chain", "transforms": steps}}
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        yaml_transform.expand_pipeline(pipeline, yaml.safe_dump(spec))
    assert contents(tmp_path / "job") == by_library


def test_from_run_release_by_the_path_of_a_file(
    tmp_path: Path, always: None, by_library: dict[str, bytes]
) -> None:
    place = {**COLUMNS, "path": tmp_path / "job", "name": "urls"}
    run_release(CHOSEN, beam.Create(pieces(VIEWS, [7])), **place, public_keys=tmp_path / "keys.txt")
    assert contents(tmp_path / "job") == by_library
    place["path"] = tmp_path / "b"
    with pytest.raises(InputError, match=r"public_keys .*none.txt"):
        run_release(CHOSEN, beam.Create([]), **place, public_keys=tmp_path / "none.txt")


def test_from_the_command_line(
    tmp_path: Path, always: None, by_library: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUSHGRAM_RELEASE_KEY_FILE", str(tmp_path / "key"))
    out = tmp_path / "out"
    out.mkdir()
    config = {
        "release": "urls",
        "input": {"path": str(tmp_path / "views.parquet"), "user": "user", "key": "url"},
        "privacy": {
            "epsilon": "1", "max_contributions": 4, "domain": {"public_keys": str(tmp_path / "keys.txt")}
        },
        "output": {"path": str(out / "job")},
    }  # fmt: skip
    (tmp_path / "urls.yaml").write_text(yaml.safe_dump(config))
    checked = CliRunner().invoke(cli, ["release", str(tmp_path / "urls.yaml"), "--check"])
    assert checked.exit_code == 0, checked.output
    assert not list(out.iterdir())
    done = CliRunner().invoke(cli, ["release", str(tmp_path / "urls.yaml"), "--quiet"])
    assert done.exit_code == 0, done.output
    assert contents(out / "job") == by_library
    assert [file.name for file in out.iterdir()] == ["job"]
    bounds = ["bounds", str(tmp_path / "urls.yaml"), "--epsilon", "1", "--quiet"]
    done = CliRunner().invoke(cli, bounds)
    assert done.exit_code == 0, done.output
    assert sorted(file.name for file in out.iterdir()) == ["job", "job.bounds.json"]
