"""A ledger in a program's own pipeline and in `hg.release`: charged once, resumed, committed with the rename."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from pathlib import Path

import apache_beam as beam
import pytest

import hushgram as hg
from hushgram.accounting import Budget
from hushgram.errors import BudgetExceeded, LedgerError, OutputError, ParameterError
from hushgram.ledger import Ledger, Owner, Reservation
from hushgram.ledger import ledger as module
from hushgram.ledger.tracking import TrackedRelease
from hushgram.transforms.release_sparse_histogram import ReleaseSparseHistogram

USERS = [f"user {i % 40}" for i in range(300)]
KEYS = [f"/{i % 7}" for i in range(300)]
PARAMS = hg.ReleaseParams(epsilon="1/2", max_contributions=3)


@pytest.fixture
def url(tmp_path: Path) -> str:
    found = f"sqlite:///{tmp_path}/ledger.db"
    with Ledger.create(found) as ledger:
        ledger.add_dataset("views", Budget(1))
    return found


def statuses(url: str) -> list[tuple[str, str, bool]]:
    with Ledger(url) as ledger:
        return [(row.name, row.status, row.charged) for row in ledger.history("views")]


def in_memory(url: str, path: Path, **changes: object) -> hg.Sketch:
    arguments: dict[str, object] = {"name": "monday", "dataset": "views", "ledger": url, **changes}
    return hg.release(USERS, KEYS, PARAMS, path, **arguments)  # type: ignore[arg-type]


def in_pipeline(url: str, path: Path, name: str = "monday", rows: object = None) -> None:
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        records = pipeline | beam.Create(rows or list(zip(USERS, KEYS, strict=True)))
        _ = records | ReleaseSparseHistogram(
            PARAMS, user="user", key="url", path=path, name=name, dataset="views", ledger=url
        )


def test_in_memory_is_charged_once(url: str, tmp_path: Path) -> None:
    path = tmp_path / "out" / "monday.sketch"
    first = in_memory(url, path)
    assert statuses(url) == [("monday", "committed", True)]
    again = in_memory(url, path)  # released before: nothing is drawn or charged
    assert again.estimate(["/1"]) == first.estimate(["/1"])
    assert statuses(url) == [("monday", "committed", True)]
    assert [file.name for file in path.parent.iterdir()] == ["monday.sketch"]
    in_memory(url, tmp_path / "tuesday", name="tuesday")
    with pytest.raises(BudgetExceeded):
        in_memory(url, tmp_path / "wednesday", name="wednesday")


def test_pipeline_and_library_write_the_same_bytes(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "new_secret", lambda: b"\7" * 32)
    in_memory(url, tmp_path / "a" / "x.sketch", name="one")
    in_pipeline(url, tmp_path / "b" / "x.sketch", name="two")
    assert [status for _, status, _ in statuses(url)] == ["committed", "committed"]
    one, two = (
        {file.name: file.read_bytes() for file in (tmp_path / place / "x.sketch").iterdir()} for place in "ab"
    )
    del one["manifest.json"], two["manifest.json"]  # which holds the name of the release
    assert one == two


def elsewhere(url: str) -> None:
    """What another process can do about the release of this one: nothing while its lease is renewed."""
    with Ledger(url) as ledger:
        ledger.abandon("monday")


def test_a_pipeline_that_failed_is_resumed_without_a_second_charge(url: str, tmp_path: Path) -> None:
    path = tmp_path / "monday.sketch"

    def broken(row: tuple[str, str]) -> tuple[str, str]:
        raise ValueError("a worker failed")

    pipeline = beam.Pipeline(runner="FnApiRunner")
    release = ReleaseSparseHistogram(
        PARAMS, user="user", key="url", path=path, name="monday", dataset="views", ledger=url
    )
    _ = pipeline | beam.Create([("a", "/1")]) | beam.Map(broken) | release
    with pytest.raises(Exception, match="a worker failed"):
        pipeline.run().wait_until_finish()
    assert statuses(url) == [("monday", "running", True)]
    with pytest.raises(LedgerError, match="is being run by"):  # for another process this one is still at work
        elsewhere(url)
    in_pipeline(url, path)
    assert statuses(url) == [("monday", "committed", True)]
    in_pipeline(url, path)  # reads nothing
    assert hg.Sketch.open(path).verify()


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> float:
    """The seconds of a lease; and as on another machine, nobody can see whether its process lives."""
    monkeypatch.setattr(module, "LEASE_SECONDS", 2.0)
    monkeypatch.setattr(Owner, "is_dead", lambda self: False)
    return 2.0


def applied(url: str, path: Path) -> beam.Pipeline:
    """Return a pipeline that holds the release and does not run yet."""
    pipeline = beam.Pipeline(runner="FnApiRunner")
    _ = (
        pipeline
        | beam.Create(list(zip(USERS, KEYS, strict=True)))
        | ReleaseSparseHistogram(
            PARAMS, user="user", key="url", path=path, name="monday", dataset="views", ledger=url
        )
    )
    return pipeline


def test_the_lease_of_a_pipeline_is_renewed_while_its_process_lives(
    url: str, tmp_path: Path, short_lease: float
) -> None:
    pipeline = applied(url, tmp_path / "monday.sketch")
    time.sleep(1.5 * short_lease)
    with pytest.raises(LedgerError, match="is being run by"):
        elsewhere(url)
    pipeline.run().wait_until_finish()
    assert statuses(url) == [("monday", "committed", True)]


@pytest.mark.long
def test_the_lease_of_a_call_is_renewed_until_it_returns(
    url: str, tmp_path: Path, short_lease: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = TrackedRelease.publish

    def slow(self: TrackedRelease, work: Path) -> None:
        time.sleep(1.5 * short_lease)
        with pytest.raises(LedgerError, match="is being run by"):
            elsewhere(url)
        real(self, work)

    monkeypatch.setattr(TrackedRelease, "publish", slow)
    before = threading.active_count()
    in_memory(url, tmp_path / "monday.sketch")
    assert statuses(url) == [("monday", "committed", True)]
    time.sleep(short_lease / 4)
    assert threading.active_count() <= before


@pytest.mark.long
def test_the_lease_of_a_pipeline_runs_out_when_its_process_dies(
    url: str, tmp_path: Path, short_lease: float
) -> None:
    path = tmp_path / "monday.sketch"
    child = multiprocessing.get_context("fork").Process(target=lambda: (applied(url, path), os._exit(0)))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert statuses(url) == [("monday", "running", True)]
    with pytest.raises(LedgerError, match="is being run by"):
        in_pipeline(url, path)
    time.sleep(1.1 * short_lease)
    in_pipeline(url, path)
    assert statuses(url) == [("monday", "committed", True)]


def own(ledger: Ledger) -> Reservation:
    """Return the reservation that this process holds."""
    (row,) = ledger.history("views")
    return Reservation(row, row.status, Owner.read(row.owner or "").token)


def hidden(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if ".hushgram-" in file.name]


def test_a_failed_attempt_leaves_no_sketch_once_the_release_goes_on(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt had a hidden directory of its own, with a complete sketch under the key of the release."""
    path = tmp_path / "out" / "monday.sketch"

    def fails(*_: object) -> None:
        raise LedgerError("not reached")

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "prepare", fails)
            with pytest.raises(Exception, match="not reached"):
                in_pipeline(url, path)
    assert len(hidden(path.parent)) == 1
    in_pipeline(url, path)
    assert [file.name for file in path.parent.iterdir()] == ["monday.sketch"]


def test_an_attempt_that_may_not_publish_removes_what_it_wrote(url: str, tmp_path: Path) -> None:
    """Taken over by another process, or other bytes under the same key: both directories would compose."""
    path = tmp_path / "out" / "monday.sketch"
    pipeline = applied(url, path)
    with Ledger(url) as ledger:
        ledger.release_lease(own(ledger))  # as if another process had taken it over
    with pytest.raises(Exception, match="taken over"):
        pipeline.run().wait_until_finish()
    assert hidden(path.parent) == []
    pipeline = applied(url, path)
    with Ledger(url) as ledger:
        ledger.prepare(own(ledger), "d" * 64)
    with pytest.raises(Exception, match="other bytes"):
        pipeline.run().wait_until_finish()
    assert hidden(path.parent) == []


def test_what_was_renamed_and_not_committed_is_committed(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "monday.sketch"

    def died(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", died)
        with pytest.raises(KeyboardInterrupt):
            in_memory(url, path)
    assert statuses(url) == [("monday", "prepared", True)]
    in_memory(url, path)
    assert statuses(url) == [("monday", "committed", True)]


def test_an_error_before_the_key_refunds(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def died(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TrackedRelease, "key", died)
        with pytest.raises(KeyboardInterrupt):
            in_memory(url, tmp_path / "monday.sketch")
    assert statuses(url) == [("monday", "abandoned", False)]


def test_wrong_arguments_are_one_line_and_charge_nothing(url: str, tmp_path: Path) -> None:
    for changes, said in (
        ({"name": ""}, "needs name"),
        ({"dataset": None}, "ledger needs dataset"),
        ({"path": None}, "needs path"),
    ):
        with pytest.raises(ParameterError, match=said):
            in_memory(url, **{"path": tmp_path / "x", **changes})
    (tmp_path / "taken").mkdir()
    with pytest.raises(OutputError, match="exists already"):
        in_memory(url, tmp_path / "taken")
    assert statuses(url) == []
    in_memory(url, tmp_path / "x")
    (tmp_path / "x" / "manifest.json").write_text("{}")
    with pytest.raises(OutputError, match="is not what was released"):
        in_memory(url, tmp_path / "x")
