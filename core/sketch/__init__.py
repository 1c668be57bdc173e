"""The sketch on disk: FORMAT.md specifies it, `writer` writes it, `reader` answers from it."""

from hushgram.sketch.reader import Sketch, Total

__all__ = ["Sketch", "Total"]
