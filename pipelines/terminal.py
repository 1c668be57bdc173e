"""Terminal output: lines for people, and tables as aligned text, JSON lines, CSV or Parquet.

    @click.command()
    @format_options
    def command(..., style: str, output: str | None) -> None:
        print_table(table, style, output)

All commands print through this module. Keys, names, paths and messages may come from untrusted sources, so
`hushgram.errors.printable` escapes every invisible character in text for people: none can move the cursor, start a new
line or reverse the text direction. JSON, CSV and Parquet preserve values exactly.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import logging
import math
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import click
import pyarrow as pa

from hushgram.errors import OutputError, ParameterError, is_unicode, printable
from hushgram.numbers import counted
from hushgram.publishing import put_file

if TYPE_CHECKING:
    from hushgram.sketch.reader import Sketch, Total

__all__ = [
    "EXACT", "FORMATS", "EscapingFormatter", "Private", "csv_bytes", "file_size", "format_options", "json_text",
    "key_warnings", "keys_options", "lines_for_file", "odd_keys", "print_line", "print_lines", "print_note",
    "print_records", "print_result", "print_table", "read_keys", "refuse_existing", "replace_file", "resolved_sums",
    "round_columns", "rounded", "status", "total_text", "warn_about_keys", "write_output",
]  # fmt: skip

#: Marks numbers on the operator's terminal that are not differentially private.
EXACT = "exact, not for publication"


class Private(str):
    """A text of a line that depends on exact data, such as the size of the input; no file contains it."""

    __slots__ = ()


FORMATS = ("table", "json", "csv", "parquet")
_SAFE_CSV = "safe-csv"  # the style that `--format csv --safe-csv` stands for
_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")  # the last four are full-width = + - @
# A first line that is one of these, or begins with one and a comma, is taken for the header of a CSV file.
_HEADERS = {
    "domain",
    "host",
    "id",
    "key",
    "keys",
    "name",
    "page",
    "path",
    "query",
    "term",
    "url",
    "urls",
    "user",
}
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


@contextlib.contextmanager
def status(text: str) -> Iterator[None]:
    """Show on a terminal what is being waited for, and remove it afterwards."""
    shown = sys.stderr.isatty()
    if shown:
        click.echo(printable(text), nl=False, err=True)
    try:
        yield
    finally:
        if shown:
            click.echo("\r\x1b[K", nl=False, err=True)


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
    """Add ``--format``, ``--safe-csv``, ``--output`` and ``--force``, passed as `style` and `output`.

    A file that exists is refused before the command runs, unless ``--force`` is given.
    """

    @functools.wraps(function)
    def run(*arguments: Any, style: str, safe_csv: bool, force: bool, **options: Any) -> Any:
        if safe_csv and style != "csv":
            raise click.UsageError("--safe-csv needs --format csv")
        if not force:
            refuse_existing(options["output"])
        return function(*arguments, style=_SAFE_CSV if safe_csv else style, **options)

    for add in (
        click.option("--force", is_flag=True, help="Replace a file that exists."),
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


def refuse_existing(path: str | None) -> None:
    """Raise OutputError if a file to be written exists; pipes and devices are written to."""
    if path is not None and (os.path.isfile(path) or os.path.islink(path)):
        raise OutputError(f"{path} already exists; choose another name, or replace it with --force")


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


def rounded(estimate: float | None, low: float, high: float, finest: float = 1.0) -> tuple[str, str, str]:
    """Return an estimate and its interval as text, rounded to what the width of the interval supports.

    An interval is rounded outwards. `finest` is what one count stands for: nothing is shown in finer steps. Without an
    estimate all that is known is that the count is below the upper end.

    >>> rounded(199.4, 176.2, 221.9)
    ('199', '176', '222')
    >>> rounded(1234567.0, 1210111.0, 1260222.0)
    ('1,235,000', '1,210,000', '1,261,000')
    >>> rounded(None, 0.0, 229.0), rounded(12.34, 12.1, 12.6, 0.05)
    (('< 229', '0', '229'), ('12.34', '12.10', '12.60'))
    """
    power = math.floor(math.log10(max((high - low) / 40.0, finest)) + 1e-9)
    step, digits = 10.0**power, max(-power, 0)

    def text(number: float) -> str:
        return f"{number * step + 0.0:,.{digits}f}"

    below, above = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    if estimate is None:
        return f"< {text(above)}" if above > 0 else text(above), text(below), text(above)
    return text(round(estimate / step)), text(below), text(above)


def resolved_sums(sums: Iterable[float]) -> tuple[float | None, float, float]:
    """Return a total and its interval, without the total where its interval is wider than it."""
    estimate, low, high = sums
    low = max(low, 0.0)
    return estimate if high - low <= estimate else None, low, high


def total_text(total: Total, over: str, sketch: Sketch) -> str:
    """Return a total over some keys as a line; "fewer than …" where its interval goes down to 0 and is wider than it.

    >>> from types import SimpleNamespace as of
    >>> counts, Sum = of(per_count=1, measure="count"), type("", (tuple,), {"level": 0.95})
    >>> total_text(Sum((199.4, 176.2, 221.9)), "3 keys", counts), total_text(Sum((1.0, 0.0, 470.0)), "3 keys", counts)
    ('199 over 3 keys (176 to 222 at 95%)', 'fewer than 470 over 3 keys (at 95%)')
    """
    estimate, least, most = resolved_sums(total)
    about, low, high = rounded(estimate, least, most, sketch.per_count)
    if estimate is not None:
        return f"{about} over {over} ({low} to {high} at {total.level:.0%})"
    less = "fewer" if sketch.measure == "count" else "less"
    return f"{f'{low} to {high}' if least else f'{less} than {high}'} over {over} (at {total.level:.0%})"


def round_columns(
    table: pa.Table, finest: float = 1.0, estimate: str = "estimate", *, sums: bool = False
) -> pa.Table:
    """Return the table with an estimate and its interval (low, high) as texts, by `rounded`; of `sums` by
    `resolved_sums` too."""
    names = (estimate, "low", "high")
    rows = [
        rounded(resolved_sums((number, low, high))[0] if sums else number, low, high, finest) if low is not None
        else ("-" if number is None else f"{number:,.0f}", "-", "-")
        for number, low, high in zip(*(table[name].to_pylist() for name in names), strict=True)
    ]  # fmt: skip
    for i, name in enumerate(names):
        texts = pa.array([row[i] for row in rows], pa.string())
        table = table.set_column(table.column_names.index(name), name, texts)
    return table


def print_table(
    table: pa.Table, style: str, output: str | None = None, digits: int = 1, right: Collection[str] = ()
) -> None:
    """Print a table in one of `FORMATS`, or write it to the file `output`; text in the columns `right` is numbers."""
    table = getattr(table, "table", table)  # of a result
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
        write_output("".join(line + "\n" for line in _aligned(table, digits, right)), output)


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


def print_records(records: Iterable[Mapping[str, Any]], style: str, output: str | None = None) -> None:
    """Print nested records: as they are in JSON lines; elsewhere, nested values become JSON text."""
    if style == "json":
        write_output("".join(json_text(record) + "\n" for record in records), output)
        return

    def flat(value: Any) -> Any:
        return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | tuple) else value

    rows = [{name: flat(value) for name, value in record.items()} for record in records]
    print_table(pa.Table.from_pylist(rows), style, output)


def print_lines(
    lines: Iterable[tuple[str, str]],
    style: str = "table",
    output: str | None = None,
    table: pa.Table | None = None,
) -> None:
    """Print (name, text) pairs: wrapped to the terminal for people, as rows for programs; for people, a table below."""
    import shutil
    import textwrap

    rows = list(lines) if output is None else lines_for_file(lines)
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
    if table is not None:
        filled += ["\n", *(line + "\n" for line in _aligned(table, 1, ()))]
    write_output("".join(filled), output)


def lines_for_file(lines: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return (name, text) pairs without those that depend on exact data.

    These go to standard error: they are for the operator alone.
    """
    told: list[tuple[str, str]] = []
    private: list[tuple[str, str]] = []
    for name, text in lines:
        (private if EXACT in text or isinstance(text, Private) else told).append((name, text))
    for name, text in private:
        print_line(f"{name}: {text}" if name else f"  {text}", err=True)
    return told


def print_result(row: Mapping[str, Any], lines: Iterable[str], style: str, output: str | None) -> None:
    """Print what a command did: as lines for people, as one row for programs."""
    if style != "table":
        print_records([row], style, output)
    else:
        write_output("".join(printable(line) + "\n" for line in lines), output)


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
        if wrong := [key for key in keys if not is_unicode(key)]:
            raise ParameterError(
                f"KEY must be UTF-8 text, got {wrong[0]!r:.80}; give keys of other bytes by --keys-file"
            )
        return list(keys)
    from hushgram.inputs.source import (
        read_key_list,
    )  # a lookup of keys on the command line needs no parser

    return read_key_list(keys_file, "--keys-file", repeated=True)


def warn_about_keys(keys: Sequence[str | bytes], sketch: Sketch, keys_file: str | None = None) -> None:
    """Print a warning for each way in which keys are probably not those that were meant."""
    for warning in key_warnings(keys, sketch, keys_file is not None):
        print_line(f"warning: {warning}", err=True)


def odd_keys(keys: Sequence[str | bytes], of_file: bool = True) -> list[str]:
    """Return what is odd about keys: blanks around them, or the header of a CSV file among them."""
    texts = [key.decode("utf-8", "replace") if isinstance(key, bytes) else key for key in keys]
    found, blank = [], [text for text in texts if text != text.strip()]
    if blank:
        found.append(
            f"blanks around a key are part of it, as in {counted(len(blank), 'key')} such as {blank[0][:80]!r}"
        )
    if of_file and texts and texts[0].partition(",")[0].strip(' "').lower() in _HEADERS:
        found.append(f"the first line, {texts[0][:80]!r}, looks like a header; every line is taken as a key")
    return found


def key_warnings(keys: Sequence[str | bytes], sketch: Sketch, of_file: bool = False) -> list[str]:
    """Return what is odd about keys to look up: blanks around them, a header, what the key expression cannot make."""
    found = odd_keys(keys, of_file)
    if sketch.manifest.key_expression:
        from hushgram.inputs.key_expressions import impossible_keys, parse_key_expression

        made = parse_key_expression(sketch.manifest.key_expression)
        wrong = impossible_keys(made, keys) if made is not None else []
        if made is not None and wrong:
            found.append(
                f"{len(wrong):,} of {counted(len(keys), 'key')} cannot be in this release, whose keys are made by"
                f" {sketch.manifest.key_expression}; such as {wrong[0]!r}{_right_form(wrong[0], len(made.parts))}"
            )
    return found


def _right_form(key: str, columns: int) -> str:
    """Return how a key of several columns is written, by the columns that a wrong one seems to have."""
    parts = [part.strip().strip("\"'") for part in key.strip().strip("[]").split(",")]
    if columns == 1:
        return ""
    parts = parts if len(parts) == columns else [f"column {i + 1}" for i in range(columns)]
    form = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    return f"; write a JSON list, in quotes for the shell: '{form}'"


def write_output(content: str | bytes, output: str | None) -> None:
    """Write to standard output, or replace the file `output` in one step: readers never see half of it."""
    if output is None:
        click.echo(content, nl=False)
        return
    replace_file("--output", output, content.encode() if isinstance(content, str) else content)


def replace_file(option: str, path: str | Path, content: bytes | None) -> None:
    """Write the file that an option names; without content, only check that it can be written."""
    try:
        put_file(path, content)
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


def _aligned(table: pa.Table, digits: int, right: Collection[str]) -> Iterable[str]:
    table = _with_texts(table, printable)
    columns = [[_cell(value, digits) for value in column.to_pylist()] for column in table.columns]
    widths = [max(map(len, [name, *cells])) for name, cells in zip(table.column_names, columns, strict=True)]
    texts = [pa.types.is_string(field.type) and field.name not in right for field in table.schema]
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
