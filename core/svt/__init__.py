"""The sparse vector technique: which queries of a long stream are large? Paid by those few, not by all.

Everything public about it in one place; also importable as ``hushgram.svt``. See docs/svt.md.
"""

from __future__ import annotations

from hushgram.svt.accuracy import (
    alpha,
    error_ratio,
    gap_estimate,
    gap_variance,
    measure,
    refine,
    theorem_2,
    theorem_4,
    theorem_alpha,
)
from hushgram.svt.mechanism import (
    ABOVE,
    BELOW,
    HALTED,
    AboveThreshold,
    Answer,
    AnswerArrays,
    NumericSparse,
    Sparse,
    run_batch,
)
from hushgram.svt.params import Noise, SvtParams, privacy_loss, run_loss

__all__ = [
    "ABOVE", "BELOW", "HALTED", "AboveThreshold", "Answer", "AnswerArrays", "Noise", "NumericSparse", "Sparse",
    "SvtParams", "alpha", "error_ratio", "gap_estimate", "gap_variance", "measure", "privacy_loss", "refine",
    "run_batch", "run_loss", "theorem_2", "theorem_4", "theorem_alpha",
]  # fmt: skip
