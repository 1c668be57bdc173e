"""Queries of a stream: their kinds, their order, and how far one user can change an answer.

Every query counts bounded contributions. A user, after bounding, contributes at most C in all and at most
L∞ to one key (mathematics: docs/svt.md), so that adding or removing the user changes

    {"key": k}                         by at most min(L∞, C)    one key
    {"prefix": p}                      by at most C             any number of keys
    {"column": c, "between": [a, b]}   by at most C             any number of records
    {"where": condition}               by at most C             any number of records

and all answers move the same way: counts only grow when a user is added, so every stream of these queries is
monotone. The sensitivity of a stream is the largest of its queries; it is derived here and never typed in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from hushgram.errors import InputError, ParameterError
from hushgram.inputs.conditions import Condition, parse

__all__ = [
    "KeyQuery",
    "Kind",
    "PrefixQuery",
    "Query",
    "RangeQuery",
    "WhereQuery",
    "check_stream",
    "default_id",
    "parse_query",
    "read_queries",
    "sensitivity",
]

_KINDS = '"key", "prefix", "column" with "between", or "where"'
_KIND_FIELDS = ("key", "prefix", "column", "where")
_FIELDS = frozenset({"id", "seq", "between", *_KIND_FIELDS})
_MAX_SEQUENCE = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """How often one key occurs."""

    key: str


@dataclass(frozen=True, slots=True)
class PrefixQuery:
    """How often the keys that begin with this text occur."""

    prefix: str


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """How many records have ``low`` ≤ column ≤ ``high``."""

    column: str
    low: Fraction | str
    high: Fraction | str


@dataclass(frozen=True, slots=True)
class WhereQuery:
    """How many records satisfy a condition."""

    condition: Condition


Kind: TypeAlias = KeyQuery | PrefixQuery | RangeQuery | WhereQuery


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a stream: its name, its place in the order, and what it asks."""

    id: str
    sequence: int
    kind: Kind

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads besides user and key."""
        if isinstance(self.kind, RangeQuery):
            return (self.kind.column,)
        return self.kind.condition.columns if isinstance(self.kind, WhereQuery) else ()


def sensitivity(queries: Iterable[Query], max_contributions: int, max_per_key: int) -> int:
    """The most that one user changes any answer of the stream.

    >>> key, prefix = parse_query({"key": "a"}, 0, "q"), parse_query({"prefix": "a"}, 1, "q")
    >>> sensitivity([key], 8, 1), sensitivity([key, prefix], 8, 1)
    (1, 8)
    """
    one_key = min(max_per_key, max_contributions)
    each = (one_key if isinstance(q.kind, KeyQuery) else max_contributions for q in queries)
    return max(each, default=one_key)


def default_id(sequence: int) -> str:
    """The name of a query that was given none."""
    return f"q{sequence}"


def parse_query(fields: Any, position: int, where: str) -> Query:
    """A query from its JSON object; ``where`` names the line in errors, ``position`` is its default seq.

    >>> parse_query({"id": "q1", "column": "age", "between": [30, 49]}, 0, "line 1").kind.low
    Fraction(30, 1)
    """
    if not isinstance(fields, Mapping):
        raise ParameterError(f'{where}: a query must be an object such as {{"key": "https://a/b"}}')
    kinds = [name for name in _KIND_FIELDS if name in fields]
    if not fields.keys() <= _FIELDS:
        unknown = next(name for name in fields if name not in _FIELDS)
        raise ParameterError(f"{where}: unknown query kind or field {unknown!r}; write {_KINDS}")
    if len(kinds) != 1:
        found = "none of them" if not kinds else " and ".join(kinds)
        raise ParameterError(f"{where}: a query has exactly one of {_KINDS}, got {found}")
    if "between" in fields and kinds != ["column"]:
        raise ParameterError(f'{where}: "between" needs "column"')
    sequence = fields.get("seq", position)
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence <= _MAX_SEQUENCE:
        raise ParameterError(f"{where}: seq must be a whole number from 0, got {sequence!r}")
    name = fields.get("id", default_id(sequence))
    if isinstance(name, bool) or not isinstance(name, str | int) or not str(name):
        raise ParameterError(f"{where}: id must be text, got {name!r}")
    return Query(str(name), sequence, _kind(kinds[0], fields, where))


def _kind(kind: str, fields: Mapping[str, Any], where: str) -> Kind:
    if kind == "key":
        return KeyQuery(_text(fields["key"], "key", where, numbers=True))
    if kind == "prefix":
        return PrefixQuery(_text(fields["prefix"], "prefix", where))
    if kind == "where":
        condition = _text(fields["where"], "where", where)
        try:
            return WhereQuery(parse(condition))
        except ParameterError as problem:
            raise ParameterError(f"{where}: {problem}") from None
    column, bounds = _text(fields["column"], "column", where), fields.get("between")
    if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) != 2:
        raise ParameterError(f"{where}: between must be two values such as [30, 49], got {bounds!r}")
    low, high = (_bound(bound, where) for bound in bounds)
    if isinstance(low, str) != isinstance(high, str):
        raise ParameterError(f"{where}: between must be two numbers or two texts, got {bounds!r}")
    if low > high:  # type: ignore[operator]
        raise ParameterError(f"{where}: between must begin with the smaller value, got {list(bounds)!r}")
    return RangeQuery(column, low, high)


def _text(value: Any, name: str, where: str, *, numbers: bool = False) -> str:
    if numbers and isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # a whole number means its decimal text, as everywhere
    if not isinstance(value, str) or (not value and name != "prefix"):
        raise ParameterError(f"{where}: {name} must be text, got {value!r}")
    return value


def _bound(value: Any, where: str) -> Fraction | str:
    if isinstance(value, str):
        return value
    try:
        if isinstance(value, bool):
            raise ValueError
        return Fraction(str(value)) if isinstance(value, float) else Fraction(value)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"{where}: between must be numbers, dates or texts, got {value!r}") from None


def read_queries(lines: Iterable[str], source: str) -> list[Query]:
    """The queries of a JSONL file, checked as one stream and sorted by sequence number."""
    queries: list[Query] = []
    decode = json.JSONDecoder().decode
    for number, line in enumerate(lines, start=1):
        if not line or line.isspace():
            continue
        try:
            fields = decode(line)
        except ValueError as problem:
            reason = str(problem).splitlines()[0]
            raise InputError(f"{source}, line {number}: not JSON ({reason})") from None
        position = len(queries)
        plain = _plain_key_query(fields, position)
        queries.append(plain or parse_query(fields, position, f"{source}, line {number}"))
    return check_stream(queries, source)


def _plain_key_query(fields: Any, position: int) -> Query | None:
    """The most frequent form, {"key": ...} with or without an id, without detours; None for all others."""
    if type(fields) is not dict or len(fields) > 2:
        return None
    key, name = fields.get("key"), fields.get("id")
    if type(key) is not str or not key or len(fields) != 1 + (type(name) is str and name != ""):
        return None
    return Query(name or default_id(position), position, KeyQuery(key))


def check_stream(queries: Iterable[Query], source: str) -> list[Query]:
    """The queries in order; no two may share an id or a sequence number, and there must be one at least."""
    ordered = sorted(queries, key=lambda query: query.sequence)
    if not ordered:
        raise InputError(f"{source}: no queries")
    seen: set[str] = set()
    for before, query in zip([None, *ordered], ordered, strict=False):
        if before is not None and before.sequence == query.sequence:
            raise ParameterError(
                f"{source}: queries {before.id!r} and {query.id!r} both have seq {query.sequence}; "
                "give each its own sequence number, or none at all"
            )
        if query.id in seen:
            raise ParameterError(f"{source}: two queries have the id {query.id!r}; ids must differ")
        seen.add(query.id)
    return ordered
