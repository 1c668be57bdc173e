"""The parts of an input format: one module per format with these parts, and one line in `hushgram.inputs.formats`.

Names, endings and options of the config, error texts and the tables of the docs follow from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa

from hushgram.inputs import source as limits
from hushgram.inputs.blocks import BOM, HEAD_BYTES, Block
from hushgram.inputs.columns import keep_good, row_sizes
from hushgram.inputs.source import (
    Chunk,
    InputFile,
    InputPlan,
    Opener,
    Places,
    Rejects,
    Source,
    WorkItem,
)

__all__ = ["FilePlan", "Format", "Parsed", "chunks", "chunks_of", "halves", "plan_lines"]

#: columns of plan.raw, and where their rows begin
Parsed = tuple[list[pa.Array], Places]


@dataclass
class FilePlan:
    """One file, opened: its columns, the types of the needed ones, and its work items.

    A needed column without a type has the type that its use tells (`Source.kinds`), or is text. `empty` says that there
    is nothing in the file, not even a header, so that no column can be missing; it decides nothing else.
    """

    columns: Sequence[str]
    types: dict[str, pa.DataType] = field(default_factory=dict)
    items: list[WorkItem] = field(default_factory=list)
    rows: int | None = None
    empty: bool = False


@dataclass(frozen=True)
class Format:
    """A kind of file.

    `plan` opens a file on the driver, checks what can be checked, and cuts it into work items; `read` reads an
    item on a worker. `options` is a frozen dataclass that checks itself (ParameterError "field problem") and
    whose fields have a default and metadata {"about": …}. They are the group `input.NAME` of a config, or
    stand in `input` itself where `flat`; options given there choose the format.
    """

    name: str
    suffixes: tuple[str, ...]
    plan: Callable[[InputFile, str | None, Source, Opener], FilePlan]
    read: Callable[[WorkItem, InputPlan, Opener], Iterator[Chunk]]
    pieces: str  # by what a file is read in parallel, for the docs
    compressible: bool = True  # whether .gz and the like may follow the suffix
    options: type[Any] | None = None
    flat: bool = False

    def chosen_by(self, source: Source) -> bool:
        """Return whether options were given that only this format has."""
        return self.flat and any(isinstance(given, self.options or ()) for given in source.options)


# --- formats of lines ---------------------------------------------------------------------------------------


def plan_lines(
    file: InputFile,
    format: str,
    compression: str | None,
    source: Source,
    *,
    head: bytes,
    columns: Sequence[str],
    types: dict[str, pa.DataType] | None = None,
    whole: bool = False,
    header: tuple[str, ...] = (),
    numbers: tuple[str, ...] = (),
) -> FilePlan:
    """Cut a file of lines into byte ranges; one range where it is compressed, or must be read `whole`."""
    if not head.strip() and len(head) < HEAD_BYTES - len(BOM):  # that was all of it
        return FilePlan(columns, types or {}, empty=True)
    whole = whole or compression is not None
    item = WorkItem(
        file.path, format, compression, 0, file.size, file.size, header=header, numbers=numbers, whole=whole
    )
    return FilePlan(columns, types or {}, item.parts(source.item_bytes))


def chunks_of(
    blocks: Iterator[Block], parse: Callable[[Block], Iterator[Parsed]], plan: InputPlan, rejects: Rejects
) -> Iterator[Chunk]:
    """Yield the accepted records of each block, which `parse` gives in parts of decoded text."""
    for block in blocks:
        good = (keep_good(arrays, plan, rejects, places, decoded=True) for arrays, places in parse(block))
        yield from chunks(chain.from_iterable(good), block.size, plan, rejects)


def chunks(
    batches: Iterable[pa.RecordBatch], size: int, plan: InputPlan, rejects: Rejects
) -> Iterator[Chunk]:
    """Yield the batches that come of `size` bytes of input, small ones together; at least one, which may be empty."""
    held: list[pa.RecordBatch] = []
    decoded = 0
    for batch in batches:
        more = int(row_sizes(batch).sum())
        if held and decoded + more > limits.BATCH_BYTES:
            yield Chunk(_together(held), size, *rejects.take())
            held, size, decoded = [], 0, 0
        held.append(batch)
        decoded += more
    yield Chunk(_together(held) if held else plan.empty, size, *rejects.take())


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(batches) if len(batches) > 1 else batches[0]


def halves(block: Block, least: int) -> tuple[Block, Block] | None:
    """Return the two halves of a block, cut at a newline; None where it is small or one line."""
    middle = block.data.find(b"\n", len(block.data) // 2, -1) + 1  # the last newline parts nothing
    if len(block.data) <= least or not middle:
        return None
    return Block(block.offset, block.data[:middle], 0), Block(block.offset + middle, block.data[middle:], 0)
