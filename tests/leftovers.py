"""Run the tests, and fail if they leave anything behind: a process, or a file outside of the clone.

    python -m tests.leftovers -n 2 tests/core      arguments go to pytest

The tests get a temporary directory of their own, which is removed as a whole, and a home, which must stay empty: what
is there is theirs, whoever else works on the machine. What a killed or detached process started becomes a child of
this one; whatever still runs at the end was forgotten. In CI (HUSHGRAM_REQUIRE_ENGINES=1), where nobody else works, the
shared temporary directories and the real home are compared, too, but not after the tests of engines. Files of failed
tests are kept, and their place is printed.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["choose_temporary_directory", "run"]

_MEMORY, _ROOM = "/dev/shm", 6 << 30
_SHARED = ("/tmp", "/var/tmp", "/dev/shm", "~", "~/.cache", "~/.config", "~/.local/share")
_SET_CHILD_SUBREAPER = 36
_GRACE_SECONDS = 10.0  # for what is about to end
_OTHERS_SECONDS = 60.0  # for files of other programs, which end meanwhile
_KEPT = "pytest-of-"  # what pytest keeps of failed tests
_DOWNLOADS = {"HUSHGRAM_ENGINES_CACHE": "~/.cache/hushgram-engines", "PIP_CACHE_DIR": "~/.cache/pip"}
# Kept on purpose, also by Maven, Beam, Go and Rust.
_DOWNLOADED = {".m2", ".cache", ".apache_beam", ".rustup", ".cargo", "go", "hushgram-engines", "pip"}
_ENGINES = "tests/engines"  # whose virtual machines unpack libraries into the shared directories


def choose_temporary_directory() -> None:
    """Choose the place of temporary files, also for processes that tests start; TMPDIR names another.

    Ledgers and releases write through to the disk, often. Where memory has no room, or no programs may run from it,
    the place stays the system's.
    """
    if "TMPDIR" in os.environ or not os.path.isdir(_MEMORY):
        return
    found = os.statvfs(_MEMORY)
    if found.f_bavail * found.f_frsize > _ROOM and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"], tempfile.tempdir = _MEMORY, None


def run(command: Sequence[str]) -> int:
    """Run a command; return its exit code, or 1 if it succeeded but left something behind."""
    choose_temporary_directory()
    place = Path(tempfile.mkdtemp(prefix="hushgram-"))
    place.chmod(0o711)  # a PostgreSQL server runs as another user
    home = place / "home"
    home.mkdir()
    alone = os.environ.get("HUSHGRAM_REQUIRE_ENGINES") == "1" and _ENGINES not in command
    before = _shared() if alone else set()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    downloads = {name: os.path.expanduser(path) for name, path in _DOWNLOADS.items()}
    environment = {**downloads, **environment, "TMPDIR": str(place), "HOME": str(home)}
    for name in ("CACHE", "CONFIG"):  # matplotlib and browsers keep some
        environment[f"XDG_{name}_HOME"] = str(place / name.lower())
    code = _run(command, environment)
    left = [f"process {name}" for name in _processes_left()]
    left += [f"file {path}" for path in home.iterdir() if path.name not in _DOWNLOADED]
    left += [f"file {path}" for path in (_new_files({*before, str(place)}) if alone else ())]
    for name in left:
        print(f"the tests left behind: {name}", file=sys.stderr)
    kept = [path for path in place.iterdir() if path.name.startswith(_KEPT) and any(path.rglob("test_*"))]
    if code and kept:
        print(f"files of failed tests: {place}", file=sys.stderr)
    else:
        shutil.rmtree(place, ignore_errors=True)
    return code or int(bool(left))


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run the command and reap every process that it started, as soon as it ends."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the command gets, too
    child = subprocess.Popen(
        command, env=environment, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _processes_left() -> list[str]:
    """Return what still runs, after a while; end it."""
    until = time.monotonic() + _GRACE_SECONDS
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return []
        if time.monotonic() > until:
            break
        time.sleep(0.05)
    left = []
    while children := _children():  # an ended one leaves its own to us
        for pid in children:
            text = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            left.append(f"{pid}: {text.strip()}")
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return left


def _children() -> list[int]:
    found = []
    for path in Path("/proc/self/task").glob("*/children"):
        found += [int(pid) for pid in path.read_text().split()]
    return found


def _new_files(before: set[str]) -> list[str]:
    """Return what is new in the shared directories and stays there."""
    until = time.monotonic() + _OTHERS_SECONDS
    while (new := _shared() - before) and time.monotonic() < until:
        time.sleep(0.5)
    return sorted(new)


def _shared() -> set[str]:
    """Return the files of this user in directories that all programs share."""
    found = set()
    for folder in map(os.path.expanduser, _SHARED):
        if os.path.isdir(folder):
            with os.scandir(folder) as entries:
                found |= {entry.path for entry in entries if _is_ours(entry)}
    return found


def _is_ours(entry: os.DirEntry[str]) -> bool:
    try:
        ours = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
        return ours and entry.name not in _DOWNLOADED
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(run([sys.executable, "-m", "pytest", *sys.argv[1:]]))
