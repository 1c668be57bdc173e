"""hushgram: differentially private histograms over huge key domains, as small sketches that anyone may query.

For neighbouring data sets D, D' (one user added or removed) and every set S of sketches,

    P[release(D) ∈ S] ≤ e^ε · P[release(D') ∈ S] + δ,

where each user counts at most ``max_contributions`` in all. What is *not* protected: the parameters, the names of
columns, that a release took place, and whatever the operator's terminal shows as exact.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgram import sampling
    from hushgram.entropy import ReleaseKey, os_entropy
    from hushgram.params import ReleaseParams
    from hushgram.reference import release, release_histogram, release_public
    from hushgram.sketch.reader import Sketch

__all__ = [
    "ReleaseKey",
    "ReleaseParams",
    "Sketch",
    "__version__",
    "os_entropy",
    "release",
    "release_histogram",
    "release_public",
    "sampling",
]
__version__ = "0.1.0"

# Loaded on first use: `hushgram query` must not wait for what it does not need.
_HOMES = {
    "ReleaseKey": "hushgram.entropy",
    "os_entropy": "hushgram.entropy",
    "ReleaseParams": "hushgram.params",
    "release": "hushgram.reference",
    "release_histogram": "hushgram.reference",
    "release_public": "hushgram.reference",
    "Sketch": "hushgram.sketch.reader",
}
_MODULES = {
    "sampling": "hushgram.sampling",
    "svt": "hushgram.svt",
    "pmw": "hushgram.pmw",
    "noisy_max": "hushgram.noisy_max",
    "linear": "hushgram.linear",
    "laplace": "hushgram.laplace",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(_MODULES[name])
    raise AttributeError(f"module 'hushgram' has no attribute {name!r}")
