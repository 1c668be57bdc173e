"""Lines for people, on standard output, standard error and in logs: the one place that writes them.

Names, keys, paths and messages may hold what strangers wrote. Every character that is not a visible one is escaped
here (`hushgram.names.printable`), so that none of them moves the cursor, starts a line of its own or turns a text
around. JSON escapes them in its own way, so that it reads back exactly.
"""

from __future__ import annotations

import json
import logging
from typing import IO, Any

import click

from hushgram.names import printable

__all__ = ["EscapingFormatter", "json_text", "say"]


def say(text: str = "", *, err: bool = False, file: IO[str] | None = None) -> None:
    """Print one line."""
    click.echo(printable(text), err=err, file=file)


def json_text(value: Any, indent: int | None = None) -> str:
    r"""Return JSON with every character escaped that is not a visible one.

    >>> print(json_text({"a": "é\u202e\x7f"}))
    {"a": "é\u202e\u007f"}
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


class EscapingFormatter(logging.Formatter):
    """Python's log records (Beam writes those) as lines: the message on one, a traceback indented below."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return "\n".join(f"  {printable(line)}" for line in super().formatException(ei).split("\n"))
