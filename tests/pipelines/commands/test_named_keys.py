"""Keys by name in `inspect`, `heavy`, `report` and `plan`: key selection by weights."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest

import hushgram as hg
from hushgram.pipelines.cli import main
from hushgram.sparse_histogram.plan import release_steps
from tests.golden import make as golden

GOLDEN = Path(golden.__file__).parent / "sketches"


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
    assert re.search(r"named keys \d+, selected by weights in 2 rounds from at most 8 keys per user", out)
    assert (
        "releases counts of the selected keys and buckets of all others (at most 4 per user, 1 per key)."
        in out
    )
    assert "512 buckets" in out
    out, _ = run("inspect", str(GOLDEN / "weighted-once.sketch"))
    assert "selected by weights in 1 round from" in out
    out, _ = run("inspect", str(GOLDEN / "names.sketch"))
    assert re.search(r"named keys \d+ with noisy count of at least 14", out)
    assert re.search(
        r"other keys [\d,]+ of 2\^\d+ fingerprints listed, with a noisy count of at least \d ", out
    )


@pytest.mark.parametrize("name", ["weighted", "pure"])
def test_heavy_and_report(name: str, run: Any, tmp_path: Path) -> None:
    _, err = run("heavy", str(GOLDEN / f"{name}.sketch"))
    assert ("named keys; none is false" in err) is (name != "pure")
    run("report", str(GOLDEN / f"{name}.sketch"), "-o", str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text()
    assert ("Computed from the noise of this release" in page) is (name == "weighted")


@pytest.mark.long
def test_plan_tells_named_keys_and_the_ceiling(run: Any, tmp_path: Path) -> None:
    asked = ["--records=200k", "--keys=20k", "--users=20k", "--delta=1e-6", "--max-contributions=8"]
    out, _ = run("plan", *asked)
    assert (
        "by weights in 3 rounds (a run chooses the number from the histogram over users): a key needs about 46"
        " users if they have no other key, about 459 if they have 100 keys each" in out
    )
    assert "keys each on average. This can be off by a third" in out
    assert "names a key of fewer than 13.7 users with probability 1/2 or more" in out
    assert "heavy keys" not in out
    assert "other keys answered without a name, with an error of about 18" in out
    run("plan", *asked, "--format", "csv", "-o", str(tmp_path / "plan.csv"))
    (row,) = csv.DictReader(io.StringIO((tmp_path / "plan.csv").read_text()))
    assert int(row["rounds"]) == 3
    assert 0 < int(row["named"]) < int(row["most_named"])
    run("plan", *asked, "-o", str(tmp_path / "plan.html"))
    assert "errors follow from noise, thresholds" in (tmp_path / "plan.html").read_text()


def test_the_guarantee_names_every_part_and_its_bounds() -> None:
    params = hg.ReleaseParams(
        epsilon=1, delta="1e-6", max_contributions="auto", selection=hg.Weights(rounds=1)
    )
    assert release_steps(params.resolve()) == (
        "It releases a noisy histogram over users, chooses max_contributions from it, selects keys by weights in one"
        " round (at most 100 keys per user), releases sizes of the other keys, and releases counts of the selected keys"
        " and buckets of all others (at most max_contributions per user, 1 per key)."
    )
    assert release_steps(hg.ReleaseParams(epsilon=1, max_contributions=8).resolve()) == ""
    sketch = hg.Sketch.open(GOLDEN / "weighted.sketch")
    told = sketch.guarantee.sentence()
    assert told.startswith(
        "The sketch is (8, 0.01)-differentially private for one user added or removed. It releases"
    )
    assert sum(part.epsilon for part in sketch.guarantee.parts) == 8
