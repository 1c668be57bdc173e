"""`hushgram report`: a sketch as one page."""

from __future__ import annotations

import click

from hushgram.pipelines.terminal import print_line, warn_about_keys

__all__ = ["command"]


@click.command("report")
@click.argument("sketch", type=click.Path())
@click.option("-o", "--output", default="report.html", show_default=True, help="Where the page goes.")
@click.option(
    "--keys-file", metavar="FILE",
    help="File with one key per line, which names fingerprints and is looked up; a title may follow after a tab.",
)  # fmt: skip
@click.option("--ledger", help="Show the budget of a ledger too, such as sqlite:///ledger.db.")
@click.option("--dataset", help="The data set of the ledger; needed where it has several.")
@click.option("--force", is_flag=True, help="Replace a page that is there.")
def command(
    sketch: str, output: str, keys_file: str | None, ledger: str | None, dataset: str | None, force: bool
) -> None:
    """One self-contained page about SKETCH: guarantee, heavy keys, distribution, expected error, parameters.

    Released numbers only, no network.
    """
    from hushgram.pipelines.pages import write_page
    from hushgram.pipelines.pages.static import make_report
    from hushgram.pipelines.pages.tables import read_titles
    from hushgram.sketch.reader import Sketch

    opened = Sketch.open(sketch)
    titles = None if keys_file is None else read_titles(keys_file)
    warn_about_keys(list(titles or ()), opened, keys_file)
    budget = None
    if ledger is not None:
        from hushgram.pipelines.pages import read_budget

        budget = read_budget(ledger, dataset)
    size = write_page(output, make_report(opened, budget, titles), replace=force)
    print_line(f"report  {output}, {size:,} bytes; open it in a browser")
