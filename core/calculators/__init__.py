"""Every theorem of the documents as a calculator: pure functions of public numbers. `hushgram calculate NAME …`.

A calculator is one function, whose keyword arguments are its options, and one line in `CALCULATORS`.
"""

from __future__ import annotations

from collections.abc import Callable

from hushgram.calculators.calculation import Beside, Calculation
from hushgram.calculators.composition import advanced_composition, pure_to_zcdp, rdp_to_dp, zcdp_to_dp
from hushgram.calculators.laplace import laplace_error, laplace_histogram, laplace_records
from hushgram.calculators.sparse_vector import above_threshold, pmw_records, sparse

__all__ = ["CALCULATORS", "Beside", "Calculation"]

CALCULATORS: dict[str, Callable[..., Calculation]] = {
    "advanced-composition": advanced_composition,
    "zcdp": zcdp_to_dp,
    "rdp": rdp_to_dp,
    "pure-to-zcdp": pure_to_zcdp,
    "laplace-error": laplace_error,
    "laplace-records": laplace_records,
    "laplace-histogram": laplace_histogram,
    "above-threshold": above_threshold,
    "sparse": sparse,
    "pmw-records": pmw_records,
}
