"""ReadRecords through Beam: formats, counters, bad records, directories, remote paths, worker processes."""

from __future__ import annotations

import gzip
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.io.localfilesystem import LocalFileSystem
from apache_beam.testing.util import assert_that, equal_to

from hushgram.errors import InputError
from hushgram.inputs import InputPlan, Limits, Source
from hushgram.pipelines.run.beam_runners import new_pipeline, pipeline_options
from hushgram.pipelines.run.progress import read_counters, run_pipeline
from hushgram.transforms.read_records import (
    ReadRecords,
    WriteRejectedRecords,
    _ReadItem,
    match_files,
    open_file,
    plan_records,
)

SOURCE = Source(ids=("user", "key"))


def to_pairs(batch: pa.RecordBatch) -> list[tuple[str, str]]:
    return [(str(row["user"]), row["key"]) for row in batch.to_pylist()]


def run(plan: InputPlan, expected: list[tuple[str, str]], workers: int = 1) -> dict[str, int]:
    options = pipeline_options([], workers)
    pipeline = new_pipeline(options)
    pairs = pipeline | ReadRecords(plan, counters=True) | beam.FlatMap(to_pairs)
    assert_that(pairs, equal_to(expected))
    return read_counters(run_pipeline(pipeline, options, title="test", quiet=True))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The same four records in three formats."""
    (tmp_path / "a.csv").write_text('user,key\n1,/a\n2,"/b\n"\n1,/é\n2,/a\n')
    (tmp_path / "a.jsonl").write_text(
        "".join(
            json.dumps({"user": u, "key": k}) + "\n"
            for u, k in ((1, "/a"), (2, "/b\n"), (1, "/é"), (2, "/a"))
        )
    )
    rows = pa.table({"user": [1, 2, 1, 2], "key": ["/a", "/b\n", "/é", "/a"]})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=1)
    return tmp_path


RECORDS = [("1", "/a"), ("2", "/b\n"), ("1", "/é"), ("2", "/a")]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_each_format_gives_the_same_records(folder: Path, name: str) -> None:
    counters = run(plan_records([str(folder / name)], SOURCE), RECORDS)
    assert counters["rows"] == 4
    assert counters["bytes"] <= (folder / name).stat().st_size
    assert "rejected" not in counters


def test_worker_processes_read_all_of_it(folder: Path) -> None:
    plan = plan_records([str(folder / "a.*")], Source(ids=("user", "key"), item_bytes=1))
    assert len(plan.items) > 6
    assert run(plan, RECORDS * 3, workers=2)["rows"] == 12


def test_what_nobody_has_begun_can_be_given_away(tmp_path: Path) -> None:
    """A range of lines is split while it is read: each record is read once, and the sizes are those of the parts."""
    lines = [json.dumps({"user": i, "key": f"/{i % 7}"}) + "\n" for i in range(200)]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    plan = plan_records([str(tmp_path / "a.jsonl")], Source(ids=("user", "key"), block_bytes=100))
    (item,) = plan.items
    reader = _ReadItem(plan, counters=False)
    reader.setup()
    whole = reader.initial_restriction(item)
    assert whole.stop > 10
    assert reader.restriction_size(item, whole) == item.size == plan.bytes
    tracker = reader.create_tracker(whole)
    found = reader.process(item, tracker)
    rows = to_pairs(next(found))
    primary, rest = tracker.try_split(0.5)
    assert reader.restriction_size(item, primary) + reader.restriction_size(item, rest) == item.size
    tallies = []
    for outputs in (found, reader.process(item, reader.create_tracker(rest))):
        for output in outputs:
            if isinstance(output, beam.pvalue.TaggedOutput):
                tallies.append(output.value.rows)
            else:
                rows += to_pairs(output)
    tracker.check_done()
    assert sorted(rows) == sorted((str(i), f"/{i % 7}") for i in range(200))
    assert sum(tallies) == 200
    assert min(tallies) > 0


def test_what_cannot_be_cut_is_one_part(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"user,key\n" + b"1,/a\n" * 99))
    pq.write_table(pa.table({"user": [1] * 99, "key": ["/a"] * 99}), tmp_path / "a.parquet")
    plan = plan_records([str(tmp_path)], Source(ids=("user", "key"), block_bytes=100))
    reader = _ReadItem(plan, counters=False)
    assert [reader.initial_restriction(item).stop for item in plan.items] == [1, 1]


def test_rejected_records_are_counted_and_written_where_asked(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"user,key\n1,/a\n,/b\n2\n3,\xff\n")
    plan = plan_records([str(tmp_path / "a.csv")], Source(ids=("user", "key"), keep_rejected=True))
    options = pipeline_options()
    pipeline = new_pipeline(options)
    read = pipeline | ReadRecords(plan, Limits(Fraction(3, 4)), counters=True)
    assert_that(read["records"] | beam.FlatMap(to_pairs), equal_to([("1", "/a")]))
    read["rejected"] | WriteRejectedRecords(str(tmp_path / "rejected.jsonl"))
    counters = read_counters(run_pipeline(pipeline, options, title="test", quiet=True))
    assert counters["rejected"] == 3
    assert counters["rejected: 1 fields instead of 2"] == counters["rejected: user is null"] == 1
    written = [json.loads(line) for line in (tmp_path / "rejected.jsonl").read_text().splitlines()]
    assert sorted(row["record"] for row in written) == ["2", "3,\\xff", '{"user": null, "key": "/b"}']
    assert (tmp_path / "rejected.jsonl").stat().st_mode & 0o777 == 0o600  # they are records


def test_too_many_rejected_records_fail_the_pipeline_with_a_place(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"user": 1, "key": "/a"}\n' * 15 + b"{}\n")
    plan = plan_records([str(tmp_path / "a.jsonl")], SOURCE)
    with pytest.raises(
        InputError, match=r"a\.jsonl, line 16 \(byte 375\): user is null; more than input\.max_rejected"
    ):
        run(plan, [("1", "/a")] * 15)
    (tmp_path / "b.csv").write_text("user,key\n")
    with pytest.raises(InputError, match=r"b\.csv: no records; set input\.min_rows to 0"):
        run(plan_records([str(tmp_path / "b.csv")], SOURCE), [])


def test_a_directory_means_its_files_but_not_the_hidden_ones(tmp_path: Path) -> None:
    (tmp_path / "day").mkdir()
    for name in ("part-0.csv", "_SUCCESS", ".part-0.csv.crc"):
        (tmp_path / "day" / name).write_text("user,key\n1,/a\n")
    for path in (str(tmp_path), f"file://{tmp_path}/day/", f"{tmp_path}/**"):
        assert [Path(file.path).name for file in match_files([path])] == ["part-0.csv"]
    assert len(match_files([f"{tmp_path}/day/_*"])) == 1


def test_folders_that_hold_no_data_are_left_out(tmp_path: Path) -> None:
    for folder in ("dt=1/_hour=2", "_temporary/dt=1", ".staging", "dt=1/_tmp"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.csv").write_text("user,key\n1,/a\n")
    for path in (str(tmp_path), f"{tmp_path}/**", f"{tmp_path}/*/*/*.csv", f"{tmp_path}/dt=1"):
        assert [Path(file.path).parent.name for file in match_files([path])] == ["_hour=2"]
    assert len(match_files([f"{tmp_path}/_temporary/dt=1"])) == 1  # as stated


def test_no_match_and_unknown_file_systems(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"input.path '.*none\*' matches no file; check the pattern"):
        match_files([str(tmp_path / "none*")])
    with pytest.raises(InputError, match=r"no file system for nope://"):
        match_files(["nope://bucket/a.csv"])


def test_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.csv: cannot be opened"):
        open_file(str(tmp_path / "gone.csv"))


class MemoryFileSystem(LocalFileSystem):
    """A remote file system as Beam sees one: a scheme of its own, files only through its streams."""

    opened: list[str] = []
    root = ""

    @classmethod
    def scheme(cls) -> str:
        return "mem"

    def _local(self, path: str) -> str:
        return self.root + path.removeprefix("mem:/")

    def match(self, patterns: Any, limits: Any = None) -> Any:
        found = super().match([self._local(pattern) for pattern in patterns], limits)
        for result in found:
            for metadata in result.metadata_list:
                metadata.path = "mem:/" + metadata.path.removeprefix(self.root)
        return found

    def open(self, path: str, *args: Any, **options: Any) -> Any:
        self.opened.append(path)
        return super().open(self._local(path), *args, **options)


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl"])
def test_remote_paths_go_through_beams_file_systems(folder: Path, name: str) -> None:
    MemoryFileSystem.root = str(folder)
    MemoryFileSystem.opened.clear()
    plan = plan_records([f"mem://{name[0]}*.{name.split('.')[1]}"], SOURCE)
    assert plan.files[0].path == f"mem://{name}"
    run(plan, RECORDS)
    assert f"mem://{name}" in MemoryFileSystem.opened


def test_damage_found_by_a_worker_is_an_input_error(folder: Path) -> None:
    file = folder / "a.parquet"
    plan = plan_records([str(file)], SOURCE)
    file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(InputError, match=r"a\.parquet: damaged Parquet data"):
        run(plan, RECORDS)


def test_display_data_shows_columns_and_no_counts(folder: Path) -> None:
    shown = ReadRecords(plan_records([str(folder / "a.parquet")], SOURCE)).display_data()
    assert shown == {"columns": "user, key", "formats": "parquet"}
