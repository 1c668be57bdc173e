"""The plan of a read, made on the driver before any budget or output is touched.

Every file is opened once: Parquet footers, the header of CSV, the first lines of JSON. What cannot be read,
or lacks a column, is an `InputError` that names the file and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa

from hushgram.errors import InputError
from hushgram.exact.identifiers import ACCEPTED, id_type
from hushgram.exact.weights import NUMBERS, is_number
from hushgram.inputs.blocks import COMPRESSIONS
from hushgram.inputs.columns import common_type, no_column
from hushgram.inputs.conditions import bind
from hushgram.inputs.folders import add_folders, folder_columns
from hushgram.inputs.formats import FORMATS, format_named
from hushgram.inputs.formats.format import FilePlan, Format
from hushgram.inputs.shaping import SHAPED, with_rows_per_record
from hushgram.inputs.source import InputFile, InputPlan, Opener, Source, open_local

__all__ = ["format_of", "plan_inputs"]

_THREADS = 16


def plan_inputs(files: Iterable[InputFile], source: Source, opener: Opener = open_local) -> InputPlan:
    """All files as work items of one schema, or an `InputError`."""
    listed = tuple(sorted(files, key=lambda file: file.path))
    if not listed:
        raise InputError("input.path matches no file")
    with ThreadPoolExecutor(min(_THREADS, len(listed))) as pool:
        formats, plans = zip(*pool.map(lambda file: _plan_file(file, source, opener), listed), strict=True)
    full = [plan for plan in plans if not plan.empty] or plans
    types = {name: _column_type(name, source, listed, plans, full) for name in source.names}
    rows = [plan.rows for plan in plans]
    raw = pa.schema(list(types.items()))
    out = [(name, SHAPED if name in source.recipes else types[name]) for name in source.ids]
    out += [(name, types[name]) for name in source.columns if name not in source.ids]
    if source.where is not None:
        bind(source.where, raw)
        rows = [None]  # how many of them are left out is not known
    schema = pa.schema(dict(out))
    if any(recipe.several for recipe in source.recipes.values()):
        schema = with_rows_per_record(schema, source.record)
    return InputPlan(
        source=source,
        schema=schema,
        raw=raw,
        items=tuple(
            sorted((i for plan in plans for i in plan.items), key=lambda i: (-i.size, i.path, i.start))
        ),
        files=listed,
        formats=tuple(dict.fromkeys(formats)),
        rows=None if None in rows else sum(row or 0 for row in rows),
    )


def format_of(path: str, source: Source) -> tuple[Format, str | None]:
    """(format, compression) of a file, from its name where the source says "auto"."""
    name = path.lower().split("?")[0]
    compression = next((kind for ending, kind in COMPRESSIONS.items() if name.endswith(ending)), None)
    if compression is not None:
        name = name[: name.rindex(".")]
    found = _named(name, source)
    if found is None:
        known = " or ".join(", ".join(FORMATS).rsplit(", ", 1))
        raise InputError(f"{path}: the name does not tell the format; set input.format to {known}")
    return found, compression if found.compressible else None


def _named(name: str, source: Source) -> Format | None:
    if source.format != "auto":
        return format_named(source.format)
    chosen = (format for format in FORMATS.values() if format.chosen_by(source))
    by_suffix = (format for format in FORMATS.values() if name.endswith(format.suffixes))
    return next(chosen, None) or next(by_suffix, None)


def _plan_file(file: InputFile, source: Source, opener: Opener) -> tuple[str, FilePlan]:
    format, compression = format_of(file.path, source)
    given = folder_columns(file.path, source)
    plan = format.plan(file, compression, replace(source, given=tuple(given)), opener)
    plan = add_folders(file.path, plan, given, source)
    columns = list(plan.columns)
    twice = next((name for name in source.names if columns.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{file.path}: column {twice!r} occurs {columns.count(twice)} times; rename one")
    missing = [name for name in source.names if name not in plan.columns]
    if missing and not plan.empty:
        raise InputError(f"{file.path}: {no_column(missing[0], plan.columns)}")
    return format.name, plan


def _column_type(
    name: str, source: Source, files: Sequence[InputFile], plans: Sequence[FilePlan], full: Sequence[FilePlan]
) -> pa.DataType:
    if name in source.texts:
        kinds = []
        for file, plan in zip(files, plans, strict=True):
            found = plan.types.get(name, pa.string())
            kind = id_type(found)
            if kind is None and pa.types.is_timestamp(found) and name not in source.ids:
                kind = pa.string()  # shaped to an hour, a day or a week
            if kind is None:
                raise InputError(
                    f"{file.path}: column {name!r} is {found}; a user or key must be {ACCEPTED}: cast it to text first"
                )
            kinds.append(kind)
        return common_type(kinds)
    kinds = list(dict.fromkeys(plan.types.get(name, pa.string()) for plan in full))
    if name in source.values:
        if all(plan.empty for plan in full):  # that there is nothing is said elsewhere
            return pa.float64()
        found = next((kind for kind in kinds if not is_number(kind)), None)
        if found is not None:
            raise InputError(f"{files[0].path}: column {name!r} is {found}; values must be {NUMBERS}")
        return kinds[0] if len(kinds) == 1 else pa.float64()
    return _widest(kinds)


def _widest(kinds: list[pa.DataType]) -> pa.DataType:
    """One type for values of several files: numbers widen, anything else becomes text."""
    if len(kinds) == 1:
        return kinds[0].value_type if pa.types.is_dictionary(kinds[0]) else kinds[0]
    if all(pa.types.is_integer(kind) for kind in kinds):
        return pa.int64()
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds):
        return pa.float64()
    return pa.string()
