r"""CSV: blocks of whole records, parsed by pyarrow; what it refuses is read record by record, by the same rule.

**What a record is** follows from its own bytes. A line ends with LF or CRLF; a byte-order mark at its beginning is not
part of it. Its fields stand between delimiters. A field that begins with a quote ends with one, followed by a delimiter
or the line's end, and holds quotes doubled; anywhere else a quote is text. A line that is not so (a quote never closed,
text after a closing quote, a carriage return inside) is rejected, and reading goes on with the next line.

An empty field is a missing value: CSV cannot express it otherwise.

Where values may hold newlines, a record may span lines, up to MAX_SPAN_BYTES. If no record in that reach begins with
a line (its quote is still open there, or at the end of the file), that line alone is rejected. What cannot be
promised then: the lines between an opening quote without its closing one and a quote further on that happens to
close it are one record, at most MAX_SPAN_BYTES of them. Writers that quote as above never make such a line.

From the middle of a file nobody can tell whether a newline is inside quotes; so a CSV file is one work item, read from
its beginning, unless the source says that values hold no newlines (`newlines_in_values=False`); then it is cut into
byte ranges like any file of lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from hushgram.errors import InputError, ParameterError
from hushgram.inputs.blocks import BOM, Block, line_blocks, read_head
from hushgram.inputs.columns import Texts, is_utf8
from hushgram.inputs.formats.format import FilePlan, Format, Parsed, chunks_of, halves, plan_lines
from hushgram.inputs.source import Chunk, InputFile, InputPlan, Opener, Rejects, Source, WorkItem

__all__ = ["FORMAT", "MAX_SPAN_BYTES", "CsvOptions", "Records"]

# A quote that is never closed costs at most this many bytes of other lines.
MAX_SPAN_BYTES = 1 << 20
# A block that pyarrow refuses is halved down to this size before it is read record by record.
_SLOW_BYTES = 1 << 18
_MARK = rb"(?:\xef\xbb\xbf)?+"


class Records:
    """The grammar for one delimiter and quote; `spans` where values may hold newlines."""

    def __init__(self, delimiter: str, quote: str, spans: bool) -> None:
        self.delimiter, self.quote, self.spans = delimiter.encode(), quote.encode(), spans and bool(quote)

    @cached_property
    def _field(self) -> str:
        """The pattern of a field: in quotes, or plain."""
        d, q = re.escape(self.delimiter.decode()), re.escape(self.quote.decode())
        if not self.quote:
            return rf"[^{d}\r\n]*+"
        inside = rf"[^{q}]*+" if self.spans else rf"[^{q}\n]*+"
        return rf"(?:{q}{inside}(?:{q}{q}{inside})*+{q}(?!{q})|(?:[^{d}{q}\r\n][^{d}\r\n]*+)?)"

    @cached_property
    def _record(self) -> re.Pattern[bytes]:
        return self._fields_and(r"\r?\n")

    @cached_property
    def _last(self) -> re.Pattern[bytes]:
        return self._fields_and(r"\r?\n?\Z")

    def _fields_and(self, end: str) -> re.Pattern[bytes]:
        d = re.escape(self.delimiter.decode())
        return re.compile(_MARK + rf"{self._field}(?:{d}{self._field})*+{end}".encode())

    @cached_property
    def _split(self) -> re.Pattern[bytes]:
        d, q = re.escape(self.delimiter.decode()), re.escape(self.quote.decode())
        return re.compile(rf"{q}((?:[^{q}]|{q}{q})*+){q}|([^{d}]*+)".encode())

    def good(self, data: bytes, at: int, final: bool, rejects: Rejects) -> tuple[list[bytes], int]:
        """Return (the records of `data` in pieces, how many bytes are decided); other lines are rejected.

        `data` are whole lines that begin with a record, at byte `at` of the text; `final` says that nothing
        comes after them.
        """
        quotes, end = self._quotes(data)
        if quotes is None:
            return [data] if data else [], len(data)
        if self.quote and end == len(data) and self._regular(data, quotes):
            last = self._last_even(data, quotes)
            if last is not None and (last == len(data) or (not final and len(data) - last <= MAX_SPAN_BYTES)):
                return [data[:last]] if last else [], last
        return self._one_by_one(data, at, final, rejects)

    def _quotes(self, data: bytes) -> tuple[NDArray[np.int64] | None, int]:
        """Return (positions of quotes, None if every line is plain; the length, 0 if there is a lone return)."""
        lone = b"\r" in data and data.count(b"\r") - data.endswith(b"\r") != data.count(b"\r\n")
        if not lone and (not self.quote or self.quote not in data):
            return None, len(data)
        if not self.quote or lone:
            return np.empty(0, np.int64), 0
        return np.flatnonzero(np.frombuffer(data, np.uint8) == self.quote[0]), len(data)

    def _regular(self, data: bytes, quotes: NDArray[np.int64]) -> bool:
        """Return whether quotes open and close in turn: each opening one starts a field, each closing one ends it.

        (A doubled quote is a closing and an opening one.)
        """
        raw = np.frombuffer(data, np.uint8)
        edge = np.zeros(256, bool)
        edge[[self.delimiter[0], 10, 13, self.quote[0]]] = True
        opening, closing = quotes[::2], quotes[1::2]
        starts = edge[raw[np.maximum(opening - 1, 0)]] | (opening == 0)
        ends = edge[raw[np.minimum(closing + 1, len(raw) - 1)]] | (closing == len(raw) - 1)
        return bool(starts.all() and ends.all())

    def _last_even(self, data: bytes, quotes: NDArray[np.int64]) -> int | None:
        """Return where the last record of regular data ends; None where a record is longer than may be."""
        lines = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
        even = np.searchsorted(quotes, lines) % 2 == 0
        if even.all():  # each line is a record; what is open behind them has no newline yet
            whole = len(quotes) % 2 == 0
            return len(data) if whole else None
        if not self.spans:
            return None
        ends = lines[even] + 1
        if np.diff(ends, prepend=0).max(initial=0) > MAX_SPAN_BYTES:
            return None
        last = int(ends[-1]) if len(ends) else 0
        if data.endswith(b"\n"):
            return last
        return len(data) if len(quotes) % 2 == 0 and len(data) - last <= MAX_SPAN_BYTES else None

    def _one_by_one(self, data: bytes, at: int, final: bool, rejects: Rejects) -> tuple[list[bytes], int]:
        """Do the same for lines of any kind; only those with a quote or a return are looked at one by one."""
        raw = np.frombuffer(data, np.uint8)
        returns = np.flatnonzero(raw == 13)
        events = returns[raw[np.minimum(returns + 1, len(raw) - 1)] != 10]
        if self.quote:
            events = np.sort(np.append(events, np.flatnonzero(raw == self.quote[0])))
        good: list[bytes] = []
        begun = here = index = 0  # begun: of the good bytes not yet taken
        while (index := int(np.searchsorted(events[index:], here)) + index) < len(events):
            start = max(here, data.rfind(b"\n", here, int(events[index])) + 1)
            stop = data.find(b"\n", start) + 1 or len(data)
            found = self._last.match(data, start, stop)
            if found is None and self.spans:
                found = self._record.match(data, start, min(len(data), start + MAX_SPAN_BYTES))
                if found is None and final and len(data) - start <= MAX_SPAN_BYTES:
                    found = self._last.match(data, start)
            if found is not None:
                here = found.end()
                continue
            if self.spans and not final and len(data) - start < MAX_SPAN_BYTES:
                return [*good, data[begun:start]], start  # not decided yet
            line = data[start:stop].rstrip(b"\r\n")
            rejects.add(self._problem(line), at + start, line)
            good.append(data[begun:start])
            begun = here = stop
        return [*good, data[begun:]], len(data)

    def _problem(self, line: bytes) -> str:
        return "quote is not closed" if self.quote and self.quote in line else "carriage return inside a line"

    def lines(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield (where it begins, record without its end) of good data; empty lines are skipped."""
        at = 0
        while at < len(data):
            stop = data.find(b"\n", at) + 1 or len(data)
            if self.spans and self.quote in data[at:stop] and not self._last.match(data, at, stop):
                found = self._record.match(data, at)
                stop = found.end() if found else len(data)
            record = data[at:stop].removesuffix(b"\n").removesuffix(b"\r").removeprefix(BOM)
            if record:
                yield at, record
            at = stop

    def fields(self, record: bytes) -> list[bytes]:
        """Return the values of a record."""
        if not self.quote or self.quote not in record:
            return record.split(self.delimiter)
        values, at = [], 0
        while True:
            found = self._split.match(record, at)
            assert found is not None
            quoted = found.group(1)
            values.append(found.group(2) if quoted is None else quoted.replace(self.quote * 2, self.quote))
            if found.end() == len(record):
                return values
            at = found.end() + 1


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
        """Return the grammar of a record."""
        return Records(self.delimiter, self.quote, self.newlines_in_values)


def _plan(file: InputFile, compression: str | None, source: Source, opener: Opener) -> FilePlan:
    head = read_head(file.path, compression, opener)
    header = _header(file.path, head, source)
    if not set(source.names) <= set(header) and head.strip():
        _look_for_delimiter(file.path, head, source)
    whole = source.option(CsvOptions).records.spans
    return plan_lines(file, "csv", compression, source, head=head, columns=header, whole=whole, header=header)


def _header(path: str, head: bytes, source: Source) -> tuple[str, ...]:
    """Return the column names: those of the source, or those in the first line."""
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
    """Raise an InputError if another delimiter makes the columns of the first line that are looked for."""
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
                    f"{path}: its columns are separated by {sign!r}; set input.csv.delimiter to {sign!r}"
                )


def _read(item: WorkItem, plan: InputPlan, opener: Opener) -> Iterator[Chunk]:
    """Read an item; the header line is not a record."""
    options = plan.source.option(CsvOptions)
    rejects = Rejects(item.path, plan.source.keep_rejected)
    blocks = line_blocks(item, opener, plan.source.block_bytes, rejects)
    if item.start == 0 and options.header is True:
        blocks = _without_header(blocks)
    records = _record_blocks(blocks, options.records, rejects)
    yield from chunks_of(records, lambda block: _parse(block, item.header, plan, rejects), plan, rejects)


def _without_header(blocks: Iterator[Block]) -> Iterator[Block]:
    skipped = False
    for block in blocks:
        end = 0 if skipped else block.data.find(b"\n") + 1 or len(block.data)
        skipped = skipped or bool(block.data)
        yield Block(block.offset + end, block.data[end:], block.size)


def _record_blocks(blocks: Iterator[Block], records: Records, rejects: Rejects) -> Iterator[Block]:
    """Yield blocks of whole records; a record that spans lines may have begun in a block before."""
    at, rest = 0, b""
    for block in blocks:
        if rest and block.offset != at + len(rest):  # a line too long to be in a record was taken out
            yield Block(at, b"".join(records.good(rest, at, True, rejects)[0]), 0)
            rest = b""
        data = rest + block.data if rest else block.data
        at = block.offset - len(rest)
        good, end = records.good(data, at, False, rejects)
        yield Block(at, good[0] if len(good) == 1 else b"".join(good), block.size)
        at, rest = at + end, data[end:]
    yield Block(at, b"".join(records.good(rest, at, True, rejects)[0]), 0)


def _parse(block: Block, header: tuple[str, ...], plan: InputPlan, rejects: Rejects) -> Iterator[Parsed]:
    """Parse a block of records, in parts."""
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
    parts = None if records.spans and records.quote in block.data else halves(block, _SLOW_BYTES)
    if parts is None:
        yield _one_by_one(block, header, plan, rejects)
    for part in parts or ():
        yield from _parse(part, header, plan, rejects)


def _by_arrow(
    block: Block, header: tuple[str, ...], plan: InputPlan, rejects: Rejects
) -> list[pa.Array] | None:
    """Parse a block by pyarrow; None where it refuses."""
    options = plan.source.option(CsvOptions)

    def reject(row: Any) -> str:
        # a line of the same bytes has the same fate, so the first of them is its place
        text = row.text.encode("utf-8", "surrogateescape")
        reason = f"{row.actual_columns} fields instead of {row.expected_columns}"
        rejects.add(reason, block.offset + block.data.find(text) if rejects.room(reason) else -1, text)
        return "skip"

    try:
        table = pacsv.read_csv(
            pa.BufferReader(block.data),
            read_options=pacsv.ReadOptions(column_names=header),
            parse_options=pacsv.ParseOptions(
                delimiter=options.delimiter,
                quote_char=options.quote or False,
                newlines_in_values=options.records.spans,
                invalid_row_handler=reject,
            ),
            convert_options=_conversion({field.name: field.type for field in plan.raw}, plan.raw.names),
        )
    except pa.ArrowInvalid:
        return None
    return [_one(table.column(name)) for name in plan.raw.names]


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _conversion(types: dict[str, pa.DataType], names: list[str]) -> pacsv.ConvertOptions:
    return pacsv.ConvertOptions(
        column_types=types,
        include_columns=names,
        strings_can_be_null=True,
        null_values=[""],
        check_utf8=False,
    )


def _one_by_one(block: Block, header: tuple[str, ...], plan: InputPlan, rejects: Rejects) -> Parsed:
    """Parse a block that holds undecodable bytes or values of another type, record by record."""
    where = [header.index(name) for name in plan.raw.names]
    texts = Texts(plan, _convert)
    records = plan.source.option(CsvOptions).records
    for start, record in records.lines(block.data):
        row = records.fields(record)
        if len(row) != len(header):
            rejects.add(f"{len(row)} fields instead of {len(header)}", block.offset + start, record)
        else:
            texts.add([row[at] or None for at in where], block.offset + start, record)
    return texts.arrays(rejects)


def _places(block: Block, header: tuple[str, ...], plan: InputPlan) -> NDArray[np.int64]:
    """Return where the records with the right number of fields begin."""
    records = plan.source.option(CsvOptions).records
    rows = records.lines(block.data)
    starts = [start for start, record in rows if len(records.fields(record)) == len(header)]
    return np.array(starts, np.int64) + block.offset


def _convert(values: list[bytes | None], kind: pa.DataType) -> pa.Array:
    """Convert values as pyarrow reads them from a file: blanks around numbers, spellings of booleans."""
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
