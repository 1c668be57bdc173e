"""Jobs on Flink whose launcher is stopped or killed: cancelled, or adopted by the next run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from tests.engines.jobs import EPSILON, JOB_SECONDS, Bench, contents
from tools.engines.flink import FlinkCluster
from tools.engines.processes import wait_until

pytestmark = pytest.mark.engine


@contextlib.contextmanager
def started(bench: Bench, flink: FlinkCluster, command: list[str], log: Path) -> Iterator[Popen[bytes]]:
    """A launcher whose job runs on Flink, and whose ledger knows the job."""
    process = bench.start(command, log)
    try:
        wait_until(lambda: flink.running_job() is not None, 90, "the job")
        wait_until(
            lambda: bytes(flink.jobs()[-1]["name"], "ascii") in _rows(bench), 30, "its id in the ledger"
        )
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=10)


def _rows(bench: Bench) -> bytes:
    return (bench.root / "launcher.db").read_bytes()


def test_a_launcher_that_ends_early(bench: Bench, flink: FlinkCluster, on_flink: list[str]) -> None:
    ledger, target = f"sqlite:///{bench.root}/launcher.db", bench.root / "launcher.sketch"
    settings = {"dataset": "views", "ledger": ledger, "output.path": str(target), "release": "launched"}
    sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    command = bench.command(
        "release", "release.yaml", *sets, "--log", "json", "--", *on_flink, "--parallelism=2"
    )
    bench.run(bench.command("ledger", "init", "--dataset", "views", "--epsilon", "10", "--ledger", ledger))

    # Stopped: its job is cancelled, and the last line says how it ended.
    log = bench.root / "stopped.log"
    with started(bench, flink, command, log) as launcher:
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(timeout=90) == 143
        assert flink.jobs()[-1]["state"] == "CANCELED"
    last = json.loads(log.read_text().splitlines()[-1])
    assert (last["event"], last["message"], last["exit_code"]) == ("error", "stopped", 143)
    assert [path.name for path in bench.root.glob(".launcher*")] == []

    # Killed: its job goes on, and the next run publishes what the job has written.
    with started(bench, flink, command, bench.root / "killed.log") as launcher:
        launcher.kill()
        launcher.wait(timeout=10)
    job = flink.jobs()[-1]
    lines = bench.run(command, JOB_SECONDS).splitlines()
    assert flink.jobs()[-1]["jid"] == job["jid"]  # no other job was needed
    finished = json.loads(lines[-1])
    assert finished["event"] == "finished"
    assert finished["output"] == str(target)
    assert finished["epsilon"] == EPSILON
    assert finished["engine_job"]
    assert any("of an earlier run ended as DONE" in line for line in lines)
    assert [path.name for path in bench.root.glob(".launcher*")] == []
    assert "manifest.json" in contents(target)
    bench.run(bench.command("verify", str(target)))
    shown = json.loads(
        bench.run(bench.command("ledger", "show", "views", "--format", "json", "--ledger", ledger))
    )
    assert shown["spent_epsilon"] == EPSILON
