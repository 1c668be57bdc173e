"""Beam stages: each wires core functions on arrays, and none imports another; `release` alone joins them.

from hushgram.transforms import ReleaseSparseHistogram
"""

from typing import Any

__all__ = ["ReleaseSparseHistogram"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # imported when asked for: a stage of its own should not load all others
        from hushgram.transforms import release

        return getattr(release, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
