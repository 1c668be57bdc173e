"""Arrow tables for people and programs: aligned text, CSV or JSON lines, on standard output."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
import pyarrow as pa

from hushgram.errors import InputError

__all__ = ["FORMATS", "print_table", "read_keys"]

FORMATS = ("table", "csv", "json")


def print_table(table: pa.Table, style: str, digits: int = 1) -> None:
    """Print a table in one of `FORMATS`."""
    if style == "csv":
        import pyarrow.csv as csv

        sys.stdout.flush()
        csv.write_csv(_printable(table), sys.stdout.buffer)
    elif style == "json":
        for row in _printable(table).to_pylist():
            click.echo(json.dumps(row, ensure_ascii=False))
    else:
        _print_aligned(table, digits)


def read_keys(keys: tuple[str, ...], keys_file: str | None) -> list[str] | list[bytes]:
    """Keys of the command line, or of a file with one key a line (``-`` for standard input)."""
    if keys and keys_file:
        raise click.UsageError("give keys or --keys-file, not both")
    if keys_file is None:
        if not keys:
            raise click.UsageError("give one key or more, or --keys-file")
        return list(keys)
    try:
        if keys_file == "-":
            content = sys.stdin.buffer.read()
        else:
            with open(keys_file, "rb") as file:
                content = file.read()
    except OSError as error:
        raise InputError(f"--keys-file {keys_file}: {error.strerror}") from None
    lines = [line.removesuffix(b"\r") for line in content.split(b"\n")]
    lines = [line for line in lines if line]
    if not lines:
        raise InputError(f"--keys-file {keys_file}: holds no keys; write one key a line")
    return lines


def _printable(table: pa.Table) -> pa.Table:
    """Bytes that are no text are shown with escapes."""
    columns = []
    for column in table.columns:
        if pa.types.is_large_binary(column.type) or pa.types.is_binary(column.type):
            column = pa.array(
                [value.decode("utf-8", "backslashreplace") for value in column.to_pylist()], pa.string()
            )
        columns.append(column)
    return pa.table(columns, names=table.column_names)


def _print_aligned(table: pa.Table, digits: int) -> None:
    rows = [[_cell(value, digits) for value in row.values()] for row in _printable(table).to_pylist()]
    numeric = [
        not (pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_large_binary(t))
        for t in table.schema.types
    ]
    widths = [max([len(name), *(len(row[i]) for row in rows)]) for i, name in enumerate(table.column_names)]
    for row in [list(table.column_names), *rows]:
        cells = [
            cell.rjust(w) if right else cell.ljust(w)
            for cell, w, right in zip(row, widths, numeric, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def _cell(value: Any, digits: int) -> str:
    if value is None or value != value:
        return "-"
    if isinstance(value, float):
        return f"{value:,.{digits}f}"
    if isinstance(value, int):
        return f"{value:,}"
    text = str(value)
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
