"""Parameters as they are once users were counted."""

from __future__ import annotations

from hushgram.sparse_histogram.params import Params
from hushgram.sparse_histogram.users import UserHistogram


def with_nobody(params: Params) -> Params:
    """Return the parameters with the histogram over users of an empty data set, where they have one; without noise."""
    if not params.counts_users:
        return params
    ends = params.user_ends
    return params.with_users(UserHistogram(ends, (0,) * len(ends), 1 / params.split.users))
