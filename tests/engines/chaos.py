"""A release whose stages fail on their first tries: run by the interpreter of the wheel, on any runner.

    python chaos.py SPEC.json BEAM_OPTIONS…

SPEC names the input, the target, the key and a plan of failures. A failure is the name of a DoFn or CombineFn
of hushgram.transforms, a moment, and what happens there:

    {"stage": "write_sketch._WriteBlocks", "when": "after", "what": "throw"}
    {"stage": "encode_counts._Project", "when": "before", "what": "die"}    # whoever watches is asked to kill it

`before` is the start of a bundle, `after` its end, when its output has been made. Each failure happens once,
whatever worker comes first: the directory SPEC["marks"] remembers it across processes. Production code has no
hook for this: the stages are replaced by subclasses of this main module, which travel to the workers by
value.
"""

import contextlib
import functools
import importlib
import inspect
import json
import os
import pkgutil
import sys
import time
from typing import Any

import apache_beam as beam

import hushgram.transforms
from hushgram.inputs.source import Source
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.jobs.release import run_release
from hushgram.pipelines.run.beam_runners import pipeline_options
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.transforms.read_records import plan_records

WAIT_SECONDS = 30.0


def strike(stage: str, when: str, marks: str, failures: list[dict[str, str]]) -> None:
    """The failures that are planned for this place and have not happened yet, one a call."""
    for number, failure in enumerate(failures):
        if (failure["stage"], failure["when"]) != (stage, when):
            continue
        try:
            mark = os.open(f"{marks}/{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            continue
        os.write(mark, str(os.getpid()).encode())
        os.close(mark)
        if failure["what"] == "throw":
            raise RuntimeError(f"planned failure {number} in {stage}")
        os.rename(f"{marks}/{number}", f"{marks}/{number}.die")  # the pid is in it whole
        open(f"{marks}/{number}", "x").close()
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end and not os.path.exists(f"{marks}/{number}.done"):
            time.sleep(0.05)
        raise RuntimeError(f"planned failure {number} in {stage}: outlived its TaskManager")
    return


def striking(cls: type, stage: str, marks: str, failures: list[dict[str, str]]) -> type:
    """`cls` with the planned failures at the start and end of its work."""
    hit = functools.partial(strike, stage, marks=marks, failures=failures)
    if issubclass(cls, beam.CombineFn):

        class Combine(cls):  # type: ignore[misc, valid-type]
            def extract_output(self, *given: Any) -> Any:
                hit(when="before")
                result = super().extract_output(*given)
                hit(when="after")
                return result

        return Combine

    class Do(cls):  # type: ignore[misc, valid-type]
        def start_bundle(self) -> Any:
            hit(when="before")
            return super().start_bundle()

        def finish_bundle(self) -> Any:
            last = list(super().finish_bundle() or ())
            hit(when="after")
            return last

    return Do


def plant(marks: str, failures: list[dict[str, str]]) -> None:
    """Replaces every stage that a failure names; a name that is not there is a mistake of the test."""
    wanted = {failure["stage"] for failure in failures}
    for info in pkgutil.iter_modules(hushgram.transforms.__path__):
        module = importlib.import_module(f"hushgram.transforms.{info.name}")
        for name, cls in list(vars(module).items()):
            stage = f"{info.name}.{name}"
            if stage in wanted and inspect.isclass(cls) and issubclass(cls, (beam.DoFn, beam.CombineFn)):
                setattr(module, name, striking(cls, stage, marks, failures))
                wanted.remove(stage)
    if wanted:
        raise SystemExit(f"no such stage: {', '.join(sorted(wanted))}")


def main(spec_path: str, *beam_options: str) -> None:
    with open(spec_path) as file:
        spec = json.load(file)
    plant(spec["marks"], spec["failures"])
    with open(spec["key"]) as file:
        release_key = ReleaseKey.from_hex(file.read())
    run_release(
        ReleaseParams(epsilon=spec["epsilon"], max_contributions=6, max_per_key=2),
        plan_records([spec["input"]], Source(ids=("user", "url"))),
        user="user",
        key="url",
        path=spec["target"],
        name="pages",
        release_key=release_key,
        options=pipeline_options(beam_options),
    )


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
