"""Released rows in canonical form: a function of the multiset of rows and the key, whatever they came in."""

from __future__ import annotations

import datetime
import decimal
import pickle
import random
import uuid
from typing import Any

import pyarrow as pa
import pytest

from hushgram.errors import ParameterError
from hushgram.mechanisms.randomized_response import rows
from hushgram.mechanisms.randomized_response.rows import Rows, check_columns, from_bytes, to_bytes

KEY = bytes(range(32))
DAY = datetime.date(2026, 11, 15)
NOON = datetime.datetime(2026, 11, 15, 12)
#: values that must stay apart, by their type
VALUES: dict[pa.DataType, list[Any]] = {
    pa.string(): ["", "a", "b", "a\0", None, "é", "x" * 300],
    pa.large_binary(): [b"", b"\xff", None],
    pa.binary(2): [b"ab", b"cd", None],
    pa.bool_(): [True, False, None],
    pa.int8(): [0, 1, -1, None],
    pa.uint64(): [0, 2**64 - 1, None],
    pa.float64(): [0.0, -0.0, 1.5, float("nan"), float("inf"), None],
    pa.decimal128(20, 2): [decimal.Decimal("0.01"), decimal.Decimal("0.10"), None],
    pa.date32(): [DAY, None],
    pa.timestamp("us", "Europe/Paris"): [NOON, None],
    pa.time64("us"): [NOON.time(), None],
    pa.duration("s"): [datetime.timedelta(1), None],
    pa.null(): [None],
    pa.uuid(): [uuid.UUID(int=0).bytes, uuid.UUID(int=1).bytes, None],
}


def whole(tables: list[pa.Table], groups: int, key: bytes = KEY) -> list[tuple[int, list[str]]]:
    """(rows, what they say) of every part of the table that these batches make."""
    held: dict[int, list[Rows]] = {}
    for table in tables:
        for group, part in Rows.of(table, key).split(groups):
            held.setdefault(group, []).append(pickle.loads(pickle.dumps(part)))
    parts: dict[int, dict[int, pa.Table]] = {}
    first = 0
    for group in sorted(held):
        summed = Rows.merge(held[group])
        for number, at, piece in summed.cut(first):
            parts.setdefault(number, {})[at] = from_bytes(to_bytes(piece))
        first += int(summed.counts.sum())
    joined = [pa.concat_tables([pieces[at] for at in sorted(pieces)]) for _, pieces in sorted(parts.items())]
    return [(part.num_rows, [repr(row) for row in part.to_pylist()]) for part in joined]


def test_batches_groups_and_order_have_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "ROWS_PER_PART", 16)
    rng = random.Random(3)
    records = [{"city": rng.choice(["Rome", "Ulm", None]), "bit": rng.random() < 0.5} for _ in range(100)]
    kinds = pa.schema({"city": pa.string(), "bit": pa.bool_()})
    expected = whole([pa.Table.from_pylist(records, kinds)], 1)
    assert [size for size, _ in expected] == [16] * 6 + [4]
    assert sorted(row for _, part in expected for row in part) == sorted(map(repr, records))
    for groups in (1, 2, 16, 256):
        rng.shuffle(records)
        ends = sorted(rng.sample(range(1, 100), 9))
        cut = [records[a:b] for a, b in zip([0, *ends], [*ends, 100], strict=True)]
        assert whole([pa.Table.from_pylist(part, kinds) for part in cut], groups) == expected
    other = whole([pa.Table.from_pylist(records, kinds)], 1, bytes(32))
    assert sorted(row for _, part in other for row in part) == sorted(map(repr, records))
    assert other != expected


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_rows_that_differ_stay_apart_in_every_type(kind: pa.DataType) -> None:
    values = VALUES[kind]
    table = pa.table({"x": pa.array(values * 3, kind), "bit": [True] * (3 * len(values))})
    held = Rows.of(table, KEY)
    assert held.counts.tolist() == [3] * len(values)
    assert held.table.schema == table.schema


def test_neighbouring_columns_do_not_run_into_each_other() -> None:
    table = pa.table({"x": ["ab", "a", None, ""], "y": ["c", "bc", "", None]})
    assert len(Rows.of(table, KEY).counts) == 4


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int8()), pa.struct({"a": pa.int8()}), pa.map_(pa.string(), pa.int8())]
)
def test_nested_values_are_refused_by_their_type(kind: pa.DataType) -> None:
    check_columns(pa.schema({"x": pa.string(), "y": pa.float16()}), [], ["x", "y"])
    with pytest.raises(ParameterError, match=r"public: column 'x' is .*; publish columns of single values"):
        check_columns(pa.schema({"x": kind}), [], ["x"])
