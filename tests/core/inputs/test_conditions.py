"""The ``where`` grammar: meaning, nulls, and errors that point at the character."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgram.errors import ParameterError
from hushgram.inputs.conditions import bind, parse

TABLE = pa.table(
    {
        "status": [200, 404, None, 500],
        "size": [1.5, 2.0, 3.0, float("nan")],
        "url": ["https://a/b", "x", "y%", "it's"],
        "day": [datetime.date(2026, 1, day) for day in (1, 2, 3, 4)],
        "ok": [True, False, None, True],
        "my column": [b"a", b"b", b"c", b"d"],
        "small": pa.array([1, 2, 3, 127], pa.int8()),
        "unsigned": pa.array([0, 1, 2, 2**64 - 1], pa.uint64()),
        "single": pa.array([0.1, 0.2, 0.3, None], pa.float32()),
        "money": pa.array([Decimal("1.10"), Decimal("2.00"), Decimal("3.00"), None], pa.decimal128(9, 2)),
    }
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("status = 404", [1]),
        ("status == 404", [1]),
        ("status != 404", [0, 3]),
        ("NOT status = 404", [0, 3]),
        ("status <> 404 or size >= 2", [0, 1, 2, 3]),
        ("status in (200, 500) and size<2", [0]),
        ("status not in (200, 500)", [1]),
        ("status between 200 and 404", [0, 1]),
        ("status NOT BETWEEN 200 AND 404", [3]),
        ("url like 'https:%'", [0]),
        ("url = 'it''s'", [3]),
        ("status is null", [2]),
        ("status is not null", [0, 1, 3]),
        ("day >= '2026-01-03'", [2, 3]),
        ("ok = true", [0, 3]),
        ("ok = FALSE", [1]),
        ("\"my column\" = 'b'", [1]),
        ("status < 404.5", [0, 1]),
        ("status <= 404.5", [0, 1]),
        ("status > 404.5", [3]),
        ("status >= 403.5", [1, 3]),
        ("status = 404.5", []),
        ("status != 404.5", [0, 1, 3]),
        ("size <= 2", [0, 1]),
        ("status < 99999999999999999999", [0, 1, 3]),
        ("status = 99999999999999999999", []),
        ("small < 200", [0, 1, 2, 3]),
        ("small > -1000 and unsigned > -1", [0, 1, 2, 3]),
        ("unsigned = 18446744073709551615", [3]),
        ("unsigned < 2.5 or unsigned <= -0.5", [0, 1, 2]),
        ("single = 0.1", [0]),
        ("single < 1e300 and size < 1e999", [0, 1, 2]),
        ("single between 0.1 and 0.2", [0, 1]),
        ("money in (1.1, 3)", [0, 2]),
        ("(status=200 or status = 500) and not ok=false", [0, 3]),
        ("status = 200 or status = 404 and ok = true", [0]),  # AND binds tighter
    ],
)
def test_meaning(text, rows):
    found = bind(parse(text), TABLE.schema).matches(TABLE)
    assert [i for i, holds in enumerate(found) if holds] == rows


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_texts_that_repeat_match_as_each_by_itself(kind):
    texts = ["a bot", "Crawler", None, "nobody", ""]
    for rows in (texts * 20, texts, [None] * 20, []):
        table = pa.concat_tables(
            pa.table({"x": pa.array(part, pa.string()).cast(kind)}) for part in (rows[:7], rows[7:])
        )
        for where in ("x MATCHES '(?i)bot|crawl'", "NOT x NOT MATCHES '(?i)bot|crawl'"):
            found = bind(parse(where), table.schema).matches(table)
            assert found.tolist() == [text in ("a bot", "Crawler") for text in rows]
            for batch in table.combine_chunks().slice(1).to_batches():
                assert bind(parse(where), table.schema).matches(batch).tolist() == found.tolist()[1:]


@pytest.mark.parametrize(
    ("text", "problem", "character"),
    [
        ("", "expected a column name", 1),
        ("status =", "expected a value", 9),
        ("status = = 3", "expected a value", 10),
        ("status = 'x'", "type int64, found text", 10),
        ("stats = 3", "no column 'stats'; did you mean 'status'?", 1),
        ("(status = 3", "expected )", 12),
        ("status = 3 3", "expected AND, OR or the end", 12),
        ("status in 3", "expected (", 11),
        ("status = abc", "text goes in single quotes", 10),
        ("'a' = 3", "text goes in single quotes, on the right", 1),
        ("url like 3", "LIKE needs a text in single quotes", 10),
        ("status like 'x'", "LIKE needs a text column", 1),
        ("status = 3 and", "expected a column name", 15),
        ("day = 'soon'", "is not a date32", 7),
        ("url = 'abc", "unclosed quote", 7),
        ("status @ 3", "unexpected '@'", 8),
        ("__import__('os')", "expected a comparison", 11),
        ("(" * 60 + "status = 1", "more than 50 levels", 52),
        ("ok = 1", "type bool, found a number", 6),
        ("status is 3", "expected NULL", 11),
        ("status between 3, 4", "expected AND", 17),
    ],
)
def test_errors_point_at_the_character(text, problem, character):
    with pytest.raises(ParameterError) as refused:
        bind(parse(text), TABLE.schema)
    message = str(refused.value)
    assert problem in message
    assert f"at character {character}:" in message
    assert "\n" not in message


def test_newlines_stay_on_one_line():
    with pytest.raises(ParameterError) as refused:
        parse("status\n=\n")
    assert "\n" not in str(refused.value)


def test_too_long():
    with pytest.raises(ParameterError, match="10000 characters"):
        parse("a" * 10_001)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab()=<>'\" ,andorti1.5%!", max_size=40))
def test_any_text_is_parsed_or_refused_in_one_line(text):
    problem = ""
    try:
        bind(parse(text), TABLE.schema)
    except ParameterError as refused:
        problem = str(refused)
    assert "\n" not in problem


NUMBERS = st.integers(-3, 3)


@st.composite
def conditions(draw, depth=0):
    """A random condition as text, and the same as a Python function of one row with three-valued logic."""
    kind = draw(st.sampled_from(["test", "and", "or", "not"] if depth < 3 else ["test"]))
    if kind == "test":
        column, sign, value = (
            draw(st.sampled_from("ab")),
            draw(st.sampled_from(["=", "<", ">="])),
            draw(NUMBERS),
        )
        compare = {"=": lambda x: x == value, "<": lambda x: x < value, ">=": lambda x: x >= value}[sign]
        return f"{column} {sign} {value}", lambda row: None if row[column] is None else compare(row[column])
    if kind == "not":
        text, inner = draw(conditions(depth + 1))
        return f"not ({text})", lambda row: None if inner(row) is None else not inner(row)
    (left, one), (right, two) = draw(conditions(depth + 1)), draw(conditions(depth + 1))
    decides = kind == "or"

    def both(row):
        values = (one(row), two(row))
        return decides if decides in values else None if None in values else not decides

    return f"({left}) {kind} ({right})", both


@settings(max_examples=80, deadline=None)
@given(conditions(), st.lists(st.tuples(st.none() | NUMBERS, st.none() | NUMBERS), min_size=1, max_size=8))
def test_against_a_row_by_row_reference(condition, rows):
    text, holds = condition
    columns = [list(column) for column in zip(*rows, strict=True)]
    table = pa.table({name: pa.array(c, pa.int64()) for name, c in zip("ab", columns, strict=True)})
    found = bind(parse(text), table.schema).matches(table).tolist()
    assert found == [holds(dict(zip("ab", row, strict=True))) is True for row in rows]
