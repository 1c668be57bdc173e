"""`hushgram calculate NAME`: calculate a theoretical bound, with its formula, theorem and the exact value.

Needs no Beam, no data and no budget. The options are the calculators' arguments: a new calculator needs no change here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import click
import pyarrow as pa

from hushgram.mechanisms.calculators import CALCULATORS, Calculation
from hushgram.pipelines.terminal import format_options, print_line, print_table

__all__ = ["command"]


@click.group("calculate")
def command() -> None:
    """Calculate bounds from public numbers only: no data is read and no budget is spent."""


def _calculator(name: str, function: Callable[..., Calculation]) -> click.Command:
    """Return a command whose options are the function's keyword arguments."""

    def run(style: str, output: str | None, **given: Any) -> None:
        _show(function(**given), style, output)

    summary = inspect.cleandoc(function.__doc__ or "").split("\n")[0]
    made = click.command(name, help=summary)(format_options(run))
    made.params[:0] = [_option(parameter) for parameter in inspect.signature(function).parameters.values()]
    return made


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
    print_line(f"{what:<{width}}  {bound:,.6g}")
    print_line(f"  = {found.formula}")
    print_line(f"  {found.theorem}")
    for what, value in beside:
        print_line(f"{what:<{width}}  {value:,.6g}")


for _name, _function in CALCULATORS.items():
    command.add_command(_calculator(_name, _function))
