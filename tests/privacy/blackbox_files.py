"""Cases of the black-box audit from files: one user's lines more in a file of each format, odd lines among them.

Files are written and read by the readers that jobs use, once for fifty releases; a line that cannot be read is a
record set aside, whoever wrote it.
"""

from __future__ import annotations

import io
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hushgram.inputs import read_item
from tests.core.inputs.helpers import plan_of
from tests.privacy.blackbox import Case
from tests.privacy.blackbox_releases import KEY, PURE_LIST, Pair, release_case

__all__ = ["CASES", "columns_of"]


def _log(user: str, path: str) -> bytes:
    return f'{user} - - [15/Nov/2026:10:00:00 +0000] "GET {path} HTTP/1.1" 200 5 "-" "M"\n'.encode()


# Of each format: what others wrote, what one user adds to it, options.
_FILES: dict[str, tuple[bytes, bytes, dict[str, Any]]] = {
    "csv": (
        b"user,key\na,/other\nb,\n",
        f'v,{KEY}\nv,"{KEY}\nv,{KEY},more\nv\n\n"v"x,{KEY}\n'.encode() + b"v,\xff\n",
        {},
    ),
    "tsv": (
        b"user\tkey\na\t/other\n",
        f"v\t{KEY}\nv\nv\t{KEY}\t\t\n\n".encode() + b"v\t\xc3\n",
        {"delimiter": "\t"},
    ),
    "jsonl": (
        b'{"user":"a","key":"/other"}\n',
        f'{{"user":"v","key":"{KEY}"}}\n{{"user":"v"}}\n{{"user":"v","key":["{KEY}"]}}\n{{"user":"v","key":\n[]\n'.encode(),
        {},
    ),
    "log": (
        _log("1.1.1.1", "/other"),
        _log("2.2.2.2", KEY) + b"2.2.2.2 - - [no time] nothing\n" + b"\xff" * 30 + b"\n",
        {"preset": "access-log", "ids": ("ip", "path"), "format": "log"},
    ),
    "parquet": (b"", b"", {}),
}


def _parquet(rows: list[tuple[str | None, str | None]]) -> bytes:
    sink = io.BytesIO()
    users, keys = zip(*rows, strict=True)
    pq.write_table(pa.table({"user": pa.array(users, pa.string()), "key": pa.array(keys, pa.string())}), sink)
    return sink.getvalue()


def _content(format: str, added: bool) -> bytes:
    if format == "parquet":
        return _parquet(
            [("a", "/other"), *([("v", KEY), ("v", None), (None, KEY), (None, "")] if added else [])]
        )
    others, more, _ = _FILES[format]
    return others + (more if added else b"")


def columns_of(format: str, added: bool) -> tuple[list[Any], list[Any]]:
    """Users and keys as the reader of a format finds them in a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"data.{format}"
        path.write_bytes(_content(format, added))
        plan = plan_of(path, **_FILES[format][2])
        batches = [chunk.batch for item in plan.items for chunk in read_item(item, plan)]
    table = pa.Table.from_batches(batches, plan.schema)
    return table.column(0).to_pylist(), table.column(1).to_pylist()


@dataclass(frozen=True)
class _FromFile(Pair):
    format: str = "csv"

    def columns(self, added: bool) -> tuple[list[Any], list[Any]]:
        return columns_of(self.format, added)


def _case(format: str) -> Case:
    held = {field.name: getattr(PURE_LIST, field.name) for field in fields(Pair)}
    name = f"δ = 0, list and ALP, one user's lines more in a {format} file"
    return release_case(name, _FromFile(**held, format=format))


CASES = tuple(_case(format) for format in _FILES)
