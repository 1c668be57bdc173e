"""A local runner that tries a failed bundle again, and a way to make workers fail.

Beam's in-process runner gives up at the first error. `RetryingRunner` does what Flink and Dataflow do: what a failed
bundle sent is thrown away, and the bundle is computed again from its inputs by a fresh copy of its DoFns. `failing`
makes the first tries of methods raise, before or after they have sent something. Both work inside one process, so this
shows that the stages may be computed again at any point; that a cluster really does so after a machine died is shown by
the tests with a real Flink.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from apache_beam.runners.portability.fn_api_runner import fn_runner

__all__ = ["RetryingRunner", "failing"]


class Flake(Exception):
    """A worker was lost."""


class RetryingRunner(fn_runner.FnApiRunner):
    """Up to ``tries`` of each bundle; `failures` counts the tries that failed."""

    def __init__(self, tries: int = 40) -> None:
        super().__init__()
        self._tries, self.failures = tries, 0

    def _run_bundle(self, context: Any, *rest: Any) -> Any:
        for _ in range(self._tries - 1):
            try:
                return super()._run_bundle(context, *rest)
            except (RuntimeError, Flake) as problem:
                if "Flake" not in f"{type(problem).__name__} {problem}":
                    raise
                self.failures += 1
        return super()._run_bundle(context, *rest)


@contextmanager
def failing(methods: list[tuple[type, str]], times: int = 1) -> Iterator[Counter[str]]:
    """Each call of each method, told apart by its place in the run, fails on its first ``times`` tries.

    Whether the n-th call of a method fails follows from a hash of its name and n, at about one in two, and whether
    it fails at once or after sending what it had to send, from the same hash. The counter says how often each failed.
    """
    failed: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in methods:
            _wrap(patch, owner, name, times, failed, calls)
        yield failed


def _wrap(
    patch: pytest.MonkeyPatch, owner: type, name: str, times: int, failed: Counter[str], calls: Counter[str]
) -> None:
    inner = getattr(owner, name)
    label = f"{owner.__name__}.{name}"
    budget = 3 * times  # no method fails forever

    @functools.wraps(inner)  # Beam looks at the signature
    def flaky(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls[label] += 1
        choice = hashlib.sha256(f"{label} {calls[label]}".encode()).digest()[0]
        fails = (failed[label] == 0 or choice % 2 == 0) and failed[label] < budget
        if fails:
            failed[label] += 1
        if fails and choice < 128:
            raise Flake(label)
        result = inner(self, *args, **kwargs)
        if not hasattr(result, "__next__"):
            if fails:
                raise Flake(label)
            return result
        return _broken_off(result, label) if fails else result

    patch.setattr(owner, name, flaky)


def _broken_off(results: Iterator[Any], label: str) -> Iterator[Any]:
    yield from results
    raise Flake(label)
