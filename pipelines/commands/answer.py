"""`hushgram answer`: many linear queries by multiplicative weights, or from a hypothesis released before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hushgram.pipelines.commands.job import JobCommand, job_options, start
from hushgram.pipelines.terminal import print_table

__all__ = ["command"]


@click.command("answer", cls=JobCommand)
@job_options
@click.option(
    "--queries",
    type=click.Path(),
    help="With a DIRECTORY: a file of queries to ask, one JSON object per line.",
)
@click.option("--key", "keys", multiple=True, help="With a DIRECTORY: ask for this key; repeat for more.")
def command(config: str, queries: str | None, keys: tuple[str, ...], **options: Any) -> None:
    """Answer the linear queries of CONFIG privately.

    If CONFIG is a directory that an earlier run released, ask its histogram instead, which costs no budget.
    """
    if Path(config).is_dir():
        _ask(config, queries, keys, options["style"], options["output"])
        return
    if queries or keys:
        raise click.UsageError(f"--queries and --key need a directory of released answers, got {config}")
    start("answer", config=config, **options)


def _ask(directory: str, queries: str | None, keys: tuple[str, ...], style: str, output: str | None) -> None:
    """Answer from a released hypothesis: post-processing, without data, budget or Beam."""
    from hushgram.errors import InputError, ParameterError, is_unicode
    from hushgram.mechanisms.pmw.synthetic import LinearQuery, SyntheticHistogram, read_queries

    synthetic = SyntheticHistogram.open(directory)
    if queries is None and not keys:
        print_table(synthetic.histogram(), style, output)
        return
    if wrong := [key for key in keys if not is_unicode(key)]:
        raise ParameterError(f"--key must be UTF-8 text, got {wrong[0]!r:.80}")
    asked = [LinearQuery(key, {"keys": [key]}) for key in keys]
    if queries is not None:
        try:
            asked += read_queries(Path(queries).read_bytes().splitlines(), queries)
        except OSError as error:
            raise InputError(f"--queries {queries}: {error.strerror}") from None
    print_table(synthetic.lookup(asked), style, output)
