"""Compare settings of a release before it runs, and recommend one: what `hushgram plan` shows, for Python.

    found = plan(records=5_000_000, keys=400_000, users=100_000)
    found.params, found.why, found.to_pandas()

No data are read, and nothing is charged.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa

from hushgram.errors import ParameterError
from hushgram.numbers import Number, rational, show
from hushgram.planner import (
    Effort,
    NamedKeys,
    Population,
    Prediction,
    average,
    bound_of,
    is_simulated,
    predict,
    recommend,
    settings,
)
from hushgram.sketch.reader import Sketch
from hushgram.sketch.results import Tabular
from hushgram.sparse_histogram.params import ReleaseParams

__all__ = ["Recommendation", "choices", "plan", "plan_settings", "rows_of"]

# What is recommended is tried on more releases, of more keys (the fewer, the worse the fit that they have in common),
# and totals on more sets of them.
_RELEASES, _EFFORT = 6, Effort(keys=200_000, lookups=4_000, sets=120)
_FEW = 12  # settings
# The values of C to try where users are known: with keys by name, more keys per user cost less.
_CONTRIBUTIONS, _CONTRIBUTIONS_NAMED = (1, 10, 100), (10, 30, 100)


@dataclass(frozen=True)
class Recommendation(Tabular):
    """Settings with what is predicted of each, and the recommended one.

    Attributes:
        population: what was assumed of the data.
        predictions: one per setting.
        best: the prediction of the recommended setting.
        why: why it is recommended.
    """

    population: Population
    predictions: tuple[Prediction, ...]
    best: Prediction
    why: str

    @property
    def params(self) -> ReleaseParams:
        """Return the recommended parameters, for `release`."""
        return self.best.params

    @property
    def table(self) -> pa.Table:
        """Return a row per setting, with the columns that `hushgram plan --format json` has."""
        return pa.Table.from_pylist(rows_of(self.predictions))

    def __repr__(self) -> str:
        return f"Recommendation({self.why!r}, {len(self.predictions)} settings)"

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.why)}</p>{super()._repr_html_()}"


def plan(
    params: ReleaseParams | None = None,
    *,
    records: int | None = None,
    keys: int | None = None,
    users: int | None = None,
    like: Sketch | str | Path | None = None,
    epsilon: Number | Sequence[Number] = (),
    delta: Number = 0,
    max_contributions: int | Sequence[int] = (),
    careful: bool = False,
) -> Recommendation:
    """Predict size and error of a release for every ε and C, and recommend one. Reads no data.

    Args:
        params: parameters to start from; by default ε = 1.
        records: how many records are expected.
        keys: how many different keys are expected.
        users: how many users are expected; errors then include the records that contribution bounding drops.
        like: an earlier release, in place of records and keys; it also tells the shape of the data.
        epsilon: one ε or several; by default that of ``params``.
        delta: δ, where ``params`` are left out.
        max_contributions: one C or several; by default that of ``params``, or a few usual ones where users are known.
        careful: predict the recommended setting again, from more releases of more keys: slower, steadier.

    Returns:
        The predictions, with ``params`` to release with.

    >>> found = plan(records=20_000, keys=1_000, max_contributions=4, delta="1e-6")
    >>> found.params.max_contributions, found.table.column_names[:3]
    (4, ['epsilon', 'max_contributions', 'bytes'])
    """
    for name, size in (("records", records), ("keys", keys), ("users", users)):
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ParameterError(f"plan: {name} must be a whole number from 1, got {size!r}")
    if like is not None:
        population = Population.like(like if isinstance(like, Sketch) else Sketch.open(like), users)
    elif records is not None and keys is not None:
        population = Population.zipf(keys, records, users)
    else:
        raise ParameterError("plan: state records and keys, or like=SKETCH, an earlier release")
    tried = choices(params, _several(epsilon), delta, _several(max_contributions), users=users is not None)
    # In one process: a second one would run the caller's script again.
    found, best, why = plan_settings(tried, population, careful=careful, processes=1)
    return Recommendation(population, tuple(found), best, why)


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def choices(
    base: ReleaseParams | None,
    epsilons: Sequence[Number],
    delta: Number,
    contributions: Sequence[int],
    *,
    users: bool,
) -> list[ReleaseParams]:
    """Return the settings to try: all of ε and C that are stated, else those of ``base``, else usual ones."""
    tried = [rational(each, "epsilon", "plan") for each in epsilons]
    tried = tried or [base.epsilon if base else Fraction(1)]
    most: Sequence[int | str] = contributions
    if not most:
        usual = _CONTRIBUTIONS_NAMED if rational(delta, "delta", "plan") else _CONTRIBUTIONS
        most = (bound_of(base),) if base else usual if users else (8,)
    base = base or ReleaseParams(epsilon=tried[0], delta=delta, max_contributions=most[0])
    return settings(base, most, tried)


def plan_settings(
    tried: Sequence[ReleaseParams],
    population: Population,
    *,
    careful: bool = True,
    processes: int | None = None,
) -> tuple[list[Prediction], Prediction, str]:
    """Return a prediction of each setting, the recommended one, and why.

    Where `careful`, the recommended setting is predicted again, from more releases of more keys. ``processes`` is 1
    where no other process may be started; without an effect on the result.
    """
    if not any(map(is_simulated, tried)):
        found = [predict(params, population) for params in tried]
        return found, *recommend(found)
    workers = min(processes or os.cpu_count() or 1, _RELEASES)
    if workers == 1 or (not careful and len(tried) <= _FEW):  # a second process takes as long to start
        return _planned(tried, population, map, careful)
    try:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            return _planned(tried, population, pool.map, careful)
    except (OSError, BrokenProcessPool):  # no second process can be had here: slower, and the same
        return _planned(tried, population, map, careful)


def _planned(
    tried: Sequence[ReleaseParams],
    population: Population,
    run: Callable[..., Iterator[Prediction]],
    careful: bool,
) -> tuple[list[Prediction], Prediction, str]:
    found = list(run(partial(predict, population=population), tried))
    best, why = recommend(found)
    if not careful:
        return found, best, why
    again = partial(_carefully, best.params, population)
    sharp = average([*run(again, range(_RELEASES))])
    return [sharp if one is best else one for one in found], sharp, why


def _carefully(params: ReleaseParams, population: Population, number: int) -> Prediction:
    return predict(params, population, number=number, effort=replace(_EFFORT, intervals=number == 0))


def rows_of(found: Sequence[Prediction]) -> list[dict[str, Any]]:
    """Return one row per setting, the same for table, CSV and page."""
    out = []
    for one in found:
        params = one.params
        row: dict[str, Any] = {
            "epsilon": show(params.epsilon),
            "max_contributions": bound_of(params),
            "bytes": one.size,
            "kept": round(one.kept, 3),
        }
        row |= {f"error_at_{a.count}": round(a.error, 1) for a in one.at}
        row |= {f"width_at_{a.count}": round(a.width, 1) for a in one.at}
        row |= {f"total_error_{t.keys}": round(t.error, 4) for t in one.totals}
        row |= {f"total_width_{t.keys}": round(t.width, 4) for t in one.totals}
        row |= {
            "detection_limit": one.detection_limit,
            "keys_above_limit": one.keys_above_limit,
            "heavy_from": one.threshold,
            "false_heavy": round(one.false_keys, 1),
            "missed_heavy": round(one.missed_keys, 1),
            "score": round(one.score, 3),
        }
        if any(each.named is not None for each in found):
            row |= _named_columns(one.named)
        out.append(row)
    return out


def _named_columns(named: NamedKeys | None) -> dict[str, Any]:
    """Return what is predicted of named keys; empty columns where the release was simulated instead."""
    if named is None:
        return dict.fromkeys(("rounds", "threshold_users", "named", "noise_scale", "most_named"))
    return {
        "rounds": named.rounds,
        "threshold_users": round(named.threshold, 1),
        "named": round(named.number),
        "noise_scale": round(named.noise, 1),
        "most_named": round(named.most),
    }
