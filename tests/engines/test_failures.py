"""Failures in the middle of a job: Flink restarts it, and the sketch has the same bytes.

Twenty failures in all: stages that throw before and after their work, Python workers that are killed, and
TaskManagers that are killed. Each is placed in a named stage by chaos.py, so it strikes in the middle of the
job for certain, and Flink's own history of the job shows that it did.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.engines.jobs import EPSILON, JOB_SECONDS, Bench, contents
from tools.engines.flink import FlinkCluster
from tools.engines.processes import wait_until
from tools.engines.workers import WorkerPools

pytestmark = pytest.mark.engine

CHAOS = Path(__file__).with_name("chaos.py")

Failure = dict[str, str]


def failure(stage: str, when: str, what: str) -> Failure:
    return {"stage": stage, "when": when, "what": what}


THROWN = [
    failure("read_records._ReadItem", "after", "throw"),
    failure("merge_histograms._Split", "before", "throw"),
    failure("merge_histograms.SumHistograms", "after", "throw"),
    failure("plan_release.ReleaseTotal", "after", "throw"),
    failure("select_keys._Select", "after", "throw"),
    failure("encode_counts._Project", "before", "throw"),
    failure("encode_counts._Release", "after", "throw"),
    failure("write_sketch._WriteHeavy", "after", "throw"),
    failure("write_sketch._WriteBlocks", "before", "throw"),
    failure("write_sketch._Publish", "after", "throw"),
]
WORKERS = [
    failure("read_records._ReadItem", "before", "die"),
    failure("select_keys._Select", "after", "die"),
    failure("encode_counts._Release", "after", "die"),
    failure("write_sketch._WriteBlocks", "after", "die"),
    failure("write_sketch._Publish", "after", "die"),
]
MANAGERS = [
    failure("read_records._ReadItem", "after", "die"),
    failure("plan_release.ReleaseTotal", "after", "die"),
    failure("encode_counts._Project", "after", "die"),
    failure("write_sketch._WriteHeavy", "after", "die"),
    failure("write_sketch._Publish", "before", "die"),
]
assert len(THROWN) + len(WORKERS) + len(MANAGERS) == 20


@pytest.fixture(scope="module")
def undisturbed(bench: Bench) -> dict[str, bytes]:
    return bench.release("undisturbed")


class Disturbed:
    """A release with planned failures on Flink, and the killing that some of them ask for."""

    def __init__(self, bench: Bench, name: str, failures: list[Failure], beam: list[str]) -> None:
        self.marks = bench.root / f"{name}.marks"
        self.marks.mkdir()
        self.target = bench.root / f"{name}.sketch"
        self.failures = failures
        spec = {
            "input": str(bench.root / "data" / "*.parquet"),
            "target": str(self.target),
            "key": str(bench.root / "key"),
            "epsilon": EPSILON,
            "marks": str(self.marks),
            "failures": failures,
        }
        path = bench.root / f"{name}.json"
        path.write_text(json.dumps(spec))
        self.log = bench.root / f"{name}.log"
        self.process = bench.start(bench.script(CHAOS, str(path), *beam), self.log)

    def wait(self, kill: object = None) -> None:
        """To the end of the job; `kill(pid)` is called for each worker that waits for its death."""
        end = time.monotonic() + JOB_SECONDS + 20 * len(self.failures)
        try:
            while self.process.poll() is None and time.monotonic() < end:
                for number in range(len(self.failures)):
                    asked, done = self.marks / f"{number}.die", self.marks / f"{number}.done"
                    if asked.exists() and not done.exists():
                        assert callable(kill)
                        kill(int(asked.read_text()))
                        done.touch()
                time.sleep(0.1)
            assert self.process.poll() == 0, self.log.read_text(errors="replace")[-6000:]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=10)

    def happened(self) -> int:
        return sum((self.marks / str(number)).exists() for number in range(len(self.failures)))


def check(disturbed: Disturbed, undisturbed: dict[str, bytes], flink: FlinkCluster) -> None:
    assert disturbed.happened() == len(disturbed.failures)
    assert contents(disturbed.target) == undisturbed
    job = flink.jobs()[-1]
    assert job["state"] == "FINISHED"
    # Two failures at the same moment in different stages are one restart.
    assert flink.failures(job["jid"]) >= len(disturbed.failures) // 2
    left = [
        p.name
        for p in disturbed.target.parent.iterdir()
        if disturbed.target.stem in p.name and p.name[0] == "."
    ]
    assert left == []  # no hidden work directory of a dead attempt


def test_stages_that_throw(
    bench: Bench, undisturbed: dict[str, bytes], flink: FlinkCluster, on_flink: list[str]
) -> None:
    job = Disturbed(bench, "thrown", THROWN, [*on_flink, "--parallelism=2"])
    job.wait()
    check(job, undisturbed, flink)


def test_workers_that_are_killed(
    bench: Bench, undisturbed: dict[str, bytes], flink: FlinkCluster, on_flink: list[str]
) -> None:
    def kill(pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    job = Disturbed(bench, "workers", WORKERS, [*on_flink, "--parallelism=2"])
    job.wait(kill)
    check(job, undisturbed, flink)


def test_task_managers_that_are_killed(
    bench: Bench,
    undisturbed: dict[str, bytes],
    flink: FlinkCluster,
    pools: WorkerPools,
    on_flink: list[str],
) -> None:
    job = Disturbed(bench, "managers", MANAGERS, [*on_flink, "--parallelism=2"])
    job.wait(lambda pid: flink.kill_task_manager(pools.place_of(pid)))
    check(job, undisturbed, flink)
    flink.wait_for_slots(4)


def test_one_charge(bench: Bench, flink: FlinkCluster, pools: WorkerPools, on_flink: list[str]) -> None:
    """`hushgram release` with a ledger, a worker killed on the way: one charge; again: none, and same
    bytes."""
    ledger = f"sqlite:///{bench.root}/ledger.db"
    target = bench.root / "charged.sketch"
    settings = {"dataset": "views", "ledger": ledger, "output.path": str(target)}
    overrides = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    command = bench.command("release", "release.yaml", *overrides, "--", *on_flink, "--parallelism=2")
    bench.run(bench.command("ledger", "init", "--dataset", "views", "--epsilon", "10", "--ledger", ledger))
    before = {place: flink.connected_workers(place) for place in flink.task_managers}

    def connected() -> list[int]:
        return [place for place, count in before.items() if flink.connected_workers(place) > count]

    job = bench.start(command, bench.root / "charged.log")
    try:
        # Not earlier, and not those of the other TaskManager, which may still start: Beam waits without end for a
        # worker that dies before it reports for work, and three minutes for one that dies between that and its
        # first data.
        wait_until(lambda: bool(connected()), 90, "a worker of the job")
        for pid in pools.workers(connected()[0]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert job.wait(timeout=JOB_SECONDS) == 0, (bench.root / "charged.log").read_text()[-6000:]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    first = contents(target)
    bench.run(command)
    assert contents(target) == first
    shown = json.loads(
        bench.run(bench.command("ledger", "show", "views", "--format", "json", "--ledger", ledger))
    )
    assert shown["spent_epsilon"] == EPSILON
    assert sum(shown["statuses"].values()) == 1
