"""`hushgram ledger`: the privacy budget across releases. Never imports Beam; SciPy only for a new sum."""

from __future__ import annotations

import calendar
import dataclasses
import io
import sys
from datetime import UTC, date, datetime, timedelta
from typing import Any

import click

from hushgram.accounting import Budget
from hushgram.accounting.composition import Rule
from hushgram.errors import ParameterError, printable
from hushgram.ledger import Ledger, ReleaseRecord, Summary, add_key, backup, recover, summarise
from hushgram.ledger.summary import FORECAST_LIMIT, brief, forecast
from hushgram.numbers import counted, show
from hushgram.pipelines.terminal import format_options, print_line, print_records, print_result

__all__ = ["command"]

_LEDGER = click.option(
    "--ledger",
    "url",
    metavar="URL",
    envvar="HUSHGRAM_LEDGER",
    help="sqlite:///path or postgresql://host/database. Default: HUSHGRAM_LEDGER, else sqlite:///hushgram-ledger.db.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Set the privacy budget of data sets, see what is spent, and keep it safe."""


@command.command()
@click.option("--dataset", required=True, help="A name for the people in the data, such as pageviews.")
@click.option("--epsilon", required=True, help="Total ε that all releases may spend, such as 10.")
@click.option("--delta", default="0", show_default=True, help="Total δ: 0, or a probability such as 1e-6.")
@click.option(
    "--composition",
    type=click.Choice(["filter", "basic", "best"]),
    default="filter",
    show_default=True,
    help="filter: sums of ε or of ρ (zCDP), whichever allows more, at a tenth of δ. basic: sums only, all of δ for "
    "releases. Both are valid even if a release is chosen after seeing earlier ones. best: allows most, "
    "valid only if ε, δ and the number of releases do not depend on earlier outputs.",
)
@_LEDGER
@format_options
def init(
    dataset: str,
    epsilon: str,
    delta: str,
    composition: Rule,
    url: str | None,
    style: str,
    output: str | None,
) -> None:
    """Set the budget of a data set, which never changes; create the ledger if there is none."""
    budget = Budget(epsilon, delta, composition)
    with Ledger.create(url) as ledger:
        added = ledger.add_dataset(dataset, budget)
        where = ledger.where
    state = "has" if added else "already had"
    row = {"dataset": dataset, "epsilon": show(budget.epsilon), "delta": show(budget.delta), "ledger": where}
    lines = [
        f"{dataset} {state} a budget of ε = {show(budget.epsilon)}, δ = {show(budget.delta)} in {where}",
        f"now name it in a config:  dataset: {dataset}   ledger: {where}   release: NAME-{{date}}",
    ]
    print_result({**row, "created": added}, lines, style, output)


@command.command(name="show")
@click.argument("dataset", required=False)
@_LEDGER
@format_options
def show_budget(dataset: str | None, url: str | None, style: str, output: str | None) -> None:
    """Show what is spent, what is left, how many more releases fit, and how the sum is computed."""
    with Ledger(url) as ledger:
        names = [dataset] if dataset else [found.name for found in ledger.datasets()]
        summaries = [summarise(ledger, name) for name in names]
    if style != "table":
        out = [{**dataclasses.asdict(one), "explanation": one.explain()} for one in summaries]
        print_records(out, style, output)
        return
    if not summaries:
        print_line("this ledger has no data set yet; hushgram ledger init --dataset NAME --epsilon …")
    for one in summaries:
        _print_summary(one)


@command.command()
@click.argument("dataset")
@_LEDGER
@format_options
def history(dataset: str, url: str | None, style: str, output: str | None) -> None:
    """List every release: when, what, ε, δ, status, digest."""
    with Ledger(url) as ledger:
        found = ledger.history(dataset)
    if style != "table":
        print_records([_record(release) for release in found], style, output)
        return
    rows = [
        (
            release.reserved, release.name, release.job, release.users or "all", brief(show(release.epsilon)),
            brief(show(release.delta)), release.status + ("" if release.charged else " (not charged)"),
            release.finished or "", (release.digest or "")[:16],
        )
        for release in found
    ]  # fmt: skip
    names = ("reserved", "release", "job", "users", "ε", "δ", "status", "finished", "digest")
    _print_table(_console(width=200), names, rows, f"releases of {dataset}")


@command.command(name="forecast")
@click.argument("dataset")
@click.option("--like", metavar="RELEASE", help="The release that is repeated. Default: the last one.")
@click.option(
    "--every",
    metavar="PERIOD",
    default="day",
    show_default=True,
    help="day, week, month or year, or several of them, such as '2 weeks'.",
)
@click.option("--from", "start", metavar="DATE", help="Date of the next release. Default: today.")
@_LEDGER
@format_options
def forecast_schedule(
    dataset: str,
    like: str | None,
    every: str,
    start: str | None,
    url: str | None,
    style: str,
    output: str | None,
) -> None:
    """Say until when the budget lasts if a release is repeated on a schedule."""
    period, first = _period(every), _date(start)
    with Ledger(url) as ledger:
        found = forecast(ledger, dataset, like)
    last = None if not found.count else _later(first, period, found.count - 1)
    if style != "table":
        record = {
            "dataset": dataset,
            "like": found.like,
            "every": every,
            "releases": found.count,
            "first": None if last is None else first.isoformat(),
            "last": None if last is None else last.isoformat(),
        }
        print_records([record], style, output)
        return
    cost = f"ε = {brief(show(found.epsilon))}" + (f", δ = {brief(show(found.delta))}" if found.delta else "")
    if last is None:
        print_line(f"no more release like {found.like} ({cost}) fits the budget of {dataset}")
        return
    enough = "at least " if found.count >= FORECAST_LIMIT else ""
    print_line(
        f"one release like {found.like} ({cost}) per {every.strip()} from {first} on: the budget lasts for "
        f"{enough}{found.count:,} of them, until {last}"
    )


@command.command()
@click.argument("release")
@click.option("--dataset", help="Needed if two data sets have a release of this id.")
@_LEDGER
@format_options
def abandon(release: str, dataset: str | None, url: str | None, style: str, output: str | None) -> None:
    """Give up a release that will not be finished. Its charge stays if noise may have been drawn."""
    with Ledger(url) as ledger:
        gone = ledger.abandon(release, dataset)
    if _remove_leftovers(gone):
        print_line(
            f"WARNING: {gone.target} is the output of {release} and is visible; it stays published and charged",
            err=style != "table",
        )
    cost = f"ε = {show(gone.epsilon)}"
    told = (
        f"its charge of {cost} stays, because its noise may have been drawn"
        if gone.charged
        else f"no noise was drawn, and {cost} is refunded"
    )
    row = {
        "release": release,
        "dataset": gone.dataset,
        "epsilon": show(gone.epsilon),
        "charged": gone.charged,
    }
    print_result(row, [f"{release} of {gone.dataset} is abandoned; {told}"], style, output)


@command.command(name="backup")
@click.argument("target")
@_LEDGER
@format_options
def back_up(target: str, url: str | None, style: str, output: str | None) -> None:
    """Copy the ledger to TARGET, a new file or the URL of an empty database, while jobs may continue.

    The copy is a ledger and holds no release keys. To restore, replace the ledger with it, or copy it back with this
    command.
    """
    with Ledger(url) as ledger:
        counts = backup(ledger, target)
    nouns = {"datasets": "data set"}
    what = ", ".join(
        counted(count, nouns.get(table, table.removesuffix("s"))) for table, count in counts.items()
    )
    target = target.rpartition("@")[2]
    print_result({"target": target, **counts}, [f"copied {what} to {target}"], style, output)


@command.command(name="recover")
@click.argument("dataset")
@_LEDGER
@format_options
def recover_lost(dataset: str, url: str | None, style: str, output: str | None) -> None:
    """Charge what the rollback anchor recorded and a restored backup lacks."""
    with Ledger(url) as ledger:
        charged = recover(ledger, dataset)
    events = () if charged is None else charged.events
    costs = " and ".join(
        f"ε = {show(event.epsilon)}"
        + (f", δ = {show(event.delta)}" if event.delta else "")
        + ("" if event.relation == "user" else f" (for one {event.relation})")
        for event in events
    )
    line = f"{dataset} was charged {costs} for lost spending; releases can continue"
    lost = [{"epsilon": show(e.epsilon), "delta": show(e.delta), "relation": e.relation} for e in events]
    lines = [f"nothing of {dataset} is missing" if charged is None else line]
    print_result({"dataset": dataset, "charged": lost}, lines, style, output)


@command.command(name="add-key")
@_LEDGER
@format_options
def protect_with_key(url: str | None, style: str, output: str | None) -> None:
    """Protect a ledger with the wrapping key that is set now, once, after checking all of its rows."""
    done = add_key(url)
    lines = [f"its MACs are {'now ' if done else 'already '}under this wrapping key"]
    print_result({"added": done}, lines, style, output)


_MONTHS = {"month": 1, "year": 12}
_DAYS = {"day": 1, "week": 7}


def _period(text: str) -> tuple[int, int]:
    """Return a period as (months, days); raise for anything else."""
    count, _, unit = text.strip().rpartition(" ")
    unit, times = unit.removesuffix("s"), count.strip() or "1"
    if unit not in (*_MONTHS, *_DAYS) or not times.isdecimal() or not 1 <= int(times) <= 1000:
        raise ParameterError(
            f"--every must be day, week, month or year, or several such as '2 weeks', got {text[:40]!r}"
        )
    return int(times) * _MONTHS.get(unit, 0), int(times) * _DAYS.get(unit, 0)


def _date(text: str | None) -> date:
    try:
        return datetime.now(UTC).date() if text is None else date.fromisoformat(text)
    except ValueError:
        raise ParameterError(f"--from must be a date such as 2026-11-18, got {text!r:.40}") from None


def _later(first: date, period: tuple[int, int], times: int) -> date:
    """Return the date of the release after ``times`` periods, at most the last date that there is."""
    months, days = (each * times for each in period)
    year, month = divmod(first.year * 12 + first.month - 1 + months, 12)
    try:
        length = calendar.monthrange(year, month + 1)[1]
        return date(year, month + 1, min(first.day, length)) + timedelta(days=days)
    except (ValueError, OverflowError, calendar.IllegalMonthError):
        return date.max


def _console(**options: Any) -> Any:
    """Return a console for texts that are not markup, on a terminal that may not show ε."""
    from rich.console import Console

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    return Console(highlight=False, soft_wrap=True, markup=False, **options)


def _print_table(console: Any, names: tuple[str, ...], rows: Any, title: str | None = None) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=None if title is None else Text(printable(title)),
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    for name in names:
        table.add_column(
            name, justify="right" if name[-1:] in "εδ" or name == "times" else "left", no_wrap=True
        )
    for row in rows:
        table.add_row(*map(printable, row))
    console.print(table)


def _print_summary(one: Summary) -> None:
    console = _console()
    rows = [
        ("budget", brief(one.budget_epsilon), brief(one.budget_delta)),
        ("spent", brief(one.spent_epsilon), brief(one.spent_delta)),
        ("left", brief(one.left_epsilon, up=False), brief(one.left_delta, up=False)),
    ]
    _print_table(console, (" ", "ε", "δ"), rows, f"data set {one.dataset}")
    if one.warning is not None:
        console.print(printable(f"  WARNING: {one.warning}"), style="bold red")
    for line in one.explain():
        console.print(printable(f"  {line}"))
    if one.kinds:
        kinds = [(k, str(v["events"]), brief(v["epsilon"]), brief(v["delta"])) for k, v in one.kinds.items()]
        _print_table(console, ("event", "times", "sum of ε", "sum of δ"), kinds)
    if one.last_release is not None:
        many = one.more is not None and one.more >= 1000
        count = "at least 1,000 more releases" if many else counted(one.more or 0, "more release")
        fit = "fits" if one.more == 1 else "fit"
        like = f"{one.last_release} (ε = {brief(one.last_epsilon or '0')})"
        console.print(
            printable(
                f"  {count} like {like} {fit} this budget; {one.more_basic} if ε and δ were added up alone"
            )
        )
    states = ", ".join(f"{count} {status}" for status, count in sorted(one.statuses.items()))
    console.print(printable(f"  releases: {states or 'none yet'}"))
    console.print()


def _record(release: ReleaseRecord) -> dict[str, Any]:
    """Return a release as JSON shows it."""
    names = ("attempt", "job", "status", "charged", "users", "epsilon", "delta", "events", "target", "digest")
    every = {
        name: getattr(release, name) for name in (*names, "reserved", "finished", "parameters", "inputs")
    }
    events = [
        {
            "kind": event.kind,
            "version": event.version,
            "epsilon": show(event.epsilon),
            "delta": show(event.delta),
            "rho": show(event.cost.rho),
            "relation": event.relation,
            "details": dict(event.details),
            "meaning": event.meaning,
        }
        for event in release.events
    ]
    sums = {"epsilon": show(release.epsilon), "delta": show(release.delta)}
    return {"release": release.name, **every, **sums, "events": events}


def _remove_leftovers(release: ReleaseRecord) -> bool:
    """Remove what dead runs of an abandoned release left next to its target; return whether its output is visible."""
    from hushgram.pipelines.run.outputs import output_at

    if not release.target:
        return False
    output = output_at(release.target, f"{release.dataset}\n{release.name}", "directory")
    output.remove_leftovers(held=True)
    return release.digest is not None and output.exists() and output.digest() == release.digest
