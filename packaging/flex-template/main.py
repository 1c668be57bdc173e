"""The program of the Dataflow flex template: parameters of the template in, `hushgram release` out.

The launcher calls it with the template's parameters and Dataflow's own options (project, region, locations, job
name). Parameters that are not ours go to Beam unchanged; the config is fetched to a temporary file.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence


def arguments(argv: Sequence[str], config: str) -> list[str]:
    """The command line of hushgram, for a config that lies at the local path `config`."""
    ours, beam = _parse(argv)
    command = ["release", config, "--log", "json"]
    if ours.date:
        command += ["--date", ours.date]
    for override in filter(None, (ours.overrides or "").split(";")):
        command += ["--set", override]
    if not any(option.startswith("--runner") for option in beam):
        beam = ["--runner=DataflowRunner", *beam]
    return [*command, "--", *beam]


def _parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--config", required=True)
    parser.add_argument("--date")
    parser.add_argument("--overrides")
    return parser.parse_known_args(list(argv))


def main(argv: Sequence[str]) -> int | None:
    from apache_beam.io.filesystems import FileSystems

    from hushgram.pipelines.cli import main as hushgram

    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, "config.yaml")
        with FileSystems.open(_parse(argv)[0].config) as remote, open(local, "wb") as file:
            file.write(remote.read())
        return hushgram(arguments(argv, local))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
