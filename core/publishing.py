"""Output that appears whole or not at all, and never over something else.

A file is written under another name and renamed. A directory is filled beside its target, readable by its owner alone
(what is in it is not released yet), and becomes the target by one rename that refuses to replace. Everything is on disk
before it can be seen. What a killed run left beside the target is removed by the next. Trouble with the disk is an
`OutputError` in the user's words.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from hushgram.errors import OutputError
from hushgram.noise.entropy import os_entropy
from hushgram.processes import Owner

__all__ = [
    "check_free", "clear_dead", "is_dead_work", "make_private", "nearest_directory", "new_directory",
    "output_errors", "publish", "put_file", "rename_new", "work_name",
]  # fmt: skip

_RENAME_NOREPLACE = 1
_AT_FDCWD = -100
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


def check_free(path: str | Path) -> Path:
    """``path``, if nothing is there and the nearest directory above it can be written; makes nothing."""
    target = Path(path)
    if os.path.lexists(target):
        raise OutputError(_exists(target))
    above = nearest_directory(target)
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise OutputError(_words(target, PermissionError(errno.EACCES, f"{above} may not be written")))
    return target


def make_private(path: str | Path) -> Path:
    """A new directory for its owner alone, and the parents that it lacks."""
    path = Path(path)
    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    return path


def work_name(name: str, label: str = "", mark: str | None = None) -> str:
    """A hidden name for what becomes ``name``, which tells later runs who made it (`Owner.mark`)."""
    return f".{name}.hushgram-{label and label + '.'}{Owner.this().mark() if mark is None else mark}"


def is_dead_work(name: str) -> bool:
    """True only where it is certain that the run which made this `work_name` has ended."""
    _, found, rest = name.rpartition(".hushgram-")
    return bool(found) and name.startswith(".") and Owner.is_dead_mark(rest.rpartition(".")[2])


def clear_dead(folder: Path) -> None:
    """Removes what runs left unpublished in a folder when they were killed: those of which that is certain."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if is_dead_work(path.name):
                shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """A directory to fill, which becomes ``target`` by one rename, or vanishes on any error."""
    with output_errors(target):
        clear_dead(target.parent)
        work = make_private(target.with_name(work_name(target.name)))
    try:
        with output_errors(target):
            yield work
        publish(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def publish(source: str | Path, target: str | Path) -> None:
    """Makes a finished file or directory visible under its name, all at once; refuses to replace anything."""
    source, target = Path(source), Path(target)
    if not os.path.lexists(source):
        raise OutputError(
            f"output {target} was not published: the files of this run are gone from {source}; another run of the same"
            " release has taken over, or somebody removed them"
        )
    with output_errors(target):
        if source.is_dir():
            source.chmod(0o777 & ~_umask())
            for each in source.rglob("*"):
                _sync(each)
        _sync(source)
        rename_new(source, target)
        _sync(target.parent)


def put_file(path: str | Path, content: bytes | None, *, private: bool = False) -> None:
    """Writes a file that readers see whole: an earlier one, or this one, on disk. Trouble is an OSError.

    The draft beside it has a name that nobody can guess and is never a file or a link that was there before. With
    `private` the file is for its owner alone until somebody widens that, which the next one keeps. Content None only
    tries, and leaves no trace.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not os.path.lexists(path.parent):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
    draft = path.with_name(f".{os_entropy().take(16).tobytes().hex()}.part")
    handle = os.open(draft, _NEW_FILE, 0o600 if private else 0o666)
    try:
        with open(handle, "wb") as file:
            if private and os.path.lexists(path) and stat.S_ISREG(mode := os.lstat(path).st_mode):
                os.fchmod(handle, mode & 0o777)
            file.write(content or b"")
            file.flush()
            os.fsync(handle)
        if content is None:
            draft.unlink()
        else:
            os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def rename_new(source: Path, target: Path) -> None:
    """Renames, and fails with FileExistsError where the target is there, in one step of the kernel."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is not None:
        old, new = os.fsencode(source), os.fsencode(target)
        if renameat2(_AT_FDCWD, old, _AT_FDCWD, new, _RENAME_NOREPLACE) == 0:
            return
        problem = ctypes.get_errno()
        if problem not in (errno.EINVAL, errno.ENOSYS):  # these two: this file system cannot do it
            raise OSError(problem, os.strerror(problem), str(target))
    if source.is_dir():
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        source.rename(target)  # would still fail on a directory that is not empty
    else:
        os.link(source, target)
        source.unlink()


@contextlib.contextmanager
def output_errors(target: str | Path) -> Iterator[None]:
    """Trouble with the disk as an error in the user's words."""
    try:
        yield
    except OSError as problem:  # those of Beam's file systems are OSErrors as well
        raise OutputError(_words(target, problem)) from None


def _words(target: str | Path, problem: OSError) -> str:
    if "://" not in str(target) and not (above := nearest_directory(Path(target))).is_dir():
        return f"output {target} cannot be written: {above} is not a directory; choose another name"
    if isinstance(problem, FileExistsError):
        return _exists(target)
    if isinstance(problem, FileNotFoundError) and problem.filename is not None:
        return f"output {target} cannot be written: {os.fsdecode(problem.filename)} is not there any more"
    return f"output {target} cannot be written: {problem.strerror or problem}"


def nearest_directory(target: Path) -> Path:
    """The nearest directory (or what stands in its place) above a path."""
    return next(parent for parent in target.absolute().parents if os.path.lexists(parent))


def _exists(target: str | Path) -> str:
    return f"output {target} exists already; a release is never overwritten: remove it or choose another name"


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current
