"""`hushgram clean`: what is listed, what is removed, and what never is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from hushgram.accounting import Budget, Event
from hushgram.ledger import Ledger, Owner, Request
from hushgram.pipelines.cli import cli
from hushgram.pipelines.run.outputs import label_of
from hushgram.publishing import work_name

REALM = Owner.this().mark().partition("-")[0]
DEAD, ELSEWHERE, ENGINE = f"{REALM}-99999999-1-x", "0123-7-1-x", Owner.this().mark(engine=True)
UNTRACKED = label_of("release without a ledger")


def leave(folder: Path, label: str, mark: str, days: float = 0) -> str:
    work = folder / work_name("a.sketch", label, mark)
    work.mkdir()
    (work / "bits-00000.bin").write_bytes(b"1234")
    for path in (work / "bits-00000.bin", work):
        os.utime(path, (path.stat().st_mtime - days * 86400,) * 2)
    return str(work)


def clean(folder: Path, *options: str) -> dict[str, str]:
    done = CliRunner().invoke(cli, ["clean", str(folder), "--format", "json", *options])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["path"]: row["action"] for row in rows}


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUSHGRAM_LEDGER", raising=False)
    url = f"sqlite:///{tmp_path}/ledger.db"
    with Ledger.create(url) as ledger:
        ledger.add_dataset("views", Budget(9))
        for name in ("open", "gone"):
            taken = ledger.reserve(
                Request("views", name, [Event("threshold", "1")], target=name), Owner.this()
            )
            ledger.start(taken)
            ledger.release_lease(taken)
        ledger.abandon("gone")
    return url


def test_only_what_is_dead_or_old_is_removed(tmp_path: Path, ledger: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "a.sketch").mkdir()  # a result
    dead, live = leave(folder, UNTRACKED, DEAD), leave(folder, UNTRACKED, Owner.this().mark(), 99)
    other, old = leave(folder, UNTRACKED, ELSEWHERE), leave(folder, UNTRACKED, "4567-7-1-x", 8)
    expected = {
        dead: "remove", live: "keep: its process is running", other: "keep: changed within 7 days", old: "remove",
    }  # fmt: skip
    assert clean(folder) == expected
    assert all(os.path.exists(path) for path in expected)  # a preview
    removed = {path for path, action in clean(folder, "--remove").items() if action == "removed"}
    assert removed == {dead, old}
    assert sorted(map(str, folder.iterdir())) == sorted([live, other, str(folder / "a.sketch")])


def test_what_a_release_of_the_ledger_needs_is_kept(tmp_path: Path, ledger: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    needed = leave(folder, label_of("views\nopen"), ENGINE, 99)
    abandoned = leave(folder, label_of("views\ngone"), ENGINE, 99)
    unknown = leave(folder, label_of("clicks\nopen"), DEAD, 99)
    assert set(clean(folder, "--remove").values()) == {
        "keep: its release is not in this ledger; add --ledger"  # none was named
    }
    assert clean(folder, "--remove", "--ledger", ledger) == {
        needed: "keep: its release is not finished; run it again, or abandon it",
        abandoned: "removed",
        unknown: "keep: its release is not in this ledger; add --ledger",
    }
    assert os.path.exists(needed)
    assert not os.path.exists(abandoned)


def test_links_and_other_files_are_left_alone(tmp_path: Path, ledger: str) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / work_name("a", UNTRACKED, DEAD)).symlink_to(tmp_path / "precious")
    (tmp_path / "out" / ".hidden").mkdir()
    assert clean(tmp_path / "out", "--remove") == {}
    assert (tmp_path / "precious").exists()
    assert "nothing to clean" in CliRunner().invoke(cli, ["clean", str(tmp_path / "out")]).output
