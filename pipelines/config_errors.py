"""Validation problems in the user's words: place, dotted field, value, what is allowed, what was meant."""

from __future__ import annotations

import difflib
import inspect
import typing
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ValidationError

from hushgram.pipelines.yamlfile import SECRET, ConfigError, Document, Location

__all__ = ["explain", "nearest"]

_KINDS = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "model_type": "a group of fields",
    "model_attributes_type": "a group of fields",
    "dict_type": "a group of fields",
    "list_type": "a list",
    "tuple_type": "a list",
}
_LIMITS = {
    "greater_than": ("ge", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("le", "below"),
    "less_than_equal": ("le", "at most"),
}


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, or None."""
    names = list(known)
    found = difflib.get_close_matches(word.lower(), [name.lower() for name in names], n=1, cutoff=0.6)
    return next((name for name in names if found and name.lower() == found[0]), None)


def explain(problem: ValidationError, document: Document, model: type[BaseModel]) -> ConfigError:
    """One line for one mistake; a heading and a line for each where there are several."""
    lines = list(dict.fromkeys(_line(error, document, model) for error in problem.errors(include_url=False)))
    if len(lines) == 1:
        return ConfigError(lines[0])
    return ConfigError(f"{document.source}: {len(lines)} problems", *(f"  {line}" for line in lines))


def _line(error: Any, document: Document, model: type[BaseModel]) -> str:
    context: dict[str, Any] = error.get("ctx") or {}
    location = _real((*error["loc"], *context.get("location", ())), document)
    return f"{document.origin(location)}: {_sentence(error, context, location, model)}"


def _real(location: Location, document: Document) -> Location:
    """Drops what pydantic adds for the branches of a union, which no user typed."""
    real: list[str | int] = []
    value: Any = document.data
    for index, part in enumerate(location):
        if isinstance(value, dict) and (part in value or index == len(location) - 1):
            real.append(part)
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            real.append(part)
            value = value[part]
        elif isinstance(value, dict):
            real.append(part)
            value = None
    return tuple(real)


def _sentence(error: Any, context: dict[str, Any], location: Location, model: type[BaseModel]) -> str:
    kind = error["type"]
    dotted = ".".join(map(str, location)) or "the config"
    got = "" if location and location[0] in SECRET else f", got {_show(error['input'])}"
    if kind == "missing":
        return f"{dotted} is missing{_hint(location, model)}"
    if kind == "extra_forbidden":
        return _unknown(dotted, location, model)
    if kind == "literal_error":
        allowed = [str(choice) for choice in _choices(location, model)]
        meant = nearest(str(error["input"]), allowed)
        return f"{dotted} must be one of {', '.join(allowed)}{got}" + (
            f"; did you mean {meant}?" if meant else ""
        )
    if kind in _LIMITS:
        limit = next(iter(context.values()))
        return f"{dotted} must be {_LIMITS[kind][1]} {limit}{got}"
    if kind in _KINDS:
        return f"{dotted} must be {_KINDS[kind]}{got}"
    if kind in ("value_error", "field"):
        return f"{dotted} {context.get('error') or context.get('message')}".replace("the config ", "", 1)
    return f"{dotted}: {error['msg'][:1].lower()}{error['msg'][1:]}{got}"


def _unknown(dotted: str, location: Location, model: type[BaseModel]) -> str:
    owner = _owner(location, model)
    allowed = sorted(owner.model_fields) if owner is not None else []
    meant = nearest(str(location[-1]), allowed)
    elsewhere = "" if meant else _elsewhere(str(location[-1]), model)
    remedy = f"; did you mean {meant}?" if meant else elsewhere or f"; allowed here: {', '.join(allowed)}"
    return f"{dotted} is not a field of this config{remedy}"


def _elsewhere(name: str, model: type[BaseModel]) -> str:
    """A right name in a wrong group is a frequent mistake."""
    for field, info in model.model_fields.items():
        inner = _model_in(info.annotation)
        if inner is not None and name in inner.model_fields:
            return f"; it belongs to {field}: write {field}.{name}"
    return ""


def _hint(location: Location, model: type[BaseModel]) -> str:
    owner = _owner(location, model)
    info = owner.model_fields.get(str(location[-1])) if owner is not None else None
    return f"; {info.description}" if info is not None and info.description else ""


def _choices(location: Location, model: type[BaseModel]) -> list[Any]:
    owner = _owner(location, model)
    info = owner.model_fields.get(str(location[-1])) if owner is not None else None
    return _literals(info.annotation) if info is not None else []


def _literals(annotation: Any) -> list[Any]:
    if typing.get_origin(annotation) is typing.Literal:
        return list(typing.get_args(annotation))
    return [choice for inner in typing.get_args(annotation) for choice in _literals(inner)]


def _owner(location: Location, model: type[BaseModel]) -> type[BaseModel] | None:
    """The model whose field the last part of `location` is."""
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
    for inner in typing.get_args(annotation):
        found = _model_in(inner)
        if found is not None:
            return found
    return None


def _show(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
