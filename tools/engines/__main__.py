"""A Flink cluster of this machine by hand: `python -m tools.engines`, until Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
import threading
from pathlib import Path

from tools.engines.flink import FlinkCluster, JobServer
from tools.engines.provision import EnginesUnavailable, provision
from tools.engines.workers import WorkerPools


def main() -> int:
    """Starts all of it, prints the options for a job, waits, stops."""
    try:
        engines = provision(with_prism=False)
    except EnginesUnavailable as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with tempfile.TemporaryDirectory(prefix="hushgram-flink-") as folder, contextlib.ExitStack() as stack:
        work = Path(folder)
        pools = WorkerPools(engines.python, work)
        stack.callback(pools.stop)
        cluster = FlinkCluster(engines, work)
        stack.callback(cluster.stop)
        server = JobServer(engines, cluster, work)
        stack.callback(server.stop)
        options = ["--runner=FlinkRunner", f"--flink_master={cluster.address}", "--parallelism=2"]
        options += [*server.options, *pools.options, "--environment_cache_millis=1000"]
        print(f"Flink runs at http://{cluster.address}, logs in {work}. A job, from another terminal:\n")
        print(
            f"{engines.hushgram} release CONFIG -- {' '.join(options)}\n\nCtrl-C stops all of it.", flush=True
        )
        with contextlib.suppress(KeyboardInterrupt):
            ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
