"""The sketch directory: every file, the manifest last.

In:  (group, Heavy), `EncodedBlock` (where counts are encoded) and the plan. All of it released.
Out: the path, once the sketch is there.

Content comes from the functions of `hushgram.sketch.storage`, so the bytes are those of the library. On a
local file system the files go to a hidden directory beside the target, which becomes the target by one
rename; where the target is an empty directory, and on object stores, which have no rename, the files go there
and the manifest last: a directory without one is not a sketch. Every name and every byte is a function of the
released data, so a retry writes the same again.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from hushgram.encodings import EncodedBlock
from hushgram.errors import OutputError
from hushgram.key_selection.threshold import Heavy
from hushgram.publishing import check_free, output_errors, publish, remove_dead_work, work_name
from hushgram.sketch.heavy import heavy_bytes, list_parts
from hushgram.sketch.manifest import (
    BLOCKS_PER_FILE,
    INDEX_NAME,
    MANIFEST_NAME,
    FileEntry,
    Manifest,
    blocks_name,
    list_files,
    list_names,
)
from hushgram.sketch.storage import BlockFile, added_up
from hushgram.sparse_histogram.plan import Plan
from hushgram.sparse_histogram.spec import ReleaseSpec
from hushgram.sparse_histogram.steps import seeds_of
from hushgram.transforms.files import SharedKeys, write_file
from hushgram.transforms.shuffle import coders as _coders  # noqa: F401 (registers the coders)

if TYPE_CHECKING:
    from hushgram.ledger.tracking import TrackedRelease

__all__ = ["Target", "WriteSketch", "discard_work", "sweep"]

# Up to so many groups, one worker writes all listed keys: a further shuffle costs engines some tenths of a second.
_MAX_GATHERED = 256
# The names of all files that a run writes before its manifest.
_WRITTEN = re.compile(rf"(heavy|blocks)(-\d+)?\.(bin|parquet|index)|{re.escape(SharedKeys.NAME)}")


@dataclass(frozen=True)
class Target:
    """Where the sketch goes, and where its files are written first (there, if nothing can be renamed)."""

    path: str
    work: str
    #: the reservation of the ledger that is committed with the rename
    tracked: TrackedRelease | None = None

    @classmethod
    def under_ledger(cls, tracked: TrackedRelease) -> Target:
        """Return the target of a reservation."""
        return cls(str(check_free(tracked.target)), tracked.work(), tracked)

    @classmethod
    def of(cls, path: str) -> Target:
        """Return the target of a path; refuse what exists. An empty directory is taken as it is."""
        path = os.fspath(path)
        if FileSystems.get_scheme(path) is not None:
            path = path.rstrip("/")
            if _exists(f"{path}/{MANIFEST_NAME}"):
                raise OutputError(
                    f"output path {path} holds a sketch already; remove it or choose another name"
                )
            return cls(path, path)
        path = os.path.abspath(path)
        if os.path.isdir(path) and not os.listdir(path):
            return cls(path, path)
        free = check_free(path)
        remove_dead_work(free.parent)
        return cls(path, str(free.with_name(work_name(free.name))))

    @property
    def local(self) -> bool:
        """Return whether a rename makes the sketch visible."""
        return self.work != self.path


class WriteSketch(beam.PTransform):
    """Released parts → the sketch at ``target``; the result is a collection of its path alone."""

    def __init__(self, spec: ReleaseSpec, target: Target, groups: int = 1) -> None:
        super().__init__()
        self._spec, self._target = spec, target
        public = 0 if spec.public_keys is None else len(spec.public_keys.texts)
        self._gathered = groups <= _MAX_GATHERED and list_files(public) == 1

    def expand(self, parts: dict[str, Any]) -> Any:
        sides = [beam.pvalue.AsSingleton(parts["plan"])]
        if self._gathered:
            to_files = beam.Map(lambda part: (0, part))
        else:  # a file is written by one worker; how many there are follows from the number of listed keys
            rows = parts["heavy"] | "CountListed" >> beam.Map(lambda part: part[1].rows).with_output_types(
                int
            )
            sides.append(beam.pvalue.AsSingleton(rows | "AddUp" >> beam.CombineGlobally(sum)))
            to_files = beam.FlatMap(_cut, *sides)
        heavy = (
            parts["heavy"]
            | "ToListFiles" >> to_files.with_output_types(tuple[int, tuple[int, Heavy]])
            | "GroupHeavy" >> beam.GroupByKey()
            | "WriteHeavy" >> beam.ParDo(_WriteHeavy(self._target.work), *sides).with_output_types(_Written)
        )
        if "blocks" not in parts:  # a public list has no encoding
            return self._publish(parts, heavy)
        bits = (
            parts["blocks"]
            | "ToFiles"
            >> beam.Map(lambda b: (b.index // BLOCKS_PER_FILE, b)).with_output_types(tuple[int, EncodedBlock])
            | "GroupFiles" >> beam.GroupByKey()
            | "WriteBlocks" >> beam.ParDo(_WriteBlocks(self._target.work)).with_output_types(_Written)
        )
        written = (heavy, bits) | "AllFiles" >> beam.Flatten().with_output_types(_Written)
        return self._publish(parts, written)

    def _publish(self, parts: dict[str, Any], written: Any) -> Any:
        publish = beam.ParDo(_Publish(self._spec, self._target), beam.pvalue.AsList(written))
        return parts["plan"] | "Publish" >> publish.with_output_types(str)

    def display_data(self) -> dict[str, Any]:
        return {"path": self._target.path}


@dataclass(frozen=True)
class _Written:
    """A file that was written: its entry, and what the manifest and the index need of it."""

    entry: FileEntry
    rows: int = 0
    sums: tuple[int, ...] = ()
    index: bytes = b""


def _cut(part: tuple[int, Heavy], plan: Plan, rows: int) -> Iterator[tuple[int, tuple[int, Heavy]]]:
    """Yield what each file has of a group; the first group is in every file, so that all are written."""
    for number, held in list_parts(part[1], plan, list_files(rows), every=part[0] == 0).items():
        yield number, (part[0], held)


class _WriteHeavy(beam.DoFn):
    """The parts of a file of ``rows`` listed keys in all, or with None those of all files → the files."""

    def __init__(self, work: str) -> None:
        self._work = work

    def process(
        self, group: tuple[int, Iterable[tuple[int, Heavy]]], plan: Plan, rows: int | None = None
    ) -> Iterator[_Written]:
        heavy = Heavy.concat([part for _, part in sorted(group[1], key=lambda pair: pair[0])])
        files = list_files(heavy.rows if rows is None else rows)
        parts = list_parts(heavy, plan, files) if rows is None else {group[0]: heavy}
        for number, held in parts.items():
            for part in held.lists:
                name = list_names(files, texts=part.texts is not None)[number]
                content = heavy_bytes(part, two_lists=plan.sub_cells)
                yield _Written(_put(self._work, name, content), rows=len(part))


class _WriteBlocks(beam.DoFn):
    def __init__(self, work: str) -> None:
        self._work = work

    def process(self, group: tuple[int, Iterable[EncodedBlock]]) -> Iterator[_Written]:
        number, blocks = group
        file = BlockFile.of(number, sorted(blocks, key=lambda block: block.index))
        entry = _put(self._work, blocks_name(number), file.content)
        yield _Written(entry, sums=file.sums, index=file.index)


class _Publish(beam.DoFn):
    """Plan and the list of files → the manifest, and the sketch is there."""

    def __init__(self, spec: ReleaseSpec, target: Target) -> None:
        self._spec, self._target = spec, target

    def process(self, plan: Plan, written: list[_Written]) -> Iterator[str]:
        # listed keys first, then the files of blocks by number: the order of the library
        by_name = sorted(written, key=lambda file: file.entry.name)
        lists, files = (
            [file for file in by_name if file.entry.name.startswith(name)] for name in ("heavy", "blocks")
        )
        named = [file for file in lists if not plan.selection.texts or file.entry.name.endswith(".parquet")]
        cells = [file for file in lists if file not in named]
        lists = [*named, *cells]
        entries, sums = [file.entry for file in (*lists, *files)], added_up(file.sums for file in files)
        index = b"".join(file.index for file in files)
        if plan.layout is not None:
            entries.insert(len(lists), FileEntry.of(INDEX_NAME, index))
        spec, seeds = self._spec, seeds_of(plan, self._spec.release_key)
        rows = tuple(file.rows for file in named)
        cell_rows = tuple(file.rows for file in cells)
        manifest = Manifest(
            plan,
            seeds,
            sums,
            rows,
            cell_rows,
            tuple(entries),
            spec.name,
            key_expression=spec.key_expression,
        )
        content = manifest.to_bytes()
        if _read(f"{self._target.path}/{MANIFEST_NAME}") != content:  # equal: an earlier try came this far
            if plan.layout is not None:
                _put(self._target.work, INDEX_NAME, index)
            self._check(entries)
            sweep(self._target.work, {entry.name for entry in entries})
            _put(self._target.work, MANIFEST_NAME, content)
            if self._target.tracked is not None:
                self._target.tracked.publish(self._target.work)
            elif self._target.local:
                publish(self._target.work, self._target.path)
        elif self._target.tracked is not None:
            self._target.tracked.commit()
        yield self._target.path

    def _check(self, entries: list[FileEntry]) -> None:
        for entry in entries:
            path = f"{self._target.work}/{entry.name}"
            if not _exists(path):
                raise OutputError(
                    f"output file {path} is not visible here; give a path that all workers share"
                )


def sweep(directory: str, kept: Set[str] = frozenset()) -> None:
    """Remove what does not belong to the sketch: the key list of the workers, files that a worker was writing when it
    was killed, and, in an object store, lists and blocks of an earlier run that failed: they have noise of their own.
    """
    remote = FileSystems.get_scheme(directory) is not None
    with output_errors(directory):
        found = FileSystems.match([f"{directory}/*"])[0].metadata_list if remote else os.scandir(directory)
        names = {str(file.path): str(file.path).rpartition("/")[2] for file in found}
        drafts = [path for path, name in names.items() if name.endswith(".part") and not remote]
        others = [path for path, name in names.items() if name not in kept and _WRITTEN.fullmatch(name)]
        if drafts or others:
            FileSystems.delete(drafts + others)


def discard_work(target: Target) -> None:
    """Remove what a failed run left in its hidden directory."""
    if target.local:
        shutil.rmtree(target.work, ignore_errors=True)


def _put(directory: str, name: str, content: bytes) -> FileEntry:
    write_file(directory, name, content)
    return FileEntry.of(name, content)


def _exists(path: str) -> bool:
    try:
        return bool(FileSystems.exists(path))
    except BeamIOError as error:
        raise OutputError(f"output path {path} cannot be looked up: {error}") from None
    except ValueError:
        scheme = path.split("://", 1)[0]
        raise OutputError(
            f"output path {path}: no file system for {scheme}:// here; install the Beam extra for it"
        ) from None


def _read(path: str) -> bytes | None:
    if not _exists(path):
        return None
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        return bytes(file.read())
