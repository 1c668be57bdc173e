"""Decoding of a released sketch: post-processing, so free of privacy cost.

`Decoder(released, likelihood)` answers; `AlpLikelihood` and `BucketLikelihood` say what the encodings show of a count.
"""

from hushgram.decoding.alp import AlpLikelihood
from hushgram.decoding.buckets import BucketLikelihood
from hushgram.decoding.decoder import Decoder
from hushgram.decoding.likelihood import Likelihood, ReleasedNumbers, Top

__all__ = ["AlpLikelihood", "BucketLikelihood", "Decoder", "Likelihood", "ReleasedNumbers", "Top"]
