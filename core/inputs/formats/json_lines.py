r"""One line of JSON: whether it is a record, and the values of its fields. The rule looks at the line alone.

A line is a record if it is UTF-8 and holds one JSON object (RFC 8259, to any depth of nesting and any length of
numbers) and nothing else but blanks and a byte-order mark before it, and none of the fields that are read occurs twice
in it. NaN, Inf and Infinity, with or without a minus, are taken for numbers, since many programs write them. Fields
that are not read may hold anything that is JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

__all__ = ["NESTED", "Float", "Int", "NoRecord", "load"]


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


def load(line: bytes, names: Collection[str]) -> dict[str, Any]:
    """The fields `names` of the object on a line, as far as they are there; `NoRecord` where there is none."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise NoRecord("line is not UTF-8") from None
    fields = _fields(text)
    found: dict[str, Any] = {}
    for name, value in fields:
        if name in names:
            if name in found:
                raise NoRecord(f"{name} occurs twice")
            found[name] = NESTED if isinstance(value, list) else value
    return found


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
    fields: list[tuple[str, Any]] = []
    stack: list[str] = []
    name, wanted = "", "value"  # wanted: value, name, colon, comma; with ? also the closing bracket
    at = 0
    while stack or not at:
        token = _TOKEN.match(text, at)
        if token is None:
            raise NoRecord("not a JSON object")
        at, kind, piece = token.end(), str(token.lastgroup), str(token.group(str(token.lastgroup)))
        if wanted.startswith("value") and piece in "{[" and kind == "sign":
            if len(stack) == 1 and stack[0] == "{":
                fields.append((name, NESTED))
            stack.append(piece)
            wanted = "name?" if piece == "{" else "value?"
        elif wanted.startswith("value") and kind != "sign":
            if not stack:
                break
            if len(stack) == 1 and stack[0] == "{":
                fields.append((name, _scalar(kind, piece)))
            wanted = "comma?"
        elif wanted.startswith("name") and kind == "text":
            name = json.loads(piece) if len(stack) == 1 else ""
            wanted = "colon"
        elif wanted == "colon" and piece == ":":
            wanted = "value"
        elif wanted == "comma?" and piece == ",":
            wanted = "name" if stack[-1] == "{" else "value"
        elif wanted.endswith("?") and piece == {"{": "}", "[": "]"}[stack[-1]]:
            stack.pop()
            wanted = "comma?"
        else:
            raise NoRecord("not a JSON object")
    if not text.lstrip(" \t\r\n").startswith("{") or not _BLANK.fullmatch(text, at):
        raise NoRecord("not a JSON object")
    return fields


def _scalar(kind: str, piece: str) -> Any:
    if kind == "text":
        return json.loads(piece)
    if kind == "word":
        return _WORDS[piece]
    return Int(piece) if _INT.fullmatch(piece) else Float(piece)
