"""Config files as plain data with positions and exact numbers, and messages about mistakes in them.

In:  a YAML file and ``a.b=value`` overrides.
Out: a `Document`: nested dicts, lists and scalars, and for every value where it was written.

Two things differ from ``yaml.safe_load``. Numbers keep what was written: ``1e-6`` and ``0.1`` become
`Decimal`, never a binary float, because epsilon and delta are exact rationals from the file to the manifest.
And the scalar rules are those of YAML 1.2 (``on``, ``yes`` and ``2026-11-16`` are text), so that a date or a
column called ``on`` arrives as it was typed.

A mistake is one line (`explain`): place, dotted field, value, what is allowed, what was probably meant.
"""

from __future__ import annotations

import datetime
import difflib
import inspect
import re
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from hushgram.errors import ParameterError

__all__ = [
    "ConfigError", "Document", "Location", "explain", "nearest", "read_document", "resolve_date", "substitute_date",
]  # fmt: skip

Location = tuple[str | int, ...]

_SECRET = frozenset({"ledger"})  # a ledger URL may hold a password: never repeat it in a message
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


# --- reading --------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """Composes nodes only, with the scalar rules of YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[Any, Any] = {}


_TAG = "tag:yaml.org,2002:"
# tag → (the pattern of its values, how they may begin, the value)
_SCALARS: dict[str, tuple[re.Pattern[str], list[str], Any]] = {
    "null": (re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""], lambda text: None),
    "bool": (
        re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"),
        list("tTfF"),
        lambda text: text.lower() == "true",
    ),
    "int": (
        re.compile(r"^[-+]?[0-9][0-9_]{0,299}$"),
        list("-+0123456789"),
        lambda text: int(text.replace("_", "")),
    ),
    "float": (
        re.compile(
            r"^[-+]?(?:\.[0-9]{1,300}|[0-9][0-9_]{0,299}(?:\.[0-9]{0,300})?)(?:[eE][-+]?[0-9]{1,6})?$"
        ),
        list("-+.0123456789"),
        lambda text: Decimal(text.replace("_", "")),
    ),
    "str": (re.compile(""), [], str),
}
for _name, (_pattern, _first, _) in _SCALARS.items():
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", _pattern, _first)


@dataclass
class Document:
    """Plain data and where each value stands: ``origins[("privacy", "epsilon")] == "urls.yaml:3"``."""

    data: dict[str, Any]
    source: str
    origins: dict[Location, str] = field(default_factory=dict)

    def origin(self, location: Location) -> str:
        """Return the place of `location`, or of the nearest value around it."""
        around = (location[:end] for end in range(len(location), -1, -1))
        return next((self.origins[part] for part in around if part in self.origins), self.source)

    def override(self, text: str) -> None:
        """Apply one ``a.b=value``; the value is YAML: lists and numbers mean what they mean in the file."""
        location, value = _parse_override(text)
        target: Any = self.data
        for depth, part in enumerate(location[:-1], 1):
            if target.get(part) is None:
                target[part] = {}
            target = target[part]
            if not isinstance(target, dict):
                raise ConfigError(
                    f"--set {text}: {_dotted(location[:depth])} is {target!r}, not a group of fields"
                )
        target[location[-1]] = value
        for known in [known for known in self.origins if known[: len(location)] == location]:
            del self.origins[known]
        shown = text if location[0] not in _SECRET else f"{_dotted(location)}=…"
        self.origins[location] = f"--set {shown}"


def _dotted(location: Location) -> str:
    return ".".join(map(str, location))


def read_document(path: str | Path, overrides: Iterable[str] = ()) -> Document:
    """Read `path` and apply the overrides in order; raises `ConfigError` with the line of a mistake."""
    file = Path(path)
    try:
        with file.open("rb") as stream:
            raw = stream.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise ConfigError(f"{file}: larger than 1 MiB, which no config is; give the path of a YAML file")
        text = raw.decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(
            f"{file}: no such file; give the path of a YAML config (examples: configs/)"
        ) from None
    except IsADirectoryError:
        raise ConfigError(f"{file}: is a directory; give the path of a YAML config") from None
    except OSError as problem:
        raise ConfigError(f"{file}: cannot be read: {problem.strerror or problem}") from None
    except UnicodeDecodeError as problem:
        raise ConfigError(
            f"{file}: not UTF-8 text (byte {problem.start}); save the config as UTF-8"
        ) from None
    document = Document({}, str(file))
    node = _compose(text, str(file))
    if node is None:
        raise ConfigError(f"{file}: empty; a config needs at least input, privacy and output")
    data = _convert(node, (), document)
    if not isinstance(data, dict):
        raise ConfigError(f"{file}: expected fields such as 'privacy: …', got {type(data).__name__}")
    document.data = data
    for override in overrides:
        document.override(override)
    return document


def _parse_override(text: str) -> tuple[Location, Any]:
    """Parse ``"privacy.epsilon=0.5"`` → (("privacy", "epsilon"), Decimal("0.5"))."""
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
        return location, value  # what is not YAML is text, such as '*.csv' (an alias to YAML)


def _compose(text: str, source: str) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
        return node
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        if mark is None:
            raise ConfigError(f"{source}: not valid YAML: {problem.problem or problem}") from None
        line = (text.splitlines() + [""] * (mark.line + 1))[mark.line]
        remedy = "; text with {date} inside of {...} or [...] goes in quotes" if "{date" in line else ""
        remedy = "; indent with blanks, not with tabs" if line.lstrip(" ").startswith("\t") else remedy
        raise ConfigError(
            f"{source}:{mark.line + 1}: not valid YAML: {problem.problem or problem} "
            f"(column {mark.column + 1}){remedy}"
        ) from None
    except (yaml.YAMLError, RecursionError) as problem:
        first = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise ConfigError(f"{source}: not valid YAML: {first}") from None


def _convert(node: yaml.Node, location: Location, document: Document) -> Any:
    """Return the value of a node, and note where it and what is in it stand."""
    if len(document.origins) > _MAX_VALUES or len(location) > _MAX_DEPTH:
        raise ConfigError(
            f"{document.source}: too many or too deeply nested values; remove aliases that repeat"
        )
    place = f"{document.source}:{node.start_mark.line + 1}"
    if location:
        document.origins[location] = place
    tag = node.tag.removeprefix(_TAG)
    if isinstance(node, yaml.MappingNode) and tag == "map":
        return dict(_fields(node, location, document))
    if isinstance(node, yaml.SequenceNode) and tag == "seq":
        return [_convert(inner, (*location, index), document) for index, inner in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode) and tag in _SCALARS and _SCALARS[tag][0].match(node.value):
        return _SCALARS[tag][2](node.value)
    shown = f"!!{tag}" if node.tag.startswith(_TAG) else node.tag
    raise ConfigError(f"{place}: the tag {shown[:60]} does not fit its value; leave it out")


def _fields(node: yaml.MappingNode, location: Location, document: Document) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for name_node, value_node in node.value:
        place = f"{document.source}:{name_node.start_mark.line + 1}"
        name = name_node.value
        if not isinstance(name, str):
            raise ConfigError(f"{place}: a field name must be plain text")
        if name.partition(":")[0] == "date" and node.flow_style and value_node.value == "":
            raise ConfigError(f'{place}: {{date}} alone is a group to YAML; write "{{date}}" in quotes')
        here = (*location, name)
        if name in seen:
            raise ConfigError(
                f"{place}: {_dotted(here)} is given twice (first at {document.origins[here]}); keep one"
            )
        seen.add(name)
        yield name, _convert(value_node, here, document)
        document.origins[here] = place


# --- dates ----------------------------------------------------------------------------------------------------

_DATE = re.compile(r"\{(date|yesterday)(?::([^{}]*))?\}")  # yesterday is the day before the date
# What strftime gives alike on every machine.
_DATE_FORM = re.compile(r"(?:[^%\x00\ud800-\udfff]|%[YymdjaAbBUWVGu%])+")


def resolve_date(text: str | None) -> datetime.date | None:
    """Return ``YYYY-MM-DD``, ``today`` or ``yesterday`` (UTC) as a date."""
    if text is None:
        return None
    today = datetime.datetime.now(datetime.UTC).date()
    relative = {"today": today, "yesterday": today - datetime.timedelta(days=1)}
    try:
        return relative.get(text) or datetime.datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        raise ConfigError(f"--date must be YYYY-MM-DD, today or yesterday, got {text!r}") from None


def substitute_date(document: Document, date: datetime.date | None) -> None:
    """Put the date where the config has ``{date}``; each without the other is a mistake."""
    found = False

    def dated(value: Any, location: Location) -> Any:
        nonlocal found
        if isinstance(value, dict):
            return {name: dated(inner, (*location, name)) for name, inner in value.items()}
        if isinstance(value, list):
            return [dated(inner, (*location, index)) for index, inner in enumerate(value)]
        if not isinstance(value, str) or location == ("input", "pattern") or not _DATE.search(value):
            return value
        found, where = True, f"{document.origin(location)}: {_dotted(location)} contains"
        if date is None:
            raise ConfigError(f"{where} {{date}}; say which with --date YYYY-MM-DD (or today, yesterday)")
        for _, form in _DATE.findall(value):
            if form and not _DATE_FORM.fullmatch(form):
                raise ConfigError(
                    f"{where} {{date:{form[:40]}}}; use %Y, %m, %d, %y, %j, %a, %b, %U, %V, %G, %u and text"
                )
        days = {"date": date, "yesterday": date - datetime.timedelta(days=1)}
        return _DATE.sub(lambda match: days[match[1]].strftime(match[2] or "%Y-%m-%d"), value)

    document.data = dated(document.data, ())
    if date is not None and not found:
        raise ConfigError(
            f"{document.source}: --date {date} was given but no field contains {{date}}; "
            "write it into release, input.path and output.path"
        )


# --- messages -------------------------------------------------------------------------------------------------

# Fields by their names in the version before, which are refused with the new name.
RENAMED = {
    "input.bad_records": "input.rejected_records",
    "input.max_bad_share": "input.max_rejected_share",
    "privacy.unit": "privacy.granularity",
    "each.NAME.unit": "each.NAME.granularity",
    "grid.unit": "grid.granularity",
}
# What pydantic's errors say must be, by the beginning of their type.
_EXPECTED = {
    "int": "a whole number", "bool": "true or false", "string_type": "text", "model": "a group of fields",
    "dict": "a group of fields", "list": "a list", "tuple": "a list",
    "greater_than_equal": "at least", "greater_than": "above",
    "less_than_equal": "at most", "less_than": "below",
}  # fmt: skip


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, or None."""
    names = {name.lower(): name for name in known}
    part = [name for name in word.lower().split("_") if name in names]  # user_column is user
    for found in (_alike(word, names, 0.8), part, _alike(word, names, 0.6)):
        if found:
            return names[found[0]]
    return None


def _alike(word: str, names: Iterable[str], cutoff: float) -> list[str]:
    return difflib.get_close_matches(word.lower(), list(names), n=1, cutoff=cutoff)


def explain(problem: ValidationError, document: Document, model: type[BaseModel]) -> ConfigError:
    """Return one line for one mistake; a heading and a line for each where there are several."""
    lines = list(dict.fromkeys(_line(error, document, model) for error in problem.errors(include_url=False)))
    if len(lines) == 1:
        return ConfigError(lines[0])
    return ConfigError(f"{document.source}: {len(lines)} problems", *(f"  {line}" for line in lines))


def _line(error: Any, document: Document, model: type[BaseModel]) -> str:
    context: dict[str, Any] = error.get("ctx") or {}
    location = _real((*error["loc"], *context.get("location", ())), document)
    return f"{document.origin(location)}: {_sentence(error, context, location, model)}"


def _real(location: Location, document: Document) -> Location:
    """Drop what pydantic adds for the branches of a union, which no user typed."""
    real: list[str | int] = []
    value: Any = document.data
    for part in location:
        if isinstance(value, list) and isinstance(part, int) and part < len(value):
            real.append(part)
            value = value[part]
        elif isinstance(value, dict):
            real.append(part)
            value = value.get(part)
    return tuple(real)


def _sentence(error: Any, context: dict[str, Any], location: Location, model: type[BaseModel]) -> str:
    kind, dotted = error["type"], _dotted(location) or "the config"
    shown = str(error["input"]) if isinstance(error["input"], Decimal) else repr(error["input"])
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    got = "" if location and location[0] in _SECRET else f", got {shown}"
    if kind == "missing":
        owner = _owner(location, model)
        dotted = _dotted((*location[:-1], _written(str(location[-1]), owner)))
        info = owner.model_fields.get(str(location[-1])) if owner is not None else None
        return f"{dotted} is missing" + (f"; {info.description}" if info and info.description else "")
    if kind == "extra_forbidden":
        return _unknown(dotted, location, model)
    if kind == "literal_error":
        allowed = re.findall("'([^']*)'", context["expected"])
        meant = nearest(str(error["input"]), allowed)
        hint = f"; did you mean {meant}?" if meant else ""
        return f"{dotted} must be one of {', '.join(allowed)}{got}{hint}"
    if kind in ("value_error", "field"):
        return f"{dotted} {context.get('error') or context.get('message')}".replace("the config ", "", 1)
    expected = next((words for start, words in _EXPECTED.items() if kind.startswith(start)), None)
    if expected is None:
        return f"{dotted}: {error['msg'][:1].lower()}{error['msg'][1:]}{got}"
    limit = f" {next(iter(context.values()))}" if kind.startswith(("greater", "less")) else ""
    return f"{dotted} must be {expected}{limit}{got}"


def _unknown(dotted: str, location: Location, model: type[BaseModel]) -> str:
    general = re.sub(r"^each\.[^.]+", "each.NAME", dotted)
    if general in RENAMED:
        return f"{dotted} is now called {RENAMED[general]}"
    owner, name = _owner(location, model), str(location[-1])
    allowed = sorted(_written(field, owner) for field in owner.model_fields) if owner is not None else []
    if (meant := nearest(name, allowed)) is not None:
        return f"{dotted} is not a field of this config; did you mean {meant}?"
    for group, info in model.model_fields.items():  # a right name in a wrong group
        inner = _model_in(info.annotation)
        if inner is not None and name in inner.model_fields:
            return f"{dotted} is not a field of this config; it belongs to {group}: write {group}.{name}"
    return f"{dotted} is not a field of this config; allowed here: {', '.join(allowed)}"


def _written(field: str, owner: type[BaseModel] | None) -> str:
    """Return how a field is written: by another name where its model has one (`Model.WRITTEN`)."""
    return str(getattr(owner, "WRITTEN", {}).get(field, field))


def _owner(location: Location, model: type[BaseModel]) -> type[BaseModel] | None:
    """Return the model whose field the last part of `location` is."""
    owner: type[BaseModel] | None = model
    for part in location[:-1]:
        if owner is None:
            return None
        info = owner.model_fields.get(str(part))
        owner = _model_in(info.annotation) if info is not None else owner
    return owner


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if inspect.isclass(annotation):
        return annotation if issubclass(annotation, BaseModel) else None
    return next((found for inner in typing.get_args(annotation) if (found := _model_in(inner))), None)
