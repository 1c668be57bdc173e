"""Rows for people and programs: aligned text, JSON lines, CSV or Parquet, on standard output or in a file.

    @click.command()
    @format_options
    def command(..., style: str, output: str | None) -> None:
        print_table(table, style, output)

Every command that prints rows has these options and no others for it. What people read is escaped
(`hushgram.names.printable`); JSON, CSV and Parquet read back exactly.
"""

from __future__ import annotations

import functools
import io
import json
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import click
import pyarrow as pa

from hushgram.errors import OutputError
from hushgram.names import printable
from hushgram.pipelines.console import json_text, say
from hushgram.publishing import put_file

__all__ = [
    "FORMATS", "csv_bytes", "format_options", "human_bytes", "print_lines", "print_note", "print_table",
    "read_keys", "write_output",
]  # fmt: skip

FORMATS = ("table", "json", "csv", "parquet")
_SAFE_CSV = "safe-csv"  # what `--format csv --safe-csv` is to `print_table`
_FORMULA = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
    "\n",
    "\uff1d",
    "\uff0b",
    "\uff0d",
    "\uff20",
)  # also in full width
C = TypeVar("C", bound=Callable[..., Any])


def format_options(command: C) -> C:
    """Adds ``--format``, ``--safe-csv`` and ``--output`` (as arguments `style` and `output`)."""
    if isinstance(command, click.Command):
        assert command.callback is not None
        command.callback = _with_safe_csv(command.callback)
    else:
        command = _with_safe_csv(command)
    for add in (
        click.option(
            "-o", "--output", metavar="FILE", type=click.Path(), help="Write there, not to standard output."
        ),
        click.option(
            "--safe-csv", is_flag=True,
            help="With --format csv: put ' before texts that begin with = + - @, a tab or a line break, which "
            "spreadsheets run as formulas. Without it they are written as they are.",
        ),
        click.option(
            "--format", "style", type=click.Choice(FORMATS), default="table", show_default=True,
            help="For people, or rows for programs.",
        ),
    ):  # fmt: skip
        command = add(command)
    return command


def _with_safe_csv(function: C) -> C:
    """Fold ``--safe-csv`` into `style`."""

    @functools.wraps(function)
    def run(*arguments: Any, style: str, safe_csv: bool, **options: Any) -> Any:
        if safe_csv and style != "csv":
            raise click.UsageError("--safe-csv needs --format csv")
        return function(*arguments, style=_SAFE_CSV if safe_csv else style, **options)

    return cast(C, run)


def print_table(table: pa.Table, style: str, output: str | None = None, digits: int = 1) -> None:
    """Prints or writes a table in one of `FORMATS`."""
    if style == "parquet":
        import pyarrow.parquet as pq

        if output is None and sys.stdout.isatty():
            raise click.UsageError("parquet is no text; give --output FILE")
        sink = io.BytesIO()
        pq.write_table(table, sink)
        write_output(sink.getvalue(), output)
    elif style in ("csv", _SAFE_CSV):
        if output is None and sys.stdout.isatty():  # elsewhere keys stay as they are
            table = _with_texts(table, printable)
        write_output(csv_bytes(table, safe=style == _SAFE_CSV), output)
    elif style == "json":
        rows = _with_texts(table).to_pylist()
        write_output("".join(json_text(row) + "\n" for row in rows), output)
    else:
        write_output("".join(line + "\n" for line in _aligned(table, digits)), output)


def csv_bytes(table: pa.Table, *, safe: bool) -> bytes:
    """Return a table as CSV.

    With `safe`, a text that a spreadsheet would take for a formula gets a single quote in front of it; without, CSV
    reads back exactly.
    """
    import pyarrow.csv as csv

    sink = io.BytesIO()
    csv.write_csv(_with_texts(table, _no_formula) if safe else _with_texts(table), sink)
    return sink.getvalue()


def _no_formula(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def print_records(records: Any, style: str, output: str | None = None) -> None:
    """Prints nested records: JSON as they are; in a table, what is nested is JSON text."""
    if style == "json":
        write_output(json_text(records, indent=2) + "\n", output)
        return
    rows = [
        {
            name: json.dumps(held, ensure_ascii=False) if isinstance(held, dict | list | tuple) else held
            for name, held in record.items()
        }
        for record in records
    ]
    print_table(pa.Table.from_pylist(rows), style, output)


def print_lines(lines: Iterable[tuple[str, str]], style: str = "table", output: str | None = None) -> None:
    """Prints (name, text) pairs: for people wrapped to the terminal, for programs as rows."""
    import shutil
    import textwrap

    rows = list(lines)
    if style != "table":
        names, texts = [name for name, _ in rows], [text for _, text in rows]
        print_table(pa.table({"name": pa.array(names, pa.string()), "text": texts}), style, output)
        return
    name_width = max([len(printable(name)) for name, _ in rows], default=0) + 2
    width = max(shutil.get_terminal_size((110, 20)).columns, 60)
    told = []
    for name, text in ((printable(name), printable(text)) for name, text in rows):
        body = textwrap.wrap(text, width - name_width, break_long_words=False, break_on_hyphens=False) or [""]
        for number, part in enumerate(body):
            told.append(f"{(name if number == 0 else '').ljust(name_width)}{part}".rstrip() + "\n")
    write_output("".join(told), output)


def print_note(text: str, style: str) -> None:
    """What people should know of the rows above; on standard error, so that rows stay rows."""
    if style == "table":
        say(text, err=True)


def read_keys(keys: tuple[str, ...], keys_file: str | None) -> list[str] | list[bytes]:
    """Keys of the command line, or of a file with one key a line (``-`` for standard input)."""
    from hushgram.inputs.key_lists import read_key_list

    if keys and keys_file:
        raise click.UsageError("give keys or --keys-file, not both")
    if keys_file is None:
        if not keys:
            raise click.UsageError("give one key or more, or --keys-file")
        return list(keys)
    return read_key_list(keys_file, "--keys-file", repeated=True)


def write_output(content: str | bytes, output: str | None) -> None:
    """To standard output, or to a file that a reader sees old or new, never half."""
    if output is None:
        click.echo(content, nl=False)
        return
    try:
        put_file(output, content.encode() if isinstance(content, str) else content)
    except OSError as problem:
        raise OutputError(f"--output {output} cannot be written: {problem.strerror}") from None


def _with_texts(table: pa.Table, change: Callable[[str], str] = str) -> pa.Table:
    """Return the table with names and texts changed; bytes that are no text are shown with escapes."""
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
    numeric = [not (pa.types.is_string(t) or pa.types.is_large_string(t)) for t in table.schema.types]
    for row in [table.column_names, *zip(*columns, strict=True)]:
        cells = [
            cell.rjust(w) if right else cell.ljust(w)
            for cell, w, right in zip(row, widths, numeric, strict=True)
        ]
        yield "  ".join(cells).rstrip()


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


def human_bytes(size: int) -> str:
    """A number of bytes as people say it."""
    value = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
