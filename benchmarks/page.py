"""docs/benchmarks.md and its plots from the JSON of the last run of each benchmark: `python -m benchmarks.page`."""

from __future__ import annotations

import itertools
import json
import os
import platform
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import methods
from benchmarks.bars import OUT
from benchmarks.figures import drawn

__all__ = ["BENCHMARKS", "PAGE", "write_page"]

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
#: Each benchmark in the order of the page: its arguments in `make bench`, and what it compares.
BENCHMARKS: dict[str, tuple[tuple[str, ...], str]] = {
    "pipeline": (
        (),
        "Throughput: the release job beside PipelineDP (on Beam, and on its local backend), a plain count on Beam, and"
        " the floor that pyarrow sets by reading and grouping the same files.",
    ),
    "core": ((), "Samplers, building, lookup, size and error beside OpenDP, whose ALP is of the same paper."),
    "methods": ((), "Error against bits a key, by method, data and range of counts."),
    "error": ((), "Every decoder on real releases, beside the setting of the paper."),
    "planner": ((), "What `hushgram plan` predicts beside what real releases measure."),
    "users": ((), "Heavy-tailed users: what is listed, against the truth before any cut, beside PipelineDP."),
    "growth": ((), "Time, bytes and error by rows, keys, ε and C."),
    "scaling": ((), "Bytes sent, memory and CPU seconds of each stage: the constants of scaling.md."),
    "svt": ((), "Sparse vector: variants, gaps, clipping, and the job on Beam."),
    "answers": ((), "Linear queries, selection and randomized response: see also choosing.md."),
    "inputs": ((), "Reading: formats against Parquet, and against pyarrow's own parsers."),
    "pages": ((), "The report and the explore page of a sketch of 20 MB."),
    "ledger": ((), "The ledger: composition, time, and releases that are killed."),
    "engines": ((), "The same release on Flink and Prism, beside the local runner."),
}
_LONG = 24  # rows of a table that is folded


def write_page(folder: Path = OUT, page: Path = PAGE) -> list[str]:
    """The page and its plots; names of benchmarks that have not been run."""
    found = {name: _read(folder / f"{name}.json") for name in BENCHMARKS}
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`, which runs every comparison one after another. Ratios are against a peer or a floor",
        "in the same run. Figures without a bar are for comparison: they also show where others are better.",
        "",
        *_runs(found),
        *_better(found),
    ]
    figures = page.parent / "figures"
    for name, body in found.items():
        lines += ["", f"## {name}", "", BENCHMARKS[name][1], "", f"    {_command(name, body)}", ""]
        if body is None:
            lines.append("Not run.")
            continue
        if name == "methods":
            lines += _methods(body["methods"], figures)
        for figure in body.get("figures", []):
            lines += _picture(figure, figures)
        for section in body["sections"]:
            lines += _section(section)
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [name for name, body in found.items() if body is None]


def _read(file: Path) -> dict[str, Any] | None:
    body: dict[str, Any] | None = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    return body


def _command(name: str, body: dict[str, Any] | None) -> str:
    arguments = BENCHMARKS[name][0] if body is None else body["arguments"]
    return shlex.join(["python", "-m", f"benchmarks.{name}", *arguments])


def _runs(found: dict[str, dict[str, Any] | None]) -> Iterator[str]:
    """When, how long, under which load, and how many bars were reached."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield f"Machine: {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}."
    told = [body for body in found.values() if body]
    whole, busy = (sum(body.get(what, 0) for body in told) / 60 for what in ("seconds", "cpu"))
    yield f"In all {whole:.0f} minutes, {busy:.0f} of CPU time. *Load* is that of the machine in the minute before a"
    yield "part began, *others* the cores that other programs used while it ran: where that is not about 0, wall times"
    yield "are too long; ratios of CPU seconds, bytes and errors stand."
    yield ""
    yield "| part | command | begun | s | CPU s | load | others | bars reached |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, body in found.items():
        if body is None:
            yield f"| [{name}](#{name}) | `{_command(name, None)}` | not run | | | | | |"
            continue
        bars = [row["reached"] for section in body["sections"] for row in section["rows"] if "reached" in row]
        share = f"{sum(bars)} of {len(bars)}" if bars else "none set"
        took = " | ".join(f"{body[what]:,.0f}" if what in body else "" for what in ("seconds", "cpu"))
        busy = " | ".join(f"{body[what]:.1f}" for what in ("load", "others"))
        yield f"| [{name}](#{name}) | `{_command(name, body)}` | {body['date']} | {took} | {busy} | {share} |"


# --- where another is better ------------------------------------------------------------------------------------------


def _better(found: dict[str, dict[str, Any] | None]) -> Iterator[str]:
    """From the figures: where a peer wins, and every bar that was missed."""
    yield from ("", "## Where another method is better")
    if found["methods"] is not None:
        yield from _beaten(
            [row for row in found["methods"]["methods"] if row["asked_bits"] == methods.DEFAULT]
        )
    missed = [
        f"* {name}: {row['what']}: {_value(row)}, the bar is {row['bar']}."
        for name, body in found.items()
        for section in (body["sections"] if body else [])
        for row in section["rows"]
        if row.get("reached") is False
    ]
    yield from ("", "Bars that were missed, and other comparisons that were lost:", "")
    yield from [*missed, *_other_wins(found)] or ["none."]


def _beaten(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Lookups and totals at the default space in which a peer has less error than each of ours."""
    lost = methods.beaten(rows)
    yield from (
        "",
        "Lookups at the default space (RMSE, 5 % or more below the best of ours; [methods](#methods)):",
        "",
    )
    yield "| | counts | better | on | share of the error of the best of ours |"
    yield "|---|---|---|---|---|"
    for (delta, bound), span, peer in itertools.product(methods.SETTINGS, methods.SPANS, methods.PEERS):
        here = [c for c in lost if (c["delta"], c["C"], c["span"], c["peer"]) == (delta, bound, span, peer)]
        if here:
            data, shares = "; ".join(cell["data"] for cell in here), [f"{cell['share']:.2f}" for cell in here]
            between = min(shares) + (f" to {max(shares)}" if len(set(shares)) > 1 else "")
            yield f"| {_setting(delta, bound)} | {span} | {peer} | {data} | {between} |"
    totals = dict(_totals(rows))
    rare = [
        errors[methods.PEERS[0]]
        for what, errors in totals.items()
        if "1–10" in what and methods.PEERS[0] in errors
    ]
    if rare:
        yield ""
        yield "A list alone is silent about what it does not list, and says 0: its totals of 1,000 rare keys are off by"
        yield f"{min(rare):.2f} to {max(rare):.2f} of the total. Totals where a peer is 20 % or more below ours:"
    yield from ("", "| totals of 1,000 keys | better | error over the total | ours |", "|---|---|---|---|")
    for what, errors in totals.items():
        ours = min(errors[name] for name in methods.SUMS if name in errors)
        peer = min((name for name in methods.PEERS if name in errors), key=errors.__getitem__, default="")
        if peer and errors[peer] < 0.8 * ours:
            yield f"| {what} | {peer} | {errors[peer]:.3f} | {ours:.3f} |"


def _other_wins(found: dict[str, dict[str, Any] | None]) -> Iterator[str]:
    """Comparisons by lines of a plot, where a line of ours has a rival."""
    for figure in (found["svt"] or {}).get("figures", []):
        if figure["name"] == "clip":
            ours = dict(map(tuple, figure["lines"]["hushgram clip"]))
            for name, points in figure["lines"].items():
                at = [f"{x:g} ({y:.4f}, ours {ours[x]:.4f})" for x, y in points if y < 0.95 * ours[x]]
                if at:
                    yield f"* svt, clipping: **{name}** has the smaller error at ε = {', '.join(at)}."


# --- parts ------------------------------------------------------------------------------------------------------------


def _setting(delta: str, bound: int) -> str:
    return f"δ = {'0' if delta == '0' else '10⁻⁶'}, C = {bound}"


def _section(section: dict[str, Any]) -> Iterator[str]:
    rows = section["rows"]
    if not rows:
        return
    yield from ("", f"### {section['title']}", "")
    folded = len(rows) > _LONG
    if folded:
        yield from (f"<details><summary>{len(rows)} figures</summary>", "")
    yield "| | | bar | |"
    yield "|---|---|---|---|"
    for row in rows:
        reached = {True: "reached", False: "**missed**"}.get(row.get("reached"), "")
        yield f"| {row['what'].replace('|', chr(92) + '|')} | {_value(row)} | {row.get('bar', '')} | {reached} |"
    if folded:
        yield from ("", "</details>")


def _value(row: dict[str, Any]) -> str:
    value = row["value"]
    if isinstance(value, int | float):
        shown = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    else:
        shown = str(value).replace("|", "\\|")
    return f"{shown} {row.get('unit', '')}".strip()


def _picture(figure: dict[str, Any], folder: Path) -> Iterator[str]:
    folder.mkdir(exist_ok=True)
    (folder / f"bench-{figure['name']}.svg").write_text(drawn(figure), encoding="utf-8")
    yield from ("", f"**{figure['title']}**", "", f"![{figure['title']}](figures/bench-{figure['name']}.svg)")


def _methods(rows: list[dict[str, Any]], folder: Path) -> Iterator[str]:
    """Plots against bits a key, tables at the default, totals."""
    yield from (methods.__doc__ or "").split("\n\n", 1)[1].strip().splitlines()
    for delta, bound in methods.SETTINGS:
        here = [row for row in rows if (row["delta"], row["C"]) == (delta, bound)]
        for data in methods.CURVES:
            for span in ("all keys", "101–1,000") if data == methods.CURVES[0] else ("all keys",):
                yield from _curve(here, delta, bound, data, span, folder)
    default = [row for row in rows if row["asked_bits"] == methods.DEFAULT]
    spans = ["all keys", *(span for span in methods.SPANS if span != "all keys")]
    for delta, bound in methods.SETTINGS:
        here = [row for row in default if (row["delta"], row["C"]) == (delta, bound)]
        yield from ("", f"### RMSE at the default space, {_setting(delta, bound)}", "")
        yield from _table(_cells(here, ["all keys"]))
        yield from ("", "<details><summary>by range of counts</summary>", "")
        yield from _table(_cells(here, spans[1:]))
        yield from ("", "</details>")
    yield from ("", "### Totals of 1,000 keys at the default space: error over the total", "")
    yield from _table(_totals(default), methods.SUMS + methods.PEERS)


def _curve(
    rows: list[dict[str, Any]], delta: str, bound: int, data: str, span: str, folder: Path
) -> Iterator[str]:
    lines = {
        method: [
            [row["bits"], row["rmse"][span]]
            for row in rows
            if row["method"] == method and row["data"] == data and row["rmse"][span] is not None
        ]
        for method in methods.METHODS
        if not method.endswith("*")
    }
    if sum(map(len, lines.values())) > len(lines):
        name = f"methods-{'pure' if delta == '0' else 'delta'}-{bound}-{data}-{span}".lower()
        name = "".join(sign if sign.isalnum() or sign in "-." else "" for sign in name.replace("–", "to"))
        title = f"{data}, {span}: {_setting(delta, bound)}"
        figure = {"name": name, "title": title, "x": "bits a key", "y": "RMSE"}
        yield from _picture({**figure, "lines": lines, "log_x": False, "log_y": True}, folder)


def _cells(rows: list[dict[str, Any]], spans: list[str]) -> Iterator[tuple[str, dict[str, float]]]:
    for data in methods.DATA:
        here = {row["method"]: row for row in rows if row["data"] == data}
        for span in spans:
            errors = {name: row["rmse"][span] for name, row in here.items() if row["rmse"][span] is not None}
            if errors:
                used = here["ALP, posterior"]["bits"]
                yield (f"{data}, {used:.1f} bits" if span == "all keys" else f"{data}, {span}"), errors


def _totals(rows: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, float]]]:
    for delta, bound in methods.SETTINGS:
        for data in methods.DATA:
            here = [row for row in rows if (row["delta"], row["C"], row["data"]) == (delta, bound, data)]
            for kind, what in (("any", ""), ("1–10", ", counts of 1–10")):
                found = {row["method"]: row["totals"][kind] for row in here if kind in row.get("totals", {})}
                if found:
                    yield f"{_setting(delta, bound)}: {data}{what}", found


def _table(
    cells: Iterable[tuple[str, dict[str, float]]], columns: tuple[str, ...] = methods.METHODS
) -> Iterator[str]:
    """The best of each row that can be had (without *) is bold."""
    yield "| | " + " | ".join(name.replace("*", "\\*") for name in columns) + " |"
    yield "|---|" + "---|" * len(columns)
    for what, errors in cells:
        best = min((error for name, error in errors.items() if not name.endswith("*")), default=None)
        shown = []
        for name in columns:
            text = (
                f"{errors[name]:.3g}"
                if name in errors and errors[name] < 1000
                else f"{errors.get(name, 0):,.0f}"
            )
            shown.append("" if name not in errors else f"**{text}**" if errors[name] == best else text)
        yield f"| {what} | " + " | ".join(shown) + " |"


if __name__ == "__main__":
    print("not run:", ", ".join(write_page()) or "none")
