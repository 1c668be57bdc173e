"""Decoding of a released sketch: post-processing, so free of privacy cost.

>>> # decoder = Decoder(released, evidence); decoder.estimate(found, values, listed)
"""

from hushgram.decoding.alp import AlpEvidence
from hushgram.decoding.buckets import BucketEvidence
from hushgram.decoding.decoder import Decoder
from hushgram.decoding.evidence import Evidence
from hushgram.decoding.released import Released

__all__ = ["AlpEvidence", "BucketEvidence", "Decoder", "Evidence", "Released"]
