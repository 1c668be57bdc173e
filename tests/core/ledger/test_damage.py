"""A ledger that is cut, read-only, of a newer version, or on a full disk: a clear error, nothing lost."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hushgram.accounting import Budget, Event
from hushgram.errors import LedgerError
from hushgram.ledger import Ledger, Owner, Request, backup, store

FORK = multiprocessing.get_context("fork")
HALF = [Event("alp", "0.5")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger file with a committed release and one under way."""
    path = tmp_path / "ledger.db"
    with Ledger.create(f"sqlite:///{path}") as ledger:
        ledger.add_dataset("views", Budget(10))
        for name in ("monday", "tuesday"):
            reservation = ledger.reserve(Request("views", name, HALF), Owner.this())
            ledger.start(reservation)
            ledger.prepare(reservation, "d" * 64)
        ledger.commit(reservation)
    return path


def attempt(path: Path) -> None:
    with Ledger(f"sqlite:///{path}") as ledger:
        ledger.reserve(Request("views", "wednesday", HALF), Owner.this())


def names(path: Path) -> list[str]:
    with Ledger(f"sqlite:///{path}") as ledger:
        return [release.name for release in ledger.history("views")]


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.75, 0.99])
def test_truncated(path: Path, share: float) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    left = path.read_bytes()
    with pytest.raises(LedgerError, match=r"(is empty|damaged).*(backup)"):
        attempt(path)
    with pytest.raises(LedgerError), Ledger.create(f"sqlite:///{path}") as ledger:
        ledger.add_dataset("views", Budget(10))
    assert path.read_bytes() == left  # what is left may still help to repair it
    path.write_bytes(whole)
    attempt(path)


def test_every_page_boundary_is_noticed(path: Path) -> None:
    whole = path.read_bytes()
    for size in range(4096, len(whole), 4096):
        path.write_bytes(whole[:size])
        with pytest.raises(LedgerError, match="damaged"):
            attempt(path)


def test_not_a_ledger_at_all(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("dear diary")
    with pytest.raises(LedgerError, match="not a ledger"):
        attempt(other)
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger.create(f"sqlite:///{other}")
    assert other.read_text() == "dear diary"


def test_another_programs_database_is_not_taken_over(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE datasets (x)")
    with pytest.raises(LedgerError, match="contains no ledger"):
        attempt(tmp_path / "other.db")


def test_missing_file_or_folder(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="hushgram ledger init"):
        attempt(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(LedgerError, match="cannot be created"):
        Ledger.create(f"sqlite:///{tmp_path}/no/such/folder.db")


@pytest.mark.parametrize(
    "url", ["ledger.db", "mysql://host/db", "sqlite://", "sqlite:///:memory:", "sqlite:///a%00b"]
)
def test_wrong_urls(url: str) -> None:
    with pytest.raises(LedgerError, match="sqlite:///"):
        Ledger(url)


def test_server_that_is_not_there_and_password_not_shown() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerError, match="cannot be reached") as caught:
        Ledger("postgresql://me:secret@127.0.0.1:1/db")
    assert "secret" not in str(caught.value)


def test_newer_version(url: str) -> None:
    with Ledger.create(url) as ledger:
        ledger.add_dataset("views", Budget(1))
        with ledger.store.write() as connection:
            values = {"version": store.VERSION + 1, "applied": store.now()}
            connection.execute(store.schema_version.insert().values(**values))
    with pytest.raises(LedgerError, match=rf"version {store.VERSION + 1}.*upgrade hushgram"):
        Ledger(url)
    with pytest.raises(LedgerError, match="upgrade hushgram"):
        Ledger.create(url)


def test_older_version(url: str) -> None:
    with Ledger.create(url) as ledger, ledger.store.write() as connection:
        connection.execute(store.schema_version.update().values(version=store.VERSION - 1))
    for opened in (Ledger, Ledger.create):
        with pytest.raises(LedgerError, match=rf"has version {store.VERSION - 1}, .*older ones are not read"):
            opened(url)


def in_child(path: Path, limit: Callable[[], None]) -> str:
    """Tries a release in a process of its own, under a limit; returns the error."""
    results = FORK.SimpleQueue()

    def child() -> None:
        limit()
        try:
            attempt(path)
        except LedgerError as problem:
            results.put(str(problem))
        else:
            results.put("no error")

    process = FORK.Process(target=child)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    return str(results.get())


def test_read_only(path: Path) -> None:
    folder = Path(tempfile.mkdtemp())  # those of pytest are closed to other users
    copy = folder / "ledger.db"
    copy.write_bytes(path.read_bytes())
    copy.chmod(0o444)
    folder.chmod(0o555)

    def limit() -> None:
        if os.geteuid() == 0:  # root may write everywhere
            os.setuid(65534)

    try:
        assert "is read-only" in in_child(copy, limit)
        assert names(copy) == ["monday", "tuesday"]
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_disk_that_takes_no_more(path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))

    assert "cannot be written" in in_child(path, limit)
    assert names(path) == ["monday", "tuesday"]
    attempt(path)  # with space again, the same request is as good as ever


def test_full_database(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own "database or disk is full", at the first page that the file would need."""
    before = store._set_up_sqlite

    def full(connection: object, record: object) -> None:
        before(connection, record)  # type: ignore[arg-type]
        connection.execute("PRAGMA max_page_count = 1")  # type: ignore[attr-defined]

    monkeypatch.setattr(store, "_set_up_sqlite", full)
    wide = Request("views", "wednesday", HALF, parameters={"x": "y" * 20_000})
    with pytest.raises(LedgerError, match="disk is full"), Ledger(f"sqlite:///{path}") as ledger:
        ledger.reserve(wide, Owner.this())
    monkeypatch.undo()
    assert names(path) == ["monday", "tuesday"]


def test_full_disk_during_backup_leaves_no_half_copy(path: Path, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="cannot be"), Ledger(f"sqlite:///{path}") as ledger:
        backup(ledger, str(tmp_path / "no" / "folder.db"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ledger.db", "ledger.db.anchor"]


def test_erased_keys_leave_no_trace_in_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger(f"sqlite:///{path}") as ledger, ledger.store.read() as connection:
        secret = connection.exec_driver_sql("SELECT secret FROM releases WHERE name = 'monday'").scalar_one()
    key = secret.partition(":")[2].encode()
    assert key in path.read_bytes()
    monkeypatch.setattr(Owner, "is_dead", lambda self: True)
    with Ledger(f"sqlite:///{path}") as ledger:
        ledger.abandon("monday")
    assert key not in path.read_bytes()
    assert json.dumps(names(path)) == '["monday", "tuesday"]'


def test_file_is_for_its_owner_alone(path: Path) -> None:
    assert path.stat().st_mode & 0o077 == 0
