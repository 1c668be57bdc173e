"""One release under the ledger, for programs: reserve, draw, prepare, publish, commit.

    tracked = TrackedRelease.reserve("sqlite:///ledger.db", request)
    if not tracked.done:
        with tracked.held():
            work = tracked.work()
            write_sketch(work, key=tracked.key())
            tracked.publish(work)

`hushgram.release(…, ledger=…)` and `ReleaseSparseHistogram(…, ledger=…)` use it; commands have
`hushgram.pipelines.run.budget`, which also compares inputs and publishes to object stores. It may be pickled, and be
published by a worker that can reach the ledger: it holds no key.

The process that made the reservation renews its lease: for a library call until it returns (`held`), for a pipeline
while the process lives (`hold_for_pipeline`). If that process dies, the lease runs out.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hushgram.accounting import Event
from hushgram.errors import HushgramError, LedgerError, OutputError, ParameterError
from hushgram.ledger.ledger import Ledger, RunRefused, renew_until
from hushgram.ledger.records import Request, Reservation
from hushgram.noise.entropy import ReleaseKey
from hushgram.processes import Owner
from hushgram.publishing import digest_of, label_of, publish, remove_dead_work, work_name

__all__ = ["TrackedRelease"]

_launched: dict[tuple[str | None, str, str], tuple[TrackedRelease, threading.Event]] = {}
"""The releases of pipelines that this process launched, by ledger, data set and id, and what ends their renewal."""


@dataclass(frozen=True)
class TrackedRelease:
    """A reservation of the ledger at `url` for the local path `target`; `done` if it was released before."""

    url: str | None
    reservation: Reservation
    target: str
    done: bool

    @classmethod
    def open(
        cls,
        caller: str,
        *,
        ledger: str | None,
        dataset: str | None,
        release: str,
        path: str | os.PathLike[str] | None,
        events: Sequence[Event],
        parameters: Mapping[str, Any],
    ) -> TrackedRelease | None:
        """Reserve a release for a call that may name a ledger; None where it names none.

        Args:
            caller: the function that asks, for messages.
            ledger: the URL of the ledger; by default that of the environment.
            dataset: the data set whose budget is spent; None is no ledger.
            release: the id of the release.
            path: where the output goes.
            events: what it spends.
            parameters: all public choices that can change the output.
        """
        if dataset is None:
            if ledger is not None:
                raise ParameterError(f"{caller}: ledger needs dataset, the data set whose budget is spent")
            return None
        if not release:
            raise ParameterError(
                f"{caller}: dataset needs name, the id of the release, such as urls-2026-11-18"
            )
        if path is None or "://" in os.fspath(path):
            raise ParameterError(f"{caller}: dataset needs path, a local directory for the sketch")
        texts = {name: json.dumps(value, sort_keys=True, default=str) for name, value in parameters.items()}
        request = Request(
            dataset, release, tuple(events), caller, texts, {}, os.path.abspath(os.fspath(path))
        )
        earlier, renewing = _launched.pop((ledger, dataset, release), (None, None))
        if earlier is not None and renewing is not None:  # its pipeline failed, or may no longer publish
            renewing.set()
            with contextlib.suppress(LedgerError), Ledger(ledger) as opened:
                opened.release_lease(earlier.reservation)
        return cls.reserve(ledger, request)

    @classmethod
    def reserve(cls, url: str | None, request: Request) -> TrackedRelease:
        """Charge the request, or resume or verify what its id has; raise where it is refused."""
        target = Path(request.target)
        with Ledger(url) as ledger:
            found = ledger.find(request.dataset, request.release)
            if (found is None or not found.charged) and os.path.lexists(target):
                raise OutputError(
                    f"output {target} exists already, and this ledger has no release {request.release} that wrote it;"
                    " choose another path"
                )
            taken = ledger.reserve(request, Owner.this())
            visible = os.path.lexists(target)
            known = visible and taken.release.digest == digest_of(str(target))
            if taken.done and not known:
                raise OutputError(
                    f"{taken.release.label} was committed at {taken.release.finished}, but {target} is not what was"
                    " released; restore it from a copy"
                )
            if not taken.done and known and taken.status == "prepared":
                ledger.commit(taken)
            elif not taken.done and visible:
                ledger.release_lease(taken)
                raise OutputError(
                    f"output {target} exists already and is not what this release wrote; choose another path"
                )
            tracked = cls(url, taken, str(target), taken.done or known)
        if tracked.done:
            tracked._remove_leftovers()
        return tracked

    def work(self) -> str:
        """Return the path of a new hidden directory beside the target; remove what earlier runs of this id left."""
        self._remove_leftovers()
        target = Path(self.target)
        return str(target.with_name(work_name(target.name, self._label)))

    def key(self) -> ReleaseKey:
        """Hand out the release key: from here on the charge stays whatever happens."""
        with Ledger(self.url) as ledger:
            key = ledger.start(self.reservation)
        assert isinstance(key, ReleaseKey)
        return key

    def publish(self, work: str | Path) -> None:
        """Record the digest of the complete directory `work`, make it visible by one rename, and commit."""
        with Ledger(self.url) as ledger:
            try:
                ledger.prepare(self.reservation, digest_of(str(work)))
            except RunRefused:
                shutil.rmtree(work, ignore_errors=True)  # complete, and with the noise of the same key
                raise
            publish(work, self.target)
            ledger.commit(self.reservation)
        self._remove_leftovers()

    def commit(self) -> None:
        """Commit what an earlier try made visible, if it could not; nothing to do if it did."""
        release = self.reservation.release
        with Ledger(self.url) as ledger:
            found = ledger.find(release.dataset, release.name)
            if found is not None and found.status == "prepared":
                ledger.commit(self.reservation)
        self._remove_leftovers()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Renew the lease meanwhile.

        On an error refund the charge if the key was never handed out, else let the next run of this id resume.
        """
        renewing = self._hold()
        try:
            yield
        except BaseException:
            with contextlib.suppress(HushgramError), Ledger(self.url) as ledger:
                if not ledger.cancel(self.reservation):
                    ledger.release_lease(self.reservation)
            raise
        finally:
            renewing.set()

    def hold_for_pipeline(self) -> None:
        """Renew the lease while this process lives, as nothing tells it when the pipeline that it launches has ended.

        If this process opens the same release again, that ends the hold of the first.
        """
        release = self.reservation.release
        _launched[self.url, release.dataset, release.name] = self, self._hold()

    def _hold(self) -> threading.Event:
        """Renew the lease until the returned event is set, or the release has ended or was taken over."""
        stop = threading.Event()
        threading.Thread(target=renew_until, args=(stop, self._renew), daemon=True).start()
        return stop

    def _renew(self) -> None:
        with Ledger(self.url) as ledger:
            ledger.renew(self.reservation)

    @property
    def _label(self) -> str:
        release = self.reservation.release
        return label_of(f"{release.dataset}\n{release.name}")

    def _remove_leftovers(self) -> None:
        """Remove what other runs of this id have written: they ended, or may no longer publish."""
        for target in {Path(self.target), Path(self.reservation.release.target)}:
            remove_dead_work(target.parent, work_name(target.name, self._label, ""))
