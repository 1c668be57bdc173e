"""What to expect of a release before it runs: size on disk and error, from public numbers alone.

The error is measured, not guessed: a small made-up data set (Zipf counts, as many records to a key as
expected) goes through the very release that is planned, and the estimates are compared with its counts. It
holds no private data, so its noise needs no secret, and the same question always gets the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import hushgram
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.scratch import scratch_directory
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.plan import Plan, make_plan
from hushgram.sparse_histogram.sizing import Sizes

__all__ = ["Expectation", "expect", "plan_for"]

_KEYS = 10_000
_EXPONENT = 1.1
_NOT_SECRET = ReleaseKey(b"an expectation holds no secrets!")
_LISTED_BYTES = 5


@dataclass(frozen=True)
class Expectation:
    """Size and error of a release of about `records` records of `keys` keys."""

    records: int
    keys: int
    plan: Plan
    size: int
    #: (what, root mean square error, median width of a 95 % interval) for ranges of true counts
    errors: tuple[tuple[str, float, float], ...]

    def lines(self) -> Iterator[tuple[str, str]]:
        """(name, text) for ``--check``."""
        from hushgram.pipelines.progress import human_bytes

        texts = ", without the texts of heavy keys" if self.plan.kind.texts else ""
        bits = self.size * 8 / self.keys
        yield "if", f"{self.records:,} records of {self.keys:,} keys"
        yield "size", f"about {human_bytes(self.size)} ({bits:.1f} bits a key{texts})"
        yield (
            "heavy keys",
            f"from a noisy count of {self.plan.threshold:,} on; the others are answered from bits",
        )
        for what, error, width in self.errors:
            yield "error", f"{what}: root mean square {error:,.1f}, 95 % intervals about {width:,.0f} wide"


def plan_for(params: ReleaseParams, records: int, keys: int) -> Plan:
    """The plan if there are so many records and keys."""
    return make_plan(params, Sizes(records, keys, (), Fraction(0)))


def expect(params: ReleaseParams, records: int, keys: int) -> Expectation:
    """Size and error for `records` records of `keys` distinct keys."""
    plan = plan_for(params, records, keys)
    sample = min(keys, _KEYS)
    counts = _zipf(sample, max(records * sample // max(keys, 1), sample))
    names = np.arange(sample)
    with scratch_directory() as folder:
        scaled, path = _scaled(params, counts), Path(folder, "expected.sketch")
        sketch = hushgram.release_histogram(names, counts, scaled, path=path, release_key=_NOT_SECRET)
        found = sketch.estimate(names)
    listed = int((counts >= sketch.plan.threshold).sum()) * keys // sample
    return Expectation(
        records=records,
        keys=keys,
        plan=plan,
        size=plan.bits // 8 + _LISTED_BYTES * listed,
        errors=tuple(_errors(found, counts, sketch.plan.threshold)),
    )


def _scaled(params: ReleaseParams, counts: Any) -> ReleaseParams:
    """The parameters for the small data set; domain and false keys scale with its keys by default."""
    if params.expected_keys is None:
        return params
    return replace(params, expected_records=int(counts.sum()), expected_keys=len(counts))


def _zipf(keys: int, records: int) -> Any:
    """Counts of a Zipf law: each at least 1, `records` in all as nearly as that allows."""
    shares = np.arange(1, keys + 1) ** -_EXPONENT
    return np.maximum(1, np.round(records * shares / shares.sum())).astype(np.int64)


def _errors(found: Any, counts: Any, bound: int) -> Any:
    estimate, low, high = (found.column(name).to_numpy() for name in ("estimate", "low", "high"))
    middle = max(bound // 4, 2)
    ranges = (
        (f"count up to {middle}", counts <= middle),
        (f"{middle + 1} to {bound}", (counts > middle) & (counts <= bound)),
        (f"above {bound}", counts > bound),
    )
    for what, rows in ranges:
        if rows.any():
            error = float(np.sqrt(np.mean((estimate[rows] - counts[rows]) ** 2)))
            yield what, error, float(np.median(high[rows] - low[rows]))
