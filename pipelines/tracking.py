"""The two kinds of run behind `hushgram.pipelines.budget`: counted by a ledger, or not.

SQLAlchemy is imported only by a run that is counted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgram.accounting import Event
from hushgram.errors import HushgramError, InputError, LedgerError, OutputError
from hushgram.noise.entropy import InteractiveKey, ReleaseKey
from hushgram.numbers import show
from hushgram.pipelines.fingerprints import fingerprint_inputs
from hushgram.pipelines.output_places import Place, Shape, place_for
from hushgram.processes import Owner

if TYPE_CHECKING:
    from hushgram.ledger import Ledger, Release, Reservation, Summary

__all__ = ["NO_LEDGER", "Tracked", "Untracked"]

NO_LEDGER = (
    "no ledger: nothing tracks the privacy budget of this release. Name a dataset in the config "
    "(hushgram ledger init --help) to have it counted."
)
_HEARTBEAT_SECONDS = 30.0


class Untracked:
    """A run that no ledger counts."""

    def __init__(self, job: str, target: str | Path | None, shape: Shape, interactive: bool) -> None:
        self.notes, self.interactive = [NO_LEDGER], interactive
        self.name = Path(str(target)).name
        self.token = Owner.this().mark()
        self.reserved_at: str | None = None
        self.aftermath: str | None = None
        self.place = None if target is None else place_for(str(target), f"{job} without a ledger", shape)
        self._key = InteractiveKey.generate() if interactive else ReleaseKey.generate()

    def look(self) -> str:
        _refuse_existing(self.place)
        _rehearse(self.place)
        return NO_LEDGER

    def enter(self) -> bool:
        if self.place is not None:
            self.place.clear(held=False)
        self.look()
        return False

    def key(self) -> ReleaseKey | InteractiveKey:
        return self._key

    def prepare(self, _digest: str) -> None:
        pass

    def commit(self) -> None:
        pass

    def summary(self) -> None:
        return None

    def leave(self) -> None:
        pass


class Tracked:
    """A run against a ledger: reservation, heartbeat, recovery."""

    def __init__(
        self,
        *,
        job: str,
        dataset: str,
        url: str | None,
        release: str,
        events: Sequence[Event],
        parameters: Mapping[str, str],
        inputs: Iterable[str | Path] | Callable[[], Iterable[str | Path]],
        target: str | Path | None,
        users: str | None,
        shape: Shape,
        resumable: bool,
    ) -> None:
        from hushgram.ledger import Request

        self.notes: list[str] = []
        self.name = Path(str(target)).name
        # absolute: the ledger refuses two releases of one output, wherever they are started
        text = "" if target is None else str(target).removeprefix("file://")
        self._target = text if not text or "://" in text else os.path.abspath(text)
        self._stem, self._shape = f"{dataset}\n{release}", shape
        self.place: Place | None = None if target is None else place_for(self._target, self._stem, shape)
        self._url, self._inputs, self.interactive = url, inputs, not resumable
        self._owner = Owner.this()
        self.token = self._owner.mark()
        self._request = Request(
            dataset, release, events, job, parameters, None, self._target, users, resumable
        )
        self._ledger: Ledger | None = None
        self._reservation: Reservation | None = None
        self._key: ReleaseKey | InteractiveKey | None = None
        self._closed = False
        self._stop = threading.Event()
        self._lost: LedgerError | None = None
        self.aftermath: str | None = None

    @property
    def reserved_at(self) -> str | None:
        return None if self._reservation is None else self._reservation.release.reserved

    def enter(self) -> bool:
        from hushgram.ledger import Ledger

        self._ledger = Ledger(self._url)
        try:
            return self._begin(self._ledger)
        except BaseException:
            self.leave()
            raise

    def look(self) -> str:
        """The way of `enter`, without a trace: what it would say."""
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
                self._verify(Reservation(found, found.status, self.token))
                return self.notes.pop()
        if not (found.status == "prepared" and self.place is not None and self.place.exists()):
            _refuse_existing(self.place)
        return f"release {found.name} of {found.dataset} is {found.status} in the ledger; a run takes that up"

    def _early(self, ledger: Ledger) -> Release | None:
        """What is refused before any data is looked at; the release that the id has, if it has one."""
        wanted = self._request
        found = ledger.find(wanted.dataset, wanted.release)
        if found is None or not found.charged:
            ledger.check(wanted)
        if found is None or found.status != "committed":
            _rehearse(self.place)
        if found is None or not found.charged:
            _refuse_existing(self.place)
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
        for place in (self.place, old):
            if place is not None:
                place.clear(held=True)  # nobody else holds this id: all of it was left by dead runs
        if reservation.done:
            self._closed = True
            self._verify(reservation)
            return True
        if reservation.status == "prepared" and self.place is not None and self.place.exists():
            self._finish(ledger, reservation)
            return True
        _refuse_existing(self.place)
        self._say(reservation)
        threading.Thread(target=self._beat, args=(ledger, reservation), daemon=True).start()
        return False

    def _refuse_begun(self, found: Release) -> None:
        """An interactive release is not taken up once its key was handed out, unless only the commit is missing."""
        visible = found.status == "prepared" and self.place is not None and self.place.exists()
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
        old = place_for(found.target, self._stem, self._shape)
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
        if self.place is None:
            self.notes.append(f"release {done.name} was printed and committed at {done.finished}; all done")
            return
        if not self.place.exists():
            raise OutputError(
                f"release {done.name} was committed at {done.finished}, but {self._target} is not there; "
                "restore it from a copy (it cannot be made again: its key is erased)"
            )
        if self.place.digest() != done.digest:
            raise OutputError(
                f"release {done.name} was committed at {done.finished}, but {self._target} has changed "
                "since; restore it from a copy"
            )
        self.notes.append(
            f"release {done.name} was committed at {done.finished}; {self._target} is verified, nothing to do"
        )

    def _finish(self, ledger: Ledger, reservation: Reservation) -> None:
        """A run died between the rename and the commit: what is published is ours, or somebody else's."""
        assert self.place is not None
        if self.place.digest() != reservation.release.digest:
            _refuse_existing(self.place)
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

    def key(self) -> ReleaseKey | InteractiveKey:
        if self._key is None:
            ledger, reservation = self._live()
            self._key = ledger.start(reservation)
        return self._key

    def prepare(self, output: str) -> None:
        self.key()  # a job that never asked for its key has still published something: the charge is due
        ledger, reservation = self._live()
        ledger.prepare(reservation, output)

    def commit(self) -> None:
        ledger, reservation = self._live()
        ledger.commit(reservation)
        self._closed = True
        with contextlib.suppress(HushgramError):
            self.summary()  # so that the next `show` finds it computed

    def summary(self) -> Summary | None:
        from hushgram.ledger import summarise

        return None if self._ledger is None else summarise(self._ledger, self._request.dataset)

    def leave(self) -> None:
        self._stop.set()
        ledger, reservation = self._ledger, self._reservation
        if ledger is None:
            return
        if reservation is not None and not self._closed:
            with contextlib.suppress(HushgramError):
                if self._key is None and ledger.cancel(reservation):
                    self.aftermath = (
                        f"{self._label}: nothing was drawn, and its charge of {self._cost} was given back"
                    )
                else:
                    ledger.let_go(reservation)
                    again = (
                        "run the same again once the cause is mended: it goes on with the same key, without a second "
                        "charge"
                        if not self.interactive
                        else "it answers questions as they come and is never run again; release under another id"
                    )
                    self.aftermath = (
                        f"{self._label}: {self._cost} stays charged, as noise may have been drawn; {again}"
                    )
        ledger.close()

    @property
    def _label(self) -> str:
        return f"release {self._request.release} of {self._request.dataset}"


def _rehearse(place: Place | None) -> None:
    """What cannot be published shows before anything is charged."""
    if place is not None:
        place.rehearse()


def _refuse_existing(place: Place | None) -> None:
    if place is not None and place.exists():
        target = getattr(place, "target", "")
        raise OutputError(
            f"output {target} exists already and is not of this release; a release is never overwritten, "
            "choose another output.path"
        )
