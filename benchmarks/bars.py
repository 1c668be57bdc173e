"""How every benchmark tells: what was measured, the bar, and whether it was reached.

Figures are printed, and kept as JSON in `benchmarks/out/` for the page that `python -m benchmarks` writes.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["OUT", "Lines", "Report", "best_of", "peak_memory", "quiet_clock"]

OUT = Path(__file__).parent / "out"
_SECTIONS: list[dict[str, Any]] = []  # of this process: one benchmark
_MORE: dict[str, Any] = {}  # figures of the same process that are not a line of a table
_BEGUN = time.monotonic()
_RUN: dict[str, Any] = {
    "arguments": sys.argv[1:],
    "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    "load": round(os.getloadavg()[0], 2),  # of the minute before
}


def _machine() -> float:
    """CPU seconds that all programs used since the machine started; 0 where that is not told."""
    try:
        words = Path("/proc/stat").read_text().split(maxsplit=9)
    except OSError:
        return 0.0
    user, nice, system, _, _, interrupts, soft = map(int, words[1:8])
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


_BUSY = _machine() - _own()

T = TypeVar("T")
Lines = dict[str, list[Any]]


class Report:
    """A table of figures; `exit_code` is 1 if a bar was missed."""

    def __init__(self, title: str) -> None:
        self.missed = 0
        self._rows: list[dict[str, Any]] = []
        _SECTIONS.append({"title": title, "rows": self._rows})
        print(f"\n{title}\n{'-' * len(title)}", flush=True)

    def bar(self, what: str, value: float, bar: float, *, at_most: bool = False, unit: str = "") -> None:
        """One figure against its bar."""
        good = value <= bar if at_most else value >= bar
        self.missed += not good
        sign = "≤" if at_most else "≥"
        self._keep(what, round(value, 4), unit=unit, bar=f"{sign} {bar:g}", reached=bool(good))
        print(
            f"{what:<62} {value:>12,.3f} {unit:<8} bar {sign} {bar:<10,g} {'PASS' if good else 'SHORT'}",
            flush=True,
        )

    def note(self, what: str, value: object = "") -> None:
        """A figure without a bar."""
        shown = f"{value:,.3f}" if isinstance(value, float) else str(value)
        self._keep(what, shown)
        print(f"{what:<62} {shown:>12}", flush=True)

    def more(self, name: str, figures: object) -> None:
        """Figures by name, as JSON: for plots and tables of the page."""
        _MORE[name] = figures
        self._write()

    def draw(
        self, name: str, title: str, x: str, y: str, lines: Lines, *, log_x: bool = True, log_y: bool = True
    ) -> None:
        """A plot for the page: lines by name, points (x, y)."""
        figure = {
            "name": name,
            "title": title,
            "x": x,
            "y": y,
            "log_x": log_x,
            "log_y": log_y,
            "lines": lines,
        }
        self.more("figures", [*_MORE.get("figures", []), figure])

    def _keep(self, what: str, value: object, **more: object) -> None:
        """After each figure, so that a benchmark that is stopped has told what it knew."""
        self._rows.append({"what": what, "value": value, **more})
        self._write()

    def _write(self) -> None:
        name = Path(sys.argv[0]).stem
        OUT.mkdir(exist_ok=True)
        seconds = time.monotonic() - _BEGUN
        others = max(_machine() - _BUSY - _own(), 0.0) / max(seconds, 1e-3)
        took = {"seconds": round(seconds, 1), "cpu": round(_own(), 1), "others": round(others, 2)}
        body = {"benchmark": name, **_RUN, **took, **_MORE}
        body["sections"] = _SECTIONS
        (OUT / f"{name}.json").write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n")

    def exit_code(self) -> int:
        """0 if all bars were reached."""
        return int(self.missed > 0)


@contextmanager
def quiet_clock() -> Iterator[Callable[[], float]]:
    """CPU seconds of this process: what other programs on the machine do does not count."""
    start = time.process_time()
    yield lambda: time.process_time() - start


def best_of(times: int, work: Callable[[], T]) -> tuple[float, T]:
    """The least CPU time of several tries, and the last result."""
    best, result = float("inf"), None
    for _ in range(times):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    assert result is not None
    return best, result


def peak_memory() -> float:
    """Largest resident memory of this process so far, in GiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform != "darwin" else 1 << 30)
