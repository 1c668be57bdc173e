"""Backfill: one release per date from a first to a last one, with a preview of what it will cost.

    hushgram release configs/urls-daily.yaml --from 2026-11-01 --to 2026-11-30 --check     # preview
    hushgram release configs/urls-daily.yaml --from 2026-11-01 --to 2026-11-30

Every date is a release of its own: charged once, resumed where a run of it was interrupted, verified and left as it is
where it was committed. So a backfill that was stopped is started again with the same command. Nothing is charged unless
all dates have input and together fit the budget.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from hushgram.errors import BudgetExceeded, InputError, ParameterError
from hushgram.numbers import show
from hushgram.pipelines.config.models import resolve_date
from hushgram.pipelines.jobs.job import Job, Line
from hushgram.pipelines.run.job_runner import check_job, load_job, run_job
from hushgram.pipelines.terminal import print_line, print_lines

__all__ = ["backfill"]

_MOST_DATES = 3660


def backfill(
    name: str,
    config: str,
    overrides: Iterable[str],
    first: str | None,
    last: str | None,
    beam_options: Iterable[str] = (),
    *,
    check: bool = False,
    **how: Any,
) -> None:
    """Release every date from ``first`` to ``last`` that is not released yet; with ``check`` only say what that costs.

    Args:
        name: The job.
        config: Its config, with {date} in the release id.
        overrides: Fields that are set otherwise.
        first: The first date: YYYY-MM-DD, today or yesterday.
        last: The last date; by default yesterday.
        beam_options: Options of Beam.
        check: Whether to run nothing.
        how: Options of `run_job`.
    """
    if how.get("output") is not None:
        raise ParameterError("--output goes with one release; leave it out with --from and --to")
    dates = list(_dates(first, last))
    jobs = {str(date): load_job(name, config, overrides, str(date)) for date in dates}
    _check_ids(jobs)
    quiet = how.get("quiet") or how.get("style") != "table" or how.get("log") == "json"
    todo, lines = _preview(jobs)
    if check or not quiet:
        print_lines(lines, how.get("style", "table"))
    if check:
        if todo:  # all dates have one config: the first stands for all
            check_job(jobs[todo[0]], beam_options, style=how.get("style", "table"))
        return
    for number, date in enumerate(todo, 1):
        if not quiet:
            print_line(f"{date} ({number} of {len(todo)})", err=True)
        # read again: a release may carry the keys of the one before
        run_job(load_job(name, config, overrides, date), beam_options, **how)


def _dates(first: str | None, last: str | None) -> Iterator[datetime.date]:
    if first is None:
        raise ParameterError("--to needs --from, the first date")
    begin, end = resolve_date(first), resolve_date(last or "yesterday")
    assert begin is not None
    assert end is not None
    if not 0 <= (end - begin).days < _MOST_DATES:
        raise ParameterError(
            f"--from {begin} --to {end}: must be 1 to {_MOST_DATES} dates, the first one first"
        )
    for day in range((end - begin).days + 1):
        yield begin + datetime.timedelta(days=day)


def _check_ids(jobs: dict[str, Job[Any]]) -> None:
    """Refuse what would not be one tracked release per date."""
    some = next(iter(jobs.values()))
    if some.config.dataset is None:
        raise ParameterError(
            "--from and --to need a ledger, which knows the dates that are released: name a dataset in the config"
        )
    for what, texts in (
        ("the release id", [job.name for job in jobs.values()]),
        ("output.path", [job.config.output.path for job in jobs.values()]),
    ):
        if len(set(texts)) < len(texts):
            raise ParameterError(
                f"{what} must contain the date, such as urls-{{date}}: it is {texts[0]!r} twice"
            )


def _preview(jobs: dict[str, Job[Any]]) -> tuple[list[str], list[Line]]:
    """Return the dates that are not committed, and lines about all; raise unless they have input and fit the budget."""
    from hushgram.ledger import Ledger
    from hushgram.ledger.summary import brief, more_releases

    some = next(iter(jobs.values()))
    dataset, users = str(some.config.dataset), some.config.user_part
    with Ledger(some.config.ledger) as ledger:
        found = {date: ledger.find(dataset, job.name) for date, job in jobs.items()}
        states = {date: one.status if one and one.charged else "new" for date, one in found.items()}
        todo = [date for date, status in states.items() if status not in ("committed", "abandoned")]
        new = [date for date in todo if states[date] == "new"]
        events = some.events()
        part = None if users is None else users.name
        fit = more_releases(ledger, dataset, events, part, limit=len(new) + 1000)
    missing = [date for date in todo if not _has_input(jobs[date])]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise InputError(
            f"no input for {', '.join(missing[:5])}{more}; provide it or leave these dates out (nothing was charged)"
        )
    epsilon = sum((event.epsilon for event in events), Fraction(0))
    delta = sum((event.delta for event in events), Fraction(0))
    each = f"ε = {brief(show(epsilon))}" + (f", δ = {brief(show(delta))}" if delta else "")
    if fit < len(new):
        shorter = f"; --to {new[fit - 1]} would fit" if fit else ""
        raise BudgetExceeded(
            f"data set {dataset}: {len(new)} releases of {each} each do not fit the budget, {fit} do{shorter}. Nothing "
            "was charged. See `hushgram ledger show`"
        )
    counts = Counter(states.values())
    open_ = len(todo) - len(new)
    lines = [
        ("dates", f"{len(jobs)}, from {next(iter(jobs))} to {list(jobs)[-1]}"),
        ("released before", str(counts["committed"])),
        *([("abandoned", f"{counts['abandoned']}: they stay as they are")] if counts["abandoned"] else []),
        *([("to resume", f"{open_}, without a second charge")] if open_ else []),
        ("to release", f"{len(new)}, {each} each"),
        ("budget", f"of data set {dataset}: it fits, and {fit - len(new):,} more such releases would"),
    ]
    return todo, lines


def _has_input(job: Job[Any]) -> bool:
    try:
        return bool(job.source.files)
    except InputError:
        return False
