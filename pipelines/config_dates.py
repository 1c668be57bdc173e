"""``{date}`` in a config: the date of a run, in any text but input.pattern."""

from __future__ import annotations

import datetime
import re
from typing import Any

from hushgram.pipelines.yamlfile import ConfigError, Document, Location

__all__ = ["resolve_date", "substitute_date"]

_DATE = re.compile(r"\{date(?::([^{}]*))?\}")
# What strftime gives alike on every machine.
_DATE_FORM = re.compile(r"(?:[^%\x00\ud800-\udfff]|%[YymdjaAbBUWVGu%])+")


def resolve_date(text: str | None) -> datetime.date | None:
    """``YYYY-MM-DD``, ``today`` or ``yesterday`` (UTC) as a date."""
    if text is None:
        return None
    today = datetime.datetime.now(datetime.UTC).date()
    relative = {"today": today, "yesterday": today - datetime.timedelta(days=1)}
    try:
        return relative.get(text) or datetime.datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        raise ConfigError(f"--date must be YYYY-MM-DD, today or yesterday, got {text!r}") from None


def substitute_date(document: Document, date: datetime.date | None) -> None:
    """Puts the date where the config has ``{date}``; each without the other is a mistake."""
    found = False
    for location, text in list(document.strings()):
        if location == ("input", "pattern") or not _DATE.search(text):
            continue
        found = True
        if date is None:
            raise ConfigError(
                f"{document.origin(location)}: {'.'.join(map(str, location))} contains {{date}}; "
                "say which with --date YYYY-MM-DD (or today, yesterday)"
            )
        for form in _DATE.findall(text):
            if form and not _DATE_FORM.fullmatch(form):
                raise ConfigError(
                    f"{document.origin(location)}: {'.'.join(map(str, location))} contains {{date:{form[:40]}}}; use "
                    "%Y, %m, %d, %y, %j, %a, %b, %U, %V, %G, %u and text"
                )
        _replace(
            document.data,
            location,
            _DATE.sub(lambda match: date.strftime(match.group(1) or "%Y-%m-%d"), text),
        )
    if date is not None and not found:
        raise ConfigError(
            f"{document.source}: --date {date} was given but no field contains {{date}}; "
            "write it into release, input.path and output.path"
        )


def _replace(data: Any, location: Location, value: str) -> None:
    for part in location[:-1]:
        data = data[part]
    data[location[-1]] = value
