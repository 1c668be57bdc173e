"""From a temporary directory to the target, visible all at once and never over something else.

A local target appears by one rename of a directory beside it, ".NAME.hushgram-ID.TOKEN": ID is derived from
the data set and the release id, so that a later run finds and removes what dead runs of the same id left;
TOKEN is the run's own, so that a run that was thought dead and wakes up cannot touch the files of the next,
and names its process, so that any later run beside it can remove what a killed one left.

An object store has no rename: files are uploaded first and manifest.json last, and a sketch without a
manifest is not a sketch. A second upload writes the same bytes to the same names.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

from hushgram.errors import OutputError
from hushgram.private_directory import PrivateDirectory
from hushgram.publishing import (
    clear_dead,
    is_dead_work,
    make_private,
    nearest_directory,
    output_errors,
    publish,
    rename_new,
    work_name,
)

__all__ = [
    "LocalPlace", "Place", "Shape", "StorePlace", "digest_tree", "digest_work", "place_for",
]  # fmt: skip

Shape: TypeAlias = Literal["directory", "file"]

_LAST = "manifest.json"
_CHUNK = 1 << 20


def place_for(target: str, label: str, shape: Shape) -> Place:
    """The place behind a path or a URL; `label` names data set and release."""
    if "://" in target and not target.startswith("file://"):
        return StorePlace(target, label, shape)
    return LocalPlace(Path(target.removeprefix("file://")), label, shape)


class LocalPlace:
    """A path on a file system: published by one rename."""

    def __init__(self, target: Path, label: str, shape: Shape) -> None:
        self.target, self.shape, self._label = target, shape, _short_hash(label)

    def exists(self) -> bool:
        """Whether something is published there."""
        return os.path.lexists(self.target)

    def digest(self) -> str:
        """The digest of what is published there."""
        with output_errors(self.target):
            return digest_tree(self.target)

    def rehearse(self) -> None:
        """Writes and renames something small beside the target, and removes it: refuses a place that cannot."""
        above = nearest_directory(self.target)
        with output_errors(self.target):
            work = None
            try:
                work = above / work_name("rehearsal")
                work.mkdir(mode=0o700)
                (work / "a").write_bytes(b"x")
                rename_new(work / "a", work / "b")
            except OSError as problem:
                raise OSError(problem.errno, problem.strerror) from None  # its name means nothing to anybody
            finally:
                if work is not None:
                    shutil.rmtree(work, ignore_errors=True)

    def workdir(self, token: str) -> Path:
        """A fresh empty directory on this machine for this run."""
        return make_private(self.target.with_name(work_name(self.target.name, self._label, token)))

    def workplace(self, token: str) -> str:
        """The same as text, on a store a folder of the store: where workers on other machines can write."""
        return str(self.workdir(token))

    def publish(self, work: str) -> None:
        """Makes what is in `work` visible, at once; refuses to replace anything."""
        workdir = Path(work)
        publish(workdir if self.shape == "directory" else workdir / self.target.name, self.target)
        if self.shape == "file":
            self.discard(work)

    def discard(self, work: str) -> None:
        """Removes what a run that failed has written to `work`."""
        shutil.rmtree(work, ignore_errors=True)

    def clear(self, *, held: bool) -> None:
        """Removes what killed runs left; with `held`, where nobody else may run this id, all of this id."""
        clear_dead(self.target.parent)
        if held:
            stem = work_name(self.target.name, self._label, "")
            with contextlib.suppress(OSError):
                for path in self.target.parent.iterdir():
                    if path.name.startswith(stem):
                        shutil.rmtree(path, ignore_errors=True)


class StorePlace:
    """A folder of an object store: published by its manifest, which is copied last.

    Beam's file systems are used, as by the workers that write. A job may write to a hidden folder of the
    store (`workplace`, needed where workers are other machines) or to a directory here (`workdir`).
    """

    def __init__(self, target: str, label: str, shape: Shape) -> None:
        self.target, self.shape = target.rstrip("/"), shape
        self._parent, _, self._name = self.target.rpartition("/")
        self._label = _short_hash(label)
        self._here: PrivateDirectory | None = None

    def exists(self) -> bool:
        with _store_errors(self.target):
            return bool(_systems().exists(self.target if self.shape == "file" else f"{self.target}/{_LAST}"))

    def digest(self) -> str:
        with _store_errors(self.target):
            names = [self.target] if self.shape == "file" else _listed(f"{self.target}/*")
            return _digest((name.rpartition("/")[2], _pieces(_read(name))) for name in names)

    def rehearse(self) -> None:
        path = f"{self._parent}/{work_name('rehearsal')}/a"
        with _store_errors(self.target):
            with _systems().create(path, **_plain()) as sink:
                sink.write(b"x")
            _systems().delete([path])

    def workplace(self, token: str) -> str:
        return f"{self._parent}/{work_name(self._name, self._label, token)}"

    def workdir(self, token: str) -> Path:
        self._here = PrivateDirectory()
        return make_private(self._here.path / "work")

    def publish(self, work: str) -> None:
        if self.exists():
            raise OutputError(f"output {self.target} exists already; a release is never overwritten")
        with _store_errors(self.target):
            names = _listed(f"{work}/*") if "://" in work else sorted(map(str, Path(work).iterdir()))
            for name in sorted(names, key=lambda name: name.endswith(f"/{_LAST}")):
                to = self.target if self.shape == "file" else f"{self.target}/{name.rpartition('/')[2]}"
                if "://" in work:
                    _systems().copy([name], [to])
                else:
                    with open(name, "rb") as source, _systems().create(to, **_plain()) as sink:
                        shutil.copyfileobj(source, sink, _CHUNK)
        self.discard(work)

    def discard(self, work: str) -> None:
        if self._here is not None:
            self._here.close()
        else:
            self._delete(lambda folder: folder == work.rpartition("/")[2])

    def clear(self, *, held: bool) -> None:
        stem = work_name(self._name, self._label, "")
        self._delete(lambda folder: is_dead_work(folder) or (held and folder.startswith(stem)))

    def _delete(self, goes: Callable[[str], bool]) -> None:
        with contextlib.suppress(Exception):  # litter is no reason to fail; the next run tries again
            left = [
                path
                for path in _listed(f"{self._parent}/.*.hushgram-*/*")
                if goes(path.removeprefix(f"{self._parent}/").partition("/")[0])
            ]
            if left:
                _systems().delete(left)


Place: TypeAlias = LocalPlace | StorePlace


def digest_tree(path: Path) -> str:
    """SHA-256 over the names and bytes of a file or of all files below a directory, in order of names."""
    if path.is_dir():
        files = sorted((p.relative_to(path).as_posix(), p) for p in path.rglob("*") if p.is_file())
    else:
        files = [(path.name, path)]
    return _digest((name, _pieces(file.open("rb"))) for name, file in files)


def digest_work(work: str, name: str | None) -> str:
    """The digest that `Place.digest` will give once `work` (or its file `name`) is published."""
    if "://" in work:
        found = _listed(f"{work}/*")
        if not found:
            raise OutputError(f"nothing was written to {work}")
        return _digest((path.rpartition("/")[2], _pieces(_read(path))) for path in found)
    path = Path(work) if name is None else Path(work, name)
    if not path.exists():
        raise OutputError(f"nothing was written to {path}")
    return digest_tree(path)


def _systems() -> Any:
    from apache_beam.io.filesystems import FileSystems

    return FileSystems


def _plain() -> dict[str, Any]:
    from apache_beam.io.filesystem import CompressionTypes

    return {"compression_type": CompressionTypes.UNCOMPRESSED}


def _read(path: str) -> Any:
    return _systems().open(path, **_plain())


def _listed(pattern: str) -> list[str]:
    return sorted(found.path for found in _systems().match([pattern])[0].metadata_list)


def _digest(files: Any) -> str:
    state = hashlib.sha256()
    for name, pieces in files:
        inner, size = hashlib.sha256(), 0
        for piece in pieces:
            inner.update(piece)
            size += len(piece)
        state.update(f"{len(name.encode())} {name} {size} {inner.hexdigest()}\n".encode())
    return state.hexdigest()


def _pieces(stream: Any) -> Iterator[bytes]:
    with stream:
        while piece := stream.read(_CHUNK):
            yield piece


def _short_hash(label: str) -> str:
    return hashlib.sha256(label.encode()).hexdigest()[:16]


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
