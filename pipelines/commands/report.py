"""`hushgram report`: one sketch, or several over time, as one page."""

from __future__ import annotations

import click

from hushgram.pipelines.terminal import print_line, warn_about_keys

__all__ = ["command"]


@click.command("report")
@click.argument("sketches", nargs=-1, required=True)
@click.option("-o", "--output", default="report.html", show_default=True, help="Where the page goes.")
@click.option(
    "--keys-file", metavar="FILE",
    help="File with one key per line, which names fingerprints and is looked up; a title may follow after a tab.",
)  # fmt: skip
@click.option(
    "--rate", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05, show_default=True,
    help="With several sketches: the expected share of unchanged keys among those that are shown as changed.",
)  # fmt: skip
@click.option("--ledger", help="Show the budget of a ledger too, such as sqlite:///ledger.db.")
@click.option("--dataset", help="The data set of the ledger; needed where it has several.")
@click.option("--force", is_flag=True, help="Replace a page that is there.")
def command(
    sketches: tuple[str, ...],
    output: str,
    keys_file: str | None,
    rate: float,
    ledger: str | None,
    dataset: str | None,
    force: bool,
) -> None:
    """One self-contained page about SKETCHES. Released numbers only, no network.

    Of one sketch: guarantee, ranked keys, distribution, expected error, parameters.

    Of several, which are paths or a pattern with {date} such as 'out/urls-{date}.sketch': the largest keys over dates,
    and what rose or fell from the first to the last. Two sketches need no dates in their names.
    """
    from hushgram.pipelines.commands.series import sketch_paths
    from hushgram.pipelines.pages import read_budget, write_page
    from hushgram.pipelines.pages.over_time import make_report_over_time
    from hushgram.pipelines.pages.static import make_report
    from hushgram.pipelines.pages.tables import read_titles
    from hushgram.sketch.reader import Sketch

    opened = [Sketch.open(path) for text in sketches for path in sketch_paths(text)]
    titles = None if keys_file is None else read_titles(keys_file)
    warn_about_keys(list(titles or ()), opened[0], keys_file)
    budget = None if ledger is None else read_budget(ledger, dataset)
    if len(opened) == 1:
        page = make_report(opened[0], budget, titles)
    else:
        page = make_report_over_time(opened, budget, titles, rate)
    size = write_page(output, page, replace=force)
    print_line(f"report  {output}, {size:,} bytes; open it in a browser")
