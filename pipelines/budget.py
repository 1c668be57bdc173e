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

Without `dataset` the same calls work with a fresh key and no ledger, and the notes say so. SQLAlchemy is imported only
by a run that a ledger counts.
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
from hushgram.pipelines.fingerprints import fingerprint_inputs, flatten
from hushgram.pipelines.output_places import Place, Shape, digest_work, place_for
from hushgram.processes import Owner

if TYPE_CHECKING:
    from hushgram.ledger import Ledger, Release, Request, Reservation, Summary

__all__ = ["NO_LEDGER", "Run", "open_budget"]

Inputs: TypeAlias = "Iterable[str | Path] | Callable[[], Iterable[str | Path]]"

NO_LEDGER = (
    "no ledger: nothing tracks the privacy budget of this release. Name a dataset in the config "
    "(hushgram ledger init --help) to have it counted."
)
_HEARTBEAT_SECONDS = 30.0


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
) -> Run:
    """A context manager around one release; see the module's example.

    `job` is the kind of job ("release", "sparse-vector", "clip", …). `parameters` are all public
    choices that can change the output, nested as in the config. `inputs` are paths, folders or patterns, or a
    function that gives the files that the job will read; it is called once the budget is known to suffice.
    `users` names the part of the users whose records alone are used (`UserPart.name`). `interactive` is for mechanisms
    that answer questions as they come (`LaplaceAnswers`, `OnlinePMW`): their key is `run.interactive_key`, handed out
    once. A run that ends without publishing cannot be taken up again, since other questions under the same key would
    average its noise away; its charge stays.
    """
    if dataset is None:
        if ledger is not None:
            raise ParameterError("ledger is set but dataset is not; name the data set whose budget is spent")
        return Run(str(target), f"{job} without a ledger", shape, interactive)
    if not release:
        raise ParameterError("dataset is set but the job has no release id; write release: urls-{date}")
    from hushgram.ledger import Request

    # absolute: the ledger refuses two releases of one output, wherever they are started
    text = str(target).removeprefix("file://")
    place = text if "://" in text else os.path.abspath(text)
    named = flatten(parameters or {})
    request = Request(dataset, release, tuple(events), job, named, None, place, users, not interactive)
    return _TrackedRun(request, ledger, inputs, shape)


class Run:
    """One run of a job that no ledger counts, and what those that one counts share. Made by `open_budget`."""

    #: whether a ledger counts this run
    tracked = False

    def __init__(self, target: str, label: str, shape: Shape, interactive: bool) -> None:
        self._target, self._label, self._shape, self._interactive = target, label, shape, interactive
        self._place = place_for(target, label, shape)
        self._owner = Owner.this()
        self._token = self._owner.mark()
        self._work: str | None = None
        self._published = False
        self._held_key: ReleaseKey | InteractiveKey | None = None
        self.notes = [NO_LEDGER]
        self.done = False
        """True after entering where the release is published and committed: there is nothing to do."""
        self.aftermath: str | None = None
        """After leaving a run that failed: what became of its charge, and what to do. None where nothing did."""

    def __enter__(self) -> Run:
        self.done = self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        if self._work is not None and not self._published:
            self._place.discard(self._work)
        self._leave()

    def look(self) -> str:
        """For ``--check``: what entering would say, in one line; raises what it would raise. Charges nothing."""
        self._refuse_existing()
        self._place.rehearse()
        return NO_LEDGER

    @property
    def key(self) -> ReleaseKey:
        """The release key. The first call is the point from which noise may exist."""
        if self._interactive:
            raise ParameterError(
                "run.key: this run was opened with interactive=True; use run.interactive_key"
            )
        found = self._key()
        assert isinstance(found, ReleaseKey)
        return found

    @property
    def interactive_key(self) -> InteractiveKey:
        """The key of a run that was opened with ``interactive=True``; as with `key`, noise may exist from here on."""
        if not self._interactive:
            raise ParameterError("run.interactive_key: open the budget with interactive=True, or use run.key")
        found = self._key()
        assert isinstance(found, InteractiveKey)
        return found

    @property
    def path(self) -> Path:
        """Where to write: an empty directory, or a file in one that does not exist yet."""
        if self._work is None:
            self._work = str(self._place.workdir(self._token))
        return Path(self._work, self._file or "")

    @property
    def output(self) -> str:
        """As `path`, but a folder of the object store where the target is in one: for workers elsewhere."""
        if self._work is None:
            self._work = self._place.workplace(self._token)
        return self._work if self._file is None else f"{self._work}/{self._file}"

    @property
    def summary(self) -> Summary | None:
        """The budget after this run, for metrics; None without a ledger."""
        return None

    def publish(self) -> None:
        """Makes what was written visible, by one rename, and commits."""
        if self._work is None:
            raise OutputError("nothing was written; write to run.path before run.publish()")
        self._prepare(digest_work(self._work, self._file))
        self._place.publish(self._work)
        self._published = True
        self._commit()
        self.done = True

    @property
    def _file(self) -> str | None:
        return Path(self._target).name if self._shape == "file" else None

    def _refuse_existing(self) -> None:
        if self._place.exists():
            raise OutputError(
                f"output {self._target} exists already and is not of this release; a release is never overwritten, "
                "choose another output.path"
            )

    def _enter(self) -> bool:
        self._place.clear(held=False)
        self.look()
        return False

    def _key(self) -> ReleaseKey | InteractiveKey:
        if self._held_key is None:
            self._held_key = InteractiveKey.generate() if self._interactive else ReleaseKey.generate()
        return self._held_key

    def _prepare(self, output: str) -> None:
        pass

    def _commit(self) -> None:
        pass

    def _leave(self) -> None:
        pass


class _TrackedRun(Run):
    """A run against a ledger: reservation, heartbeat, recovery."""

    tracked = True

    def __init__(self, request: Request, url: str | None, inputs: Inputs, shape: Shape) -> None:
        label = f"{request.dataset}\n{request.release}"
        super().__init__(request.target, label, shape, not request.resumable)
        self.notes = []
        self._request, self._url, self._inputs = request, url, inputs
        self._ledger: Ledger | None = None
        self._reservation: Reservation | None = None
        self._closed = False
        self._stop = threading.Event()
        self._lost: LedgerError | None = None

    def _enter(self) -> bool:
        from hushgram.ledger import Ledger

        self._ledger = Ledger(self._url)
        try:
            return self._begin(self._ledger)
        except BaseException:
            self._leave()
            raise

    def look(self) -> str:
        from hushgram.ledger import Ledger, Reservation, summarise
        from hushgram.ledger.summary import brief

        wanted = self._request
        with Ledger(self._url) as ledger:
            found = self._early(ledger)
            known = found is not None and found.charged
            found = ledger.look(self._with_inputs(ledger, found) if known else wanted)
            if found is None:
                left = brief(summarise(ledger, wanted.dataset).left_epsilon, up=False)
                return f"{self._cost} of data set {wanted.dataset}, which has ε = {left} left: it fits"
            if found.status == "committed":
                self._verify(Reservation(found, found.status, self._token))
                return self.notes.pop()
        if not (found.status == "prepared" and self._place.exists()):
            self._refuse_existing()
        return f"release {found.name} of {found.dataset} is {found.status} in the ledger; a run takes that up"

    def _early(self, ledger: Ledger) -> Release | None:
        """What is refused before any data is looked at; the release that the id has, if it has one."""
        wanted = self._request
        found = ledger.find(wanted.dataset, wanted.release)
        if found is None or not found.charged:
            ledger.check(wanted)
        if found is None or found.status != "committed":
            self._place.rehearse()
        if found is None or not found.charged:
            self._refuse_existing()
        else:
            self._refuse_begun(found)
        return found

    @property
    def _cost(self) -> str:
        return f"ε = {show(sum((event.epsilon for event in self._request.events), Fraction(0)))}"

    def _begin(self, ledger: Ledger) -> bool:
        found = self._early(ledger)
        old = None if found is None else self._old_place(found)
        reservation = ledger.reserve(self._with_inputs(ledger, found), self._owner)
        self._reservation = reservation
        for place in (self._place, old):
            if place is not None:
                place.clear(held=True)  # nobody else holds this id: all of it was left by dead runs
        if reservation.done:
            self._closed = True
            self._verify(reservation)
            return True
        if reservation.status == "prepared" and self._place.exists():
            self._finish(ledger, reservation)
            return True
        self._refuse_existing()
        self._say(reservation)
        threading.Thread(target=self._beat, args=(ledger, reservation), daemon=True).start()
        return False

    def _refuse_begun(self, found: Release) -> None:
        """An interactive release is not taken up once its key was handed out, unless only the commit is missing."""
        visible = found.status == "prepared" and self._place.exists()
        if not found.resumable and found.status in ("running", "prepared") and not visible:
            raise LedgerError(
                f"release {found.name} of {found.dataset} answers questions as they come and was begun at "
                f"{found.reserved}: it is never run again (other questions would average its noise away); "
                f"`hushgram ledger abandon {found.name}` (its charge stays) and use another id"
            )

    def _old_place(self, found: Release) -> Place | None:
        """Where an unpublished release was to go before its target was changed."""
        from hushgram.ledger.rows import same_target

        if not found.target or found.status == "committed" or same_target(found.target, self._request.target):
            return None
        old = place_for(found.target, self._label, self._shape)
        if found.status == "prepared" and old.exists() and old.digest() == found.digest:
            raise LedgerError(
                f"release {found.name} of {found.dataset} is visible at {found.target} already; "
                "run it once more with that output.path, and it will be committed"
            )
        return old

    def _with_inputs(self, ledger: Ledger, found: Release | None) -> Any:
        try:
            named = self._inputs() if callable(self._inputs) else self._inputs
            inputs: Mapping[str, str] | None = fingerprint_inputs(named, ledger.pepper())
        except InputError:
            if found is None or found.status != "committed":
                raise
            inputs = None  # retention may have removed what was released long ago
        return dataclasses.replace(self._request, inputs=inputs)

    def _say(self, reservation: Reservation) -> None:
        wanted = self._request
        if reservation.status == "new":
            self.notes.append(
                f"reserved {self._cost} of data set {wanted.dataset} for release {wanted.release}"
            )
        else:
            self.notes.append(
                f"resuming release {wanted.release} ({reservation.status} since "
                f"{reservation.release.reserved}): same key, no second charge"
            )

    def _verify(self, reservation: Reservation) -> None:
        """A committed release: what is published must be what was committed."""
        done = reservation.release
        if not self._place.exists():
            raise OutputError(
                f"release {done.name} was committed at {done.finished}, but {self._target} is not there; "
                "restore it from a copy (it cannot be made again: its key is erased)"
            )
        if self._place.digest() != done.digest:
            raise OutputError(
                f"release {done.name} was committed at {done.finished}, but {self._target} has changed "
                "since; restore it from a copy"
            )
        self.notes.append(
            f"release {done.name} was committed at {done.finished}; {self._target} is verified, nothing to do"
        )

    def _finish(self, ledger: Ledger, reservation: Reservation) -> None:
        """A run died between the rename and the commit: what is published is ours, or somebody else's."""
        if self._place.digest() != reservation.release.digest:
            self._refuse_existing()
        ledger.commit(reservation)
        self._closed = True
        self.notes.append(
            f"release {reservation.release.name} had been published by a run that ended before it could say "
            "so; it is verified and committed now"
        )

    def _beat(self, ledger: Ledger, reservation: Reservation) -> None:
        while not self._stop.wait(_HEARTBEAT_SECONDS):
            try:
                ledger.renew(reservation)
            except LedgerError as problem:
                if "taken over" in str(problem):
                    self._lost = problem
                    return  # any other trouble may pass before the lease runs out

    def _live(self) -> tuple[Ledger, Reservation]:
        if self._lost is not None:
            raise self._lost
        if self._ledger is None or self._reservation is None:
            raise LedgerError("the budget is not open; use `with open_budget(…) as run`")
        return self._ledger, self._reservation

    def _key(self) -> ReleaseKey | InteractiveKey:
        if self._held_key is None:
            ledger, reservation = self._live()
            self._held_key = ledger.start(reservation)
        return self._held_key

    def _prepare(self, output: str) -> None:
        self._key()  # a job that never asked for its key has still published something: the charge is due
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

    def _leave(self) -> None:
        self._stop.set()
        ledger, reservation = self._ledger, self._reservation
        if ledger is None:
            return
        who = f"release {self._request.release} of {self._request.dataset}"
        if reservation is not None and not self._closed:
            with contextlib.suppress(HushgramError):
                if self._held_key is None and ledger.cancel(reservation):
                    self.aftermath = (
                        f"{who}: nothing was drawn, and its charge of {self._cost} was given back"
                    )
                else:
                    ledger.let_go(reservation)
                    again = (
                        "run the same again once the cause is mended: it goes on with the same key, without a second "
                        "charge"
                        if not self._interactive
                        else "it answers questions as they come and is never run again; release under another id"
                    )
                    self.aftermath = (
                        f"{who}: {self._cost} stays charged, as noise may have been drawn; {again}"
                    )
        ledger.close()
