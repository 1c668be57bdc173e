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

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.inputs.condition_values import Value, always, is_text, of_distinct, typed_value

__all__ = ["Bound", "Condition", "bind", "kind_of", "kinds_together", "parse"]

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
_SIGNS = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_WORDS = {"and", "or", "not", "in", "between", "like", "matches", "is", "null", "true", "false"}

Mask = Any  # a boolean pyarrow.Array
Columns = Callable[[str], Any]


@dataclass(frozen=True)
class _Token:
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
class _Not:
    inner: Any


@dataclass(frozen=True)
class _Join:
    operator: str  # and | or
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class Condition:
    """A parsed condition: its text, its tree, and the columns that it names."""

    text: str
    tree: Any
    columns: tuple[str, ...]

    @property
    def kinds(self) -> dict[str, pa.DataType]:
        """Columns by what they are compared with: numbers, booleans or text. For files that hold text alone."""
        return kinds_together(
            {test.column: kind_of(value)} for test in _tests(self.tree) for value in test.values
        )


def kind_of(value: Value) -> pa.DataType:
    """The type in which text is read that is compared with a value."""
    if isinstance(value, str):
        return pa.string()
    return pa.float64() if isinstance(value, Fraction) else pa.bool_()


def kinds_together(parts: Iterable[Mapping[str, pa.DataType]]) -> dict[str, pa.DataType]:
    """One kind for each column: text where some uses differ."""
    found: dict[str, pa.DataType] = {}
    for part in parts:
        for name, kind in part.items():
            found[name] = kind if found.get(name, kind) == kind else pa.string()
    return found


def _tests(tree: Any) -> Iterator[_Test]:
    if isinstance(tree, _Not):
        yield from _tests(tree.inner)
    elif isinstance(tree, _Join):
        for part in tree.parts:
            yield from _tests(part)
    else:
        yield tree


@dataclass(frozen=True)
class Bound:
    """A condition whose columns and values fit a schema; ``matches`` says which rows it holds for."""

    condition: Condition
    _evaluate: Callable[[Columns], Mask]

    def matches(self, table: pa.Table | pa.RecordBatch) -> NDArray[np.bool_]:
        """True where the condition is true; unknown (null) counts as false."""
        mask = self._evaluate(table.column)
        mask = pc.fill_null(mask, False)
        return np.asarray(mask.to_numpy() if isinstance(mask, pa.ChunkedArray) else mask.to_numpy(False))


def _complain(text: str, at: int, problem: str) -> NoReturn:
    """One line that points at the character."""
    shown = " ".join(f"{text[max(0, at - 60) : at]}«here»{text[at : at + 40]}".split("\n"))
    raise ParameterError(f"where: {problem} at character {at + 1}: {shown}")


# --- reading ----------------------------------------------------------------------------------------------


def parse(text: str, *, bare: bool = False) -> Condition:
    """The condition that ``text`` states, or a ParameterError that points at the character.

    With ``bare`` a single word need not be quoted where a text is expected, as in ``city=Paris``: shells take
    quotes away.

    >>> parse("status = 404 AND size > 10").columns
    ('status', 'size')
    """
    if len(text) > _MAX_TEXT:
        raise ParameterError(f"where: a condition may have {_MAX_TEXT} characters, got {len(text)}")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ParameterError("where: the condition is not UTF-8 text")
    reader = _Reader(text, _tokens(text), bare)
    tree = reader.condition(0)
    reader.expect_end()
    return Condition(text, tree, tuple(dict.fromkeys(reader.columns)))


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            unclosed = "unclosed quote" if text[at] in "'\"" else f"unexpected {text[at]!r}"
            _complain(text, at, unclosed)
        kind = match.lastgroup or ""
        tokens.append(_Token(kind, match.group(kind), match.start(kind)))
        at = match.end()
    return tokens


class _Reader:
    """Recursive descent over the tokens."""

    def __init__(self, text: str, tokens: list[_Token], bare: bool) -> None:
        self.text, self.tokens, self.next, self.bare = text, tokens, 0, bare
        self.columns: list[str] = []

    def condition(self, depth: int) -> Any:
        return self._joined("or", lambda: self._term(depth))

    def _term(self, depth: int) -> Any:
        return self._joined("and", lambda: self._factor(depth))

    def _joined(self, word: str, part: Callable[[], Any]) -> Any:
        parts = [part()]
        while self._word(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else _Join(word, tuple(parts))

    def _factor(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            self._fail(f"more than {_MAX_DEPTH} levels of brackets")
        if self._word("not"):
            return _Not(self._factor(depth + 1))
        if self._sign("("):
            inner = self.condition(depth + 1)
            if not self._sign(")"):
                self._fail("expected )")
            return inner
        return self._test()

    def _test(self) -> Any:
        at = self._at()
        column = self._column()
        sign = self._peek()
        if sign is not None and sign.kind == "sign" and sign.text in _SIGNS:
            self.next += 1
            place = self._at()
            return _Test(column, _SIGNS[sign.text], (self._value(),), at, (place,))
        if self._word("is"):
            negated = self._word("not")
            if not self._word("null"):
                self._fail("expected NULL")
            test: Any = _Test(column, "null", (), at, ())
        else:
            negated = self._word("not")
            test = self._listed(column, at)
        return _Not(test) if negated else test

    def _listed(self, column: str, at: int) -> _Test:
        if self._word("in"):
            return self._in(column, at)
        if self._word("between"):
            first, low = self._at(), self._value()
            if not self._word("and"):
                self._fail("expected AND")
            second, high = self._at(), self._value()
            return _Test(column, "between", (low, high), at, (first, second))
        for word in ("like", "matches"):
            if self._word(word):
                place, pattern = self._at(), self._value()
                if not isinstance(pattern, str):
                    _complain(self.text, place, f"{word.upper()} needs a text in single quotes")
                return _Test(column, word, (pattern,), at, (place,))
        return self._fail("expected a comparison such as = or IN")

    def _in(self, column: str, at: int) -> _Test:
        if not self._sign("("):
            self._fail("expected (")
        places, values = [self._at()], [self._value()]
        while self._sign(","):
            places.append(self._at())
            values.append(self._value())
        if not self._sign(")"):
            self._fail("expected , or )")
        return _Test(column, "in", tuple(values), at, tuple(places))

    def _column(self) -> str:
        token = self._peek()
        if token is None or token.kind not in ("word", "quoted") or self._reserved(token):
            hint = "; text goes in single quotes, on the right" if token and token.kind == "text" else ""
            self._fail(f"expected a column name{hint}")
        self.next += 1
        name = token.text[1:-1].replace('""', '"') if token.kind == "quoted" else token.text
        self.columns.append(name)
        return name

    def _value(self) -> Value:
        token = self._peek()
        if token is not None and token.kind == "number":
            self.next += 1
            return Fraction(token.text)
        if token is not None and token.kind == "text":
            self.next += 1
            return token.text[1:-1].replace("''", "'")
        for word, value in (("true", True), ("false", False)):
            if self._word(word):
                return value
        if token is not None and self.bare and token.kind == "word" and not self._reserved(token):
            self.next += 1
            return token.text
        hint = "; text goes in single quotes" if token and token.kind in ("word", "quoted") else ""
        return self._fail(f"expected a value{hint}")

    def _peek(self) -> _Token | None:
        return self.tokens[self.next] if self.next < len(self.tokens) else None

    def _at(self) -> int:
        token = self._peek()
        return len(self.text.rstrip()) if token is None else token.at

    def _word(self, word: str) -> bool:
        token = self._peek()
        found = token is not None and token.kind == "word" and token.text.lower() == word
        self.next += found
        return found

    def _sign(self, sign: str) -> bool:
        token = self._peek()
        found = token is not None and token.kind == "sign" and token.text == sign
        self.next += found
        return found

    def _reserved(self, token: _Token) -> bool:
        return token.kind == "word" and token.text.lower() in _WORDS

    def _fail(self, problem: str) -> NoReturn:
        _complain(self.text, self._at(), problem)

    def expect_end(self) -> None:
        if self._peek() is not None:
            self._fail(
                "expected AND, OR or the end" + ("; text with spaces goes in single quotes" * self.bare)
            )


# --- meaning ----------------------------------------------------------------------------------------------


def bind(condition: Condition, schema: pa.Schema) -> Bound:
    """The condition over columns of ``schema``; a missing column or a value of another type is an error."""
    return Bound(condition, _compile(condition.tree, condition.text, schema))


def _compile(tree: Any, text: str, schema: pa.Schema) -> Callable[[Columns], Mask]:
    if isinstance(tree, _Not):
        inner = _compile(tree.inner, text, schema)
        return lambda columns: pc.invert(inner(columns))
    if isinstance(tree, _Join):
        parts = [_compile(part, text, schema) for part in tree.parts]
        both = pc.and_kleene if tree.operator == "and" else pc.or_kleene
        return lambda columns: reduce(both, (part(columns) for part in parts))
    return _compile_test(tree, text, schema)


def _compile_test(test: _Test, text: str, schema: pa.Schema) -> Callable[[Columns], Mask]:
    if test.column not in schema.names:
        close = difflib.get_close_matches(test.column, schema.names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        _complain(text, test.at, f"no column {test.column!r}{hint}")
    name, kind = test.column, schema.field(test.column).type
    if test.operator == "null":
        return lambda columns: pc.is_null(columns(name))
    if test.operator in ("like", "matches"):
        if not is_text(kind):
            _complain(text, test.at, f"{test.operator.upper()} needs a text column, and {name!r} is {kind}")
        function = pc.match_like if test.operator == "like" else pc.match_substring_regex
        try:
            function(pa.array([""]).cast(kind), test.values[0])
        except pa.ArrowInvalid as problem:
            _complain(text, test.places[0], str(problem).splitlines()[0])
        pattern = test.values[0]
        if test.operator == "like":
            return lambda columns: function(columns(name), pattern)
        return lambda columns: of_distinct(columns(name), lambda texts: function(texts, pattern))
    if test.operator == "in":
        tests = [_compare("=", v, kind, text, at) for v, at in zip(test.values, test.places, strict=True)]
        return lambda columns: reduce(pc.or_kleene, (one(columns(name)) for one in tests))
    if test.operator == "between":
        low = _compare(">=", test.values[0], kind, text, test.places[0])
        high = _compare("<=", test.values[1], kind, text, test.places[1])
        return lambda columns: pc.and_kleene(low(columns(name)), high(columns(name)))
    one = _compare(test.operator, test.values[0], kind, text, test.places[0])
    return lambda columns: one(columns(name))


_FUNCTIONS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def _compare(operator: str, value: Value, kind: pa.DataType, text: str, at: int) -> Callable[[Any], Mask]:
    """``column operator value`` without rounding: a fraction beside whole numbers becomes a whole one."""
    if pa.types.is_integer(kind) and isinstance(value, Fraction):
        if value.denominator != 1 and operator not in ("=", "!="):
            floor = value.numerator // value.denominator
            value = Fraction(floor + 1 if operator in ("<", ">=") else floor)
        constant = always(operator, value, kind)
        if constant is not None:
            return lambda column: pc.if_else(pc.is_valid(column), constant, None)
    try:
        scalar = typed_value(value, kind)
    except ValueError as problem:
        _complain(text, at, str(problem))
    function = _FUNCTIONS[operator]
    return lambda column: function(column, scalar)
