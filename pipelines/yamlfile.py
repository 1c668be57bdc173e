"""YAML with positions and exact numbers: the text of a config as plain data.

In:  a YAML file and ``a.b=value`` overrides.
Out: a `Document`: nested dicts, lists and scalars, and for every value where it was written.

Two things differ from ``yaml.safe_load``. Numbers keep what was written: ``1e-6`` and ``0.1`` become
`Decimal`, never a binary float, because epsilon and delta are exact rationals from the file to the manifest.
And the scalar rules are those of YAML 1.2 (``on``, ``yes`` and ``2026-11-16`` are text), so that a date or a
column called ``on`` arrives as it was typed.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from hushgram.errors import ParameterError

__all__ = [
    "ConfigError", "Document", "Location", "parse_override", "read_document", "resolve_date", "substitute_date",
]  # fmt: skip


Location = tuple[str | int, ...]

SECRET = frozenset({"ledger"})  # a ledger URL may hold a password: never repeat it in a message
_MAX_BYTES = 1 << 20  # a config is a page of text; a larger file is a wrong argument
_MAX_VALUES, _MAX_DEPTH = 100_000, 40  # aliases can repeat values without end


class ConfigError(ParameterError):
    """A config file or an override is wrong; the message names place, field, value and remedy."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self._lines = lines

    @property
    def lines(self) -> tuple[str, ...]:
        return self._lines


class _Loader(yaml.SafeLoader):
    """Composes nodes only, with the scalar rules of YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[Any, Any] = {}


# tag → (what a value of it looks like, how it may begin)
_FORMS = {
    "null": (re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    "bool": (re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    "int": (re.compile(r"^[-+]?[0-9][0-9_]{0,299}$"), list("-+0123456789")),
    "float": (
        re.compile(
            r"^[-+]?(?:\.[0-9]{1,300}|[0-9][0-9_]{0,299}(?:\.[0-9]{0,300})?)(?:[eE][-+]?[0-9]{1,6})?$"
        ),
        list("-+.0123456789"),
    ),
}
_TAG = "tag:yaml.org,2002:"
for _name, (_form, _first) in _FORMS.items():
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", _form, _first)


@dataclass
class Document:
    """Plain data and where each value stands: ``origins[("privacy", "epsilon")] == "urls.yaml:3"``."""

    data: dict[str, Any]
    source: str
    origins: dict[Location, str] = field(default_factory=dict)

    def origin(self, location: Location) -> str:
        """The place of `location`, or of the nearest value around it."""
        for end in range(len(location), -1, -1):
            found = self.origins.get(location[:end])
            if found is not None:
                return found
        return self.source

    def override(self, text: str) -> None:
        """Applies one ``a.b=value``; the value is YAML: lists and numbers mean what they mean in the file."""
        location, value = parse_override(text)
        target: Any = self.data
        for depth, part in enumerate(location[:-1]):
            if target.get(part) is None:
                target[part] = {}
            target = target[part]
            if not isinstance(target, dict):
                raise ConfigError(
                    f"--set {text}: {'.'.join(map(str, location[: depth + 1]))} is {target!r}, "
                    "not a group of fields"
                )
        target[location[-1]] = value
        stale = [known for known in self.origins if known[: len(location)] == location]
        for known in stale:
            del self.origins[known]
        shown = text if location[0] not in SECRET else f"{'.'.join(map(str, location))}=…"
        self.origins[location] = f"--set {shown}"

    def strings(self) -> Iterator[tuple[Location, str]]:
        """Every text value with its location."""
        yield from _strings((), self.data)


def _strings(location: Location, value: Any) -> Iterator[tuple[Location, str]]:
    if isinstance(value, str):
        yield location, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _strings((*location, name), inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _strings((*location, index), inner)


def read_document(path: str | Path, overrides: Iterable[str] = ()) -> Document:
    """Reads `path` and applies the overrides in order; raises `ConfigError` with the line of a mistake."""
    file = Path(path)
    try:
        if file.is_dir():
            raise ConfigError(f"{file}: is a directory; give the path of a YAML config")
        with file.open("rb") as stream:
            raw = stream.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(
            f"{file}: no such file; give the path of a YAML config (examples: configs/)"
        ) from None
    except OSError as problem:
        raise ConfigError(f"{file}: cannot be read: {problem.strerror or problem}") from None
    if len(raw) > _MAX_BYTES:
        raise ConfigError(f"{file}: larger than 1 MiB, so hardly a config; give the path of a YAML file")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise ConfigError(
            f"{file}: not UTF-8 text (byte {problem.start}); save the config as UTF-8"
        ) from None
    document = Document({}, str(file))
    document.data = _mapping(_compose(text, str(file)), document)
    for override in overrides:
        document.override(override)
    return document


def parse_override(text: str) -> tuple[Location, Any]:
    """``"privacy.epsilon=0.5"`` → (("privacy", "epsilon"), Decimal("0.5"))."""
    name, equals, value = text.partition("=")
    location = tuple(name.strip().split("."))
    if not equals or not all(location):
        raise ConfigError(f"--set {text}: expected field=value, such as --set privacy.epsilon=0.5")
    origin = f"--set {text}"
    try:
        node = _compose(value, origin)
        return location, None if node is None else _convert(node, location, Document({}, origin))
    except ConfigError:
        if "\n" in value:
            raise
        return (
            location,
            value,
        )  # text that is not YAML, such as a pattern '*.csv' (an alias to YAML), is itself


def _compose(text: str, source: str) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
        return node
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        place = f"{source}:{mark.line + 1}" if mark is not None else source
        column = f" (column {mark.column + 1})" if mark is not None else ""
        line = text.splitlines()[mark.line] if mark is not None and mark.line < len(text.splitlines()) else ""
        remedy = "; text with {date} inside of {...} or [...] goes in quotes" if "{date" in line else ""
        raise ConfigError(f"{place}: not valid YAML: {problem.problem or problem}{column}{remedy}") from None
    except (yaml.YAMLError, RecursionError) as problem:
        first = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise ConfigError(f"{source}: not valid YAML: {first}") from None


def _mapping(node: yaml.Node | None, document: Document) -> dict[str, Any]:
    if node is None:
        raise ConfigError(f"{document.source}: empty; a config needs at least input, privacy and output")
    data = _convert(node, (), document)
    if not isinstance(data, dict):
        raise ConfigError(
            f"{document.source}: expected fields such as 'privacy: …', got {type(data).__name__}"
        )
    return data


def _convert(node: yaml.Node, location: Location, document: Document) -> Any:
    if len(document.origins) > _MAX_VALUES or len(location) > _MAX_DEPTH:
        raise ConfigError(
            f"{document.source}: too many or too deeply nested values; remove aliases that repeat"
        )
    if location:
        document.origins[location] = f"{document.source}:{node.start_mark.line + 1}"
    _check_tag(node, document)
    if isinstance(node, yaml.MappingNode):
        return _fields(node, location, document)
    if isinstance(node, yaml.SequenceNode):
        return [_convert(inner, (*location, index), document) for index, inner in enumerate(node.value)]
    return _scalar(node)


def _fields(node: yaml.MappingNode, location: Location, document: Document) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name_node, value_node in node.value:
        line = name_node.start_mark.line + 1
        name = name_node.value if isinstance(name_node, yaml.ScalarNode) else None
        if not isinstance(name, str):
            raise ConfigError(f"{document.source}:{line}: a field name must be plain text")
        missing = isinstance(value_node, yaml.ScalarNode) and value_node.value == ""
        if name.partition(":")[0] == "date" and node.flow_style and missing:
            raise ConfigError(
                f'{document.source}:{line}: {{date}} alone is a group to YAML; write "{{date}}" in quotes'
            )
        if name in fields:
            dotted = ".".join(map(str, (*location, name)))
            first = document.origins[(*location, name)]
            raise ConfigError(
                f"{document.source}:{line}: {dotted} is given twice (first at {first}); keep one"
            )
        fields[name] = _convert(value_node, (*location, name), document)
        document.origins[(*location, name)] = f"{document.source}:{line}"
    return fields


def _check_tag(node: yaml.Node, document: Document) -> None:
    """Refuses tags that say something else than the value: they are of no use in a config."""
    name = node.tag.removeprefix(_TAG)
    kinds: tuple[str, ...] = ("str", *_FORMS)
    if not isinstance(node, yaml.ScalarNode):
        kinds = ("map",) if isinstance(node, yaml.MappingNode) else ("seq",)
    fits = name in kinds and (name not in _FORMS or _FORMS[name][0].match(node.value))
    if not fits:
        shown = f"!!{name}" if node.tag.startswith(_TAG) else node.tag
        raise ConfigError(
            f"{document.source}:{node.start_mark.line + 1}: the tag {shown[:60]} does not fit its value; leave it out"
        )


def _scalar(node: yaml.Node) -> Any:
    text: str = node.value
    match node.tag.removeprefix(_TAG):
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return int(text.replace("_", ""))
        case "float":
            return Decimal(text.replace("_", ""))
    return text


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
