"""Python workers as processes of their own: Beam's worker pool, run by the interpreter that holds only the
wheel.

Beam's pool names a worker by an id that is unique within one TaskManager only, so two TaskManagers that
share a pool end each other's workers. In production each TaskManager has a pool beside it (a sidecar). The
same is done here: pool k listens on 127.0.0.(k+1), one port for all, and TaskManager k resolves the name
`worker-pool` to that address.
"""

from __future__ import annotations

import os
from pathlib import Path

from tools.engines.processes import EngineError, Process, free_port

__all__ = ["POOL_HOST", "WorkerPools", "pool_address"]

START_SECONDS = 60.0
POOL_HOST = "worker-pool"


def pool_address(index: int) -> str:
    """The loopback address of pool `index`."""
    return f"127.0.0.{index + 1}"


class WorkerPools:
    """`count` external worker pools; a TaskManager asks its own for a worker process when a job needs one.

    The pools run in an empty directory with a clean environment: no PYTHONPATH, no repository, so a stage
    that needs more than the wheel fails here as it would on a remote machine.
    """

    def __init__(self, python: Path, work: Path, count: int = 2) -> None:
        self._port = free_port()
        empty = work / "worker-cwd"
        empty.mkdir(parents=True, exist_ok=True)
        env = {
            "PATH": f"{python.parent}:{os.environ.get('PATH', '')}",
            "HOME": str(empty),
            "LANG": "C.UTF-8",
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }
        self._pools = [
            Process(
                f"worker pool {k}",
                [
                    str(python),
                    "-m",
                    "hushgram.pipelines.run.worker_pool",
                    f"--host={pool_address(k)}",
                    f"--port={self._port}",
                ],
                work / f"workers-{k}.log",
                env=env,
                cwd=empty,
            )
            for k in range(count)
        ]
        for k, pool in enumerate(self._pools):
            pool.wait_for_port(self._port, START_SECONDS, host=pool_address(k))

    @property
    def options(self) -> list[str]:
        """Pipeline options that send the Python stages to the pool of whichever TaskManager runs them."""
        return ["--environment_type=EXTERNAL", f"--environment_config={POOL_HOST}:{self._port}"]

    @property
    def local_options(self) -> list[str]:
        """The same for an engine that is one process on this machine (Prism): pool 0 by its address."""
        return ["--environment_type=EXTERNAL", f"--environment_config={pool_address(0)}:{self._port}"]

    @property
    def logs(self) -> list[Path]:
        return [pool.log for pool in self._pools]

    def workers(self, place: int) -> list[int]:
        """Process ids of the workers that run now in one pool."""
        return self._pools[place].children()

    def place_of(self, worker: int) -> int:
        """Which pool, and so which TaskManager, a worker process belongs to."""
        for place, pool in enumerate(self._pools):
            if worker in pool.children():
                return place
        raise EngineError(f"process {worker} is not a worker of these pools")

    def cpu_seconds(self) -> float:
        return sum(pool.cpu_seconds() for pool in self._pools)

    def stop(self) -> None:
        for pool in self._pools:
            pool.stop()
