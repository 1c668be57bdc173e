"""Partition folders through the jobs: what comes out is what comes of the same columns in a file."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.pipelines.all_jobs import JOBS, call, table, write_home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUSHGRAM_LEDGER", raising=False)
    write_home(tmp_path)
    (tmp_path / "key").write_text("07" * 32)
    monkeypatch.setenv("HUSHGRAM_RELEASE_KEY_FILE", str(tmp_path / "key"))
    return tmp_path


def contents(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.long
def test_every_job_reads_folders_as_columns(job: str, home: Path) -> None:
    _, config, column = JOBS[job]
    column = "url" if job == "randomized-response" else column
    ds.write_dataset(
        table(), home / "parts", format="parquet", partitioning=[column], partitioning_flavor="hive"
    )
    (home / "parts" / "_temporary").mkdir()
    (home / "parts" / "_temporary" / "half.parquet").write_bytes(b"PAR1")
    # numbers in folders are text, which need not be whole
    config += {"clip": "grid: {granularity: 1}\n", "randomized-response": "public: [url]\n"}.get(job, "")
    (home / "a.yaml").write_text(config)
    (home / "b.yaml").write_text(config.replace("data.parquet", "parts").replace("out/result", "out/parts"))
    for written in ("a.yaml", "b.yaml"):
        for how in (["--check"], ["--quiet", "--set", f"workers={2 if job == 'release' else 1}"]):
            done = call(job, *how, config=written)
            assert done.exit_code == 0, done.exception
    if job != "randomized-response":  # there noise belongs to a place in a file
        assert contents(home / "out/parts") == contents(home / "out/result")
