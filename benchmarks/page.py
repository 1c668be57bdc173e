"""Write the benchmark pages from the JSON of the last run of each benchmark: `python -m benchmarks.page`.

docs/benchmarks.md             one page of results: bars, main tables, and where another method is better
benchmarks/out/benchmarks.md   every figure of every benchmark, with all plots; not part of the repository
"""

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

__all__ = ["BENCHMARKS", "FULL", "MAIN", "PAGE", "write_page"]

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
#: The name of the page with every figure, beside the JSON.
FULL = "benchmarks.md"
#: Each benchmark in the order of the page: its arguments in `make bench`, and what it compares.
BENCHMARKS: dict[str, tuple[tuple[str, ...], str]] = {
    "pipeline": (
        (),
        "Throughput of the release job, compared with PipelineDP on Beam and on its local backend, a plain count on"
        " Beam, and the time pyarrow takes to read and group the same files.",
    ),
    "group_by": (
        (),
        "CPU and memory of a release beside bounded group-bys in DuckDB, Polars and OpenDP.",
    ),
    "core": (
        (),
        "Samplers, building, lookup, size and error, compared with OpenDP, which implements ALP from the same paper.",
    ),
    "methods": ((), "Error against bits per key, by method, data and range of counts."),
    "error": (
        (),
        "Error and coverage of every decoder on real releases, compared with the setting of the paper.",
    ),
    "planner": ((), "What `hushgram plan` predicts, compared with what real releases measure."),
    "users": (
        (),
        "Keys selected, and error against the counts before bounding, on three data sets; with PipelineDP, OpenDP,"
        " Tumult, weighted Gaussian and DP-SIPS at their best.",
    ),
    "growth": ((), "Time, bytes and error by rows, keys, ε and C."),
    "scaling": (
        (),
        "Bytes sent, memory and CPU seconds of a release, compared with the formulas of scaling.md.",
    ),
    "svt": ((), "Sparse vector: variants, gaps, clipping, and the job on Beam."),
    "answers": ((), "Linear queries, selection and randomized response; see also answers.md."),
    "inputs": ((), "Reading: each format compared with Parquet and with pyarrow's own parsers."),
    "pages": ((), "The report and the explore page of a sketch of 20 MB."),
    "over_time": ((), "Series and changes: error, coverage and false discoveries."),
    "ledger": ((), "The ledger: composition, time, and releases that are killed."),
    "engines": ((), "The same release on Flink, Prism and the local runner."),
}
#: Figures without a bar that the short page shows too: how their lines begin.
MAIN: dict[str, tuple[str, ...]] = {
    "pipeline": (
        "pyarrow reads",
        "release of",
        "release: times the rows/s",
        "the same by CPU",
        "peak memory",
    ),
    "group_by": ("release, ", "DuckDB, ", "Polars", "OpenDP"),
    "core": ("hushgram, all of its sketch", "OpenDP's ALP", "size of the sketch"),
    "error": (
        "Zipf 0.8, C = 1: RMSE",
        "Zipf 1.5, C = 1: RMSE",
        "geometric, mean 12, C = 1: RMSE",
    ),
    "planner": ("access log: like an earlier release, other keys",),
    "users": ("pairs of", "defaults", "threshold", "with sizes", "selection by"),
    "scaling": ("10 M rows: ",),
    "svt": ("F1, ", "median error of the average", "  naive", "  above", "  hushgram"),
}
_MAIN_PLOTS = "all keys"  # of the curves of methods: the others are on the full page
_LONG = 24  # rows of a table that the full page folds
_SHORT = 14  # rows of a table that the short page shows whole
_MANY = 3  # bars of one kind from which the short page shows the worst alone


def write_page(folder: Path = OUT, page: Path = PAGE) -> list[str]:
    """Write both pages and their plots; return the names of benchmarks that have not been run."""
    found = {name: _read(folder / f"{name}.json") for name in BENCHMARKS}
    _write(page, _short_page(found, page.parent / "figures"))
    _write(folder / FULL, _full_page(found, folder / "figures"))
    return [name for name, body in found.items() if body is None]


def _write(page: Path, lines: Iterable[str]) -> None:
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _short_page(found: dict[str, dict[str, Any] | None], figures: Path) -> Iterator[str]:
    """Yield the page of docs/: what was compared, where others are better, bars and main tables."""
    yield from ("# Benchmarks", "")
    yield "`make bench` runs every comparison and writes this page. It also writes `benchmarks/out/benchmarks.md`,"
    yield "which has every figure and plot of the run. Each ratio is against a peer or a baseline in the same run."
    yield from ("", _machine())
    yield from ("", "| part | compares | command | run | bars reached |", "|---|---|---|---|---|")
    for name, body in found.items():
        run = ("not run", "") if body is None else (body["date"].split()[0], _reached(body))
        yield f"| [{name}](#{name}) | {BENCHMARKS[name][1]} | `{_command(name, body)}` | {' | '.join(run)} |"
    yield from _better(found)
    for name, body in found.items():
        yield from ("", f"## {name}", "", BENCHMARKS[name][1], "", f"    {_command(name, body)}")
        if body is None:
            yield from ("", "Not run.")
            continue
        if name == "methods":
            yield from _methods(body["methods"], figures, full=False)
            continue
        for figure in body.get("figures", []):
            yield from _picture(figure, figures)
        for section in body["sections"]:
            yield from _main_section(section, MAIN.get(name, ()))


def _full_page(found: dict[str, dict[str, Any] | None], figures: Path) -> Iterator[str]:
    """Yield every figure and plot."""
    yield from ("# Benchmarks: all figures", "")
    yield "Written by `make bench`. Each ratio is against a peer or a baseline in the same run. Figures without a bar"
    yield "are for comparison."
    yield from ("", *_runs(found), *_better(found))
    for name, body in found.items():
        yield from ("", f"## {name}", "", BENCHMARKS[name][1], "", f"    {_command(name, body)}", "")
        if body is None:
            yield "Not run."
            continue
        if name == "methods":
            yield from _methods(body["methods"], figures, full=True)
        for figure in body.get("figures", []):
            yield from _picture(figure, figures)
        for section in body["sections"]:
            yield from _section(section)


def _read(file: Path) -> dict[str, Any] | None:
    body: dict[str, Any] | None = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    return body


def _command(name: str, body: dict[str, Any] | None) -> str:
    arguments = BENCHMARKS[name][0] if body is None else body["arguments"]
    return shlex.join(["python", "-m", f"benchmarks.{name}", *arguments])


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system, version = platform.system(), platform.python_version()
    return f"Machine: {os.cpu_count()} cores, {memory:.0f} GiB, {system}, Python {version}."


def _reached(body: dict[str, Any]) -> str:
    bars = [row["reached"] for section in body["sections"] for row in section["rows"] if "reached" in row]
    return f"{sum(bars)} of {len(bars)}" if bars else "none set"


def _runs(found: dict[str, dict[str, Any] | None]) -> Iterator[str]:
    """Yield when each part ran, how long, under which load, and how many bars it reached."""
    yield _machine()
    told = [body for body in found.values() if body]
    whole, busy = (sum(body.get(what, 0) for body in told) / 60 for what in ("seconds", "cpu"))
    yield f"The whole run took {whole:.0f} minutes and {busy:.0f} minutes of CPU time. *Load* is the load of the"
    yield "machine in the minute before a part began, *others* the number of cores that other programs used while it"
    yield "ran. Where *others* is not about 0, wall times are too long; ratios of CPU seconds, bytes and errors hold."
    yield ""
    yield "| part | command | begun | s | CPU s | load | others | bars reached |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, body in found.items():
        if body is None:
            yield f"| [{name}](#{name}) | `{_command(name, None)}` | not run | | | | | |"
            continue
        took = " | ".join(f"{body[what]:,.0f}" if what in body else "" for what in ("seconds", "cpu"))
        around = " | ".join(f"{body[what]:.1f}" for what in ("load", "others"))
        ran = f"`{_command(name, body)}` | {body['date']} | {took} | {around}"
        yield f"| [{name}](#{name}) | {ran} | {_reached(body)} |"


# --- where another is better ------------------------------------------------------------------------------------------


def _better(found: dict[str, dict[str, Any] | None]) -> Iterator[str]:
    """Yield where a peer wins, and every bar that was missed."""
    yield from ("", "## Where another method is better")
    if found["methods"] is not None:
        yield from _beaten(found["methods"]["defaults"])
        yield from _beaten_totals(
            [row for row in found["methods"]["methods"] if row["asked_bits"] == methods.DEFAULT]
        )
    missed = [
        f"* {name}: {row['what']}: {_value(row)}, bar {row['bar']}."
        for name, body in found.items()
        for section in (body["sections"] if body else [])
        for row in section["rows"]
        if row.get("reached") is False
    ]
    yield from ("", "Missed bars and other lost comparisons:", "")
    yield from [*missed, *_other_wins(found)] or ["none."]


#: Why a list alone is better where it is.
_WHY = (
    "At δ = 0 a list alone spends 1.5 % of ε on itself that we keep for sizes, and the bytes of our manifest and",
    "encoding (2 bits per key of 50,000) on a lower threshold; its domain is the best of three for the very data. Ours",
    "is chosen from noisy sizes, which say little of 50,000 keys at C = 32 ([decision",
    "130](decisions/130-lists-for-even-and-small-data.md)). Ranges above 100 have few keys in some data. At δ = 10⁻⁶",
    "these are releases of counts without users, by a threshold; with C = 1 the noise that names the most keys has 6 %",
    "more error than Laplace noise. With users, keys are selected by weights, which is compared in [users](#users).",
)


def _beaten(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lookups in which a peer in the same bytes has less error than the default."""
    lost = methods.beaten(rows)
    yield ""
    yield "Lookups where the RMSE of a peer in the same bytes is at least 5 % below our default, over several release"
    yield "keys ([methods](#methods)):"
    yield from ("", "| setting | counts | better | data | its error over ours |", "|---|---|---|---|---|")
    for (delta, bound), span, peer in itertools.product(
        methods.DEFAULT_SETTINGS, methods.SPANS, methods.PEERS
    ):
        here = [c for c in lost if (c["delta"], c["C"], c["span"], c["peer"]) == (delta, bound, span, peer)]
        if here:
            data, shares = "; ".join(cell["data"] for cell in here), [f"{cell['share']:.2f}" for cell in here]
            between = min(shares) + (f" to {max(shares)}" if len(set(shares)) > 1 else "")
            yield f"| {_setting(delta, bound)} | {span} | {peer} | {data} | {between} |"
    yield ""
    yield from _WHY


def _beaten_totals(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the totals at the default size in which a peer has less error than ours."""
    totals = dict(_totals(rows))
    rare = [
        errors[methods.PEERS[0]]
        for what, errors in totals.items()
        if "1–10" in what and methods.PEERS[0] in errors
    ]
    if rare:
        yield ""
        yield "A threshold list alone answers 0 for every key that it does not list, so its totals of 1,000 rare keys"
        yield f"are off by {min(rare):.2f} to {max(rare):.2f} of the total. Totals where the error of a peer is at"
        yield "least 20 % below ours:"
    yield from ("", "| totals of 1,000 keys | better | error over the total | ours |", "|---|---|---|---|")
    for what, errors in totals.items():
        ours = min(errors[name] for name in methods.SUMS if name in errors)
        peer = min((name for name in methods.PEERS if name in errors), key=errors.__getitem__, default="")
        if peer and errors[peer] < 0.8 * ours:
            yield f"| {what} | {peer} | {errors[peer]:.3f} | {ours:.3f} |"


def _other_wins(found: dict[str, dict[str, Any] | None]) -> Iterator[str]:
    """Yield the comparisons of a plot that our line loses."""
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
    yield from _figures(rows)
    if folded:
        yield from ("", "</details>")


def _figures(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "| figure | value | bar | |"
    yield "|---|---|---|---|"
    for row in rows:
        reached = {True: "reached", False: "**missed**"}.get(row.get("reached"), "")
        yield f"| {_escaped(row['what'])} | {_value(row)} | {row.get('bar', '')} | {reached} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _main_section(section: dict[str, Any], main: tuple[str, ...]) -> Iterator[str]:
    """Yield a short section whole; of a long one, main figures, bars, and the worst of many bars of one kind."""
    rows = section["rows"]
    kinds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if "bar" in row:
            kinds.setdefault((_kind(row), row["bar"]), []).append(row)
    many = {kind: same for kind, same in kinds.items() if len(same) >= _MANY and len(rows) > _LONG}
    shown = [
        row
        for row in rows
        if len(rows) <= _SHORT
        or ("bar" in row and (_kind(row), row["bar"]) not in many)
        or ("bar" not in row and row["what"].startswith(main) and main)
    ]
    if not shown and not many:
        return
    yield from ("", f"### {section['title']}", "")
    if shown:
        yield from _figures(shown)
    if many:
        yield from ("", "| bar on | worst value | bar | reached |", "|---|---|---|---|")
        for (what, bar), same in many.items():
            worst = (max if bar.startswith("≤") else min)(same, key=lambda row: row["value"])
            reached = f"{sum(row['reached'] for row in same)} of {len(same)}"
            yield f"| {_escaped(what)} | {_value(worst)} | {bar} | {reached} |"


def _kind(row: dict[str, Any]) -> str:
    """Return what a bar is about, without the data set and the width of the test."""
    return str(row["what"]).rsplit(": ", 1)[-1].split(", ±")[0]


def _value(row: dict[str, Any]) -> str:
    value = row["value"]
    if isinstance(value, int | float):
        shown = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    else:
        shown = _escaped(str(value))
    return f"{shown} {row.get('unit', '')}".strip()


def _picture(figure: dict[str, Any], folder: Path) -> Iterator[str]:
    folder.mkdir(exist_ok=True)
    (folder / f"bench-{figure['name']}.svg").write_text(drawn(figure), encoding="utf-8")
    yield from ("", f"**{figure['title']}**", "", f"![{figure['title']}](figures/bench-{figure['name']}.svg)")


def _methods(rows: list[dict[str, Any]], folder: Path, *, full: bool) -> Iterator[str]:
    """Yield plots against bits per key and tables at the default size; the full page has every range and totals."""
    yield from ("", *(methods.__doc__ or "").split("\n\n", 1)[1].strip().splitlines())
    for delta, bound in methods.SETTINGS:
        here = [row for row in rows if (row["delta"], row["C"]) == (delta, bound)]
        for data in methods.CURVES if full else methods.CURVES[:1]:
            for span in (_MAIN_PLOTS, "101–1,000") if full and data == methods.CURVES[0] else (_MAIN_PLOTS,):
                yield from _curve(here, delta, bound, data, span, folder)
    default = [row for row in rows if row["asked_bits"] == methods.DEFAULT]
    spans = [span for span in methods.SPANS if span != "all keys"]
    for delta, bound in methods.SETTINGS:
        here = [row for row in default if (row["delta"], row["C"]) == (delta, bound)]
        yield from ("", f"### RMSE at the default size, {_setting(delta, bound)}", "")
        yield from _table(_cells(here, ["all keys"]))
        if full:
            yield from ("", "<details><summary>by range of counts</summary>", "")
            yield from _table(_cells(here, spans))
            yield from ("", "</details>")
    if full:
        yield from ("", "### Totals of 1,000 keys at the default size: error over the total", "")
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
        figure = {"name": name, "title": title, "x": "bits per key", "y": "RMSE"}
        yield from _picture({**figure, "lines": lines, "log_x": False, "log_y": True}, folder)


def _cells(rows: list[dict[str, Any]], spans: list[str]) -> Iterator[tuple[str, dict[str, float]]]:
    for data in methods.DATA:
        here = {row["method"]: row for row in rows if row["data"] == data}
        for span in spans:
            errors = {name: row["rmse"][span] for name, row in here.items() if row["rmse"][span] is not None}
            if errors:
                used = here[methods.OURS[0]]["bits"]
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
    """Yield a table in which the best of each row, among methods that exist (without *), is bold."""
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
