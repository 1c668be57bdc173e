"""What makes all tests faster: temporary files in memory, and pipelines that are built with less inspection."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partialmethod
from types import MethodType
from typing import Any
from weakref import WeakKeyDictionary

_MEMORY, _ROOM = "/dev/shm", 6 << 30


def pytest_configure() -> None:
    """Choose the place of temporary files, also for processes that tests start; TMPDIR names another.

    Ledgers and releases write through to the disk, often. Where memory has no room, or no programs may run from it,
    the place stays the system's.
    """
    if "TMPDIR" in os.environ or not os.path.isdir(_MEMORY):
        return
    found = os.statvfs(_MEMORY)
    if found.f_bavail * found.f_frsize > _ROOM and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"], tempfile.tempdir = _MEMORY, None


def pytest_collection_finish() -> None:
    """Have Beam inspect each method once: it asks some ten thousand times per pipeline, for the same answers."""
    core = sys.modules.get("apache_beam.transforms.core")
    if core is not None and not hasattr(core.get_function_args_defaults, "known"):
        core.get_function_args_defaults = _remembered(core.get_function_args_defaults)
        # Options are parsed hundreds of times: each argument would ask for the terminal's width and for translations.
        argparse.HelpFormatter.__init__ = partialmethod(argparse.HelpFormatter.__init__, width=78)  # type: ignore[method-assign, assignment]
        argparse._ = str  # type: ignore[attr-defined]


def _remembered(inspect: Callable[[Any], tuple[list[str], list[Any]]]) -> Any:
    known: WeakKeyDictionary[Any, tuple[list[str], list[Any]]] = WeakKeyDictionary()

    def arguments(function: Any) -> tuple[list[str], list[Any]]:
        if not isinstance(function, MethodType):
            return inspect(function)
        plain = function.__func__
        if plain not in known:
            known[plain] = inspect(function)
        names, defaults = known[plain]
        return [*names], [*defaults]

    arguments.known = known  # type: ignore[attr-defined]
    return arguments
