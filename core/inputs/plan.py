"""The plan of a read, made on the driver before any budget or output is touched.

Every file is opened once: Parquet footers, the header of CSV, the first lines of JSON. What cannot be read,
or lacks a column, is an `InputError` that names the file and the remedy.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from hushgram.errors import InputError
from hushgram.inputs.blocks import COMPRESSIONS, open_text
from hushgram.inputs.columns import ACCEPTED, common_type, id_type
from hushgram.inputs.formats.csv import csv_header, infer_csv
from hushgram.inputs.formats.jsonl import infer_jsonl
from hushgram.inputs.formats.log import infer_log
from hushgram.inputs.formats.parquet import plan_parquet
from hushgram.inputs.source import (
    InputFile,
    InputPlan,
    Opener,
    Source,
    WorkItem,
    first_line,
    open_local,
)

__all__ = ["format_of", "plan_inputs"]

_FORMATS = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl",
    ".ndjson": "jsonl", ".json": "jsonl", ".log": "log",
}  # fmt: skip
_HEAD_BYTES = 1 << 20
_THREADS = 16


class _FilePlan:
    """What the opening of one file told."""

    def __init__(self, format: str, columns: Sequence[str], types: dict[str, pa.DataType]) -> None:
        self.format, self.columns, self.types = format, columns, types
        self.items: list[WorkItem] = []
        self.rows: int | None = None
        self.empty = False


def plan_inputs(files: Iterable[InputFile], source: Source, opener: Opener = open_local) -> InputPlan:
    """All files as work items of one schema, or an `InputError`."""
    listed = tuple(sorted(files, key=lambda file: file.path))
    if not listed:
        raise InputError("input.path matches no file")
    with ThreadPoolExecutor(min(_THREADS, len(listed))) as pool:
        plans = list(pool.map(lambda file: _plan_file(file, source, opener), listed))
    full = [plan for plan in plans if not plan.empty] or plans
    types = {name: _column_type(name, source, listed, plans, full) for name in source.names}
    rows = [plan.rows for plan in plans]
    return InputPlan(
        source=source,
        schema=pa.schema(list(types.items())),
        items=tuple(
            sorted((i for plan in plans for i in plan.items), key=lambda i: (-i.size, i.path, i.start))
        ),
        files=listed,
        formats=tuple(dict.fromkeys(plan.format for plan in plans)),
        rows=None if None in rows else sum(row or 0 for row in rows),
    )


def format_of(path: str, source: Source) -> tuple[str, str | None]:
    """(format, compression) of a file, from its name where the source says "auto"."""
    name = path.lower().split("?")[0]
    compression = next((kind for ending, kind in COMPRESSIONS.items() if name.endswith(ending)), None)
    if compression is not None:
        name = name[: name.rindex(".")]
    if source.format != "auto":
        return source.format, None if source.format == "parquet" else compression
    if source.preset or source.pattern:
        return "log", compression
    found = next((kind for ending, kind in _FORMATS.items() if name.endswith(ending)), None)
    if found is None:
        raise InputError(
            f"{path}: the name does not tell the format; set input.format to parquet, csv, jsonl or log"
        )
    return found, None if found == "parquet" else compression


def _plan_file(file: InputFile, source: Source, opener: Opener) -> _FilePlan:
    format, compression = format_of(file.path, source)
    if format == "parquet":
        schema, items, rows = plan_parquet(file, source, opener)
        plan = _FilePlan(format, schema.names, {f.name: f.type for f in schema if f.name in source.names})
        plan.items, plan.rows = items, rows
    else:
        plan = _plan_text(file, format, compression, source, opener)
    missing = [name for name in source.names if name not in plan.columns]
    if missing and not plan.empty:
        raise InputError(_missing(file.path, missing[0], plan.columns))
    return plan


def _plan_text(
    file: InputFile, format: str, compression: str | None, source: Source, opener: Opener
) -> _FilePlan:
    head = _head(file.path, compression, opener)
    header: tuple[str, ...] = ()
    if format == "csv":
        header = csv_header(file.path, head, source)
        plan = _FilePlan(format, header, {})
        if set(source.names) <= set(header):
            plan.types = infer_csv(head, header, source)
    elif format == "jsonl":
        plan = _FilePlan(format, *infer_jsonl(head, source))
    else:
        plan = _FilePlan(format, *infer_log(source))
    plan.empty = not head.strip()
    whole = compression is not None or (format == "csv" and source.newlines_in_values and bool(source.quote))
    numbers = tuple(name for name in source.ids if plan.types.get(name) == pa.int64())
    step = max(file.size, 1) if whole else source.item_bytes
    for start in range(0, file.size, step):
        stop = min(start + step, file.size)
        size = stop - start
        plan.items.append(WorkItem(file.path, format, compression, start, stop, size, (), header, numbers))
    return plan


def _head(path: str, compression: str | None, opener: Opener) -> bytes:
    try:
        stream, raw = open_text(path, compression, opener)
        with raw, stream:
            head = bytes(stream.read(_HEAD_BYTES))
    except (pa.ArrowException, OSError, EOFError) as problem:
        kind = f"as {compression} " if compression else ""
        raise InputError(f"{path}: cannot be read {kind}({first_line(problem)})") from None
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"{path}: is UTF-16 text; convert it to UTF-8")
    if head[:4] == b"PAR1":
        raise InputError(f"{path}: is a Parquet file; set input.format to parquet or give it that ending")
    return head


def _missing(path: str, name: str, columns: Sequence[str]) -> str:
    shown = ", ".join(columns[:20]) + (", …" if len(columns) > 20 else "")
    close = difflib.get_close_matches(name, columns, n=1, cutoff=0.6)
    remedy = f"; did you mean {close[0]!r}?" if close else ""
    return f"{path}: no column {name!r}{remedy} The columns are: {shown or '(none)'}".replace(
        "' The", "'. The"
    )


def _column_type(
    name: str, source: Source, files: Sequence[InputFile], plans: list[_FilePlan], full: list[_FilePlan]
) -> pa.DataType:
    if name in source.ids:
        kinds = []
        for file, plan in zip(files, plans, strict=True):
            kind = pa.string() if plan.format != "parquet" else id_type(plan.types.get(name, pa.string()))
            if kind is None:
                raise InputError(
                    f"{file.path}: column {name!r} is {plan.types[name]}; a user or key must be {ACCEPTED}: "
                    "cast it to text first"
                )
            kinds.append(kind)
        return common_type(kinds)
    kinds = list(dict.fromkeys(plan.types.get(name, pa.string()) for plan in full))
    return _widest(kinds)


def _widest(kinds: list[pa.DataType]) -> pa.DataType:
    """One type for values of several files: numbers widen, anything else becomes text."""
    if len(kinds) == 1:
        return kinds[0].value_type if pa.types.is_dictionary(kinds[0]) else kinds[0]
    if all(pa.types.is_integer(kind) for kind in kinds):
        return pa.int64()
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds):
        return pa.float64()
    return pa.string()
