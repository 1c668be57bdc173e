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
    rounded,
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

    With --by, every total is that of the given keys of its group, and its interval holds by itself. Without keys, the
    named keys of the release are grouped: "named" is their total, and the keys of a group that are not named are known
    only as part of all others. So the group itself has no estimate, but a lower end (its named keys) and an upper one
    (as if all others were in it).
    """
    from hushgram.sketch.reader import Sketch

    estimator = "posterior" if assume == "like-the-data" else "any"
    opened = Sketch.open(sketch)
    named = by is not None and not keys and keys_file is None
    wanted = _named_keys(opened) if named else read_keys(keys, keys_file)
    warn_about_keys(wanted, opened, keys_file)
    if by is not None:
        groups = _groups(wanted, by)
        table = (
            _named_groups(opened, groups, level) if named else _given_groups(opened, groups, level, estimator)
        )
        if style == "table":
            table = table.drop_columns(["level", "assumes"])
            table = (
                _round_named(table, opened) if named else round_columns(table, opened.per_count, sums=True)
            )
        print_table(table, style, output, right=("named", "estimate", "low", "high"))
        whose = (
            'Only "named" is a sum of counts: keys that are not named belong to some group, and nobody knows which.'
            " Groups cannot be ranked by it. "
        )
        print_note(f"{whose if named else ''}{opened.measure.capitalize()}s are after bounding.", style)
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


def _given_groups(sketch: Sketch, groups: dict[str, list[str]], level: float, estimator: str) -> pa.Table:
    """Return the total of each group of given keys."""
    totals = sketch.totals(list(groups.values()), level, estimator=estimator)
    columns = {
        name: [getattr(total, name) for total in totals] for name in ("keys", "estimate", "low", "high")
    }
    told = {"level": [level] * len(totals), "assumes": [total.assumes for total in totals]}
    return pa.table({"group": list(groups), **columns, **told})


def _named_groups(sketch: Sketch, groups: dict[str, list[str]], level: float) -> pa.Table:
    """Return what is known of each group: the total of its named keys, and ends of the total of all its keys."""
    part = 1.0 - (1.0 - level) / 2.0  # the interval of the named keys and that of the others hold at once
    totals = sketch.totals(list(groups.values()), part)
    try:
        most: float | None = sketch.others(part).high
    except ParameterError:  # nothing was released of the others
        most = None
    number = len(totals)
    return pa.table(
        {
            "group": list(groups),
            "keys": [total.keys for total in totals],
            "named": [total.estimate for total in totals],
            "estimate": pa.nulls(number, pa.float64()),
            "low": [total.low for total in totals],
            "high": pa.array([None if most is None else total.high + most for total in totals], pa.float64()),
            "level": [level] * number,
            "assumes": [total.assumes for total in totals],
        }
    )


def _round_named(table: pa.Table, sketch: Sketch) -> pa.Table:
    """Return the table for people."""
    rows = table.to_pylist()
    ends = [
        rounded(row["named"], row["low"], row["high"] or 2.0 * row["named"] - row["low"], sketch.per_count)
        for row in rows
    ]
    texts = {
        "named": [told for told, _, _ in ends],
        "low": [low for _, low, _ in ends],
        "high": [
            "not known" if row["high"] is None else high for row, (_, _, high) in zip(rows, ends, strict=True)
        ],
    }
    return pa.table({"group": table["group"], "keys": table["keys"], **texts})


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
