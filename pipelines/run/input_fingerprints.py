"""Fingerprints of input files, by which the ledger tells whether a rerun reads the same data.

Each local file is compared by its path and an HMAC-SHA-256 of all of its bytes under a secret of the ledger. Backups,
messages and logs do not contain that secret, so whoever sees them can neither read off a size nor test a guess about
the data; whoever reads the ledger's database can, unless a wrapping key protects its secrets. Files of an object store
are compared by the size and the time of change that its listing reports, without a request per file: a file that was
replaced by one of the same size and time counts as the same. Where the listing reports no time, they are compared by
their checksum, and by all of their bytes where there is none.

A change between this comparison and reading is not noticed. Since all noise of a release depends on all of its exact
data, attempts with different data have independent noise; but if the outputs of both became known, their privacy losses
would add up, and the ledger has charged one.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hushgram.errors import InputError
from hushgram.inputs import InputFile

__all__ = ["fingerprint_inputs"]

_MAX_LISTED = 200
"""Files that are listed one by one; more are combined into one entry, to keep the ledger small."""
_READERS = 8


def fingerprint_inputs(inputs: Iterable[str | Path | InputFile], secret: bytes) -> dict[str, str]:
    """Return the fingerprint under `secret` of each file that is listed, or that paths, folders and patterns name.

    A fingerprint begins with 8 digits of the secret's own fingerprint: those of two secrets cannot be compared.
    """
    files: list[InputFile] = []
    for given in inputs:
        if isinstance(given, InputFile):
            files.append(given)
        elif os.path.isfile(local := str(given).removeprefix("file://")):
            files.append(InputFile(local, 0))
        else:
            from hushgram.transforms.files import match_files

            files += sorted(match_files([str(given)]), key=lambda file: file.path)
    with ThreadPoolExecutor(min(_READERS, os.cpu_count() or 1)) as readers:
        paths = [file.path for file in files]
        states = dict(zip(paths, readers.map(_state, files), strict=True))
    which = _keyed(secret, b"which secret")[:8]
    found = {path: f"{which}:{_keyed(secret, state)}" for path, state in states.items()}
    if len(found) <= _MAX_LISTED:
        return found
    together = "".join(f"{len(name)} {name} {value}\n" for name, value in sorted(found.items()))
    return {f"{len(found)} files": f"{which}:{_keyed(secret, together.encode())}"}


def _keyed(secret: bytes, content: bytes) -> str:
    return hmac.digest(secret, b"hushgram input\0" + content, "sha256").hex()[:32]


def _state(listed: InputFile) -> bytes:
    """Return the hash of a file's bytes, or what an object store reports about it."""
    path = listed.path
    if "://" not in path:
        try:
            if not os.path.isfile(path):
                raise InputError(f"input {path} is not a regular file")
            with open(path, "rb") as file:
                return hashlib.file_digest(file, "sha256").digest()
        except OSError as problem:
            raise InputError(f"input {path} cannot be read: {problem.strerror}") from None
    if listed.changed:
        return f"{listed.size}\n{listed.changed}".encode()
    from apache_beam.io.filesystems import FileSystems  # the job loads Beam anyway

    try:
        checksum = FileSystems.checksum(path)
        if checksum and checksum != str(listed.size):  # Beam's default checksum is the size
            return f"{listed.size}\n{checksum}".encode()
        with FileSystems.open(path) as file:
            return hashlib.file_digest(file, "sha256").digest()
    except Exception as problem:  # Beam wraps whatever the store's client raises
        reason = str(problem).splitlines()[0][:200] if str(problem) else type(problem).__name__
        raise InputError(f"input {path} cannot be read: {reason}") from None
