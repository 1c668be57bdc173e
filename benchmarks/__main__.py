"""`python -m benchmarks` (`make bench`): every bar, and docs/benchmarks.md; `python -m benchmarks core svt`: some."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.bars import OUT

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
NAMES = ("core", "error", "users", "inputs", "pipeline", "svt", "answers", "ledger", "engines")


def main(names: list[str]) -> int:
    """Run each in a process of its own, so that memory and caches of one do not help another."""
    missed = []
    for name in names or NAMES:
        print(f"\n=== benchmarks.{name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode:
            missed.append(name)
    if not names:
        write_page()
    print(f"\nbars missed in: {', '.join(missed)}" if missed else "\nall bars reached")
    return int(bool(missed))


def write_page() -> None:
    """docs/benchmarks.md from the figures of the last runs."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench` from one run of every benchmark on a machine of 2 cores; ratios are against a peer",
        "or a floor in the same run. Figures without a bar are for comparison: they also show where other methods win.",
    ]
    for name in NAMES:
        file = OUT / f"{name}.json"
        if file.exists():
            for section in json.loads(file.read_text())["sections"]:
                lines += ["", f"## {section['title']}", "", f"`python -m benchmarks.{name}`", ""]
                lines += ["| | | bar | |", "|---|---|---|---|", *map(_row, section["rows"])]
    PAGE.write_text("\n".join(lines) + "\n")


def _row(row: dict[str, Any]) -> str:
    value = f"{row['value']:,}" if isinstance(row["value"], int | float) else str(row["value"])
    reached = {True: "reached", False: "**missed**"}.get(row.get("reached"), "")
    what = str(row["what"]).replace("|", "\\|")
    return f"| {what} | {value} {row.get('unit', '')} | {row.get('bar', '')} | {reached} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
