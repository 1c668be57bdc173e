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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hushgram.errors import InputError, ParameterError
from hushgram.svt.kinds import KINDS, KeyQuery, QueryKind

__all__ = ["Query", "check_stream", "default_id", "parse_query", "read_queries", "sensitivity"]

_MAX_SEQUENCE = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a stream: its name, its place in the order, and what it asks."""

    id: str
    sequence: int
    kind: QueryKind

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads besides user and key."""
        return self.kind.columns


def sensitivity(queries: Iterable[Query], max_contributions: int, max_per_key: int) -> int:
    """The most that one user changes any answer of the stream.

    >>> key, prefix = parse_query({"key": "a"}, 0, "q"), parse_query({"prefix": "a"}, 1, "q")
    >>> sensitivity([key], 8, 1), sensitivity([key, prefix], 8, 1)
    (1, 8)
    """
    return max(query.kind.most(max_contributions, max_per_key) for query in queries)


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
    kind = _kind_of(fields, where)
    sequence = fields.get("seq", position)
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence <= _MAX_SEQUENCE:
        raise ParameterError(f"{where}: seq must be a whole number from 0, got {sequence!r}")
    name = fields.get("id", default_id(sequence))
    if isinstance(name, bool) or not isinstance(name, str | int) or not str(name):
        raise ParameterError(f"{where}: id must be text, got {name!r}")
    return Query(str(name), sequence, kind.parse(fields, where))


def _kind_of(fields: Mapping[str, Any], where: str) -> type[QueryKind]:
    """The one kind that the fields of an object name."""
    first = {field: lead for lead, kind in KINDS.items() for field in kind.fields}
    for name in fields:
        if name not in first and name not in ("id", "seq"):
            raise ParameterError(f"{where}: unknown query kind or field {name!r}; write {_forms()}")
    found = [lead for lead in KINDS if lead in fields]
    if len(found) != 1:
        shown = " and ".join(found) or "none of them"
        raise ParameterError(f"{where}: a query has exactly one of {_forms()}, got {shown}")
    for name in fields:
        if name in first and first[name] != found[0]:
            raise ParameterError(f'{where}: "{name}" needs "{first[name]}"')
    return KINDS[found[0]]


def _forms() -> str:
    """How queries are written, for errors: "key", "prefix", … or "where"."""
    forms = [" with ".join(f'"{field}"' for field in kind.fields) for kind in KINDS.values()]
    return f"{', '.join(forms[:-1])}, or {forms[-1]}"


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
