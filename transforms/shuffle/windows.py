"""One window for everything: a release has no windows.

A mechanism that ran once for each window would spend its ε in each of them, bounds on a user's contributions
would hold in each of them alone, and equal windows would get equal noise. So every stage that adds up or
draws noise puts its input into the global window first, whatever windows and triggers it came with. Windows
that overlap are refused: Beam repeats an element for each of its windows, and one record would count twice.
"""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import FixedWindows, GlobalWindows, Sessions

from hushgram.errors import ParameterError

__all__ = ["OneWindow"]

#: Window functions that give every element exactly one window.
_DISJOINT = (GlobalWindows, FixedWindows, Sessions)


class OneWindow(beam.PTransform):
    """The same elements in the global window, with the default trigger."""

    def expand(self, elements: Any) -> Any:
        windows = elements.windowing.windowfn
        if not isinstance(windows, _DISJOINT):
            raise ParameterError(
                f"{self.label}: the input is in {type(windows).__name__}, where a record may count several "
                "times; release from data that are not in overlapping windows"
            )
        whole = elements | "AllTime" >> beam.WindowInto(GlobalWindows())
        whole.element_type = elements.element_type
        return whole
