"""Damaged ledgers: ``python -m tests.core.ledger.mutants [COUNT]`` (default 5,000).

Single bits flipped, pages swapped, copied and zeroed, and rows edited, deleted and repeated with sqlite3. For
each the ledger must be refused with an error of the project, or have kept every sum.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from hushgram.accounting import Budget, Event
from hushgram.errors import HushgramError
from hushgram.ledger import Ledger, Owner, Request, summarise

__all__ = ["build", "judge", "mutate"]

EVENTS = [Event("sizing", "0.02"), Event("threshold", "0.49", "1e-8"), Event("alp", "0.49")]
_VALUES = (
    "0",
    "1/100",
    "",
    "x",
    None,
    0,
    1,
    -1,
    2.5,
    b"\x00\xff",
    "user",
    "committed",
    "abandoned",
    "1e999999",
)


def build(path: Path) -> None:
    """Eight releases of every status on two data sets, with their total cached."""
    with Ledger.create(f"sqlite:///{path}") as ledger:
        for name in ("views", "visits"):
            ledger.add_dataset(name, Budget(10, "1e-6", "basic"))
        for number in range(8):
            taken = ledger.reserve(
                Request("views", f"day-{number}", EVENTS, parameters={"key": "url"}), Owner.this()
            )
            if number == 1:
                ledger.cancel(taken)
                continue
            if number > 2:
                ledger.start(taken)
                ledger.prepare(taken, "d" * 64)
            if number > 3:
                ledger.commit(taken)
        summarise(ledger, "views")
    Path(f"{path}.anchor").unlink()  # the hash chain must do without it


def judge(path: Path) -> str:
    """Looks at a ledger in every way; "refused", or the sums that it shows."""
    with Ledger(f"sqlite:///{path}") as ledger:
        shown = summarise(ledger, "views")
        spent = sum(release.epsilon for release in ledger.history("views") if release.charged)
        with contextlib.suppress(HushgramError):
            ledger.reserve(Request("views", "more", [Event("alp", "3.5")]), Owner.this())
            return "released more than was left"
        return f"{shown.spent_epsilon} {shown.spent_delta} {spent}"


def mutate(path: Path, draws: random.Random) -> str:
    """Damages the file in one way; returns which."""
    kind = draws.choice(["bit"] * 6 + ["swap", "copy", "zero", "edit", "edit", "delete", "repeat"])
    content = bytearray(path.read_bytes())
    pages = range(0, len(content), 4096)
    one, other = draws.sample(pages, 2)
    if kind == "bit":
        content[draws.randrange(len(content))] ^= 1 << draws.randrange(8)
    elif kind == "swap":
        content[one : one + 4096], content[other : other + 4096] = (
            content[other : other + 4096],
            content[one : one + 4096],
        )
    elif kind in ("copy", "zero"):
        content[one : one + 4096] = content[other : other + 4096] if kind == "copy" else bytes(4096)
    if kind in ("edit", "delete", "repeat"):
        with contextlib.suppress(sqlite3.Error):
            _edit(path, kind, draws)
    else:
        path.write_bytes(content)
    return kind


def _edit(path: Path, kind: str, draws: random.Random) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        table = draws.choice(
            ["releases", "events", "events", "heads", "settings", "datasets", "totals", "schema_version"]
        )
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        rows = [row[0] for row in connection.execute(f"SELECT rowid FROM {table}")]
        row, column = draws.choice(rows), draws.choice(columns)
        if kind == "delete":
            connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
        elif kind == "edit":
            value = draws.choice(_VALUES)
            if draws.random() < 0.4:  # a value of the same column elsewhere
                value = connection.execute(
                    f"SELECT {column} FROM {table} WHERE rowid = ?", (draws.choice(rows),)
                ).fetchone()[0]
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, row))
        else:
            connection.execute("PRAGMA writable_schema = OFF")
            kept = ", ".join(name for name in columns if name != "id")
            connection.execute(
                f"INSERT INTO {table} ({kept}) SELECT {kept} FROM {table} WHERE rowid = ?", (row,)
            )


def run(count: int, folder: Path, seed: int) -> tuple[Counter[str], list[str], float]:
    """How the mutants ended, what went wrong, and the slowest in CPU seconds."""
    whole, path, draws = folder / "whole.db", folder / "mutant.db", random.Random(seed)
    build(whole)
    content = whole.read_bytes()
    path.write_bytes(content)
    truth = judge(path)
    ends, wrong, slowest = Counter[str](), list[str](), 0.0
    for number in range(count):
        path.write_bytes(content)
        Path(f"{path}-journal").unlink(missing_ok=True)
        kind = mutate(path, draws)
        started = time.process_time()
        try:
            found = judge(path)
            end = "unharmed" if found == truth else f"WRONG: {found}"
        except HushgramError as problem:
            end = "refused" if "\n" not in str(problem) else f"WRONG: {problem!r}"
        except Exception as problem:
            end = f"WRONG: {type(problem).__name__}: {problem}"
        slowest = max(slowest, time.process_time() - started)
        ends[f"{kind} {end.partition(':')[0]}"] += 1
        if end.startswith("WRONG"):
            wrong.append(f"mutant {number} ({kind}): {end[:300]}")
    return ends, wrong, slowest


def main() -> None:
    """Prints how they ended; exit code 1 where one went wrong or took more than a second."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    with tempfile.TemporaryDirectory() as folder:
        ends, wrong, slowest = run(count, Path(folder), 2026)
    for end, times in sorted(ends.items()):
        print(f"{times:6d}  {end}")
    print(f"{count} mutants, {len(wrong)} wrong, the slowest took {slowest:.2f} s of CPU")
    print("\n".join(wrong[:20]))
    sys.exit(bool(wrong) or slowest > 1)


if __name__ == "__main__":
    main()
