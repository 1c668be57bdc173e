"""Keeps the records of one part of the users.

In:  batches with a column of users, exact and private.
Out: the same batches with the records of that part alone, exact and private.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa

from hushgram.exact.partition import UserPart

__all__ = ["KeepPartition"]


class KeepPartition(beam.PTransform):
    """A filter by `UserPart`: a record's fate follows from its own user."""

    def __init__(self, part: UserPart, user: str) -> None:
        super().__init__()
        self._part, self._user = part, user

    def expand(self, batches: Any) -> Any:
        kept = batches | "KeepPart" >> beam.FlatMap(_keep, self._part, self._user)
        kept.element_type = pa.RecordBatch
        return kept

    def display_data(self) -> dict[str, Any]:
        return {"users": self._part.name}


def _keep(batch: pa.RecordBatch, part: UserPart, user: str) -> Iterator[pa.RecordBatch]:
    kept = batch.filter(pa.array(part.keep(batch.column(user))))
    if kept.num_rows:
        yield kept
