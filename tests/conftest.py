"""What all tests share: noise that follows from the test's id, temporary files in memory, pipelines built faster.

`--fresh-noise` runs the tests that hold for any noise with the operating system's entropy: those marked `fresh_noise`
and those of hypothesis. A failure at the stated false-alarm rate is tried again until chance explains it with
probability at most 10⁻⁹ only.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator
from functools import partialmethod
from pathlib import Path
from types import MethodType
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import pytest
from _pytest.runner import runtestprotocol

from tests.leftovers import choose_temporary_directory
from tests.noise import fixed_noise

_CHANCE = 1e-9  # that a test of correct code fails with fresh noise
_fixed = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fresh-noise", action="store_true", help="tests that hold for any noise, with fresh noise"
    )


def pytest_configure(config: pytest.Config) -> None:
    choose_temporary_directory()
    _fix_noise(config)


def pytest_unconfigure() -> None:
    if _fixed:
        shutil.rmtree(os.environ[fixed_noise.VARIABLE].partition(":")[0], ignore_errors=True)


def _fix_noise(config: pytest.Config) -> None:
    """Make noise, here and in all processes that tests start, a function of the test."""
    import numpy.random  # noqa: F401  # each test finds it seeded, whichever test would be the first to load it
    from hypothesis import settings

    fresh = config.getoption("--fresh-noise")
    settings.register_profile("tests", derandomize=not fresh, database=None, deadline=None)
    settings.load_profile("tests")
    starts_workers = config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")
    if fresh or starts_workers:
        return
    global _fixed
    _fixed = True
    paths = [str(Path(fixed_noise.__file__).parent), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    os.environ[fixed_noise.VARIABLE] = tempfile.mkdtemp(prefix="hushgram-noise-")
    fixed_noise.install("")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    if _fixed:
        fixed_noise.begin(collector.nodeid)  # a module may draw when it is imported
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if _fixed:
        fixed_noise.begin(item.nodeid)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> Generator[None, Any, Any]:
    """Let what several tests share draw by its own name, whichever of them is the first."""
    if not _fixed or fixturedef.scope == "function":
        return (yield)
    place = f"{fixturedef.baseid}::{fixturedef.argname}[{getattr(request, 'param_index', 0)}]"
    with fixed_noise.aside(f"{place} of {request.node.nodeid}"):
        return (yield)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--fresh-noise"):
        return
    holds = [item for item in items if item.get_closest_marker("fresh_noise") or _is_property(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in holds])
    items[:] = holds


def _is_property(item: pytest.Item) -> bool:
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    marker = item.get_closest_marker("fresh_noise")
    if marker is None or not item.config.getoption("--fresh-noise"):
        return None
    tries = math.ceil(math.log(_CHANCE) / math.log(marker.kwargs["rate"]))
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for _ in range(tries):
        with _salted():
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if not any(report.failed for report in reports):
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@contextlib.contextmanager
def _salted() -> Generator[None]:
    """Let all that is drawn from fixed keys be other draws."""
    from hushgram.noise import entropy

    derive, salt = entropy._Secret._derive, os.urandom(16).hex()

    def salted(self: Any, kind: bytes, step: str, shard: int, context: bytes) -> bytes:
        return derive(self, kind, salt + step, shard, context)

    with mock.patch.object(entropy._Secret, "_derive", salted):
        yield


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
