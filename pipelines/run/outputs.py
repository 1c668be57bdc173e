"""Where the output of a run goes: written to a temporary place, then visible all at once and never over something else.

A local target appears by one rename of a directory next to it, ".NAME.hushgram-ID.TOKEN". ID is derived from the data
set and the release id, so that a later run finds and removes what dead runs of the same id left. TOKEN belongs to the
run, so that a run that was presumed dead cannot touch the files of the next one, and it names the process, so that any
later run can remove what a killed one left.

An object store has no rename: files are uploaded first and manifest.json last, and a sketch without a manifest is not a
sketch. A second upload writes the same bytes to the same names. HDFS has folders and renames them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from hushgram import publishing
from hushgram.errors import OutputError
from hushgram.publishing import (
    PrivateDirectory,
    is_dead_work,
    label_of,
    make_private,
    nearest_directory,
    output_errors,
    publish,
    remove_dead_work,
    rename_new,
    work_name,
)

__all__ = [
    "LocalOutput", "Output", "Shape", "StoreOutput", "WorkFolder", "digest_of", "label_of", "output_at", "work_folders",
]  # fmt: skip

Shape: TypeAlias = Literal["directory", "file"]

_LAST = "manifest.json"
_CHUNK = 1 << 20


def output_at(target: str, label: str, shape: Shape) -> Output:
    """Return the output at a path or URL; `label` names data set and release."""
    label = label_of(label)
    if "://" in target and not target.startswith("file://"):
        return StoreOutput(target.rstrip("/"), label, shape)
    return LocalOutput(Path(target.removeprefix("file://")), label, shape)


class LocalOutput:
    """A path on a file system, published by one rename."""

    def __init__(self, target: Path, label: str, shape: Shape) -> None:
        self.target, self._label, self._shape = target, label, shape

    def exists(self) -> bool:
        """Return whether something is published there."""
        return os.path.lexists(self.target)

    def digest(self) -> str:
        """Return the digest of what is published there."""
        with output_errors(self.target):
            return digest_of(str(self.target))

    def check_writable(self) -> None:
        """Write and rename something small next to the target and remove it; raise OutputError if that fails."""
        work = nearest_directory(self.target) / work_name("preflight")
        with output_errors(self.target):
            try:
                work.mkdir(mode=0o700)
                (work / "a").write_bytes(b"x")
                rename_new(work / "a", work / "b")
            except OSError as problem:
                raise OSError(problem.errno, problem.strerror) from None  # without the name of the draft
            finally:
                shutil.rmtree(work, ignore_errors=True)

    def local_work(self, token: str) -> Path:
        """Create an empty directory on this machine for this run."""
        return make_private(self.target.with_name(work_name(self.target.name, self._label, token)))

    def shared_work(self, token: str) -> str:
        """Return a place that all workers can write: here the same directory."""
        return str(self.local_work(token))

    def complete_work(self, token: str) -> str | None:
        """Return the place that `shared_work` gave a run, if what was to be written there is complete."""
        work = self.target.with_name(work_name(self.target.name, self._label, token))
        last = work / (_LAST if self._shape == "directory" else self.target.name)
        return str(work) if last.is_file() else None

    def publish(self, work: str) -> None:
        """Make what is in `work` visible at once; refuse to replace anything."""
        publish(work if self._shape == "directory" else Path(work, self.target.name), self.target)
        if self._shape == "file":
            self.discard(work)

    def discard(self, work: str) -> None:
        """Remove what a failed run has written to `work`."""
        shutil.rmtree(work, ignore_errors=True)

    def remove_leftovers(self, *, held: bool) -> None:
        """Remove what killed runs left; with `held` (nobody else may run this id) everything of this id."""
        remove_dead_work(self.target.parent, work_name(self.target.name, self._label, "") if held else None)


class StoreOutput:
    """A folder of an object store, published by copying its manifest last. See `LocalOutput` for the methods.

    A job may write to a hidden folder of the store (`shared_work`, needed if workers are other machines) or to a
    directory on this machine (`local_work`).
    """

    def __init__(self, target: str, label: str, shape: Shape) -> None:
        self.target, self._label, self._shape = target, label, shape
        self._parent, _, self._name = target.rpartition("/")
        self._local: PrivateDirectory | None = None

    def exists(self) -> bool:
        with _store_errors(self.target):
            return bool(_systems().exists(self.target if self._shape == "file" else f"{self.target}/{_LAST}"))

    def digest(self) -> str:
        with _store_errors(self.target):
            return digest_of(self.target)

    def check_writable(self) -> None:
        work = f"{self._parent}/{work_name('preflight')}"
        with _store_errors(self.target):
            with _systems().create(f"{work}/a", **_uncompressed()) as sink:
                sink.write(b"x")
            _remove(work, [f"{work}/a"])

    def shared_work(self, token: str) -> str:
        return f"{self._parent}/{work_name(self._name, self._label, token)}"

    def complete_work(self, token: str) -> str | None:
        work = self.shared_work(token)
        with _store_errors(self.target):
            last = _LAST if self._shape == "directory" else self._name
            return work if _systems().exists(f"{work}/{last}") else None

    def local_work(self, token: str) -> Path:
        self._local = PrivateDirectory()
        return make_private(self._local.path / "work")

    def publish(self, work: str) -> None:
        from hushgram.transforms.files import create_file

        if self.exists():
            raise OutputError(f"output {self.target} exists already; a release is never overwritten")
        with _store_errors(self.target):
            if "://" in work and _has_folders(work):
                self._rename(work)
                return
            names = _listed(f"{work}/*") if "://" in work else sorted(map(str, Path(work).iterdir()))
            self._remove_partial({name.rpartition("/")[2] for name in names})
            copied = []
            try:
                for name in sorted(names, key=lambda name: name.endswith(f"/{_LAST}")):
                    to = self.target if self._shape == "file" else f"{self.target}/{name.rpartition('/')[2]}"
                    copied.append(to)
                    if "://" in work:
                        _systems().copy([name], [to])
                    else:
                        with open(name, "rb") as source, create_file(to, **_uncompressed()) as sink:
                            shutil.copyfileobj(source, sink, _CHUNK)
            except BaseException:
                with contextlib.suppress(Exception):  # the next run of this release removes what is left
                    if not self.exists():
                        _systems().delete([to for to in copied if _systems().exists(to)])
                raise
        self.discard(work)

    def _remove_partial(self, kept: Set[str] = frozenset()) -> None:
        """Remove files of a sketch that a killed run has copied to the target: without a manifest they are none."""
        from hushgram.transforms.write_sketch import sweep

        if self._shape == "directory" and not _has_folders(self.target) and not self.exists():
            sweep(self.target, kept)

    def _rename(self, work: str) -> None:
        if _systems().exists(self.target):  # into which a folder would be moved
            raise OutputError(f"output {self.target} exists already; a release is never overwritten")
        _systems().rename([work if self._shape == "directory" else f"{work}/{self._name}"], [self.target])
        if self._shape == "file":
            _systems().delete([work])

    def discard(self, work: str) -> None:
        if self._local is not None:
            self._local.close()
        else:
            self._delete(lambda folder: folder == work.rpartition("/")[2])

    def remove_leftovers(self, *, held: bool) -> None:
        stem = work_name(self._name, self._label, "")
        if held:
            with contextlib.suppress(Exception):
                self._remove_partial()
        self._delete(lambda folder: is_dead_work(folder) or (held and folder.startswith(stem)))

    def _delete(self, selected: Callable[[str], bool]) -> None:
        with contextlib.suppress(Exception):  # leftovers do not make a run fail; the next run tries again
            left: dict[str, list[str]] = {}
            for file in _hidden_files(self._parent):
                name = file.path.removeprefix(f"{self._parent}/").partition("/")[0]
                left.setdefault(name, []).append(file.path)
            for folder, files in left.items():
                if selected(folder):
                    _remove(f"{self._parent}/{folder}", files)


Output: TypeAlias = LocalOutput | StoreOutput


@dataclass(frozen=True)
class WorkFolder:
    """A hidden folder that a run has written to: its label and mark (see the module), size and last change."""

    path: str
    files: tuple[str, ...]
    label: str
    mark: str
    bytes: int
    changed: float

    def remove(self) -> None:
        """Remove it."""
        if "://" not in self.path:
            shutil.rmtree(self.path, ignore_errors=True)
        elif self.files:
            with _store_errors(self.path):
                _remove(self.path, list(self.files))


def work_folders(folder: str) -> list[WorkFolder]:
    """Return the hidden folders of runs in a folder, by name."""
    found: dict[str, list[tuple[str, int, float]]] = {}
    top = folder.rstrip("/")
    if "://" in top:
        with _store_errors(top):
            for file in _hidden_files(top):
                name = file.path.removeprefix(f"{top}/").partition("/")[0]
                found.setdefault(name, []).append(
                    (file.path, file.size_in_bytes, file.last_updated_in_seconds or 0)
                )
    else:
        for path in sorted(Path(folder).glob(".*.hushgram-*")):
            if path.is_dir() and not path.is_symlink():
                stats = [(str(each), each.lstat()) for each in (path, *path.rglob("*"))]
                found[path.name] = [
                    (name, 0 if stat.S_ISDIR(one.st_mode) else one.st_size, one.st_mtime)
                    for name, one in stats
                ]
    folders = []
    for name, files in sorted(found.items()):
        label, _, mark = name.rpartition(".hushgram-")[2].rpartition(".")
        paths, sizes, times = zip(*files, strict=True)
        folders.append(WorkFolder(f"{top}/{name}", paths, label, mark, sum(sizes), max(times)))
    return folders


def digest_of(path: str) -> str:
    """Return a SHA-256 over the names and bytes of a file, or of all files below a directory, in order of names."""
    if "://" not in path:
        return publishing.digest_of(path)
    files = {name.rpartition("/")[2]: name for name in _listed(f"{path}/*") or _listed(path)}
    return publishing.digest_files({name: functools.partial(_open, file) for name, file in files.items()})


def size_of(path: str) -> int:
    """Return the bytes of a file, or of all files of a directory."""
    if "://" in path:
        found = _systems().match([f"{path}/*", path])
        return sum(file.size_in_bytes for match in found for file in match.metadata_list)
    inside = Path(path).rglob("*") if os.path.isdir(path) else [Path(path)]
    return sum(file.stat().st_size for file in inside if file.is_file())


def _systems() -> Any:
    from apache_beam.io.filesystems import FileSystems

    return FileSystems


def _hidden_files(parent: str) -> list[Any]:
    """Return the files in hidden folders of runs, with those folders where a file system has such (HDFS)."""
    hidden = f"{parent}/.*.hushgram-*"
    if not _has_folders(parent):
        return list(_systems().match([f"{hidden}/*"])[0].metadata_list)
    folders = _systems().match([hidden])[0].metadata_list  # Beam lists one level at a time here
    inside = _systems().match([f"{folder.path}/*" for folder in folders]) if folders else []
    return [*folders, *(file for match in inside for file in match.metadata_list)]


def _remove(folder: str, files: list[str]) -> None:
    """Remove the files of a folder, and the folder where a file system has such (HDFS)."""
    _systems().delete([folder] if _has_folders(folder) else files)


def _has_folders(path: str) -> bool:
    return bool(_systems().get_filesystem(path).has_dirs())


def _uncompressed() -> dict[str, Any]:
    from apache_beam.io.filesystem import CompressionTypes

    return {"compression_type": CompressionTypes.UNCOMPRESSED}


def _open(path: str) -> Any:
    return _systems().open(path, **_uncompressed())


def _listed(pattern: str) -> list[str]:
    return sorted(found.path for found in _systems().match([pattern])[0].metadata_list)


@contextlib.contextmanager
def _store_errors(target: str) -> Iterator[None]:
    from hushgram.transforms.files import missing_file_system

    if (missing := missing_file_system(target)) is not None:
        raise OutputError(f"output {target} cannot be written: {missing}")
    try:
        with output_errors(target):
            yield
    except ValueError as problem:  # no file system for such an address
        raise OutputError(f"output {target} cannot be opened: {problem}") from None
