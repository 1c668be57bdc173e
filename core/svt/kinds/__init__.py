"""The kinds of queries that a stream may ask. A new one is a module here and a line in `KINDS`."""

from __future__ import annotations

from hushgram.svt.kinds.between import RangeQuery
from hushgram.svt.kinds.key import KeyQuery
from hushgram.svt.kinds.kind import Counters, DataShape, QueryKind
from hushgram.svt.kinds.prefix import PrefixQuery
from hushgram.svt.kinds.where import WhereQuery

__all__ = [
    "KINDS", "Counters", "DataShape", "KeyQuery", "PrefixQuery", "QueryKind", "RangeQuery", "WhereQuery",
]  # fmt: skip

#: Every kind, by the field that tells it from the others.
KINDS: dict[str, type[QueryKind]] = {
    "key": KeyQuery,
    "prefix": PrefixQuery,
    "column": RangeQuery,
    "where": WhereQuery,
}
