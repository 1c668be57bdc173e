"""JSON lines: one object per line, parsed by pyarrow in blocks where it reads the same.

**What a record is** follows from its line alone. A line is a record if it is UTF-8 and holds one JSON object (RFC 8259,
to any depth of nesting and any length of numbers) and nothing else but blanks and a byte-order mark before it, and none
of the fields that are read occurs twice in it. NaN, Inf and Infinity, with or without a minus, are taken for numbers,
since many programs write them. Fields that are not read may hold anything that is JSON. A secret field
(`Source.secrets`) has no say in that: where one is read, strings may hold bytes that are not UTF-8, and a secret that
occurs twice is missing.

A field inside of another object is named by its path, as in ``request.url``. An identifier may be text, a whole number,
true or false; it travels as text. So does any other column, unless its use tells that it holds numbers or booleans: a
number is text as it is written. A missing field and ``null`` are the same: no value. JSON text holds no raw newline, so
a file may be cut at any of them.

**The fast path reads what the rule reads.** pyarrow skips over newlines as over blanks. So a block is given to it only
if every line begins with { and ends with } and holds no NUL, and its result is taken only if it has as many rows as the
block has lines. Then every line is one object: inside an object, a newline between } and { would be a syntax error,
and inside a string any newline is one; so at each newline an object has ended, each line holds at least one, and
as many objects as lines means one each. pyarrow refuses repeated fields and values of another kind than the schema's.
What it refuses is halved, and in the end read line by line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from itertools import islice, product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson
from numpy.typing import NDArray

from hushgram.contributions.keys import to_id
from hushgram.errors import InputError
from hushgram.inputs.blocks import BOM, Block, line_blocks, read_head
from hushgram.inputs.columns import Texts, is_utf8
from hushgram.inputs.formats.format import FilePlan, Format, Parsed, chunks_of, halves, plan_lines
from hushgram.inputs.source import Chunk, InputFile, InputPlan, Opener, Rejects, Source, WorkItem

__all__ = ["FORMAT", "Float", "Int", "NoRecord", "load", "parse"]


class Int(str):
    """A whole number as it was written."""

    __slots__ = ()


class Float(str):
    """Any other number as it was written."""

    __slots__ = ()


class NoRecord(ValueError):
    """Raised for a line that is not a record; the message is the reason."""


# Stands for an object or a list.
NESTED = object()

_STRING = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"'
_NUMBER = r"-?(?:(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|NaN|Inf(?:inity)?)"
_TOKEN = re.compile(
    rf"[ \t\r\n]*+(?:(?P<text>{_STRING})|(?P<number>{_NUMBER})|(?P<word>true|false|null)|(?P<sign>[{{}}\[\],:]))"
)
_BLANK = re.compile(r"[ \t\r\n]*")
_WORDS = {"true": True, "false": False, "null": None}
_INT = re.compile(r"-?[0-9]+")


class _Object(list[tuple[str, Any]]):
    """The fields of an object in their order, repeated ones too."""


_DECODER = json.JSONDecoder(object_pairs_hook=_Object, parse_int=Int, parse_float=Float, parse_constant=Float)


def load(line: bytes, names: Collection[str], secrets: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields `names` of the object on a line, as far as they are there; `NoRecord` if it is not one."""
    fields = parse(line, "surrogateescape" if secrets else "strict")
    found: dict[str, Any] = {}
    for name in names:
        value: Any = fields
        for part in name.split("."):
            value = _field(value, part, name, name in secrets) if isinstance(value, _Object) else None
        found[name] = NESTED if isinstance(value, list) else value
    return found


def parse(line: bytes, errors: str = "strict") -> list[tuple[str, Any]]:
    """Return the fields of the object on a line, repeated ones too."""
    try:
        text = line.decode("utf-8", errors)
    except UnicodeDecodeError:
        raise NoRecord("line is not UTF-8") from None
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return _walk(text)  # too deep for it, or a spelling of infinity that it does not know
    if not isinstance(value, _Object):
        raise NoRecord("not a JSON object")
    return value


def _field(record: list[tuple[str, Any]], part: str, name: str, secret: bool) -> Any:
    values = [value for field, value in record if field == part]
    if len(values) > 1 and secret:
        return None
    if len(values) > 1:
        raise NoRecord(f"{name} occurs twice")
    return values[0] if values else None


def _walk(text: str) -> list[tuple[str, Any]]:
    """Parse an object by one pass over its tokens with a stack, so that no depth is too deep."""
    stack: list[list[Any]] = []  # the objects and lists that are open
    names: list[str] = []  # the field of each of them that is being read
    whole: list[Any] = []
    wanted, at = "value", 0  # wanted: value, name, colon, comma; with ? also the closing bracket
    while stack or not at:
        token = _TOKEN.match(text, at)
        if token is None:
            raise NoRecord("not a JSON object")
        at, kind, piece = token.end(), str(token.lastgroup), str(token.group(str(token.lastgroup)))
        if wanted.startswith("value") and (kind != "sign" or piece in "{["):
            value = _Object() if piece == "{" else [] if piece == "[" else _scalar(kind, piece)
            if not stack:
                whole = value
            elif isinstance(stack[-1], _Object):
                stack[-1].append((names[-1], value))
            else:
                stack[-1].append(value)
            if kind == "sign":
                stack.append(value)
                names.append("")
            wanted = "comma?" if kind != "sign" else "name?" if piece == "{" else "value?"
        elif wanted.startswith("name") and kind == "text":
            names[-1] = json.loads(piece)
            wanted = "colon"
        elif wanted == "colon" and piece == ":":
            wanted = "value"
        elif wanted == "comma?" and piece == ",":
            wanted = "name" if isinstance(stack[-1], _Object) else "value"
        elif wanted.endswith("?") and piece == ("}" if isinstance(stack[-1], _Object) else "]"):
            stack.pop()
            names.pop()
            wanted = "comma?"
        else:
            raise NoRecord("not a JSON object")
    if not isinstance(whole, _Object) or not _BLANK.fullmatch(text, at):
        raise NoRecord("not a JSON object")
    return whole


def _scalar(kind: str, piece: str) -> Any:
    if kind == "text":
        return json.loads(piece)
    if kind == "word":
        return _WORDS[piece]
    return Int(piece) if _INT.fullmatch(piece) else Float(piece)


_HEAD_LINES = 200
_BLANKS = b" \t\r"
_OPEN, _CLOSE, _NEWLINE, _RETURN = b"{}\n\r"
# A block that pyarrow refuses is halved down to this size before it is read line by line.
_SLOW_BYTES = 1 << 17


def _plan(file: InputFile, compression: str | None, source: Source, opener: Opener) -> FilePlan:
    head = read_head(file.path, compression, opener)
    if head.lstrip(_BLANKS + b"\n").startswith(b"["):
        raise InputError(
            f"{file.path}: is a JSON array; write one object per line, as jq -c '.[]' does, or use another format"
        )
    columns, numbers = _seen(head, source)
    return plan_lines(file, "jsonl", compression, source, head=head, columns=columns, numbers=numbers)


def _seen(head: bytes, source: Source) -> tuple[list[str], tuple[str, ...]]:
    """Return (fields seen, needed fields that hold whole numbers) at the beginning of the file."""
    seen: dict[str, None] = {}
    kinds: dict[str, set[type]] = {}
    for line in head.split(b"\n")[:_HEAD_LINES]:
        try:
            line = line.removeprefix(BOM)
            record = load(line, source.names, source.secrets)
            fields = parse(line, "surrogateescape" if source.secrets else "strict")
            seen.update(dict.fromkeys(name for name, _ in fields))
        except NoRecord:
            continue
        for name, value in record.items():
            if value is not None or name in seen:
                kinds.setdefault(name, set()).add(type(value))
    # a secret may be missing from all of them
    columns = list(dict.fromkeys((*seen, *kinds, *source.secrets)))
    return columns, tuple(name for name, found in kinds.items() if found - {type(None)} == {Int})


# Texts that are written as numbers, as far as seen: a matter of speed alone.
_Guess = dict[str, pa.DataType]


def _read(item: WorkItem, plan: InputPlan, opener: Opener) -> Iterator[Chunk]:
    """Read an item."""
    rejects = Rejects(item.path, plan.source.keep_rejected)
    guess: _Guess = dict.fromkeys(item.numbers, pa.int64())
    blocks = line_blocks(item, opener, plan.source.block_bytes, rejects)
    yield from chunks_of(blocks, lambda block: _parse(block, plan, rejects, guess, 7), plan, rejects)


def _parse(block: Block, plan: InputPlan, rejects: Rejects, guess: _Guess, others: int) -> Iterator[Parsed]:
    """Parse a block of lines, in parts; `others` is how many other guesses to try."""
    if not block.data.strip(b"\r\n"):
        return
    arrays = _by_arrow(block.data, plan, guess, others)
    if arrays is not None:
        yield arrays, lambda: _places(block)
        return
    parts = halves(block, _SLOW_BYTES)
    if parts is None:
        yield _line_by_line(block, plan, rejects)
    for part in parts or ():
        yield from _parse(part, plan, rejects, guess, 0)


def _by_arrow(data: bytes, plan: InputPlan, guess: _Guess, others: int) -> list[pa.Array] | None:
    """Parse lines by pyarrow; None where it refuses, or may read something else."""
    lines = _objects(data)
    if lines is None or not is_utf8(data):
        return None
    texts = _written_as_text(plan)
    first = tuple(guess.get(name, pa.string()) for name in texts)
    rest = (kinds for kinds in product((pa.string(), pa.int64()), repeat=len(texts)) if kinds != first)
    for kinds in (first, *islice(rest, others)):
        chosen = dict(zip(texts, kinds, strict=True))
        fields = {f.name: chosen.get(f.name, f.type) for f in plan.raw}
        schema = _nested(fields)
        if schema is None:
            return None
        options = pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        try:
            table = pajson.read_json(pa.BufferReader(data), parse_options=options)
        except pa.ArrowInvalid as problem:
            if "changed from" not in str(problem):
                return None
            continue
        guess.update(chosen)
        if table.num_rows != lines:
            return None
        return [to_id(_column(table, f.name), f.type) for f in plan.raw]
    return None


def _nested(fields: dict[str, pa.DataType]) -> pa.Schema | None:
    """Return a schema in which names with dots are fields of structs; None if one name is part of another's path."""
    tree: dict[str, Any] = {}
    for name, kind in fields.items():
        *way, last = name.split(".")
        here = tree
        for part in way:
            here = here.setdefault(part, {})
            if not isinstance(here, dict):
                return None
        if last in here:
            return None
        here[last] = kind
    return pa.schema(_struct(tree))


def _struct(tree: dict[str, Any]) -> list[pa.Field]:
    return [
        pa.field(name, pa.struct(_struct(kind)) if isinstance(kind, dict) else kind)
        for name, kind in tree.items()
    ]


def _column(table: pa.Table, name: str) -> pa.Array:
    first, *way = name.split(".")
    column = pa.concat_arrays(table.column(first).chunks)
    return pc.struct_field(column, way) if way else column


def _objects(data: bytes) -> int | None:
    """Return the number of lines, if each of them begins with { and ends with }; None if not."""
    if b"\0" in data or not data.startswith(b"{"):
        return None
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw == _NEWLINE)
    if len(ends) and ends[-1] == len(raw) - 1:  # the newline behind the last line begins no other
        ends = ends[:-1]
    before = raw[ends - 1]
    if (before == _RETURN).any():
        before = np.where(before == _RETURN, raw[ends - 2], before)
    tail = data[-3:].removesuffix(b"\n").removesuffix(b"\r")
    regular = tail.endswith(b"}") and (before == _CLOSE).all() and (raw[ends + 1] == _OPEN).all()
    return len(ends) + 1 if regular else None


def _places(block: Block) -> NDArray[np.int64]:
    """Return where lines begin, in a block without empty ones."""
    ends = np.flatnonzero(np.frombuffer(block.data, np.uint8) == 10) + 1
    return np.append(0, ends).astype(np.int64) + block.offset


def _line_by_line(block: Block, plan: InputPlan, rejects: Rejects) -> Parsed:
    texts = Texts(plan)
    names, ids, written = plan.raw.names, plan.source.texts, _written_as_text(plan)
    at = block.offset
    for line in block.data.split(b"\n"):
        here, at = at, at + len(line) + 1
        line = line.removeprefix(BOM)
        if not line.strip(_BLANKS):
            continue
        try:
            record = load(line, names, plan.source.secrets)
            for name in ids:
                if isinstance(record.get(name), Float):
                    raise NoRecord(f"{name} is a number with a fraction")
            secrets = plan.source.secrets
            texts.add([_text(name, record.get(name), name in written, secrets) for name in names], here, line)
        except NoRecord as problem:
            rejects.add(str(problem), here, line)
    return texts.arrays(rejects)


def _written_as_text(plan: InputPlan) -> list[str]:
    """Return the columns in which a whole number is its text."""
    return [f.name for f in plan.raw if f.name in plan.source.texts or pa.types.is_string(f.type)]


def _text(name: str, value: Any, whole: bool, secrets: Collection[str]) -> bytes | None:
    """Return a value as its text; where it has none, `NoRecord`, but a secret is missing."""
    if value is None or (value is NESTED and name in secrets):
        return None
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if value is NESTED:
        raise NoRecord(f"{name} is not a single value")
    try:
        text: bytes = value.encode()
    except UnicodeEncodeError:
        if name in secrets:
            return None
        raise NoRecord(f"{name} is not UTF-8") from None
    return b"0" if isinstance(value, Int) and text == b"-0" and whole else text


FORMAT = Format("jsonl", (".jsonl", ".ndjson", ".json"), _plan, _read, pieces="file and byte ranges")
