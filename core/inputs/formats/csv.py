"""CSV: blocks cut where a record ends, parsed by pyarrow; a block that fails is read again, record by record.

Quoted newlines. A newline inside quotes does not end a record, and from the middle of a file nobody can tell
whether it is inside. So a CSV file is one work item, read from its beginning, unless the source says that
values hold no newlines (`newlines_in_values=False`); then it is cut into byte ranges like any file of lines.

An empty field is a missing value: CSV has no other way to say so.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from hushgram.errors import InputError, ParameterError
from hushgram.inputs.blocks import Block, last_line, line_blocks, read_head
from hushgram.inputs.columns import Texts, is_utf8, keep_good
from hushgram.inputs.formats.format import FilePlan, Format
from hushgram.inputs.formats.lines import plan_lines
from hushgram.inputs.source import (
    MAX_LINE_BYTES,
    Chunk,
    InputFile,
    InputPlan,
    Opener,
    Rejects,
    Source,
    WorkItem,
)

__all__ = ["FORMAT", "CsvOptions", "record_end"]


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
    def spans_lines(self) -> bool:
        """Whether a record may hold newlines."""
        return self.newlines_in_values and bool(self.quote)


def _plan(file: InputFile, compression: str | None, source: Source, opener: Opener) -> FilePlan:
    head = read_head(file.path, compression, opener)
    header = csv_header(file.path, head, source)
    types = infer_csv(head, header, source) if set(source.names) <= set(header) else {}
    whole = source.option(CsvOptions).spans_lines
    return plan_lines(
        file, "csv", compression, source, head=head, columns=header, types=types, whole=whole, header=header
    )


def csv_header(path: str, head: bytes, source: Source) -> tuple[str, ...]:
    """Column names: those of the source, or those in the first line."""
    options = source.option(CsvOptions)
    if isinstance(options.header, tuple):
        return options.header
    row = next(_records(head.decode("utf-8-sig", "replace"), options), [])
    names = tuple(name.strip() for name in row)
    twice = next((name for name in source.names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"{path}: column {twice!r} occurs {names.count(twice)} times in the header; rename one"
        )
    return names


def infer_csv(head: bytes, header: tuple[str, ...], source: Source) -> dict[str, pa.DataType]:
    """Types of the columns that are not identifiers, from the beginning of the file."""
    names = [name for name in source.names if name not in source.ids]
    csv_options = source.option(CsvOptions)
    head = head[: record_end(head, csv_options) or len(head)]
    if not names or not head.strip():
        return {}
    try:
        options = _options(
            header, {}, names, csv_options, Rejects("", False), int(csv_options.header is True)
        )
        schema = pacsv.read_csv(pa.BufferReader(head), **options).schema
    except pa.ArrowInvalid:
        return {name: pa.string() for name in names}
    return {
        f.name: pa.string() if pa.types.is_null(f.type) or pa.types.is_time(f.type) else f.type
        for f in schema
    }


def _read(item: WorkItem, plan: InputPlan, opener: Opener) -> Iterator[Chunk]:
    """Batches of the item's records; the header line is not one."""
    options = plan.source.option(CsvOptions)
    rejects = Rejects(item.path, plan.source.keep_bad)
    cut = (lambda block: record_end(block, options)) if options.spans_lines else last_line
    skip = int(item.start == 0 and options.header is True)
    for block in line_blocks(item, opener, plan.source.block_bytes, rejects, cut):
        arrays = (
            _parse(block, item.header, plan, rejects, skip)
            if block.data and not block.data.isspace()
            else None
        )
        skip = skip if arrays is None else 0
        batch = plan.empty if arrays is None else keep_good(arrays, plan, rejects, block.offset, decoded=True)
        yield Chunk(batch, block.size, *rejects.take())


def _parse(
    block: Block, header: tuple[str, ...], plan: InputPlan, rejects: Rejects, skip: int
) -> list[pa.Array]:
    """The block's columns in the order of the schema; what pyarrow refuses is read record by record."""
    if not is_utf8(block.data):
        return _slowly(block, header, plan, rejects, skip)
    trial = Rejects(rejects.path, rejects.keep)
    types = {field.name: field.type for field in plan.schema}
    try:
        options = _options(
            header, types, plan.schema.names, plan.source.option(CsvOptions), trial, skip, block.offset
        )
        table = pacsv.read_csv(pa.BufferReader(block.data), **options)
    except pa.ArrowInvalid:
        return _slowly(block, header, plan, rejects, skip)
    rejects.merge(trial)
    return [_one(table.column(name)) for name in plan.schema.names]


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _options(
    header: tuple[str, ...],
    types: dict[str, pa.DataType],
    names: list[str],
    options: CsvOptions,
    rejects: Rejects,
    skip: int,
    at: int = 0,
) -> dict[str, Any]:
    def set_aside(row: Any) -> str:
        rejects.add(f"{row.actual_columns} fields instead of {row.expected_columns}", at, row.text)
        return "skip"

    return {
        "read_options": pacsv.ReadOptions(column_names=header, skip_rows=skip),
        "parse_options": pacsv.ParseOptions(
            delimiter=options.delimiter,
            quote_char=options.quote or False,
            newlines_in_values=options.spans_lines,
            invalid_row_handler=set_aside,
        ),
        "convert_options": pacsv.ConvertOptions(
            column_types=types,
            include_columns=names,
            strings_can_be_null=True,
            null_values=[""],
            check_utf8=False,
        ),
    }


def _slowly(
    block: Block, header: tuple[str, ...], plan: InputPlan, rejects: Rejects, skip: int
) -> list[pa.Array]:
    """Record by record, for a block that holds undecodable bytes or values of another type."""
    where = [header.index(name) for name in plan.schema.names]
    texts = Texts(plan)
    options = plan.source.option(CsvOptions)
    for number, row in enumerate(_records(block.data.decode("utf-8", "surrogateescape"), options)):
        if number < skip or not row:
            continue
        record = options.delimiter.join(row)
        if len(row) != len(header):
            rejects.add(f"{len(row)} fields instead of {len(header)}", block.offset, record)
            continue
        texts.add([row[at] or None for at in where], block.offset, record)
    return texts.arrays(rejects)


def _records(text: str, options: CsvOptions) -> Iterator[list[str]]:
    csv.field_size_limit(MAX_LINE_BYTES)
    reader = csv.reader(
        io.StringIO(text.replace("\0", "\ufffd"), newline=""),
        delimiter=options.delimiter,
        quotechar=options.quote or None,
        quoting=csv.QUOTE_MINIMAL if options.quote else csv.QUOTE_NONE,
    )
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield ["unreadable"]


def record_end(block: bytes, options: CsvOptions) -> int:
    """Length of the longest prefix of `block` that ends with a newline outside quotes; 0 where there is none.

    `block` begins with a record. A quote opens only at the start of a field, as in pyarrow's parser.
    """
    at = block.rfind(b"\n")
    if at < 0 or not options.quote or block.find(options.quote.encode()) < 0:
        return at + 1
    data = np.frombuffer(block, np.uint8)
    quotes = np.flatnonzero(data == ord(options.quote))
    if not _regular(data, quotes, options):
        quotes = _real_quotes(data, quotes, options)
    while at >= 0:
        before = int(np.searchsorted(quotes, at))
        if before % 2 == 0:
            return at + 1
        at = block.rfind(b"\n", 0, int(quotes[before - 1]))
    return 0


def _regular(data: NDArray[np.uint8], quotes: NDArray[np.int64], options: CsvOptions) -> bool:
    """Whether quotes open and close in turn: each opening one starts a field, each closing one ends it."""
    edge = np.zeros(256, bool)
    edge[[ord(options.delimiter), 10, 13, ord(options.quote)]] = True
    opening, closing = quotes[::2], quotes[1::2]
    starts = edge[data[np.maximum(opening - 1, 0)]] | (opening == 0)
    ends = edge[data[np.minimum(closing + 1, len(data) - 1)]] | (closing == len(data) - 1)
    return bool(starts.all() and ends.all())


def _real_quotes(
    data: NDArray[np.uint8], quotes: NDArray[np.int64], options: CsvOptions
) -> NDArray[np.int64]:
    """The quotes that open or close, in turn; those inside a field without quotes are text."""
    edge = (ord(options.delimiter), 10, 13)
    real: list[int] = []
    index = 0
    while index < len(quotes):
        at = int(quotes[index])
        index += 1
        if at > 0 and data[at - 1] not in edge:
            continue
        real.append(at)
        while index + 1 < len(quotes) and quotes[index + 1] == quotes[index] + 1:
            index += 2  # a doubled quote is text
        if index < len(quotes):
            real.append(int(quotes[index]))
            index += 1
    return np.array(real, np.int64)


FORMAT = Format(
    "csv",
    (".csv", ".tsv"),
    _plan,
    _read,
    pieces="file; byte ranges with `csv.newlines_in_values: false`",
    options=CsvOptions,
)
