"""Input formats: one module each, and one line here."""

from __future__ import annotations

from hushgram.errors import ParameterError
from hushgram.inputs.formats import csv, jsonl, log, parquet
from hushgram.inputs.formats.format import Format

__all__ = ["FORMATS", "format_named"]

#: every format by its name
FORMATS: dict[str, Format] = {
    format.name: format for format in (parquet.FORMAT, csv.FORMAT, jsonl.FORMAT, log.FORMAT)
}


def format_named(name: str) -> Format:
    """Return the format called `name`."""
    try:
        return FORMATS[name]
    except KeyError:
        known = ", ".join(("auto", *FORMATS))
        raise ParameterError(f"Source: format must be one of {known}, got {name!r}") from None
