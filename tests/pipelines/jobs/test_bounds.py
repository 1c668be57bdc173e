"""`hushgram bounds`: the library's numbers from files, charged once, and advice that a release takes."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from hushgram.accounting import Budget
from hushgram.errors import BudgetExceeded, HushgramError
from hushgram.ledger import Ledger, summarise
from hushgram.mechanisms.user_quantiles import quantiles_of_users
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.cli import cli
from hushgram.pipelines.config.document import ConfigError
from hushgram.pipelines.run.job_runner import load_job, run_stages

KEY = ReleaseKey(bytes(range(32)))
CONFIG = """\
release: urls
input: {path: in/*.parquet, user: user, key: url}
privacy: {epsilon: 1.0}
output: {path: out/urls.sketch}
"""
LEDGER = "dataset: people\nledger: sqlite:///ledger.db\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUSHGRAM_LEDGER", raising=False)
    rng = np.random.default_rng(2)
    table = pa.table(
        {
            "user": rng.integers(0, 900, 6000),
            "url": [f"/{i}" for i in rng.zipf(1.4, 6000) % 300],
            "amount": rng.lognormal(2, 1, 6000),
        }
    )
    (tmp_path / "in").mkdir()
    for part in range(2):
        pq.write_table(table.slice(3000 * part, 3000), tmp_path / f"in/{part}.parquet")
    (tmp_path / "urls.yaml").write_text(CONFIG)
    return table


def call(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, ["bounds", "urls.yaml", *arguments])
    if result.exception is not None and not isinstance(result.exception, HushgramError | SystemExit):
        raise result.exception
    return result


@pytest.mark.parametrize(
    "options", [(), ("privacy.max_contributions=3", "shards=5"), ("input.value=amount",)]
)
def test_job_and_library_release_the_same_numbers(home: pa.Table, options: tuple[str, ...]) -> None:
    job = load_job("bounds", "urls.yaml", ["privacy.epsilon=2", *options])
    run_stages(job, path="out.json", release_key=KEY)
    values = home["amount"] if job.params.summed else None
    library = quantiles_of_users(home["user"], home["url"], job.params, values=values, release_key=KEY)
    written = Path("out.json").read_text()
    assert json.loads(written)["result"] == library.to_dict()
    if not options:  # other bytes than before only where the mechanism changes
        assert sha256(written.encode()).hexdigest()[:16] == "e86a943c67415742"


def test_public_keys_are_all_that_counts(home: pa.Table) -> None:
    Path("keys.txt").write_text("/1\n/2\n")
    job = load_job("bounds", "urls.yaml", ["privacy.domain={public_keys: keys.txt}", "privacy.epsilon=1000"])
    run_stages(job, path="out.json", release_key=KEY)
    listed = home.filter(pa.compute.is_in(home["url"], pa.array(["/1", "/2"])))
    library = quantiles_of_users(listed["user"], listed["url"], job.params, release_key=KEY)
    assert json.loads(Path("out.json").read_text())["result"] == library.to_dict()


def test_it_is_charged_once_and_stopped_by_the_budget(home: pa.Table) -> None:
    Path("urls.yaml").write_text(LEDGER + CONFIG)
    with Ledger.create("sqlite:///ledger.db") as ledger:
        ledger.add_dataset("people", Budget("0.3"))
    for _ in range(2):
        assert call("--epsilon", "0.2", "--quiet").exit_code == 0
    with Ledger("sqlite:///ledger.db") as ledger:
        row = ledger.history("people")[0]
        assert (row.job, row.name, row.status) == ("bounds", "urls-bounds", "committed")
        assert summarise(ledger, "people").spent_epsilon == "0.2"
    assert isinstance(
        call("--set", "release=b", "--set", "output.path=b.sketch", "--epsilon", "0.2").exception,
        BudgetExceeded,
    )
    assert not Path("b.bounds.json").exists()


def test_what_it_says(home: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("key").write_text(KEY.hex())
    monkeypatch.setenv("HUSHGRAM_RELEASE_KEY_FILE", "key")
    checked = call("--check")
    assert "All quantiles together are 0.05-differentially private" in " ".join(checked.output.split())
    assert "off by at most 884" in " ".join(checked.output.split())
    shown = call("--epsilon", "5")
    assert "privacy: {max_contributions: " in shown.output
    assert "max_per_key: " in shown.output
    assert "95% of users" in shown.output
    assert Path("out/urls.bounds.json").exists()
    rows = [
        json.loads(line)
        for line in call("--epsilon", "5", "--set", "output.path=b", "--format", "json").stdout.splitlines()
    ]
    assert len(rows) == 15
    assert {"figure", "quantile", "at_most", "low", "high", "suggests"} == set(rows[0])
    few = call("--set", "release=few", "--set", "output.path=few.sketch", "--epsilon", "0.001")
    assert "fewer than" in few.output
    assert "the noise hides so few users" in " ".join(few.output.split())


def test_bounds_of_the_config_have_no_effect_and_mistakes_show(home: pa.Table) -> None:
    with pytest.raises(ConfigError, match=r"input\.user is missing"):
        load_job("bounds", "urls.yaml", ["input.user=null"])
    with pytest.raises(ConfigError, match="max_contribution"):
        load_job("bounds", "urls.yaml", ["privacy.max_contribution=3"])
    stated = load_job("bounds", "urls.yaml", ["privacy.delta=1e-6", "input.value=amount"])
    assert stated.guarantee().delta == 0
    assert stated.config.output.path == "out/urls.bounds.json"
