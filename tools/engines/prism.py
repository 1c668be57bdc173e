"""Prism, Beam's local portable runner, as a process of its own."""

from __future__ import annotations

from pathlib import Path

from tools.engines.processes import EngineError, Process, free_port
from tools.engines.provision import Engines

__all__ = ["Prism"]

START_SECONDS = 30.0


class Prism:
    """A Prism server without its web page, running when the constructor returns."""

    def __init__(self, engines: Engines, work: Path) -> None:
        if engines.prism is None:
            raise EngineError("no go on the path: Prism is built from Beam's Go module")
        work.mkdir(parents=True, exist_ok=True)
        self._port = free_port()
        command = [str(engines.prism), f"-job_port={self._port}", "-serve_http=false", "-log_kind=text"]
        self._process = Process("prism", command, work / "prism.log", cwd=work)
        self._process.wait_for_port(self._port, START_SECONDS)

    @property
    def options(self) -> list[str]:
        """Pipeline options that submit to this server."""
        return ["--runner=PrismRunner", f"--job_endpoint=localhost:{self._port}"]

    @property
    def log(self) -> Path:
        return self._process.log

    def stop(self) -> None:
        self._process.stop()
