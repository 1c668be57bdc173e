"""Plan a read, on the driver and before any budget or output is touched.

Every file is opened once: Parquet footers, the header of CSV, the first lines of JSON. A file that cannot be read,
or lacks a column, is an `InputError` that names the file and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.parse import unquote_to_bytes

import pyarrow as pa

from hushgram.contributions.keys import id_type, is_text, plain_type
from hushgram.contributions.sums import NUMBERS, is_number
from hushgram.errors import InputError, ParameterError
from hushgram.inputs.blocks import COMPRESSIONS
from hushgram.inputs.columns import identifier_type, no_column, parsed
from hushgram.inputs.conditions import bind
from hushgram.inputs.formats import FORMATS, format_named
from hushgram.inputs.formats.format import FilePlan, Format
from hushgram.inputs.key_expressions import SHAPED, with_rows_per_record
from hushgram.inputs.source import InputFile, InputPlan, Opener, Source, WorkItem, open_local

__all__ = ["format_of", "in_the_file", "plan_inputs"]


# Columns that folders give: dt=2026-11-15/country=DE/part-0.parquet, as Hive, Spark and pyarrow write them.
#
# Every folder NAME=VALUE above a file gives its records a column of text, percent-decoded; `__HIVE_DEFAULT_PARTITION__`
# and an empty value are missing values. Which column comes from where follows from paths alone, never from records.

_NULL = "__HIVE_DEFAULT_PARTITION__"


def _folder_columns(path: str, source: Source) -> dict[str, str | None]:
    """Return the columns of `source` that the folders above a file give, with their values."""
    found: dict[str, str | None] = {}
    for folder in path.split("/")[:-1] if source.folders else ():
        name, sign, value = (_decoded(part, path) for part in folder.partition("="))
        if sign and name in source.secrets:
            raise InputError(
                f"input.path: a folder gives the secret column {name!r}, and its name reveals it; write it "
                "into the files, or set input.folder_columns to false to read the files'"
            )
        if sign and name in source.names:
            if name in found:
                raise InputError(f"{path}: two of its folders give column {name!r}; rename one")
            found[name] = None if value in ("", _NULL) else value
    if found and found.keys() >= set(source.names):
        raise InputError(
            f"{path}: only its folders give columns that are read; name one that the file holds too"
        )
    return found


def _decoded(text: str, path: str) -> str:
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeError:
        raise InputError(f"{path}: the folder {text!r} is not UTF-8; rename it") from None


def _add_folders(path: str, plan: FilePlan, given: dict[str, str | None], source: Source) -> FilePlan:
    """Add the columns that folders give to the plan of a file; one that the file has too is refused."""
    for name, value in given.items():
        if name in plan.columns:
            raise InputError(
                f"{path}: column {name!r} is in the file and in the name of its folder; rename one, or set "
                "input.folder_columns to false to read the file's"
            )
        kind = source.kinds.get(name, pa.string())
        try:
            parsed([None if value is None else value.encode()], kind)
        except pa.ArrowInvalid:
            raise InputError(
                f"{path}: the folder gives column {name!r} as {value!r}, which is not {kind} as it is used"
            ) from None
    return replace(
        plan,
        columns=[*plan.columns, *given],
        items=[replace(item, folders=tuple(given.items())) for item in plan.items],
    )


def in_the_file(item: WorkItem, plan: InputPlan) -> InputPlan:
    """Return the plan for reading an item: its file's types, without columns of folders (`keep_good` adds them)."""
    given, types = dict(item.folders), dict(item.types)
    own = pa.schema([(field.name, types.get(field.name, field.type)) for field in plan.raw])
    values = {name: own.field(name).type for name in plan.source.values if name not in plan.source.ids}
    return replace(
        plan,
        schema=pa.schema(
            [(field.name, values.get(field.name, field.type)) for field in plan.schema],
            metadata=plan.schema.metadata,
        ),
        raw=pa.schema([field for field in own if field.name not in given]),
        constants=tuple((field, given[field.name]) for field in own if field.name in given),
    )


_THREADS = 16


def plan_inputs(files: Iterable[InputFile], source: Source, opener: Opener = open_local) -> InputPlan:
    """Open all files, check them, and cut them into work items of one schema.

    Args:
        files: the files, as `InputFile`.
        source: which columns to read, and how.
        opener: opens a path for reading bytes.

    Returns:
        The plan, whose items any worker may read (`read_item`). Every problem is an `InputError` that names the file.
    """
    listed = tuple(sorted(files, key=lambda file: file.path))
    if not listed:
        raise InputError("input.path matches no file")
    with ThreadPoolExecutor(min(_THREADS, len(listed))) as pool:
        formats, plans = zip(*pool.map(lambda file: _plan_file(file, source, opener), listed), strict=True)
    by_path = dict(zip((file.path for file in listed), plans, strict=True))
    read = {name: _read_types(name, source, by_path) for name in source.names}
    rows = [plan.rows for plan in plans]
    known = {
        name: [k for k in dict.fromkeys(kinds.values()) if k is not None] for name, kinds in read.items()
    }
    raw = pa.schema([(name, _one_type(name, source, known[name])) for name in source.names])
    out = [(name, SHAPED if name in source.key_expressions else raw.field(name).type) for name in source.ids]
    out += [(name, raw.field(name).type) for name in source.columns if name not in source.ids]
    mixed = {name for name, kinds in known.items() if _family(kinds) is None}
    own = {path: _own_types(path, read, raw, mixed) for path in by_path}
    if source.where is not None:
        schemas = {schema: path for path, schema in own.items()}
        for schema, path in schemas.items():
            try:
                bind(source.where, schema)
            except ParameterError as problem:  # the file is named where files differ
                raise ParameterError(f"{path}: {problem}" if len(schemas) > 1 else str(problem)) from None
        rows = [None]  # how many of them are left out is not known
    schema = pa.schema(dict(out))
    if any(key_expression.several for key_expression in source.key_expressions.values()):
        schema = with_rows_per_record(schema, source.record)
    changed = {
        path: tuple((f.name, f.type) for f in types if f.type != raw.field(f.name).type)
        for path, types in own.items()
    }
    items = (replace(item, types=changed[item.path]) for plan in plans for item in plan.items)
    return InputPlan(
        source=source,
        schema=schema,
        raw=raw,
        items=tuple(sorted(items, key=lambda i: (-i.size, i.path, i.start))),
        files=listed,
        formats=tuple(dict.fromkeys(formats)),
        rows=None if None in rows else sum(row or 0 for row in rows),
    )


def format_of(path: str, source: Source) -> tuple[Format, str | None]:
    """Return (format, compression) of a file, from its name where the source says "auto"."""
    name = path.lower().split("?")[0]
    compression = next((kind for ending, kind in COMPRESSIONS.items() if name.endswith(ending)), None)
    if compression is not None:
        name = name[: name.rindex(".")]
    found = _named(name, source)
    if found is None:
        known = " or ".join(", ".join(FORMATS).rsplit(", ", 1))
        raise InputError(f"{path}: cannot tell the format from the file name; set input.format to {known}")
    return found, compression if found.compressible else None


def _named(name: str, source: Source) -> Format | None:
    if source.format != "auto":
        return format_named(source.format)
    chosen = (format for format in FORMATS.values() if format.chosen_by(source))
    by_suffix = (format for format in FORMATS.values() if name.endswith(format.suffixes))
    return next(chosen, None) or next(by_suffix, None)


def _plan_file(file: InputFile, source: Source, opener: Opener) -> tuple[str, FilePlan]:
    format, compression = format_of(file.path, source)
    given = _folder_columns(file.path, source)
    plan = format.plan(file, compression, replace(source, given=tuple(given)), opener)
    plan = _add_folders(file.path, plan, given, source)
    columns = list(plan.columns)
    twice = next((name for name in source.names if columns.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{file.path}: column {twice!r} occurs {columns.count(twice)} times; rename one")
    missing = [name for name in source.names if name not in plan.columns]
    if missing and not plan.empty:
        raise InputError(f"{file.path}: {no_column(missing[0], plan.columns)}")
    return format.name, plan


# --- types: a file is read in its own, so that no file decides how the records of another are taken ---------
#
# They follow from names, headers and footers alone. A file of text has the types that its use tells, also if it has no
# records yet: the next one may be anybody's.


def _read_types(name: str, source: Source, files: Mapping[str, FilePlan]) -> dict[str, pa.DataType | None]:
    """Return the type that each file has for the column; None where it is Arrow's type of columns without values."""
    found: dict[str, pa.DataType | None] = {}
    used = source.kinds.get(name, pa.string())
    for path, plan in files.items():
        kind = plain_type(plan.types.get(name, used))
        if pa.types.is_null(kind):
            found[path] = None
            continue
        if name in source.values and not is_number(kind):
            raise InputError(f"{path}: column {name!r} is {kind}; values must be {NUMBERS}")
        found[path] = identifier_type(name, kind, path, source) if name in source.texts else _plain(kind)
    return found


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return a type that conditions know, for one that they do not."""
    if pa.types.is_float16(kind):
        return pa.float32()
    odd = pa.types.is_fixed_size_binary(kind) or str(kind) in ("string_view", "binary_view")
    return (id_type(kind) or kind) if odd else kind


def _one_type(name: str, source: Source, known: list[pa.DataType]) -> pa.DataType:
    """Return the type of a column in the records that come out; whole numbers beside text become text."""
    if not known:  # no file says; its use does
        return source.kinds.get(name, pa.float64() if name in source.values else pa.string())
    if len(known) == 1:
        return known[0]
    if any(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) for kind in known):
        return pa.large_binary()
    if name in source.texts:
        short = all(pa.types.is_string(kind) or pa.types.is_integer(kind) for kind in known)
        return pa.string() if short else pa.large_string()
    if all(pa.types.is_integer(kind) and kind != pa.uint64() for kind in known):
        return pa.int64()
    if _family(known) == "numbers":
        return pa.float64()
    return pa.large_string() if pa.large_string() in known else pa.string()


def _own_types(
    path: str, read: Mapping[str, Mapping[str, pa.DataType | None]], raw: pa.Schema, mixed: Set[str]
) -> pa.Schema:
    """Return the types in which a file is read: its own; numbers, times and booleans as text where others have text."""
    own = []
    for name, kinds in read.items():
        kind = kinds[path]
        if kind is None:
            kind = raw.field(name).type
        elif name in mixed and not is_text(kind):
            kind = pa.string()
        own.append((name, kind))
    return pa.schema(own)


def _family(kinds: Sequence[pa.DataType]) -> str | None:
    """Return what types have in common, so that a condition fits all of them; None where they have nothing."""
    families: dict[str, Callable[[pa.DataType], bool]] = {
        "numbers": is_number,
        "text": is_text,
        "times": pa.types.is_temporal,
        "one type": lambda kind: kind == kinds[0],
    }
    return next((family for family, has in families.items() if all(map(has, kinds))), None)
