"""Beam stages: each wires core functions on arrays, and none imports another; `release_sparse_histogram` joins them.

from hushgram.transforms import ReleaseSparseHistogram, SparseVector
"""

from importlib import import_module
from typing import Any

from hushgram.errors import naming_extras

# Imported when asked for: a stage of its own should not load all others.
_MODULES = {
    "AnswerLinear": "release_domain",
    "BoundContributions": "bound_contributions",
    "CountDomain": "count_domain",
    "KeepDomain": "count_domain",
    "SelectTop": "release_domain",
    "RandomizeResponses": "randomize_responses",
    "ReadRecords": "read_records",
    "ReleaseMetrics": "release_sparse_histogram",
    "ReleaseSparseHistogram": "release_sparse_histogram",
    "Shards": "shuffle.combining",
    "SparseVector": "sparse_vector",
}

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        with naming_extras():
            return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
