"""Who runs a release: a process, named so that another one can tell whether it is still alive.

A run that was killed must be resumed at once on the same machine, not after a time-out; and a run that is
alive must never be joined by a second one. A process id alone does not tell (ids are used again), so an owner
is host, boot, namespace of process ids, process id and its start time, plus a random token for this run. On
another machine (or boot, or container) nothing can be known: there the lease has to run out.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

from hushgram.noise.entropy import os_entropy

__all__ = ["Owner", "return_memory", "reuse_memory"]

# Parameters of mallopt: arrays up to 64 MiB come from one heap, whose end is kept up to that size. Heaps
# of further threads could not hold them.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX, _HEAP_BYTES = -1, -3, -8, 64 << 20


@functools.cache
def reuse_memory() -> bool:
    """Let this process keep what it frees for its next arrays, and return whether it can; best before it has threads.

    Otherwise glibc maps every large array anew, and the kernel clears its pages each time.
    """
    libc = _glibc()
    settings = ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, _HEAP_BYTES), (_TRIM_THRESHOLD, _HEAP_BYTES))
    return libc is not None and all(libc.mallopt(name, value) for name, value in settings)


def return_memory() -> None:
    """Give what is free back to the system: after a stage that needed much of it."""
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


@functools.cache
def _glibc() -> ctypes.CDLL | None:
    if platform.libc_ver()[0] != "glibc":
        return None
    return ctypes.CDLL(None)


@dataclass(frozen=True)
class Owner:
    """One run of one release by one process."""

    host: str
    realm: str
    pid: int
    started: str
    token: str
    #: a job on an engine that this run has submitted, in the words of the launcher; "" is none
    job: str = ""

    @classmethod
    def this(cls) -> Owner:
        """Return this process, with a fresh token."""
        token = os_entropy().take(8).tobytes().hex()
        return cls(platform.node() or "?", _realm(), os.getpid(), _start_of(os.getpid()), token)

    @classmethod
    def read(cls, text: str) -> Owner:
        """Read what `write` wrote."""
        found = json.loads(text)
        fixed = found["host"], found["realm"], int(found["pid"]), found["started"], found["token"]
        return cls(*fixed, found.get("job", ""))

    def write(self) -> str:
        """Return the text for the ledger."""
        fields = asdict(self)
        if not self.job:
            del fields["job"]
        return json.dumps(fields, sort_keys=True)

    def mark(self, *, engine: bool = False) -> str:
        """Return a short name for files of this run, from which a later one can tell whether it has ended.

        With `engine` it cannot tell: a job on an engine writes these files, whether or not this process lives.
        """
        return f"{_hash(self.realm)}-{'engine' if engine else self.pid}-{self.started}-{self.token}"

    @staticmethod
    def is_dead_mark(mark: str) -> bool:
        """Return True only where it is certain that the run which made this mark has ended."""
        realm, _, rest = mark.partition("-")
        pid, _, rest = rest.partition("-")
        started = rest.partition("-")[0]
        return realm == _hash(_realm()) and pid.isdigit() and _start_of(int(pid)) not in (started, "?")

    @staticmethod
    def is_live_mark(mark: str) -> bool:
        """Return True only where it is certain that the run which made this mark goes on."""
        realm, pid, started = [*mark.split("-", 3), "", ""][:3]
        return realm == _hash(_realm()) and pid.isdigit() and _start_of(int(pid)) == started

    def is_dead(self) -> bool:
        """Return True only where it is certain that this process has ended."""
        return self.realm == _realm() and _start_of(self.pid) not in (self.started, "?")

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@functools.cache
def _realm() -> str:
    """Return where a process id means the same: one boot of one machine, one namespace of ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"host/{platform.node()}"


def _start_of(pid: int) -> str:
    """Return when the process started, as the kernel counts; "" where it has ended, "?" unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in ("Z", "X") else fields[19]
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return ""
    except OSError:
        return "?"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        return "?"
    return "alive"
