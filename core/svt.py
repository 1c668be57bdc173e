"""``hushgram.svt``: the sparse vector technique. The code lives in `hushgram.mechanisms.svt`."""

from __future__ import annotations

from hushgram.mechanisms.svt import *  # noqa: F403
from hushgram.mechanisms.svt import __all__ as __all__
