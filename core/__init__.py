"""hushgram: differentially private histograms over huge key domains, as small sketches that anyone may query.

For neighbouring data sets D, D' (one user added or removed) and every set S of sketches,

    P[release(D) ∈ S] ≤ e^ε · P[release(D') ∈ S] + δ,

where each user counts at most ``max_contributions`` in all. What is *not* protected: the parameters, the names of
columns, that a release took place, and whatever the operator's terminal shows as exact.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hushgram import errors, ledger, planner, sensitivity
    from hushgram.mechanisms import laplace, pmw, selection, svt
    from hushgram.mechanisms.randomized_response import mechanism as randomized_response
    from hushgram.noise import sampling
    from hushgram.noise.entropy import InteractiveKey, ReleaseKey, os_entropy
    from hushgram.planning import plan
    from hushgram.release_in_memory import release, release_histogram, release_metrics, release_public
    from hushgram.sketch.reader import Sketch, Total
    from hushgram.sparse_histogram.params import ReleaseParams, Threshold, Weights
    from hushgram.sparse_histogram.spec import Metric

__all__ = [
    "InteractiveKey", "Metric", "ReleaseKey", "ReleaseParams", "Sketch", "Threshold", "Total", "Weights",
    "__version__", "errors",
    "laplace", "ledger", "os_entropy", "plan", "planner", "pmw",
    "randomized_response", "release", "release_histogram", "release_metrics", "release_public", "sampling", "selection",
    "sensitivity", "svt",
]  # fmt: skip
__version__ = "0.2.0"

# Loaded on first use, so that `hushgram query` does not wait for what it does not need. Type checkers see the imports
# above and no `__getattr__`: to them a name that is not public is an error.
if not TYPE_CHECKING:
    _OBJECTS = {
        "hushgram.noise.entropy": ("InteractiveKey", "ReleaseKey", "os_entropy"),
        "hushgram.planning": ("plan",),
        "hushgram.release_in_memory": ("release", "release_histogram", "release_metrics", "release_public"),
        "hushgram.sketch.reader": ("Sketch", "Total"),
        "hushgram.sparse_histogram.params": ("ReleaseParams", "Threshold", "Weights"),
        "hushgram.sparse_histogram.spec": ("Metric",),
    }
    _HOME = {name: module for module, names in _OBJECTS.items() for name in names}
    _MODULES = {
        "errors": "hushgram.errors",
        "laplace": "hushgram.mechanisms.laplace",
        "ledger": "hushgram.ledger",
        "planner": "hushgram.planner",
        "pmw": "hushgram.mechanisms.pmw",
        "randomized_response": "hushgram.mechanisms.randomized_response.mechanism",
        "sampling": "hushgram.noise.sampling",
        "selection": "hushgram.mechanisms.selection",
        "sensitivity": "hushgram.sensitivity",
        "svt": "hushgram.mechanisms.svt",
    }

    def __getattr__(name):
        """Import a public name when it is first used."""
        if name in _HOME or name in _MODULES:
            from hushgram.errors import naming_extras

            with naming_extras():
                module = import_module(_HOME.get(name) or _MODULES[name])
            return getattr(module, name) if name in _HOME else module
        raise AttributeError(f"module 'hushgram' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
