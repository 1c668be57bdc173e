"""A release over a public list: the library's bytes, every listed key, clear mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hushgram as hg
from hushgram.errors import InputError
from hushgram.inputs import InputPlan, Source
from hushgram.pipelines.config.models import ConfigError
from hushgram.pipelines.jobs.job import Job
from hushgram.pipelines.jobs.release import run_release
from hushgram.pipelines.run.job_runner import load_job, run_job
from hushgram.transforms.read_records import plan_records

USERS = [f"u{i % 50}" for i in range(2000)]
KEYS = [f"k{i % 37}" for i in range(2000)]
LISTED = ["k5", "absent", "k0", "k36"]
PARAMS = hg.ReleaseParams(epsilon="1", max_contributions=4)
SECRET = hg.ReleaseKey(bytes(range(32)))


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


@pytest.fixture
def plan(tmp_path: Path) -> InputPlan:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"user": USERS, "key": KEYS}), file, row_group_size=300)
    return plan_records([str(file)], Source(ids=("user", "key"), item_bytes=1))


@pytest.mark.parametrize("user", ["user", None])
def test_the_bytes_are_those_of_the_library(tmp_path: Path, plan: InputPlan, user: str | None) -> None:
    made = run_release(
        PARAMS,
        plan,
        public_keys=LISTED,
        user=user,
        key="key",
        path=tmp_path / "job",
        release_key=SECRET,
        name="n",
    )
    users = USERS if user else None
    hg.release_public(users, KEYS, LISTED, PARAMS, path=tmp_path / "library", release_key=SECRET, name="n")
    assert files(tmp_path / "job") == files(tmp_path / "library")
    assert made.exact["rows"] == 2000
    table = made.sketch().heavy()
    assert sorted(table.column("key").to_pylist()) == sorted(LISTED)


def load(folder: Path, *overrides: str) -> Job[Any]:
    file = folder / "c.yaml"
    file.write_text(
        f"release: r\ninput: {{path: {folder}/a.parquet, user: user, key: key}}\n"
        "privacy: {epsilon: 1, max_contributions: 4, domain: {public_keys: " + f"{folder}/list.txt}}}}\n"
        f"output: {{path: {folder}/out.sketch}}\n"
    )
    return load_job("release", file, overrides)


def test_from_a_config(tmp_path: Path, plan: InputPlan, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "list.txt").write_bytes(b"k5\r\nabsent\n\nk0\n")
    run_job(load(tmp_path))
    words = " ".join(capsys.readouterr().out.split())
    assert "public keys 3, each with Laplace noise of scale 4" in words
    assert "no count is off by more than" in words
    sketch = hg.Sketch.open(tmp_path / "out.sketch")
    assert sketch.plan.selection.name == "public"
    sketch.verify()


def test_gaussian_noise_from_a_config(
    tmp_path: Path, plan: InputPlan, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "list.txt").write_bytes(b"k5\nabsent\nk0\n")
    run_job(load(tmp_path, "privacy.delta=1e-6", "privacy.max_contributions=40"))
    words = " ".join(capsys.readouterr().out.split())
    assert "public keys 3, each with Gaussian noise of scale 26." in words
    sketch = hg.Sketch.open(tmp_path / "out.sketch")
    assert sketch.guarantee.delta == load(tmp_path, "privacy.delta=1e-6").config.privacy.delta


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be opened: No such file"),
        (b"\n\n", "has no keys; write one key per line"),
        (b"a\nb\na\n", "lists 'a' twice; list each key once"),
    ],
)
def test_lists_that_are_none(tmp_path: Path, plan: InputPlan, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "list.txt").write_bytes(content)
    with pytest.raises(InputError, match=r"privacy\.domain\.public_keys .*list\.txt: ") as caught:
        load(tmp_path)
    assert message in str(caught.value)
    assert not (tmp_path / "out.sketch").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("privacy.bits_per_key=4", "privacy.bits_per_key has no effect with public keys; leave it out"),
        ("sizes={records: 5, keys: 5}", "sizes have no effect with public keys"),
        ("privacy.domain.public_key=x", "did you mean public_keys?"),
    ],
)
def test_fields_that_do_not_go_together(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, override)
    assert message in str(caught.value)
