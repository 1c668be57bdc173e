"""`hushgram report`: a sketch as one page."""

from __future__ import annotations

import click

from hushgram.pipelines.terminal import print_line

__all__ = ["command"]


@click.command("report")
@click.argument("sketch", type=click.Path())
@click.option("-o", "--output", default="report.html", show_default=True, help="Where the page goes.")
@click.option("--ledger", help="Show the budget of a ledger too, such as sqlite:///ledger.db.")
@click.option("--dataset", help="The data set of the ledger; needed where it has several.")
@click.option("--force", is_flag=True, help="Replace a page that is there.")
def command(sketch: str, output: str, ledger: str | None, dataset: str | None, force: bool) -> None:
    """One self-contained page about SKETCH: guarantee, heavy keys, distribution, expected error, parameters.

    Released numbers only, no network.
    """
    from hushgram.pipelines.pages import write_page
    from hushgram.pipelines.pages.static import make_report
    from hushgram.sketch.reader import Sketch

    opened = Sketch.open(sketch)
    budget = None
    if ledger is not None:
        from hushgram.pipelines.pages import read_budget

        budget = read_budget(ledger, dataset)
    size = write_page(output, make_report(opened, budget), replace=force)
    print_line(f"report  {output}, {size:,} bytes; open it in a browser")
