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
write to; `run.output` is the same as text, for jobs whose workers may be other machines. Leaving without
`publish` gives the reservation back if the key was never asked for, and else keeps it for the next run of the
same id, which will get the same key and make the same bytes.

Without `dataset` the same calls work with a fresh key and no ledger, and the notes say so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hushgram.accounting import Event
from hushgram.errors import OutputError, ParameterError
from hushgram.noise.entropy import InteractiveKey, ReleaseKey, digest
from hushgram.pipelines.fingerprints import flatten
from hushgram.pipelines.output_places import Place, Shape, digest_work
from hushgram.pipelines.tracking import NO_LEDGER, Tracked, Untracked

if TYPE_CHECKING:
    from hushgram.ledger import Summary

__all__ = ["NO_LEDGER", "Run", "open_budget"]


def open_budget(
    *,
    job: str,
    events: Sequence[Event],
    target: str | Path | None,
    dataset: str | None = None,
    ledger: str | None = None,
    release: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    inputs: Iterable[str | Path] | Callable[[], Iterable[str | Path]] = (),
    users: str | None = None,
    shape: Shape = "directory",
    interactive: bool = False,
) -> Run:
    """A context manager around one release; see the module's example.

    `job` is the kind of job ("release", "sparse-vector", "clip", …). `parameters` are all public
    choices that can change the output, nested as in the config. `inputs` are paths, folders or patterns, or a
    function that gives the files that the job will read; it is called once the budget is known to suffice.
    `users` names the part of the users whose records alone are used (`UserPart.name`). `target` None is for jobs that
    print: use `run.publish_text`. `interactive` is for mechanisms that answer questions as they come
    (`LaplaceAnswers`, `OnlinePMW`): their key is `run.interactive_key`, handed out once. A run that ends without
    publishing cannot be taken up again, since other questions under the same key would average its noise away; its
    charge stays.
    """
    if dataset is None:
        if ledger is not None:
            raise ParameterError("ledger is set but dataset is not; name the data set whose budget is spent")
        return Run(Untracked(job, target, shape, interactive), shape)
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
            inputs=inputs,
            target=target,
            users=users,
            shape=shape,
            resumable=not interactive,
        ),
        shape,
    )


class Run:
    """One run of a job, tracked by a ledger or not. Made by `open_budget`."""

    def __init__(self, backing: Tracked | Untracked, shape: Shape) -> None:
        self._backing, self._shape = backing, shape
        self._work: str | None = None
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
        if self._work is not None and not self._published:
            self._place().discard(self._work)
        self._backing.leave()

    def look(self) -> str:
        """For ``--check``: what entering would say, in one line; raises what it would raise. Charges nothing."""
        return self._backing.look()

    @property
    def aftermath(self) -> str | None:
        """After leaving a run that failed: what became of its charge, and what to do. None where nothing did."""
        return self._backing.aftermath

    @property
    def tracked(self) -> bool:
        """Whether a ledger counts this run."""
        return isinstance(self._backing, Tracked)

    @property
    def key(self) -> ReleaseKey:
        """The release key. The first call is the point from which noise may exist."""
        if self._backing.interactive:
            raise ParameterError(
                "run.key: this run was opened with interactive=True; use run.interactive_key"
            )
        found = self._backing.key()
        assert isinstance(found, ReleaseKey)
        return found

    @property
    def interactive_key(self) -> InteractiveKey:
        """The key of a run that was opened with ``interactive=True``; as with `key`, noise may exist from here on."""
        if not self._backing.interactive:
            raise ParameterError("run.interactive_key: open the budget with interactive=True, or use run.key")
        found = self._backing.key()
        assert isinstance(found, InteractiveKey)
        return found

    @property
    def path(self) -> Path:
        """Where to write: an empty directory, or a file in one that does not exist yet."""
        if self._work is None:
            self._work = str(self._place().workdir(self._backing.token))
        return Path(self._work, self._backing.name) if self._shape == "file" else Path(self._work)

    @property
    def output(self) -> str:
        """As `path`, but a folder of the object store where the target is in one: for workers elsewhere."""
        if self._work is None:
            self._work = self._place().workplace(self._backing.token)
        return f"{self._work}/{self._backing.name}" if self._shape == "file" else self._work

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
        place, work = self._place(), self._work
        if work is None:
            raise OutputError("nothing was written; write to run.path before run.publish()")
        self._backing.prepare(digest_work(work, self._backing.name if self._shape == "file" else None))
        place.publish(work)
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

    def _place(self) -> Place:
        if self._backing.place is None:
            raise OutputError("this job has no output path; set output.path")
        return self._backing.place
