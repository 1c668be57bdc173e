"""Beam stages: each wires core functions on arrays, and none imports another; `release` alone joins them.

from hushgram.transforms import ReleaseSparseHistogram, SparseVector
"""

from importlib import import_module
from typing import Any

# Imported when asked for: a stage of its own should not load all others.
_HOMES = {
    "AnswerLinear": "answer_linear_queries",
    "MostFrequent": "select_top",
    "RandomizeResponses": "randomize_responses",
    "ReadRecords": "read_records",
    "ReleaseMetrics": "release_metrics",
    "ReleaseSparseHistogram": "release_sparse_histogram",
    "SparseVector": "sparse_vector",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
