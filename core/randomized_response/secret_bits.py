"""Secret bits: how each record's value becomes a bit, whatever the value is.

A bit follows from the values of its own record alone. A value that is missing or cannot be read as what it is tested
for is missing, and a missing value is 0 (in a condition: unknown, as in SQL). Types of columns can be refused, before
anything is read; values never are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.inputs.condition_values import numbers_in, text_bytes
from hushgram.inputs.conditions import Condition, bind
from hushgram.inputs.source import overlapping
from hushgram.randomized_response.rows import Rows

__all__ = ["Secret", "check_columns"]


@dataclass(frozen=True)
class Secret:
    """A secret bit of each record: a column of booleans (or numbers, which count unless they are 0), or a condition."""

    name: str
    column: str = ""
    equals: str | None = None
    at_least: float | None = None
    where: Condition | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that hold or decide the bit."""
        return (self.column,) if self.where is None else self.where.columns

    def bits(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return the exact bits of a batch: private."""
        if self.where is not None:
            return bind(self.where, batch.schema).matches(batch)
        column = batch.column(self.column)
        if self.equals is not None:
            found = pc.equal(text_bytes(column), pa.scalar(self.equals.encode(), pa.large_binary()))
        elif self.at_least is not None:
            found = pc.greater_equal(numbers_in(column), self.at_least)
        elif pa.types.is_boolean(column.type):
            found = column
        else:
            words = pc.match_substring_regex(text_bytes(column), "^(true|yes|t|y)$", ignore_case=True)
            found = pc.or_kleene(words, pc.greater(pc.abs(numbers_in(column)), 0))  # NaN is a missing value
        return np.asarray(pc.fill_null(found, False), dtype=np.bool_)


def check_columns(schema: pa.Schema, secrets: Sequence[Secret], public: Sequence[str]) -> None:
    """Refuse columns that cannot be secret or public, from names and types alone."""
    exposed = overlapping(public, (column for secret in secrets for column in secret.columns))
    if exposed is not None:
        raise ParameterError(f"public: column {exposed!r} is secret and cannot be public")
    empty = pa.RecordBatch.from_pylist([], schema)
    for secret in secrets:
        try:
            secret.bits(empty)
        except pa.ArrowException:
            kinds = ", ".join(f"{name} ({schema.field(name).type})" for name in secret.columns)
            raise ParameterError(
                f"secrets: no bit can be made of {kinds}; use columns of single values"
            ) from None
    for name in public:
        try:
            Rows.of(pa.table({name: empty.column(name)}), bytes(32))
        except (pa.ArrowException, ValueError):
            kind = schema.field(name).type
            raise ParameterError(
                f"public: column {name!r} is {kind}; publish columns of single values"
            ) from None
