r"""Keys and users made from columns: a key expression, applied to each record by itself before anything is bounded.

    url                              the column as it is
    url | strip_query | lower        steps, from left to right
    [country, url | host]            several columns: a JSON list of texts, so that no two tuples have one spelling

| step | the text becomes |
|---|---|
| `lower` | each character in Unicode's simple lower case |
| `strip_query` | without the first ? and what follows it, up to # |
| `strip_fragment` | without the first # and all that follows it |
| `host` | the host of a URL, in lower case, without user and port; missing where there is no // |
| `path N` | the first N segments of a URL's path, such as /a/b; without scheme, host, query and fragment |
| `truncate hour`, `day`, `week` | 2026-11-15T09, 2026-11-15, or the Monday before; of ISO and access-log times |
| `ip_prefix N [M]` | the network of N bits of an IPv4 address (M of IPv6, 48 if left out), such as 10.1.2.0/24 |
| `substring A B` | characters A up to B, from 0 |
| `words` | its runs of letters and digits: a record then gives one key for each |
| `ngrams N` | every N characters in a row: likewise |

Several keys of one record may need far more memory than it: each has a copy of its other columns, and every byte is in
N n-grams. So how much a record gives is known before it gives it (`KeyExpression.expansion`), and its reader rejects
one that gives too much.

A text of which a step cannot be made is a missing value, and its record is rejected. `raw_keys` does the same to keys
that are looked up; one that is shaped already, or cannot be, is taken as it is.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram.contributions.histogram import changes
from hushgram.contributions.keys import canonical, hash_bytes, mix
from hushgram.errors import ParameterError
from hushgram.sensitivity import ONE_RECORD, UNBOUNDED, Sensitivity

__all__ = [
    "SHAPED", "STEPS", "KeyExpression", "bound_record", "impossible_keys", "list_expression",
    "parse_key_expression", "raw_keys", "rows_per_record", "with_rows_per_record",
]  # fmt: skip

#: the type of identifiers that are made from columns
SHAPED = pa.dictionary(pa.int32(), pa.string())

_SCHEME = r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//"
_NONE = pa.scalar(None, pa.string())


def _cut(sign: str, pattern: str, replacement: str) -> Callable[..., pa.Array]:
    """Replace the pattern once in texts that hold the sign: finding a byte is cheaper than matching a pattern."""

    def cut(column: pa.Array) -> pa.Array:
        rows = pa.array(_holding(column, sign))
        made = pc.replace_substring_regex(column.filter(rows), pattern, replacement, max_replacements=1)
        return pc.replace_with_mask(column, rows, made) if len(made) else column

    return cut


def _holding(column: pa.Array, sign: str) -> NDArray[np.bool_]:
    """Return which texts hold an ASCII character."""
    held = np.zeros(len(column), np.bool_)
    _, offsets, data = column.buffers()
    if data is not None:
        starts = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
        low, high = starts[[0, -1]]
        at = np.flatnonzero(np.frombuffer(data, np.uint8)[low:high] == ord(sign)) + low
        held[np.searchsorted(starts, at, side="right") - 1] = True
    return held


def _group(column: pa.Array, pattern: str) -> pa.Array:
    """Return the group `x` of the pattern, null where it does not match."""
    return pc.struct_field(pc.extract_regex(column, pattern), "x")


def _host(column: pa.Array) -> pa.Array:
    found = _group(column, "^" + _SCHEME + r"(?:[^/?#@]*@)?(?P<x>\[[^\]/?#]*\]|[^:/?#@\[]*)")
    return pc.utf8_lower(pc.if_else(pc.equal(found, ""), _NONE, found))


def _path(column: pa.Array, depth: int) -> pa.Array:
    segments = rf"(?P<x>[^/?#]*(?:/[^/?#]*){{0,{depth - 1}}})"
    found = _group(column, rf"^{_SCHEME}[^/?#]*(?:/{segments})?")
    for other in (
        f"^/{segments}",
        f"^{segments}",
    ):  # three patterns: RE2 is slow where a text fits one in two ways
        if found.null_count:
            found = pc.coalesce(found, _group(column, other))
    return pc.binary_join_element_wise("/", found, "")


def _day(text: pa.Array, format: str) -> pa.Array:
    days = pc.strptime(text, format, "s", error_is_null=True)
    real = pc.equal(pc.strftime(days, format), text)  # 30 February is taken for 2 March
    return pc.if_else(real, days, pa.scalar(None, days.type))


def _truncate(column: pa.Array, unit: str) -> pa.Array:
    iso = _day(_group(column, r"^(?P<x>\d{4}-\d{2}-\d{2})"), "%Y-%m-%d")
    log = _day(_group(column, r"^\[?(?P<x>\d{2}/[A-Z][a-z]{2}/\d{4}):"), "%d/%b/%Y")
    days = pc.coalesce(iso, log)
    if unit == "week":
        days = pc.floor_temporal(days, unit="week", week_starts_monday=True)
    text = pc.strftime(days, "%Y-%m-%d")
    if unit != "hour":
        return text
    hours = pc.coalesce(
        _group(column, r"^\d{4}-\d{2}-\d{2}[T ](?P<x>[01]\d|2[0-3])"),
        _group(column, r"^\[?\d{2}/[A-Z][a-z]{2}/\d{4}:(?P<x>[01]\d|2[0-3])"),
    )
    return pc.binary_join_element_wise(text, hours, "T")


def _ip_prefix(column: pa.Array, bits: int, bits6: int = 48) -> pa.Array:
    return pa.array([_network(text, bits, bits6) for text in column.to_pylist()], pa.string())


def _network(text: str | None, bits: int, bits6: int) -> str | None:
    try:
        address = ipaddress.ip_address(text or "")
    except ValueError:
        return None
    return str(ipaddress.ip_network((address, bits if address.version == 4 else bits6), strict=False))


def _ngrams(column: pa.Array, length: int) -> pa.Array:
    found = []
    for t in column.to_pylist():
        starts = range(0 if t is None else len(t) - length + 1)
        found.append([t[i : i + length] for i in starts])
    return pa.array(found, pa.list_(pa.string()))


@dataclass(frozen=True)
class _Kind:
    """A step: what it does, the ranges of its numbers (or the words it takes), and for one that gives several keys
    how many at most of each text, and how many of them one byte of the text can be in.
    """

    apply: Callable[..., pa.Array]
    takes: tuple[Any, ...] = ()
    optional: int = 0
    several: Callable[..., tuple[NDArray[np.int64], int]] | None = None


def _lengths(column: pa.Array) -> NDArray[np.int64]:
    """Return the bytes of texts, 0 for a null."""
    found: NDArray[np.int64] = pc.binary_length(column).fill_null(0).to_numpy().astype(np.int64)
    return found


def _count_ngrams(column: pa.Array, length: int) -> tuple[NDArray[np.int64], int]:
    characters = pc.utf8_length(column).fill_null(0).to_numpy().astype(np.int64)
    return np.maximum(characters - length + 1, 0), length


STEPS: dict[str, _Kind] = {
    "lower": _Kind(pc.utf8_lower),
    "strip_query": _Kind(_cut("?", r"(?s)^([^?#]*)\?[^#]*", r"\1")),
    "strip_fragment": _Kind(_cut("#", r"(?s)#.*", "")),
    "host": _Kind(_host),
    "path": _Kind(_path, (range(1, 101),)),
    "truncate": _Kind(_truncate, (("hour", "day", "week"),)),
    "ip_prefix": _Kind(_ip_prefix, (range(33), range(129)), optional=1),
    "substring": _Kind(
        lambda column, start, stop: pc.utf8_slice_codeunits(column, start, stop), (range(1 << 20),) * 2
    ),
    "words": _Kind(
        lambda column: pc.split_pattern_regex(column, r"[^\p{L}\p{N}]+"),
        several=lambda column: ((_lengths(column) + 1) // 2, 1),
    ),
    "ngrams": _Kind(_ngrams, (range(1, 101),), several=_count_ngrams),
}


@dataclass(frozen=True)
class Step:
    """A step with its arguments."""

    name: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class ColumnSteps:
    """A column and the steps on it."""

    column: str
    steps: tuple[Step, ...]

    @property
    def several(self) -> Step | None:
        """The step that gives several keys, which is the last."""
        return next((step for step in self.steps if STEPS[step.name].several), None)


@dataclass(frozen=True)
class KeyExpression:
    """How an identifier is made; `text` is what was written, and the name of the column that comes of it."""

    text: str
    parts: tuple[ColumnSteps, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part.column for part in self.parts))

    @property
    def several(self) -> bool:
        """Whether a record may give more than one key."""
        return any(part.several for part in self.parts)

    def apply(self, columns: dict[str, pa.Array]) -> tuple[pa.Array, NDArray[np.int64] | None]:
        """Return (identifiers as a dictionary array, the record of each, or None if row i comes from record i).

        Texts repeat, and steps cost more than finding that out; whoever counts the identifiers needs it anyway.
        """
        if len(self.columns) == 1 and not self.several:
            encoded = _as_text(columns[self.columns[0]]).dictionary_encode()
            made = [_apply(part.steps, encoded.dictionary) for part in self.parts]
            return _coded(made[0] if len(made) == 1 else _joined(made), encoded.indices), None
        return self.keys(self.texts(columns))

    def texts(self, columns: dict[str, pa.Array]) -> list[pa.Array]:
        """Return the text of each part, as it is before the step that gives several."""
        steps = ([step for step in part.steps if step != part.several] for part in self.parts)
        return [
            _once(some, _as_text(columns[part.column])) for some, part in zip(steps, self.parts, strict=True)
        ]

    def expansion(self, texts: list[pa.Array]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how many keys each record gives at most, and their bytes: from its texts, before it gives them."""
        number = own = each = np.zeros(len(texts[0]), np.int64)
        for part, text in zip(self.parts, texts, strict=True):
            length = _lengths(text if len(texts) == 1 else _escaped(text))
            if part.several is None:
                each = each + length + len('"",')
            else:
                count = STEPS[part.several.name].several
                assert count is not None
                number, times = count(text, *part.several.arguments)
                own = times * length
        return number, own + number * each

    def keys(self, texts: list[pa.Array]) -> tuple[pa.DictionaryArray, NDArray[np.int64] | None]:
        """Return what `apply` does, of `texts`."""
        parts, parents = list(texts), None
        for index, part in enumerate(self.parts):
            if part.several is not None:
                found = _once((part.several,), texts[index])
                values = found.flatten()
                full = pc.fill_null(pc.not_equal(values, ""), False)
                parents = pc.list_parent_indices(found).filter(full).to_numpy(zero_copy_only=False)
                flat = values.filter(full)
                parts = [flat if i == index else text.take(pa.array(parents)) for i, text in enumerate(texts)]
        return (parts[0] if len(parts) == 1 else _joined(parts)).dictionary_encode(), parents


def bound_record(
    keys: pa.DictionaryArray, parents: NDArray[np.int64], most: int, per_key: int
) -> NDArray[np.intp]:
    """Return the rows that count if the privacy unit is a record: at most ``most`` per record, ``per_key`` per key.

    ``parents`` are the records of the rows, in order. Which keys count follows from a hash of all its keys, so
    from nothing but the record.
    """
    if keys.null_count == len(keys):  # and the dictionary may have no value at all
        return np.arange(0)
    prints = hash_bytes(canonical(keys.dictionary))[keys.indices.fill_null(0).to_numpy(zero_copy_only=False)]
    starts = np.flatnonzero(changes(parents))
    content = np.add.reduceat(mix(prints), starts) if len(starts) else prints
    priority = mix(prints ^ mix(np.repeat(content, np.diff(np.append(starts, len(parents))))))
    order = np.lexsort((prints, priority, parents))
    first_of_record = changes(parents[order])
    first_of_key = first_of_record | changes(prints[order])
    kept = _rank(first_of_key) < per_key
    order, first_of_record = order[kept], first_of_record[kept]  # the first row of a record is always kept
    return np.sort(order[_rank(first_of_record) < most])


def _rank(first: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the position of each row within its group, whose first rows are marked."""
    starts = np.flatnonzero(first)
    return np.arange(len(first)) - np.repeat(starts, np.diff(np.append(starts, len(first))))


_ROWS = b"hushgram.rows_per_record"


def with_rows_per_record(schema: pa.Schema, record: tuple[int, int] | None) -> pa.Schema:
    """Mark a schema of batches with several rows per record, bounded by `bound_record` or not."""
    return schema.with_metadata({_ROWS: b"unbounded" if record is None else b"%d %d" % record})


def rows_per_record(schema: pa.Schema) -> Sensitivity:
    """Return how many rows one record may have in batches of this schema: one, unless its reader marked it."""
    stated = (schema.metadata or {}).get(_ROWS)
    if stated is None:
        return ONE_RECORD
    if stated == b"unbounded":
        return UNBOUNDED
    most, per_key = map(int, stated.split())
    return Sensitivity(most, per_key, "record")


def _coded(values: pa.Array, indices: pa.Array) -> pa.Array:
    """Return a dictionary array without a null among its values."""
    if values.null_count:
        indices = pc.if_else(values.is_valid().take(indices), indices, pa.scalar(None, indices.type))
        values = values.fill_null("")
    return pa.DictionaryArray.from_arrays(indices, values)


def _apply(steps: Sequence[Step], column: pa.Array) -> pa.Array:
    for step in steps:
        column = STEPS[step.name].apply(column, *step.arguments)
    return column


def _once(steps: Sequence[Step], column: pa.Array) -> pa.Array:
    """Apply steps to distinct texts only."""
    if not steps:
        return column
    encoded = column.dictionary_encode()
    return _apply(steps, encoded.dictionary).take(encoded.indices)


def _as_text(column: pa.Array) -> pa.Array:
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


_CONTROL = "[\\x00-\\x1f]"


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Return JSON lists of texts, as json.dumps writes them without blanks and with all characters."""
    pieces: list[Any] = ['["']
    for part in parts:
        pieces += [_escaped(part), '","']
    return pc.binary_join_element_wise(*pieces[:-1], '"]', "")


def _escaped(part: pa.Array) -> pa.Array:
    """Return what stands between the quotes of a JSON text."""
    data = part.buffers()[2]
    raw = b"" if data is None else data.to_pybytes()
    if not (b'"' in raw or b"\\" in raw or np.frombuffer(raw, np.uint8).min(initial=32) < 32):
        return part
    escaped = pc.replace_substring(pc.replace_substring(part, "\\", "\\\\"), '"', '\\"')
    odd = pc.fill_null(pc.match_substring_regex(part, _CONTROL), False)
    if not pc.any(odd).as_py():
        return escaped
    spelled = [json.dumps(text, ensure_ascii=False)[1:-1] for text in part.filter(odd).to_pylist()]
    return pc.replace_with_mask(escaped, odd, pa.array(spelled))


# --- reading ----------------------------------------------------------------------------------------------


def list_expression(columns: list[Any]) -> str:
    """Return the text of a key expression over several columns; raise a ParameterError where they are no columns."""
    if len(columns) < 2 or not all(
        isinstance(part, str) and part and not set(part) & set(",[]") for part in columns
    ):
        raise ParameterError(
            f"must be a column, or a list of columns such as [country, url], got {columns!r}"
        )
    return f"[{', '.join(columns)}]"


def parse_key_expression(text: str) -> KeyExpression | None:
    """Parse a key expression; None where the text is a column's name. Mistakes are a ParameterError."""
    listed = text.startswith("[") and text.endswith("]")
    if not listed and "|" not in text:
        return None
    pieces = text[1:-1].split(",") if listed else [text]
    key_expression = KeyExpression(text, tuple(_part(piece) for piece in pieces))
    if sum(part.several is not None for part in key_expression.parts) > 1:
        raise ParameterError(f"{text!r}: only one of its steps may give several keys")
    return key_expression


def _part(text: str) -> ColumnSteps:
    column, *steps = (piece.strip() for piece in text.split("|"))
    if not column:
        raise ParameterError(f"{text.strip()!r}: names no column")
    made = tuple(_step(step, text) for step in steps)
    if early := next((step.name for step in made[:-1] if STEPS[step.name].several), None):
        raise ParameterError(f"{text.strip()!r}: {early} gives several keys and must be the last step")
    return ColumnSteps(column, made)


def _step(text: str, whole: str) -> Step:
    name, *words = text.split() or [""]
    if name not in STEPS:
        raise ParameterError(f"{whole.strip()!r}: no step {name!r}; there are {', '.join(STEPS)}")
    kind = STEPS[name]
    if not len(kind.takes) - kind.optional <= len(words) <= len(kind.takes):
        raise ParameterError(f"{whole.strip()!r}: {name} takes {_takes(kind)}")
    arguments = [_argument(word, allowed) for word, allowed in zip(words, kind.takes, strict=False)]
    if None in arguments:
        raise ParameterError(f"{whole.strip()!r}: {name} takes {_takes(kind)}, got {' '.join(words)}")
    return Step(name, tuple(arguments))


def _argument(word: str, allowed: Any) -> Any:
    if not isinstance(allowed, range):
        return word if word in allowed else None
    return int(word) if re.fullmatch(r"[0-9]{1,7}", word) and int(word) in allowed else None


def _takes(kind: _Kind) -> str:
    shown = [
        f"a number from {allowed.start} to {allowed.stop - 1}"
        if isinstance(allowed, range)
        else " or ".join(allowed)
        for allowed in kind.takes
    ]
    return " and ".join(shown) or "nothing"


def raw_keys(key_expression: KeyExpression, keys: Sequence[str | bytes]) -> list[str | bytes]:
    """Apply a key expression to keys that are looked up; a tuple is given as a JSON list of texts."""
    return [_raw_key(key_expression, key) for key in keys]


def _raw_key(key_expression: KeyExpression, key: str | bytes) -> str | bytes:
    try:
        text = key.decode() if isinstance(key, bytes) else key
        given = [text] if len(key_expression.parts) == 1 else json.loads(text)
    except ValueError:
        return key
    if not isinstance(given, list) or len(given) != len(key_expression.parts) or key_expression.several:
        return key
    columns = [pa.array([str(value)], pa.string()) for value in given]
    shaped = [_apply(part.steps, column) for part, column in zip(key_expression.parts, columns, strict=True)]
    kept = [column if new[0].as_py() is None else new for new, column in zip(shaped, columns, strict=True)]
    made: str = (kept[0] if len(kept) == 1 else _joined(kept))[0].as_py()
    return made


# What a step makes of any text; other steps make any text, or keep what a step before them made (_KEEPING).
_DAY = r"\d{4}-\d\d-\d\d"
_MADE: dict[str, Callable[..., str]] = {
    "host": lambda: r"[^\s/?#@A-Z]+",
    "path": lambda number: r"/[^?#]*",
    "truncate": lambda unit: _DAY + (r"T\d\d" if unit == "hour" else ""),
    "ip_prefix": lambda *bits: r"[0-9a-f.:]+/\d+",
    "words": lambda: r"[^\W_]+",
    "ngrams": lambda number: rf"(?s).{{{number}}}",
}
_KEEPING = ("lower", "strip_query", "strip_fragment")


def impossible_keys(key_expression: KeyExpression, keys: Sequence[str | bytes]) -> list[str]:
    """Return those of the keys to look up that the expression makes of no record."""
    found = []
    for key, made in zip(keys, raw_keys(key_expression, keys), strict=True):
        text = made.decode("utf-8", "replace") if isinstance(made, bytes) else made
        parts: Any = [text]
        if len(key_expression.parts) > 1:
            try:
                parts = json.loads(text)
            except ValueError:
                parts = None
        several = isinstance(parts, list) and len(parts) == len(key_expression.parts)
        if not several or not all(map(_possible, key_expression.parts, map(str, parts))):
            found.append(key.decode("utf-8", "replace") if isinstance(key, bytes) else key)
    return found


def _possible(part: ColumnSteps, text: str) -> bool:
    """Return whether the steps of a part may make this text, judged by the last of them that makes texts of its own."""
    for step in reversed(part.steps):
        if step.name in _MADE:
            return re.fullmatch(_MADE[step.name](*step.arguments), text) is not None
        if step.name not in _KEEPING:
            break
    return True
