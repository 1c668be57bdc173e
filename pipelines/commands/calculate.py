"""`hushgram calculate NAME …`: a bound of the theory, its formula and theorem, and the exact value beside it.

No Beam, no data, no budget. Options are the calculators' own arguments, so a new calculator needs nothing here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import click
import pyarrow as pa

from hushgram.calculators import CALCULATORS, Calculation
from hushgram.pipelines.console import say
from hushgram.pipelines.table_output import format_options, print_table

__all__ = ["command"]


@click.group("calculate")
def command() -> None:
    """Bounds of the theory, from public numbers alone: no data is read and no budget is spent."""


def _calculator(name: str, function: Callable[..., Calculation]) -> click.Command:
    """A command whose options are the function's keyword arguments."""

    def run(style: str, output: str | None, **given: Any) -> None:
        _show(function(**given), style, output)

    parameters = inspect.signature(function).parameters.values()
    options: list[click.Parameter] = [_option(parameter) for parameter in parameters]
    words = inspect.cleandoc(function.__doc__ or "").split("\n")[0]
    return format_options(click.Command(name, callback=run, params=options, help=words))


def _option(parameter: inspect.Parameter) -> click.Option:
    required = parameter.default is inspect.Parameter.empty
    more: dict[str, Any] = (
        {"required": True} if required else {"default": parameter.default, "show_default": True}
    )
    kind = click.INT if parameter.annotation == "int" else click.STRING
    return click.Option([f"--{parameter.name.replace('_', '-')}"], type=kind, **more)


def _show(found: Calculation, style: str, output: str | None) -> None:
    if style != "table" or output is not None:
        print_table(pa.Table.from_pylist(found.rows()), style, output)
        return
    rows = [(found.what, found.bound), *((one.what, one.value) for one in (found.exact, *found.others))]
    width = max(len(what) for what, _ in rows)
    (what, bound), *beside = rows
    say(f"{what:<{width}}  {bound:,.6g}")
    say(f"  = {found.formula}")
    say(f"  {found.theorem}")
    for what, value in beside:
        say(f"{what:<{width}}  {value:,.6g}")


for _name, _function in CALCULATORS.items():
    command.add_command(_calculator(_name, _function))
