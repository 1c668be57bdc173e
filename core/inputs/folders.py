"""Columns that folders give: dt=2026-11-15/country=DE/part-0.parquet, as Hive, Spark and pyarrow write them.

Every folder NAME=VALUE above a file gives its records a column of text, percent-decoded; `__HIVE_DEFAULT_PARTITION__`
and an empty value are missing values. Which column comes from where follows from paths alone, never from records.
"""

from __future__ import annotations

import dataclasses
from urllib.parse import unquote_to_bytes

import pyarrow as pa

from hushgram.errors import InputError
from hushgram.inputs.columns import parsed
from hushgram.inputs.formats.format import FilePlan
from hushgram.inputs.source import InputPlan, Source, WorkItem

__all__ = ["add_folders", "folder_columns", "in_the_file"]

_NULL = "__HIVE_DEFAULT_PARTITION__"


def folder_columns(path: str, source: Source) -> dict[str, str | None]:
    """The columns of `source` that the folders above a file give, with their values."""
    found: dict[str, str | None] = {}
    for folder in path.split("/")[:-1] if source.folders else ():
        name, sign, value = (_decoded(part, path) for part in folder.partition("="))
        if sign and name in source.secrets:
            raise InputError(
                f"input.path: a folder gives the secret column {name!r}, and its name tells the secret; write it "
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


def add_folders(path: str, plan: FilePlan, given: dict[str, str | None], source: Source) -> FilePlan:
    """The plan of a file with the columns that its folders give; one that the file has too is refused."""
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
        plan.types[name] = kind
    return dataclasses.replace(
        plan,
        columns=[*plan.columns, *given],
        items=[dataclasses.replace(item, folders=tuple(given.items())) for item in plan.items],
    )


def in_the_file(item: WorkItem, plan: InputPlan) -> InputPlan:
    """The plan for the format that reads the item: the file's types, without columns of folders (`keep_good` adds)."""
    given, types = dict(item.folders), dict(item.types)
    own = pa.schema([(field.name, types.get(field.name, field.type)) for field in plan.raw])
    values = {name: own.field(name).type for name in plan.source.values if name not in plan.source.ids}
    return dataclasses.replace(
        plan,
        schema=pa.schema(
            [(field.name, values.get(field.name, field.type)) for field in plan.schema],
            metadata=plan.schema.metadata,
        ),
        raw=pa.schema([field for field in own if field.name not in given]),
        constants=tuple((field, given[field.name]) for field in own if field.name in given),
    )
