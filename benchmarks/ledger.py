"""The ledger's bars: ``python -m benchmarks.ledger [KILLS]`` (default 20; the full storm has 200)."""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from benchmarks.bars import Report
from hushgram.accounting import Budget, Event, fits, further
from hushgram.ledger import Ledger, Owner, Request, summarise
from hushgram.ledger.store import totals
from hushgram.noise.gaussian import gaussian_scales
from hushgram.sensitivity import Sensitivity

__all__ = ["main"]


def main() -> None:
    """Prints each figure beside its bar."""
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    report = Report("The ledger")
    with tempfile.TemporaryDirectory() as folder:
        _composition(report)
        _show(report, Path(folder))
        _reserve(report, Path(folder))
        _storm(report, Path(folder), kills)
        _backfill(report, Path(folder))
    sys.exit(report.exit_code())


def _composition(report: Report) -> None:
    tenth = [Event("laplace", "0.1")]
    sums, best = further([], tenth, Budget(3, "1e-6", "basic")), further([], tenth, Budget(3, "1e-6", "best"))
    report.note("(0.1, 0) Laplace releases under (3, 1e-6) by sums", sums)
    report.note("by privacy loss distributions", best)
    small = [Event("laplace", "0.02")]
    report.note("(0.02, 0) Laplace releases by sums", further([], small, Budget(3, "1e-6", "basic")))
    report.note(
        "by the filter (the default, right for adaptive choices)", further([], small, Budget(3, "1e-6"))
    )
    report.bar("more by distributions than by sums", best / sums, 1.5, unit="times")
    _gaussian(report)


_BUDGET = Budget(3, "1e-6")
_ONE = Sensitivity(1, 1)


def _gaussian(report: Report) -> None:
    """Gaussian releases, charged as their (ε, δ) point (version 1) and by ρ (version 2)."""
    point = further([], [Event("gaussian", "0.1", "1e-9")], _BUDGET)
    report.note("(0.1, 1e-9) Gaussian releases under (3, 1e-6), charged by (ε, δ)", point)
    scale = _scale(Fraction(1, 10), Fraction(1, 10**9))
    rho = _ONE.l2_squared / (2 * scale * scale)
    event = Event.concentrated(
        "gaussian", Fraction(1, 10), Fraction(1, 10**9), rho=rho, rho_delta=Fraction(0)
    )
    report.bar("the same, charged by ρ", further([], [event], _BUDGET), 700)
    days, left = 365, _BUDGET.delta - _BUDGET.composition_delta
    by_point = _smallest_scale(lambda epsilon: [Event("gaussian", epsilon, left / days)] * days, left / days)
    by_rho = math.sqrt(days / (2 * _BUDGET.allowance))
    report.note("noise scale of each of 365 Gaussian releases, charged by (ε, δ)", by_point)
    report.note("charged by ρ", by_rho)
    report.bar("noise by (ε, δ) / noise by ρ", by_point / by_rho, 4, unit="times")


def _smallest_scale(events: Callable[[Fraction], list[Event]], delta: Fraction) -> float:
    """The noise scale at the largest ε, in steps of 1/10,000, with which all events fit."""
    most = next(n for n in range(10_000, 0, -1) if fits(events(Fraction(n, 10_000)), _BUDGET))
    return float(_scale(Fraction(most, 10_000), delta))


def _scale(epsilon: Fraction, delta: Fraction) -> Fraction:
    return gaussian_scales((1,), epsilon, delta, _ONE)[0]


def _show(report: Report, folder: Path) -> None:
    """`hushgram ledger show` as a new process, on 1,000 events of a hundred different ε."""
    url = f"sqlite:///{folder}/show.db"
    with Ledger.create(url) as ledger:
        ledger.add_dataset("views", Budget(100, "1e-6"))
        for day in range(250):
            events = [Event(kind, f"0.0{10 + (4 * day + n) % 100}") for n, kind in enumerate(_KINDS)]
            _commit(ledger, f"day-{day}", events)
        summarise(ledger, "views")
    seconds = min(_time_show(url) for _ in range(3))
    report.bar("show with 1,000 events, a new process (CPU)", seconds, 2, at_most=True, unit="s")
    worst = []
    for _ in range(2):
        with Ledger(url) as ledger, ledger.store.write() as connection:
            connection.execute(totals.delete())
        worst.append(_time_show(url))
    report.note("the same where the last run died before it stored its sum, s", min(worst))


_KINDS = ("sizing", "threshold", "alp", "svt")


def _time_show(url: str) -> float:
    """CPU seconds of one call: what other programs on the machine do does not count."""
    command = [sys.executable, "-c", "from hushgram.pipelines.cli import main; main()"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [*command, "ledger", "show", "views", "--ledger", url], check=True, stdout=subprocess.DEVNULL, cwd="/"
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _commit(ledger: Ledger, name: str, events: list[Event]) -> None:
    taken = ledger.reserve(Request("views", name, events), Owner.this())
    ledger.start(taken)
    ledger.prepare(taken, "d" * 64)
    ledger.commit(taken)


def _reserve(report: Report, folder: Path) -> None:
    with Ledger.create(f"sqlite:///{folder}/reserve.db") as ledger:
        ledger.add_dataset("views", Budget(10))
        started = time.monotonic()
        for number in range(50):
            _commit(ledger, f"r{number}", [Event("laplace", "0.01")])
        seconds = (time.monotonic() - started) / 50
    report.note("reserve, start, prepare and commit with fsync, s", seconds)


def _storm(report: Report, folder: Path, kills: int) -> None:
    faults = _faults(str(folder / "storm"), str(kills))
    report.bar(f"faults in {kills} releases killed with SIGKILL and rerun", faults, 0, at_most=True)


def _backfill(report: Report, folder: Path) -> None:
    faults = _faults(str(folder / "backfill"), "backfill", "30", "20")
    report.bar("faults in a backfill of 30 days that is killed 20 times", faults, 0, at_most=True)


def _faults(*arguments: str) -> int:
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-m", "tests.pipelines.storm", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    print("\n".join(f"    {line}" for line in done.stdout.splitlines()))
    return done.stdout.count("fault:") if done.stdout.count("bar (") else 1


if __name__ == "__main__":
    main()
