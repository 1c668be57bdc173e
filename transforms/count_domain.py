"""Counts of a finite public domain: parts of the bounded histogram in, one vector out.

In:  `Histogram` parts of bounded contributions, exact and private.
Out: one vector of exact counts, one per cell, also where there are no parts. The next stage must be a mechanism.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa

from hushgram.contributions.histogram import Histogram
from hushgram.contributions.users import UserPart
from hushgram.mechanisms.domains import FiniteDomain
from hushgram.sensitivity import ExactVector
from hushgram.transforms.shuffle.combining import SumParts

__all__ = ["CountDomain", "KeepDomain", "KeepPartition"]


class KeepDomain(beam.PTransform):
    """Arrow batches → the rows whose ``key`` is in the domain, before users are bounded.

    So records outside the domain do not use up a user's contributions. Where cells are hashed keys, the key becomes
    its cell: the bound per key is then one per cell. The rule looks at one row at a time.
    """

    def __init__(self, domain: FiniteDomain, key: str) -> None:
        super().__init__()
        self._domain, self._key = domain, key

    def expand(self, batches: Any) -> Any:
        kept = batches | "KeepRows" >> beam.Map(_keep, self._domain, self._key)
        kept.element_type = pa.RecordBatch
        return kept


def _keep(batch: pa.RecordBatch, domain: FiniteDomain, key: str) -> pa.RecordBatch:
    inside, cells = domain.keep(batch.column(key))
    kept = batch.filter(pa.array(inside))
    if cells is None:
        return kept
    at = kept.schema.get_field_index(key)
    return kept.set_column(at, pa.field(key, cells.type), cells)


class CountDomain(beam.PTransform):
    """`Histogram` parts → the exact counts of ``domain``, in the order of its cells."""

    def __init__(self, domain: FiniteDomain) -> None:
        super().__init__()
        self._domain = domain

    def expand(self, parts: Any) -> Any:
        return (
            parts
            | "CountParts" >> beam.Map(_count_part, self._domain)
            | "SumCells" >> SumParts(len(self._domain))
        )

    def display_data(self) -> dict[str, Any]:
        return {"cells": len(self._domain)}


def _count_part(part: Histogram, domain: FiniteDomain) -> ExactVector:
    return domain.count(part)


class KeepPartition(beam.PTransform):
    """Arrow batches → the records of users in a `UserPart`: whether one is kept follows from its own user alone."""

    def __init__(self, part: UserPart, user: str) -> None:
        super().__init__()
        self._part, self._user = part, user

    def expand(self, batches: Any) -> Any:
        kept = batches | "KeepPart" >> beam.FlatMap(_keep_part, self._part, self._user)
        kept.element_type = pa.RecordBatch
        return kept

    def display_data(self) -> dict[str, Any]:
        return {"users": self._part.name}


def _keep_part(batch: pa.RecordBatch, part: UserPart, user: str) -> Iterator[pa.RecordBatch]:
    kept = batch.filter(pa.array(part.keep(batch.column(user))))
    if kept.num_rows:
        yield kept
