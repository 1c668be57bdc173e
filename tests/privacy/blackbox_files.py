"""Cases of the black-box audit from files: one user's lines more in a file of each format, odd lines among them.

A line that cannot be read is a rejected record, whoever wrote it.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.privacy.blackbox import Case
from tests.privacy.blackbox_jobs import Pair, job_case
from tests.privacy.blackbox_releases import KEY, PURE_LIST

__all__ = ["CASES", "FILES", "FromFile"]


def _log(user: str, path: str) -> bytes:
    return f'{user} - - [15/Nov/2026:10:00:00 +0000] "GET {path} HTTP/1.1" 200 5 "-" "M"\n'.encode()


#: Of each format: what others wrote, what one user adds to it, and fields of the config's input.
FILES: dict[str, tuple[bytes, bytes, dict[str, Any]]] = {
    "csv": (
        b"user,key\na,/other\nb,\n",
        f'v,{KEY}\nv,"{KEY}\nv,{KEY},more\nv\n\n"v"x,{KEY}\n'.encode() + b"v,\xff\n",
        {},
    ),
    "tsv": (
        b"user\tkey\na\t/other\n",
        f"v\t{KEY}\nv\nv\t{KEY}\t\t\n\n".encode() + b"v\t\xc3\n",
        {"csv": {"delimiter": "\t"}},
    ),
    "jsonl": (
        b'{"user":"a","key":"/other"}\n',
        f'{{"user":"v","key":"{KEY}"}}\n{{"user":"v"}}\n{{"user":"v","key":["{KEY}"]}}\n{{"user":"v","key":\n[]\n'.encode(),
        {},
    ),
    "log": (
        _log("1.1.1.1", "/other"),
        _log("2.2.2.2", KEY) + b"2.2.2.2 - - [no time] nothing\n" + b"\xff" * 30 + b"\n",
        {"format": "log", "preset": "access-log", "user": "ip", "key": "path"},
    ),
    "parquet": (b"", b"", {}),
}


def _parquet(rows: list[tuple[str | None, str | None]]) -> bytes:
    sink = io.BytesIO()
    users, keys = zip(*rows, strict=True)
    pq.write_table(pa.table({"user": pa.array(users, pa.string()), "key": pa.array(keys, pa.string())}), sink)
    return sink.getvalue()


@dataclass(frozen=True)
class FromFile(Pair):
    """A pair whose files are given as bytes."""

    format: str = "csv"

    def content(self, added: bool) -> bytes:
        if self.format == "parquet":
            odd = [("v", KEY), ("v", None), (None, KEY), (None, "")]
            return _parquet([("a", "/other"), *(odd if added else [])])
        others, more, _ = FILES[self.format]
        return others + (more if added else b"")


def _case(format: str) -> Case:
    held = {field.name: getattr(PURE_LIST, field.name) for field in fields(Pair)}
    held |= {"config": {**PURE_LIST.config, "input": FILES[format][2]}, "file": f"data.{format}"}
    name = f"δ = 0, list and ALP, one user's lines more in a {format} file"
    return job_case(name, FromFile(**held, format=format))


CASES = tuple(_case(format) for format in FILES)
