"""Child processes with a log file, a bounded wait and a certain end.

Every process is the leader of a session of its own, so that ending it ends whatever it started. Nothing is
ever looked up by name: only processes that this module started, and their children, are signalled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["EngineError", "Process", "free_port", "wait_until"]

POLL_SECONDS = 0.1
TERM_SECONDS = 5.0  # between asking a process to end and killing it


class EngineError(RuntimeError):
    """An engine did not start, did not answer or did not finish in time; the message quotes the end of its
    log."""


def free_port() -> int:
    """A port on the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(done: Callable[[], bool], seconds: float, what: str) -> None:
    """Return when `done()` holds; EngineError naming `what` when it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise EngineError(f"{what}: not within {seconds:.0f} s")
        time.sleep(POLL_SECONDS)


class Process:
    """One engine process: started at once, its output in `log`, ended with its whole session by `stop` or
    `kill`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name, self.log = name, log
        with log.open("ab") as sink:
            self._popen = subprocess.Popen(
                list(command),
                stdout=sink,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=dict(env) if env is not None else None,
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def tail(self, lines: int = 15) -> str:
        """The end of the log, for error messages."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait_for_port(self, port: int, seconds: float, host: str = "127.0.0.1") -> None:
        """Return when something listens on `port`; EngineError if the process ends first or time runs out."""

        def listens() -> bool:
            if not self.running:
                raise EngineError(f"{self.name} ended with code {self._popen.returncode}:\n{self.tail()}")
            with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
                return True
            return False

        wait_until(listens, seconds, f"{self.name} on port {port}")

    def kill(self) -> None:
        """The power cut: SIGKILL to the whole session, at once."""
        self._signal(signal.SIGKILL)
        self._popen.wait(timeout=TERM_SECONDS)

    def stop(self) -> None:
        """Ask to end, wait a little, then kill; also what the process left behind in its session."""
        if self.running:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(timeout=TERM_SECONDS)
        self._signal(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout=TERM_SECONDS)

    def children(self) -> list[int]:
        """Process ids of the direct children, oldest first."""
        found = [
            (int(fields[19]), pid)
            for pid, fields in _every_process()
            if int(fields[1]) == self.pid and fields[0] != "Z"
        ]
        return [pid for _, pid in sorted(found)]

    def cpu_seconds(self) -> float:
        """CPU time of every process of its session, with that of children that have ended."""
        ticks = (sum(map(int, fields[11:15])) for _, fields in _every_process() if int(fields[3]) == self.pid)
        return sum(ticks) / os.sysconf("SC_CLK_TCK")

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def _every_process() -> Iterator[tuple[int, list[str]]]:
    """Yield process ids with the fields of /proc/PID/stat after the name."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                yield int(entry.name), (entry / "stat").read_text().rsplit(")", 1)[1].split()
