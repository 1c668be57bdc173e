"""What a kind of query is: how it is written, how far one user moves its answer, and how it is counted.

A kind is one module and one line in the registry (`hushgram.svt.kinds`). Its `Counters` answer all queries of
the kind at once: whole numbers that add up over parts of the data, from whose sum the answers are read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushgram.errors import ParameterError

__all__ = ["Counters", "DataShape", "QueryKind", "read_text"]

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class DataShape:
    """What counters are compiled against: whether key texts travel, and the columns of records."""

    texts: bool
    record_schema: pa.Schema


class QueryKind(ABC):
    """One query, as what it asks; counts of bounded contributions, so every kind is monotone."""

    __slots__ = ()
    #: how the kind is called in summaries
    name: ClassVar[str]
    #: the fields of its JSON object; the first tells the kind from the others
    fields: ClassVar[tuple[str, ...]]
    #: which form of the data it counts
    data: ClassVar[Literal["keys", "records"]]
    #: whether it needs the text of keys, not only their fingerprints
    needs_texts: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def parse(cls, fields: Mapping[str, Any], where: str) -> Self:
        """From its JSON object; ``where`` names the line in errors."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads besides user and key."""
        return ()

    @property
    def column_types(self) -> dict[str, pa.DataType]:
        """What they are compared with: so they are read from files of text."""
        return {}

    def most(self, max_contributions: int, max_per_key: int) -> int:
        """The most that one user changes the answer: C, since a user contributes no more than that in all."""
        return max_contributions

    @classmethod
    @abstractmethod
    def counters(cls, queries: Sequence[tuple[int, Any]], shape: DataShape) -> Sequence[Counters]:
        """Counters for all queries of this kind, each with its place in the stream."""


class Counters(ABC):
    """Counters of one kind: ``size`` whole numbers that add up over parts of the data."""

    size: int

    @abstractmethod
    def add(self, into: I64, rows: Any, counts: I64) -> None:
        """Count a part: a `Histogram` of keys, or a table of distinct records; each row with its count."""

    @abstractmethod
    def read(self, totals: I64, out: I64) -> None:
        """Write the exact answers to their places in ``out``."""

    def counting(self) -> Self:
        """The same for those who only count: smaller to send."""
        return self

    def reading(self) -> Self:
        """The same for those who only read answers off: smaller to send."""
        return self

    def _without(self, **emptied: Any) -> Self:
        out = copy(self)
        out.__dict__.update(emptied)
        return out


def read_text(value: Any, name: str, where: str, *, numbers: bool = False, empty: bool = False) -> str:
    """A text of a query's object; with ``numbers`` a whole number means its decimal text."""
    if numbers and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not (value or empty):
        raise ParameterError(f"{where}: {name} must be text, got {value!r}")
    return value
