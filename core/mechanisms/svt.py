"""The sparse vector technique: which queries of a long stream are large? Paid by those few, not by all.

Everything public about it in one place; also importable as ``hushgram.svt``. See docs/svt.md.
"""

from __future__ import annotations

from hushgram.mechanisms.svt_accuracy import alpha, theorem_2, theorem_4, theorem_alpha
from hushgram.mechanisms.svt_gap import error_ratio, gap_estimate, gap_variance, measure, refine
from hushgram.mechanisms.svt_mechanism import (
    ABOVE,
    BELOW,
    HALTED,
    AboveThreshold,
    Answer,
    Answers,
    NumericSparse,
    Sparse,
    run_batch,
)
from hushgram.mechanisms.svt_params import Noise, SvtParams, privacy_loss, run_loss
from hushgram.mechanisms.svt_stream import StreamState, advance, begin, recall

__all__ = [
    "ABOVE",
    "BELOW",
    "HALTED",
    "AboveThreshold",
    "Answer",
    "Answers",
    "Noise",
    "NumericSparse",
    "Sparse",
    "StreamState",
    "SvtParams",
    "advance",
    "alpha",
    "begin",
    "error_ratio",
    "gap_estimate",
    "gap_variance",
    "measure",
    "privacy_loss",
    "recall",
    "refine",
    "run_batch",
    "run_loss",
    "theorem_2",
    "theorem_4",
    "theorem_alpha",
]
