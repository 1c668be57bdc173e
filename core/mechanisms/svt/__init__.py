"""The sparse vector technique: which queries of a long stream are large? It pays for those alone (docs/svt.md)."""

from __future__ import annotations

from hushgram.mechanisms.svt.accuracy import (
    alpha,
    error_ratio,
    measure,
    refine,
    theorem_2,
    theorem_4,
    theorem_alpha,
)
from hushgram.mechanisms.svt.histogram import HistogramParams
from hushgram.mechanisms.svt.mechanism import (
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
from hushgram.mechanisms.svt.params import NoiseScales, SvtParams, margin_for, privacy_map, run_loss

__all__ = [
    "ABOVE", "BELOW", "HALTED", "AboveThreshold", "Answer", "AnswerArrays", "HistogramParams", "NoiseScales",
    "NumericSparse", "Sparse", "SvtParams", "alpha", "error_ratio", "margin_for", "measure", "privacy_map", "refine",
    "run_batch", "run_loss", "theorem_2", "theorem_4", "theorem_alpha",
]  # fmt: skip
