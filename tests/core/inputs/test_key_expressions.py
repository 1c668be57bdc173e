"""Shaping: every step by its definition, key_expressions alike from every format, mistakes in one line."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgram.errors import InputError, ParameterError
from hushgram.inputs import Source
from hushgram.inputs.key_expressions import STEPS, impossible_keys, parse_key_expression, raw_keys
from tests.core.inputs.helpers import plan_of, read_all, write

URL = "HTTPS://me:pw@Example.ORG:8443/a/b/c.html?q=1&r=/x#top"
DEFINED: list[tuple[str, str | None, Any]] = [
    ("lower", "ÀB", "àb"),
    ("strip_query", URL, "HTTPS://me:pw@Example.ORG:8443/a/b/c.html#top"),
    ("strip_query", "/a#b?c", "/a#b?c"),
    ("strip_query", "/a?b?c", "/a"),
    ("strip_fragment", URL, URL.removesuffix("#top")),
    ("strip_fragment", "a#b\nc#d", "a"),
    ("host", URL, "example.org"),
    ("host", "//h:1/x", "h"),
    ("host", "http://[2001:DB8::1]:80/", "[2001:db8::1]"),
    ("host", "/only/a/path", None),
    ("host", "http:///p", None),
    ("path 1", URL, "/a"),
    ("path 2", URL, "/a/b"),
    ("path 9", URL, "/a/b/c.html"),
    ("path 2", "https://h", "/"),
    ("path 2", "a/b/c", "/a/b"),
    ("truncate hour", "2026-11-15T09:30:00Z", "2026-11-15T09"),
    ("truncate day", "2026-11-15 23:59", "2026-11-15"),
    ("truncate week", "2026-11-15", "2026-11-09"),
    ("truncate day", "10/Oct/2000:13:55:36 -0700", "2000-10-10"),
    ("truncate hour", "10/Oct/2000:13:55:36 -0700", "2000-10-10T13"),
    ("truncate day", "2026-02-30", None),
    ("truncate hour", "2026-11-15", None),
    ("ip_prefix 24", "10.1.2.3", "10.1.2.0/24"),
    ("ip_prefix 24 32", "2001:db8:1::5", "2001:db8::/32"),
    ("ip_prefix 0", "10.1.2.3", "0.0.0.0/0"),
    ("ip_prefix 24", "not an address", None),
    ("substring 1 3", "aéîo", "éî"),
    ("words", "It's 3 o'clock, Zoë_x", ["It", "s", "3", "o", "clock", "Zoë", "x"]),
    ("words", " ,;", []),
    ("ngrams 3", "añbc", ["añb", "ñbc"]),
    ("ngrams 3", "ab", []),
]


@pytest.mark.parametrize(("step", "text", "expected"), DEFINED)
def test_every_step_by_its_definition(step: str, text: str | None, expected: Any) -> None:
    key_expression = parse_key_expression(f"x | {step}")
    assert key_expression is not None
    made, parents = key_expression.apply({"x": pa.array([None, text, ""], pa.string())})
    if isinstance(expected, list):
        assert parents is not None
        assert made.to_pylist() == expected
        assert set(parents.tolist()) <= {1}
    else:
        assert made.to_pylist()[:2] == [None, expected]
        assert parents is None


def first_segments(text: str, count: int) -> str:
    rest = re.split("[?#]", re.sub(r"^([A-Za-z][A-Za-z0-9+.-]*:)?//[^/?#]*", "", text))[0]
    return "/" + "/".join(rest.removeprefix("/").split("/")[:count])


def without_query(text: str) -> str:
    page, sign, fragment = text.partition("#")
    return page.partition("?")[0] + sign + fragment


@given(st.lists(st.text("a1/?#:+é \n"), max_size=8), st.integers(0, 3))
def test_steps_on_urls_of_any_spelling(texts: list[str], first: int) -> None:
    """Also of a part of a column, as Arrow cuts it."""
    column, kept = pa.array([None, *texts], pa.string())[first:], [None, *texts][first:]
    for step, meaning in (
        ("strip_query", without_query),
        ("strip_fragment", lambda text: text.partition("#")[0]),
        ("path 1", lambda text: first_segments(text, 1)),
        ("path 3", lambda text: first_segments(text, 3)),
    ):
        name, *numbers = step.split()
        found = STEPS[name].apply(column, *map(int, numbers)).to_pylist()
        assert found == [None if text is None else meaning(text) for text in kept], step


def test_every_step_is_in_the_docs_and_in_this_table() -> None:
    docs = (Path(__file__).parents[3] / "docs" / "inputs.md").read_text()
    for name in STEPS:
        assert f"| `{name}" in docs
        assert any(step.split()[0] == name for step, *_ in DEFINED)


@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=8))
def test_several_columns_are_the_json_list_of_their_texts(pairs: list[tuple[str, str]]) -> None:
    key_expression = parse_key_expression("[a, b]")
    assert key_expression is not None
    columns = {"a": pa.array([a for a, _ in pairs]), "b": pa.array([b for _, b in pairs])}
    made, _ = key_expression.apply(columns)
    assert made.to_pylist() == [json.dumps(pair, ensure_ascii=False, separators=(",", ":")) for pair in pairs]


def test_key_expressions_give_the_same_from_every_format(tmp_path: Path) -> None:
    records = [
        {
            "user": i % 7,
            "req": {"url": f"http://H{i % 3}.org/a/{i}?x"},
            "country": "FR" if i % 2 else "DE",
            "n": i,
        }
        for i in range(40)
    ]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet")
    write(tmp_path / "a.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    rows = "".join(f"{r['user']},{r['req']['url']},{r['country']},{r['n']}\n" for r in records)  # type: ignore[index]
    write(tmp_path / "a.csv", "user,req.url,country,n\n" + rows)
    key = "[country, req.url | host]"
    expected = sorted((str(i % 7), f'["{"FR" if i % 2 else "DE"}","h{i % 3}.org"]') for i in range(40))
    for name in ("a.parquet", "a.jsonl", "a.csv"):
        plan = plan_of(tmp_path / name, ids=("user", key))
        assert plan.schema.names == ["user", key]
        found, rejected, _ = read_all(plan)
        assert sorted((str(row["user"]), row[key]) for row in found) == expected, name
        assert not rejected


def test_a_record_may_give_several_keys_or_none(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 'user,text\nann,"a b, a"\nbob,;\n,x y\ncat,z\n')
    rows, rejected, bad = read_all(plan_of(file, ids=("user", "text | words"), keep_rejected=True))
    assert [(row["user"], row["text | words"]) for row in rows] == [
        ("ann", "a"), ("ann", "a"), ("ann", "b"), ("cat", "z"),
    ]  # fmt: skip
    assert rejected == {"user is null": 1}  # one record, whatever number of keys it would give
    assert [row["at"] for row in bad] == [29]


def test_what_cannot_be_shaped_is_rejected(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", '{"user":1,"u":"/x"}\n{"user":2,"u":"http://h/"}\n{"user":3}\n')
    rows, rejected, bad = read_all(plan_of(file, ids=("user", "u | host"), keep_rejected=True))
    assert [row["user"] for row in rows] == ["2"]
    assert rejected == {"u | host is null": 2}
    assert [row["at"] for row in bad] == [0, 47]


def test_times_and_broken_text_of_parquet(tmp_path: Path) -> None:
    when = pa.array([datetime.datetime(2026, 11, 15, 9, 30)] * 2, pa.timestamp("us"))
    broken = pa.Array.from_buffers(pa.string(), 2, pa.array([b"A", b"\xff"]).buffers())
    pq.write_table(pa.table({"user": broken, "t": when}), tmp_path / "a.parquet")
    rows, rejected, _ = read_all(plan_of(tmp_path / "a.parquet", ids=("user | lower", "t | truncate hour")))
    assert rows == [{"user | lower": "a", "t | truncate hour": "2026-11-15T09"}]
    assert rejected == {"user is not UTF-8": 1}
    pq.write_table(pa.table({"user": ["a"], "x": [1.5]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match="column 'x' is double; a user or key must be"):
        plan_of(tmp_path / "b.parquet", ids=("user", "x | lower"))


def test_raw_keys_find_their_shape_and_shaped_ones_stay() -> None:
    host, both = parse_key_expression("u | host"), parse_key_expression("[c, u | host | lower]")
    assert host is not None
    assert both is not None
    assert raw_keys(host, ["http://A.b/c", "a.b", b"//X/y", b"\xff"]) == ["a.b", "a.b", "x", b"\xff"]
    assert raw_keys(both, ['["FR", "http://X/y"]', '["FR","x"]', "x"]) == ['["FR","x"]', '["FR","x"]', "x"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("u | hosst", "no step 'hosst'; there are lower"),
        ("u | path", "path takes a number from 1 to 100"),
        ("u | path 0", "path takes a number from 1 to 100, got 0"),
        ("u | truncate year", "truncate takes hour or day or week, got year"),
        (" | lower", "names no column"),
        ("[a | words, b | ngrams 2]", "only one of its steps may give several"),
        ("t | words | lower", "words gives several keys and must be the last step"),
    ],
)
def test_mistakes_are_one_line(text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        parse_key_expression(text)


def test_a_user_is_one() -> None:
    with pytest.raises(ParameterError, match="only a key"):
        Source(ids=("t | words", "key"))


@pytest.mark.parametrize(
    ("expression", "possible", "impossible"),
    [
        ("url | host", ["https://A.org/x", "a.org"], ["/page/1", "a b"]),
        ("url | host | lower", ["a.org"], ["a.org/x"]),
        ("time | truncate day", ["2026-11-15", "2026-11-15T09:00:00"], ["2026-11", "monday"]),
        ("time | truncate hour", ["2026-11-15T09"], ["2026-11-15"]),
        ("ip | ip_prefix 24", ["10.1.2.3", "10.1.2.0/24"], ["example.org"]),
        ("text | words", ["word", "été"], ["two words", ""]),
        ("text | ngrams 3", ["abc"], ["ab", "abcd"]),
        (
            "[country, url | host]",
            ['["de","a.org"]', '["de","https://a.org/x"]'],
            ["a.org", '["de"]', '["de","/x"]'],
        ),
        ("url | strip_query", ["/a?b", ""], []),
    ],
)
def test_keys_that_an_expression_cannot_make(expression, possible, impossible):
    made = parse_key_expression(expression)
    assert (
        impossible_keys(made, [*possible, *impossible, *(key.encode() for key in impossible)])
        == impossible * 2
    )
