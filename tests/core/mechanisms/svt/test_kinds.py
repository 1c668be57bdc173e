"""A new kind of query is one class and one registry line: a toy kind goes the whole way."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from hushgram.contributions.histogram import Histogram
from hushgram.errors import ParameterError
from hushgram.mechanisms.svt.exact_answers import QueryPlan, pack_records, unpack_records
from hushgram.mechanisms.svt.queries import (
    KINDS,
    Counters,
    DataShape,
    QueryKind,
    parse_query,
    read_queries,
    read_text,
    sensitivity,
)
from hushgram.pipelines.cli import cli
from hushgram.sensitivity import exact

SCHEMA = pa.schema([("url", pa.string()), ("n", pa.int64())])


@dataclass(frozen=True, slots=True)
class SuffixQuery(QueryKind):
    """How often keys that end with a text occur."""

    name: ClassVar[str] = "suffix"
    fields: ClassVar[tuple[str, ...]] = ("suffix", "of")
    data: ClassVar[Literal["keys", "records"]] = "keys"
    needs_texts: ClassVar[bool] = True

    suffix: str

    @classmethod
    def parse(cls, fields: Mapping[str, Any], where: str) -> Self:
        return cls(read_text(fields["suffix"], "suffix", where))

    @classmethod
    def counters(cls, queries: Sequence[tuple[int, SuffixQuery]], shape: DataShape) -> Sequence[Counters]:
        assert shape.texts
        return [SuffixCounters(queries)]


class SuffixCounters(Counters):
    def __init__(self, queries: Sequence[tuple[int, SuffixQuery]]) -> None:
        self._queries = list(queries)
        self.size = len(queries)

    def add(self, into, rows, counts):
        for slot, (_, query) in enumerate(self._queries):
            into[slot] += counts[np.asarray(pc.ends_with(rows.texts, query.suffix.encode()))].sum()

    def read(self, totals, out):
        for (i, _), count in zip(self._queries, totals, strict=True):
            out[i] = count


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(KINDS, "suffix", SuffixQuery)


def test_a_toy_kind_is_parsed_planned_and_counted_beside_the_others(toy):
    lines = [
        '{"suffix": ".png"}',
        '{"key": "/a.png"}',
        '{"prefix": "/"}',
        '{"column": "n", "between": [1, 2]}',
    ]
    queries = read_queries(lines, "stream")
    assert sensitivity(queries, 8, 2) == 8
    plan = QueryPlan(queries, SCHEMA, "url")
    assert (plan.texts, plan.reads_keys, plan.reads_records) == (True, True, True)
    total = plan.zeros()
    for keys in (["/a.png", "/b.png", "c"], ["/a.png"]):
        plan.counting().add_keys(total, Histogram.of_column(keys, texts=True))
    plan.add_records(total, pa.table({"url": ["c", "d"], "n": [1, 5]}), np.array([3, 9]))
    first, second = plan.reading().answers(exact(total, max_contributions=8, max_per_key=2), [1, 3])
    assert (first.values.tolist(), second.values.tolist()) == ([3], [2, 3, 3])
    assert (first.sensitivity.max_per_key, second.sensitivity.max_per_key) == (8, 8)


def test_the_command_takes_a_toy_kind(toy, tmp_path):
    pq.write_table(
        pa.table({"user": [f"u{i}" for i in range(400)], "url": ["/a.png"] * 400}), tmp_path / "v.parquet"
    )
    (tmp_path / "q.jsonl").write_text('{"suffix": ".png"}\n{"suffix": ".gif"}\n')
    config = tmp_path / "c.yaml"
    config.write_text(
        f"sparse_vector: toys\ninput: {{path: {tmp_path}/v.parquet, user: user, key: url}}\n"
        f"privacy: {{epsilon: 20, max_contributions: 1}}\nstream: {{path: {tmp_path}/q.jsonl}}\n"
        f"svt: {{threshold: 200, cutoff: 1}}\noutput: {{path: {tmp_path}/out.jsonl}}\n"
    )
    checked = CliRunner().invoke(cli, ["sparse-vector", str(config), "--check"], catch_exceptions=False)
    assert checked.exit_code == 0, checked.output
    assert "suffix" in checked.output
    done = CliRunner().invoke(cli, ["sparse-vector", str(config), "--quiet"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["above"] for line in answers if "above" in line][:1] == [True]


def test_errors_name_the_toy_too(toy):
    with pytest.raises(ParameterError, match=r'"where", or "suffix" with "of", got none of them'):
        parse_query({"id": "x"}, 0, "line 1")
    with pytest.raises(ParameterError, match='"of" needs "suffix"'):
        parse_query({"key": "x", "of": 1}, 0, "line 1")
    with pytest.raises(ParameterError, match="got key and suffix"):
        parse_query({"key": "x", "suffix": "y"}, 0, "line 1")


def test_every_kind_states_its_fields_and_the_registry_is_by_the_first():
    assert all(kind.fields[0] == lead for lead, kind in KINDS.items())
    fields = [field for kind in KINDS.values() for field in kind.fields]
    assert len(set(fields)) == len(fields)


def test_a_queried_text_that_is_not_utf8_is_no_reason_to_fail() -> None:
    raw = pa.array([b"a", b"\xff", None])
    table = pa.table({"x": pa.Array.from_buffers(pa.string(), 3, raw.buffers())})
    found = unpack_records(pack_records(table, table.schema), table.schema)
    assert found.column("x").cast(pa.binary()).to_pylist() == raw.to_pylist()
