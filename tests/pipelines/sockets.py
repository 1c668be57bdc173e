"""What listens among the processes of a job, from the tables of the kernel."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["children", "listening", "tree"]

ACCEPTS = 0x10000  # the flag of a unix socket that listens


def _parents() -> dict[int, int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
    return parents


def children(root: int) -> set[int]:
    """Return the processes that this process itself has started; a server of other tests may start more of its own."""
    return {child for child, parent in _parents().items() if parent == root}


def tree(root: int) -> list[int]:
    """Return a process and all that descend from it."""
    parents = _parents()
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def listening(root: int) -> list[str]:
    """Every socket on which a process of the tree waits for others to connect."""
    held = set()
    for pid in tree(root):
        with contextlib.suppress(OSError):
            for handle in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    held.add(os.readlink(handle))
    found = []
    for name in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            waits = fields[3] == "0A" or name.startswith("udp")
            if waits and f"socket:[{fields[9]}]" in held:
                found.append(f"{name} {fields[1]}")
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[3], 16) & ACCEPTS and f"socket:[{fields[6]}]" in held:
            found.append(f"unix {fields[7:]}")
    return found
