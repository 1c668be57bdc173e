"""`hushgram doctor`: what works on this machine, and what to do where something does not."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import click

from hushgram.pipelines.console import say

__all__ = ["command", "findings"]

# package → what it is for, and how to get it
_PACKAGES = {
    "apache-beam": ("jobs", "pip install hushgram"),
    "pyarrow": ("reading and lookups", "pip install hushgram"),
    "cryptography": ("noise", "pip install hushgram"),
    "dp-accounting": ("composition over many releases", "pip install hushgram"),
    "SQLAlchemy": ("the ledger", "pip install hushgram"),
}
_EXTRAS = {
    "psycopg": ("a ledger on PostgreSQL", "pip install 'hushgram[postgresql]'"),
    "starlette": ("report, explore and plan pages", "pip install 'hushgram[pages]'"),
}
_LEAST_FREE = 1 << 30


class Finding(NamedTuple):
    """One thing that was looked at: fine, or what to do. Only what is `needed` makes the command fail."""

    name: str
    good: bool
    told: str
    needed: bool = False


@click.command("doctor")
def command() -> None:
    """What works on this machine: packages, Java for Flink, PostgreSQL, write access, room for temporary files.

    Exits with 1 where something is missing that every job needs.
    """
    found = list(findings())
    width = max(len(finding.name) for finding in found)
    for finding in found:
        mark = "ok     " if finding.good else "MISSING" if finding.needed else "no     "
        say(f"{mark}  {finding.name.ljust(width)}  {finding.told}")
    if any(finding.needed and not finding.good for finding in found):
        raise click.exceptions.Exit(1)


def findings() -> Iterator[Finding]:
    """Everything that is looked at, in order."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("Python", sys.version_info >= (3, 11), f"{version} (3.11 or later is needed)", True)
    for name, (use, remedy) in _PACKAGES.items():
        yield _package(name, use, remedy, True)
    for name, (use, remedy) in _EXTRAS.items():
        yield _package(name, use, remedy, False)
    yield _java()
    yield _program("go", "building Prism", "install Go to run jobs on Prism")
    yield _program(
        "psql", "PostgreSQL's client", "install postgresql-client to look into a PostgreSQL ledger"
    )
    yield _writable("working directory", os.getcwd())
    yield _writable("temporary directory", tempfile.gettempdir())
    yield _ledger()


def _package(name: str, use: str, remedy: str, needed: bool) -> Finding:
    try:
        return Finding(name, True, f"{importlib.metadata.version(name)}, for {use}", needed)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, False, f"not installed: needed for {use}; {remedy}", needed)


def _java() -> Finding:
    where = shutil.which("java")
    if where is None:
        return Finding("Java", False, "not found: needed for Flink; install Java 11 or 17")
    try:
        told = subprocess.run(
            [where, "-version"], capture_output=True, text=True, timeout=20, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return Finding("Java", False, f"{where} does not answer; install Java 11 or 17 for Flink")
    return Finding("Java", True, f"{told.splitlines()[0] if told else where}, for Flink (docs/engines.md)")


def _program(name: str, use: str, remedy: str) -> Finding:
    where = shutil.which(name)
    return Finding(name, where is not None, f"{where}, for {use}" if where else f"not found: {remedy}")


def _writable(name: str, path: str) -> Finding:
    try:
        with tempfile.NamedTemporaryFile(dir=path, prefix=".hushgram-doctor-"):
            pass
        free = shutil.disk_usage(path).free
    except OSError as problem:
        return Finding(name, False, f"{path} cannot be written: {problem.strerror}; choose another", True)
    if free < _LEAST_FREE:
        return Finding(name, False, f"{path} has {free / 1e9:.1f} GB left; make room or set TMPDIR", True)
    return Finding(name, True, f"{path}, {free / 1e9:.0f} GB free", True)


def _ledger() -> Finding:
    url = os.environ.get("HUSHGRAM_LEDGER")
    if url is None:
        return Finding("ledger", False, "HUSHGRAM_LEDGER is not set; see hushgram ledger init --help")
    from hushgram.errors import HushgramError
    from hushgram.ledger import Ledger

    try:
        with Ledger(url) as ledger:
            names = [found.name for found in ledger.datasets()]
            return Finding("ledger", True, f"{ledger.where}: {', '.join(names) or 'no data set yet'}")
    except HushgramError as problem:
        return Finding("ledger", False, str(problem))
