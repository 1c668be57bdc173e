"""The budget of a ledger, for a page."""

from __future__ import annotations

from hushgram.errors import ParameterError
from hushgram.ledger import Ledger, Release, Summary, summarise

__all__ = ["read_budget"]


def read_budget(url: str, dataset: str | None) -> tuple[Summary, list[Release]]:
    """The summary and the history of one data set; the only one where none is named."""
    with Ledger(url) as ledger:
        names = [found.name for found in ledger.datasets()]
        if dataset is None:
            if len(names) != 1:
                raise ParameterError(
                    f"the ledger has {len(names)} data sets ({', '.join(names)}); name one with --dataset"
                )
            dataset = names[0]
        return summarise(ledger, dataset), ledger.history(dataset)
