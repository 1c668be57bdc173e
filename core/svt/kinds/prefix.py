"""{"prefix": p}: how often the keys that begin with a text occur."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa

from hushgram.exact.histogram import Histogram
from hushgram.svt.kinds.intervals import IntervalCounters
from hushgram.svt.kinds.kind import I64, Counters, DataShape, QueryKind, read_text

__all__ = ["PrefixQuery"]


@dataclass(frozen=True, slots=True)
class PrefixQuery(QueryKind):
    """How often the keys that begin with this text occur; the empty text is all of them."""

    name: ClassVar[str] = "prefix"
    fields: ClassVar[tuple[str, ...]] = ("prefix",)
    data: ClassVar[Literal["keys", "records"]] = "keys"
    needs_texts: ClassVar[bool] = True

    prefix: str

    @classmethod
    def parse(cls, fields: Mapping[str, Any], where: str) -> Self:
        return cls(read_text(fields["prefix"], "prefix", where, empty=True))

    @classmethod
    def counters(cls, queries: Sequence[tuple[int, PrefixQuery]], shape: DataShape) -> Sequence[Counters]:
        texts = [(i, query.prefix.encode()) for i, query in queries]
        return [_PrefixCounters([(i, text, _after(text)) for i, text in texts], pa.large_binary())]


class _PrefixCounters(IntervalCounters):
    """A prefix is an interval of texts: from itself to the first text that does not begin with it."""

    def add(self, into: I64, rows: Histogram, counts: I64) -> None:
        self.add_values(into, rows.texts, counts)


def _after(prefix: bytes) -> bytes | None:
    """The smallest bytes above every text that begins with ``prefix``; None if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
