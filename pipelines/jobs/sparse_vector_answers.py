"""The answers of a sparse-vector job as JSON lines: a header, a line a query, a line for each stream that halted.

    {"hushgram": "sparse-vector", "version": 1, "name": ..., "guarantee": {...}, "streams": [{...}]}
    {"stream": "alerts", "id": "q1", "seq": 0, "above": false}
    {"stream": "alerts", "id": "q2", "seq": 1, "above": true, "gap": 41}
    {"stream": "alerts", "halted": true, "after": "q2", "unanswered": 9998}

Everything in it is public: parameters, and what the mechanism released.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgram.numbers import show
from hushgram.svt.accuracy import alpha, refine, theorem_alpha
from hushgram.svt.mechanism import ABOVE, HALTED
from hushgram.svt.params import SvtParams
from hushgram.svt.queries import default_id

if TYPE_CHECKING:
    from hushgram.transforms.sparse_vector import StreamAnswers

__all__ = ["StreamHeader", "accuracy", "answer_lines"]


@dataclass(frozen=True)
class StreamHeader:
    """One stream as the header describes it; of its queries only the ids travel to the worker that writes.

    ``ids`` is None where all queries have the name that their sequence number gives.
    """

    name: str
    size: int
    ids: tuple[str, ...] | None
    params: SvtParams
    beta: Fraction

    def fields(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "stream": self.name,
            "queries": self.size,
            "mechanism": "above_threshold" if self.params.cutoff == 1 else "sparse",
            **self.params.describe(),
            "accuracy": accuracy(self.params, self.size, self.beta),
        }


def accuracy(params: SvtParams, queries: int, beta: Fraction) -> dict[str, Any]:
    """α at this β: of the mechanism as it runs, and of the textbook's theorem for the same parameters."""
    return {
        "beta": show(beta),
        "alpha": alpha(params, queries, beta),
        "alpha_of_theorem": theorem_alpha(params, queries, beta),
        "words": "with probability 1 - beta, an answer whose exact count is further than alpha from the "
        "threshold is right, provided at most cutoff queries reach threshold - alpha",
    }


def answer_lines(
    header: Mapping[str, Any], streams: Iterable[StreamHeader], released: Mapping[str, StreamAnswers]
) -> Iterator[dict[str, Any]]:
    """The file, line by line; streams in the order of the header."""
    held = list(streams)
    yield {**header, "streams": [stream.fields() for stream in held]}
    for stream in held:
        yield from _stream_lines(stream, released[stream.name])


def _stream_lines(stream: StreamHeader, released: StreamAnswers) -> Iterator[dict[str, Any]]:
    params = stream.params
    answered = int(np.sum(released.outcome != HALTED))
    estimates = refine(params, released.gap, released.value) if params.answers == "numeric" else None
    numbers = released.sequence.tolist()
    ids = [default_id(number) for number in numbers] if stream.ids is None else stream.ids
    for i in range(answered):
        above = bool(released.outcome[i] == ABOVE)
        fields: dict[str, Any] = {"stream": stream.name, "id": ids[i], "seq": numbers[i], "above": above}
        if above and params.answers != "none":
            fields["gap"] = int(released.gap[i])
        if above and estimates is not None:
            fields["value"] = int(released.value[i])
            fields["estimate"] = round(float(estimates[i]), 1)
        yield fields
    if int(np.sum(released.outcome == ABOVE)) >= params.cutoff:
        left = stream.size - answered
        yield {"stream": stream.name, "halted": True, "after": ids[answered - 1], "unanswered": left}
