"""One work item, read: the door for all formats."""

from __future__ import annotations

from collections.abc import Iterator

from hushgram.errors import InputError
from hushgram.inputs.formats.csv import read_csv
from hushgram.inputs.formats.jsonl import read_jsonl
from hushgram.inputs.formats.log import read_log
from hushgram.inputs.formats.parquet import read_parquet
from hushgram.inputs.source import Chunk, InputPlan, Opener, WorkItem, first_line, open_local

__all__ = ["read_item"]

_READERS = {"parquet": read_parquet, "csv": read_csv, "jsonl": read_jsonl, "log": read_log}


def read_item(item: WorkItem, plan: InputPlan, opener: Opener = open_local) -> Iterator[Chunk]:
    """The records of one item as batches of plan.schema; bad records are set aside beside them."""
    try:
        yield from _READERS[item.format](item, plan, opener)
    except OSError as problem:
        raise InputError(f"{item.path}: cannot be read: {first_line(problem)}") from None
