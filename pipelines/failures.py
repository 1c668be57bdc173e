"""What went wrong on a worker, as the error that was raised there.

A runner hands a worker's exception on as text, with the worker's stack trace in it. For the user's own mistakes the class
and the message are enough, so they are read back from that text.
"""

from __future__ import annotations

import re

from hushgram import errors
from hushgram.errors import HushgramError

__all__ = ["as_hushgram_error"]

_RAISED = re.compile(r"hushgram\.errors\.([A-Za-z]+): ([^\n]*)")
# Beam adds where it happened, which means nothing to the user: "... [while running 'Release/Bound/CutBatches-ptransform-12']"
_WHILE = re.compile(r" \[while running '[^']*'\]| \[error_at=[^\]]*\]")


def as_hushgram_error(problem: BaseException) -> HushgramError | None:
    """The hushgram error behind ``problem``: itself, one of its causes, or one that its text quotes; else None."""
    seen: BaseException | None = problem
    while seen is not None:
        if isinstance(seen, HushgramError):
            return type(seen)(_WHILE.sub("", str(seen)))
        seen = seen.__cause__ or seen.__context__
    found = _RAISED.findall(str(problem))
    for name, message in found:
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, HushgramError):
            return kind(_WHILE.sub("", message).strip().removesuffix("\\n"))
    return None
