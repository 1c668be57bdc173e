"""``hushgram ledger``: the privacy budget across releases. Never imports Beam; SciPy only for a new sum."""

from __future__ import annotations

import dataclasses
import io
import sys
from typing import Any

import click

from hushgram.accounting import Budget
from hushgram.accounting.composition import Rule
from hushgram.ledger import Ledger, Release, Summary, backup, recover, seal, summarise
from hushgram.ledger.summary import brief
from hushgram.names import printable
from hushgram.numbers import show
from hushgram.pipelines.console import say
from hushgram.pipelines.table_output import format_options, print_records

__all__ = ["command"]

_LEDGER = click.option(
    "--ledger",
    "url",
    metavar="URL",
    envvar="HUSHGRAM_LEDGER",
    help="sqlite:///path or postgresql://host/database; else HUSHGRAM_LEDGER, "
    "else sqlite:///hushgram-ledger.db.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """The privacy budget across releases: set it, see what is spent, keep it safe."""


@command.command()
@click.option("--dataset", required=True, help="A name for the people in the data, such as pageviews.")
@click.option("--epsilon", required=True, help="What may be spent on them in all, such as 10.")
@click.option("--delta", default="0", show_default=True, help="0, or a probability such as 1e-6.")
@click.option(
    "--composition",
    type=click.Choice(["filter", "basic", "best"]),
    default="filter",
    show_default=True,
    help="filter: sums or squares of ε, whichever allows more, at a tenth of δ. basic: sums alone, all of δ for "
    "releases. Both are right also where a release is chosen after seeing earlier ones. best: allows most, "
    "right only where ε, δ and number of releases do not follow from earlier outputs.",
)
@_LEDGER
def init(dataset: str, epsilon: str, delta: str, composition: Rule, url: str | None) -> None:
    """Set the budget of a data set, once and for all (and make the ledger where there is none)."""
    budget = Budget(epsilon, delta, composition)
    with Ledger.create(url) as ledger:
        added = ledger.add_dataset(dataset, budget)
        where = ledger.where
    state = "has" if added else "had already"
    size = f"ε = {show(budget.epsilon)}, δ = {show(budget.delta)}"
    say(f"{dataset} {state} a budget of {size} in {where}")
    say(f"now name it in a config:  dataset: {dataset}   ledger: {where}   release: NAME-{{date}}")


@command.command(name="show")
@click.argument("dataset", required=False)
@_LEDGER
@format_options
def show_budget(dataset: str | None, url: str | None, style: str, output: str | None) -> None:
    """What is spent, what is left, how many more such releases fit, and how the sum comes about."""
    with Ledger(url) as ledger:
        names = [dataset] if dataset else [found.name for found in ledger.datasets()]
        summaries = [summarise(ledger, name) for name in names]
    if style != "table":
        out = [{**dataclasses.asdict(one), "explanation": one.explain()} for one in summaries]
        print_records(out[0] if dataset and style == "json" else out, style, output)
        return
    if not summaries:
        say("this ledger has no data set yet; hushgram ledger init --dataset NAME --epsilon …")
    for one in summaries:
        _print_summary(one)


@command.command()
@click.argument("dataset")
@_LEDGER
@format_options
def history(dataset: str, url: str | None, style: str, output: str | None) -> None:
    """Every release: when, what, ε, δ, status, digest."""
    with Ledger(url) as ledger:
        found = ledger.history(dataset)
    if style != "table":
        print_records([_as_json(release) for release in found], style, output)
    else:
        _print_history(dataset, found)


@command.command()
@click.argument("release")
@click.option("--dataset", help="Needed where two data sets have a release of this id.")
@_LEDGER
def abandon(release: str, dataset: str | None, url: str | None) -> None:
    """Give up a release that will not be finished. Its charge stays if any noise may have left."""
    with Ledger(url) as ledger:
        gone = ledger.abandon(release, dataset)
    if _clear(gone):
        say(
            f"WARNING: {gone.target} is the output of {release} and is visible; it stays published, and its charge is "
            "kept for it"
        )
    if gone.charged:
        say(
            f"{release} of {gone.dataset} is abandoned; its charge of ε = {show(gone.epsilon)} stays, "
            "because its noise may have been drawn"
        )
    else:
        say(
            f"{release} of {gone.dataset} is abandoned; nothing had been drawn, and ε = {show(gone.epsilon)} "
            "is given back"
        )


@command.command(name="backup")
@click.argument("target")
@_LEDGER
def back_up(target: str, url: str | None) -> None:
    """Copy the ledger to TARGET, a new file or the URL of an empty database, while jobs may go on.

    The copy is a ledger of its own and holds no release keys. To restore, put it in place of the ledger, or
    copy it back with this command.
    """
    with Ledger(url) as ledger:
        counts = backup(ledger, target)
    what = ", ".join(f"{count} {table}" for table, count in counts.items())
    say(f"copied {what} to {target.rpartition('@')[2]}")


@command.command(name="recover")
@click.argument("dataset")
@_LEDGER
def recover_lost(dataset: str, url: str | None) -> None:
    """After a restore from a backup: charge what the ledger's witness saw and the backup lacks."""
    with Ledger(url) as ledger:
        charged = recover(ledger, dataset)
    if charged is None:
        say(f"nothing of {dataset} is missing")
        return
    costs = " and ".join(
        f"ε = {show(event.epsilon)}"
        + (f", δ = {show(event.delta)}" if event.delta else "")
        + ("" if event.relation == "user" else f" (for one {event.relation})")
        for event in charged.events
    )
    say(f"{dataset} was charged {costs} for what it had spent and lost; releases can go on")


@command.command(name="seal")
@_LEDGER
def seal_with_key(url: str | None) -> None:
    """Seal a ledger under the wrapping key that is set now, once, after checking all of its rows."""
    done = seal(url)
    say("sealed under the wrapping key" if done else "it is sealed under this wrapping key already")


def _console(**options: Any) -> Any:
    """A console for texts that are not markup, on a terminal that may not know ε."""
    from rich.console import Console

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    return Console(highlight=False, soft_wrap=True, markup=False, **options)


def _print_summary(one: Summary) -> None:
    from rich.table import Table
    from rich.text import Text

    console = _console()
    table = Table(
        title=Text(printable(f"data set {one.dataset}")), title_justify="left", box=None, pad_edge=False
    )
    for name in ("", "ε", "δ"):
        table.add_column(name, justify="left" if not name else "right")
    table.add_row("budget", brief(one.budget_epsilon), brief(one.budget_delta))
    table.add_row("spent", brief(one.spent_epsilon), brief(one.spent_delta), style="bold")
    table.add_row("left", brief(one.left_epsilon, up=False), brief(one.left_delta, up=False))
    console.print(table)
    if one.warning is not None:
        console.print(printable(f"  WARNING: {one.warning}"), style="bold red")
    for line in one.explain():
        console.print(printable(f"  {line}"))
    if one.kinds:
        kinds = Table(box=None, pad_edge=False)
        for name in ("event", "times", "sum of ε", "sum of δ"):
            kinds.add_column(name, justify="left" if name == "event" else "right")
        for kind, row in one.kinds.items():
            kinds.add_row(printable(kind), str(row["events"]), brief(row["epsilon"]), brief(row["delta"]))
        console.print(kinds)
    if one.last_release is not None:
        count = "at least 1,000" if one.more is not None and one.more >= 1000 else one.more
        more = f"  {count} more releases like {one.last_release} (ε = {brief(one.last_epsilon or '0')}) fit; "
        console.print(printable(f"{more}by sums alone {one.more_basic}"))
    states = ", ".join(f"{count} {status}" for status, count in sorted(one.statuses.items()))
    console.print(printable(f"  releases: {states or 'none yet'}"))
    console.print()


def _print_history(dataset: str, found: list[Release]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(printable(f"releases of {dataset}")), title_justify="left", box=None, pad_edge=False
    )
    for name in ("reserved", "release", "job", "users", "ε", "δ", "status", "finished", "digest"):
        table.add_column(name, justify="right" if name in "εδ" else "left", no_wrap=True)
    for release in found:
        status = release.status if release.charged else f"{release.status} (not charged)"
        row = (
            release.reserved, release.name, release.job, release.users or "all", brief(show(release.epsilon)),
            brief(show(release.delta)), status, release.finished or "", (release.digest or "")[:16],
        )  # fmt: skip
        table.add_row(*map(printable, row))
    _console(width=200).print(table)


def _as_json(release: Release) -> dict[str, Any]:
    return {
        "release": release.name,
        "attempt": release.attempt,
        "job": release.job,
        "status": release.status,
        "charged": release.charged,
        "users": release.users,
        "epsilon": show(release.epsilon),
        "delta": show(release.delta),
        "events": [
            {
                "kind": event.kind,
                "version": event.version,
                "epsilon": show(event.epsilon),
                "delta": show(event.delta),
                "relation": event.relation,
                "details": dict(event.details),
                "meaning": event.meaning,
            }
            for event in release.events
        ],
        "target": release.target,
        "digest": release.digest,
        "reserved": release.reserved,
        "finished": release.finished,
        "parameters": dict(release.parameters),
        "inputs": dict(release.inputs),
    }


def _clear(release: Release) -> bool:
    """Removes what dead runs of an abandoned release left beside its target; whether its output is visible."""
    from hushgram.pipelines.output_places import place_for

    if not release.target:
        return False
    place = place_for(release.target, f"{release.dataset}\n{release.name}", "directory")
    place.clear(held=True)
    return release.digest is not None and place.exists() and place.digest() == release.digest
