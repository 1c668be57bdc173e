r"""One line of JSON: whether it is a record, and the values of its fields. The rule looks at the line alone.

A line is a record if it is UTF-8 and holds one JSON object (RFC 8259, to any depth of nesting and any length of
numbers) and nothing else but blanks and a byte-order mark before it, and none of the fields that are read occurs twice
in it. NaN, Inf and Infinity, with or without a minus, are taken for numbers, since many programs write them. Fields
that are not read may hold anything that is JSON.

A secret field (`Source.secrets`) has no say in that: where one is read, strings may hold bytes that are not UTF-8, and
a secret that occurs twice is missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

__all__ = ["NESTED", "Float", "Int", "NoRecord", "load", "parse"]


class Int(str):
    """A whole number as it was written."""

    __slots__ = ()


class Float(str):
    """Any other number as it was written."""

    __slots__ = ()


class NoRecord(ValueError):
    """Why a line is no record."""


#: stands for an object or a list
NESTED = object()

_STRING = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"'
_NUMBER = r"-?(?:(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|NaN|Inf(?:inity)?)"
_TOKEN = re.compile(
    rf"[ \t\r\n]*+(?:(?P<text>{_STRING})|(?P<number>{_NUMBER})|(?P<word>true|false|null)|(?P<sign>[{{}}\[\],:]))"
)
_BLANK = re.compile(r"[ \t\r\n]*")
_WORDS = {"true": True, "false": False, "null": None}
_INT = re.compile(r"-?[0-9]+")


class _Object(list[tuple[str, Any]]):
    """The fields of an object in their order, repeated ones too."""


_DECODER = json.JSONDecoder(object_pairs_hook=_Object, parse_int=Int, parse_float=Float, parse_constant=Float)


def load(line: bytes, names: Collection[str], secrets: Collection[str] = ()) -> dict[str, Any]:
    """The fields `names` of the object on a line, as far as they are there; `NoRecord` where there is none.

    A name with dots is a way through objects: ``request.url``.
    """
    fields = parse(line, "surrogateescape" if secrets else "strict")
    found: dict[str, Any] = {}
    for name in names:
        value: Any = fields
        for part in name.split("."):
            value = _field(value, part, name, name in secrets) if isinstance(value, _Object) else None
        found[name] = NESTED if isinstance(value, list) else value
    return found


def parse(line: bytes, errors: str = "strict") -> list[tuple[str, Any]]:
    """The fields of the object on a line, repeated ones too."""
    try:
        return _fields(line.decode("utf-8", errors))
    except UnicodeDecodeError:
        raise NoRecord("line is not UTF-8") from None


def _field(record: list[tuple[str, Any]], part: str, name: str, secret: bool) -> Any:
    values = [value for field, value in record if field == part]
    if len(values) > 1 and secret:
        return None
    if len(values) > 1:
        raise NoRecord(f"{name} occurs twice")
    return values[0] if values else None


def _fields(text: str) -> list[tuple[str, Any]]:
    """The fields of the object that `text` is."""
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return _walk(text)  # too deep for it, or a spelling of infinity that it does not know
    if not isinstance(value, _Object):
        raise NoRecord("not a JSON object")
    return value


def _walk(text: str) -> list[tuple[str, Any]]:
    """The same by one pass over the tokens with a stack, so that no depth is too deep."""
    stack: list[list[Any]] = []  # the objects and lists that are open
    names: list[str] = []  # the field of each of them that is being read
    whole: list[Any] = []
    wanted, at = "value", 0  # wanted: value, name, colon, comma; with ? also the closing bracket
    while stack or not at:
        token = _TOKEN.match(text, at)
        if token is None:
            raise NoRecord("not a JSON object")
        at, kind, piece = token.end(), str(token.lastgroup), str(token.group(str(token.lastgroup)))
        if wanted.startswith("value") and (kind != "sign" or piece in "{["):
            value = _Object() if piece == "{" else [] if piece == "[" else _scalar(kind, piece)
            if not stack:
                whole = value
            elif isinstance(stack[-1], _Object):
                stack[-1].append((names[-1], value))
            else:
                stack[-1].append(value)
            if kind == "sign":
                stack.append(value)
                names.append("")
            wanted = "comma?" if kind != "sign" else "name?" if piece == "{" else "value?"
        elif wanted.startswith("name") and kind == "text":
            names[-1] = json.loads(piece)
            wanted = "colon"
        elif wanted == "colon" and piece == ":":
            wanted = "value"
        elif wanted == "comma?" and piece == ",":
            wanted = "name" if isinstance(stack[-1], _Object) else "value"
        elif wanted.endswith("?") and piece == ("}" if isinstance(stack[-1], _Object) else "]"):
            stack.pop()
            names.pop()
            wanted = "comma?"
        else:
            raise NoRecord("not a JSON object")
    if not isinstance(whole, _Object) or not _BLANK.fullmatch(text, at):
        raise NoRecord("not a JSON object")
    return whole


def _scalar(kind: str, piece: str) -> Any:
    if kind == "text":
        return json.loads(piece)
    if kind == "word":
        return _WORDS[piece]
    return Int(piece) if _INT.fullmatch(piece) else Float(piece)
