"""What a release was asked to do and on which data, as text: the same id must always mean the same.

Parameters: every field of the config that can change the result, by dotted name.

Inputs: each file by its path, size and a hash of its first and last 64 KiB (of all of it up to 1 MiB). That
is cheap on terabytes and catches what happens in practice: another day's file, a file that has grown, a
Parquet file written anew (its footer is at the end). It does not catch bytes changed in the middle of a large
file of the same size. That costs honesty, not privacy: noise is a function of the data, so other data get
independent noise. Time stamps are left out on purpose: a file copied again is the same file. Remote files
count by size and time of change, as the store reports them.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from hushgram.errors import InputError
from hushgram.numbers import show

__all__ = ["fingerprint_inputs", "flatten"]

_EDGE = 1 << 16
_WHOLE = 1 << 20
_LISTED = 200
"""Files that are listed one by one; more are folded into one entry, to keep the ledger small."""


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


def fingerprint_inputs(patterns: Iterable[str | Path]) -> dict[str, str]:
    """Path to fingerprint, for each file that the paths, folders and patterns name."""
    found: dict[str, str] = {}
    for pattern in map(str, patterns):
        if "://" in pattern and not pattern.startswith("file://"):
            found.update(_remote(pattern))
            continue
        for path in _expand(pattern.removeprefix("file://")):
            found[str(path)] = _local(path)
    if len(found) <= _LISTED:
        return found
    state = hashlib.sha256()
    for name, value in sorted(found.items()):
        state.update(f"{len(name)} {name} {value}\n".encode())
    return {f"{len(found)} files": f"sha256 {state.hexdigest()[:32]}"}


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


def _local(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            state = hashlib.sha256(file.read(size if size <= _WHOLE else _EDGE))
            if size > _WHOLE:
                file.seek(size - _EDGE)
                state.update(file.read(_EDGE))
    except OSError as problem:
        raise InputError(f"input {path} cannot be read: {problem.strerror}") from None
    return f"{size} bytes, sha256 {state.hexdigest()[:32]}"


def _remote(pattern: str) -> dict[str, str]:
    from apache_beam.io.filesystems import FileSystems  # the job loads Beam anyway

    try:
        matches = FileSystems.match([pattern])[0].metadata_list
    except Exception as problem:  # Beam wraps whatever the store's client raises
        reason = str(problem).splitlines()[0][:200] if str(problem) else type(problem).__name__
        raise InputError(f"input {pattern} cannot be listed: {reason}") from None
    if not matches:
        raise InputError(f"input.path {pattern} matches no file; check the path (and the date in it)")
    return {
        match.path: f"{match.size_in_bytes} bytes, changed {match.last_updated_in_seconds or 'unknown'}"
        for match in matches
    }


def _text(value: Any) -> str:
    if isinstance(value, Fraction):
        return show(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return str(value)
