"""Selection: the largest of a list of scores, or the c largest, privately; by three mechanisms. See docs/answers.md."""

from __future__ import annotations

from hushgram.selection.params import MECHANISMS, SelectionParams, privacy_map
from hushgram.selection.top import choose, top

__all__ = ["MECHANISMS", "SelectionParams", "choose", "privacy_map", "top"]
