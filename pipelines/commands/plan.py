"""`hushgram plan`: which parameters, before any data are touched."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from hushgram.errors import ParameterError

if TYPE_CHECKING:
    from hushgram.planner import Population, Prediction
    from hushgram.sparse_histogram.params import ReleaseParams

__all__ = ["command"]

_TARGET = re.compile(r"\s*error\s+([\d.]+)\s+at\s+count\s+([\d_,]+)\s*")
_CONTRIBUTIONS = (1, 8, 32, 100)


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
@click.option("--keys", type=_Size(), help="Different keys expected, such as 1e6.")
@click.option("--records", type=_Size(), help="Records expected, such as 50M.")
@click.option(
    "--users", type=_Size(), help="Users expected; with it, what the bound on users cuts is counted."
)
@click.option("--like", "sketch", type=click.Path(), help="Sizes and shape of an earlier release.")
@click.option("--epsilon", "epsilons", multiple=True, help="One or more; 1 if left out.")
@click.option("--delta", default="0", show_default=True)
@click.option(
    "--max-contributions", "contributions", multiple=True, type=int, help="One or more values of C."
)
@click.option("--target", help='Solve for epsilon: --target "error 20 at count 200".')
@click.option("-o", "--output", help="Write a page, such as plan.html.")
@click.option("--write", "written", help="Write a config with what is recommended.")
@click.option("--force", is_flag=True, help="Replace files that are there.")
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
    output: str | None,
    written: str | None,
    force: bool,
) -> None:
    """Predict size, error and intervals for encodings, noises, epsilon and C, and recommend one. Reads no data.

    Sizes come from --records and --keys, from an earlier release (--like), or from the sizes of the files that CONFIG
    names. For example:

    hushgram plan --records 50M --keys 1e6 --users 1e6

    hushgram plan urls.yaml --target "error 20 at count 200" --write better.yaml
    """
    from hushgram.pipelines.pages.files import write_page
    from hushgram.planner import predict, recommend, settings, solve_epsilon
    from hushgram.sparse_histogram.params import ReleaseParams

    base: ReleaseParams | None = None
    if config is not None:
        from hushgram.pipelines.planning import population_of, release_config

        loaded = release_config(config)
        base = loaded.params()
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
    tried = [Fraction(text) for text in epsilons] if epsilons else [base.epsilon if base else Fraction(1)]
    most = contributions or ((base.max_contributions,) if base else _CONTRIBUTIONS if users else (8,))
    base = base or ReleaseParams(epsilon=tried[0], delta=delta, max_contributions=most[0])
    found = [predict(params, population) for params in settings(base, most, tried)]
    best, why = recommend(found)
    _show(population, found, best, why)
    if target is not None:
        epsilon, reached = solve_epsilon(best.params, population, *_parsed(target))
        at = reached.at[0]
        click.echo(
            f"\ntarget    epsilon {float(epsilon):.3g} gives an error of {at.error:,.1f} at count {at.count:,}"
        )
        best = reached
    if output is not None:
        from hushgram.pipelines.pages.plan import make_plan_page

        size = write_page(
            output, make_plan_page(population, found, best if best in found else found[0], why), replace=force
        )
        click.echo(f"page      {output}, {size:,} bytes")
    if written is not None:
        from hushgram.pipelines.planning import config_text

        write_page(written, config_text(config, best.params), replace=force)
        click.echo(f"config    {written}")


def _parsed(target: str) -> tuple[float, int]:
    match = _TARGET.fullmatch(target)
    if match is None:
        raise ParameterError(f'--target must read "error 20 at count 200", got {target!r}')
    return float(match.group(1)), int(match.group(2).replace(",", "").replace("_", ""))


def _show(population: Population, found: list[Prediction], best: Prediction, why: str) -> None:
    import pyarrow as pa

    from hushgram.pipelines.pages.plan import rows_of
    from hushgram.pipelines.table_output import print_table

    users = "" if population.users is None else f" of {population.users:,} users"
    click.echo(
        f"for       {population.records:,} records{users}, {population.keys:,} different keys; no data were read\n"
    )
    columns = [
        "encoding", "noise", "epsilon", "max_contributions", "bytes", "kept", "error_at_10", "error_at_100",
        "error_at_1000", "error_at_10000", "resolved_from", "keys_resolved", "false_heavy", "score",
    ]  # fmt: skip
    rows = [{name: row[name] for name in columns} for row in rows_of(found)]
    print_table(pa.Table.from_pylist(rows), "table")
    click.echo(f"\nbest      {why}")
    if best.totals:
        told = ", ".join(f"{t.error:.1%} over {t.keys:,} keys" for t in best.totals)
        click.echo(f"totals    error of {told}")
