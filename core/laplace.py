"""``hushgram.laplace``: the Laplace mechanism and histogram. The code lives in
`hushgram.mechanisms.laplace`.
"""

from __future__ import annotations

from hushgram.mechanisms.laplace import *  # noqa: F403
from hushgram.mechanisms.laplace import __all__ as __all__
