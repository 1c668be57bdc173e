"""`hushgram total`: estimate the sum over many keys of a sketch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click
import pyarrow as pa

from hushgram.errors import ParameterError
from hushgram.numbers import counted
from hushgram.pipelines.terminal import (
    format_options,
    keys_options,
    print_line,
    print_note,
    print_table,
    read_keys,
    round_columns,
    total_text,
    warn_about_keys,
)  # fmt: skip

if TYPE_CHECKING:
    from hushgram.sketch.reader import Sketch

__all__ = ["command"]


@click.command("total")
@keys_options
@click.option(
    "--assume", type=click.Choice(["nothing", "like-the-data"]), default="nothing", show_default=True,
    help="like-the-data gives shorter intervals for keys that are in the data and were not chosen by their counts.",
)  # fmt: skip
@click.option(
    "--by", type=click.IntRange(1), metavar="N",
    help="A total per value of the Nth column of keys such as [country, url]; of the named keys if none are given.",
)  # fmt: skip
@format_options
def command(
    sketch: str,
    keys: tuple[str, ...],
    keys_file: str | None,
    level: float,
    assume: str,
    by: int | None,
    style: str,
    output: str | None,
) -> None:
    """Estimate the sum over a set of KEYS of SKETCH, each counted once. Costs no privacy budget.

    The interval holds for any set of keys (rare, heavy, or used by nobody) that was chosen without looking at the
    release. A total over keys that were picked for their large estimates is biased upwards.

    With --by, every total is that of its keys alone, and its interval holds by itself.
    """
    from hushgram.sketch.reader import Sketch

    estimator = "posterior" if assume == "like-the-data" else "any"
    opened = Sketch.open(sketch)
    named = by is not None and not keys and keys_file is None
    wanted = _named_keys(opened) if named else read_keys(keys, keys_file)
    warn_about_keys(wanted, opened, keys_file)
    if by is not None:
        rows = []
        groups = _groups(wanted, by)
        totals = opened.totals(list(groups.values()), level, estimator=estimator)
        for group, found in zip(groups, totals, strict=True):
            fields = {name: getattr(found, name) for name in ("keys", "estimate", "low", "high")}
            rows.append({"group": group, **fields, "level": level, "assumes": found.assumes})
        table = pa.Table.from_pylist(rows)
        if style == "table":
            table = round_columns(table.drop_columns(["level", "assumes"]), opened.per_count, sums=True)
        print_table(table, style, output, right=("estimate", "low", "high"))
        whose = "Named keys alone: others of a group are not in its total. " if named else ""
        print_note(f"{whose}{opened.measure.capitalize()}s are after bounding.", style)
        return
    result = opened.total(wanted, level=level, estimator=estimator)
    if style == "table" and output is None:
        print_line(total_text(result, counted(result.keys, "key"), opened))
        print_note(
            f"{opened.measure.capitalize()}s are after bounding. This assumes {result.assumes} about the keys.",
            style,
        )
        return
    print_table(result.table, style, output)


def _named_keys(sketch: Sketch) -> list[str]:
    """Return the texts of the named keys of a release."""
    listed = sketch.heavy()
    if "key" not in listed.column_names:
        raise ParameterError("--by: this release has no texts of keys (delta = 0); give keys or --keys-file")
    return [str(key) for key in listed["key"].to_pylist()]


def _groups(keys: Iterable[str | bytes], by: int) -> dict[str, list[str]]:
    """Return the keys by the text of their column `by`, counted from 1, in order of that text."""
    groups: dict[str, list[str]] = {}
    for key in keys:
        text = key.decode("utf-8", "replace") if isinstance(key, bytes) else key
        try:
            parts = json.loads(text)
        except ValueError:
            parts = None
        if not isinstance(parts, list) or len(parts) < by:
            raise ParameterError(
                f'--by {by} needs keys of at least {max(by, 2)} columns, such as ["FR","example.org"], got'
                f" {text[:80]!r}"
            )
        groups.setdefault(str(parts[by - 1]), []).append(text)
    if not groups:
        raise ParameterError("--by: there are no keys to group; give keys or --keys-file")
    return dict(sorted(groups.items()))
