"""Error against the uncut truth, as a user of the release sees it: `python -m benchmarks.users`.

500,000 rows of 40,000 users with Pareto(1.2) activity over 100,000 URLs by Zipf(1.05); a count is the number of
distinct users of a URL. ε = 1, δ = 10^-6, buckets, Gaussian noise. What is listed is compared with the counts
before any cut, so that both the noise and the cut of heavy users show. PipelineDP stands beside it where it can be
installed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import hushgram as hg
from benchmarks.bars import Report
from benchmarks.pipeline import DATA, measure, peer_python

ROWS, USERS, URLS = 500_000, 40_000, 100_000
FIXED = (8, 20, 50, 100, 200, 400)
RELEASES = 3

PIPELINE_DP = """
import json, logging, sys
import numpy as np, pipeline_dp, pyarrow.parquet as pq
logging.disable(logging.CRITICAL)
table = pq.read_table(sys.argv[1])
rows = list(zip(table["user"].to_pylist(), table["url"].to_pylist()))
kind = getattr(pipeline_dp.NoiseKind, sys.argv[3])
budget = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-6)
engine = pipeline_dp.DPEngine(budget, pipeline_dp.LocalBackend())
params = pipeline_dp.AggregateParams(noise_kind=kind, metrics=[pipeline_dp.Metrics.PRIVACY_ID_COUNT],
    max_partitions_contributed=int(sys.argv[2]), max_contributions_per_partition=1)
extract = pipeline_dp.DataExtractors(privacy_id_extractor=lambda row: row[0],
    partition_extractor=lambda row: row[1], value_extractor=lambda row: 0)
counts = engine.aggregate(rows, params, extract)
budget.compute_budgets()
truth = dict(zip(*np.unique([key for _, key in set(rows)], return_counts=True)))
errors = [float(found.privacy_id_count) - float(truth.get(key, 0)) for key, found in counts]
print(json.dumps({"keys": len(errors), "rmse": float(np.sqrt(np.mean(np.square(errors))))}))
"""


def records(seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Users and URLs of all rows."""
    rng = np.random.default_rng(seed)
    activity = rng.pareto(1.2, USERS) + 1
    share = 1 / np.arange(1, URLS + 1) ** 1.05
    return (
        rng.choice(USERS, ROWS, p=activity / activity.sum()),
        rng.choice(URLS, ROWS, p=share / share.sum()),
    )


def listed(contributions: int | str, seed: int) -> tuple[float, float, int]:
    """Keys listed, RMSE of their values, and C."""
    users, urls = records()
    pairs = np.unique(users * URLS + urls)
    truth = np.bincount(pairs % URLS, minlength=URLS)
    params = hg.ReleaseParams(
        epsilon=1, delta="1e-6", max_contributions=contributions, encoding="buckets", noise="gaussian"
    )
    sketch = hg.release(users, urls, params, release_key=hg.ReleaseKey(bytes([seed]) * 32))
    found = sketch.heavy(all=True)
    keys = found["key"].cast(pa.int64()).to_numpy()
    error = found["value"].to_numpy() - truth[keys]
    return len(keys), float(np.sqrt(np.mean(error**2))), sketch.plan.params.max_contributions


def main() -> int:
    """Each C, then the one that is chosen from the data."""
    report = Report("Users of Pareto(1.2) activity, error against the uncut truth")
    by_bound = {}
    for bound in (*FIXED, "auto"):
        runs = [listed(bound, seed) for seed in range(1, RELEASES + 1)]
        keys, rmse = (float(np.mean([run[i] for run in runs])) for i in (0, 1))
        by_bound[bound] = keys, rmse
        chosen = f" (C = {', '.join(str(run[2]) for run in runs)})" if bound == "auto" else ""
        report.note(f"C = {bound}: keys listed, RMSE{chosen}", f"{keys:.0f} / {rmse:.0f}")
    report.bar("C = 100: keys listed", by_bound[100][0], 85)
    report.bar("C = 100: RMSE of those", by_bound[100][1], 130, at_most=True)
    keys, rmse = by_bound["auto"]
    best = min((error for count, error in (by_bound[c] for c in FIXED) if count >= 0.95 * keys), default=rmse)
    report.bar("auto: times the RMSE of the best C with as many keys", rmse / best, 1.25, at_most=True)
    beside(report)
    return report.exit_code()


def beside(report: Report) -> None:
    """PipelineDP on the same rows."""
    python = peer_python()
    if python is None:
        report.note("PipelineDP cannot be installed here: not measured")
        return
    DATA.mkdir(parents=True, exist_ok=True)
    users, urls = records()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.parquet")
        pq.write_table(pa.table({"user": users, "url": urls}), path)
        for bound in (8, 50, 100):
            found = measure(PIPELINE_DP, path, bound, "GAUSSIAN", python=python)
            report.note(
                f"PipelineDP, Gaussian, C = {bound}: keys listed, RMSE",
                f"{found['keys']:.0f} / {found['rmse']:.0f}",
            )


if __name__ == "__main__":
    sys.exit(main())
