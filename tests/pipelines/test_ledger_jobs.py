"""Every kind of job draws on the same ledger, is done once, and is refused when nothing is left."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from hushgram.contributions.users import UserPart
from hushgram.errors import BudgetExceeded, HushgramError, LedgerError
from hushgram.ledger import Ledger, summarise
from hushgram.pipelines.cli import cli
from hushgram.sketch import Sketch

URL = "sqlite:///ledger.db"
COMMON = f"dataset: people\nledger: {URL}\n"
JOBS = {
    "release": (
        ["release", "job.yaml"],
        "release: sketch\ninput: {path: data.parquet, user: user, key: url}\n"
        "privacy: {epsilon: 1, max_contributions: 2}\noutput: {path: out/urls.sketch}\nshards: 1\n",
    ),
    "sparse-vector": (
        ["sparse-vector", "job.yaml"],
        "sparse_vector: alerts\ninput: {path: data.parquet, user: user, key: url}\nstream: {path: queries.jsonl}\n"
        "svt: {mechanism: sparse, threshold: 20, cutoff: 1}\n"
        "privacy: {epsilon: 1, max_contributions: 2}\noutput: {path: out/alerts.jsonl}\n",
    ),
    "clip": (
        ["clip", "job.yaml"],
        "clip: ages\ninput: {path: data.parquet, user: user, column: age}\n"
        "privacy: {epsilon: 1, max_contributions: 1}\noutput: {path: out/ages.json}\n",
    ),
    "answer": (
        ["answer", "job.yaml"],
        "answer: sums\ninput: {path: data.parquet, user: user, key: url}\ndomain: {keys: pages.txt}\n"
        "queries: [{id: home, keys: ['/0']}]\npmw: {max_updates: 2}\n"
        "privacy: {epsilon: 1, max_contributions: 2}\noutput: {path: out/answers}\n",
    ),
    "randomized-response": (
        ["randomized-response", "randomize", "job.yaml"],
        "randomized_response: survey\ninput: {path: data.parquet}\nsecrets: {smoker: {column: smokes}}\n"
        "privacy: {epsilon: 1}\noutput: {path: out/survey}\n",
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small data, and a ledger that fits four jobs of ε = 1 and no fifth."""
    monkeypatch.chdir(tmp_path)
    for name in ("HUSHGRAM_LEDGER", "HUSHGRAM_RELEASE_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    draws = np.random.default_rng(5)
    table = {
        "user": draws.integers(0, 100, 400),
        "url": [f"/{page}" for page in draws.integers(0, 9, 400)],
        "age": draws.integers(18, 90, 400),
        "smokes": draws.random(400) < 0.3,
    }
    pq.write_table(pa.table(table), tmp_path / "data.parquet")
    (tmp_path / "pages.txt").write_text("".join(f"/{page}\n" for page in range(9)))
    (tmp_path / "queries.jsonl").write_text(json.dumps({"id": "home", "key": "/0"}) + "\n")
    assert _call("ledger", "init", "--dataset", "people", "--epsilon", "4", "--ledger", URL) == 0
    return tmp_path


def _call(*arguments: str) -> int:
    result = CliRunner().invoke(cli, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code


def test_all_jobs_share_one_budget(folder: Path) -> None:
    assert _call("ledger", "init", "--dataset", "survey", "--epsilon", "1", "--ledger", URL) == 0
    for name, (command, config) in JOBS.items():
        bits = name == "randomized-response"  # another privacy unit, with a budget of its own
        if bits:
            (folder / "job.yaml").write_text(COMMON + config.replace("{epsilon: 1}", "{epsilon: 0.1}"))
            for more in ((), ("--check",)):
                with pytest.raises(
                    LedgerError, match="privacy unit is one user, and that of this release is one secret"
                ):
                    _call(*command, *more)
        (folder / "job.yaml").write_text((COMMON.replace("people", "survey") if bits else COMMON) + config)
        assert _call(*command) == 0
        before = {path: path.read_bytes() for path in (folder / "out").rglob("*") if path.is_file()}
        assert _call(*command) == 0  # verified, not made again
        assert before == {path: path.read_bytes() for path in (folder / "out").rglob("*") if path.is_file()}
    with Ledger(URL) as ledger:
        history = [*ledger.history("people"), *ledger.history("survey")]
        summary, survey = summarise(ledger, "people"), summarise(ledger, "survey")
    assert [(row.job, row.status, row.epsilon) for row in history] == [(job, "committed", 1) for job in JOBS]
    assert set(summary.kinds) >= {"sizing", "threshold", "svt", "laplace", "pmw"}
    assert (summary.spent_epsilon, summary.left_epsilon) == ("4", "0")
    assert (survey.relation, survey.spent_epsilon) == ("secret bit", "1")
    assert [path.name for path in (folder / "out").iterdir() if path.name.startswith(".")] == []
    for command, config in list(JOBS.values())[:4]:
        other = config.replace("out/", "more/").replace("privacy: {epsilon: 1", "privacy: {epsilon: 0.5")
        first, _, rest = other.partition("\n")
        (folder / "job.yaml").write_text(f"{COMMON}{first}-more\n{rest}")
        with pytest.raises(BudgetExceeded):
            _call(*command)
    assert not (folder / "more").exists()


def test_parts_of_the_users_are_read_apart_and_charged_apart(folder: Path) -> None:
    """Each user is counted in one part alone."""
    users = sorted(set(pq.read_table(folder / "data.parquet").column("user").to_pylist()))
    config = (
        "release: sketch-{part}\ninput: {{path: data.parquet, user: user, key: url}}\n"
        "privacy: {{epsilon: 100, max_contributions: 1, domain: {{public_keys: pages.txt}}}}\n"
        "user_partition: {{modulo: 3, part: {part}}}\noutput: {{path: out/{part}.sketch}}\nshards: 1\n"
    )
    assert _call("ledger", "init", "--dataset", "crowd", "--epsilon", "150", "--ledger", URL) == 0
    for part in range(3):
        (folder / "job.yaml").write_text(f"dataset: crowd\nledger: {URL}\n" + config.format(part=part))
        assert _call("release", "job.yaml") == 0
        released = sum(Sketch.open(folder / "out" / f"{part}.sketch").heavy().column("value").to_pylist())
        assert released == int(
            UserPart("crowd", 3, part).keep(users).sum()
        )  # at this ε noise is hardly ever drawn
    with Ledger(URL) as ledger:
        summary = summarise(ledger, "crowd")
    assert summary.spent_epsilon == "100"
    assert summary.parts == {f"part {part} of 3": "100" for part in range(3)}
    crowd = f"dataset: crowd\nledger: {URL}\n" + config.format(part=0)
    (folder / "job.yaml").write_text(crowd.replace("modulo: 3", "modulo: 2").replace("-0", "-x"))
    with pytest.raises(LedgerError, match="shares users with part 0 of 2"):
        _call("release", "job.yaml")
    folded = (
        crowd.replace("user: user,", 'user: "user | lower",').replace("-0", "-y").replace("out/0", "out/y")
    )
    (folder / "job.yaml").write_text(folded)
    for check in ((), ("--check",)):
        with pytest.raises(
            LedgerError, match=r"by input.user: user, which may share users with .*user \| lower"
        ):
            _call("release", "job.yaml", *check)
    assert not (folder / "out" / "y.sketch").exists()
    (folder / "job.yaml").write_text(crowd.replace("{modulo: 3, part: 0}", "eu"))
    with pytest.raises(HushgramError, match=r"user_partition must be a group of fields, got 'eu'"):
        _call("release", "job.yaml")
