"""`hushgram example`: synthetic data for the ready-made configs, and the configs themselves."""

from __future__ import annotations

import datetime
import importlib.resources
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np

from hushgram.errors import OutputError
from hushgram.pipelines.synthetic import (
    PageViews,
    write_access_log,
    write_ages,
    write_page_views,
    write_survey,
)
from hushgram.pipelines.terminal import format_options, print_result
from hushgram.publishing import output_errors, put_file

__all__ = ["EXAMPLES", "command"]

Day = datetime.date


def _page_views(path: Path, rows: int, day: Day) -> None:
    write_page_views(PageViews(rows=rows), path)


def _ages(path: Path, rows: int, day: Day) -> None:
    write_ages(path, rows)


def _survey(path: Path, rows: int, day: Day) -> None:
    write_survey(path, rows)


#: keys in pages.txt, the public list that some configs name
_LISTED = 200
_PAGE_VIEWS = "data/pageviews"
_DAILY, _LOG = "data/daily/{0}", "logs/access.log-{0:%Y%m%d}"
# Overrides that run the config of an engine on this machine: local files, and no ledger.
_HERE = (
    " --date yesterday --set input.path=data/daily/{date}/*.parquet --set output.path=out/urls-{date}.sketch"
    " --set dataset=null --set ledger=null"
)

#: name of a config → (path of its data, the function that writes them, the command that runs it)
EXAMPLES: dict[str, tuple[str, Callable[[Path, int, Day], None], str]] = {
    "urls": (_PAGE_VIEWS, _page_views, "hushgram release configs/urls.yaml"),
    "urls-daily": (_DAILY, _page_views, "hushgram release configs/urls-daily.yaml --date yesterday"),
    "demo": ("demo/pageviews", _page_views, "hushgram release configs/demo.yaml"),
    "flink": (_DAILY, _page_views, f"hushgram release configs/flink.yaml{_HERE}"),
    "dataflow": (_DAILY, _page_views, f"hushgram release configs/dataflow.yaml{_HERE}"),
    "top": (_PAGE_VIEWS, _page_views, "hushgram top configs/top.yaml"),
    "alerts": (_PAGE_VIEWS, _page_views, "hushgram sparse-vector configs/alerts.yaml"),
    "answer": (_PAGE_VIEWS, _page_views, "hushgram answer configs/answer.yaml"),
    "ages": ("data/ages.parquet", _ages, "hushgram clip configs/ages.yaml"),
    "ranges": ("data/ages.parquet", _ages, "hushgram sparse-vector configs/ranges.yaml"),
    "survey": (
        "data/survey/answers.parquet", _survey, "hushgram randomized-response randomize configs/survey.yaml"
    ),
    "traffic": (_LOG, write_access_log, "hushgram metrics configs/traffic.yaml --date yesterday"),
    "access-log": (_LOG, write_access_log, "hushgram release configs/access-log.yaml --date yesterday"),
}  # fmt: skip


@click.command("example")
@click.argument("name", metavar="NAME", type=click.Choice(list(EXAMPLES)))
@click.option(
    "--rows", type=click.IntRange(100, 100_000_000), default=100_000, show_default=True,
    help="Number of records to generate.",
)  # fmt: skip
@click.option("--config", "with_config", is_flag=True, help="Write configs/NAME.yaml too.")
@format_options
def command(name: str, rows: int, with_config: bool, style: str, output: str | None) -> None:
    path, write, then = EXAMPLES[name]
    yesterday = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=1)
    target = Path(path.format(yesterday))
    config = Path("configs", f"{name}.yaml")
    shipped = (importlib.resources.files("hushgram.configs") / config.name).read_bytes()
    content = shipped.partition(b"\n")[2]  # without the line for editors, which names a schema beside it
    if with_config and config.exists() and config.read_bytes() not in (content, shipped):
        raise OutputError(f"{config} already exists with other content; remove it or leave --config out")
    lines: list[str] = []
    with output_errors("data"):
        if with_config:
            config.parent.mkdir(exist_ok=True)
            put_file(config, content)
            lines.append(f"config   {config}")
        kept = target.exists()
        if kept:
            lines.append(f"kept     {target}: already exists; remove it to generate new data")
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                write(Path(folder) / target.name, rows, yesterday)
                (Path(folder) / target.name).rename(target)
            lines.append(f"created  {target}: {rows:,} synthetic records")
        if path == _PAGE_VIEWS and not Path("pages.txt").exists():
            urls = PageViews(rows=rows).url_texts(np.arange(_LISTED)).to_pylist()
            put_file("pages.txt", "".join(f"{url}\n" for url in urls).encode())
            lines.append(f"created  pages.txt: {_LISTED} keys, one per line")
    row = {
        "path": str(target),
        "created": not kept,
        "config": str(config) if with_config else None,
        "next": then,
    }
    print_result(row, [*lines, f"next     {then}"], style, output)


command.help = f"""Generate the data that configs/NAME.yaml reads, in the working directory. Existing data are kept.

NAME is one of {", ".join(EXAMPLES)}."""
