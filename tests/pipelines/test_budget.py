"""The budget of a run: a kill at every step, reruns, refusals, and what becomes visible when."""

from __future__ import annotations

import contextlib
import copy
import errno
import multiprocessing
import os
import pickle
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from apache_beam.io.filesystem import FileMetadata, FileSystem
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.localfilesystem import LocalFileSystem

from hushgram import publishing
from hushgram.accounting import Budget, Event
from hushgram.errors import (
    BudgetExceeded,
    HushgramError,
    InputError,
    LedgerError,
    OutputError,
    ParameterError,
)
from hushgram.ledger import Ledger, backup
from hushgram.ledger import ledger as ledger_module
from hushgram.ledger.store import Store
from hushgram.mechanisms.laplace import LaplaceAnswers
from hushgram.mechanisms.pmw import OnlinePMW, PmwParams
from hushgram.mechanisms.svt import SvtParams
from hushgram.mechanisms.svt.online import begin
from hushgram.noise.entropy import take_key
from hushgram.pipelines.run.budget import NO_LEDGER, Run, open_budget
from hushgram.pipelines.run.outputs import digest_of
from hushgram.processes import Owner
from tests.exact_counts import exact_counts

FORK = multiprocessing.get_context("fork")


INTERACTIVE: list[Callable[[Any], object]] = [
    lambda key: LaplaceAnswers(1, 1, 1, key),
    lambda key: OnlinePMW(exact_counts(np.array([900, 50])), PmwParams(20, max_updates=5), key),
    lambda key: take_key(key, "SparseVector"),
]


class Job:
    """A job small enough to be killed a hundred times: its output is a function of key and data alone."""

    def __init__(self, folder: Path, shape: str = "directory") -> None:
        self.folder, self.shape = folder, shape
        self.url = f"sqlite:///{folder}/ledger.db"
        self.target = folder / "out.sketch"
        (folder / "data.csv").write_text("user,key\n1,a\n")
        with Ledger.create(self.url) as ledger:
            ledger.add_dataset("views", Budget(1))

    def open(self, **changes: Any) -> Run:
        values: dict[str, Any] = {
            "job": "release",
            "dataset": "views",
            "ledger": self.url,
            "release": "monday",
            "events": [Event("alp", "0.6")],
            "parameters": {"privacy": {"epsilon": Fraction(3, 5)}, "input": {"key": "url"}},
            "inputs": [self.folder / "*.csv"],
            "target": self.target,
            "shape": self.shape,
        }
        return open_budget(**{**values, **changes})

    def run(self, step: Callable[[str], None] = lambda name: None, **changes: Any) -> list[str]:
        """One whole run; calls `step` at each point where the process might die."""
        with self.open(**changes) as run:
            step("entered")
            if run.done:
                return run.notes
            key = run.interactive_key.take("Job") if changes.get("interactive") else run.key
            step("key")
            content = key.source("test", 0, (self.folder / "data.csv").read_bytes()).take(64).tobytes()
            if self.shape == "file":
                run.path.write_bytes(content)
            else:
                (run.path / "bits.bin").write_bytes(content)
                step("half written")
                (run.path / "manifest.json").write_bytes(content[:8])
            step("written")
            run.publish()
            step("published")
        return run.notes

    def killed(self, point: str, **changes: Any) -> None:
        """Runs in another process that is killed at `point`; no handler, no cleaning up."""

        def die(name: str) -> None:
            if name == point:
                os.kill(os.getpid(), signal.SIGKILL)

        def child() -> None:
            for name, where, attribute in INSIDE:
                if name == point:
                    _kill_around(where, attribute, before=point.startswith("before"))
            self.run(die, **changes)

        process = FORK.Process(target=child)
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL, f"was not killed at {point}"

    def history(self) -> list[tuple[str, str, bool]]:
        with Ledger(self.url) as ledger:
            return [(r.name, r.status, r.charged) for r in ledger.history("views")]

    def leftovers(self) -> list[str]:
        return sorted(p.name for p in self.folder.iterdir() if p.name.startswith("."))

    def output(self) -> dict[str, bytes]:
        if self.target.is_file():
            return {self.target.name: self.target.read_bytes()}
        return {p.name: p.read_bytes() for p in sorted(self.target.iterdir())}


INSIDE = [
    ("before reserve", Ledger, "reserve"),
    ("after reserve", Ledger, "reserve"),
    ("before prepare", Ledger, "prepare"),
    ("after prepare", Ledger, "prepare"),
    ("before rename", publishing, "rename_new"),
    ("after rename", publishing, "rename_new"),
    ("before commit", Ledger, "commit"),
    ("after commit", Ledger, "commit"),
]
POINTS = ["entered", "key", "half written", "written", *(name for name, _, _ in INSIDE), "published"]


def _kill_around(where: Any, attribute: str, before: bool) -> None:
    real = getattr(where, attribute)

    def replacement(*arguments: Any) -> Any:
        if before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(where, attribute, replacement)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job on a ledger of ε = 1."""
    return Job(tmp_path)


@pytest.mark.parametrize("shape", ["directory", "file"])
@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_then_rerun(tmp_path: Path, point: str, shape: str) -> None:
    """One charge, one committed release, the same bytes as ever, no temporary directory."""
    if shape == "file" and point == "half written":
        return
    job = Job(tmp_path, shape)
    job.killed(point)
    seen = job.output() if job.target.exists() else None
    job.run()
    assert job.history() == [("monday", "committed", True)]
    assert job.leftovers() == []
    if seen is not None:
        assert job.output() == seen
    before = job.output()
    assert "verified, nothing to do" in job.run()[-1]
    assert job.output() == before


def test_resumed_output_equals_the_uninterrupted_one(tmp_path: Path) -> None:
    """The same reservation, copied before the kill: finished at once, or after three kills."""
    (tmp_path / "a").mkdir()
    job = Job(tmp_path / "a")
    job.killed("entered")
    ledger = (tmp_path / "a" / "ledger.db").read_bytes()
    job.run()
    straight = job.output()
    for path in job.target.iterdir():
        path.unlink()
    job.target.rmdir()
    (tmp_path / "a" / "ledger.db").write_bytes(ledger)
    for point in ("key", "written", "after prepare"):
        job.killed(point)
    job.run()
    assert job.output() == straight


def test_nothing_is_visible_before_the_rename(job: Job) -> None:
    for point in ("half written", "written", "before rename"):
        job.killed(point)
        assert not job.target.exists()
        assert len(job.leftovers()) == 1
        assert stat.S_IMODE((job.folder / job.leftovers()[0]).stat().st_mode) in (0o700, 0o755)


def test_a_failure_before_the_key_gives_the_charge_back(job: Job) -> None:
    with pytest.raises(ZeroDivisionError), job.open():
        1 / 0
    assert job.history() == [("monday", "abandoned", False)]
    job.run()
    assert job.history() == [("monday", "abandoned", False), ("monday", "committed", True)]


def test_a_failure_after_the_key_keeps_it_and_can_be_resumed(job: Job) -> None:
    with pytest.raises(ZeroDivisionError), job.open() as run:  # noqa: PT012
        key, path = run.key, run.path
        1 / 0
    assert not path.exists()
    assert job.history() == [("monday", "running", True)]
    with job.open() as again:
        assert "same key, no second charge" in again.notes[0]
        assert again.key == key


def test_refusal_comes_before_any_data_is_looked_at(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("data was read")

    monkeypatch.setattr("hushgram.pipelines.run.budget.fingerprint_inputs", never)
    with pytest.raises(BudgetExceeded, match="would fit"):
        job.run(events=[Event("alp", 2)])
    assert job.history() == []
    assert job.leftovers() == []


def test_other_parameters_inputs_or_target_are_refused_by_name(job: Job) -> None:
    job.run()
    other = {"privacy": {"epsilon": Fraction(3, 5)}, "input": {"key": "host"}}
    with pytest.raises(LedgerError, match=r"input\.key was url, is host"):
        job.run(parameters=other)
    with pytest.raises(LedgerError, match="target was"):
        job.run(target=job.folder / "elsewhere")
    (job.folder / "data.csv").write_text("user,key\n1,b\n")
    with pytest.raises(LedgerError, match=r"input .*data\.csv has changed"):
        job.run()
    (job.folder / "data.csv").unlink()
    assert "verified" in job.run()[-1]  # released long ago, and its input is gone by now
    with pytest.raises(InputError, match="matches no file"):
        job.run(release="tuesday", target=job.folder / "tuesday", events=[Event("alp", "0.1")])


def test_a_byte_in_the_middle_of_a_large_file_is_a_change(job: Job) -> None:
    content = bytearray(b"x" * (3 << 20))
    (job.folder / "data.csv").write_bytes(content)
    job.killed("written")
    content[1 << 20] ^= 1
    (job.folder / "data.csv").write_bytes(content)
    with pytest.raises(LedgerError, match=r"data\.csv has changed"):
        job.run()


def test_nothing_about_inputs_can_be_read_off_or_guessed(job: Job, tmp_path: Path) -> None:
    """No size, no plain hash, in ledger or backup; the backup has not even the secret."""
    import hashlib

    content = (job.folder / "data.csv").read_bytes()
    job.killed("written")
    with Ledger(job.url) as ledger:
        [release] = ledger.history("views")
        [fingerprint] = release.inputs.values()
        secret = ledger.pepper()
        backup(ledger, str(tmp_path / "copy.db"))
    for path in (job.folder / "ledger.db", tmp_path / "copy.db"):
        held = path.read_bytes()
        for plain in (hashlib.sha256(content).hexdigest()[:16], f"{len(content)} bytes"):
            assert plain.encode() not in held
    assert secret.hex().encode() in (job.folder / "ledger.db").read_bytes()
    assert secret.hex().encode() not in (tmp_path / "copy.db").read_bytes()
    assert len(fingerprint) == 8 + 1 + 32


def test_a_restored_ledger_has_another_secret_and_still_knows_what_was_released(
    job: Job, tmp_path: Path
) -> None:
    job.run()
    with Ledger(job.url) as ledger:
        backup(ledger, str(tmp_path / "copy.db"))
    (tmp_path / "copy.db").replace(job.folder / "ledger.db")
    assert "verified, nothing to do" in job.run()[-1]
    small = [Event("alp", "0.1")]
    job.run(release="tuesday", target=job.folder / "tuesday", events=small)
    assert (
        "verified, nothing to do"
        in job.run(release="tuesday", target=job.folder / "tuesday", events=small)[-1]
    )


def test_bar_eight_racers_for_one_output_are_charged_once(job: Job) -> None:
    """Each has an id of its own: the first has the path, the others are refused before they are charged."""
    events = [Event("alp", "0.1")]
    with job.open(release="first", events=events) as run:
        run.key
        for number in range(7):
            with pytest.raises(LedgerError, match="is that of release first"):
                job.run(release=f"racer-{number}", events=events)
        (run.path / "manifest.json").write_text("{}")
        run.publish()
    for number in range(7):
        with pytest.raises(HushgramError, match=r"is that of release first|exists already"):
            job.run(release=f"racer-{number}", events=events)
    assert job.history() == [("first", "committed", True)]


def test_an_unpublished_release_may_change_its_target(job: Job) -> None:
    def appear(name: str) -> None:
        if name == "written":
            job.target.write_text("somebody else's")

    with pytest.raises(OutputError, match="exists already"):
        job.run(appear)
    job.run(target=job.folder / "elsewhere")
    assert job.history() == [("monday", "committed", True)]
    assert (job.folder / "elsewhere" / "manifest.json").exists()
    assert job.leftovers() == []


def test_a_killed_run_leaves_nothing_beside_its_old_target(job: Job) -> None:
    job.killed("written")
    assert len(job.leftovers()) == 1
    (job.folder / "other").mkdir()
    job.run(target=job.folder / "other" / "out.sketch")
    assert job.leftovers() == []


def test_a_visible_release_does_not_change_its_target(job: Job) -> None:
    job.killed("after rename")
    with pytest.raises(LedgerError, match=r"is visible at .*out\.sketch already"):
        job.run(target=job.folder / "elsewhere")
    assert "committed now" in job.run()[-1]


@pytest.mark.long
def test_bar_three_hundred_restarts_do_not_average_the_noise_away(job: Job) -> None:
    """Questions that come one after another: a run that was begun is never begun again, whatever is asked."""
    secret, drawn = np.array([1234]), []
    for number in range(300):
        with contextlib.suppress(LedgerError), job.open(interactive=True) as run:
            drawn.append(
                LaplaceAnswers("0.6", 1, 1, run.interactive_key).answer(secret, f"{number}".encode())
            )
    assert len(drawn) == 1
    assert job.history() == [("monday", "running", True)]
    with pytest.raises(LedgerError, match="is never run again"):
        job.run(interactive=True)


def test_a_key_that_may_be_given_again_answers_no_questions_as_they_come(job: Job) -> None:
    """Nor what is made of it: a copy, a pickle, the key of a job's parameters or of its data."""
    with job.open() as run:
        kept = [run.key, copy.deepcopy(run.key), pickle.loads(pickle.dumps(run.key))]
        kept += [run.key.for_parameters("x", {}), run.key.for_data(b"x")]
        with pytest.raises(ParameterError, match=r"open the budget with interactive=True, or use run\.key"):
            _ = run.interactive_key
    for mechanism in INTERACTIVE:
        for key in kept:
            with pytest.raises(ParameterError, match=r"got ReleaseKey; use [^\n]*interactive=True[^\n]*$"):
                mechanism(key)
    with job.open(
        release="tuesday", interactive=True, target=job.folder / "b", events=[Event("alp", "0.1")]
    ) as run:
        with pytest.raises(ParameterError, match=r"use run\.interactive_key"):
            _ = run.key
        LaplaceAnswers(1, 1, 1, run.interactive_key)
        for mechanism in INTERACTIVE:
            with pytest.raises(ParameterError, match="taken by another mechanism"):
                mechanism(run.interactive_key)


@pytest.mark.long
def test_bar_three_hundred_reruns_of_online_sparse_vector_are_refused(job: Job) -> None:
    """At one charge, with other answers before it, one answer's noise was averaged away."""
    params = SvtParams(epsilon="0.6", threshold=0, cutoff=1, answers="numeric")
    for _ in range(3):
        with job.open() as run, pytest.raises(ParameterError, match="got ReleaseKey"):
            begin(params, run.key, "stream")  # type: ignore[arg-type]
    drawn = []
    for _ in range(300):
        other = {"release": "b", "target": job.folder / "b", "events": [Event("svt", "0.1")]}
        with contextlib.suppress(LedgerError), job.open(interactive=True, **other) as run:
            drawn.append(begin(params, run.interactive_key.take("SparseVector"), "stream"))
    assert len(drawn) == 1


def test_a_run_without_a_ledger_has_the_key_that_was_asked_for(job: Job) -> None:
    free = {"dataset": None, "ledger": None}
    with job.open(**free) as run, pytest.raises(ParameterError, match="got ReleaseKey"):
        LaplaceAnswers(1, 1, 1, run.key)  # type: ignore[arg-type]
    with job.open(**free, interactive=True) as run:
        LaplaceAnswers(1, 1, 1, run.interactive_key)
        with pytest.raises(ParameterError, match="taken by another"):
            LaplaceAnswers(1, 1, 1, run.interactive_key)


def test_an_interactive_run_that_fails_does_not_say_that_it_can_be_run_again(job: Job) -> None:
    with contextlib.suppress(RuntimeError), job.open(interactive=True) as run:
        run.interactive_key.take("Job")
        raise RuntimeError
    assert "never run again" in str(run.outcome)


def test_a_rerun_after_a_restore_gives_nothing_back(job: Job, tmp_path: Path) -> None:
    """The copy is of a moment when nothing was drawn; then the release was published."""
    job.killed("entered")
    with Ledger(job.url) as ledger:
        backup(ledger, str(tmp_path / "copy.db"))
    job.run()
    (tmp_path / "copy.db").replace(job.folder / "ledger.db")
    for _ in range(2):
        with pytest.raises(LedgerError, match="its key is not here"):
            job.run()
        with pytest.raises(LedgerError, match="its key is not here"):
            job.open().preflight()
    assert job.history() == [("monday", "reserved", True)]


@pytest.mark.parametrize("point", ["after rename", "before commit"])
def test_an_interactive_release_that_is_visible_is_committed(job: Job, point: str) -> None:
    job.killed(point, interactive=True)
    assert "committed now" in job.run(interactive=True)[-1]


def test_an_interactive_release_that_was_not_begun_can_be(job: Job) -> None:
    job.killed("entered", interactive=True)
    job.run(interactive=True)
    assert job.history() == [("monday", "committed", True)]


def test_a_committed_release_that_was_lost_or_changed_is_reported(job: Job) -> None:
    job.run()
    (job.target / "bits.bin").write_bytes(b"other")
    with pytest.raises(OutputError, match="has changed since"):
        job.run()
    for path in job.target.iterdir():
        path.unlink()
    job.target.rmdir()
    with pytest.raises(OutputError, match="is not there"):
        job.run()


@pytest.mark.parametrize("shape", ["directory", "file"])
def test_an_existing_target_is_never_overwritten(tmp_path: Path, shape: str) -> None:
    job = Job(tmp_path, shape)
    job.target.write_text("precious")
    with pytest.raises(OutputError, match="exists already"):
        job.run()
    assert job.history() == []
    job.target.unlink()

    def appear(name: str) -> None:
        if name == "written":
            job.target.write_text("precious")

    with pytest.raises(OutputError, match="exists already"):
        job.run(appear)
    assert job.target.read_text() == "precious"
    job.target.unlink()
    job.run()
    assert job.history() == [("monday", "committed", True)]


def test_a_foreign_target_after_prepare_is_not_taken_for_ours(job: Job) -> None:
    job.killed("after prepare")
    job.target.mkdir()
    (job.target / "bits.bin").write_bytes(b"somebody else's")
    with pytest.raises(OutputError, match="not what this release wrote"):
        job.run()
    assert job.history() == [("monday", "prepared", True)]


def test_two_runs_of_one_id_at_once(job: Job) -> None:
    with job.open() as first:
        first.key
        with pytest.raises(LedgerError, match="is being run by process"):
            job.run()
        (first.path / "manifest.json").write_text("{}")
        first.publish()
    assert job.history() == [("monday", "committed", True)]


def test_a_run_renews_its_lease(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on another machine, where nobody can see whether its process lives."""
    now, renewed, renew = [0.0], threading.Event(), Ledger.renew

    def renewing(*arguments: Any) -> None:
        renew(*arguments)
        renewed.set()

    monkeypatch.setattr(ledger_module, "LEASE_SECONDS", 0.2)
    monkeypatch.setattr(Store, "clock", lambda self, connection: now[0])
    monkeypatch.setattr(Ledger, "renew", renewing)
    monkeypatch.setattr(Owner, "is_dead", lambda self: False)
    with job.open() as run:
        run.key
        (run.path / "manifest.json").write_text("{}")
        for _ in range(4):
            now[0] += 0.1
            for _ in range(2):  # one of them has read the clock before
                renewed.clear()
                assert renewed.wait(60)
        with pytest.raises(LedgerError, match="is being run by process"):
            job.run()
        run.publish()
    assert job.history() == [("monday", "committed", True)]


def test_a_run_that_was_taken_over_publishes_nothing(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LedgerError, match="taken over"), job.open() as slow:  # noqa: PT012
        slow.key
        (slow.path / "manifest.json").write_text("{}")
        monkeypatch.setattr(Owner, "is_dead", lambda self: True)
        job.run()
        (slow.path / "manifest.json").parent.mkdir(exist_ok=True)
        (slow.path / "manifest.json").write_text("{}")
        slow.publish()
    assert job.history() == [("monday", "committed", True)]
    assert job.leftovers() == []


def test_without_a_ledger_the_same_calls_work_and_say_so(tmp_path: Path) -> None:
    with open_budget(job="release", events=[], target=tmp_path / "out") as run:
        assert run.notes == [NO_LEDGER]
        assert not run.tracked
        assert run.summary is None
        assert run.key == run.key
        (run.path / "manifest.json").write_text("{}")
        run.publish()
    assert (tmp_path / "out" / "manifest.json").exists()
    with pytest.raises(OutputError, match="exists already"):
        open_budget(job="release", events=[], target=tmp_path / "out").__enter__()
    with pytest.raises(ParameterError, match="dataset"):
        open_budget(job="release", events=[], target="x", ledger="sqlite:///l.db")
    with pytest.raises(ParameterError, match="release id"):
        open_budget(job="release", events=[], target="x", dataset="views")


def test_without_a_ledger_leftovers_of_dead_runs_are_removed_and_those_of_living_ones_stay(
    tmp_path: Path,
) -> None:
    def child() -> None:
        with open_budget(job="release", events=[], target=tmp_path / "out") as run:
            (run.path / "half").write_text("x")
            os.kill(os.getpid(), signal.SIGKILL)

    process = FORK.Process(target=child)
    process.start()
    process.join()
    assert len(list(tmp_path.iterdir())) == 1
    with open_budget(job="release", events=[], target=tmp_path / "out") as first:
        mine = first.path
        with open_budget(job="release", events=[], target=tmp_path / "out"):
            assert mine.exists()
        assert list(tmp_path.iterdir()) == [mine]


class Bucket(FileSystem):
    """An object store for tests, "bucket://…": a local folder, no renames, every creation noted."""

    root: ClassVar[Path]
    created: ClassVar[list[str]] = []
    inner = LocalFileSystem(None)

    @classmethod
    def scheme(cls) -> str:
        return "bucket"

    def _to(self, url: str) -> str:
        return str(self.root / url.removeprefix("bucket://"))

    def _from(self, path: str) -> str:
        return "bucket://" + str(Path(path).relative_to(self.root))

    def join(self, basepath: str, *paths: str) -> str:
        return "/".join([basepath.rstrip("/"), *paths])

    def split(self, path: str) -> tuple[str, str]:
        return path.rpartition("/")[0], path.rpartition("/")[2]

    def mkdirs(self, path: str) -> None: ...

    def has_dirs(self) -> bool:
        return False

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        for path in sorted(self.root.rglob("*")):
            if path.is_file() and self._from(str(path)).startswith(dir_or_prefix):
                yield FileMetadata(self._from(str(path)), path.stat().st_size)

    def create(self, path: str, mime_type: str = "", compression_type: str = "auto") -> Any:
        self.created.append(path)
        Path(self._to(path)).parent.mkdir(parents=True, exist_ok=True)
        return open(self._to(path), "wb")

    def open(self, path: str, mime_type: str = "", compression_type: str = "auto") -> Any:
        return open(self._to(path), "rb")

    def copy(self, source_file_names: list[str], destination_file_names: list[str]) -> None:
        for source, to in zip(source_file_names, destination_file_names, strict=True):
            with self.create(to) as sink:
                sink.write(Path(self._to(source)).read_bytes())

    def rename(self, source_file_names: list[str], destination_file_names: list[str]) -> None:
        raise AssertionError("an object store has no rename")

    def exists(self, path: str) -> bool:
        return Path(self._to(path)).is_file()

    def size(self, path: str) -> int:
        return Path(self._to(path)).stat().st_size

    def last_updated(self, path: str) -> float:
        return 0.0

    def checksum(self, path: str) -> str:
        return ""

    def metadata(self, path: str) -> FileMetadata:
        return FileMetadata(path, self.size(path))

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            Path(self._to(path)).unlink()


@pytest.mark.parametrize("how", ["output", "path"])
def test_object_stores_get_the_manifest_last(job: Job, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bucket, "root", job.folder / "bucket", raising=False)
    monkeypatch.setattr(Bucket, "created", [])
    target = "bucket://daily/urls.sketch"

    def run(*, die: bool = False) -> Run:
        with job.open(target=target) as run:
            if not run.done:
                run.key
                where = getattr(run, how)
                for name in ("manifest.json", "blocks-00000.bin", "heavy.parquet"):
                    opened = FileSystems.create(f"{where}/{name}") if how == "output" else None
                    with opened or open(where / name, "wb") as file:
                        file.write(name.encode())
                if die:
                    raise ZeroDivisionError
                run.publish()
        return run

    with pytest.raises(ZeroDivisionError):
        run(die=True)
    assert not (job.folder / "bucket/daily/urls.sketch").exists()
    Bucket.created.clear()
    run()
    published = [path for path in Bucket.created if path.startswith(f"{target}/")]
    assert len(published) == 3
    assert published[-1].endswith("/manifest.json")
    folder = job.folder / "bucket"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    names = ("blocks-00000.bin", "heavy.parquet", "manifest.json")
    assert files == [f"daily/urls.sketch/{name}" for name in names]
    assert "verified, nothing to do" in run().notes[-1]
    (job.folder / "bucket/daily/urls.sketch/heavy.parquet").write_text("other")
    with pytest.raises(OutputError, match="has changed since"):
        run()
    with pytest.raises(LedgerError, match="is that of release monday of views, which is committed"):
        job.run(release="tuesday", target=target, events=[Event("alp", "0.1")])


def test_digest_sees_names_bytes_and_structure(tmp_path: Path) -> None:
    def tree(name: str, files: dict[str, bytes]) -> str:
        for file, content in files.items():
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_bytes(content)
        return digest_of(str(tmp_path / name))

    same = {tree("a", {"x": b"1", "y/z": b"2"}), tree("b", {"y/z": b"2", "x": b"1"})}
    assert len(same) == 1
    assert len(same | {tree("c", {"x": b"1", "y": b"2"}), tree("d", {"x": b"12", "y/z": b""})}) == 3


def test_check_says_what_the_ledger_would_say_and_spends_nothing(job: Job) -> None:
    assert "ε = 0.6 of data set views, which has ε = 1 left" in job.open().preflight()
    with pytest.raises(BudgetExceeded):
        job.open(events=[Event("alp", "1.2")]).preflight()
    assert job.history() == []
    job.run()
    assert "is verified, nothing to do" in job.open().preflight()
    untracked = {"dataset": None, "ledger": None, "target": job.folder / "other"}
    assert job.open(**untracked).preflight() == NO_LEDGER


def test_a_damaged_ledger_means_no_release(job: Job) -> None:
    ledger = job.folder / "ledger.db"
    whole = ledger.read_bytes()
    ledger.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LedgerError, match="damaged"):
        job.run()
    assert not job.target.exists()
    assert job.leftovers() == []
    ledger.write_bytes(whole)
    job.run()
    assert job.history() == [("monday", "committed", True)]


def test_a_full_disk_at_the_last_step_loses_nothing(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(publishing, "rename_new", full)
    with pytest.raises(OutputError, match="No space left"):
        job.run()
    assert job.history() == [("monday", "prepared", True)]
    assert job.leftovers() == []
    monkeypatch.undo()
    job.run()
    assert job.history() == [("monday", "committed", True)]


def test_a_ledger_that_cannot_be_reached_after_the_rename_is_told_by_the_next_run(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any) -> None:
        raise LedgerError("the server is gone")

    monkeypatch.setattr(Ledger, "commit", gone)
    with pytest.raises(LedgerError, match="gone"):
        job.run()
    seen = job.output()
    monkeypatch.undo()
    assert "verified and committed now" in job.run()[-1]
    assert job.output() == seen


def test_litter_that_appears_after_the_commit_goes_with_the_next_run(job: Job) -> None:
    """A worker process that outlived its killed parent may write once more."""
    job.killed("written")
    [name] = job.leftovers()
    job.run()
    (job.folder / name).mkdir()
    assert "verified" in job.run()[-1]
    assert job.leftovers() == []
