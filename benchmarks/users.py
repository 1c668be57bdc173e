"""Keys selected and error against the counts before bounding, beside other ways to select keys: `python -m
benchmarks.users`.

ε = 1, δ = 10⁻⁶; a count is the number of distinct users of a key; figures are means of five releases. Three data sets:

* **heavy-tailed**: 500,000 rows of 40,000 users with Pareto(1.2) activity over 100,000 URLs by Zipf(1.05);
* **one key per user**: the URLs of the same rows, each with a user of its own;
* **Debian**: packages as users, and the packages that they depend on, recommend or suggest as keys, as `apt-cache
  dumpavail` lists them after `apt-get update`: real, about 58,000 users and 51,000 keys, six keys per user and some
  hundreds for some. It is left out where there is no apt, and its size follows the suite that apt is set to.

Peers only name keys: they get all of (ε, δ) for that, and the bound on keys per user that selects the most keys
(`benchmarks.key_selection_peers` says how each is calibrated; PipelineDP 0.3.1 runs in an environment of its own). Ours
releases counts of the named keys, buckets of all others and sizes from the same ε. PipelineDP's figures are expected
numbers, from its own probability to keep a key. With C = 1 keys are named by a threshold with truncated geometric
noise. No (ε, δ)-DP method names more keys than that with all of ε (Desfontaines, Voss, Gipson, Mandayam 2022); ours
has 99 % of it where sizes are stated. So expected numbers are compared there.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import hushgram as hg
from benchmarks.bars import Report
from benchmarks.key_selection_peers import (
    Pairs,
    count_threshold,
    dp_sips,
    opendp_threshold,
    tumult_threshold,
    weighted_gaussian,
)
from benchmarks.pipeline import DATA, measure, peer_python
from hushgram.sparse_histogram.plan import make_plan
from hushgram.sparse_histogram.sizing import Sizes

ROWS, USERS, URLS = 500_000, 40_000, 100_000
EPSILON, DELTA = 1.0, 1e-6
FIXED = (50, 20, 100, 200)
RELEASES = 5
_BOUNDS = (1, 2, 4, 8, 12, 20)  # on keys per user, for thresholds on counts
_WEIGHTED_BOUNDS = (1, 20, 50, 100, 400)  # for selection by weights
_GROWTHS = (6, 12)  # of the budget from round to round of DP-SIPS, beside 3

PIPELINE_DP = """
import json, logging, sys
import numpy as np, pipeline_dp, pyarrow.parquet as pq
from pipeline_dp.partition_selection import create_partition_selection_strategy
logging.disable(logging.CRITICAL)
table = pq.read_table(sys.argv[1])
user, key = table["user"].to_numpy(), table["key"].to_numpy()
rng, found = np.random.default_rng(1), {}
for bound in json.loads(sys.argv[2]):
    order = np.lexsort((rng.random(len(user)), user))
    starts = np.flatnonzero(np.append(True, np.diff(user[order]) != 0))
    rank = np.arange(len(user)) - np.repeat(starts, np.diff(np.append(starts, len(user))))
    counts, keys = np.unique(np.bincount(key[order[rank < bound]]), return_counts=True)
    for strategy in list(pipeline_dp.PartitionSelectionStrategy)[:3]:
        chosen = create_partition_selection_strategy(strategy, 1, 1e-6, bound, None)
        kept = sum(many * chosen.probability_of_keep(int(count)) for count, many in zip(counts, keys) if count)
        found[strategy.name] = max(found.get(strategy.name, (0, 0)), (kept, bound))
if len(sys.argv) > 3:
    rows, strategy = list(zip(user.tolist(), key.tolist())), pipeline_dp.PartitionSelectionStrategy[sys.argv[3]]
    budget = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-6)
    engine = pipeline_dp.DPEngine(budget, pipeline_dp.LocalBackend())
    extract = pipeline_dp.DataExtractors(privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1], value_extractor=lambda row: 0)
    selected = engine.select_partitions(rows, pipeline_dp.SelectPartitionsParams(
        max_partitions_contributed=found[sys.argv[3]][1], partition_selection_strategy=strategy), extract)
    budget.compute_budgets()
    found["run"] = (len(list(selected)), found[sys.argv[3]][1])
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Users:
    """A data set: rows of users and keys, both numbers from 0 on."""

    name: str
    users: NDArray[np.int64]
    keys: NDArray[np.int64]
    one_key: bool = False

    @cached_property
    def pairs(self) -> Pairs:
        """Return the distinct pairs."""
        return Pairs.of(self.users, self.keys)

    @cached_property
    def truth(self) -> NDArray[np.int64]:
        """Return the distinct users of each key."""
        return self.pairs.counts()


@lru_cache
def records(seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return users and URLs of all rows of the heavy-tailed data."""
    rng = np.random.default_rng(seed)
    activity = rng.pareto(1.2, USERS) + 1
    share = 1 / np.arange(1, URLS + 1) ** 1.05
    return (
        rng.choice(USERS, ROWS, p=activity / activity.sum()),
        rng.choice(URLS, ROWS, p=share / share.sum()),
    )


def debian(fields: str) -> Users:
    """Return packages and what they depend on, recommend or suggest, from what `apt-cache dumpavail` prints.

    >>> found = debian("Package: a\\nDepends: b (>= 2), c:any | d\\n\\nPackage: d\\nSuggests: b\\n")
    >>> found.users.tolist(), found.keys.tolist()
    ([0, 0, 0, 1], [0, 1, 2, 0])
    """
    packages: list[str] = []
    needed: list[str] = []
    package = ""
    wanted = re.compile(r"(Package|Depends|Pre-Depends|Recommends|Suggests): (.*)")
    for line in fields.splitlines():
        found = wanted.match(line)
        if found is None:
            continue
        if found[1] == "Package":
            package = found[2]
            continue
        for each in re.split(r"[,|]", found[2]):
            packages.append(package)
            needed.append(each.split()[0].partition(":")[0])
    users, keys = (np.unique(column, return_inverse=True)[1] for column in (packages, needed))
    return Users("Debian", users.astype(np.int64), keys.astype(np.int64))


def data_sets() -> Iterable[Users]:
    """Yield the three data sets, the last one where apt is there."""
    users, urls = records()
    yield Users("heavy-tailed", users, urls)
    yield Users("one key per user", np.arange(ROWS), urls, one_key=True)
    if shutil.which("apt-cache"):
        listed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=False)
        if listed.stdout.count("\nPackage: ") > 10_000:
            yield debian(listed.stdout)


def listed(data: Users, **params: Any) -> tuple[float, float, str]:
    """Return keys selected and the RMSE of their counts, as means of five releases, and every C."""
    keys, rmse, bounds = [], [], []
    for seed in range(1, RELEASES + 1):
        asked = hg.ReleaseParams(epsilon=1, delta="1e-6", **params)
        sketch = hg.release(data.users, data.keys, asked, release_key=hg.ReleaseKey(bytes([seed]) * 32))
        found = sketch.heavy(all=True)
        error = found["value"].to_numpy() - data.truth[found["key"].cast(pa.int64()).to_numpy()]
        keys.append(len(error))
        rmse.append(float(np.sqrt(np.mean(error**2))))
        bounds.append(str(sketch.plan.params.max_contributions))
    return float(np.mean(keys)), float(np.mean(rmse)), ", ".join(bounds)


def heavy_tailed(report: Report, data: Users) -> None:
    """Measure the bars on heavy-tailed users: the defaults, how many keys are weighed, C from the data."""
    by_bound = {bound: listed(data, max_contributions=bound) for bound in FIXED}
    report.bar("defaults, C = 50: keys", by_bound[50][0], 330)
    report.bar("defaults, C = 50: RMSE", by_bound[50][1], 70, at_most=True)
    named = [by_bound[50][0]]
    for most in (20, 400):
        named.append(listed(data, max_contributions=50, selection=hg.Weights(max_keys=most))[0])
        report.note(f"max_keys {most}, C = 50: keys", f"{named[-1]:.0f}")
    varies = 100 * (max(named) - min(named)) / named[0]
    report.bar("max_keys from 20 to 400: keys vary by", varies, 5, at_most=True, unit="%")
    for bound in FIXED[1:]:
        keys, rmse, _ = by_bound[bound]
        report.note(f"defaults, C = {bound}: keys, RMSE", f"{keys:.0f} / {rmse:.0f}")
    keys, rmse, bounds = listed(data, max_contributions="auto")
    report.note(f"defaults, C = auto: keys, RMSE (C = {bounds})", f"{keys:.0f} / {rmse:.0f}")
    best = min((other[1] for other in by_bound.values() if other[0] >= 0.95 * keys), default=rmse)
    report.bar("auto: times the RMSE of the best C with as many keys", rmse / best, 1.25, at_most=True)
    for bound in (1, 8):
        keys, rmse, _ = listed(data, max_contributions=bound, selection=hg.Threshold())
        report.note(f"threshold, C = {bound}: keys, RMSE", f"{keys:.0f} / {rmse:.0f}")


def one_key_per_user(report: Report, data: Users) -> None:
    """Compare the defaults where users have one key with stated sizes, and with selection by weights."""
    ways: dict[str, dict[str, Any]] = {
        "defaults": {},
        "with sizes stated": {"sizes": sizes_of(data)},
        "selection by weights": {"selection": hg.Weights(max_keys=1)},
    }
    for name, params in ways.items():
        keys, rmse, _ = listed(data, max_contributions=1, **params)
        report.note(f"{name}: keys, RMSE", f"{keys:.0f} / {rmse:.1f}")


def debian_packages(report: Report, data: Users) -> None:
    """Measure the defaults on Debian's packages."""
    for bound in (20, 50):
        keys, rmse, _ = listed(data, max_contributions=bound)
        report.note(f"defaults, C = {bound}: keys, RMSE", f"{keys:.0f} / {rmse:.0f}")
    keys, rmse, _ = listed(data, max_contributions=20, selection=hg.Threshold())
    report.note("threshold, C = 20: keys, RMSE", f"{keys:.0f} / {rmse:.0f}")


def naming(data: Users) -> float:
    """Return how many keys are named."""
    if data.one_key:
        return listed(data, max_contributions=1, sizes=sizes_of(data))[0]
    return listed(data, max_contributions=50)[0]


def sizes_of(data: Users) -> tuple[int, int]:
    """Return the numbers of records and keys."""
    return len(data.users), int(np.count_nonzero(data.truth))


def expected(data: Users) -> float:
    """Return how many keys are expected to be named where users have one key, by the noise of the release."""
    stated = hg.ReleaseParams(epsilon=1, delta="1e-6", max_contributions=1, sizes=sizes_of(data))
    plan = make_plan(stated.resolve(), Sizes(*sizes_of(data), (), Fraction(0)))
    law, present = plan.noise.law(float(plan.scale)), data.truth[data.truth > 0]
    return float(law.tail((plan.heavy_from - present).astype(np.float64)).sum())


def best_of(work: Callable[[int, np.random.Generator], int], bounds: Iterable[int]) -> tuple[float, int]:
    """Return the mean number of keys of five releases with the bound that selects the most, and that bound."""
    rng = np.random.default_rng(1)
    tried = ((float(np.mean([work(bound, rng) for _ in range(RELEASES)])), bound) for bound in bounds)
    return max(tried)


def peers(data: Users) -> Iterable[tuple[str, float, int]]:
    """Yield each peer's name, the keys that it names at its best bound on keys per user, and that bound."""
    pairs = data.pairs
    counted = (1,) if data.one_key else _BOUNDS
    weighed = (1,) if data.one_key else _WEIGHTED_BOUNDS
    for name, select in (
        ("weighted Gaussian, one round", weighted_gaussian),
        ("DP-SIPS, budgets growing by 3", dp_sips),
        *((f"DP-SIPS, budgets growing by {growth}", partial(dp_sips, growth=growth)) for growth in _GROWTHS),
    ):
        yield name, *best_of(lambda most, rng, f=select: f(pairs, most, EPSILON, DELTA, rng), weighed)  # type: ignore[misc]

    def with_threshold(name: str, calibrate: Callable[[int], tuple[float, float]]) -> tuple[float, int]:
        def select(bound: int, rng: np.random.Generator) -> int:
            scale, threshold = calibrate(bound)
            return count_threshold(pairs, bound, (name, scale), threshold, rng)

        return best_of(select, counted)

    for noise in ("laplace", "gaussian"):
        found = with_threshold(noise, lambda bound, n=noise: opendp_threshold(n, bound, EPSILON, DELTA))  # type: ignore[misc]
        yield f"OpenDP, {noise.capitalize()} threshold", *found
    found = with_threshold("geometric", lambda bound: tumult_threshold(bound, EPSILON, DELTA))
    yield "Tumult, geometric threshold", *found
    yield from pipeline_dp(data, counted)


def pipeline_dp(data: Users, bounds: Iterable[int]) -> Iterable[tuple[str, float, int]]:
    """Yield what PipelineDP's strategies select, by their own probability to keep a key, and one whole run."""
    python = peer_python()
    if python is None:
        return
    DATA.mkdir(parents=True, exist_ok=True)
    whole = () if data.one_key or data.name == "Debian" else ("GAUSSIAN_THRESHOLDING",)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pairs.parquet")
        pq.write_table(pa.table({"user": data.pairs.users, "key": data.pairs.keys}), path)
        found: dict[str, Any] = measure(PIPELINE_DP, path, list(bounds), *whole, python=python)
    for name, (keys, bound) in found.items():
        words = "the same, one run of select_partitions" if name == "run" else name.lower().replace("_", " ")
        yield f"PipelineDP, {words}", keys, bound


def main() -> int:
    """Run every data set: ours, then its peers."""
    own = {
        "heavy-tailed": heavy_tailed,
        "one key per user": one_key_per_user,
        "Debian": debian_packages,
    }
    missed = 0
    for data in data_sets():
        report = Report(f"Users: {data.name}")
        report.note(
            "pairs of user and key; users; keys",
            f"{len(data.pairs.users):,}; {len(np.unique(data.users)):,}; {np.count_nonzero(data.truth):,}",
        )
        own[data.name](report, data)
        missed += report.missed + compare(data)
    return int(missed > 0)


def compare(data: Users) -> int:
    """Note the keys that ours names, and each peer with all of ε on it; return how many bars were missed."""
    report = Report(f"Keys named, and by peers with all of ε on it: {data.name}")
    ours, most = naming(data), 0.0
    report.note("hushgram", f"{ours:.0f}")
    if data.one_key:
        ours = expected(data)
        report.note("hushgram, expected", f"{ours:.1f}")
    for name, keys, bound in peers(data):
        report.note(f"{name} (at most {bound} per user)", f"{keys:.1f}" if data.one_key else f"{keys:.0f}")
        most = max(most, keys)
    what = f"{data.name}: times the keys of the best peer"
    if data.one_key:  # where all are for the same: optimal ones are equal
        report.bar(what, round(ours / most, 9), 1)
    else:
        report.note(what, f"{ours / most:.3f}")
    return report.missed


if __name__ == "__main__":
    sys.exit(main())
