"""What all formats of lines share: the plan of a text file."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hushgram.inputs.blocks import BOM, HEAD_BYTES
from hushgram.inputs.formats.format import FilePlan
from hushgram.inputs.source import InputFile, Source, WorkItem

__all__ = ["plan_lines"]


def plan_lines(
    file: InputFile,
    format: str,
    compression: str | None,
    source: Source,
    *,
    head: bytes,
    columns: Sequence[str],
    types: dict[str, pa.DataType],
    whole: bool = False,
    header: tuple[str, ...] = (),
    numbers: tuple[str, ...] = (),
) -> FilePlan:
    """A file of lines as byte ranges; one range where it is compressed, or must be read `whole`."""
    if not head.strip() and len(head) < HEAD_BYTES - len(BOM):  # that was all of it
        return FilePlan(columns, types, empty=True)
    step = max(file.size, 1) if whole or compression is not None else source.item_bytes
    items = []
    for start in range(0, file.size, step):
        stop = min(start + step, file.size)
        item = WorkItem(
            file.path, format, compression, start, stop, stop - start, header=header, numbers=numbers
        )
        items.append(item)
    return FilePlan(columns, types, items)
