"""What an input format is: one module with these parts, and one line in the registry (`hushgram.inputs.formats`).

Names, endings and options of the config, error texts and the tables of the docs follow from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from hushgram.inputs.source import Chunk, InputFile, InputPlan, Opener, Source, WorkItem

__all__ = ["FilePlan", "Format"]


@dataclass
class FilePlan:
    """What the opening of one file told: its columns, the types of the needed ones, and its pieces of work.

    A needed column without a type is text.
    """

    columns: Sequence[str]
    types: dict[str, pa.DataType] = field(default_factory=dict)
    items: list[WorkItem] = field(default_factory=list)
    rows: int | None = None
    empty: bool = False


@dataclass(frozen=True)
class Format:
    """A kind of file.

    `plan` opens a file on the driver, checks what can be checked, and cuts it into pieces; `read` reads a
    piece on a worker. `options` is a frozen dataclass that checks itself (ParameterError "field problem") and
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
        """Whether options were given that only this format has."""
        return self.flat and any(isinstance(given, self.options or ()) for given in source.options)
