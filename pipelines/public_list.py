"""The file of a public list of keys (`privacy.domain.public_keys`).

Where the possible keys are known beforehand (countries, products, status codes), nothing need be hidden about
which of them occur: all of ε goes to the counts (Wang, lecture 3, §3.5), and with probability 1 − β no count is
further from the truth than ln(k/β)·C/ε. `run_release(..., public_keys=read_list(path))` releases it.
"""

from __future__ import annotations

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from hushgram.errors import InputError

__all__ = ["read_list"]

# A list is held by every worker; a longer one is no list of known keys but a key space: release a sketch of it.
_MOST_BYTES = 1 << 30


def read_list(path: str) -> list[bytes]:
    """The keys of a file with one key a line, each once; through Beam's file systems."""
    where = f"privacy.domain.public_keys {path}"
    try:
        with FileSystems.open(path) as file:
            content: bytes = file.read(_MOST_BYTES + 1)
    except (BeamIOError, OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem).splitlines()[0]
        raise InputError(f"{where}: cannot be read: {reason}") from None
    if len(content) > _MOST_BYTES:
        raise InputError(
            f"{where}: is larger than 1 GiB; leave the list out and release a sketch of all keys"
        )
    lines = [line.removesuffix(b"\r") for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    keys = [line for line in lines if line]
    if not keys:
        raise InputError(f"{where}: holds no keys; write one key a line")
    if len(set(keys)) != len(keys):
        seen: set[bytes] = set()
        twice = next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InputError(
            f"{where}: lists {twice.decode('utf-8', 'replace')[:80]!r} twice; list each key once"
        )
    return keys
