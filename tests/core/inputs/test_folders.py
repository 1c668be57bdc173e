"""Columns that folders give, in every format: keys, users, conditions, missing values, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushgram.errors import InputError
from hushgram.inputs.conditions import parse
from tests.core.inputs.helpers import plan_of, read, write

PATTERN = r"(?P<user>\S*) (?P<key>\S+)"
#: folder: what country it means
FOLDERS = {
    "dt=2026-11-15/country=DE": "DE",
    "dt=2026-11-15/country=C%C3%B4te%20d%27Ivoire": "Côte d'Ivoire",
    "dt=2026-11-16/country=a%2Fb=c": "a/b=c",
    "dt=2026-11-16/country=50%": "50%",
    "dt=2026-11-17/country=__HIVE_DEFAULT_PARTITION__": None,
    "dt=2026-11-17/country=": None,
}
KINDS = ["csv", "csv.gz", "jsonl", "log", "parquet"]


def make(folder: Path, kind: str, rows: list[tuple[str, str]]) -> Path:
    folder.mkdir(parents=True)
    path = folder / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"user": [u for u, _ in rows], "key": [k for _, k in rows]}), path)
    elif kind == "jsonl":
        write(path, "".join(json.dumps({"user": u, "key": k}) + "\n" for u, k in rows))
    elif kind == "log":
        write(path, "".join(f"{u} {k}\n" for u, k in rows))
    else:
        write(path, "user,key\n" + "".join(f"{u},{k}\n" for u, k in rows))
    return path


@pytest.fixture(params=KINDS)
def paths(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    return [make(tmp_path / f, request.param, [("u", "/a"), ("v", "/b")]) for f in FOLDERS]


def options(paths: list[Path], **more: Any) -> dict[str, Any]:
    return {"pattern": PATTERN, **more} if paths[0].suffix == ".log" else more


def test_a_folder_is_a_key_a_user_or_a_part_of_one(paths: list[Path]) -> None:
    known = [country for country in FOLDERS.values() if country is not None]
    rows, bad = read(paths, **options(paths, ids=("user", "country")))
    assert sorted(row["country"] for row in rows if row["user"] == "u") == sorted(known)
    assert bad == {"country is null": 4}
    rows, bad = read(paths, **options(paths, ids=("dt | truncate day", "[country | lower, key]")))
    keys = {row["[country | lower, key]"] for row in rows}
    assert keys == {
        json.dumps([c.lower(), k], ensure_ascii=False, separators=(",", ":"))
        for c in known
        for k in ("/a", "/b")
    }
    assert sum(bad.values()) == 4
    rows, _ = read(paths, **options(paths, columns=("country",)))
    assert {row["country"] for row in rows} == set(FOLDERS.values())


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("dt = '2026-11-15'", 4),
        ("dt BETWEEN '2026-11-16' AND '2026-11-30' AND key = '/a'", 4),
        ("country IS NULL", 4),
        ("country LIKE 'C%' OR country IN ('DE', '50%')", 6),
        ("NOT dt < '2026-12-01'", 0),
    ],
)
def test_conditions_take_folders_for_text(paths: list[Path], where: str, count: int) -> None:
    rows, bad = read(paths, **options(paths, where=parse(where)))
    assert (len(rows), bad) == (count, {})


def test_numbers_in_folders_are_compared_as_numbers(tmp_path: Path) -> None:
    paths = [make(tmp_path / f"hour={h}", "csv", [("u", "/a")]) for h in ("9", "10", "007")]
    rows, _ = read(paths, ids=("user", "hour"), columns=("key",), where=parse("hour = '10' OR key = 'x'"))
    assert [row["hour"] for row in rows] == ["10"]  # as a key it is text
    assert len(read(paths, where=parse("hour >= 9"))[0]) == 2
    odd = make(tmp_path / "hour=late", "csv", [("u", "/a")])
    with pytest.raises(
        InputError, match=r"late/a\.csv: the folder gives column 'hour' as 'late', which is not double"
    ):
        read([*paths, odd], where=parse("hour >= 9"))


def test_files_and_folders_may_give_one_column(tmp_path: Path) -> None:
    one = make(tmp_path / "day=1", "csv", [("u", "/a")])
    table = pa.table({"user": ["v"], "key": ["/b"], "day": [2]})
    pq.write_table(table, tmp_path / "b.parquet")
    rows, _ = read([one, tmp_path / "b.parquet"], ids=("user", "day"))
    assert [(row["user"], row["day"]) for row in rows] == [("u", "1"), ("v", "2")]


def test_what_is_ambiguous_is_refused(tmp_path: Path) -> None:
    both = make(tmp_path / "key=x", "csv", [("u", "/a")])
    with pytest.raises(
        InputError, match=r"column 'key' is in the file and in the name of its folder; rename one, or set"
    ):
        read(both)
    assert read(both, folders=False) == ([{"user": "u", "key": "/a"}], {})
    assert read(both, ids=("user",)) == ([{"user": "u"}], {})  # nobody asks for it
    twice = make(tmp_path / "c=1/c=2", "csv", [("u", "/a")])
    with pytest.raises(InputError, match="two of its folders give column 'c'"):
        read(twice, ids=("user", "c"))
    alone = make(tmp_path / "c=3", "csv", [("u", "/a")])
    with pytest.raises(InputError, match="only its folders give columns that are read"):
        read(alone, ids=("c",))
    with pytest.raises(InputError, match=r"no column 'd'. The columns are: user, key, c"):
        read(alone, ids=("user", "c"), columns=("d",))
    with pytest.raises(InputError, match="no column 'c'"):
        read(alone, ids=("user", "c"), folders=False)
    odd = make(tmp_path / "c=%ff", "csv", [("u", "/a")])
    with pytest.raises(InputError, match="the folder '%ff' is not UTF-8"):
        read(odd, ids=("user", "c"))


def test_a_json_field_of_the_folders_name_further_on_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "c=DE").mkdir()
    lines = ['{"user": "u"}\n'] * 300 + ['{"user": "v", "c": "FR"}\n']
    rows, bad = read(write(tmp_path / "c=DE" / "a.jsonl", "".join(lines)), ids=("user", "c"))
    assert ({row["c"] for row in rows}, len(rows), bad) == ({"DE"}, 301, {})


def test_the_plan_pickles_and_names_its_columns(tmp_path: Path) -> None:
    import pickle

    path = make(tmp_path / "c=DE", "parquet", [("u", "/a")])
    plan = pickle.loads(pickle.dumps(plan_of(path, ids=("user", "c"))))
    assert plan.schema.names == ["user", "c"]
    assert plan.items[0].folders == (("c", "DE"),)
