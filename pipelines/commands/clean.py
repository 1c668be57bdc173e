"""`hushgram clean`: list, and remove on request, the hidden folders that runs left next to their outputs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import click
import pyarrow as pa

from hushgram.errors import InputError
from hushgram.pipelines.jobs import JOBS
from hushgram.pipelines.run.outputs import WorkFolder, label_of, work_folders
from hushgram.pipelines.terminal import format_options, print_line, print_table
from hushgram.processes import Owner

__all__ = ["command"]

_DAY = 24 * 3600.0
_UNTRACKED = {label_of(f"{job} without a ledger") for job in JOBS} | {""}


@click.command("clean")
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER... [-- BEAM_OPTIONS]")
@click.option("--remove", is_flag=True, help="Remove them; without this they are only listed.")
@click.option(
    "--older-than", "days", type=click.FloatRange(0), default=7.0, show_default=True, metavar="DAYS",
    help="Keep what changed within DAYS, unless its process on this machine has certainly ended.",
)  # fmt: skip
@click.option(
    "--ledger", "url", metavar="URL", help="The ledger of these releases. Default: HUSHGRAM_LEDGER."
)
@format_options
def command(
    folders: tuple[str, ...], remove: bool, days: float, url: str | None, style: str, output: str | None
) -> None:
    """List hidden folders that killed runs left in FOLDER, the directory or bucket of the outputs.

    A folder is kept while its process lives, or while a release in the ledger is not finished. Folders of releases
    with a ledger need that ledger. Buckets that need Beam options, such as --hdfs_host, get them after --, as in jobs.
    """
    options = [each for each in folders if each.startswith("--")]
    if any("://" in folder for folder in folders):
        from hushgram.pipelines.run.job_runner import import_beam

        import_beam()  # without its warnings
        from hushgram.pipelines.run.beam_runners import pipeline_options

        pipeline_options(options)
    names, unfinished = _releases(url)
    rows = []
    for folder in (each for each in folders if each not in options):
        try:
            found = work_folders(folder)
        except OSError as problem:
            raise InputError(f"{folder} cannot be listed: {problem.strerror or problem}") from None
        for work in found:
            kept = next(_reasons_to_keep(work, names, unfinished, days), None)
            if remove and kept is None:
                work.remove()
            rows.append(
                {
                    "path": work.path,
                    "bytes": work.bytes,
                    "changed": datetime.fromtimestamp(work.changed, UTC).strftime("%Y-%m-%d %H:%M"),
                    "release": names.get(work.label, ""),
                    "action": f"keep: {kept}" if kept else "removed" if remove else "remove",
                }
            )
    if not rows and style == "table":
        print_line("nothing to clean")
        return
    columns = ("path", "bytes", "changed", "release", "action")
    types = {name: pa.int64() if name == "bytes" else pa.string() for name in columns}
    print_table(pa.Table.from_pylist(rows, pa.schema(list(types.items()))), style, output)
    if style == "table" and not remove and any(row["action"] == "remove" for row in rows):
        print_line("nothing was removed; add --remove")


def _releases(url: str | None) -> tuple[dict[str, str], set[str]]:
    """Return the names of all releases of the ledger by their labels, and the labels of those that are not finished."""
    from hushgram.errors import LedgerError, naming_extras

    with naming_extras():
        from hushgram.ledger import Ledger
    try:
        with Ledger(url) as ledger:
            records = [record for dataset in ledger.datasets() for record in ledger.history(dataset.name)]
    except LedgerError as problem:
        if url is not None or "there is no ledger" not in str(problem):
            raise
        return {}, set()
    labels = {record.id: label_of(f"{record.dataset}\n{record.name}") for record in records}
    finished = ("committed", "abandoned")
    return (
        {labels[record.id]: record.name for record in records},
        {labels[record.id] for record in records if record.status not in finished},
    )


def _reasons_to_keep(
    work: WorkFolder, names: dict[str, str], unfinished: set[str], days: float
) -> Iterator[str]:
    if Owner.is_live_mark(work.mark):
        yield "its process is running"
    if work.label in unfinished:
        yield "its release is not finished; run it again, or abandon it"
    if work.label not in names and work.label not in _UNTRACKED:
        yield "its release is not in this ledger; add --ledger"
    if not Owner.is_dead_mark(work.mark) and time.time() - work.changed < days * _DAY:
        yield f"changed within {days:g} days"
