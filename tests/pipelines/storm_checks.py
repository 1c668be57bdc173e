"""A small storm of SIGKILLs, for `test_ledger_storm`; the large one: ``python -m tests.pipelines.storm FOLDER 200``."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.pipelines import storm


def test_killed_releases_resume_to_the_same_bytes(tmp_path: Path) -> None:
    report = storm.storm(tmp_path, runs=5, seed=3)
    assert report.faults == []
    assert report.killed_in.total() == 5


def test_the_storm_sees_what_is_wrong(tmp_path: Path) -> None:
    """Each thing that a bad publisher could do to a good sketch is reported."""
    storm._prepare(tmp_path, ["a", "b"])
    assert storm._release(tmp_path, "a") == 0
    assert storm._release(tmp_path, "b") == 0
    calm = storm._files(tmp_path, "a")
    assert storm._check(tmp_path, "b", 0, calm) == []
    assert "ended with 1" in storm._check(tmp_path, "b", 1, calm)[0]
    sketch = storm._sketch(tmp_path, "b")
    (sketch.parent / ".daily.sketch.hushgram-0.1").mkdir()
    assert "is left" in storm._check(tmp_path, "b", 0, calm)[0]
    (sketch.parent / ".daily.sketch.hushgram-0.1").rmdir()
    bits = next(sketch.glob("blocks-*.bin"))
    bits.write_bytes(bytes([bits.read_bytes()[0] ^ 1]) + bits.read_bytes()[1:])
    assert [fault.partition(": ")[2] for fault in storm._check(tmp_path, "b", 0, calm)] == [
        "the sketch differs from that of the uninterrupted run",
        "the sketch does not verify",
    ]
    shutil.rmtree(sketch)
    assert len(storm._check(tmp_path, "b", 0, calm)) == 2


def test_a_killed_backfill_charges_each_day_once(tmp_path: Path) -> None:
    """The bar is 30 days and 20 kills: ``python -m tests.pipelines.storm FOLDER backfill 30 20``."""
    report = storm.backfill_storm(tmp_path, days=3, kills=4, seed=5)
    assert report.faults == []
