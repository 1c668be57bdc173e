"""Deliberate breaches, one at a time: each must be killed by the test that should notice it.

    python -m tests.mutants              all of them
    python -m tests.mutants NAME ...     some

A mutant changes one function, found by its name. The tree is copied, the mutant applied to the copy, and its tests run
there; a mutant that survives, or whose function or expression is gone, is a failure. Nothing in the work tree is
touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.breaches import BREACHES, Breach
from tests.mutants.patching import Gone, mutated

ROOT = Path(__file__).parents[2]
PARTS = ("core", "transforms", "pipelines", "tests", "configs", "benchmarks", "tools", "pyproject.toml")
BOOT = """\
import importlib.abc, importlib.util, sys
ROOT = {root!r}
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        homes = {{"hushgram": "core", "hushgram.transforms": "transforms", "hushgram.pipelines": "pipelines"}}
        if name not in homes:
            return None
        place = ROOT + "/" + homes[name]
        return importlib.util.spec_from_file_location(name, place + "/__init__.py", submodule_search_locations=[place])
sys.meta_path.insert(0, Finder())
"""


def main(names: list[str]) -> int:
    """Runs the mutants; the number of survivors."""
    if unknown := {*names} - {breach.name for breach in BREACHES}:
        sys.exit(f"there is no mutant {', '.join(sorted(unknown))}")
    chosen = [breach for breach in BREACHES if not names or breach.name in names]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(_try, chosen))
    for breach, (killed, told) in zip(chosen, results, strict=True):
        print(f"{'killed  ' if killed else 'SURVIVED'}  {breach.name}: {told}")
    survivors = sum(not killed for killed, _ in results)
    print(f"{len(chosen) - survivors} of {len(chosen)} killed")
    return survivors


def _try(breach: Breach) -> tuple[bool, str]:
    with tempfile.TemporaryDirectory(prefix="hushgram-mutant-") as folder:
        home = Path(folder)
        for part in PARTS:
            source = ROOT / part
            ignore = shutil.ignore_patterns("__pycache__")
            if source.is_dir():
                shutil.copytree(source, home / part, ignore=ignore)
            else:
                shutil.copy(source, home / part)
        try:
            file, text = mutated(breach, home)
        except Gone as problem:
            return False, str(problem)
        file.write_text(text)
        (home / "boot").mkdir()
        (home / "boot/sitecustomize.py").write_text(BOOT.format(root=str(home)))
        environment = {**os.environ, "PYTHONPATH": f"{home}/boot", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *breach.tests]
        try:
            run = subprocess.run(
                command, cwd=home, env=environment, capture_output=True, text=True, timeout=600, check=False
            )
        except subprocess.TimeoutExpired:
            return True, "its tests did not end"
        # An error in a test's set-up counts, one while tests are collected (the mutant is no program) does not.
        failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        noticed = [line for line in failed if "::" in line]
        if run.returncode == 1 and noticed:
            return True, noticed[0].split(" - ")[0].split(" ", 1)[1]
        return (
            False,
            f"exit {run.returncode}; {(failed or run.stdout.splitlines() or ['no output'])[-1][:200]}",
        )


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
