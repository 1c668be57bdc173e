"""Columns of a frame by their names: Arrow tables and record batches, pandas and polars frames.

None of these libraries but Arrow is imported: a frame is what has named columns and gives one by its name.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from hushgram.errors import InputError, ParameterError
from hushgram.inputs.columns import no_column

__all__ = ["UNSTATED", "columns_by_name", "is_frame"]


class Nothing:
    """The type of `UNSTATED`; errors show its name."""

    def __repr__(self) -> str:
        return "unstated"


#: an argument that was not given, where None is a statement: there is no such column
UNSTATED: Final[Any] = Nothing()


def is_frame(data: object) -> bool:
    """Whether `data` has columns with names, in place of being a column itself."""
    return isinstance(data, pa.Table | pa.RecordBatch) or hasattr(type(data), "columns")


def columns_by_name(function: str, frame: Any, stray: object, **names: Any) -> list[Any]:
    """One column of the frame for each of `names` (None where the user is None); `stray` must not be stated.

    `names` are the arguments of `function` as the caller wrote them: messages speak of them.
    """
    if not is_frame(frame):
        raise ParameterError(
            f"{function}: {'= and '.join(names)}= name columns of a frame (Arrow, pandas, polars),"
            f" got {type(frame).__name__}; give columns as such, one after the other, or a frame"
        )
    if stray is not None:
        wanted = ", ".join(f"{role}=..." for role in names)
        raise ParameterError(f"{function}: after a frame, state everything by name: {wanted}, params=...")
    if hasattr(frame, "collect"):
        raise ParameterError(f"{function}: the frame is lazy; collect it first")
    return [_column(function, frame, role, name) for role, name in names.items()]


def _column(function: str, frame: Any, role: str, name: Any) -> Any:
    if name is None and role == "user":
        return None
    if name is UNSTATED or name is None:
        hint = ", or user=None to protect single records in place of users" if role == "user" else ""
        raise ParameterError(f'{function}: state the column of the {role}, {role}="..."{hint}')
    if not isinstance(name, str):
        raise ParameterError(f"{function}: {role} must be the name of a column, got {type(name).__name__}")
    arrow = isinstance(frame, pa.Table | pa.RecordBatch)
    names = frame.schema.names if arrow else list(frame.columns)
    if name not in names:
        raise InputError(f"{role}: {no_column(name, [str(each) for each in names])}")
    if names.count(name) > 1:
        raise InputError(f"{role}: column {name!r} occurs {names.count(name)} times; rename one")
    return frame[name]
