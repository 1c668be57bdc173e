"""``hushgram.noisy_max``: report noisy max by permute-and-flip. The code lives in
`hushgram.mechanisms.noisy_max`.
"""

from __future__ import annotations

from hushgram.mechanisms.noisy_max import *  # noqa: F403
from hushgram.mechanisms.noisy_max import __all__ as __all__
