r"""Log lines: a regular expression with named groups makes columns of them.

The expression is RE2's (linear time, whatever the line), searched in each line; ``^`` and ``$`` anchor it. A
line that does not match is set aside. Presets (`log_presets`) are expressions for the logs of web servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram.errors import InputError, ParameterError
from hushgram.inputs.blocks import BOM, Block, line_blocks, read_head
from hushgram.inputs.columns import Texts, keep_good, valid_text
from hushgram.inputs.formats.format import FilePlan, Format
from hushgram.inputs.formats.lines import plan_lines
from hushgram.inputs.formats.log_presets import (
    PRESETS,
    group_of,
    preset_columns,
    preset_patterns,
    preset_types,
)
from hushgram.inputs.source import Chunk, InputFile, InputPlan, Opener, Rejects, Source, WorkItem, first_line

__all__ = ["FORMAT", "LogOptions", "groups_of"]


@dataclass(frozen=True)
class LogOptions:
    """How lines become columns: one of the two is given."""

    preset: str | None = field(default=None, metadata={"about": f"for log lines: {', '.join(PRESETS)}"})
    pattern: str | None = field(
        default=None, metadata={"about": "for log lines: a regular expression with named groups"}
    )

    def __post_init__(self) -> None:
        if self.preset not in (None, *PRESETS):
            raise ParameterError(f"preset must be one of {', '.join(PRESETS)}, got {self.preset!r}")
        if self.preset is not None and self.pattern is not None:
            raise ParameterError("pattern and input.preset exclude each other; keep one")
        if self.preset is None and self.pattern is None:
            raise ParameterError("format log needs preset: access-log, or a pattern with named groups")


def _patterns(source: Source, columns: tuple[str, ...]) -> list[str]:
    """The expressions to try on each line, one after the other."""
    options = source.option(LogOptions)
    if options.preset is not None:
        return preset_patterns(options.preset, columns, source.names)
    return [str(options.pattern)]


def groups_of(pattern: str) -> list[str]:
    """The named groups, checked by the engine that will run the expression."""
    try:
        kind = pc.extract_regex(pa.array([], pa.string()), pattern=pattern).type
    except (pa.ArrowInvalid, pa.ArrowKeyError) as problem:
        reason = first_line(problem).removeprefix("Invalid regular expression: ")
        raise ParameterError(
            f"input.pattern must be a regular expression (RE2) with named groups, such as (?P<url>\\S+), "
            f"got {pattern[:80]!r}: {reason}"
        ) from None
    return [kind.field(index).name for index in range(kind.num_fields)]


def _plan(file: InputFile, compression: str | None, source: Source, opener: Opener) -> FilePlan:
    options = source.option(LogOptions)
    if source.secrets:
        raise InputError(
            f"{file.path}: column {source.secrets[0]!r} is secret, and whether a line matches a pattern could tell it; "
            "write the records as CSV, JSON lines or Parquet first"
        )
    head = read_head(file.path, compression, opener)
    types: dict[str, pa.DataType] = {}
    if options.preset is None:
        columns = tuple(groups_of(str(options.pattern)))
    else:
        columns, types = preset_columns(options.preset, file.path, head), preset_types(options.preset)
    types = {name: kind for name, kind in (types | source.kinds).items() if name not in source.texts}
    return plan_lines(
        file, "log", compression, source, head=head, columns=columns, types=types, header=columns
    )


def _read(item: WorkItem, plan: InputPlan, opener: Opener) -> Iterator[Chunk]:
    """Batches of the item's lines."""
    rejects = Rejects(item.path, plan.source.keep_bad)
    patterns = _patterns(plan.source, item.header)
    directives = plan.source.option(LogOptions).preset == "w3c"
    for block in line_blocks(item, opener, plan.source.block_bytes, rejects):
        lines, places = _split(block)
        if directives:
            records = pc.invert(pc.starts_with(lines, "#"))
            lines, places = lines.filter(records), places[records.to_numpy(zero_copy_only=False)]
        good = valid_text(lines)
        if good is not None:
            _set_aside(lines, places, ~good, "line is not UTF-8", rejects)
            lines, places = lines.filter(pa.array(good)), places[good]
        parts, kept = [], []
        for pattern in patterns:
            found = pc.extract_regex(lines, pattern=pattern)
            matched = found.is_valid()
            rows = matched.to_numpy(zero_copy_only=False)
            parts.append(found.filter(matched))
            kept.append(places[rows])
            lines, places = lines.filter(pc.invert(matched)), places[~rows]
        _set_aside(lines, places, np.ones(len(lines), bool), "line does not match", rejects)
        arrays = [_column(parts, field.name, plan.source) for field in plan.raw]
        arrays, places = _typed(arrays, np.concatenate(kept), plan, rejects)
        yield Chunk(keep_good(arrays, plan, rejects, places, decoded=True), block.size, *rejects.take())


def _split(block: Block) -> tuple[pa.Array, NDArray[np.int64]]:
    """(lines without their ends, where they begin), without blank ones; by numpy, no Python object a line."""
    data = block.data
    if BOM in data:  # at the beginning of a line it is no part of it (places behind it are less exact then)
        data = data.removeprefix(BOM).replace(b"\n" + BOM, b"\n")
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10).astype(np.int64) + 1
    if not len(ends) or ends[-1] != len(data):
        ends = np.append(ends, len(data))
    offsets = np.concatenate((np.zeros(1, np.int64), ends))
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    lines = pc.ascii_rtrim(pa.Array.from_buffers(pa.string(), len(ends), buffers), characters="\r\n")
    full = pc.not_equal(pc.binary_length(lines), 0)
    return lines.filter(full), offsets[:-1][full.to_numpy(zero_copy_only=False)] + block.offset


def _set_aside(
    lines: pa.Array, places: NDArray[np.int64], rows: NDArray[np.bool_], reason: str, rejects: Rejects
) -> None:
    where = np.flatnonzero(rows)
    shown = where[: rejects.room(reason)]
    for row in shown:
        rejects.add(reason, int(places[row]), lines[int(row)].cast(pa.binary()).as_py())
    if len(where) > len(shown):
        rejects.add(reason, int(places[where[0]]), count=len(where) - len(shown))


def _column(parts: list[pa.StructArray], name: str, source: Source) -> pa.Array:
    column = pa.concat_arrays([part.field(group_of(name)) for part in parts])
    none = pc.equal(column, "")
    if source.option(LogOptions).preset is not None:
        none = pc.or_(none, pc.equal(column, "-"))
    return pc.if_else(none, pa.scalar(None, pa.string()), column)


def _typed(
    arrays: list[pa.Array], places: NDArray[np.int64], plan: InputPlan, rejects: Rejects
) -> tuple[list[pa.Array], NDArray[np.int64]]:
    """The columns in the types of the plan; a line with a number that is too large for its type is set aside."""
    try:
        return [column.cast(f.type) for column, f in zip(arrays, plan.raw, strict=True)], places
    except pa.ArrowInvalid:
        texts = Texts(plan)
        rows = zip(*(column.cast(pa.binary()).to_pylist() for column in arrays), strict=True)
        for place, row in zip(places, rows, strict=True):
            texts.add(list(row), int(place), b" ".join(value or b"-" for value in row))
        return texts.arrays(rejects), texts.places


FORMAT = Format("log", (".log",), _plan, _read, pieces="file and byte ranges", options=LogOptions, flat=True)
