"""Wrapped keys, and who is alive."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hushgram.accounting import Budget, Event
from hushgram.errors import LedgerError
from hushgram.ledger import Ledger, Owner, Request
from hushgram.ledger.keys import unwrap, wrap
from hushgram.noise.entropy import ReleaseKey

KEY = bytes(range(32))


@pytest.fixture(autouse=True)
def _no_wrapping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUSHGRAM_WRAP_KEY", raising=False)
    monkeypatch.delenv("HUSHGRAM_KEY_FILE", raising=False)


def test_plain_and_wrapped_keys_come_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert unwrap(wrap(KEY, "a"), "a") == KEY
    monkeypatch.setenv("HUSHGRAM_WRAP_KEY", "ab" * 32)
    stored = wrap(KEY, "a")
    assert KEY.hex() not in stored
    assert stored != wrap(KEY, "a")
    assert unwrap(stored, "a") == KEY
    monkeypatch.delenv("HUSHGRAM_WRAP_KEY")
    with pytest.raises(LedgerError, match="HUSHGRAM_KEY_FILE"):
        unwrap(stored, "a")
    for content in (bytes.fromhex("ab" * 32), b"ab" * 32 + b"\n"):
        (tmp_path / "key").write_bytes(content)
        monkeypatch.setenv("HUSHGRAM_KEY_FILE", str(tmp_path / "key"))
        assert unwrap(stored, "a") == KEY


def test_a_wrapped_key_opens_only_where_it_belongs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSHGRAM_WRAP_KEY", "ab" * 32)
    stored = wrap(KEY, "monday")
    with pytest.raises(LedgerError, match="differs"):
        unwrap(stored, "tuesday")
    with pytest.raises(LedgerError, match="differs"):
        unwrap(stored[:-2] + ("00" if stored[-2:] != "00" else "11"), "monday")
    monkeypatch.setenv("HUSHGRAM_WRAP_KEY", "cd" * 32)
    with pytest.raises(LedgerError, match="differs"):
        unwrap(stored, "monday")


@pytest.mark.parametrize("text", ["xyz", "ab" * 31, "ab" * 33])
def test_wrong_wrapping_keys(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("HUSHGRAM_WRAP_KEY", text)
    with pytest.raises(LedgerError, match="64 hexadecimal"):
        wrap(KEY, "a")


def test_ledger_stores_the_wrapped_form(monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> None:
    monkeypatch.setenv("HUSHGRAM_WRAP_KEY", "ab" * 32)
    with Ledger.create(sqlite_url) as ledger:
        ledger.add_dataset("views", Budget(1))
        reservation = ledger.reserve(Request("views", "monday", [Event("alp", 1)]), Owner.this())
        key = ledger.start(reservation)
        assert isinstance(key, ReleaseKey)
    content = Path(sqlite_url.removeprefix("sqlite:///")).read_bytes()
    assert key.hex().encode() not in content
    assert b"aesgcm:" in content


def test_owner_knows_the_living_and_the_dead() -> None:
    me = Owner.this()
    assert not me.is_dead()
    assert Owner.read(me.write()) == me
    assert not Owner.is_dead_mark(me.mark())
    code = "from hushgram.processes import Owner; o = Owner.this(); print(o.write()); print(o.mark())"
    text, mark = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split("\n")[:2]
    gone = Owner.read(text)
    assert gone.pid != os.getpid()
    assert gone.is_dead()
    assert Owner.is_dead_mark(mark)
    assert not replace(gone, realm="another machine").is_dead()  # nothing is known about that one
    assert replace(me, started="1").is_dead()  # the id was used again by this process
    assert not Owner.is_dead_mark("something else")


def test_a_wrapping_key_from_a_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HUSHGRAM_WRAP_KEY", "HUSHGRAM_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    key, runs = "ab" * 32, tmp_path / "runs"
    program = tmp_path / "kms"
    program.write_text(f"#!/bin/sh\necho x >> '{runs}'\nprintf '%s\\n' {key}\n")
    program.chmod(0o700)
    monkeypatch.setenv("HUSHGRAM_KEY_COMMAND", f"{shlex.quote(str(program))} decrypt --key 'my key'")
    text = wrap(bytes(32), "a context")
    assert text.startswith("aesgcm:")
    assert unwrap(text, "a context") == bytes(32)
    assert runs.read_text() == "x\n"  # once per process
    monkeypatch.delenv("HUSHGRAM_KEY_COMMAND")
    monkeypatch.setenv("HUSHGRAM_WRAP_KEY", key)
    assert unwrap(text, "a context") == bytes(32)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo secret; echo 'access denied' >&2; exit 3", "failed with exit code 3: access denied"),
        ("echo secret", "must contain 32 bytes or 64 hexadecimal digits"),
        (None, "cannot be run: No such file or directory"),
    ],
)
def test_a_command_that_gives_no_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str | None, said: str
) -> None:
    for name in ("HUSHGRAM_WRAP_KEY", "HUSHGRAM_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    program = tmp_path / "kms"
    if script is not None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)
    monkeypatch.setenv("HUSHGRAM_KEY_COMMAND", shlex.quote(str(program)))
    with pytest.raises(LedgerError, match=said) as refused:
        wrap(bytes(32), "a context")
    assert "secret" not in str(refused.value).replace(str(tmp_path), "")
