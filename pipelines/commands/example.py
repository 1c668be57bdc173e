"""`hushgram example`: made-up data for the ready configs, to try commands on."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path

import click

from hushgram.pipelines.console import say
from hushgram.publishing import output_errors, put_file

__all__ = ["EXAMPLES", "command"]

_ROWS = 100_000


def _page_views(rows: int, path: str = "data/pageviews") -> list[str]:
    import numpy as np

    from hushgram.pipelines.generate import PageViews, write_page_views

    views = PageViews(rows=rows)
    write_page_views(views, Path(path))
    if path != "data/pageviews":
        return [path]
    listed = views.url_texts(np.arange(min(200, views.url_count))).to_pylist()
    put_file("pages.txt", "".join(f"{url}\n" for url in listed).encode())
    return ["data/pageviews", "pages.txt"]


def _yesterday() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=1)


def _page_views_of_yesterday(rows: int) -> list[str]:
    return _page_views(rows, f"data/pageviews/{_yesterday()}")


def _ages(rows: int) -> list[str]:
    from hushgram.pipelines.generate import write_ages

    write_ages(_new("data/ages.parquet"), rows)
    return ["data/ages.parquet"]


def _survey(rows: int) -> list[str]:
    from hushgram.pipelines.generate import write_survey

    write_survey(_new("data/survey/answers.parquet"), rows)
    return ["data/survey/answers.parquet"]


def _access_log(rows: int) -> list[str]:
    from hushgram.pipelines.generate import write_access_log

    day = _yesterday()
    path = f"logs/access.log-{day:%Y%m%d}"
    write_access_log(_new(path), rows, day)
    return [path]


def _new(path: str) -> Path:
    target = Path(path)
    if target.exists():
        raise FileExistsError(17, "File exists", path)
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


# A config of an engine, on this machine: local files, and no ledger.
_HERE = (
    " --date yesterday --set input.path=data/pageviews/{date}/*.parquet --set output.path=out/urls-{date}.sketch"
    " --set dataset=null --set ledger=null"
)

#: name of a ready config → what makes its data, and the command that runs it
EXAMPLES: dict[str, tuple[Callable[[int], list[str]], str]] = {
    "urls": (_page_views, "hushgram release configs/urls.yaml"),
    "urls-daily": (_page_views_of_yesterday, "hushgram release configs/urls-daily.yaml --date yesterday"),
    "demo": (lambda rows: _page_views(rows, "demo/pageviews"), "hushgram release configs/demo.yaml"),
    "flink": (_page_views_of_yesterday, f"hushgram release configs/flink.yaml{_HERE}"),
    "dataflow": (_page_views_of_yesterday, f"hushgram release configs/dataflow.yaml{_HERE}"),
    "top": (_page_views, "hushgram top configs/top.yaml"),
    "alerts": (_page_views, "hushgram sparse-vector configs/alerts.yaml"),
    "answer": (_page_views, "hushgram answer configs/answer.yaml"),
    "ages": (_ages, "hushgram clip configs/ages.yaml"),
    "ranges": (_ages, "hushgram sparse-vector configs/ranges.yaml"),
    "survey": (_survey, "hushgram randomized-response randomize configs/survey.yaml"),
    "traffic": (_access_log, "hushgram metrics configs/traffic.yaml --date yesterday"),
    "access-log": (_access_log, "hushgram release configs/access-log.yaml --date yesterday"),
}


@click.command("example")
@click.argument("name", type=click.Choice(list(EXAMPLES)))
@click.option("--rows", type=click.IntRange(100, 100_000_000), default=_ROWS, show_default=True)
def command(name: str, rows: int) -> None:
    """Make up the data that the config NAME reads, in the working directory."""
    make, then = EXAMPLES[name]
    with output_errors("data"):
        made = make(rows)
    say(f"made up  {', '.join(made)}: {rows:,} records")
    say(f"next     {then}")
