"""All that a lookup can find, as few outcomes with exact probabilities: classes of symbols beside ranges of values.

An outcome is a class of the encoding's symbols beside "not listed" or beside a range of listed values. Its
probability given a count is the sum over its parts, so whatever is built on outcomes stays exact however coarse
they are. Probabilities keep their digits however small they are: each range is a difference of the nearer tail.
"""

from __future__ import annotations

import numpy as np

from hushgram.decoding.constants import FINE, TOP
from hushgram.decoding.evidence import Evidence
from hushgram.decoding.released import Floats, Ints, Released

__all__ = ["OutcomeTable"]


class OutcomeTable:
    """Outcomes of one release, in ranges of values of 1/FINE noise scale up to twice the reach above the bound.

    The reach is TOP noise scales, or ``least`` where that is more.
    """

    def __init__(self, released: Released, evidence: Evidence, least: int = 0) -> None:
        self.released, self.evidence = released, evidence
        reach = max(int(np.ceil(TOP * released.noise.scale)), least)
        self.top = released.bound + reach
        self.step = max(1, int(released.noise.scale / FINE))
        # Ranges of values; the last one is open.
        self.cuts = np.arange(released.bound, self.top + reach + self.step + 1, self.step)
        self.hidden = self.listed = 0  # classes of keys that are not listed, and beside each range of values

    def chances(self, counts: Floats) -> Floats:
        """(X,) counts → (X, outcomes) probabilities."""
        released, cuts = self.released, self.cuts.astype(np.float64)
        at = np.ceil(cuts - counts[:, None])
        over, under = released.noise.tail(at), released.noise.tail(1.0 - at)  # P(Z ≥ at), P(Z < at)
        ranges = np.where(
            at >= 1, -np.diff(over, axis=1, append=0.0), np.diff(under, axis=1, append=1.0)
        )  # (X, V)
        if released.cells is None:
            ranges[counts <= 0] = 0.0
        hidden = self.evidence.hidden_classes(counts) * released.hidden(counts)[:, None]
        beside = self.evidence.listed_classes(counts, cuts + (self.step - 1) / 2.0)
        self.hidden, self.listed = hidden.shape[1], beside.shape[2]
        listed = (beside * ranges[:, :, None]).reshape(len(counts), -1)
        return np.concatenate([hidden, listed], axis=1)

    @property
    def open_end(self) -> int:
        """The first outcome of the last range of values, which has no upper end."""
        return self.hidden + (len(self.cuts) - 1) * self.listed

    def index(self, symbols: Ints, values: Ints) -> Ints:
        """The outcome of each lookup; ``values`` is −1 where a key is not listed."""
        listed, value = values >= 0, np.maximum(values, 0)
        place = np.clip(np.searchsorted(self.cuts, value, side="right") - 1, 0, len(self.cuts) - 1)
        beside = self.hidden + place * self.listed + self.evidence.listed_class(symbols, value)
        return np.where(listed, beside, self.evidence.hidden_class(symbols))
