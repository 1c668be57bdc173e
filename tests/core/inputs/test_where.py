"""`where`: records are left out before anything else is asked of them, alike from every format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushgram.errors import ParameterError
from hushgram.inputs.conditions import parse
from tests.core.inputs.helpers import plan_of, read_all, write

RECORDS: list[dict[str, Any]] = [
    {
        "user": f"u{i}",
        "key": f"/{i}",
        "status": 200 if i % 3 else 404,
        "agent": "bot" if i % 5 == 0 else "x",
        "ok": i % 2 == 0,
    }
    for i in range(60)
]
CONDITIONS = {
    "status = 200": lambda r: r["status"] == 200,
    "status = 200 AND agent != 'bot'": lambda r: r["status"] == 200 and r["agent"] != "bot",
    "NOT agent LIKE 'b%' OR status >= 404": lambda r: r["agent"] != "bot" or r["status"] >= 404,
    "key MATCHES '^/[0-9]$'": lambda r: len(r["key"]) == 2,
    "status IN (404, 500) AND user NOT MATCHES '3$'": lambda r: r["status"] == 404 and r["user"][-1] != "3",
    "ok = true": lambda r: r["ok"],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("where")
    pq.write_table(pa.Table.from_pylist(RECORDS), folder / "a.parquet")
    text = "user,key,status,agent,ok\n" + "".join(
        f"{r['user']},{r['key']},{r['status']},{r['agent']},{str(r['ok']).lower()}\n" for r in RECORDS
    )
    lines = "".join(json.dumps(record) + "\n" for record in RECORDS)
    return [folder / "a.parquet", write(folder / "a.csv", text), write(folder / "a.jsonl", lines)]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_every_format_leaves_out_the_same(files: list[Path], condition: str) -> None:
    wanted = sorted(r["user"] for r in RECORDS if CONDITIONS[condition](r))
    assert 0 < len(wanted) < 60
    for file in files:
        rows, rejected, _ = read_all(plan_of(file, where=parse(condition)))
        assert sorted(row["user"] for row in rows) == wanted, file
        assert not rejected


def test_what_is_left_out_is_not_bad(tmp_path: Path) -> None:
    text = "user,key,status\n,/a,404\n,/b,200\nu,/c,200\nv,/d,\n"
    plan = plan_of(write(tmp_path / "a.csv", text), where=parse("status = 200"), keep_rejected=True)
    rows, rejected, bad = read_all(plan)
    assert [row["user"] for row in rows] == ["u"]
    assert rejected == {"user is null": 1}
    assert [row["at"] for row in bad] == [text.index(",/b")]


def test_a_column_of_text_is_read_as_what_it_is_compared_with(tmp_path: Path) -> None:
    """Not as what its first lines look like: another's record there must not change what is read."""
    for first in ("u,/a,7", "u,/a,x", "u,/a,1.5"):
        file = write(tmp_path / "a.csv", f"user,key,n\n{first}\n" + "u,/b,30\nv,/c,8\n")
        rows, _, _ = read_all(plan_of(file, where=parse("n > 7.5")))
        assert sorted(row["key"] for row in rows) == ["/b", "/c"]
        rows, _, _ = read_all(plan_of(file, where=parse("n LIKE '3%'")))
        assert [row["key"] for row in rows] == ["/b"]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("nix = 3", "no column 'nix'"),
        ("key > 3", "text goes in single quotes"),
        ("key MATCHES '('", "missing"),
    ],
)
def test_mistakes_show_in_the_plan(files: list[Path], condition: str, message: str) -> None:
    for file in files:
        with pytest.raises(Exception, match=message) as caught:
            plan_of(file, where=parse(condition))
        assert "\n" not in str(caught.value)
    with pytest.raises(ParameterError, match="MATCHES needs a text in single quotes"):
        parse("key MATCHES 3")


def test_columns_of_text_have_the_types_of_their_use(tmp_path: Path) -> None:
    """Types that a job gives, and those of `where`, are one; where they differ the column is text."""
    file = write(tmp_path / "a.csv", "user,key,n,m\nu,/a,1,1\n")
    types = (("n", pa.float64()), ("m", pa.float64()))
    plan = plan_of(file, columns=("n", "m"), types=types, where=parse("m LIKE '1%' AND n > 0"))
    assert plan.schema.field("n").type == pa.float64()
    assert plan.schema.field("m").type == pa.string()
