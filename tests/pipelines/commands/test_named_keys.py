"""Keys by name in `inspect`, `heavy`, `report`, `plan` and `--check`: key selection by weights, and lists alone."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

import hushgram as hg
from hushgram.pipelines.cli import main
from hushgram.sparse_histogram.plan import release_steps
from tests.golden import make as golden

GOLDEN = Path(golden.__file__).parent / "sketches"
LISTS = ("weighted", "weighted-list", "pure-list")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> tuple[str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, err = capsys.readouterr()
        assert ended.value.code == 0, err
        return " ".join(out.split()), err

    return call


def test_inspect_says_how_keys_were_selected(run: Any) -> None:
    out, _ = run("inspect", str(GOLDEN / "weighted.sketch"))
    assert "named keys 9, selected by weights in two rounds from at most 8 keys per user" in out
    assert "encodes counts of the other keys by buckets (at most 4 per user, 1 per key)." in out
    out, _ = run("inspect", str(GOLDEN / "weighted-list.sketch"))
    assert "selected by weights in one round" in out
    assert "encoding none: nothing is released of other keys" in out
    out, _ = run("inspect", str(GOLDEN / "pure-list.sketch"))
    assert "with noisy count of at least" in out
    assert "encoding none" in out


@pytest.mark.parametrize("name", LISTS)
def test_heavy_and_report(name: str, run: Any, tmp_path: Path) -> None:
    _, err = run("heavy", str(GOLDEN / f"{name}.sketch"))
    assert ("named keys; none is false" in err) is (name != "pure-list")
    run("report", str(GOLDEN / f"{name}.sketch"), "-o", str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text()
    assert "Computed from the noise of this release" in page
    assert ("nothing is released of others" in page) is name.endswith("list")


@pytest.mark.long
def test_plan_tells_named_keys_and_the_ceiling(run: Any, tmp_path: Path) -> None:
    asked = ["--records=200k", "--keys=20k", "--users=20k", "--delta=1e-6", "--max-contributions=8"]
    out, _ = run("plan", *asked)
    assert (
        "by weights in two rounds (chosen when users by keys are counted, if that is as assumed here): a key needs"
        " about 47 users if they have no other key, about 46" in out
    )
    assert "keys each on average. This can be off by a third" in out
    assert "names a key of fewer than 13.7 users with probability 1/2 or more" in out
    assert "heavy keys" not in out
    assert "split selection 0.366, counts 0.366, buckets 0.244 (this one): about" in out
    for division in (
        "selection 0.609, counts 0.219, buckets 0.146",
        "selection 0.366, counts 0.487, buckets 0.122",
    ):
        assert f"split {division}: about" in out
    assert " on other keys" in out
    assert "selection_rounds 1: about" in out
    run("plan", *asked, "--format", "csv", "-o", str(tmp_path / "plan.csv"))
    (row,) = csv.DictReader(io.StringIO((tmp_path / "plan.csv").read_text()))
    assert row["encoding"] == "buckets"
    assert int(row["rounds"]) == 2
    assert 0 < int(row["named"]) < int(row["most_named"])
    run("plan", *asked, "-o", str(tmp_path / "plan.html"))
    assert "errors follow from noise, thresholds" in (tmp_path / "plan.html").read_text()


def test_check_and_plan_of_a_config_without_encoding(run: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user,key\n" + "".join(f"u{i % 50},k{i % 7}\n" for i in range(400)))
    config = tmp_path / "list.yaml"
    config.write_text(
        f"release: list\ninput: {{path: '{tmp_path}/a.csv', user: user, key: key}}\n"
        "privacy: {epsilon: 2, delta: 1e-6, max_contributions: 4, encoding: none}\n"
        f"output: {{path: '{tmp_path}/list.sketch'}}\n"
    )
    for command in (("release", str(config), "--check"), ("plan", str(config))):
        out, _ = run(*command)
        assert "other keys encoding none: nothing is released of keys that are not listed" in out
        assert "by weights in two rounds" in out
    out, _ = run("release", str(config), "--check")
    assert "and releases nothing about other keys." in out


def test_the_guarantee_names_every_part_and_its_bounds() -> None:
    params = hg.ReleaseParams(epsilon=1, delta="1e-6", max_contributions="auto", selection_rounds=1)
    assert release_steps(params) == (
        "It selects keys by weights in one round (at most 100 keys per user), chooses max_contributions from noisy"
        " numbers of users, counts the selected keys (at most max_contributions per user, 1 per key), releases sizes of"
        " the other keys, and encodes counts of the other keys by buckets (at most max_contributions per user, 1 per"
        " key)."
    )
    assert release_steps(hg.ReleaseParams(epsilon=1, max_contributions=8)) == ""
    sketch = hg.Sketch.open(GOLDEN / "weighted.sketch")
    told = sketch.guarantee.sentence()
    assert told.startswith(
        "The sketch is (8, 0.01)-differentially private for one user added or removed. It selects"
    )
    assert sum(part.epsilon for part in sketch.guarantee.parts) == 8


def test_a_threshold_list_alone_at_delta_above_zero_needs_no_sizes(tmp_path: Path) -> None:
    params = hg.ReleaseParams(epsilon=4, delta="1e-3", max_contributions=1, encoding="none")
    sketch = hg.release(None, golden.KEYS, params, tmp_path / "a.sketch", release_key=golden.KEY)
    assert [part.kind for part in sketch.guarantee.parts] == ["truncated_geometric"]
    assert sketch.guarantee.epsilon == 4
    assert sketch.manifest.heavy_rows > 0
    assert hg.Sketch.open(tmp_path / "a.sketch").sizes_in_words().endswith("selected keys")
