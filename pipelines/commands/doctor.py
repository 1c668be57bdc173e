"""`hushgram doctor`: check what works on this machine, and say what to do where something is missing."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import click
import pyarrow as pa

from hushgram.errors import HushgramError, naming_extras
from hushgram.pipelines.terminal import format_options, print_table

__all__ = ["Finding", "command", "findings"]

# package → its use
_PACKAGES = {"pyarrow": "files and lookups", "cryptography": "noise"}
# package → its use, and the extra that installs it
_EXTRAS = {
    "apache-beam": ("jobs", "beam"),
    "SQLAlchemy": ("the ledger", "ledger"),
    "dp-accounting": ("composition over many releases", "ledger"),
    "psycopg": ("a ledger on PostgreSQL", "postgres"),
    "starlette": ("report, explore and plan pages", "pages"),
}
# program → its use, and what to do
_PROGRAMS = {
    "java": ("Flink (docs/engines.md)", "install Java 11 or 17 to run jobs on Flink"),
    "go": ("building Prism", "install Go to run jobs on Prism"),
    "psql": ("inspecting a ledger on PostgreSQL", "install postgresql-client"),
}
_MIN_FREE_BYTES = 1 << 30


class Finding(NamedTuple):
    """The result of one check; the command fails only where a `needed` one is not good."""

    name: str
    good: bool
    message: str
    needed: bool = False


@click.command("doctor")
@format_options
def command(style: str, output: str | None) -> None:
    """Check packages, Java for Flink, PostgreSQL, write access and disk space on this machine.

    Exits with 1 if something is missing that every command needs.
    """
    found = list(findings())
    rows = [
        {"status": "ok" if f.good else "MISSING" if f.needed else "no", "name": f.name, "message": f.message}
        for f in found
    ]
    print_table(pa.Table.from_pylist(rows), style, output)
    if any(finding.needed and not finding.good for finding in found):
        raise click.exceptions.Exit(1)


def findings() -> Iterator[Finding]:
    """Yield the result of every check, in order."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("Python", sys.version_info >= (3, 11), f"{version} (needs 3.11 or later)", True)
    for name, use in _PACKAGES.items():
        yield _package(name, use, "hushgram", True)
    for name, (use, extra) in _EXTRAS.items():
        yield _package(name, use, f"'hushgram[{extra}]'", False)
    for name, (use, remedy) in _PROGRAMS.items():
        where = shutil.which(name)
        yield Finding(name, where is not None, f"{where}, for {use}" if where else f"not found: {remedy}")
    yield _writable("working directory", os.getcwd())
    yield _writable("temporary directory", tempfile.gettempdir())
    yield _ledger()


def _package(name: str, use: str, source: str, needed: bool) -> Finding:
    try:
        return Finding(name, True, f"{importlib.metadata.version(name)}, for {use}", needed)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, False, f"not installed: needed for {use}; pip install {source}", needed)


def _writable(name: str, path: str) -> Finding:
    try:
        with tempfile.NamedTemporaryFile(dir=path, prefix=".hushgram-doctor-"):
            pass
        free = shutil.disk_usage(path).free
    except OSError as problem:
        return Finding(name, False, f"{path} cannot be written: {problem.strerror}; choose another", True)
    if free < _MIN_FREE_BYTES:
        return Finding(name, False, f"{path} has {free / 1e9:.1f} GB left; free space or set TMPDIR", True)
    return Finding(name, True, f"{path}, {free / 1e9:.0f} GB free", True)


def _ledger() -> Finding:
    url = os.environ.get("HUSHGRAM_LEDGER")
    if url is None:
        return Finding("ledger", False, "HUSHGRAM_LEDGER is not set; see hushgram ledger init --help")
    try:
        with naming_extras():
            from hushgram.ledger import Ledger
        with Ledger(url) as ledger:
            names = [found.name for found in ledger.datasets()]
            return Finding("ledger", True, f"{ledger.where}: {', '.join(names) or 'no data set yet'}")
    except HushgramError as problem:
        return Finding("ledger", False, str(problem))
