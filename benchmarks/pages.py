"""A report and the explore page of a sketch of 20 MB: `python -m benchmarks.pages`.

The sketch is a real release of synthetic counts of 20 million keys. The report is made as the command makes it, in a
process of its own; the page is served by `hushgram explore`, and asked over HTTP as browsers do. Both are judged
by the CPU time of their process (what else the machine does is no matter), that of the report with the start of Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

import hushgram as hg
from benchmarks.bars import Report
from hushgram.release_in_memory import simulate

KEYS = 20_500_000
ASKED = 1_000
COMMAND = (sys.executable, "-m", "hushgram.pipelines")


def make_sketch(path: Path, delta: str) -> hg.Sketch:
    """A release of at least 20 MB: Zipf counts, and a list of many thousand heavy keys, selected by a threshold."""
    ranks = np.arange(1, KEYS + 1, dtype=np.float64)
    counts = np.maximum(1, np.rint(3e6 * ranks**-0.95)).astype(np.int64)
    params = hg.ReleaseParams(epsilon=1, delta=delta, max_contributions=8)
    return simulate(np.arange(KEYS), counts, params, path, release_key=hg.ReleaseKey(bytes(32)))


def report_bars(report: Report, name: str, sketch: Path, folder: Path) -> None:
    """Size of the page and time of the command."""
    page = folder / f"{name}.html"
    before, start = os.times(), time.perf_counter()
    subprocess.run([*COMMAND, "report", sketch, "-o", page], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    took = sum(after[2:4]) - sum(before[2:4])  # of children
    report.note(f"{name}: report, seconds by the clock", time.perf_counter() - start)
    report.bar(f"{name}: size of the report", page.stat().st_size / 1e6, 2, at_most=True, unit="MB")
    report.bar(f"{name}: CPU time of the report", took, 5, at_most=True, unit="s")


def explore_bars(report: Report, name: str, sketch: Path) -> None:
    """The opening page, known names, 1,000 keys as they are pasted (present, rare and absent ones), their groups."""
    rng = np.random.default_rng(3)

    def ask(path: str, content: bytes | None = None) -> tuple[float, bytes]:
        kind = {"Content-Type": "application/octet-stream"}
        start = cpu()
        request = urllib.request.Request(address + path, content, {} if content is None else kind)
        with urllib.request.urlopen(request, timeout=60) as answer:
            body = answer.read()
        return cpu() - start, body

    def cpu() -> float:
        spent = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(spent[11]) + int(spent[12])) / os.sysconf("SC_CLK_TCK")

    with subprocess.Popen([*COMMAND, "explore", sketch], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            start = time.perf_counter()
            ask("")
            report.note(
                f"{name}: first page after the start, ms by the clock", 1e3 * (time.perf_counter() - start)
            )
            took: dict[str, list[float]] = {}
            for number in range(8):
                keys = [str(key) for key in rng.integers(0, 2 * KEYS, ASKED)]
                keys[:50] = [str(key) for key in rng.integers(0, 1_000, 50)]
                sent, body = ask("keys?name=keys", "\n".join(keys).encode())
                file = json.loads(body)["file"]
                for what, path in {
                    "opening page": f"?rows={50 + number}",
                    "known names": f"names?q={number}",
                    f"{ASKED:,} pasted keys": f"?file={file}",
                    f"groups of {ASKED:,} keys": f"?view=groups&by=all&file={file}",
                }.items():
                    more = sent if "pasted" in what else 0.0
                    took.setdefault(what, []).append(more + ask(path)[0])
            for what, each in took.items():
                middle = 1e3 * float(np.median(each))
                report.bar(f"{name}: median CPU time, {what}", middle, 500, at_most=True, unit="ms")
        finally:
            process.terminate()


def main() -> int:
    report = Report("Pages of a sketch of 20 MB")
    with tempfile.TemporaryDirectory() as folder:
        for name, delta in (("pure", "0"), ("text", "1e-6")):
            path = Path(folder, f"{name}.sketch")
            sketch = make_sketch(path, delta)
            report.note(f"{name}: MB of the sketch", sketch.size / 1e6)
            report.note(f"{name}: listed keys", f"{sketch.manifest.heavy_rows:,}")
            report_bars(report, name, path, Path(folder))
            explore_bars(report, name, path)
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
