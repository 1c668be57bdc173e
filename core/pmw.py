"""``hushgram.pmw``: online private multiplicative weights. The code lives in `hushgram.mechanisms.pmw`."""

from __future__ import annotations

from hushgram.mechanisms.pmw import *  # noqa: F403
from hushgram.mechanisms.pmw import __all__ as __all__
