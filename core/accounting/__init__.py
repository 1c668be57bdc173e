"""What a release costs, and what many of them cost together.

    events = [Event("sizing", "0.02"), Event("threshold", "0.49"), Event("alp", "0.49")]
    total([*earlier, *events], Budget(10, "1e-6")).epsilon     # the better of two proofs, never too small
    fits([*earlier, *events], Budget(10, "1e-6"))              # right also where ε follows from earlier outputs

`events` holds the records, `composition` the sums, `guarantee` what one release promises, in words. Importing
this package is cheap: dp-accounting (and with it SciPy) is loaded only when a privacy loss distribution is
really computed.
"""

from __future__ import annotations

from hushgram.accounting.composition import CONDITIONS, Budget, TotalLoss, fits, further, largest_scale, total
from hushgram.accounting.events import KINDS, RELATIONS, Cost, Event, Spending, spending
from hushgram.accounting.guarantee import Guarantee

__all__ = [
    "CONDITIONS", "KINDS", "RELATIONS", "Budget", "Cost", "Event", "Guarantee", "Spending", "TotalLoss", "fits",
    "further", "largest_scale", "spending", "total",
]  # fmt: skip
