"""The budget of one run: what a job does around its mechanism.

    with open_budget(
        job="release", dataset="pageviews", ledger="sqlite:///ledger.db", release="urls-2026-11-15",
        events=[Event("sizing", "0.02"), Event("threshold", "0.49"), Event("alp", "0.49")],
        parameters={"privacy": {"epsilon": Fraction(1)}, "input": {"key": "url"}},
        inputs=["data/2026-11-15/*.parquet"], target="out/urls-2026-11-15.sketch",
    ) as run:
        for note in run.notes:
            ...                 # tell the user: resumed, already done, or that nothing tracks this budget
        if run.done:
            return              # released before; what is published was verified just now
        write_sketch(run.path, key=run.key)
        run.publish()           # digest → prepare → one rename → commit (the key is erased)

Entering refuses what does not fit before any data is read, charges the ledger and takes up what an earlier
run of the same id left. `run.key` is the release key; asking for it is the point from which noise may exist.
`run.path` is an empty directory beside the target (or, with ``shape="file"``, the path of a file in one) to
write to. Leaving without `publish` gives the reservation back if the key was never asked for, and else keeps
it for the next run of the same id, which will get the same key and make the same bytes.

Without `dataset` the same calls work with a fresh key and no ledger, and the notes say so.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hushgram.accounting import Event
from hushgram.entropy import ReleaseKey, digest
from hushgram.errors import OutputError, ParameterError
from hushgram.pipelines.fingerprints import flatten
from hushgram.pipelines.publishing import Shape, digest_tree
from hushgram.pipelines.tracking import NO_LEDGER, Tracked, Untracked

if TYPE_CHECKING:
    from hushgram.ledger import Summary

__all__ = ["NO_LEDGER", "Run", "open_budget", "release_events"]


def release_events(split: Any, delta: Any = 0) -> list[Event]:
    """The events of a sketch release: its split of ε (`ReleaseParams.split`), δ with the threshold step."""
    events = [
        Event("sizing", split.size),
        Event("threshold", split.threshold, delta),
        Event("alp", split.alp),
    ]
    return [event for event in events if event.epsilon or event.delta]


def open_budget(
    *,
    job: str,
    events: Sequence[Event],
    target: str | Path | None,
    dataset: str | None = None,
    ledger: str | None = None,
    release: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    inputs: Iterable[str | Path] = (),
    users: str | None = None,
    shape: Shape = "directory",
) -> Run:
    """A context manager around one release; see the module's example.

    `job` is the kind of job ("release", "queries", "clip", "answer", "linear"). `parameters` are all public
    choices that can change the output, nested as in the config. `inputs` are paths, folders or patterns.
    `users` names a declared part of the users. `target` None is for jobs that print: use `run.publish_text`.
    """
    if dataset is None:
        if ledger is not None:
            raise ParameterError("ledger is set but dataset is not; name the data set whose budget is spent")
        return Run(Untracked(job, target, shape), shape)
    if not release:
        raise ParameterError("dataset is set but the job has no release id; write release: urls-{date}")
    return Run(
        Tracked(
            job=job,
            dataset=dataset,
            url=ledger,
            release=release,
            events=tuple(events),
            parameters=flatten(parameters or {}),
            inputs=tuple(inputs),
            target=target,
            users=users,
            shape=shape,
        ),
        shape,
    )


class Run:
    """One run of a job, tracked by a ledger or not. Made by `open_budget`."""

    def __init__(self, backing: Tracked | Untracked, shape: Shape) -> None:
        self._backing, self._shape = backing, shape
        self._workdir: Path | None = None
        self._published = False
        self.notes: list[str] = backing.notes
        self.done = False
        """True after entering where the release is published and committed: there is nothing to do."""

    def __enter__(self) -> Run:
        self.done = self._backing.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._workdir is not None and not self._published:
            shutil.rmtree(self._workdir, ignore_errors=True)
        self._backing.leave()

    @property
    def tracked(self) -> bool:
        """Whether a ledger counts this run."""
        return isinstance(self._backing, Tracked)

    @property
    def key(self) -> ReleaseKey:
        """The release key. The first call is the point from which noise may exist."""
        return self._backing.key()

    @property
    def path(self) -> Path:
        """Where to write: an empty directory, or a file in one that does not exist yet."""
        place = self._backing.place
        if place is None:
            raise OutputError("this job has no output path; set output.path")
        if self._workdir is None:
            self._workdir = place.workdir(self._backing.token)
        return self._workdir / self._backing.name if self._shape == "file" else self._workdir

    @property
    def reserved_at(self) -> str | None:
        """When the release was first reserved (the same on every rerun); None without a ledger."""
        return self._backing.reserved_at

    @property
    def summary(self) -> Summary | None:
        """The budget after this run, for metrics; None without a ledger."""
        return self._backing.summary()

    def publish(self) -> None:
        """Makes what was written visible, by one rename, and commits."""
        place, workdir = self._backing.place, self._workdir
        if place is None or workdir is None:
            raise OutputError("nothing was written; write to run.path before run.publish()")
        self._backing.prepare(_digest_of(workdir, self._backing.name, self._shape))
        place.publish(workdir)
        self._published = True
        self._backing.commit()
        self.done = True

    def publish_text(self, text: str) -> None:
        """For jobs that print: records the text's digest, prints it, and commits."""
        self._backing.prepare(digest(text).hex())
        sys.stdout.write(text)
        sys.stdout.flush()
        self._backing.commit()
        self.done = True


def _digest_of(workdir: Path, name: str, shape: Shape) -> str:
    path = workdir / name if shape == "file" else workdir
    if not path.exists():
        raise OutputError(f"nothing was written to {path}")
    return digest_tree(path)


