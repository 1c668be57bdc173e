"""From a bare machine to a first result of one's own, and what the reader takes: `python -m tools.first_result`.

Five commands on an access log that is given, without editing a file: install (into a fresh virtual environment, from
the wheel, with the extras of jobs and pages), init, check, release, report. The clock includes downloads. Then the
reader alone: the size of its site-packages without pip, as it is installed and without bytecode, the time of `import
hushgram` and of a query.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.bars import Report

ROOT = Path(__file__).parents[1]
_IMPORT = "import time; t = time.process_time(); import hushgram; print(time.process_time() - t)"
_QUERY = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, capture_output=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime)
"""


def run(*words: object, folder: Path) -> str:
    """Run a command in the folder and return what it prints."""
    done = subprocess.run(list(map(str, words)), cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def timed(report: Report, what: str, *words: object, folder: Path) -> None:
    """Run a command and note its times."""
    begun, used = time.monotonic(), _used()
    run(*words, folder=folder)
    report.note(f"{what}: s of clock", time.monotonic() - begun)
    report.note(f"{what}: s of CPU", _used() - used)


def _used() -> float:
    """Return the CPU seconds of all commands so far: on a busy machine the clock says little."""
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


def bare(folder: Path) -> Path:
    """Make a fresh virtual environment and return its folder of programs."""
    run(sys.executable, "-m", "venv", folder, folder=folder.parent)
    return folder / "bin"


def site_size(folder: Path, *, bytecode: bool) -> float:
    """Return the size of the installed packages without pip and setuptools, as `du -sm` counts it."""
    total = 0
    for path in folder.glob("lib/python*/site-packages/**/*"):
        top = path.relative_to(next(folder.glob("lib/python*/site-packages"))).parts[0]
        skipped = top.startswith(("pip", "setuptools", "_distutils")) or (
            not bytecode and path.suffix == ".pyc"
        )
        if path.is_file() and not skipped:
            total += path.stat().st_blocks * 512
    return total / (1 << 20)


def main() -> int:
    """Run both parts."""
    folder = Path(tempfile.mkdtemp(prefix="hushgram-first-"))
    try:
        return _measure(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(folder: Path) -> int:
    build = ("-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    run(sys.executable, *build, folder=folder)
    wheel = next(folder.glob("*.whl"))
    run(sys.executable, "-m", "hushgram.pipelines", "example", "access-log", folder=folder)
    log = next((folder / "logs").iterdir()).rename(folder / "access.log")

    report = Report("From a bare machine to a first result, five commands")
    programs = bare(folder / "job")
    python, command = programs / "python", programs / "hushgram"
    begun, used = time.monotonic(), _used()
    install = ("-m", "pip", "install", "--quiet")
    timed(report, "install", python, *install, f"{wheel}[beam,pages]", folder=folder)
    timed(report, "init", command, "init", log.name, "--yes", "--write", "my.yaml", folder=folder)
    timed(report, "check", command, "release", "my.yaml", "--check", folder=folder)
    timed(report, "release", command, "release", "my.yaml", folder=folder)
    sketch = next((folder / "out").glob("*.sketch"))
    timed(report, "report", command, "report", sketch, "-o", "first.html", folder=folder)
    report.note("all five: s of CPU", _used() - used)
    report.bar("all five: s of clock", time.monotonic() - begun, 180, at_most=True, unit="s")

    reader = Report("The reader")
    programs = bare(folder / "reader")
    timed(reader, "install", programs / "python", *install, wheel, folder=folder)
    for bytecode, what in ((True, "site-packages as pip installs them"), (False, "without bytecode")):
        size = site_size(folder / "reader", bytecode=bytecode)
        reader.bar(f"{what}, without pip", size, 250, at_most=True, unit="MiB")
    imports = min(float(run(programs / "python", "-c", _IMPORT, folder=folder)) for _ in range(5))
    reader.bar("import hushgram, CPU", 1000 * imports, 30, at_most=True, unit="ms")
    query = ("-c", _QUERY, programs / "hushgram", "query", sketch, "/")
    asked = min(float(run(programs / "python", *query, folder=folder)) for _ in range(3))
    reader.bar("hushgram query, CPU", asked, 0.5, at_most=True, unit="s")
    return int(bool(report.missed or reader.missed))


if __name__ == "__main__":
    raise SystemExit(main())
