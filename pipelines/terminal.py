"""Terminal output: lines for people, and tables as aligned text, JSON lines, CSV or Parquet.

    @click.command()
    @format_options
    def command(..., style: str, output: str | None) -> None:
        print_table(table, style, output)

All commands print through this module. Keys, names, paths and messages may come from untrusted sources, so
`hushgram.names.printable` escapes every invisible character in text for people: none can move the cursor, start a new
line or reverse the text direction. JSON, CSV and Parquet preserve values exactly.
"""

from __future__ import annotations

import functools
import io
import json
import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import click
import pyarrow as pa

from hushgram.errors import OutputError
from hushgram.names import printable
from hushgram.publishing import put_file

__all__ = [
    "EXACT", "FORMATS", "EscapingFormatter", "csv_bytes", "file_size", "format_options", "json_text", "keys_options",
    "print_line", "print_lines", "print_note", "print_records", "print_table", "read_keys",
    "replace_file", "write_output",
]  # fmt: skip

#: Marks numbers on the operator's terminal that are not differentially private.
EXACT = "exact, not for publication"
FORMATS = ("table", "json", "csv", "parquet")
_SAFE_CSV = "safe-csv"  # the style that `--format csv --safe-csv` stands for
_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")  # the last four are full-width = + - @
C = TypeVar("C", bound=Callable[..., Any])


def print_line(text: str = "", *, err: bool = False, file: IO[str] | None = None) -> None:
    """Print one line for people, escaped."""
    click.echo(printable(text), err=err, file=file)


def file_size(size: int) -> str:
    """Return a number of bytes for people.

    >>> file_size(999), file_size(1_234_567)
    ('999 bytes', '1.2 MB')
    """
    if size < 1000:
        return f"{size} bytes"
    power = min((len(str(size)) - 1) // 3, 5)
    return f"{size / 1000**power:,.1f} {' kMGTP'[power]}B"


def json_text(value: Any, indent: int | None = None) -> str:
    r"""Return JSON in which every invisible character is escaped.

    >>> print(json_text({"a": "é\u202e\x7f"}))
    {"a": "é\u202e\u007f"}
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


class EscapingFormatter(logging.Formatter):
    """Format records of Python's logging (Beam writes these): the message on one line, a traceback indented below."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return "\n".join(f"  {printable(line)}" for line in super().formatException(ei).split("\n"))


def format_options(function: C) -> C:
    """Add ``--format``, ``--safe-csv`` and ``--output``, passed as `style` and `output`."""

    @functools.wraps(function)
    def run(*arguments: Any, style: str, safe_csv: bool, **options: Any) -> Any:
        if safe_csv and style != "csv":
            raise click.UsageError("--safe-csv needs --format csv")
        return function(*arguments, style=_SAFE_CSV if safe_csv else style, **options)

    for add in (
        click.option(
            "-o", "--output", metavar="FILE", type=click.Path(), help="Write to FILE, not to standard output."
        ),
        click.option(
            "--safe-csv", is_flag=True,
            help="With --format csv: put ' before text that begins with = + - @, a tab or a line break, which "
            "spreadsheets run as a formula. Without this option, text is written unchanged.",
        ),
        click.option(
            "--format", "style", type=click.Choice(FORMATS), default="table", show_default=True,
            help="Aligned text for people; the other formats are for programs.",
        ),
    ):  # fmt: skip
        run = add(run)
    return cast(C, run)


def keys_options(function: C) -> C:
    """Add SKETCH, KEYS, ``--keys-file`` and ``--level``; see `read_keys`."""
    for add in (
        click.option(
            "--level", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95,
            show_default=True, help="Confidence level of the intervals.",
        ),
        click.option("--keys-file", metavar="FILE", help="File with one key per line; - for standard input."),
        click.argument("keys", nargs=-1),
        click.argument("sketch", type=click.Path()),
    ):  # fmt: skip
        function = add(function)
    return function


def print_table(table: pa.Table, style: str, output: str | None = None, digits: int = 1) -> None:
    """Print a table in one of `FORMATS`, or write it to the file `output`."""
    if style == "parquet":
        import pyarrow.parquet as pq

        if output is None and sys.stdout.isatty():
            raise click.UsageError("parquet is not text; use --output FILE")
        sink = io.BytesIO()
        pq.write_table(table, sink)
        write_output(sink.getvalue(), output)
    elif style in ("csv", _SAFE_CSV):
        if output is None and sys.stdout.isatty():  # elsewhere keys stay unchanged
            table = _with_texts(table, printable)
        write_output(csv_bytes(table, safe=style == _SAFE_CSV), output)
    elif style == "json":
        rows = _with_texts(table).to_pylist()
        write_output("".join(json_text(row) + "\n" for row in rows), output)
    else:
        write_output("".join(line + "\n" for line in _aligned(table, digits)), output)


def csv_bytes(table: pa.Table, *, safe: bool) -> bytes:
    """Return a table as CSV.

    With `safe`, text that a spreadsheet would run as a formula gets a leading single quote; without it, CSV preserves
    values exactly.
    """
    import pyarrow.csv as csv

    def quoted(text: str) -> str:
        return f"'{text}" if text.startswith(_FORMULA) else text

    sink = io.BytesIO()
    csv.write_csv(_with_texts(table, quoted if safe else str), sink)
    return sink.getvalue()


def print_records(records: Any, style: str, output: str | None = None) -> None:
    """Print nested records: unchanged in JSON; in a table, nested values become JSON text."""
    if style == "json":
        write_output(json_text(records, indent=2) + "\n", output)
        return

    def flat(value: Any) -> Any:
        return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | tuple) else value

    rows = [{name: flat(value) for name, value in record.items()} for record in records]
    print_table(pa.Table.from_pylist(rows), style, output)


def print_lines(lines: Iterable[tuple[str, str]], style: str = "table", output: str | None = None) -> None:
    """Print (name, text) pairs: wrapped to the terminal for people, as rows for programs."""
    import shutil
    import textwrap

    rows = list(lines)
    if style != "table":
        names, texts = [name for name, _ in rows], [text for _, text in rows]
        print_table(pa.table({"name": pa.array(names, pa.string()), "text": texts}), style, output)
        return
    indent = max([len(printable(name)) for name, _ in rows], default=0) + 2
    wrapper = textwrap.TextWrapper(
        width=max(shutil.get_terminal_size((110, 20)).columns, 60), subsequent_indent=" " * indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    filled = []
    for name, text in rows:
        wrapper.initial_indent = printable(name).ljust(indent)
        filled.append((wrapper.fill(printable(text)) or wrapper.initial_indent).rstrip() + "\n")
    write_output("".join(filled), output)


def print_note(text: str, style: str) -> None:
    """Print a note for people about the table above, on standard error so that the output holds only rows."""
    if style == "table":
        print_line(text, err=True)


def read_keys(keys: tuple[str, ...], keys_file: str | None) -> list[str] | list[bytes]:
    """Return the keys of the command line, or of a file with one key per line (``-`` is standard input)."""
    if keys and keys_file:
        raise click.UsageError("give keys or --keys-file, not both")
    if keys_file is None:
        if not keys:
            raise click.UsageError("give one key or more, or --keys-file")
        return list(keys)
    from hushgram.inputs.key_lists import (
        read_key_list,
    )  # a lookup of keys on the command line needs no parser

    return read_key_list(keys_file, "--keys-file", repeated=True)


def write_output(content: str | bytes, output: str | None) -> None:
    """Write to standard output, or replace the file `output` in one step: readers never see half of it."""
    if output is None:
        click.echo(content, nl=False)
        return
    replace_file("--output", output, content.encode() if isinstance(content, str) else content)


def replace_file(option: str, path: str | Path, content: bytes | None, *, private: bool = False) -> None:
    """Write the file that an option names; without content, only check that it can be written."""
    try:
        put_file(path, content, private=private)
    except OSError as problem:
        raise OutputError(f"{option} {path} cannot be written: {problem.strerror}") from None


def _with_texts(table: pa.Table, change: Callable[[str], str] = str) -> pa.Table:
    """Return the table with `change` applied to names and text; bytes that are not UTF-8 are escaped."""
    names = [change(name) for name in table.column_names]
    return pa.table([_texts(column, change) for column in table.columns], names=names)


def _texts(column: pa.ChunkedArray, change: Callable[[str], str]) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_large_binary(column.type) or pa.types.is_binary(column.type):
        texts = [value.decode("utf-8", "backslashreplace") for value in column.to_pylist()]
    elif (pa.types.is_large_string(column.type) or pa.types.is_string(column.type)) and change is not str:
        texts = column.to_pylist()
    else:
        return column
    return pa.array([None if text is None else change(text) for text in texts], pa.string())


def _aligned(table: pa.Table, digits: int) -> Iterable[str]:
    table = _with_texts(table, printable)
    columns = [[_cell(value, digits) for value in column.to_pylist()] for column in table.columns]
    widths = [max(map(len, [name, *cells])) for name, cells in zip(table.column_names, columns, strict=True)]
    texts = [pa.types.is_string(t) or pa.types.is_large_string(t) for t in table.schema.types]
    formats = [f"{'<' if text else '>'}{width}" for width, text in zip(widths, texts, strict=True)]
    for row in [table.column_names, *zip(*columns, strict=True)]:
        yield "  ".join(map(format, row, formats)).rstrip()


def _cell(value: Any, digits: int) -> str:
    if value is None or value != value:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.{digits}f}"
    if isinstance(value, int):
        return f"{value:,}"
    return printable(str(value))
