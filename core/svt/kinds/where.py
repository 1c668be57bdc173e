"""{"where": condition}: how many records satisfy a condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa

from hushgram.errors import ParameterError
from hushgram.inputs.conditions import Condition, bind, parse
from hushgram.svt.kinds.kind import I64, Counters, DataShape, QueryKind, read_text

__all__ = ["WhereQuery"]


@dataclass(frozen=True, slots=True)
class WhereQuery(QueryKind):
    """How many records satisfy a condition."""

    name: ClassVar[str] = "where"
    fields: ClassVar[tuple[str, ...]] = ("where",)
    data: ClassVar[Literal["keys", "records"]] = "records"

    condition: Condition

    @classmethod
    def parse(cls, fields: Mapping[str, Any], where: str) -> Self:
        text = read_text(fields["where"], "where", where)
        try:
            return cls(parse(text))
        except ParameterError as problem:
            raise ParameterError(f"{where}: {problem}") from None

    @property
    def columns(self) -> tuple[str, ...]:
        return self.condition.columns

    @property
    def column_types(self) -> dict[str, pa.DataType]:
        return self.condition.kinds

    @classmethod
    def counters(cls, queries: Sequence[tuple[int, WhereQuery]], shape: DataShape) -> Sequence[Counters]:
        return [_WhereCounters(queries, shape.record_schema)]


class _WhereCounters(Counters):
    """One counter for each condition."""

    def __init__(self, queries: Sequence[tuple[int, WhereQuery]], schema: pa.Schema) -> None:
        self._where = [(i, query.condition) for i, query in queries]
        self._schema = schema
        self.size = len(self._where)
        _ = self._bound  # wrong columns and values show here

    @cached_property
    def _bound(self) -> list[Any]:
        return [bind(condition, self._schema) for _, condition in self._where]

    def __getstate__(self) -> dict[str, Any]:
        """Conditions travel to workers as they were parsed, and are bound again there."""
        return {name: value for name, value in self.__dict__.items() if name != "_bound"}

    def add(self, into: I64, rows: pa.Table, counts: I64) -> None:
        for slot, condition in enumerate(self._bound):
            into[slot] += counts[condition.matches(rows)].sum()

    def read(self, totals: I64, out: I64) -> None:
        for (i, _), count in zip(self._where, totals, strict=True):
            out[i] = count
