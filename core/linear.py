"""``hushgram.linear``: randomized response for linear queries. The code lives in
`hushgram.mechanisms.linear`.
"""

from __future__ import annotations

from hushgram.mechanisms.linear import *  # noqa: F403
from hushgram.mechanisms.linear import __all__ as __all__
