"""`hushgram series`: estimates of keys by date, from one sketch per date."""

from __future__ import annotations

import glob
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa

from hushgram.errors import FormatError
from hushgram.pipelines.terminal import format_options, print_note, print_table, read_keys, replace_file

if TYPE_CHECKING:
    from hushgram.sketch.over_time import Series

__all__ = ["command", "series_chart", "sketch_paths"]


@click.command("series")
@click.argument("sketches", nargs=-1, required=True)
@click.option("--key", "keys", multiple=True, metavar="KEY", help="A key; may be repeated.")
@click.option("--keys-file", metavar="FILE", help="File with one key per line; - for standard input.")
@click.option(
    "--level", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95, show_default=True,
    help="Confidence level of the intervals.",
)  # fmt: skip
@click.option("--plot", metavar="FILE.svg", help="Draw the smoothed series with their bands.")
@format_options
def command(
    sketches: tuple[str, ...],
    keys: tuple[str, ...],
    keys_file: str | None,
    level: float,
    plot: str | None,
    style: str,
    output: str | None,
) -> None:
    """Estimate keys in SKETCHES, one per date, by itself and smoothed over all dates. Costs no privacy budget.

    SKETCHES are paths, or a pattern with {date} such as 'out/urls-{date}.sketch'. The rows of a date are the keys,
    their total (of: total) and everything that is not named (of: others). The smoothed estimate uses the dates before
    and after as well: it is more accurate where counts change slowly, and its intervals allow for the change.
    """
    from hushgram.sketch.over_time import series
    from hushgram.sketch.reader import Sketch

    wanted = read_keys(keys, keys_file)
    paths = [path for text in sketches for path in sketch_paths(text)]
    found = series([Sketch.open(path) for path in paths], list(dict.fromkeys(wanted)), level)
    if plot is not None:
        replace_file("--plot", plot, series_chart(found).encode())
    print_table(found.table, style, output)
    if found.missing:
        more = f" and {len(found.missing) - 10} more" if len(found.missing) > 10 else ""
        print_note(f"No sketch for {', '.join(map(str, found.missing[:10]))}{more}.", style)
    for date, text in found.differs.items():
        print_note(f"{date} differs from the first date: {text}.", style)
    print_note("Counts are after bounding.", style)


def sketch_paths(text: str) -> list[str]:
    """Return the sketches that a path or a pattern with {date} names."""
    if "{date}" not in text:
        return [text]
    found = sorted(glob.glob(glob.escape(text).replace("{date}", "[0-9]" * 4 + "-[0-9][0-9]-[0-9][0-9]")))
    if not found:
        raise FormatError(f"no sketch matches {text}; check the pattern and the working directory")
    return found


_COLOURS = ("var(--accent)", "var(--second)", "var(--third)", "var(--bad)", "var(--soft)")


def series_chart(found: Series) -> str:
    """Return a picture of the smoothed series of up to five keys, as a file of its own."""
    return str(chart_of(found).file())


def chart_of(found: Series) -> Any:
    """Return the chart of the smoothed series of up to five keys."""
    from hushgram.pipelines.pages.svg import Axis, Band, Chart, Line

    rows = found.table.filter(pa.compute.equal(found.table["of"], "key")).to_pylist()
    keys = list(dict.fromkeys(str(row["key"]) for row in rows))[: len(_COLOURS)]
    first = min(row["date"] for row in rows)
    shown = [row for row in rows if str(row["key"]) in keys and row["smoothed"] is not None]
    top = max([row["smoothed_high"] for row in shown], default=1.0)
    last = max((row["date"] - first).days for row in rows)
    chart = Chart(
        f"Series of {', '.join(keys)}",
        Axis(f"days since {first}", 0.0, float(max(last, 1))),
        Axis("count", 0.0, max(top, 1.0)),
    )
    for key, colour in zip(keys, _COLOURS, strict=False):
        mine = [((row["date"] - first).days, row) for row in shown if str(row["key"]) == key]
        chart.bands.append(
            Band([(float(day), row["smoothed_low"], row["smoothed_high"]) for day, row in mine], colour)
        )
        chart.lines.append(Line(key[:40], [(float(day), row["smoothed"]) for day, row in mine], colour))
    return chart
