"""Error against bits per key of four ways to release a sparse histogram: `python -m benchmarks.methods [--quick]`.

*Default* is what `ReleaseParams(epsilon, delta, max_contributions)` gives with nothing else stated, and is compared
with peers in the bytes that it takes, by mean squares over several release keys. (CountSketch and Count-Min are
released under the first of them alone.)

For curves, the methods are hushgram (posterior and unbiased), a threshold list alone, private CountSketch and private
Count-Min. All release the same counts at the same ε = 1, δ and bound C per user, in the same number of bytes. Hushgram
releases at some bits per key; its bytes on disk are counted, and every other method gets as many. (Key texts, which a
list shows at δ > 0, count as fingerprints: whoever asks knows the key.) The lookups are 50,000 keys of the data and
50,000 absent keys, with no assumption about either (`present` is not set). `benchmarks.peers` says what the peers get
for free. A method marked * also has a decoder that was trained on the true counts.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

import hushgram as hg
from benchmarks import peers
from benchmarks.bars import Report
from benchmarks.data import Counts, zipf
from hushgram.noise.entropy import ReleaseKey
from hushgram.release_in_memory import simulate

__all__ = ["DATA", "METHODS", "SETTINGS", "SPANS", "against_default", "beaten", "compare", "main"]

KEYS = 50_000
DATA: dict[str, Any] = {
    "Zipf 0.8": lambda: zipf(0.8, 1e6, KEYS),
    "Zipf 1.1": lambda: zipf(1.1, 1e6, KEYS),
    "Zipf 1.5": lambda: zipf(1.5, 1e6, KEYS),
    "log-normal": lambda: np.ceil(np.random.default_rng(21).lognormal(1.5, 1.4, KEYS)).astype(np.int64),
    "uniform 1 to 200": lambda: np.random.default_rng(22).integers(1, 201, KEYS),
    "two points, 5 and 200": lambda: np.where(np.random.default_rng(2).random(KEYS) < 0.5, 5, 200),
}
SETTINGS = (("0", 1), ("0", 8), ("1e-6", 8), ("1e-6", 32))  # δ and C of curves
DEFAULT_SETTINGS = tuple((delta, bound) for delta in ("0", "1e-6") for bound in (1, 8, 32))
RELEASES = 4  # release keys of the default: ranges have few keys, and one release decides by chance
BITS = (2, 4, 8, 16, 32)  # bits per key; the default is 8.8
DEFAULT = 8
CURVES = ("Zipf 1.1", "log-normal", "uniform 1 to 200")  # at all of BITS; the others at the default
SPANS = {
    "all keys": (1, 1 << 62),
    "absent": (0, 0),
    "1–10": (1, 10),
    "11–100": (11, 100),
    "101–1,000": (101, 1_000),
    "> 1,000": (1_001, 1 << 62),
}
TOTALS, SIZE = 20, 1_000
FEW = 30  # a range with fewer keys is not shown
OURS = ("hushgram", "hushgram, unbiased")
SUMS = OURS[:1]  # a total has a decoder of its own, the same for both estimates
PEERS = ("threshold alone", "CountSketch", "Count-Min")
METHODS = (*OURS, *PEERS, *(f"{name}*" for name in PEERS))
_MAKERS = dict(zip(PEERS, (peers.threshold_alone, peers.count_sketch, peers.count_min), strict=True))


def _names(word: str, number: int) -> pa.Array:
    return pa.array([f"https://{word}.example/{i}" for i in range(number)])


def _bits(sketch: hg.Sketch) -> float:
    """Of the sketch on disk; where a list has names, their fingerprints are counted instead."""
    if not sketch.plan.selection.texts:
        return 8.0 * sketch.size
    named = sum(entry.size for entry in sketch.manifest.files if entry.name.endswith(".parquet"))
    values = sketch.heavy(all=True)["value"].to_numpy() - sketch.plan.heavy_from
    return 8.0 * (sketch.size - named) + peers.list_bits(values, peers.named_domain(sketch.plan.keys))


def _errors(estimates: Any, truth: Counts) -> dict[str, float | None]:
    """RMSE by range of counts."""
    out: dict[str, float | None] = {}
    for name, (low, high) in SPANS.items():
        rows = (truth >= low) & (truth <= high)
        enough = np.count_nonzero(rows) >= FEW
        out[name] = float(np.sqrt(np.mean((estimates[rows] - truth[rows]) ** 2))) if enough else None
    return out


def _sets(counts: Counts) -> dict[str, list[Any]]:
    """Sets of 1,000 keys: of all, and of rare ones."""
    rng, rare = np.random.default_rng(4), np.flatnonzero(counts <= 10)
    out = {"any": [rng.choice(len(counts), SIZE, replace=False) for _ in range(TOTALS)]}
    if len(rare) >= 3 * SIZE:
        out["1–10"] = [rng.choice(rare, SIZE, replace=False) for _ in range(TOTALS)]
    return out


def _totals(counts: Counts, sets: dict[str, list[Any]], total: Any) -> dict[str, float]:
    """RMSE of totals over the mean of the true ones."""
    out = {}
    for name, chosen in sets.items():
        true = np.array([float(counts[rows].sum()) for rows in chosen])
        found = np.array([total(rows) for rows in chosen])
        out[name] = float(np.sqrt(np.mean((found - true) ** 2)) / true.mean())
    return out


def compare(case: tuple[str, str, int, int]) -> list[dict[str, Any]]:
    """All methods on one kind of data, at one δ, C and size."""
    data, delta, contributions, bits_per_key = case
    counts = DATA[data]()
    keys = len(counts)
    asked = pa.concat_arrays([_names("somebody", keys), _names("nobody", keys)])
    truth = np.append(counts, np.zeros(keys, np.int64))
    common = {"data": data, "delta": delta, "C": contributions, "asked_bits": bits_per_key}
    out: list[dict[str, Any]] = []

    sets = _sets(counts)

    def keep(method: str, estimates: Any, bits: float, how: str, total: Any = None) -> None:
        found = {"method": method, "bits": bits / keys, "how": how, "rmse": _errors(estimates, truth)}
        if total is not None:
            found["totals"] = _totals(counts, sets, total)
        out.append({**common, **found})

    params = hg.ReleaseParams(
        epsilon="1", delta=delta, max_contributions=contributions, bits_per_key=bits_per_key
    )
    key = ReleaseKey(bytes([bits_per_key] * 32))
    sketch = simulate(asked.slice(0, keys), counts, params, release_key=key)
    room = _bits(sketch)
    for method, estimator in zip(OURS, ("posterior", "unbiased"), strict=True):
        found = sketch.estimate(asked, estimator=estimator, interval=None)["estimate"].to_numpy()
        summed = (lambda rows: sketch.total(asked.take(pa.array(rows))).estimate) if method in SUMS else None
        keep(method, found, room, sketch.plan.noise.name, summed)
    budget = peers.SizeAndLoss(Fraction(1), Fraction(delta), contributions, room)
    for method, make in _MAKERS.items():
        answer = make(counts, 2 * keys, budget, key)
        if answer is not None:
            parts = answer.summands
            keep(
                method, answer.estimates, answer.bits, answer.how, lambda rows, p=parts: float(p[rows].sum())
            )
            keep(f"{method}*", peers.shrunk(answer.estimates, truth), answer.bits, answer.how)
    return out


def against_default(case: tuple[str, str, int, int]) -> list[dict[str, Any]]:
    """The default and its peers on one kind of data, at one δ and C, over so many release keys."""
    data, delta, contributions, releases = case
    counts = DATA[data]()
    keys = len(counts)
    asked = pa.concat_arrays([_names("somebody", keys), _names("nobody", keys)])
    truth = np.append(counts, np.zeros(keys, np.int64))
    params = hg.ReleaseParams(epsilon="1", delta=delta, max_contributions=contributions)
    found: dict[str, list[tuple[float, dict[str, float | None]]]] = {"default": []}
    for number in range(releases):
        key = ReleaseKey(bytes([100 + number] * 32))
        sketch = simulate(asked.slice(0, keys), counts, params, release_key=key)
        estimates = sketch.estimate(asked, estimator="posterior", interval=None)["estimate"].to_numpy()
        bits = _bits(sketch)
        found["default"].append((bits, _errors(estimates, truth)))
        budget = peers.SizeAndLoss(Fraction(1), Fraction(delta), contributions, bits)
        for method in PEERS[: None if number == 0 else 1]:
            answer = _MAKERS[method](counts, 2 * keys, budget, key)
            if answer is not None:
                found.setdefault(method, []).append((answer.bits, _errors(answer.estimates, truth)))
    common = {"data": data, "delta": delta, "C": contributions}
    return [
        {**common, "method": method, "bits": float(np.mean([bits for bits, _ in each])) / keys,
         "rmse": {span: _root([errors[span] for _, errors in each]) for span in SPANS}}
        for method, each in found.items()
    ]  # fmt: skip


def _root(errors: list[float | None]) -> float | None:
    """The root of the mean of squares; None where there is none."""
    known = [error for error in errors if error is not None]
    return float(np.sqrt(np.mean(np.square(known)))) if known else None


def beaten(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where a peer is better than the default by more than 5 %: one row of `against_default` for each."""
    cells: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in rows:
        for span, error in row["rmse"].items():
            if error is not None:
                cells.setdefault((row["delta"], row["C"], row["data"], span), {})[row["method"]] = error
    out = []
    for (delta, bound, data, span), errors in cells.items():
        ours = errors.pop("default")
        peer = min(errors, key=errors.__getitem__, default="")
        if peer and errors[peer] < 0.95 * ours:
            share = errors[peer] / max(ours, 1e-12)
            out.append({"delta": delta, "C": bound, "data": data, "span": span, "peer": peer, "share": share})
    return out


def main(quick: bool) -> int:
    """Every case, two at a time; all figures go to benchmarks/out/methods.json."""
    report = Report("Error against bits per key, by method")
    names = ("Zipf 1.1", "log-normal") if quick else tuple(DATA)
    cases = [
        (name, *setting, bits) for setting in SETTINGS for name in names for bits in BITS
        if bits == DEFAULT or (name in CURVES and not quick)
    ]  # fmt: skip
    defaults = [(name, *setting, 2 if quick else RELEASES) for setting in DEFAULT_SETTINGS for name in names]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        compared = [row for found in pool.imap(against_default, defaults) for row in found]
        rows = []
        for number, found in enumerate(pool.imap(compare, cases)):
            print(f"{number + 1} of {len(cases)}: {cases[number]}", flush=True)
            rows += found
    report.more("methods", rows)
    report.more("defaults", compared)
    for delta, bound in SETTINGS:
        for name in names:
            here = [
                row for row in rows
                if (row["delta"], row["C"], row["data"], row["asked_bits"]) == (delta, bound, name, DEFAULT)
            ]  # fmt: skip
            for row in here:
                shown = " ".join("–" if e is None else f"{e:,.1f}" for e in row["rmse"].values())
                report.note(
                    f"δ = {delta}, C = {bound}, {name}: {row['method']}", f"{row['bits']:.1f} bits: {shown}"
                )
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main("--quick" in sys.argv[1:]))
