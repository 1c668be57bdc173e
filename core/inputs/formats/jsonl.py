"""JSON lines: one object a line, parsed by pyarrow in blocks; a block that fails is read line by line.

JSON text holds no raw newline, so a file may be cut at any of them. An identifier may be text, a whole
number, true or false; it travels as text. A missing field and ``null`` are the same: no value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.json as pajson

from hushgram.inputs.blocks import Block, line_blocks, read_head
from hushgram.inputs.columns import Texts, is_utf8, keep_good, to_id
from hushgram.inputs.formats.format import FilePlan, Format
from hushgram.inputs.formats.lines import plan_lines
from hushgram.inputs.source import Chunk, InputFile, InputPlan, Opener, Rejects, Source, WorkItem

__all__ = ["FORMAT"]

_HEAD_LINES = 200


def _plan(file: InputFile, compression: str | None, source: Source, opener: Opener) -> FilePlan:
    head = read_head(file.path, compression, opener)
    columns, types = _infer(head, source)
    numbers = tuple(name for name in source.ids if types.pop(name, None) == pa.int64())
    return plan_lines(
        file, "jsonl", compression, source, head=head, columns=columns, types=types, numbers=numbers
    )


def _infer(head: bytes, source: Source) -> tuple[list[str], dict[str, pa.DataType]]:
    """(fields seen, types of the needed ones) from the beginning of the file."""
    seen: dict[str, list[Any]] = {}
    for line in head.split(b"\n")[:_HEAD_LINES]:
        record = _load(line)
        if isinstance(record, dict):
            for name, value in record.items():
                seen.setdefault(name, []).append(value)
    return list(seen), {name: _type_of(seen[name]) for name in source.names if name in seen}


def _type_of(values: list[Any]) -> pa.DataType:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    if kinds and kinds <= {int, float}:
        return pa.float64()
    return pa.string()


def _read(item: WorkItem, plan: InputPlan, opener: Opener) -> Iterator[Chunk]:
    """Batches of the item's lines."""
    rejects = Rejects(item.path, plan.source.keep_bad)
    guess = _Guess(dict.fromkeys(item.numbers, pa.int64()))
    for block in line_blocks(item, opener, plan.source.block_bytes, rejects):
        arrays = _parse(block, plan, guess) if block.data and not block.data.isspace() else None
        if arrays is None:
            arrays = _slowly(block, plan, rejects)
        yield Chunk(keep_good(arrays, plan, rejects, block.offset, decoded=True), block.size, *rejects.take())


@dataclass
class _Guess:
    """Which identifiers are numbers, as far as seen; `mixed` once no guess fitted a block."""

    kinds: dict[str, pa.DataType]
    mixed: bool = False


def _parse(block: Block, plan: InputPlan, guess: _Guess) -> list[pa.Array] | None:
    """The block's columns by pyarrow, or None."""
    if not is_utf8(block.data):
        return None
    ids = [name for name in plan.schema.names if name in plan.source.ids]
    first = tuple(guess.kinds.get(name, pa.string()) for name in ids)
    others = [kinds for kinds in product((pa.string(), pa.int64()), repeat=len(ids)) if kinds != first]
    for kinds in (first, *others[: 0 if guess.mixed else 7]):
        chosen = dict(zip(ids, kinds, strict=True))
        fields = [pa.field(f.name, chosen.get(f.name, f.type)) for f in plan.schema]
        options = pajson.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore")
        try:
            table = pajson.read_json(pa.BufferReader(block.data), parse_options=options)
        except pa.ArrowInvalid as problem:
            if "changed from" not in str(problem):
                return None
            continue
        guess.kinds.update(chosen)
        if table.num_rows != block.data.count(b"\n") and table.num_rows != _lines(block.data):
            # an object over two lines, or two on one: which lines are records must not depend on blocks
            return None
        return [to_id(pa.concat_arrays(table.column(f.name).chunks), f.type) for f in plan.schema]
    guess.mixed = True
    return None


def _lines(data: bytes) -> int:
    """Lines that hold more than blanks, for a block that ends a line."""
    return sum(not line.isspace() for line in data.split(b"\n") if line)


def _slowly(block: Block, plan: InputPlan, rejects: Rejects) -> list[pa.Array]:
    texts = Texts(plan)
    at = block.offset
    for line in block.data.split(b"\n"):
        here, at = at, at + len(line) + 1
        if not line.strip():
            continue
        record = _load(line)
        if not isinstance(record, dict):
            rejects.add(str(record) if isinstance(record, ValueError) else "not a JSON object", here, line)
            continue
        values = [_text(record.get(f.name), f.name in plan.source.ids) for f in plan.schema]
        wrong = next((i for i, value in enumerate(values) if isinstance(value, ValueError)), None)
        if wrong is not None:
            rejects.add(f"{plan.schema.names[wrong]} {values[wrong]}", here, line)
            continue
        texts.add(values, here, line)
    return texts.arrays(rejects)


def _load(line: bytes) -> Any:
    """The value on a line, or a ValueError that says why there is none."""
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return ValueError("line is not UTF-8")
    except (ValueError, RecursionError):
        return ValueError("not a JSON object")


def _text(value: Any, is_id: bool) -> Any:
    """A value as its text, or a ValueError that says why it has none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and is_id:
        return ValueError("is a number with a fraction")
    if isinstance(value, dict | list):
        return ValueError("is not a single value")
    return None if value is None else str(value)


FORMAT = Format("jsonl", (".jsonl", ".ndjson", ".json"), _plan, _read, pieces="file and byte ranges")
