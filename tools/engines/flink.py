"""A standalone Flink cluster and Beam's job server on the loopback interface of one machine.

One JobManager, any number of TaskManagers with a given number of slots each, all JVMs started directly (no
shell scripts), configuration, logs, blobs and checkpoints in one directory that the caller owns.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

from tools.engines.processes import EngineError, Process, free_port, wait_until
from tools.engines.provision import Engines
from tools.engines.workers import POOL_HOST, pool_address

__all__ = ["FlinkCluster", "JobServer"]

START_SECONDS = 90.0
HISTORY = 64  # failures of a job that Flink remembers
QUIET_JOB_SERVER = Path(__file__).with_name("QuietJobServer.java")
JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"

# Flink reflects into the JDK; the distribution's own configuration opens these packages on Java 17.
_OPENS = [
    f"--add-{verb}=java.base/{package}=ALL-UNNAMED"
    for verb, package in [
        ("exports", "sun.net.util"),
        ("opens", "java.lang"),
        ("opens", "java.net"),
        ("opens", "java.io"),
        ("opens", "java.nio"),
        ("opens", "sun.nio.ch"),
        ("opens", "java.lang.reflect"),
        ("opens", "java.text"),
        ("opens", "java.time"),
        ("opens", "java.util"),
        ("opens", "java.util.concurrent"),
        ("opens", "java.util.concurrent.atomic"),
        ("opens", "java.util.concurrent.locks"),
    ]
]

_LOG4J = """rootLogger.level = INFO
rootLogger.appenderRef.out.ref = Out
appender.out.name = Out
appender.out.type = CONSOLE
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss,SSS} %-5p %-40c{1} - %m%n
"""


def _config(
    work: Path, rpc: int, rest: int, slots: int, restarts: int, extra: dict[str, str]
) -> dict[str, str]:
    """Flink's settings; memory is given part by part because TaskManagers are started without Flink's
    scripts."""
    return {
        "jobmanager.rpc.address": "localhost",
        "jobmanager.rpc.port": str(rpc),
        "jobmanager.bind-host": "localhost",
        "rest.address": "localhost",
        "rest.bind-address": "localhost",
        "rest.port": str(rest),
        "taskmanager.host": "localhost",
        "taskmanager.bind-host": "localhost",
        "taskmanager.numberOfTaskSlots": str(slots),
        "taskmanager.cpu.cores": "1.0",
        "taskmanager.memory.framework.heap.size": "128m",
        "taskmanager.memory.task.heap.size": "640m",
        "taskmanager.memory.framework.off-heap.size": "128m",
        "taskmanager.memory.task.off-heap.size": "256m",
        "taskmanager.memory.network.min": "384m",
        "taskmanager.memory.network.max": "384m",
        "taskmanager.memory.managed.size": "384m",
        "taskmanager.memory.jvm-metaspace.size": "512m",
        "taskmanager.memory.jvm-overhead.min": "192m",
        "taskmanager.memory.jvm-overhead.max": "192m",
        "io.tmp.dirs": str(work / "tmp"),
        "blob.storage.directory": str(work / "blobs"),
        "state.checkpoints.dir": (work / "checkpoints").as_uri(),
        "state.savepoints.dir": (work / "savepoints").as_uri(),
        # A dead TaskManager is noticed within seconds instead of the default 50 s.
        "heartbeat.interval": "1000",
        "heartbeat.timeout": "8000",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": str(restarts),
        "restart-strategy.fixed-delay.delay": "2 s",
        "slot.request.timeout": "60000",
        "taskmanager.registration.timeout": "1 min",
        "web.exception-history-size": str(HISTORY),
        "classloader.check-leaked-classloader": "false",
        # Beam's classes come from the cluster's own class path (FlinkCluster._jvm). Only then does Beam
        # keep a Python worker from one stage of a job to the next; loaded per job, every stage starts
        # Python anew.
        "classloader.resolve-order": "parent-first",
        **extra,
    }


class FlinkCluster:
    """One JobManager and `task_managers` TaskManagers with `slots` slots each, running when the
    constructor returns.

    `restarts` is Flink's fixed-delay restart strategy: how often a job may fail and start again.
    """

    def __init__(
        self,
        engines: Engines,
        work: Path,
        *,
        task_managers: int = 2,
        slots: int = 2,
        restarts: int = 60,
        settings: dict[str, str] | None = None,
    ) -> None:
        self._engines, self._work = engines, work
        self._rest = free_port()
        for name in ("conf", "tmp", "blobs", "checkpoints", "savepoints"):
            (work / name).mkdir(parents=True, exist_ok=True)
        config = _config(work, free_port(), self._rest, slots, restarts, settings or {})
        lines = (f"{key}: {json.dumps(value)}\n" for key, value in config.items())
        (work / "conf" / "config.yaml").write_text("".join(lines))
        (work / "conf" / "log4j.properties").write_text(_LOG4J)
        self._started = 0
        self.task_managers: dict[int, Process] = {}
        self.job_manager = self._jvm("jobmanager", JOB_MANAGER, "512m")
        try:
            self.job_manager.wait_for_port(self._rest, START_SECONDS)
            for place in range(task_managers):
                self.start_task_manager(place)
            self.wait_for_slots(task_managers * slots)
        except BaseException:
            self.stop()
            raise

    @property
    def address(self) -> str:
        """Return the value for --flink_master."""
        return f"localhost:{self._rest}"

    @property
    def logs(self) -> list[Path]:
        return sorted(self._work.glob("*.log"))

    def start_task_manager(self, place: int) -> Process:
        """A TaskManager at `place` (0, 1, …), which has the worker pool of that number; it registers by
        itself."""
        hosts = self._work / "conf" / f"hosts-{place}"
        hosts.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n{pool_address(place)} {POOL_HOST}\n")
        manager = self._jvm(
            f"taskmanager-{self._started}", TASK_MANAGER, "768m", f"-Djdk.net.hosts.file={hosts}"
        )
        self._started += 1
        self.task_managers[place] = manager
        return manager

    def kill_task_manager(self, place: int) -> None:
        """SIGKILL to a TaskManager, as a machine that loses power; a fresh one takes its place."""
        self.task_managers.pop(place).kill()
        self.start_task_manager(place)

    def wait_for_slots(self, slots: int) -> None:
        """Return when the TaskManagers offer `slots` slots together; EngineError if one of them ends or
        time runs out."""

        def offered() -> bool:
            for manager in self.task_managers.values():
                if not manager.running:
                    raise EngineError(f"{manager.name} ended:\n{manager.tail()}")
            with contextlib.suppress(OSError):  # 503 while the JobManager is starting
                return int(self.get("/overview")["slots-total"]) >= slots
            return False

        wait_until(offered, START_SECONDS, f"{slots} slots on {len(self.task_managers)} TaskManagers")

    def jobs(self) -> list[dict[str, Any]]:
        """Jobs that the JobManager knows, oldest first, with jid, state and start time."""
        return sorted(self.get("/jobs/overview")["jobs"], key=lambda job: int(job["start-time"]))

    def running_job(self) -> str | None:
        """The id of a job that runs or restarts now."""
        alive = [
            job["jid"]
            for job in self.jobs()
            if job["state"] in {"CREATED", "RUNNING", "RESTARTING", "FAILING"}
        ]
        return alive[-1] if alive else None

    def failures(self, job: str) -> int:
        """How many failures of the job Flink remembers; each was followed by a restart."""
        history = self.get(f"/jobs/{job}/exceptions?maxExceptions={HISTORY}")["exceptionHistory"]
        return len(history["entries"])

    def restored(self, job: str) -> int:
        """How often a streaming job went on from a checkpoint."""
        return int(self.get(f"/jobs/{job}/checkpoints")["counts"]["restored"])

    def checkpoints(self, job: str) -> int:
        """Completed checkpoints of a streaming job."""
        return int(self.get(f"/jobs/{job}/checkpoints")["counts"]["completed"])

    def connected_workers(self, place: int) -> int:
        """How many Python workers the TaskManager at `place` has ever given data, by its log."""
        return self.task_managers[place].log.read_text(errors="replace").count("Fn Data client connected")

    def cancel(self, job: str) -> None:
        request = urllib.request.Request(f"http://{self.address}/jobs/{job}?mode=cancel", method="PATCH")
        urllib.request.urlopen(request, timeout=20).close()

    def get(self, path: str) -> Any:
        """Flink's REST interface."""
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=20) as reply:
            return json.load(reply)

    def cpu_seconds(self) -> float:
        return sum(process.cpu_seconds() for process in (*self.task_managers.values(), self.job_manager))

    def stop(self) -> None:
        for process in (*self.task_managers.values(), self.job_manager):
            process.stop()
        for name in ("tmp", "blobs"):
            shutil.rmtree(self._work / name, ignore_errors=True)

    def _jvm(self, name: str, main: str, heap: str, *flags: str) -> Process:
        java = shutil.which("java")
        if java is None:
            raise EngineError("no java on the path")
        conf = self._work / "conf"
        command = [
            java,
            f"-Xmx{heap}",
            "-Xss512k",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *_OPENS,
            *flags,
            f"-Dlog4j.configurationFile={conf / 'log4j.properties'}",
            "-cp",
            f"{self._engines.flink_lib}/*:{self._engines.job_server_jar}",
            main,
            "--configDir",
            str(conf),
        ]
        env = {**os.environ, "FLINK_CONF_DIR": str(conf), "FLINK_LIB_DIR": str(self._engines.flink_lib)}
        return Process(name, command, self._work / f"{name}.log", env=env, cwd=self._work)


def _empty_jar(work: Path) -> Path:
    path = work / "empty.jar"
    with zipfile.ZipFile(path, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
    return path


class JobServer:
    """Beam's Flink job server as a process of its own, so that many jobs share one JVM start.

    The server sends its whole class path to the cluster with every job, 150 MB of it. The TaskManagers of
    `FlinkCluster` have those classes already, so QuietJobServer.java loads them unseen and an empty jar is
    sent.
    """

    def __init__(self, engines: Engines, cluster: FlinkCluster, work: Path) -> None:
        java = shutil.which("java")
        if java is None:
            raise EngineError("no java on the path")
        self._port, artifacts = free_port(), work / "artifacts"
        artifacts.mkdir(parents=True, exist_ok=True)
        self._process = Process(
            "job server",
            [
                java,
                "-Xmx512m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                *_OPENS,
                "-Dorg.slf4j.simpleLogger.showDateTime=true",
                "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
                "-cp",
                str(_empty_jar(work)),
                str(QUIET_JOB_SERVER),
                str(engines.job_server_jar),
                "--flink-master",
                cluster.address,
                "--job-host",
                "localhost",
                "--job-port",
                str(self._port),
                "--artifact-port",
                str(free_port()),
                "--expansion-port",
                str(free_port()),
                "--artifacts-dir",
                str(artifacts),
                "--clean-artifacts-per-job",
            ],
            work / "jobserver.log",
            cwd=work,
        )
        self._process.wait_for_port(self._port, START_SECONDS)

    @property
    def options(self) -> list[str]:
        """Pipeline options that submit through this server."""
        return [f"--job_endpoint=localhost:{self._port}"]

    def cpu_seconds(self) -> float:
        return self._process.cpu_seconds()

    def stop(self) -> None:
        self._process.stop()
