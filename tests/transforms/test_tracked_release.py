"""A ledger in a program's own pipeline and in `hg.release`: charged once, resumed, committed with the rename."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import pytest

import hushgram as hg
from hushgram.accounting import Budget
from hushgram.errors import BudgetExceeded, LedgerError, OutputError, ParameterError
from hushgram.ledger import Ledger
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


def test_a_pipeline_that_failed_is_resumed_without_a_second_charge(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "monday.sketch", TrackedRelease.key
    opened: list[TrackedRelease] = []

    def key(self: TrackedRelease) -> hg.ReleaseKey:
        opened.append(self)
        return real(self)

    monkeypatch.setattr(TrackedRelease, "key", key)

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
    with pytest.raises(
        LedgerError, match="is being run by"
    ):  # by this process, for all that the ledger knows
        in_pipeline(url, path)
    (tracked,) = opened
    with Ledger(url) as ledger:
        ledger.release_lease(tracked.reservation)
    in_pipeline(url, path)
    assert statuses(url) == [("monday", "committed", True)]
    in_pipeline(url, path)  # reads nothing
    assert hg.Sketch.open(path).verify()


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
