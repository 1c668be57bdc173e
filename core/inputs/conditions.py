"""``where`` conditions: a small safe grammar, compiled to Arrow compute. Nothing is ever evaluated as code.

    condition  = term {OR term}
    term       = factor {AND factor}
    factor     = NOT factor | "(" condition ")" | test
    test       = column (= | == | != | <> | < | <= | > | >=) value
               | column [NOT] IN "(" value {"," value} ")"
               | column [NOT] BETWEEN value AND value
               | column [NOT] LIKE text                          % any characters, _ one character
               | column [NOT] MATCHES text                       RE2, found anywhere; linear time
               | column IS [NOT] NULL
    column     = name | "name with spaces"
    value      = number | 'text' | TRUE | FALSE

Words are case-insensitive. Nulls behave as in SQL: a test on a null is unknown, and a record counts only
where the condition is true. `parse` needs no data; `bind` checks columns and types against a schema, so
that a mistake shows before any budget is spent, with the character it is at.
"""

from __future__ import annotations

import datetime
import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram.contributions.keys import is_text, one_array
from hushgram.errors import ParameterError, is_unicode

__all__ = [
    "Bound", "Condition", "bind", "equality", "kind_of", "kinds_together", "numbers_in", "parse", "text_bytes",
    "typed_value",
]  # fmt: skip

_MAX_TEXT, _MAX_DEPTH = 10_000, 50
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?)
    | (?P<text>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<word>[^\W\d]\w*(?:\.\w+)*)
    | (?P<sign><=|>=|<>|!=|==|=|<|>|\(|\)|,)
    )""",
    re.VERBOSE,
)
_COMPARISONS = {
    "=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_SYNONYMS = {"==": "=", "<>": "!="}
_RESERVED = {"and", "or", "not", "in", "between", "like", "matches", "is", "null", "true", "false"}
# Texts of which is counted how many are distinct, before a test is made on distinct ones alone.
_SAMPLE = 4096

Value: TypeAlias = Fraction | str | bool
Mask = Any  # a boolean pyarrow.Array
Columns = Callable[[str], Any]


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


@dataclass(frozen=True)
class _Test:
    """One comparison: ``at`` is where its column stands, ``places`` where its values stand."""

    column: str
    operator: str  # = != < <= > >= in between like matches null
    values: tuple[Value, ...]
    at: int
    places: tuple[int, ...]


@dataclass(frozen=True)
class _Join:
    operator: str  # and | or | not
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class Condition:
    """A parsed condition: its text, its tree, and the columns that it names."""

    text: str
    tree: Any
    columns: tuple[str, ...]

    @property
    def kinds(self) -> dict[str, pa.DataType]:
        """The types of columns of text files, by what they are compared with: numbers, booleans or text."""
        return kinds_together(
            {test.column: kind_of(value)} for test in _tests(self.tree) for value in test.values
        )


@dataclass(frozen=True)
class Bound:
    """A condition whose columns and values fit a schema."""

    _evaluate: Callable[[Columns], Mask]

    def matches(self, table: pa.Table | pa.RecordBatch) -> NDArray[np.bool_]:
        """Return which rows the condition is true for; unknown (null) counts as false."""
        mask = pc.fill_null(self._evaluate(table.column), False)
        return np.asarray(mask.to_numpy() if isinstance(mask, pa.ChunkedArray) else mask.to_numpy(False))


def kind_of(value: Value) -> pa.DataType:
    """Return the type in which text is read that is compared with a value."""
    if isinstance(value, str):
        return pa.string()
    return pa.float64() if isinstance(value, Fraction) else pa.bool_()


def kinds_together(parts: Iterable[Mapping[str, pa.DataType]]) -> dict[str, pa.DataType]:
    """Return one type per column: text where uses differ."""
    found: dict[str, pa.DataType] = {}
    for part in parts:
        for name, kind in part.items():
            found[name] = kind if found.get(name, kind) == kind else pa.string()
    return found


def _tests(tree: Any) -> Iterator[_Test]:
    if isinstance(tree, _Join):
        for part in tree.parts:
            yield from _tests(part)
    else:
        yield tree


def _fail(text: str, at: int, problem: str) -> NoReturn:
    """Raise one line that points at the character."""
    shown = " ".join(f"{text[max(0, at - 60) : at]}«here»{text[at : at + 40]}".split("\n"))
    raise ParameterError(f"where: {problem} at character {at + 1}: {shown}")


# --- parsing ----------------------------------------------------------------------------------------------


def parse(text: str, *, bare: bool = False) -> Condition:
    """Parse a condition; a ParameterError points at the character of a mistake.

    Args:
        text: the condition.
        bare: whether a single word need not be quoted where a text is expected, as in ``city=Paris``: shells
            take quotes away.

    >>> parse("status = 404 AND size > 10").columns
    ('status', 'size')
    """
    if len(text) > _MAX_TEXT:
        raise ParameterError(f"where: a condition may have {_MAX_TEXT} characters, got {len(text)}")
    if not is_unicode(text):
        raise ParameterError("where: the condition is not UTF-8 text")
    parser = _Parser(text, list(_tokens(text)), bare)
    tree = parser.condition(0)
    if parser.peek is not None:
        parser.fail("expected AND, OR or the end" + ("; text with spaces goes in single quotes" * bare))
    return Condition(text, tree, tuple(dict.fromkeys(parser.columns)))


def _tokens(text: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            _fail(text, at, "unclosed quote" if text[at] in "'\"" else f"unexpected {text[at]!r}")
        kind = match.lastgroup or ""
        yield _Token(kind, match.group(kind), match.start(kind))
        at = match.end()


class _Parser:
    """Recursive descent over the tokens of one condition."""

    def __init__(self, text: str, tokens: list[_Token], bare: bool) -> None:
        self.text, self.tokens, self.next, self.bare = text, tokens, 0, bare
        self.columns: list[str] = []

    def condition(self, depth: int) -> Any:
        return self._joined("or", lambda: self._joined("and", lambda: self._factor(depth)))

    def _joined(self, word: str, part: Callable[[], Any]) -> Any:
        parts = [part()]
        while self._word(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else _Join(word, tuple(parts))

    def _factor(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            self.fail(f"more than {_MAX_DEPTH} levels of brackets")
        if self._word("not"):
            return _Join("not", (self._factor(depth + 1),))
        if self._sign("("):
            inner = self.condition(depth + 1)
            self._expect(self._sign(")"), ")")
            return inner
        return self._test()

    def _test(self) -> Any:
        at, column, token = self._at, self._column(), self.peek
        operator = _SYNONYMS.get(token.text, token.text) if token else ""
        if token is not None and token.kind == "sign" and operator in _COMPARISONS:
            self.next += 1
            return self._made(column, operator, at, [self._value()])
        if self._word("is"):
            negated = self._word("not")
            self._expect(self._word("null"), "NULL")
            test = self._made(column, "null", at, [])
        else:
            negated = self._word("not")
            test = self._worded(column, at)
        return _Join("not", (test,)) if negated else test

    def _worded(self, column: str, at: int) -> _Test:
        """Parse IN, BETWEEN, LIKE or MATCHES and what follows it."""
        if self._word("in"):
            self._expect(self._sign("("), "(")
            values = [self._value()]
            while self._sign(","):
                values.append(self._value())
            self._expect(self._sign(")"), ", or )")
            return self._made(column, "in", at, values)
        if self._word("between"):
            low = self._value()
            self._expect(self._word("and"), "AND")
            return self._made(column, "between", at, [low, self._value()])
        for word in ("like", "matches"):
            if self._word(word):
                place, pattern = self._value()
                if not isinstance(pattern, str):
                    _fail(self.text, place, f"{word.upper()} needs a text in single quotes")
                return self._made(column, word, at, [(place, pattern)])
        return self.fail("expected a comparison such as = or IN")

    def _made(self, column: str, operator: str, at: int, found: list[tuple[int, Value]]) -> _Test:
        return _Test(column, operator, tuple(v for _, v in found), at, tuple(place for place, _ in found))

    def _column(self) -> str:
        token = self.peek
        if token is None or token.kind not in ("word", "quoted") or self._reserved(token):
            hint = "; text goes in single quotes, on the right" if token and token.kind == "text" else ""
            self.fail(f"expected a column name{hint}")
        self.next += 1
        name = token.text[1:-1].replace('""', '"') if token.kind == "quoted" else token.text
        self.columns.append(name)
        return name

    def _value(self) -> tuple[int, Value]:
        """Parse a value; returns it with its place."""
        at, token = self._at, self.peek
        if token is not None:
            self.next += 1
            if token.kind == "number":
                return at, Fraction(token.text)
            if token.kind == "text":
                return at, token.text[1:-1].replace("''", "'")
            if token.kind == "word" and token.text.lower() in ("true", "false"):
                return at, token.text.lower() == "true"
            if token.kind == "word" and self.bare and not self._reserved(token):
                return at, token.text
            self.next -= 1
        hint = "; text goes in single quotes" if token and token.kind in ("word", "quoted") else ""
        return self.fail(f"expected a value{hint}")

    @property
    def peek(self) -> _Token | None:
        return self.tokens[self.next] if self.next < len(self.tokens) else None

    @property
    def _at(self) -> int:
        return len(self.text.rstrip()) if self.peek is None else self.peek.at

    def _word(self, word: str) -> bool:
        return self._take("word", word)

    def _sign(self, sign: str) -> bool:
        return self._take("sign", sign)

    def _take(self, kind: str, text: str) -> bool:
        """Step over the next token if it is this one."""
        token = self.peek
        found = token is not None and token.kind == kind and token.text.lower() == text
        self.next += found
        return found

    def _expect(self, found: bool, expected: str) -> None:
        if not found:
            self.fail(f"expected {expected}")

    def _reserved(self, token: _Token) -> bool:
        return token.kind == "word" and token.text.lower() in _RESERVED

    def fail(self, problem: str) -> NoReturn:
        _fail(self.text, self._at, problem)


# --- meaning ----------------------------------------------------------------------------------------------


def bind(condition: Condition, schema: pa.Schema) -> Bound:
    """Compile a condition for columns of ``schema``; a missing column or a value of another type is an error."""
    return Bound(_compile(condition.tree, condition.text, schema))


def _compile(tree: Any, text: str, schema: pa.Schema) -> Callable[[Columns], Mask]:
    if not isinstance(tree, _Join):
        return _compile_test(tree, text, schema)
    parts = [_compile(part, text, schema) for part in tree.parts]
    if tree.operator == "not":
        return lambda columns: pc.invert(parts[0](columns))
    both = pc.and_kleene if tree.operator == "and" else pc.or_kleene
    return lambda columns: reduce(both, (part(columns) for part in parts))


def _compile_test(test: _Test, text: str, schema: pa.Schema) -> Callable[[Columns], Mask]:
    if test.column not in schema.names:
        close = difflib.get_close_matches(test.column, schema.names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        _fail(text, test.at, f"no column {test.column!r}{hint}")
    name, kind = test.column, schema.field(test.column).type
    if test.operator == "null":
        return lambda columns: pc.is_null(columns(name))
    if test.operator in ("like", "matches"):
        return _compile_pattern(test, text, kind)
    signs = {"in": ["="] * len(test.values), "between": [">=", "<="]}.get(test.operator, [test.operator])
    parts = [
        _compare(sign, value, kind, text, at)
        for sign, value, at in zip(signs, test.values, test.places, strict=True)
    ]
    both = pc.or_kleene if test.operator == "in" else pc.and_kleene
    return lambda columns: reduce(both, (part(columns(name)) for part in parts))


def _compile_pattern(test: _Test, text: str, kind: pa.DataType) -> Callable[[Columns], Mask]:
    name, pattern = test.column, test.values[0]
    if not is_text(kind):
        _fail(text, test.at, f"{test.operator.upper()} needs a text column, and {name!r} is {kind}")
    function = pc.match_like if test.operator == "like" else pc.match_substring_regex
    try:
        function(pa.array([""]).cast(kind), pattern)
    except pa.ArrowInvalid as problem:
        _fail(text, test.places[0], str(problem).splitlines()[0])
    if test.operator == "like":
        return lambda columns: function(columns(name), pattern)
    return lambda columns: _on_distinct(columns(name), lambda texts: function(texts, pattern))


def _on_distinct(column: pa.Array | pa.ChunkedArray, test: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Test distinct texts only, unless nearly all of them differ: a regular expression costs more than that."""
    column = one_array(column)
    some = column.slice(0, _SAMPLE)
    if 10 * pc.count_distinct(some).as_py() > 9 * len(some):
        return test(column)
    encoded = column.dictionary_encode()
    return test(encoded.dictionary).take(encoded.indices)


def _compare(operator: str, value: Value, kind: pa.DataType, text: str, at: int) -> Callable[[Any], Mask]:
    """Compile ``column operator value`` without rounding: a fraction beside whole numbers becomes a whole one."""
    if pa.types.is_integer(kind) and isinstance(value, Fraction):
        if value.denominator != 1 and operator not in ("=", "!="):
            floor = value.numerator // value.denominator
            value = Fraction(floor + 1 if operator in ("<", ">=") else floor)
        constant = _always(operator, value, kind)
        if constant is not None:
            return lambda column: pc.if_else(pc.is_valid(column), constant, None)
    try:
        scalar = typed_value(value, kind)
    except ValueError as problem:
        _fail(text, at, str(problem))
    function = _COMPARISONS[operator]
    return lambda column: function(column, scalar)


def equality(condition: Condition, schema: pa.Schema) -> tuple[str, set[Any]] | None:
    """Return column and values of a condition that is one test ``=`` or ``IN``, as they are compared; None otherwise.

    Two such conditions on one column hold for a record together only if they share a value.

    >>> equality(parse("status IN (404, 404.0, 500)"), pa.schema([("status", pa.float64())]))
    ('status', {404.0, 500.0})
    """
    test = condition.tree
    if not isinstance(test, _Test) or test.operator not in ("=", "in"):
        return None
    kind = schema.field(test.column).type
    if pa.types.is_integer(kind):  # whole numbers are compared exactly
        return test.column, set(test.values)
    scalars = (typed_value(value, kind) for value in test.values)
    return test.column, {one if pa.types.is_temporal(kind) else one.as_py() for one in scalars}


# --- values in the type of the column that they are compared with, without rounding -------------------------


def _always(operator: str, value: Fraction, kind: pa.DataType) -> bool | None:
    """Return what a comparison says about every whole number, where the value is not one or lies outside them."""
    limits = np.iinfo(np.uint64 if kind == pa.uint64() else np.int64)
    if value.denominator != 1:
        return operator == "!="
    if value < int(limits.min):
        return operator in (">", ">=", "!=")
    if value > int(limits.max):
        return operator in ("<", "<=", "!=")
    return None


def typed_value(value: Value, kind: pa.DataType) -> pa.Scalar:
    """Return a literal as a scalar of the column's type; ValueError where the types do not fit."""
    if isinstance(value, bool):
        if pa.types.is_boolean(kind):
            return pa.scalar(value)
    elif isinstance(value, Fraction):
        if pa.types.is_integer(kind) and value.denominator == 1:
            return pa.scalar(value.numerator, pa.uint64() if kind == pa.uint64() else pa.int64())
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return pa.scalar(_float(value, single=pa.types.is_float32(kind)), pa.float64())
    elif is_text(kind):
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        return pa.scalar(value if text else value.encode(), kind)
    elif pa.types.is_temporal(kind):
        return _moment(value, kind)
    found = {Fraction: "a number", bool: "true or false", str: "text"}[type(value)]
    hint = "; text goes in single quotes" if is_text(kind) or pa.types.is_temporal(kind) else ""
    raise ValueError(f"expected a value for a column of type {kind}, found {found}{hint}")


def _float(value: Fraction, *, single: bool) -> float:
    """Return a number as the column would hold it: in single precision, 0.1 is the column's 0.1."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    with np.errstate(over="ignore"):
        return float(np.float32(number)) if single else number


def _moment(value: str, kind: pa.DataType) -> pa.Scalar:
    """Return a date or time from its ISO text."""
    try:
        if not pa.types.is_time(kind):
            return pa.scalar(value).cast(kind)
        time = datetime.time.fromisoformat(value)
        scalar = pa.scalar(time, kind)
        if scalar.as_py() != time:  # Arrow leaves out an offset, and digits that the column has no place for
            raise ValueError
        return scalar
    except (ValueError, pa.ArrowException):
        zoned = pa.types.is_timestamp(kind) and kind.tz
        example = "09:30:00" if pa.types.is_time(kind) else "2026-11-16" + ("T00:00:00Z" if zoned else "")
        raise ValueError(f"{value!r} is not a {kind} such as {example}") from None


def text_bytes(column: pa.Array) -> pa.Array:
    """Return values as the bytes of their text, which need not be UTF-8."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    plain = column.cast(kind) if kind != column.type else column
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return (plain if binary else plain.cast(pa.large_string())).cast(pa.large_binary())


def numbers_in(column: pa.Array) -> pa.Array:
    """Return numbers as they are and text as numbers, each value by itself; null where it is not a number."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return column.cast(pa.float64(), safe=False)
    text = text_bytes(column)
    is_number = pc.match_substring_regex(text, r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*$")
    found = pc.if_else(is_number, text, None).cast(pa.large_string())
    return pc.ascii_ltrim(pc.ascii_trim_whitespace(found), "+").cast(pa.float64())
