"""Beam's Spark job server as a process of its own, with Spark inside it: local mode, one JVM."""

from __future__ import annotations

import shutil
from pathlib import Path

from tools.engines.processes import EngineError, Process, free_port
from tools.engines.provision import Engines

__all__ = ["Spark"]

START_SECONDS = 60.0
DRIVER = "org.apache.beam.runners.spark.SparkJobServerDriver"
# What Spark's own start scripts open on Java 17.
_OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.security.action",
    "sun.util.calendar", "jdk.internal.ref",
)  # fmt: skip


class Spark:
    """A job server that runs jobs on Spark in local mode with ``cores`` cores, running when the constructor returns."""

    def __init__(self, engines: Engines, work: Path, cores: int = 2) -> None:
        java = shutil.which("java")
        if java is None:
            raise EngineError("no java on the path")
        self._port, artifacts = free_port(), work / "spark-artifacts"
        artifacts.mkdir(parents=True, exist_ok=True)
        ports = {"job": self._port, "artifact": free_port(), "expansion": free_port()}
        command = [
            java, "-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
            "-Dspark.ui.enabled=false", "-Dspark.driver.host=localhost", "-Dspark.driver.bindAddress=127.0.0.1",
            f"-Dspark.local.dir={work / 'spark-tmp'}",
            "-cp", f"{engines.spark_lib}/*", DRIVER,
            f"--spark-master-url=local[{cores}]", "--job-host=localhost",
            *(f"--{name}-port={port}" for name, port in ports.items()),
            f"--artifacts-dir={artifacts}", "--clean-artifacts-per-job",
        ]  # fmt: skip
        self._process = Process("spark job server", command, work / "spark.log", cwd=work)
        self._process.wait_for_port(self._port, START_SECONDS)

    @property
    def options(self) -> list[str]:
        """Pipeline options that submit to this server."""
        cached = "--environment_cache_millis=10000"  # else every stage starts Python anew
        return ["--runner=PortableRunner", f"--job_endpoint=localhost:{self._port}", cached]

    def stop(self) -> None:
        self._process.stop()
