"""A storm of SIGKILLs over ``hushgram release``: ``python -m tests.pipelines.storm FOLDER 200``.

Each release is started, killed with SIGKILL at a random moment, and run again to its end. Afterwards there
must be exactly one committed release and one charge for each, its sketch must verify and equal that of an
uninterrupted run byte for byte, and no temporary directory may be left. All have one release id and key, each
in a data set of its own on one ledger, so that their bytes can be compared.

Runs are children forked from a process that has imported Beam once: the code of the command is the real one,
without its start-up, so that a kill falls into the work and not into imports.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hushgram.accounting import Budget
from hushgram.accounting.composition import basic
from hushgram.ledger import Ledger

FORK = multiprocessing.get_context("fork")
CONFIG = """\
release: daily
dataset: {name}
ledger: sqlite:///{folder}/ledger.db
input: {{path: {folder}/views.parquet, user: user_id, key: url}}
privacy: {{epsilon: 0.01, max_contributions: 8}}
sizes: {{records: 2000, keys: 300}}
output: {{path: {folder}/out/{name}/daily.sketch}}
shards: 1
"""
LIMIT = 120.0


@dataclass
class Report:
    """What a storm did and found."""

    runs: int
    seconds: float = 0.0
    killed_in: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def storm(folder: Path, runs: int, seed: int = 0, say: Callable[[str], None] = lambda text: None) -> Report:
    """Runs the storm in an empty folder."""
    began, chance, report = time.monotonic(), random.Random(seed), Report(runs)
    calm_runs, names = ["calm-0", "calm-1"], [f"kill-{number}" for number in range(runs)]
    _prepare(folder, [*calm_runs, *names])
    _release(folder, "calm-0")  # loads what is loaded late
    started = time.monotonic()
    if _release(folder, "calm-1") != 0:
        report.faults.append("the uninterrupted run failed")
    length = time.monotonic() - started
    calm = _files(folder, "calm-1")
    for number, name in enumerate(names, 1):
        _release(folder, name, kill_after=chance.uniform(0, 1.1 * length))
        state = _state(folder, name)
        report.killed_in[state] += 1
        started = time.monotonic()
        code = _release(folder, name)
        if state != "committed":
            length = time.monotonic() - started  # a run takes longer when the machine has other work
        report.faults += _check(folder, name, code, calm)
        if number % 20 == 0:
            say(f"{number} of {runs} killed and rerun, {len(report.faults)} faults")
    report.seconds = time.monotonic() - began
    return report


def _prepare(folder: Path, names: list[str]) -> None:
    from hushgram.pipelines.jobs import release  # noqa: F401 (Beam, once for all children)

    draws = np.random.default_rng(7)
    users, keys = draws.integers(0, 300, 2000), draws.zipf(1.3, 2000) % 300
    table = pa.table({"user_id": users, "url": [f"https://example.org/{key}" for key in keys]})
    pq.write_table(table, folder / "views.parquet")
    with Ledger.create(f"sqlite:///{folder}/ledger.db") as ledger:
        for name in names:
            ledger.add_dataset(name, Budget(1))


def _release(folder: Path, name: str, kill_after: float | None = None) -> int:
    """One run of the command in a child; its exit code, or -9."""
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(name=name, folder=folder))
    return _run(["release", str(config), "--quiet"], folder / "stderr", kill_after)


def _run(arguments: list[str], errors: Path, kill_after: float | None) -> int:
    child = FORK.Process(target=_command, args=(arguments, errors))
    child.start()
    assert child.pid is not None
    child.join(LIMIT if kill_after is None else kill_after)
    if child.exitcode is None:
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    return int(child.exitcode or 0)


def _command(arguments: list[str], errors: Path) -> None:
    from hushgram.ledger import ledger
    from hushgram.pipelines.cli import main

    os.dup2(os.open(errors, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), 2)

    ledger.new_secret = lambda: b"\7" * 32
    main(arguments)


def _state(folder: Path, name: str) -> str:
    """How far the killed run had come."""
    with Ledger(f"sqlite:///{folder}/ledger.db") as ledger:
        found = ledger.find(name, "daily")
    state = "nothing reserved" if found is None else found.status
    if state == "running" and _left(folder, name):
        state = "running, files written"
    if state == "prepared" and _sketch(folder, name).exists():
        state = "prepared and renamed"
    return state


def _check(folder: Path, name: str, code: int, calm: dict[str, bytes]) -> list[str]:
    said = (folder / "stderr").read_text().strip().splitlines()[-1:]
    faults = [] if code == 0 else [f"{name}: the rerun ended with {code} {said}"]
    with Ledger(f"sqlite:///{folder}/ledger.db") as ledger:
        rows, spent = ledger.history(name), ledger.spent(name).shared
    if [row.status for row in rows if row.charged] != ["committed"]:
        faults.append(f"{name}: {[row.status for row in rows]} instead of one committed release")
    if basic(spent) != (Fraction(1, 100), 0):
        faults.append(f"{name}: {spent} was charged instead of ε = 0.01")
    if _files(folder, name) != calm:
        faults.append(f"{name}: the sketch differs from that of the uninterrupted run")
    if not _verifies(_sketch(folder, name)):
        faults.append(f"{name}: the sketch does not verify")
    return faults + [f"{name}: {path.name} is left" for path in _left(folder, name)]


def _sketch(folder: Path, name: str) -> Path:
    return folder / "out" / name / "daily.sketch"


def _files(folder: Path, name: str) -> dict[str, bytes]:
    sketch = _sketch(folder, name)
    return {path.name: path.read_bytes() for path in sketch.iterdir()} if sketch.exists() else {}


def _verifies(path: Path) -> bool:
    from hushgram.errors import HushgramError
    from hushgram.sketch.reader import Sketch

    try:
        Sketch.open(path).verify()
    except HushgramError:
        return False
    return True


def _left(folder: Path, name: str) -> list[Path]:
    beside = _sketch(folder, name).parent
    return [path for path in beside.iterdir() if path.name != "daily.sketch"] if beside.exists() else []


# --- a backfill that is killed again and again -----------------------------------------------------------------------

BACKFILL = """\
release: day-{{date}}
dataset: views
ledger: sqlite:///{folder}/ledger.db
input: {{path: "{folder}/views-{{date}}.parquet", user: user_id, key: url}}
privacy: {{epsilon: 0.01, max_contributions: 8}}
sizes: {{records: 2000, keys: 300}}
output: {{path: "{folder}/out/day-{{date}}.sketch"}}
shards: 1
"""


def backfill_storm(folder: Path, days: int, kills: int, seed: int = 0) -> Report:
    """Kills a backfill of so many days again and again, then runs it to its end; compares with an uninterrupted one."""
    from hushgram.pipelines.jobs import release  # noqa: F401 (Beam, once for all children)

    began, chance, report = time.monotonic(), random.Random(seed), Report(kills)
    calm, torn = folder / "calm", folder / "torn"
    for place in (calm, torn):
        _prepare_days(place, days)
    started = time.monotonic()
    if _backfill(calm, days) != 0:
        report.faults.append("the uninterrupted backfill failed")
    length = time.monotonic() - started
    for _ in range(kills):
        code = _backfill(torn, days, chance.uniform(0, 1.5 * length / kills))
        report.killed_in["killed" if code == -signal.SIGKILL else "ended"] += 1
    if _backfill(torn, days) != 0:
        report.faults.append(f"the last run failed: {(torn / 'stderr').read_text()[-200:]}")
    with Ledger(f"sqlite:///{torn}/ledger.db") as ledger:
        rows, spent = ledger.history("views"), ledger.spent("views").shared
    if sorted(row.status for row in rows if row.charged) != ["committed"] * days:
        report.faults.append(f"{[row.status for row in rows]} instead of {days} committed releases")
    if basic(spent) != (Fraction(days, 100), 0):
        report.faults.append(f"{basic(spent)} was charged instead of ε = {days}/100")
    if _tree(torn) != _tree(calm):
        report.faults.append("sketches differ from those of the uninterrupted backfill")
    report.seconds = time.monotonic() - began
    return report


def _prepare_days(folder: Path, days: int) -> None:
    folder.mkdir(parents=True)
    for day in range(1, days + 1):
        draws = np.random.default_rng(day)
        users, keys = draws.integers(0, 300, 2000), draws.zipf(1.3, 2000) % 300
        table = pa.table({"user_id": users, "url": [f"https://example.org/{key}" for key in keys]})
        pq.write_table(table, folder / f"views-2026-11-{day:02d}.parquet")
    (folder / "config.yaml").write_text(BACKFILL.format(folder=folder))
    with Ledger.create(f"sqlite:///{folder}/ledger.db") as ledger:
        ledger.add_dataset("views", Budget(1))


def _backfill(folder: Path, days: int, kill_after: float | None = None) -> int:
    dates = ["--from", "2026-11-01", "--to", f"2026-11-{days:02d}"]
    return _run(["release", str(folder / "config.yaml"), *dates, "--quiet"], folder / "stderr", kill_after)


def _tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in (folder / "out").rglob("*")
        if path.is_file()
    }


def main() -> None:
    """FOLDER RUNS, or FOLDER backfill DAYS KILLS"""
    if sys.argv[2] == "backfill":
        found = backfill_storm(Path(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4]))
        print(
            f"a backfill of {sys.argv[3]} days killed {found.runs} times in {found.seconds:.0f} s"
            f": {dict(found.killed_in)}"
        )
        for fault in found.faults:
            print(f"  fault: {fault}")
        print(f"bar (one charge per day, equal bytes): {'PASS' if not found.faults else 'short'}")
        sys.exit(1 if found.faults else 0)
    folder, runs = Path(sys.argv[1]), int(sys.argv[2])
    folder.mkdir(parents=True)
    report = storm(folder, runs, say=lambda text: print(text, flush=True))
    print(f"{report.runs} runs killed with SIGKILL and rerun in {report.seconds:.0f} s; killed in:")
    for state, count in report.killed_in.most_common():
        print(f"  {count:4d}  {state}")
    for fault in report.faults:
        print(f"  fault: {fault}")
    bar = "one committed release, one charge, equal bytes, nothing left"
    print(f"bar ({bar}): {'PASS' if not report.faults else 'short'}")
    sys.exit(1 if report.faults else 0)


if __name__ == "__main__":
    main()
