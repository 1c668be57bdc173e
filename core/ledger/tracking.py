"""One release under the ledger, for programs: reserve, draw, prepare, publish, commit.

    tracked = TrackedRelease.reserve("sqlite:///ledger.db", request)
    if not tracked.done:
        with tracked.undone_on_error():
            write_sketch(work, key=tracked.key())
            tracked.publish(work)

`hushgram.release(…, ledger=…)` and `ReleaseSparseHistogram(…, ledger=…)` use it; commands have
`hushgram.pipelines.run.budget`, which also compares inputs, renews its lease and publishes to object stores. It may be
pickled, and be published by a worker that can reach the ledger: it holds no key.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hushgram.accounting import Event
from hushgram.errors import HushgramError, OutputError, ParameterError
from hushgram.ledger.ledger import Ledger
from hushgram.ledger.records import Request, Reservation
from hushgram.noise.entropy import ReleaseKey
from hushgram.processes import Owner
from hushgram.publishing import digest_of, publish

__all__ = ["TrackedRelease"]


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
            return cls(url, taken, str(target), taken.done or known)

    def key(self) -> ReleaseKey:
        """Hand out the release key: from here on the charge stays whatever happens."""
        with Ledger(self.url) as ledger:
            key = ledger.start(self.reservation)
        assert isinstance(key, ReleaseKey)
        return key

    def publish(self, work: str | Path) -> None:
        """Record the digest of the complete directory `work`, make it visible by one rename, and commit."""
        with Ledger(self.url) as ledger:
            ledger.prepare(self.reservation, digest_of(str(work)))
            publish(work, self.target)
            ledger.commit(self.reservation)

    def commit(self) -> None:
        """Commit what an earlier try made visible, if it could not; nothing to do if it did."""
        release = self.reservation.release
        with Ledger(self.url) as ledger:
            found = ledger.find(release.dataset, release.name)
            if found is not None and found.status == "prepared":
                ledger.commit(self.reservation)

    @contextlib.contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """On an error refund the charge if the key was never handed out, else let the next run of this id resume."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(HushgramError), Ledger(self.url) as ledger:
                if not ledger.cancel(self.reservation):
                    ledger.release_lease(self.reservation)
            raise
