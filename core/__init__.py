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
    from hushgram.noise import sampling
    from hushgram.noise.entropy import InteractiveKey, ReleaseKey, os_entropy
    from hushgram.release_in_memory import release, release_histogram, release_metrics, release_public
    from hushgram.sketch.reader import Sketch
    from hushgram.sparse_histogram.metrics import Metric
    from hushgram.sparse_histogram.params import ReleaseParams

__all__ = [
    "InteractiveKey", "Metric", "ReleaseKey", "ReleaseParams", "Sketch", "__version__", "os_entropy", "release",
    "release_histogram", "release_metrics", "release_public", "sampling",
]  # fmt: skip
__version__ = "0.2.0"

# Loaded on first use: `hushgram query` must not wait for what it does not need.
_HOMES = {
    "InteractiveKey": "hushgram.noise.entropy",
    "ReleaseKey": "hushgram.noise.entropy",
    "os_entropy": "hushgram.noise.entropy",
    "ReleaseParams": "hushgram.sparse_histogram.params",
    "release": "hushgram.release_in_memory",
    "release_histogram": "hushgram.release_in_memory",
    "release_metrics": "hushgram.release_in_memory",
    "Metric": "hushgram.sparse_histogram.metrics",
    "release_public": "hushgram.release_in_memory",
    "Sketch": "hushgram.sketch.reader",
}
_MODULES = {
    "sampling": "hushgram.noise.sampling",
    "svt": "hushgram.svt",
    "pmw": "hushgram.pmw",
    "selection": "hushgram.selection",
    "exponential": "hushgram.selection.exponential",
    "permute_and_flip": "hushgram.selection.permute_and_flip",
    "noisy_max": "hushgram.selection.noisy_max",
    "randomized_response": "hushgram.randomized_response.mechanism",
    "laplace": "hushgram.laplace_mechanism",
    "sensitivity": "hushgram.sensitivity",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(_MODULES[name])
    raise AttributeError(f"module 'hushgram' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
