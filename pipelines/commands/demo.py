"""`hushgram demo`: generate, release, look up, compare."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hushgram.pipelines.console import say
from hushgram.private_directory import PrivateDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hushgram.pipelines.demo import DemoResult, Line

__all__ = ["command"]


@click.command("demo")
@click.option(
    "--rows",
    type=int,
    default=2_000_000,
    show_default=True,
    help="Page views to make up, at most 100,000,000.",
)
@click.option("--epsilon", default="1", show_default=True, help="Privacy loss of one user.")
@click.option(
    "--delta", default="0", show_default=True, help="0: keys stay hashed; above 0: heavy keys as text."
)
@click.option(
    "--max-contributions", type=int, default=8, show_default=True, help="What one user may count in all."
)
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes.")
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Of the made-up data (not of the noise)."
)
@click.option("--keep", type=click.Path(), help="Keep data and sketch in this directory.")
def command(
    rows: int, epsilon: str, delta: str, max_contributions: int, workers: int, seed: int, keep: str | None
) -> None:
    """Make up page views, release them, and compare lookups with the truth. About a minute."""
    from hushgram.pipelines.generate import PageViews
    from hushgram.sparse_histogram.params import ReleaseParams

    views = PageViews(rows=rows, seed=seed)
    params = ReleaseParams(epsilon=epsilon, delta=delta, max_contributions=max_contributions)
    with _folder(keep) as folder:
        from hushgram.pipelines.import_beam import import_beam

        import_beam()
        from hushgram.pipelines.demo import run_demo

        result = run_demo(views, params, folder, workers=workers, say=say)
        _show(result)
        if keep:
            say()
            say(f"kept: try  hushgram query {folder / 'urls.sketch'} {result.lookups[0].key}")


@contextlib.contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    if keep is not None:
        yield Path(keep)
        return
    with PrivateDirectory() as folder:
        yield folder


def _show(result: DemoResult) -> None:
    say(f"3. asked in {result.asked:.1f} s; 'counted' is the truth after each user was held to the bound")
    say()
    header = ("key", "views", "counted", "estimate", "95 % interval", "from", "", "with buckets")
    rows = [
        (
            line.key, f"{line.views:,}", _number(line.counted), f"{line.estimate:,.1f}",
            f"{line.low:,.0f} to {line.high:,.0f}", line.source, "missed" if line.covered is False else "",
            _with_buckets(line),
        )
        for line in result.lookups
    ]  # fmt: skip
    _table(header, rows)
    say()
    head = ("total over", "keys", "views", "counted", "estimate", "95 % interval", "")
    sums = [
        (
            line.what, f"{line.keys:,}", f"{line.views:,}", _number(line.counted), f"{line.estimate:,.0f}",
            f"{line.low:,.0f} to {line.high:,.0f}", "",
        )
        for line in result.totals
    ]  # fmt: skip
    _table(head, sums)
    told = [line.covered for line in result.lookups if line.covered is not None]
    if told:
        say()
        say(f"{sum(told)} of {len(told)} intervals hold the counted number (95 % are meant to)")


def _with_buckets(line: Line) -> str:
    if line.buckets is None:
        return ""
    estimate, low, high = line.buckets
    return f"{estimate:,.1f} ({low:,.0f} to {high:,.0f})"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        cells = [row[0].ljust(widths[0])] + [
            cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)
        ]
        say("  ".join(cells).rstrip())
