"""One work item, read: the door for all formats."""

from __future__ import annotations

import lzma
from collections.abc import Iterator

from hushgram.errors import InputError
from hushgram.inputs.folders import in_the_file
from hushgram.inputs.formats import format_named
from hushgram.inputs.source import Chunk, InputPlan, Opener, WorkItem, first_line, open_local

__all__ = ["read_item"]


def read_item(item: WorkItem, plan: InputPlan, opener: Opener = open_local) -> Iterator[Chunk]:
    """The records of one item as batches of plan.schema; bad records are set aside beside them."""
    try:
        yield from format_named(item.format).read(item, in_the_file(item, plan), opener)
    except (OSError, EOFError, lzma.LZMAError) as problem:
        raise InputError(f"{item.path}: cannot be read: {first_line(problem)}") from None
