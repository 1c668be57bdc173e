"""Exact values for tests: bounded so that any mechanism admits them."""

from __future__ import annotations

from typing import Any

from hushgram.sensitivity import ExactVector, exact

__all__ = ["exact_counts"]


def exact_counts(values: Any) -> ExactVector:
    """Counts of which one user moves one by one."""
    return exact(values, max_contributions=1)
