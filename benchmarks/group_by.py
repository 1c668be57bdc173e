"""A release beside the bounded group-by that people write for themselves: `python -m benchmarks.group_by`.

Each counts 10 M records by key with at most eight keys per user, from the same Parquet files; the peers without noise,
without a ledger and without a sketch. CPU seconds of each process (all of its threads) after its imports, the least of
some runs that take turns.

OpenDP's own group-by on Polars, which names keys above a threshold, is measured once, in an environment of its own
(.build/peers, made at the first run), because it needs another Polars. Of each user it keeps the first keys in
alphabetical order: its way to sample them fails in 0.16.0 where keys are one column ("multiple fields with name").

    python -m benchmarks.group_by --quick     # 1 M rows
"""

from __future__ import annotations

import sys

from benchmarks.bars import Report
from benchmarks.pipeline import DATA, least, make_data, measure, peer_python, release

_MEASURED = """
import json, resource, sys, time
{imports}
cpu, began = time.process_time(), time.time()
{work}
print(json.dumps({{"cpu": time.process_time() - cpu, "seconds": time.time() - began,
                   "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}}))
"""
_DUCKDB = """
query = "CREATE TEMP TABLE counts AS SELECT key, count(*) FROM {keys} GROUP BY key"
duckdb.connect().execute(query, [sys.argv[1]]).fetchall()
"""
_PAIRS = "SELECT DISTINCT user_id, hash(url) AS key FROM read_parquet(?)"
_RANKED = f"SELECT key, row_number() OVER (PARTITION BY user_id ORDER BY hash(user_id, key)) AS rank FROM ({_PAIRS})"
_ANY = "SELECT unnest(list_distinct(list(hash(url)))[1:8]) AS key FROM read_parquet(?) GROUP BY user_id"
_KEYS = {
    "DuckDB, same rule": f"({_RANKED}) WHERE rank <= 8",
    "DuckDB, any eight": f"({_ANY})",
}
_POLARS = """
frame = polars.scan_parquet(sys.argv[1]).unique(["user_id", "url"])
rank = polars.col("url").hash().rank("ordinal").over("user_id")
frame.filter(rank <= 8).group_by("url").len().collect()
"""
_OPENDP = """
context = dp.Context.compositor(
    data=polars.scan_parquet(sys.argv[1]), privacy_unit=dp.unit_of(contributions=1, identifier="user_id"),
    privacy_loss=dp.loss_of(epsilon=1.0, delta=1e-6), split_evenly_over=1)
bounded = context.query().truncate_num_groups(8, by=["url"], keep="first").truncate_per_group(1, by=["url"])
bounded.group_by("url").agg(dp.len()).release().collect()
"""
OPENDP = "OpenDP on Polars, threshold"
_OPENDP_IMPORTS = "import opendp.prelude as dp, polars\ndp.enable_features('contrib')"
PEERS = {
    name: _MEASURED.format(imports="import duckdb", work=_DUCKDB.format(keys=keys))
    for name, keys in _KEYS.items()
} | {"Polars": _MEASURED.format(imports="import polars", work=_POLARS)}
_FINGERPRINTS, _TEXTS, _WEIGHTS = (
    "release, δ=0",
    "release, threshold",
    "release, weights",
)
OURS: dict[str, tuple[str, dict[str, str]]] = {
    _FINGERPRINTS: ("0", {}),
    _TEXTS: ("1e-6", {"selection": "threshold"}),
    _WEIGHTS: ("1e-6", {}),
}


def main(quick: bool) -> int:
    """All bars; with ``quick`` on a million rows."""
    report = Report("A release beside bounded group-bys")
    DATA.mkdir(parents=True, exist_ok=True)
    folder, tries = make_data(1_000_000 if quick else 10_000_000), 1 if quick else 3
    runs: dict[str, list[dict[str, float]]] = {}
    for _ in range(tries):
        for name, (delta, more) in OURS.items():
            runs.setdefault(name, []).append(release(folder, delta, **more))
        for name, script in PEERS.items():
            runs.setdefault(name, []).append(measure(script, f"{folder}/*.parquet"))
    best = {name: least(*found) for name, found in runs.items()}
    python = peer_python("opendp-polars", "opendp[polars]==0.16.0")
    if python is None:
        report.note("OpenDP on Polars cannot be installed here: not measured")
    else:
        script = _MEASURED.format(imports=_OPENDP_IMPORTS, work=_OPENDP)
        best[OPENDP] = measure(script, f"{folder}/*.parquet", python=python)
    for name, figures in best.items():
        report.note(f"{name} (CPU s, GiB)", f"{figures['cpu']:.2f}, {figures['memory']:.2f}")
    same, cheapest, polars = PEERS
    for ours, theirs, bar in (
        (_FINGERPRINTS, same, 0.65),
        (_FINGERPRINTS, cheapest, 1.3),
        (_FINGERPRINTS, polars, 0.9),
        (_TEXTS, polars, 1.2),
        (_WEIGHTS, _TEXTS, 1.35),
    ):
        report.bar(f"CPU s: {ours} over {theirs}", best[ours]["cpu"] / best[theirs]["cpu"], bar, at_most=True)
    for ours, bar in ((_FINGERPRINTS, 0.55), (_TEXTS, 0.75), (_WEIGHTS, 0.75)):
        report.bar(f"peak memory: {ours}", best[ours]["memory"], bar, at_most=True, unit="GiB")
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main("--quick" in sys.argv[1:]))
