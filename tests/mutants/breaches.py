"""The breaches. Each is what a tired or clever person might write."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BREACHES", "Breach"]


@dataclass(frozen=True)
class Breach:
    """One text of one file, what stands there instead, and the tests that must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


BREACHES: tuple[Breach, ...] = (
    Breach(
        "laplace scale halved",
        "core/noise/laplace.py",
        "return sensitivity.l1 / epsilon",
        "return sensitivity.l1 / epsilon / 2",
        ("tests/core/sparse_histogram", "tests/privacy/test_threshold.py"),
    ),
    Breach(
        "threshold keeps > where the map counts ≥ the other way",
        "core/sparse_histogram/threshold.py",
        "noisy >= threshold",
        "noisy >= threshold - 1",
        ("tests/privacy/test_threshold.py",),
    ),
)
