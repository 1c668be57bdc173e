"""An online query stream on any streaming runner: files dropped into a directory in, answers out.

    python stream.py SPEC.json BEAM_OPTIONS…

Each dropped file holds JSON lines {"stream", "sequence", "key"}. The exact answer is looked up in the
counts of SPEC, the online sparse vector stage answers, and every answer that leaves the stage becomes a
file of its own, named by stream and sequence number and a fresh token: what was ever let out can be seen,
twice if let out twice.
"""

import json
import os
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io import fileio

from hushgram.mechanisms.svt.params import SvtParams
from hushgram.noise.entropy import InteractiveKey
from hushgram.pipelines.run.beam_runners import new_pipeline, pipeline_options
from hushgram.transforms.sparse_vector import SparseVector, StreamAnswers


class Look(beam.DoFn):
    """A dropped file → (stream, (sequence, exact answer))."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts

    def process(self, file: Any) -> Iterator[tuple[str, tuple[int, int]]]:
        for line in file.read_utf8().splitlines():
            query = json.loads(line)
            yield query["stream"], (query["sequence"], self._counts.get(query["key"], 0))


class Keep(beam.DoFn):
    """(stream, StreamAnswers) → one file for each answer."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def process(self, element: tuple[str, StreamAnswers]) -> None:
        stream, released = element
        for number, outcome, gap, value in zip(*(part.tolist() for part in released), strict=True):
            token = uuid.uuid4().hex
            hidden = f"{self._directory}/.{token}"
            with open(hidden, "w") as file:
                json.dump([outcome, gap, value], file)
            os.rename(hidden, f"{self._directory}/{stream}-{number}.{token}")


def main(spec_path: str, *beam_options: str) -> None:
    with open(spec_path) as file:
        spec = json.load(file)
    with open(spec["key"]) as file:
        release_key = InteractiveKey(bytes.fromhex(file.read().strip()))
    params = {name: SvtParams(**spec["svt"]) for name in spec["streams"]}
    pipeline = new_pipeline(pipeline_options(beam_options))
    _ = (
        pipeline
        | "Drop" >> fileio.MatchContinuously(f"{spec['drop']}/*.jsonl", interval=0.5)
        | "Open" >> fileio.ReadMatches()
        | "Look" >> beam.ParDo(Look(spec["counts"])).with_output_types(tuple[str, tuple[int, int]])
        | "Answer" >> SparseVector(params, release_key=release_key, online=True)
        | "Keep" >> beam.ParDo(Keep(spec["out"]))
    )
    pipeline.run().wait_until_finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
