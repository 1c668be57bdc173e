"""CSV: blocks of whole records, parsed by pyarrow; what it refuses is read record by record, by the same rule.

Which bytes are a record is said in `csv_records`. From the middle of a file nobody can tell whether a newline is
inside quotes; so a CSV file is one work item, read from its beginning, unless the source says that values hold
no newlines (`newlines_in_values=False`); then it is cut into byte ranges like any file of lines.

An empty field is a missing value: CSV has no other way to say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from hushgram.errors import InputError, ParameterError
from hushgram.inputs.blocks import BOM, Block, line_blocks, read_head
from hushgram.inputs.columns import Places, Texts, is_utf8, keep_good
from hushgram.inputs.formats.csv_records import Records
from hushgram.inputs.formats.format import FilePlan, Format
from hushgram.inputs.formats.lines import plan_lines
from hushgram.inputs.source import Chunk, InputFile, InputPlan, Opener, Rejects, Source, WorkItem

__all__ = ["FORMAT", "CsvOptions"]

# A block that pyarrow refuses is halved down to this size before it is read record by record.
_SLOW_BYTES = 1 << 18


@dataclass(frozen=True)
class CsvOptions:
    """How to read CSV. The defaults are RFC 4180 with a header line."""

    delimiter: str = field(default=",", metadata={"about": "one character, such as ',' or '\\t'"})
    quote: str = field(default='"', metadata={"about": "one character, or '' where fields are never quoted"})
    header: bool | tuple[str, ...] = field(
        default=True, metadata={"about": "true: the first line names the columns; or a list of their names"}
    )
    newlines_in_values: bool = field(
        default=True,
        metadata={"about": "false where no quoted value spans lines: large files are then read in parallel"},
    )

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or self.delimiter in '\r\n"' or ord(self.delimiter) > 127:
            raise ParameterError(
                f"delimiter must be one ASCII character such as ',' or '\\t', got {self.delimiter!r}"
            )
        if len(self.quote) > 1 or (self.quote and (self.quote in "\r\n" or ord(self.quote) > 127)):
            raise ParameterError(f"quote must be one ASCII character or '', got {self.quote!r}")
        if self.quote == self.delimiter:
            raise ParameterError(f"quote must differ from the delimiter, got {self.quote!r} for both")
        if self.header is False or self.header == ():
            raise ParameterError(
                "header must be true or a list of column names; without a header line, list the names"
            )

    @property
    def records(self) -> Records:
        """The grammar of a record."""
        return Records(self.delimiter, self.quote, self.newlines_in_values)


def _plan(file: InputFile, compression: str | None, source: Source, opener: Opener) -> FilePlan:
    head = read_head(file.path, compression, opener)
    header = _header(file.path, head, source)
    if not set(source.names) <= set(header) and head.strip():
        _look_for_delimiter(file.path, head, source)
    types = {name: kind for name, kind in source.kinds.items() if name in header}
    whole = source.option(CsvOptions).records.spans
    return plan_lines(
        file, "csv", compression, source, head=head, columns=header, types=types, whole=whole, header=header
    )


def _header(path: str, head: bytes, source: Source) -> tuple[str, ...]:
    """Column names: those of the source, or those in the first line."""
    options = source.option(CsvOptions)
    if isinstance(options.header, tuple):
        return options.header
    line, rejects = head[: head.find(b"\n") + 1 or len(head)], Rejects(path, False)
    good, _ = options.records.good(line, 0, True, rejects)
    if rejects.counts:
        reason = next(iter(rejects.counts))
        remedy = "convert line ends to LF" if "carriage" in reason else "a header is one line"
        raise InputError(f"{path}: {reason} in the header; {remedy}, or list the names under csv.header")
    rows = [options.records.fields(record) for _, record in options.records.lines(b"".join(good))]
    names = tuple(name.decode("utf-8", "replace").strip() for name in (rows[0] if rows else ()))
    twice = next((name for name in source.names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"{path}: column {twice!r} occurs {names.count(twice)} times in the header; rename one"
        )
    return names


def _look_for_delimiter(path: str, head: bytes, source: Source) -> None:
    """Says so where another delimiter makes the columns of the first line that are looked for."""
    options = source.option(CsvOptions)
    if options.header is not True:
        return
    for sign in ("\t", ";", "|", ",", ":", " "):
        if sign not in (options.delimiter, options.quote):
            other = replace(options, delimiter=sign)
            others = tuple(given for given in source.options if not isinstance(given, CsvOptions))
            try:
                names = _header(path, head, replace(source, options=(other, *others)))
            except InputError:
                continue
            if set(source.names) <= set(names):
                raise InputError(
                    f"{path}: its columns are separated by {sign!r}; set csv.delimiter to {sign!r}"
                )


def _read(item: WorkItem, plan: InputPlan, opener: Opener) -> Iterator[Chunk]:
    """Batches of the item's records; the header line is not one."""
    options = plan.source.option(CsvOptions)
    rejects = Rejects(item.path, plan.source.keep_bad)
    blocks = line_blocks(item, opener, plan.source.block_bytes, rejects)
    if item.start == 0 and options.header is True:
        blocks = _without_header(blocks)
    for block in _record_blocks(blocks, options.records, rejects):
        parts = [
            keep_good(arrays, plan, rejects, places, decoded=True)
            for arrays, places in _parse(block, item.header, plan, rejects)
        ]
        batch = pa.concat_batches(parts) if len(parts) > 1 else parts[0] if parts else plan.empty
        yield Chunk(batch, block.size, *rejects.take())


def _without_header(blocks: Iterator[Block]) -> Iterator[Block]:
    skipped = False
    for block in blocks:
        end = 0 if skipped else block.data.find(b"\n") + 1 or len(block.data)
        skipped = skipped or bool(block.data)
        yield Block(block.offset + end, block.data[end:], block.size)


def _record_blocks(blocks: Iterator[Block], records: Records, rejects: Rejects) -> Iterator[Block]:
    """Blocks of whole records; a record that spans lines may have begun in a block before."""
    at, rest = 0, b""
    for block in blocks:
        if rest and block.offset != at + len(rest):  # a line too long to be in a record was taken out
            yield from _good(at, rest, 0, True, records, rejects)[0]
            rest = b""
        data = rest + block.data if rest else block.data
        at = block.offset - len(rest)
        good, end = _good(at, data, block.size, False, records, rejects)
        yield from good
        at, rest = at + end, data[end:]
    yield from _good(at, rest, 0, True, records, rejects)[0]


def _good(
    at: int, data: bytes, size: int, final: bool, records: Records, rejects: Rejects
) -> tuple[list[Block], int]:
    pieces, end = records.good(data, at, final, rejects)
    return [Block(at, pieces[0] if len(pieces) == 1 else b"".join(pieces), size)], end


def _parse(
    block: Block, header: tuple[str, ...], plan: InputPlan, rejects: Rejects
) -> Iterator[tuple[list[pa.Array], Places]]:
    """(columns in the order of the schema, where the records begin) of the block, in parts."""
    if not block.data:
        return
    trial = Rejects(rejects.path, rejects.keep)
    # pyarrow takes a byte-order mark from the beginning of a text alone
    plain = BOM not in block.data and is_utf8(block.data)
    arrays = _by_arrow(block, header, plan, trial) if plain else None
    if arrays is not None:
        rejects.merge(trial)
        yield arrays, lambda: _places(block, header, plan)
        return
    records = plan.source.option(CsvOptions).records
    middle = block.data.find(b"\n", len(block.data) // 2, -1) + 1  # the last newline parts nothing
    if len(block.data) <= _SLOW_BYTES or not middle or (records.spans and records.quote in block.data):
        yield _one_by_one(block, header, plan, rejects)
        return
    yield from _parse(Block(block.offset, block.data[:middle], 0), header, plan, rejects)
    yield from _parse(Block(block.offset + middle, block.data[middle:], 0), header, plan, rejects)


def _by_arrow(
    block: Block, header: tuple[str, ...], plan: InputPlan, rejects: Rejects
) -> list[pa.Array] | None:
    types = {field.name: field.type for field in plan.raw}
    options = _arrow(
        header, types, plan.raw.names, plan.source.option(CsvOptions), rejects, block.offset, block.data
    )
    try:
        table = pacsv.read_csv(pa.BufferReader(block.data), **options)
    except pa.ArrowInvalid:
        return None
    return [_one(table.column(name)) for name in plan.raw.names]


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _arrow(
    header: tuple[str, ...],
    types: dict[str, pa.DataType],
    names: list[str],
    options: CsvOptions,
    rejects: Rejects,
    at: int,
    data: bytes,
) -> dict[str, Any]:
    def set_aside(row: Any) -> str:
        # a line of the same bytes has the same fate, so the first of them is its place
        text = row.text.encode("utf-8", "surrogateescape")
        reason = f"{row.actual_columns} fields instead of {row.expected_columns}"
        rejects.add(reason, at + data.find(text) if rejects.room(reason) else -1, text)
        return "skip"

    return {
        "read_options": pacsv.ReadOptions(column_names=header),
        "parse_options": pacsv.ParseOptions(
            delimiter=options.delimiter,
            quote_char=options.quote or False,
            newlines_in_values=options.records.spans,
            invalid_row_handler=set_aside,
        ),
        "convert_options": _conversion(types, names),
    }


def _conversion(types: dict[str, pa.DataType], names: list[str]) -> pacsv.ConvertOptions:
    return pacsv.ConvertOptions(
        column_types=types,
        include_columns=names,
        strings_can_be_null=True,
        null_values=[""],
        check_utf8=False,
    )


def _one_by_one(
    block: Block, header: tuple[str, ...], plan: InputPlan, rejects: Rejects
) -> tuple[list[pa.Array], Places]:
    """The same, record by record, for a block that holds undecodable bytes or values of another type."""
    where = [header.index(name) for name in plan.raw.names]
    texts = Texts(plan, _convert)
    records = plan.source.option(CsvOptions).records
    for start, record in records.lines(block.data):
        row = records.fields(record)
        if len(row) != len(header):
            rejects.add(f"{len(row)} fields instead of {len(header)}", block.offset + start, record)
        else:
            texts.add([row[at] or None for at in where], block.offset + start, record)
    return texts.arrays(rejects), texts.places


def _places(block: Block, header: tuple[str, ...], plan: InputPlan) -> NDArray[np.int64]:
    """Where the records with the right number of fields begin."""
    records = plan.source.option(CsvOptions).records
    rows = records.lines(block.data)
    starts = [start for start, record in rows if len(records.fields(record)) == len(header)]
    return np.array(starts, np.int64) + block.offset


def _convert(values: list[bytes | None], kind: pa.DataType) -> pa.Array:
    """Values that are no text as pyarrow reads them from a file: blanks around numbers, spellings of booleans."""
    lines = b"".join(b'"%s"\n' % (value or b"").replace(b'"', b'""') for value in values)
    table = pacsv.read_csv(
        pa.BufferReader(lines),
        read_options=pacsv.ReadOptions(column_names=["x"]),
        parse_options=pacsv.ParseOptions(newlines_in_values=True),
        convert_options=_conversion({"x": kind}, ["x"]),
    )
    return _one(table.column("x"))


FORMAT = Format(
    "csv",
    (".csv", ".tsv"),
    _plan,
    _read,
    pieces="file; byte ranges with `csv.newlines_in_values: false`",
    options=CsvOptions,
)
