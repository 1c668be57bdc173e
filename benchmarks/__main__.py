"""`python -m benchmarks` (`make bench`): every comparison, then docs/benchmarks.md; `python -m benchmarks core`: some.

Each writes its figures to benchmarks/out; the page is made of the last run of every one.
"""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.page import BENCHMARKS, PAGE, write_page


def main(names: list[str]) -> int:
    """Run each in a process of its own, so that memory and caches of one do not help another."""
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    missed, begun = [], time.monotonic()
    for name in names or BENCHMARKS:
        print(f"\n=== benchmarks.{name}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}", *BENCHMARKS[name][0]]
        if subprocess.run(command, check=False).returncode:
            missed.append(name)
    absent = write_page()
    print(f"\n{PAGE} after {(time.monotonic() - begun) / 60:.1f} minutes", end="")
    print(f"; not run yet: {', '.join(absent)}" if absent else "")
    print(f"bars missed in: {', '.join(missed)}" if missed else "all bars reached")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
