"""Decoding of a released sketch: post-processing, so free of privacy cost.

>>> # decoder = Decoder(released); decoder.estimate(bits, values, listed)
"""

from hushgram.decoding.decoder import Decoder
from hushgram.decoding.released import Released

__all__ = ["Decoder", "Released"]
