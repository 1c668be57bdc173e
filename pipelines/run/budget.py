"""The budget of one run: what a job does around its mechanism.

    with open_budget(
        job="release", dataset="pageviews", ledger="sqlite:///ledger.db", release="urls-2026-11-15",
        events=[Event("sizing", "0.02"), Event("threshold", "0.49"), Event("alp", "0.49")],
        parameters={"privacy": {"epsilon": Fraction(1)}, "input": {"key": "url"}},
        inputs=["data/2026-11-15/*.parquet"], target="out/urls-2026-11-15.sketch",
    ) as run:
        for note in run.notes:
            ...                 # tell the user: resumed, already released, or not tracked by a ledger
        if run.done:
            return              # released before; what is published was verified just now
        write_sketch(run.path, key=run.key)
        run.publish()           # digest → prepare → one rename → commit (the key is erased)

Entering refuses what does not fit before any data is read, charges the ledger and resumes what an earlier run of the
same id left. `run.key` is the release key; noise may exist from the first time it is read. Leaving without `publish`
refunds the reservation if the key was never read, and otherwise keeps it for the next run of the same id, which gets
the same key and writes the same bytes.

Without `dataset` the same calls work with a fresh key and no ledger, and the notes say so. SQLAlchemy is imported only
by a run with a ledger.

A rerun must request the same release. It is compared by its parameters and by its inputs (`input_fingerprints`). If the
earlier run submitted a job to an engine that may still run, `run.earlier_job` names it: wait for it, then call
`run.adopt`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from hushgram.accounting import Event
from hushgram.errors import HushgramError, InputError, LedgerError, OutputError, ParameterError
from hushgram.noise.entropy import InteractiveKey, ReleaseKey
from hushgram.numbers import show
from hushgram.pipelines.run.input_fingerprints import fingerprint_inputs
from hushgram.pipelines.run.outputs import Output, Shape, digest_of, output_at
from hushgram.processes import Owner

if TYPE_CHECKING:
    from hushgram.inputs import InputFile
    from hushgram.ledger import Ledger, ReleaseRecord, Request, Reservation, Summary

__all__ = ["NO_LEDGER", "Run", "flatten", "open_budget"]

Inputs: TypeAlias = "Iterable[str | Path | InputFile] | Callable[[], Iterable[str | Path | InputFile]]"

NO_LEDGER = (
    "no ledger: nothing tracks the privacy budget of this release. Name a dataset in the config "
    "(hushgram ledger init --help) to have it counted."
)


def open_budget(
    *,
    job: str,
    events: Sequence[Event],
    target: str | Path,
    dataset: str | None = None,
    ledger: str | None = None,
    release: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    inputs: Inputs = (),
    users: str | None = None,
    shape: Shape = "directory",
    interactive: bool = False,
    engine: bool = False,
) -> Run:
    """Return a context manager around one release; see the module's example.

    Args:
        job: the kind of job ("release", "sparse-vector", "clip", …).
        events: what the release spends.
        target: the path or URL of the output.
        dataset: the data set of the ledger whose budget is spent; None runs without a ledger.
        ledger: the URL of the ledger.
        release: the id of the release.
        parameters: all public choices that can change the output, nested as in the config.
        inputs: paths, folders or patterns, or a function that returns the files that the job will read; it is called
            once the budget is known to suffice.
        users: the part of the users whose records alone are used (`UserPart.name`).
        shape: whether the output is a directory or a file.
        interactive: for mechanisms whose queries are not fixed in advance (`LaplaceAnswers`, `OnlinePMW`). Their key is
            `run.interactive_key`, handed out once. A run that ends without publishing cannot be resumed, since other
            queries under the same key would average its noise away; its charge stays.
        engine: whether a job on an engine writes the output: its files outlive this process.
    """
    if dataset is None:
        if ledger is not None:
            raise ParameterError("ledger is set but dataset is not; name the data set whose budget is spent")
        return Run(str(target), f"{job} without a ledger", shape, interactive, engine)
    if not release:
        raise ParameterError("dataset is set but the job has no release id; write release: urls-{date}")
    from hushgram.ledger import Request

    # absolute: the ledger refuses two releases of one output, from whatever directory they are started
    text = str(target).removeprefix("file://")
    place = text if "://" in text else os.path.abspath(text)
    named = flatten(parameters or {})
    request = Request(dataset, release, tuple(events), job, named, None, place, users, not interactive)
    return _TrackedRun(request, ledger, inputs, shape, engine)


class Run:
    """One run of a job without a ledger, and the base of runs with one. Created by `open_budget`."""

    #: whether a ledger counts this run
    tracked = False

    def __init__(self, target: str, label: str, shape: Shape, interactive: bool, engine: bool) -> None:
        self._target, self._label, self._shape, self._interactive = target, label, shape, interactive
        self._file = Path(target).name if shape == "file" else ""
        self._output = output_at(target, label, shape)
        self._owner, self._engine = Owner.this(), engine
        self._job_may_run = False
        self._work: str | None = None
        self._published = False
        self._held_key: ReleaseKey | InteractiveKey | None = None
        self.notes = [NO_LEDGER]
        self.done = False
        """True after entering if the release is published and committed: there is nothing to do."""
        self.outcome: str | None = None
        """After leaving a failed run: what became of its charge, and what to do next."""
        self.digest: str | None = None
        """The digest of the output, once it is published."""
        self.earlier_job: str | None = None
        """The job on an engine that an earlier run of this release submitted (`keep_job`), if it may still run."""

    def __enter__(self) -> Run:
        self.done = self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        if self._work is not None and not self._published and not self._job_may_run:
            self._output.discard(self._work)
        self._end()

    def preflight(self) -> str:
        """Return what entering would report, in one line; raise what it would raise. Charges nothing."""
        self._refuse_existing()
        self._output.check_writable()
        return NO_LEDGER

    @property
    def key(self) -> ReleaseKey:
        """The release key. Noise may exist from the first time it is read."""
        if self._interactive:
            raise ParameterError(
                "run.key: this run was opened with interactive=True; use run.interactive_key"
            )
        found = self._key()
        assert isinstance(found, ReleaseKey)
        return found

    @property
    def interactive_key(self) -> InteractiveKey:
        """The key of a run that was opened with `interactive=True`. Noise may exist from the first time it is read."""
        if not self._interactive:
            raise ParameterError("run.interactive_key: open the budget with interactive=True, or use run.key")
        found = self._key()
        assert isinstance(found, InteractiveKey)
        return found

    @property
    def path(self) -> Path:
        """Where to write: an empty directory, or a file in one that does not exist yet."""
        if self._work is None:
            self._work = str(self._output.local_work(self._owner.mark(engine=self._engine)))
        return Path(self._work, self._file)

    @property
    def output(self) -> str:
        """As `path`, but a folder of the object store if the target is in one: for workers on other machines."""
        if self._work is None:
            self._work = self._output.shared_work(self._owner.mark(engine=self._engine))
        return f"{self._work}/{self._file}" if self._file else self._work

    @property
    def summary(self) -> Summary | None:
        """The budget after this run, for metrics; None without a ledger."""
        return None

    def keep_job(self, job: str | None) -> None:
        """Note the job on an engine that writes the output, or None once it has certainly ended."""
        self._job_may_run = job is not None

    def adopt(self, finished: bool) -> bool:
        """Take over what the earlier job wrote if it `finished`, else remove it; return whether it is complete."""
        return False

    def publish(self) -> None:
        """Make what was written visible by one rename, and commit."""
        if self._work is None:
            raise OutputError("nothing was written; write to run.path before run.publish()")
        self.digest = digest_of(self._work if "://" in self._work else str(Path(self._work, self._file)))
        self._prepare(self.digest)
        self._output.publish(self._work)
        self._published = True
        self._commit()
        self.done = True

    def _refuse_existing(self) -> None:
        if not self._output.exists():
            return
        whose, more = (
            "was written before, by an earlier run or by something else",
            "; each run without a ledger is a",
        )
        more += " new release and costs its epsilon again"
        if self.tracked:
            whose, more = "is not what this release wrote by its ledger", ""
        raise OutputError(
            f"output {self._target} exists already and {whose}; a release is never overwritten: query it, remove it, or"
            f" choose another output.path (with {{date}} for one per day){more}"
        )

    def _begin(self) -> bool:
        self._output.remove_leftovers(held=False)
        self.preflight()
        return False

    def _key(self) -> ReleaseKey | InteractiveKey:
        if self._held_key is None:
            self._held_key = self._new_key()
        return self._held_key

    def _new_key(self) -> ReleaseKey | InteractiveKey:
        return InteractiveKey.generate() if self._interactive else ReleaseKey.generate()

    def _prepare(self, output: str) -> None:
        pass

    def _commit(self) -> None:
        pass

    def _end(self) -> None:
        pass


class _TrackedRun(Run):
    """A run with a ledger: reservation, heartbeat, recovery."""

    tracked = True

    def __init__(self, request: Request, url: str | None, inputs: Inputs, shape: Shape, engine: bool) -> None:
        label = f"{request.dataset}\n{request.release}"
        super().__init__(request.target, label, shape, not request.resumable, engine)
        self.notes = []
        self._request, self._url, self._inputs = request, url, inputs
        self._ledger: Ledger | None = None
        self._reservation: Reservation | None = None
        self._leftovers: list[Output] = []
        self._earlier_mark = ""
        self._closed = False
        self._stop = threading.Event()
        self._lost: LedgerError | None = None
        self._cost = f"ε = {show(sum((event.epsilon for event in request.events), Fraction(0)))}"

    def preflight(self) -> str:
        from hushgram.ledger import Ledger, summarise
        from hushgram.ledger.summary import brief

        dataset = self._request.dataset
        with Ledger(self._url) as ledger:
            found = self._check(ledger)
            if found is None:
                left = brief(summarise(ledger, dataset).left_epsilon, up=False)
                return f"{self._cost} of data set {dataset}, which has ε = {left} left: it fits"
            ledger.preflight(self._with_inputs(ledger, found))
        if found.status == "committed":
            return self._verify(found)
        if not (found.status == "prepared" and self._output.exists()):
            self._refuse_existing()
        return f"{found.label} is {found.status} in the ledger; a run resumes it"

    def _begin(self) -> bool:
        from hushgram.ledger import Ledger

        self._ledger = Ledger(self._url)
        try:
            return self._reserve(self._ledger)
        except BaseException:
            self._end()
            raise

    def _check(self, ledger: Ledger) -> ReleaseRecord | None:
        """Raise what is refused before any data is read; return the release that the id has, unless refunded."""
        found = ledger.find(self._request.dataset, self._request.release)
        if found is None or not found.charged:
            ledger.preflight(self._request)
            found = None
        if found is None or found.status != "committed":
            self._output.check_writable()
        if found is None:
            self._refuse_existing()
        return found

    def _reserve(self, ledger: Ledger) -> bool:
        found = self._check(ledger)
        self._leftovers = [self._output, *self._old_output(found)]
        reservation = ledger.reserve(self._with_inputs(ledger, found), self._owner)
        self._reservation, release = reservation, reservation.release
        if release.owner and not reservation.done and (kept := Owner.read(release.owner).job):
            self._earlier_mark, self.earlier_job = kept.split(" ", 1)
        if self.earlier_job is None:
            self._remove_leftovers()
        if reservation.done:
            self._closed, self.digest = True, release.digest
            self.notes.append(self._verify(release))
            return True
        if reservation.status == "prepared" and self._output.exists():
            if self._output.digest() != release.digest:
                self._refuse_existing()
            ledger.commit(reservation)
            self._remove_leftovers()
            self._closed, self.digest = True, release.digest
            self.notes.append(
                f"release {release.name} had been published by a run that ended before it could commit; it is "
                "verified and committed now"
            )
            return True
        self._refuse_existing()
        self.notes.append(
            f"reserved {self._cost} of data set {release.dataset} for release {release.name}"
            if reservation.status == "new"
            else f"resuming release {release.name} ({reservation.status} since {release.reserved}): same key, no "
            "second charge"
        )
        threading.Thread(target=self._renew, args=(ledger, reservation), daemon=True).start()
        return False

    def _remove_leftovers(self) -> None:
        _, reservation = self._live()
        for output in self._leftovers:  # nobody else holds this id: of earlier runs, dead ones left all of it
            output.remove_leftovers(held=reservation.status != "new")

    def keep_job(self, job: str | None) -> None:
        super().keep_job(job)
        ledger, reservation = self._live()
        ledger.renew(reservation, "" if job is None else f"{self._owner.mark(engine=True)} {job}")

    def adopt(self, finished: bool) -> bool:
        self._work = self._output.complete_work(self._earlier_mark) if finished else None
        if self._work is None:
            self._remove_leftovers()
            self.keep_job(None)
        return self._work is not None

    def _old_output(self, found: ReleaseRecord | None) -> list[Output]:
        """Return where an unpublished release was to go before its target was changed."""
        if found is None or not found.target or found.status == "committed":
            return []
        old = output_at(found.target, self._label, self._shape)
        moved = found.target != self._request.target
        if moved and found.status == "prepared" and old.exists() and old.digest() == found.digest:
            raise LedgerError(
                f"{found.label} is visible at {found.target} already; run it once more with that output.path, and it "
                "will be committed"
            )
        return [old] if moved else []

    def _with_inputs(self, ledger: Ledger, found: ReleaseRecord | None) -> Request:
        try:
            named = self._inputs() if callable(self._inputs) else self._inputs
            inputs: Mapping[str, str] | None = fingerprint_inputs(named, ledger.pepper())
        except InputError:
            if found is None or found.status != "committed":
                raise
            inputs = None  # retention may have removed what was released long ago
        return dataclasses.replace(self._request, inputs=inputs)

    def _verify(self, done: ReleaseRecord) -> str:
        """Return what to tell about a committed release; raise if it is not published as it was committed."""
        if not self._output.exists():
            raise OutputError(
                f"release {done.name} was committed at {done.finished}, but {self._target} is not there; "
                "restore it from a copy (it cannot be made again: its key is erased)"
            )
        if self._output.digest() != done.digest:
            raise OutputError(
                f"release {done.name} was committed at {done.finished}, but {self._target} has changed "
                "since; restore it from a copy"
            )
        return (
            f"release {done.name} was committed at {done.finished}; {self._target} is verified, nothing to do"
        )

    def _renew(self, ledger: Ledger, reservation: Reservation) -> None:
        from hushgram.ledger.ledger import renew_until

        self._lost = renew_until(self._stop, lambda: ledger.renew(reservation))

    def _live(self) -> tuple[Ledger, Reservation]:
        if self._lost is not None:
            raise self._lost
        if self._ledger is None or self._reservation is None:
            raise LedgerError("the budget is not open; use `with open_budget(…) as run`")
        return self._ledger, self._reservation

    def _new_key(self) -> ReleaseKey | InteractiveKey:
        ledger, reservation = self._live()
        return ledger.start(reservation)

    def _prepare(self, output: str) -> None:
        self._key()  # a job that never read its key still publishes something: the charge is due
        ledger, reservation = self._live()
        ledger.prepare(reservation, output)

    def _commit(self) -> None:
        ledger, reservation = self._live()
        ledger.commit(reservation)
        self._closed = True
        with contextlib.suppress(HushgramError):
            _ = self.summary  # so that the next `show` finds it computed

    @property
    def summary(self) -> Summary | None:
        from hushgram.ledger import summarise

        return None if self._ledger is None else summarise(self._ledger, self._request.dataset)

    def _end(self) -> None:
        self._stop.set()
        ledger, reservation = self._ledger, self._reservation
        if ledger is None:
            return
        if reservation is not None and not self._closed:
            with contextlib.suppress(HushgramError):
                self.outcome = f"{reservation.release.label}: {self._give_up(ledger, reservation)}"
        ledger.close()

    def _give_up(self, ledger: Ledger, reservation: Reservation) -> str:
        if self._held_key is None and ledger.cancel(reservation):
            return f"nothing was drawn, and its charge of {self._cost} was refunded"
        ledger.release_lease(reservation)
        again = (
            "it answers interactive queries and is never run again; release under another id"
            if self._interactive
            else "fix the cause and run the same command again: it continues with the same key, without a second charge"
        )
        return f"{self._cost} stays charged, as noise may have been drawn; {again}"


def flatten(fields: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested parameters as dotted names with exact texts, without those that are None.

    >>> flatten({"privacy": {"epsilon": Fraction(1, 10)}, "key": "url", "paths": ["a", "b"], "none": None})
    {'privacy.epsilon': '0.1', 'key': 'url', 'paths': 'a, b'}
    """
    flat: dict[str, str] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{name}."))
        elif value is not None:
            flat[f"{prefix}{name}"] = _text(value)
    return flat


def _text(value: Any) -> str:
    if isinstance(value, Fraction):
        return show(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return str(value)
