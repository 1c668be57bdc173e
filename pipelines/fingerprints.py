"""What a release was asked to do and on which data, as text: the same id must always mean the same.

Parameters: every field of the config that can change the result, by dotted name.

Inputs: each file by its path and a keyed fingerprint of all of its bytes, HMAC-SHA-256 under a secret of the
ledger. Whoever sees the ledger's backups, messages or logs can neither read off a size nor test a guess about the
data. A changed byte anywhere is a changed file; a file copied again is the same file (time stamps are left out).
Hashing reads every file once more, several at a time, at the speed of the disk or about 1 GB/s for each core: far
faster than the release itself. Files of an object store count by size, time of change and checksum as the store
reports them, and by all of their bytes where it reports neither of the last two.

This comparison is the first of two guards. The second: all noise of a release depends on all of its exact data, so
a change that came after the fingerprint was taken gives independent noise, and two outputs compose.
"""

from __future__ import annotations

import glob
import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

from hushgram.errors import InputError
from hushgram.numbers import show

__all__ = ["fingerprint_inputs", "flatten"]

_LISTED = 200
"""Files that are listed one by one; more are folded into one entry, to keep the ledger small."""
_READERS = 8


def flatten(fields: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested parameters as dotted names with exact texts; None is left out.

    >>> flatten({"privacy": {"epsilon": Fraction(1, 10)}, "key": "url", "paths": ["a", "b"], "none": None})
    {'privacy.epsilon': '0.1', 'key': 'url', 'paths': 'a, b'}
    """
    flat: dict[str, str] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{name}."))
        elif value is not None:
            flat[f"{prefix}{name}"] = _text(value)
    return flat


def fingerprint_inputs(patterns: Iterable[str | Path], secret: bytes) -> dict[str, str]:
    """Path to fingerprint under `secret`, for each file that the paths, folders and patterns name.

    A fingerprint begins with 8 digits that tell which secret was used: those of two secrets cannot be compared.
    """
    local: list[Path] = []
    states: dict[str, bytes] = {}
    for pattern in map(str, patterns):
        if "://" in pattern and not pattern.startswith("file://"):
            states.update(_remote(pattern))
        else:
            local += _expand(pattern.removeprefix("file://"))
    with ThreadPoolExecutor(min(_READERS, os.cpu_count() or 1)) as readers:
        states.update(zip(map(str, local), readers.map(_local, local), strict=True))
    which = _keyed(secret, b"which secret")[:8]
    found = {path: f"{which}:{_keyed(secret, state)}" for path, state in states.items()}
    if len(found) <= _LISTED:
        return found
    together = "".join(f"{len(name)} {name} {value}\n" for name, value in sorted(found.items()))
    return {f"{len(found)} files": f"{which}:{_keyed(secret, together.encode())}"}


def _keyed(secret: bytes, content: bytes) -> str:
    return hmac.digest(secret, b"hushgram input\0" + content, "sha256").hex()[:32]


def _expand(pattern: str) -> list[Path]:
    path = Path(pattern)
    if path.is_dir():
        inside = (p for p in path.rglob("*") if p.is_file())
        files = [p for p in inside if not any(part[0] in "._" for part in p.relative_to(path).parts)]
    elif path.exists():
        files = [path]
    else:
        files = [Path(name) for name in glob.glob(pattern, recursive=True) if Path(name).is_file()]
    if not files:
        raise InputError(f"input.path {pattern} matches no file; check the path (and the date in it)")
    return sorted(files)


def _local(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise InputError(f"input {path} is no regular file")
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as problem:
        raise InputError(f"input {path} cannot be read: {problem.strerror}") from None


def _remote(pattern: str) -> dict[str, bytes]:
    from apache_beam.io.filesystems import FileSystems  # the job loads Beam anyway

    try:
        matches = FileSystems.match([pattern])[0].metadata_list
        states = {match.path: _reported(match, FileSystems) for match in matches}
    except Exception as problem:  # Beam wraps whatever the store's client raises
        reason = str(problem).splitlines()[0][:200] if str(problem) else type(problem).__name__
        raise InputError(f"input {pattern} cannot be listed: {reason}") from None
    if not states:
        raise InputError(f"input.path {pattern} matches no file; check the path (and the date in it)")
    return states


def _reported(match: Any, systems: Any) -> bytes:
    """What a store says about one file, or all of its bytes where that is too little."""
    checksum = systems.checksum(match.path)
    size = str(match.size_in_bytes)
    if checksum in (None, size) and not match.last_updated_in_seconds:  # Beam's default checksum is the size
        with systems.open(match.path) as file:
            return hashlib.file_digest(file, "sha256").digest()
    return f"{size}\n{match.last_updated_in_seconds}\n{checksum}".encode()


def _text(value: Any) -> str:
    if isinstance(value, Fraction):
        return show(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return str(value)
