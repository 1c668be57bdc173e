"""A ledger on SQLite, and one on a PostgreSQL server that the tests start for themselves."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def _programs() -> Path | None:
    """The folder with initdb and pg_ctl, newest version first."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    found += [Path(name) for name in [shutil.which("initdb")] if name]
    return found[0].resolve().parent if found else None


def _account() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: then as the user postgres, or nobody."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    return {}


def _missing(reason: str) -> None:
    if os.environ.get("HUSHGRAM_REQUIRE_ENGINES") == "1":
        pytest.fail(f"a PostgreSQL server is required but {reason}")
    pytest.skip(f"{reason}; apt-get install postgresql")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a fresh PostgreSQL server, without a database name."""
    pytest.importorskip("psycopg")
    programs = _programs()
    if programs is None:
        _missing("no PostgreSQL server is installed")
    assert programs is not None
    account = _account()
    folder = Path(tempfile.mkdtemp(prefix="hushgram-pg-"))
    if account:
        os.chown(folder, account["user"], account["group"])
    data = folder / "data"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    run: dict[str, Any] = {"cwd": "/", **account}
    try:
        initdb = [programs / "initdb", "-D", data, "-U", "hushgram", "-A", "trust", "-E", "UTF8"]
        subprocess.run([*initdb, "--no-sync"], check=True, capture_output=True, timeout=120, **run)
        options = ["-p", str(port), "-k", folder, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
        with open(folder / "log", "wb") as log:
            server = subprocess.Popen(
                [programs / "postgres", "-D", data, *options],
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_us,
                **run,
            )
    except (subprocess.SubprocessError, OSError) as problem:
        shutil.rmtree(folder, ignore_errors=True)
        _missing(f"it did not start ({problem})")
    url = f"postgresql://hushgram@127.0.0.1:{port}"
    try:
        if not _answers(url, server):
            _missing(f"it did not start: {(folder / 'log').read_text()[-300:]}")
        yield url
    finally:
        server.send_signal(signal.SIGQUIT)  # immediate shutdown
        server.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def _die_with_us() -> None:
    """The kernel ends the server if the test process is killed (Linux; elsewhere it would stay)."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(1, signal.SIGQUIT)  # PR_SET_PDEATHSIG


def _answers(url: str, server: subprocess.Popen[bytes]) -> bool:
    import psycopg

    for _ in range(300):
        try:
            psycopg.connect(f"{url}/postgres", connect_timeout=5).close()
            return True
        except psycopg.OperationalError:
            if server.poll() is not None:
                return False
            time.sleep(0.2)
    return False


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A place for a ledger file."""
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """A fresh schema on the server (a database would cost a second each)."""
    import psycopg

    name = f"ledger_{os.urandom(6).hex()}"
    with psycopg.connect(f"{postgres_server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{postgres_server}/postgres?options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.engine)])
def url(request: pytest.FixtureRequest) -> str:
    """A place for a ledger on each of the two databases."""
    name = "sqlite_url" if request.param == "sqlite" else "postgres_url"
    return str(request.getfixturevalue(name))
