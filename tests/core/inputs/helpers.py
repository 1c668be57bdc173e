"""Small files in every format, and a reader that collects all of it."""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import lzma
from pathlib import Path
from typing import Any

import pyarrow as pa
import zstandard

from hushgram.inputs import InputFile, InputPlan, Source, plan_inputs, read_item
from hushgram.inputs.formats import FORMATS


def write(path: Path, data: bytes | str) -> Path:
    raw = data.encode() if isinstance(data, str) else data
    if path.suffix == ".gz":
        raw = gzip.compress(raw[: len(raw) // 2]) + gzip.compress(raw[len(raw) // 2 :])  # two members
    elif path.suffix == ".bz2":
        raw = bz2.compress(raw)
    elif path.suffix == ".xz":
        raw = lzma.compress(raw)
    elif path.suffix == ".zst":
        raw = zstandard.compress(raw)
    path.write_bytes(raw)
    return path


def source_of(**options: Any) -> Source:
    """A source whose format options are given flat, such as delimiter=";"."""
    options.setdefault("ids", ("user", "key"))
    groups = []
    for kind in (format.options for format in FORMATS.values() if format.options is not None):
        given = {f.name: options.pop(f.name) for f in dataclasses.fields(kind) if f.name in options}
        groups += [kind(**given)] if given else []
    return Source(**options, options=tuple(groups))


def plan_of(paths: list[Path] | Path, **options: Any) -> InputPlan:
    listed = paths if isinstance(paths, list) else [paths]
    return plan_inputs([InputFile(str(p), p.stat().st_size) for p in listed], source_of(**options))


def read_all(plan: InputPlan) -> tuple[list[dict[str, Any]], dict[str, int], list[dict[str, Any]]]:
    """(rows sorted by their text, rejected by reason, rejected records)."""
    rows: list[dict[str, Any]] = []
    rejected: dict[str, int] = {}
    bad: list[dict[str, Any]] = []
    size = 0
    for item in plan.items:
        for chunk in read_item(item, plan):
            assert isinstance(chunk.batch, pa.RecordBatch)
            assert chunk.batch.schema == plan.schema
            rows += chunk.batch.to_pylist()
            size += chunk.size
            for reason, count in chunk.rejected.items():
                rejected[reason] = rejected.get(reason, 0) + count
            bad += chunk.rejected_records.to_pylist() if chunk.rejected_records is not None else []
    assert abs(size - plan.bytes) <= len(plan.items)  # progress reaches its end
    return sorted(rows, key=repr), rejected, bad


def read(paths: list[Path] | Path, **options: Any) -> tuple[list[dict[str, Any]], dict[str, int]]:
    rows, rejected, _ = read_all(plan_of(paths, **options))
    return rows, rejected
