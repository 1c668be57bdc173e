"""The commands that read sketches, as a person types them."""

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import hushgram as hg
from hushgram.pipelines.cli import main
from hushgram.pipelines.pages.static import make_report
from tests.golden import make as golden

GOLDEN = Path(golden.__file__).parent / "sketches"
PURE, TEXT = str(GOLDEN / "pure.sketch"), str(GOLDEN / "text.sketch")


@pytest.fixture
def run(capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return call


def test_query_prints_a_table(run):
    code, out, err = run("query", PURE, "/page/1", "/page/2")
    assert code == 0
    assert "after bounding" in err
    assert "detection limit is a count of" in err
    lines = out.splitlines()
    assert lines[0].split() == ["key", "estimate", "low", "high", "above_zero", "source"]
    assert [line.split()[0] for line in lines[1:]] == ["/page/1", "/page/2"]


def test_a_key_that_is_not_listed_has_an_upper_bound_unless_an_estimate_is_asked_for(run, tmp_path):
    keys, sketch = ("/page/1", "/nobody/was/here"), str(tmp_path / "a.sketch")
    params = hg.ReleaseParams(epsilon="1", max_contributions=4)
    hg.release_histogram(["/page/1", "/page/2"], [1_000, 3], params, sketch)
    _, out, _ = run("query", sketch, *keys, "--format", "json")
    known, unknown = map(json.loads, out.splitlines())
    assert known["resolved"]
    assert known["low"] <= known["estimate"] <= known["high"]
    assert (unknown["estimate"], unknown["resolved"]) == (None, False)
    lines = [line.split() for line in run("query", sketch, *keys)[1].splitlines()]
    high = f"{unknown['high']:.0f}"
    assert lines[2][1:5] == ["<", high, "0", high]
    assert "." not in "".join(lines[1][1:4])  # counts, to what the noise supports
    assert run("query", sketch, *keys, "--interval", "none")[1].splitlines()[2].split()[1:5] == [
        "<", high, "-", "-",
    ]  # fmt: skip
    for estimator in ("confidence", "posterior", "argmax", "unbiased"):
        _, out, _ = run("query", sketch, keys[1], "--estimator", estimator, "--format", "json")
        assert isinstance(json.loads(out)["estimate"], float)
        assert "<" not in run("query", sketch, keys[1], "--estimator", estimator)[1]


def test_a_listed_key_has_a_count_however_wide_its_interval(run, tmp_path):
    """Its count is unbiased, with noise that is known: 125, 61 to 189."""
    sketch = str(tmp_path / "a.sketch")
    params = hg.ReleaseParams(epsilon="0.05", max_contributions=1)
    hg.release_public(
        range(40),
        ["/a"] * 30 + ["/b"] * 10,
        ["/a", "/b", "/c"],
        params,
        sketch,
        release_key=hg.ReleaseKey(bytes(32)),
    )
    _, out, _ = run("query", sketch, "/a", "/b", "/c", "--format", "json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert any(row["high"] - row["low"] > row["estimate"] for row in rows)
    assert all(row["resolved"] and row["low"] <= row["estimate"] <= row["high"] for row in rows)
    lines = run("query", sketch, "/a", "/b", "/c")[1].splitlines()[1:]
    assert [int(line.split()[1].replace(",", "")) for line in lines] == [
        round(row["estimate"]) for row in rows
    ]
    for epsilon, delta in (("2", "1e-2"), ("1", "1e-6")):
        params = hg.ReleaseParams(epsilon=epsilon, delta=delta, max_contributions=8)
        names = [f"/page/{number}" for number in range(300)]
        found = hg.release_histogram(
            names, list(range(300)), params, release_key=hg.ReleaseKey(bytes(32))
        ).estimate(names)
        wide = np.array(found["high"]) - np.array(found["low"]) > np.nan_to_num(
            np.array(found["estimate"], float)
        )
        listed = np.array(found["source"].to_pylist()) == "threshold"
        assert np.any(wide & listed)
        assert np.array_equal(np.array(found["resolved"].to_pylist()), listed | ~wide)
        assert np.all(np.isfinite(np.array(found["estimate"].to_pylist(), float)[listed]))


def test_odd_keys_are_warned_about(run, tmp_path):
    (tmp_path / "keys").write_text("key,count\n/page/1\n")
    _, _, err = run("query", PURE, "--keys-file", str(tmp_path / "keys"))
    assert "warning: the first line, 'key,count', looks like a header" in err
    assert "warning" not in run("query", PURE, "key", "/page/1")[2]
    for command in ("query", "total"):
        _, _, err = run(command, PURE, " /page/1", "/page/2")
        assert "warning: blanks around a key are part of it, as in 1 key such as ' /page/1'" in err
    _, _, err = run("heavy", PURE, "--keys-file", str(tmp_path / "keys"))
    assert "looks like a header" in err


def test_query_among_says_so_and_is_wider(run):
    def width(*more):
        code, out, err = run("query", PURE, "/page/1", "--format", "json", *more)
        assert code == 0
        row = json.loads(out)
        return row["high"] - row["low"], row["among"], err

    assert width()[1] == 1
    assert width("--among", "1000")[1] == 1000
    assert width("--among", "1000")[0] > width()[0]
    assert "among" not in run("query", PURE, "/page/1")[1]
    assert "for all of 1,000 keys at once" in run("query", PURE, "/page/1", "--among", "1000")[2]
    _, out, _ = run("query", PURE, "/page/1", "--format", "csv", "--among", "7")
    assert next(csv.DictReader(io.StringIO(out)))["among"] == "7"
    code, _, err = run("query", PURE, "a", "b", "c", "--among", "2")
    assert code == 2
    assert "Traceback" not in err
    assert "at least the number of keys" in err


def test_heavy_says_among_how_many_keys_its_intervals_hold(run):
    listed = hg.Sketch.open(TEXT).manifest.heavy_rows
    _, out, _ = run("heavy", TEXT, "--format", "json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert {row["among"] for row in rows if not row["others"]} == {listed}
    _, out, _ = run("heavy", TEXT, "--format", "csv")
    assert next(csv.DictReader(io.StringIO(out)))["among"] == str(listed)
    assert f"for all {listed:,} at once" in run("heavy", TEXT)[2]


def test_help_says_for_which_keys_an_interval_holds(run):
    for command in ("query", "total"):
        assert "without looking" in " ".join(run(command, "--help")[1].split())
    assert "hold for all listed keys at once" in " ".join(run("heavy", "--help")[1].split())


def test_query_as_csv_json_and_from_a_file(run, tmp_path):
    (tmp_path / "keys").write_bytes(b"/page/1\r\n/page/2\n\n")
    code, out, _ = run(
        "query", PURE, "--keys-file", str(tmp_path / "keys"), "--format", "json", "--estimator", "argmax"
    )
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["key"] for row in rows] == ["/page/1", "/page/2"]
    result = subprocess.run(
        [sys.executable, "-m", "hushgram.pipelines", "query", PURE, "/page/1", "--format", "csv"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert next(csv.DictReader(io.StringIO(result.stdout)))["key"] == "/page/1"


def test_total_heavy_inspect_verify(run):
    code, out, _ = run("total", PURE, "/page/1", "/page/2", "--format", "json")
    total = json.loads(out)
    assert code == 0
    assert total["low"] <= total["estimate"] <= total["high"]
    _, out, err = run("total", PURE, "/page/1", "/page/2")
    assert "over 2 keys" in out
    assert "assumes nothing about the keys" in err
    _, _, err = run("total", PURE, "/page/1", "/page/2", "--assume", "like-the-data")
    assert "assumes keys like the data" in err
    columns = ["fingerprint", "value", "low", "high", "real", "key"]
    assert run("heavy", TEXT, "--limit", "1")[1].splitlines()[0].split() == columns
    shown = run("inspect", PURE)[1]
    assert "4-differentially private" in shown
    assert json.loads(run("inspect", PURE, "--format", "json")[1])["version"] == 6
    assert "complete and unaltered" in run("verify", TEXT)[2]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("query", "nowhere", "k"), 4, "no such sketch"),
        (("query", PURE), 2, "one key or more"),
        (("query", PURE, "k", "--keys-file", "x"), 2, "not both"),
        (("query", PURE, "--keys-file", "missing"), 3, "No such file"),
        (("query", PURE, "k", "--level", "2"), 2, "level"),
        (("query", PURE, "k\udcff"), 2, r"KEY must be UTF-8 text, got 'k\udcff'; give keys of other bytes"),
        (("total", PURE, "k\udcff"), 2, "KEY must be UTF-8 text"),
        (("total", PURE, "--keys-file", "/dev/null"), 3, "has no keys"),
        (("nonsense",), 2, "No such command"),
        (("heavy", PURE, "--limit", "0"), 2, "limit"),
    ],
)
def test_mistakes_are_one_line_and_an_exit_code(run, arguments, code, words):
    found, out, err = run(*arguments)
    assert found == code
    assert words in err
    assert "Traceback" not in err
    assert out == ""


def test_damage_is_named(run, tmp_path):
    shutil.copytree(PURE, tmp_path / "a.sketch")
    bits = next((tmp_path / "a.sketch").glob("*-00000.bin"))
    content = bytearray(bits.read_bytes())
    content[3] ^= 1
    bits.write_bytes(content)
    code, _, err = run("verify", str(tmp_path / "a.sketch"))
    assert code == 4
    assert bits.name in err
    assert len(err.splitlines()) == 1


def test_no_row_is_printed_of_a_sketch_in_which_a_needed_file_is_damaged(run, tmp_path):
    """A named key needs no block, and its row was printed before the detection limit, which does, found the damage."""
    home = tmp_path / "a.sketch"
    shutil.copytree(GOLDEN / "weighted.sketch", home)
    key = hg.Sketch.open(home).heavy()["key"][0].as_py()
    bits = home / "blocks-00000.bin"
    bits.write_bytes(bytes(len(bits.read_bytes())))
    code, out, err = run("query", str(home), key)
    assert (code, out) == (4, "")
    assert "block 0 does not match its SHA-256" in err


def test_numbers_agree_with_their_nouns(run, tmp_path):
    params = hg.ReleaseParams(epsilon="1", delta="1e-6", max_contributions=1)
    hg.release(range(3), ["a", "b", "c"], params, tmp_path / "none.sketch")
    out, err = run("heavy", str(tmp_path / "none.sketch"))[1:]
    assert "This release has no named key." in err
    assert "none is false" not in err
    hg.release(range(5_000), ["a"] * 5_000, params, tmp_path / "one.sketch")
    out, err = run("heavy", str(tmp_path / "one.sketch"))[1:]
    assert "1 of 1 named key;" in err
    out, err = run("total", str(tmp_path / "one.sketch"), "a")[1:]
    assert " over 1 key (" in out


def test_the_right_form_of_a_key_of_several_columns_is_shown(run, tmp_path):
    table = pa.table({"user": range(5_000), "rating": ["B6", "B7"] * 2_500, "name": ["MCO"] * 5_000})
    params = hg.ReleaseParams(epsilon="1", delta="1e-6", max_contributions=1)
    hg.release(table, user="user", key=["rating", "name"], params=params, path=tmp_path / "a.sketch")
    for wrong in ("[B6, MCO]", "['B6', 'MCO']", '["B6", MCO]', "B6,MCO"):
        err = run("query", str(tmp_path / "a.sketch"), wrong)[2]
        assert """'["B6","MCO"]'""" in err
    assert """'["column 1","column 2"]'""" in run("query", str(tmp_path / "a.sketch"), "B6")[2]
    assert "warning" not in run("query", str(tmp_path / "a.sketch"), '["B6","MCO"]')[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A sketch at δ = 0 with released sizes and many false heavy keys."""
    counts = np.maximum(1, 30_000 / np.arange(1, 3_001)).astype(np.int64)
    names = [f"/page/{number}" for number in range(3_000)]
    params = hg.ReleaseParams(epsilon="1", max_contributions=4)
    sketch = hg.release_histogram(names, counts, params, release_key=hg.ReleaseKey(bytes([5] * 32)))
    return str(shutil.copytree(sketch.path, tmp_path_factory.mktemp("made") / "a.sketch"))


def rows(text):
    return [json.loads(line) for line in text.splitlines()]


def test_heavy_shows_what_is_real_and_tells_what_is_false(run, made, tmp_path):
    _, out, _ = run("heavy", made, "--all", "--limit", "1000000", "--format", "json")
    every = rows(out)[:-1]  # the last row is about all others
    _, out, _ = run("heavy", made, "--limit", "1000000", "--format", "json")
    shown = rows(out)[:-1]
    assert all(row["real"] >= 0.95 and row["low"] <= row["value"] <= row["high"] for row in shown)
    assert {row["fingerprint"] for row in shown} < {row["fingerprint"] for row in every}
    assert (
        f"of {len(shown):,} keys that are real with probability of at least 95 % (out of {len(every):,})"
        in run("heavy", made)[2]
    )
    assert "are false" in run("heavy", made, "--all")[2]
    (tmp_path / "candidates").write_text("".join(f"/page/{number}\n" for number in range(3_000)))
    named = rows(run("heavy", made, "--keys-file", str(tmp_path / "candidates"), "--format", "json")[1])
    assert [row["key"] for row in named[:2]] == ["/page/0", "/page/1"]


def test_worth_is_told(run, made):
    shown = " ".join(run("inspect", made)[1].split())
    assert " ± " in shown
    assert "after bounding" in shown
    assert "detection limit is a count of" in shown
    assert "of all are false" in shown
    answers = rows(run("query", made, "/page/0", "nobody", "--format", "json")[1])
    assert [row["above_zero"] for row in answers] == [True, False]
    assert answers[1]["low"] == 0.0


def test_lookups_do_not_import_beam_or_what_writes():
    program = (
        "import sys\nfrom hushgram.pipelines.cli import run\n"
        f"sys.argv[1:] = ['query', {PURE!r}, 'k']\n"
        "try:\n    run()\nexcept SystemExit:\n    pass\n"
        "slow = ('apache_beam', 'pydantic', 'sqlalchemy', 'dp_accounting', 'matplotlib', 'scipy', 'pandas', 'rich')\n"
        "heavy = [m for m in slow if sys.modules.get(m)]\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_version_and_help(run):
    assert "hushgram" in run("--version")[1]
    assert "ledger" in run("--help")[1]


def test_the_last_row_of_heavy_is_the_total_of_others(run, made):
    sketch = hg.Sketch.open(made)
    code, out, _ = run("others", made, "--format", "json")
    others = json.loads(out)
    assert code == 0
    assert others["low"] <= others["estimate"] <= others["high"]
    for limit in ("2", "1000000"):
        rows = [
            json.loads(line)
            for line in run("heavy", made, "--limit", limit, "--format", "json")[1].splitlines()
        ]
        marked = [row["fingerprint"] for row in rows if row["others"]]
        assert marked == [row["fingerprint"] for row in rows][-len(marked) :]
        assert marked == (["more", "others"] if limit == "2" else ["others"])
        assert {name: rows[-1][name] for name in ("value", "low", "high")} == pytest.approx(
            {"value": others["estimate"], "low": others["low"], "high": others["high"]}, abs=1
        )
        # named values are a little too large on average, for which the total of others is corrected
        assert sum(row["value"] for row in rows) == pytest.approx(sketch.plan.sizes.records, rel=0.01)
    assert "other keys" in run("others", made)[1]
    assert run("heavy", made)[1].splitlines()[-1].startswith("others ")
    assert "All other keys together" in make_report(sketch)
