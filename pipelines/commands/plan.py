"""`hushgram plan`: which parameters, before any data are touched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa

from hushgram.errors import ParameterError
from hushgram.numbers import counted
from hushgram.pipelines.planning import prediction_lines, rows_of
from hushgram.pipelines.terminal import (
    format_options,
    print_line,
    print_lines,
    print_note,
    print_table,
    refuse_existing,
    status,
)

if TYPE_CHECKING:
    from hushgram.planner import Population, Prediction
    from hushgram.sparse_histogram.params import ReleaseParams

__all__ = ["command"]

_TARGET = re.compile(r"\s*error\s+([\d.]+)\s+at\s+count\s+([\d_,]+)\s*")
# Columns for people; CSV, JSON and the page have all.
_SHOWN = {
    "epsilon": "epsilon", "C": "max_contributions",
    "bytes": "bytes", "kept": "kept", "at 1": "error_at_1", "10": "error_at_10", "100": "error_at_100",
    "1,000": "error_at_1000",
    "10,000": "error_at_10000", "limit": "detection_limit", "keys": "keys_above_limit",
    "false heavy": "false_heavy", "missed": "missed_heavy", "score": "score",
}  # fmt: skip
# The same where keys are selected by weights.
_SHOWN_NAMED = {
    "epsilon": "epsilon", "C": "max_contributions", "bytes": "bytes", "kept": "kept",
    "named": "named", "noise": "noise_scale", "rounds": "rounds", "at 10": "error_at_10", "100": "error_at_100",
    "1,000": "error_at_1000", "10,000": "error_at_10000", "limit": "detection_limit", "keys": "keys_above_limit",
    "score": "score",
}  # fmt: skip


class _Size(click.ParamType[int]):
    """A whole number such as 5000000, 5e6 or 5M."""

    name = "number"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        text = str(value).strip().lower().replace(",", "").replace("_", "")
        factor = {"k": 10**3, "m": 10**6, "g": 10**9}.get(text[-1:], 1)
        try:
            number = float(text[:-1] if factor > 1 else text) * factor
            if not 1 <= number <= 1e15:
                raise ValueError
            return round(number)
        except ValueError:
            self.fail(f"{value!r} is not a number such as 5e6 or 5M", param, ctx)


@click.command("plan")
@click.argument("config", required=False, type=click.Path())
@click.option("--keys", type=_Size(), help="Expected number of distinct keys, such as 1e6.")
@click.option("--records", type=_Size(), help="Expected number of records, such as 50M.")
@click.option(
    "--users",
    type=_Size(),
    help="Expected number of users; errors then include the records that contribution bounding drops.",
)
@click.option("--like", "sketch", type=click.Path(), help="Take sizes and shape from an earlier release.")
@click.option(
    "--epsilon", "epsilons", multiple=True, help="Privacy loss; may be given several times. Default: 1."
)
@click.option(
    "--delta",
    default="0",
    show_default=True,
    help="Probability that the loss exceeds epsilon; above 0, keys are released by name.",
)
@click.option(
    "--max-contributions",
    "contributions",
    multiple=True,
    type=int,
    help="A value of C; may be given several times.",
)
@click.option(
    "--target", help='Find the epsilon that reaches an error, such as --target "error 20 at count 200".'
)
@click.option(
    "--write", "written", metavar="FILE", help="Write a config with the recommended parameters to FILE."
)
@click.option(
    "--careful", is_flag=True, help="Simulate more releases of the recommended setting: slower, but steadier."
)
@format_options
def command(
    config: str | None,
    keys: int | None,
    records: int | None,
    users: int | None,
    sketch: str | None,
    epsilons: tuple[str, ...],
    delta: str,
    contributions: tuple[int, ...],
    target: str | None,
    written: str | None,
    careful: bool,
    style: str,
    output: str | None,
) -> None:
    """Predict size, error and intervals of a release, compare settings, and recommend one. Reads no records.

    Compares epsilon and C (--max-contributions, the most that one user contributes). The numbers of
    records and keys come from --records and --keys, from an earlier release (--like), or from the sizes of the files
    that CONFIG names. An earlier release also shows the shape of the data, on which the error of rare keys depends.
    -o plan.html writes an HTML page, -o plan.svg its chart, and any other name the table.
    """
    from hushgram.pipelines.pages import write_page
    from hushgram.planner import solve_epsilon
    from hushgram.planning import choices, plan_settings

    if not click.get_current_context().params["force"]:
        refuse_existing(written)
    wanted = None if target is None else _parsed(target)
    ending = Path(output or "").suffix.lower()
    if ending in (".png", ".pdf", ".jpg", ".jpeg"):
        raise ParameterError(f"plan: {ending} is not written; use plan.svg, or print plan.html to a file")
    if ending in (".html", ".svg"):  # before computing: pages are an extra
        from hushgram.pipelines.pages.static import make_plan_chart, make_plan_page
    base: ReleaseParams | None = None
    if config is not None:
        from hushgram.pipelines.planning import base_of, population_of, release_config

        loaded = release_config(config)
        base = base_of(loaded, loaded.stated)
    if sketch is not None:
        from hushgram.planner import Population
        from hushgram.sketch.reader import Sketch

        population = Population.like(Sketch.open(sketch), users)
    elif records is not None and keys is not None:
        from hushgram.planner import Population

        population = Population.zipf(keys, records, users)
    elif config is not None:
        population = population_of(loaded, records, keys, users)
    else:
        raise click.UsageError(
            "say --records and --keys, --like SKETCH, or give a CONFIG whose files have a size"
        )
    tried = choices(base, epsilons, delta, contributions, users=users is not None)
    with status(f"simulating {len(tried)} settings …"):
        found, best, why = plan_settings(tried, population, careful=careful)
        reached = None if wanted is None else solve_epsilon(best.params, population, *wanted)
    if ending in (".html", ".svg"):
        assert output is not None
        made = make_plan_page if ending == ".html" else make_plan_chart
        size = write_page(output, made(population, found, best, why), replace=True)
        _show(population, found, best, why)
        print_line(f"{'page' if ending == '.html' else 'picture'}       {output}, {size:,} bytes")
    elif style != "table" or output is not None:
        print_table(pa.Table.from_pylist(rows_of(found)), style, output)
    else:
        _show(population, found, best, why)
    if reached is not None:
        epsilon, sharp = reached
        at, best = sharp.at[0], sharp
        told = f"epsilon {float(epsilon):.3g} gives an error of {at.error:,.1f} at count {at.count:,}"
        print_note(f"target      {told}", style)
    if written is not None:
        from hushgram.pipelines.planning import config_text

        write_page(written, config_text(config, best.params), replace=True)
        print_note(f"config      {written}", style)


def _parsed(target: str) -> tuple[float, int]:
    match = _TARGET.fullmatch(target)
    if match is None:
        raise ParameterError(f'--target must read "error 20 at count 200", got {target!r}')
    return float(match.group(1)), int(match.group(2).replace(",", "").replace("_", ""))


def _show(population: Population, found: list[Prediction], best: Prediction, why: str) -> None:
    users = "" if population.users is None else f" of {counted(population.users, 'user')}"
    print_line(
        f"for         {counted(population.records, 'record')}{users}, {counted(population.keys, 'different key')};"
        " no data were read"
    )
    print_line()
    columns = _SHOWN if any(one.named is None for one in found) else _SHOWN_NAMED
    rows = [{new: row[old] for new, old in columns.items()} for row in rows_of(found)]
    print_table(pa.Table.from_pylist([{**row, "kept": f"{row['kept']:.0%}"} for row in rows]), "table")
    print_line()
    print_line("errors are root mean square errors at true counts of 10, 100, …")
    print_line()
    print_lines([("best", why), *prediction_lines(best, population)])
