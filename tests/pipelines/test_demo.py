"""The demo: synthetic data are what they claim to be, and the comparison is with the truth."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from hushgram.errors import HushgramError, ParameterError
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines import synthetic
from hushgram.pipelines.commands.demo import command, run_demo
from hushgram.pipelines.synthetic import PageViews, write_page_views
from hushgram.publishing import digest_of
from hushgram.sparse_histogram.params import ReleaseParams

KEY = ReleaseKey(bytes(range(32)))


def test_page_views_are_reproducible_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "_CHUNK_ROWS", 3000)
    monkeypatch.setattr(synthetic, "_FILE_ROWS", 6000)
    views = PageViews(rows=10_000, urls=500, users=800)
    truth = write_page_views(views, tmp_path / "a")
    again = write_page_views(views, tmp_path / "b")
    other = write_page_views(PageViews(rows=10_000, urls=500, users=800, seed=2), tmp_path / "c")
    assert truth.sum() == 10_000
    assert (truth == again).all()
    assert (truth != other).any()
    table = pq.read_table(tmp_path / "a")
    assert len(list((tmp_path / "a").iterdir())) == 2
    assert table.num_rows == 10_000
    counts = {row["values"]: row["counts"] for row in table.column("url").value_counts().to_pylist()}
    texts = views.url_texts(np.arange(500)).to_pylist()
    assert [counts.get(text, 0) for text in texts] == truth.tolist()
    assert truth[0] > truth[10] > truth[200]
    users = table.column("user_id").to_numpy()
    assert (users.min() >= 0, users.max() < 800) == (True, True)


@pytest.mark.parametrize("rows", [0, 100_000_001])
def test_sizes_are_checked(rows: int) -> None:
    with pytest.raises(ParameterError, match="--rows must be from 1 to 100,000,000"):
        PageViews(rows=rows)


def test_lookups_and_totals_beside_the_truth(tmp_path: Path) -> None:
    said: list[str] = []
    params = ReleaseParams(epsilon="4", max_contributions=8)
    views = PageViews(rows=20_000)
    result = run_demo(views, params, tmp_path / "demo", quiet=True, report=said.append, release_key=KEY)
    assert len(result.lookups) == 20
    assert len(result.totals) == 4
    assert said[0].startswith("1. 20,000 synthetic page views of ")
    rows = result.lookups.to_pylist()
    top, absent = rows[0], rows[-1]
    assert top["views"] >= top["counted"] > 500
    assert abs(top["estimate"] - top["counted"]) < 60  # 15 times the scale of the noise
    assert (absent["views"], absent["counted"]) == (0, 0)
    assert sum(row["covered"] for row in rows) >= 14
    wiki = result.totals.to_pylist()[0]
    assert abs(wiki["estimate"] - wiki["counted"]) < 0.25 * wiki["counted"]
    with pytest.raises(ParameterError, match="already contains a demo"):
        run_demo(views, params, tmp_path / "demo")


def test_counted_is_what_the_job_counted(tmp_path: Path) -> None:
    """With next to no noise the listed estimates are the counts after bounding, exactly."""
    params = ReleaseParams(epsilon="100", max_contributions=3)
    result = run_demo(
        PageViews(rows=20_000), params, tmp_path / "demo", quiet=True, report=str, release_key=KEY
    )
    listed = [row for row in result.lookups.to_pylist() if row["source"] == "threshold"]
    assert len(listed) >= 5
    assert all(abs(row["estimate"] - row["counted"]) < 1.5 for row in listed)
    assert any(row["counted"] != row["views"] for row in listed)


RUN = f"""
import sys
from pathlib import Path
import hushgram as hg
from hushgram.pipelines.commands.demo import run_demo
from hushgram.pipelines.synthetic import PageViews
params, key = hg.ReleaseParams(epsilon="1", max_contributions=8), hg.ReleaseKey({bytes(range(32))!r})
run_demo(PageViews(rows=20_000), params, Path(sys.argv[1]), quiet=True, report=str, release_key=key)
"""


def test_the_first_run_in_a_fresh_clone_gives_the_bytes_of_any_other(tmp_path: Path) -> None:
    """Without compiled files and caches, with other threads, hashes and order of imports."""
    params = ReleaseParams(epsilon="1", max_contributions=8)
    run_demo(PageViews(rows=20_000), params, tmp_path / "here", quiet=True, report=str, release_key=KEY)
    fresh = {"PYTHONPYCACHEPREFIX": str(tmp_path / "compiled"), "XDG_CACHE_HOME": str(tmp_path / "caches")}
    ways = {
        "first": ("", fresh),
        "second": ("import scipy.stats, apache_beam, pyarrow.dataset", {**fresh, "PYTHONHASHSEED": "7"}),
        "one-thread": ("", {"OMP_NUM_THREADS": "1", "ARROW_IO_THREADS": "1", "PYTHONHASHSEED": "1"}),
    }
    for name, (imports, variables) in ways.items():
        command = [sys.executable, "-c", f"{imports}\n{RUN}", str(tmp_path / name)]
        subprocess.run(command, env={**os.environ, **variables}, check=True, timeout=120)
    digests = {name: digest_of(str(tmp_path / name / "urls.sketch")) for name in ("here", *ways)}
    assert len(set(digests.values())) == 1, digests


def test_the_command(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["--rows", "3000", "--keep", str(tmp_path / "kept")])
    assert result.exit_code == 0, result.exception
    assert "synthetic page views" in result.stdout
    assert "https://example.org/nobody/was-here" in result.stdout
    assert "intervals contain the counted number" in result.stdout
    assert (tmp_path / "kept/urls.sketch/manifest.json").exists()
    wrong = CliRunner().invoke(command, ["--epsilon", "0"])
    assert isinstance(wrong.exception, HushgramError)
