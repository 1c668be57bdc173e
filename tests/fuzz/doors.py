"""The doors: each takes random draws and one try; anything but an error of the project's own is a find."""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import json
import lzma
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tests.fuzz.mutations import Try, mutated
from tests.fuzz.sketch_doors import SKETCH_DOORS

__all__ = ["DOORS"]

_CONFIGS = [
    b"release: urls\ninput: {path: in/*.csv, user: user, key: url, where: \"age >= 3 and url like '/a%'\"}\n"
    b"privacy: {epsilon: 1.0, delta: 1e-6, max_contributions: 8, bits_per_key: 8}\n"
    b"output: {path: out/x}\n",
    b"top: pages\ninput: {path: a.csv, user: u, key: k}\nkeys: keys.txt\ncount: 5\n"
    b"privacy: {epsilon: 1/3, max_contributions: 2}\noutput: {path: o}\n",
    b"clip: ages\ninput: {path: a.parquet, column: age}\ngrid: {kind: linear, step: 2, stop: 90}\n"
    b"privacy: {epsilon: 0.5}\noutput: {path: o-{date:%Y%m%d}}\n",
    b'sparse_vector: a\ninput: {path: x, key: k}\nstream:\n  - {id: one, key: "/1"}\n  - {where: "a > 3"}\n'
    b"svt: {threshold: 3, cutoff: 2, answers: gap}\nprivacy: {epsilon: 1}\noutput: {path: o}\n",
    b"answer: s\ninput: {path: x, key: k}\ndomain: {buckets: 16}\nqueries: [{all: true}]\npmw: {max_updates: 5}\n"
    b"privacy: {epsilon: 1}\noutput: {path: o}\n",
    b"randomized_response: s\ninput: {path: x}\nsecrets: {a: {column: b}, r: {where: income >= 3}}\npublic: [c]\n"
    b"privacy: {epsilon: 2}\noutput: {path: o}\n",
]  # fmt: skip


def config(draws: random.Random, folder: Path) -> None:
    from hushgram.pipelines.config.models import load_config
    from hushgram.pipelines.jobs import JOBS, job_class

    seed = draws.choice(_CONFIGS)
    name = seed.split(b":", 1)[0].decode().replace("_", "-")
    path = folder / "config.yaml"
    path.write_bytes(mutated(draws, seed))
    assert name in JOBS
    date = draws.choice([None, "2026-11-15", "today", "31-12-2026"])
    load_config(str(path), draws.choice([(), ("privacy.epsilon=2",)]), job_class(name).Config, date)


_CONDITIONS = [
    b"status = 200 and not agent like '%bot%'",
    b"age between 3 and 9 or city in ('Paris', 'Rome')",
    b"url matches '^/a[0-9]+$' and (age >= 1.5 or ok = true)",
    b"\"a column\" is not null and time < '2026-11-15'",
]
_SCHEMA = pa.schema(
    {
        "status": pa.int64(),
        "agent": pa.string(),
        "age": pa.float64(),
        "city": pa.string(),
        "url": pa.string(),
        "ok": pa.bool_(),
        "time": pa.timestamp("us"),
        "a column": pa.int8(),
    }
)


def condition(draws: random.Random, folder: Path) -> None:
    from hushgram.inputs.conditions import bind, parse

    text = mutated(draws, draws.choice(_CONDITIONS)).decode("utf-8", "surrogateescape")
    bind(parse(text), _SCHEMA)


_QUERIES = [
    {"id": "a", "key": "/1"},
    {"prefix": "/"},
    {"column": "age", "between": [18, 29]},
    {"where": "age >= 3"},
]


def query_stream(draws: random.Random, folder: Path) -> None:
    from hushgram.mechanisms.svt.queries import read_queries

    lines = [json.dumps(query).encode() for query in draws.sample(_QUERIES, draws.randint(1, 4))]
    read_queries(mutated(draws, b"\n".join(lines)).decode("utf-8", "surrogateescape").split("\n"), "stream")


_FILES = {
    "csv": b'user,key,age\nann,/a,3\nbob,"/b,c",4\nbob,"x ""y""",5\nu,/k,1\n',
    "tsv": b"user\tkey\nann\t/a\nbob\t/b\n",
    "jsonl": b'{"user":"ann","key":"/a"}\n{"user":7,"key":"z","more":{"a":[1]}}\n{"user":null,"key":"b"}\n',
    "log": b'1.2.3.4 - - [15/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 5 "-" "M"\n' * 2,
}


def _xz(data: bytes) -> bytes:
    return lzma.compress(data, preset=0)


_SUFFIXES = {"gz": gzip.compress, "bz2": bz2.compress, "zst": zstandard.compress, "xz": _xz}


class _Here:
    """An executor without threads: what a try takes is then seen."""

    def __init__(self, _threads: int) -> None:
        pass

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, *_problem: object) -> None:
        pass

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        return [work(item) for item in items]


def _read(path: Path, **options: Any) -> None:
    """All records of a file."""
    from hushgram.inputs import plan as planning
    from hushgram.inputs import read_item
    from tests.core.inputs.helpers import plan_of

    planning.ThreadPoolExecutor = _Here  # type: ignore[misc, assignment]
    plan = plan_of(path, **options)
    for item in plan.items:
        for _ in read_item(item, plan):
            pass


def _input(name: str) -> Try:
    def door(draws: random.Random, folder: Path) -> None:
        data = _FILES[name] * draws.choice([1] * 7 + [4])
        options: dict[str, Any] = {"block_bytes": draws.choice([64, 200] + [1 << 20] * 6)}
        if name == "log":
            options |= {"preset": "access-log", "ids": ("ip", "path"), "format": "log"}
        if name == "tsv":
            options["delimiter"] = "\t"
        if name == "csv" and draws.random() < 0.3:
            options["newlines_in_values"] = True
        path = folder / f"data.{name}"
        data = mutated(draws, data)
        if (
            draws.random() < 0.02
        ):  # compressed, and some damaged after that: pyarrow forgets 50 kB of each of these
            suffix = draws.choice(list(_SUFFIXES))
            path, data = folder / f"data.{name}.{suffix}", _SUFFIXES[suffix](data)
            data = mutated(draws, data) if draws.random() < 0.2 else data
        path.write_bytes(data)
        _read(path, **options)

    return door


@functools.cache
def _parquet_of(rows: int, codec: str) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"user": [f"u{i}" for i in range(rows)], "key": list(range(rows))})
    pq.write_table(table, sink, compression=codec)
    return sink.getvalue()


def parquet(draws: random.Random, folder: Path) -> None:
    """In this process: `tests/core/inputs/formats/parquet_mutants.py` shows that none of them ends it."""
    data = _parquet_of(draws.choice([0, 1, 5, 30]), draws.choice(["none", "snappy", "zstd"]))
    path = folder / "data.parquet"
    path.write_bytes(data[: draws.randint(0, len(data))] if draws.random() < 0.2 else mutated(draws, data))
    _read(path)


_URLS = [
    b"sqlite:///ledger.db",
    b"postgresql://user:secret@127.0.0.1:1/db",
    b"sqlite:///:memory:",
    b"mysql://a/b",
]


def ledger_url(draws: random.Random, folder: Path) -> None:
    from hushgram.ledger import Ledger

    text = mutated(draws, draws.choice(_URLS[:1] + _URLS[3:])).decode("utf-8", "surrogateescape")
    if "postgres" in text:
        return
    import os

    before = os.getcwd()
    os.chdir(folder)
    try:
        with Ledger(text):
            pass
    finally:
        os.chdir(before)


def key_list(draws: random.Random, folder: Path) -> None:
    from hushgram.inputs.source import read_key_list

    path = folder / "keys.txt"
    path.write_bytes(mutated(draws, b"/a\n/b\r\n\n/c d\n"))
    read_key_list(str(path), "keys")


@functools.cache
def _pages(full: bool) -> Any:
    import hushgram as hg
    from hushgram.pipelines.pages.explore import make_app

    golden = Path(__file__).parents[1] / "golden" / "sketches" / "text.sketch"
    return make_app([("s", hg.Sketch.open(golden))] if full else [], "token", 7)


def explore(draws: random.Random, folder: Path) -> None:
    """Whole requests; one of twenty to a page that has a sketch, which is slow to ask at a level of its own."""
    asked = [
        b"k=/a&k=/b&level=0.95",
        b"view=groups&by=/1&prefix=/&sort=-estimate",
        b"view=changes&rate=0.1",
        b"q=a",
    ]
    sends = draws.random() < 0.3
    parts = [
        b"/token/keys" if sends else draws.choice([b"/token/", b"/token/csv", b"/token/names"]),
        b"POST" if sends else b"GET", b"127.0.0.1:7", b"http://127.0.0.1:7", b"application/octet-stream",
        b"name=a.txt" if sends else draws.choice(asked),
    ]  # fmt: skip
    if draws.random() < 0.9:
        at = draws.choice([*range(len(parts)), 5, 5, 5])
        parts[at] = mutated(draws, parts[at])
    body = mutated(draws, b"/a\n/b\r\n")
    path, method, host, origin, kind, query = parts
    headers = [(b"host", host), (b"origin", origin), (b"content-type", kind)]
    scope = {
        "type": "http",
        "method": method.decode("latin-1"),
        "path": path.decode("utf-8", "replace"),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": [(name, value.replace(b"\n", b"")) for name, value in headers],
    }
    cut = draws.randint(0, len(body))
    pieces = [(body[:cut], True), (body[cut:], False)]
    sent: list[Any] = []

    async def receive() -> Any:
        if not pieces:
            return {"type": "http.disconnect"}
        piece, more = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": more}

    async def send(message: Any) -> None:
        sent.append(message)

    asking = _pages(draws.random() < 0.05)(scope, receive, send)
    try:
        while True:
            asking.send(None)  # nothing in it waits
    except StopIteration:
        pass
    assert sent[0]["status"] in (200, 400, 403, 404, 405, 413, 415, 421), sent


def number(draws: random.Random, folder: Path) -> None:
    """Parameters of a release, each a text that was once a number."""
    import hushgram as hg

    def text(seed: bytes) -> str:
        return mutated(draws, seed).decode("utf-8", "replace")

    hg.ReleaseParams(
        epsilon=text(b"0.5"),
        delta=text(b"1e-6"),
        max_contributions=draws.choice([1, 8, 0, -1, 1 << 70]),
        bits_per_key=draws.choice([None, text(b"8")]),
        selection=draws.choice([None, hg.Threshold(), hg.Weights(draws.choice([0, 1, 30, 1 << 70]))]),
    )


DOORS: dict[str, Try] = {
    "config": config,
    "condition": condition,
    "query stream": query_stream,
    **{f"input {name}": _input(name) for name in _FILES},
    "input parquet": parquet,
    "ledger url": ledger_url,
    "key list": key_list,
    "explore": explore,
    "parameters": number,
    **SKETCH_DOORS,
}
