"""From the ``input`` group of a config to what the readers take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from hushgram.inputs import InputPlan, Source
from hushgram.inputs.conditions import parse
from hushgram.pipelines.config import InputConfig

__all__ = ["plan_config", "source_of"]


def source_of(
    config: InputConfig,
    columns: Iterable[str] = (),
    *,
    types: Mapping[str, pa.DataType] | None = None,
    values: Iterable[str] = (),
    secrets: Iterable[str] = (),
    record: tuple[int, int] | None = None,
) -> Source:
    """The source of a job that needs user and key, and `columns` beside them; `types` are for text files.

    Those in `values` are added up; those in `secrets` decide nothing about their records. `record` bounds the keys of
    one record where there are no users.
    """
    return Source(
        ids=config.columns,
        columns=tuple(dict.fromkeys((*columns, *values))),
        values=tuple(values),
        format=config.format,
        options=config.options,
        where=None if config.where is None else parse(config.where),
        types=tuple({**dict.fromkeys(values, pa.float64()), **(types or {})}.items()),
        keep_bad=config.bad_records is not None,
        record=record,
        secrets=tuple(secrets),
        folders=config.folder_columns,
    )


def plan_config(config: InputConfig, columns: Iterable[str] = (), **needs: Any) -> InputPlan:
    """Finds and checks all input files of a config; an `InputError` says what is wrong with them.

    Arguments are those of `source_of`.
    """
    from hushgram.transforms.read_records import plan_records

    return plan_records(config.path, source_of(config, columns, **needs))
