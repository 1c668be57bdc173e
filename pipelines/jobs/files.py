"""Files of a job beside its input: lists and queries that a config names, and results that stages write."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.domains import KeyDomain
from hushgram.errors import InputError
from hushgram.inputs.key_lists import read_text_keys

__all__ = ["heavy_domain", "read_bytes", "read_key_list", "read_text", "write_bytes", "write_lines"]


def read_bytes(path: str, field: str) -> bytes:
    """The content of a file that a config names in `field`; through Beam's file systems."""
    from hushgram.transforms.files import open_file

    try:
        with open_file(path) as file:
            content: bytes = file.read()
    except InputError as problem:
        raise InputError(f"{field}: {problem}") from None
    except OSError as problem:
        raise InputError(f"{field}: {path} cannot be read: {problem.strerror or problem}") from None
    return content


def read_text(path: str, field: str) -> str:
    """The same as text."""
    try:
        return read_bytes(path, field).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{field}: {path} is not UTF-8 text") from None


def read_key_list(path: str, field: str) -> list[str]:
    """Keys of a file with one key a line, each once; through Beam's file systems."""
    from hushgram.transforms.files import open_file

    return read_text_keys(path, field, open_file)


def write_bytes(path: str, content: bytes) -> str:
    """Writes a file of a result, on any of Beam's file systems; returns its path."""
    from apache_beam.io.filesystems import FileSystems

    with FileSystems.create(path, mime_type="application/octet-stream") as sink:
        sink.write(content)
    return path


def write_lines(path: str, lines: Iterable[Mapping[str, Any]]) -> str:
    """Writes JSON lines."""
    return write_bytes(
        path, b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)
    )


def heavy_domain(path: str, field: str) -> tuple[KeyDomain, NDArray[np.int64]]:
    """The heavy keys of a released sketch as a domain, and their released values: public, so free."""
    from hushgram.sketch.reader import Sketch

    sketch = Sketch.open(path)
    heavy = sketch.heavy()
    if not heavy.num_rows:
        raise InputError(f"{field}: {path} has no heavy keys")
    values: NDArray[np.int64] = heavy.column("value").to_numpy()
    if "key" in heavy.column_names:
        return KeyDomain.of([str(key) for key in heavy.column("key").to_pylist()]), values
    prints = heavy.column("fingerprint").to_numpy()
    return KeyDomain.of_heavy(prints, sketch.plan.domain_bits or 64), values
