"""HDFS on this machine: a NameNode and a DataNode as processes of their own, on the loopback interface."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from urllib.request import urlopen

from tools.engines.processes import EngineError, Process, free_port, wait_until

__all__ = ["Hdfs"]

START_SECONDS = 60.0
_SERVER = "org.apache.hadoop.hdfs.server"


class Hdfs:
    """A cluster of one machine, with WebHDFS at ``address`` (host:port), ready when the constructor returns."""

    def __init__(self, lib: Path, work: Path) -> None:
        java = shutil.which("java")
        if java is None:
            raise EngineError("no java on the path")
        port, conf = free_port(), work / "conf"
        self.address = f"127.0.0.1:{port}"
        for app in ("hdfs", "datanode", "static"):  # pages that the jars do not contain
            (conf / "webapps" / app).mkdir(parents=True)
        local = "127.0.0.1:0"
        settings = {
            "fs.defaultFS": f"hdfs://127.0.0.1:{free_port()}", "dfs.namenode.http-address": self.address,
            "dfs.namenode.name.dir": str(work / "name"), "dfs.datanode.data.dir": str(work / "data"),
            "dfs.datanode.address": local, "dfs.datanode.http.address": local, "dfs.datanode.ipc.address": local,
            "dfs.datanode.hostname": "localhost", "dfs.replication": "1",
        }  # fmt: skip
        properties = (f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items())
        (conf / "hdfs-site.xml").write_text(f"<configuration>{''.join(properties)}</configuration>")
        shutil.copy(conf / "hdfs-site.xml", conf / "core-site.xml")
        command = [
            java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "--add-opens=java.base/java.lang=ALL-UNNAMED", "-cp", f"{conf}:{lib}/*",
        ]  # fmt: skip
        name_node, data_node = f"{_SERVER}.namenode.NameNode", f"{_SERVER}.datanode.DataNode"
        subprocess.run([*command, name_node, "-format", "-nonInteractive"], check=True, capture_output=True)
        self._processes = [
            Process(main.rpartition(".")[2], [*command, main], work / f"{main}.log", cwd=work)
            for main in (name_node, data_node)
        ]
        try:
            self._processes[0].wait_for_port(port, START_SECONDS)
            wait_until(self._has_data_node, START_SECONDS, "a DataNode that has joined")
        except EngineError:
            self.stop()
            raise

    def _has_data_node(self) -> bool:
        bean = "Hadoop:service=NameNode,name=FSNamesystemState"
        with urlopen(f"http://{self.address}/jmx?qry={bean}", timeout=10) as answer:
            found = json.load(answer)["beans"]
        return bool(found and found[0]["NumLiveDataNodes"])

    @property
    def options(self) -> list[str]:
        """Pipeline options for hdfs:// paths."""
        host, _, port = self.address.partition(":")
        return [f"--hdfs_host={host}", f"--hdfs_port={port}", "--hdfs_user=hushgram"]

    def stop(self) -> None:
        for process in self._processes:
            process.stop()
