"""The answers of a query job as JSON lines: a header, a line a query, a line for each stream that halted.

    {"hushgram": "queries", "version": 1, "name": ..., "guarantee": {...}, "streams": [{...}]}
    {"stream": "alerts", "id": "q1", "seq": 0, "above": false}
    {"stream": "alerts", "id": "q2", "seq": 1, "above": true, "gap": 41}
    {"stream": "alerts", "halted": true, "after": "q2", "unanswered": 9998}

Everything in it is public: parameters, and what the mechanism released.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems

from hushgram.numbers import show
from hushgram.svt.accuracy import alpha, theorem_alpha
from hushgram.svt.gap import refine
from hushgram.svt.mechanism import ABOVE, HALTED
from hushgram.svt.params import SvtParams
from hushgram.svt.queries import default_id
from hushgram.transforms.sparse_vector import StreamAnswers

__all__ = ["Header", "StreamHeader", "WriteAnswers", "accuracy", "guarantee_words", "lines"]

VERSION = 1


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


@dataclass(frozen=True)
class Header:
    """The public description of a job."""

    name: str
    epsilon: Fraction
    delta: Fraction
    unit: str
    max_contributions: int
    max_per_key: int
    streams: tuple[StreamHeader, ...]

    def fields(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "hushgram": "queries",
            "version": VERSION,
            "name": self.name,
            "guarantee": {
                "epsilon": show(self.epsilon),
                "delta": show(self.delta),
                "unit": self.unit,
                "max_contributions": self.max_contributions,
                "max_per_key": self.max_per_key,
                "words": guarantee_words(self),
            },
            "streams": [
                {
                    "stream": stream.name,
                    "queries": stream.size,
                    "mechanism": "above_threshold" if stream.params.cutoff == 1 else "sparse",
                    **stream.params.describe(),
                    "accuracy": accuracy(stream.params, stream.size, stream.beta),
                }
                for stream in self.streams
            ],
        }


def guarantee_words(header: Header) -> str:
    """The guarantee in one sentence."""
    kind = f"{show(header.epsilon)}-differentially private"
    if header.delta:
        kind = f"({show(header.epsilon)}, {show(header.delta)})-differentially private"
    bound = (
        f"; each user counts at most {header.max_contributions} times in all"
        f" and {header.max_per_key} for one key"
        if header.unit == "user"
        else ""
    )
    return f"All answers together are {kind} for one {header.unit} added or removed{bound}."


def accuracy(params: SvtParams, queries: int, beta: Fraction) -> dict[str, Any]:
    """α at this β: of the mechanism as it runs, and of the notes' theorem for the same parameters."""
    return {
        "beta": show(beta),
        "alpha": alpha(params, queries, beta),
        "alpha_of_theorem": theorem_alpha(params, queries, beta),
        "words": "with probability 1 - beta, an answer whose exact count is further than alpha from the "
        "threshold is right, provided at most cutoff queries reach threshold - alpha",
    }


def lines(header: Header, released: Iterable[tuple[str, StreamAnswers]]) -> Iterator[str]:
    """The file, line by line; streams in the order of the header."""
    found = dict(released)
    yield json.dumps(header.fields(), ensure_ascii=False)
    for stream in header.streams:
        yield from _stream_lines(stream, found[stream.name])


def _stream_lines(stream: StreamHeader, released: StreamAnswers) -> Iterator[str]:
    params = stream.params
    answered = int(np.sum(released.outcome != HALTED))
    estimates = refine(params, released.gap, released.value) if params.answers == "numeric" else None
    numbers = released.sequence.tolist()
    ids = [default_id(number) for number in numbers] if stream.ids is None else stream.ids
    for i in range(answered):
        above = bool(released.outcome[i] == ABOVE)
        fields: dict[str, Any] = {
            "stream": stream.name,
            "id": ids[i],
            "seq": numbers[i],
            "above": above,
        }
        if above and params.answers != "none":
            fields["gap"] = int(released.gap[i])
        if above and estimates is not None:
            fields["value"] = int(released.value[i])
            fields["estimate"] = round(float(estimates[i]), 1)
        yield json.dumps(fields, ensure_ascii=False)
    if int(np.sum(released.outcome == ABOVE)) >= params.cutoff:
        left = stream.size - answered
        last = ids[answered - 1]
        halted = {"stream": stream.name, "halted": True, "after": last, "unanswered": left}
        yield json.dumps(halted, ensure_ascii=False)


class WriteAnswers(beam.PTransform):
    """(stream, `StreamAnswers`) → one file of JSON lines. Written again on a retry, with the same bytes."""

    def __init__(self, path: str, header: Header) -> None:
        super().__init__()
        self._path, self._header = path, header

    def expand(self, released: Any) -> Any:
        return (
            released
            | "Together" >> beam.combiners.ToList()
            | "Write" >> beam.Map(_write, self._path, self._header)
        )


def _write(released: list[tuple[str, StreamAnswers]], path: str, header: Header) -> str:
    with FileSystems.create(path, mime_type="text/plain") as file:
        for line in lines(header, released):
            file.write(line.encode() + b"\n")
    return path
