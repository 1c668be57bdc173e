"""The doors: each takes random draws and one try; anything but an error of the project's own is a find."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

__all__ = ["DOORS", "mutated"]

Try = Callable[[random.Random, Path], None]
_PIECES = [
    b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b'"', b"'", b",", b";", b"\t", b"{", b"}", b"[", b"]", b":",
    b"1e400", b"-0", b"NaN", b"9" * 400, b"\\u0000", b"\\ud800", b"null", b"true", b"{date}", b"!!int", b"&a", b"*a",
    b"<<", b"%", b"_", b"(", b")", b" or ", b" and ", b" not ", b" in ", b" between ", b" like ", b" matches ", b"..",
    b"/", b"://",
    b"\xc3\x28", b"\xed\xa0\x80", b"x" * 300, b"0x10", b"1_000", b"--", b"#", b"|", b">", b"?",
]  # fmt: skip


def mutated(draws: random.Random, seed: bytes) -> bytes:
    """The seed with a few pieces put in, taken out, doubled or turned."""
    data = bytearray(seed)
    for _ in range(draws.randint(1, 6)):
        at = draws.randint(0, len(data))
        kind = draws.randint(0, 4)
        if kind == 0:
            data[at:at] = draws.choice(_PIECES)
        elif kind == 1:
            del data[at : at + draws.randint(1, 12)]
        elif kind == 2:
            data[at:at] = data[at : at + draws.randint(1, 40)]
        elif kind == 3 and data:
            data[at % len(data)] ^= 1 << draws.randint(0, 7)
        else:
            data[at:at] = draws.randbytes(draws.randint(1, 8))
    return bytes(data)


_CONFIGS = [
    b"release: urls\ninput: {path: in/*.csv, user: user, key: url, where: \"age >= 3 and url like '/a%'\"}\n"
    b"privacy: {epsilon: 1.0, delta: 1e-6, max_contributions: 8, encoding: buckets, noise: auto}\n"
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
    from hushgram.pipelines.config import load_config
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
    from hushgram.svt.queries import read_queries

    lines = [json.dumps(query).encode() for query in draws.sample(_QUERIES, draws.randint(1, 4))]
    read_queries(mutated(draws, b"\n".join(lines)).decode("utf-8", "surrogateescape").split("\n"), "stream")


_FILES = {
    "csv": b'user,key,age\nann,/a,3\nbob,"/b,c",4\nbob,"x ""y""",5\n' + b"u,/k,1\n" * 20,
    "tsv": b"user\tkey\nann\t/a\nbob\t/b\n",
    "jsonl": b'{"user":"ann","key":"/a"}\n{"user":7,"key":"z","more":{"a":[1]}}\n{"user":null,"key":"b"}\n'
    * 5,
    "log": b'1.2.3.4 - - [15/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 5 "-" "M"\n' * 5,
}


def _input(name: str) -> Try:
    def door(draws: random.Random, folder: Path) -> None:
        from hushgram.inputs import read_item
        from tests.core.inputs.helpers import plan_of

        path = folder / f"data.{name}"
        path.write_bytes(mutated(draws, _FILES[name]))
        options: dict[str, Any] = {"block_bytes": draws.choice([64, 200, 1 << 20])}
        if name == "log":
            options |= {"preset": "access-log", "ids": ("ip", "path"), "format": "log"}
        if name == "csv" and draws.random() < 0.3:
            options["newlines_in_values"] = True
        plan = plan_of(path, **options)
        for item in plan.items:
            for _ in read_item(item, plan):
                pass

    return door


def parquet(draws: random.Random, folder: Path) -> None:
    """In this process: `tests/core/inputs/formats/parquet_mutants.py` shows that none of them ends it."""
    import io

    import pyarrow.parquet as pq

    from hushgram.inputs import read_item
    from tests.core.inputs.helpers import plan_of

    sink = io.BytesIO()
    rows = draws.randint(0, 30)
    pq.write_table(pa.table({"user": [f"u{i}" for i in range(rows)], "key": list(range(rows))}), sink)
    path = folder / "data.parquet"
    data = sink.getvalue()
    path.write_bytes(data[: draws.randint(0, len(data))] if draws.random() < 0.3 else mutated(draws, data))
    plan = plan_of(path)
    for item in plan.items:
        for _ in read_item(item, plan):
            pass


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
    from hushgram.inputs.key_lists import read_key_list

    path = folder / "keys.txt"
    path.write_bytes(mutated(draws, b"/a\n/b\r\n\n/c d\n"))
    read_key_list(str(path), "keys")


def explore(draws: random.Random, folder: Path) -> None:
    from hushgram.pipelines.pages.explore import _question

    _question(mutated(draws, b'{"keys": ["/a", "/b"], "level": 0.95}'))


def number(draws: random.Random, folder: Path) -> None:
    """Parameters of a release, each a text that was once a number."""
    import hushgram as hg

    def text(seed: bytes) -> str:
        return mutated(draws, seed).decode("utf-8", "replace")

    hg.ReleaseParams(
        epsilon=text(b"0.5"), delta=text(b"1e-6"), max_contributions=draws.choice([1, 8, 0, -1, 1 << 70])
    )


def sketch(draws: random.Random, folder: Path) -> None:
    """Manifests with repaired checksums; whole sketches are in `tests/core/sketch/mutants.py`."""
    import hashlib

    from hushgram.sketch.manifest import Manifest

    golden = sorted((Path(__file__).parents[1] / "golden").glob("v*/*.sketch/manifest.json"))
    content = mutated(draws, draws.choice(golden).read_bytes())
    try:
        body = json.loads(content)
        body.pop("checksum", None)
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        body["checksum"] = hashlib.sha256(text.encode()).hexdigest()
        content = json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, AttributeError, UnicodeEncodeError, RecursionError):
        pass
    Manifest.from_bytes(content, "manifest.json")


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
    "sketch manifest": sketch,
}
