"""Output that appears complete or not at all, never over something else, and is private until then.

A file is written under another name and renamed. A directory is filled next to its target, readable by its owner only
(its content is not released yet), and becomes the target by one rename that refuses to replace. Everything is synced to
disk before it becomes visible. What a killed run left next to the target is removed by the next run. Problems with the
disk are an `OutputError`.

Temporary files of a run (spilled batches, progress, drafts, files of Beam) may hold exact data. They go to one
`PrivateDirectory`, which is removed when the run ends. If its process is killed, the next process that creates such a
directory removes it: each process holds a lock on a file in its directory, which the system releases with the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from hushgram.errors import OutputError
from hushgram.noise.entropy import os_entropy
from hushgram.processes import Owner

__all__ = [
    "PREFIX", "PrivateDirectory", "active_directory", "check_free", "digest_files", "digest_of", "is_dead_work",
    "label_of", "make_private", "nearest_directory", "new_directory", "output_errors", "process_is_one_run", "publish",
    "put_file", "remove_dead_work", "rename_new", "run_directory", "temporary_files_of_a_run", "work_name",
]  # fmt: skip

PREFIX = "hushgram-run-"
_LOCK = "lock"
_RENAME_NOREPLACE = 1
_AT_FDCWD = -100
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


def check_free(path: str | Path) -> Path:
    """Return `path` if nothing is there and the nearest directory above it can be written; create nothing."""
    target = Path(path)
    if os.path.lexists(target):
        raise OutputError(_explain(target, FileExistsError()))
    above = nearest_directory(target)
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise OutputError(_explain(target, PermissionError(errno.EACCES, f"{above} is not writable")))
    return target


def make_private(path: str | Path) -> Path:
    """Create a directory for its owner only, and its missing parents."""
    path = Path(path)
    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    return path


def label_of(text: str) -> str:
    """Return the part of a hidden name that stands for a data set and a release."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def work_name(name: str, label: str = "", mark: str | None = None) -> str:
    """Return a hidden name for what becomes `name`, which tells later runs who made it (`Owner.mark`)."""
    return f".{name}.hushgram-{label and label + '.'}{Owner.this().mark() if mark is None else mark}"


def is_dead_work(name: str) -> bool:
    """Return whether the run that made this `work_name` has certainly ended."""
    _, found, rest = name.rpartition(".hushgram-")
    return bool(found) and name.startswith(".") and Owner.is_dead_mark(rest.rpartition(".")[2])


def remove_dead_work(folder: Path, prefix: str | None = None) -> None:
    """Remove what runs that have certainly ended left in a folder, and all work whose name starts with `prefix`."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if is_dead_work(path.name) or (prefix is not None and path.name.startswith(prefix)):
                shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """Yield a directory to fill, which becomes `target` by one rename, or is removed on any error."""
    with output_errors(target):
        remove_dead_work(target.parent)
        work = make_private(target.with_name(work_name(target.name)))
    try:
        with output_errors(target):
            yield work
        publish(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def publish(source: str | Path, target: str | Path) -> None:
    """Make a complete file or directory visible under its name at once; refuse to replace anything."""
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
        try:
            rename_new(source, target)
        except OSError:
            if source.is_dir():
                source.chmod(0o700)  # what is not published stays private
            raise
        _sync(target.parent)


def digest_of(path: str) -> str:
    """Return a SHA-256 over the names and bytes of a file, or of all files below a directory, in order of names."""
    top, inside = (
        (Path(path), Path(path).rglob("*")) if os.path.isdir(path) else (Path(path).parent, [Path(path)])
    )
    files = {file.relative_to(top).as_posix(): file for file in inside if file.is_file()}
    if not files and not os.path.exists(path):
        raise OutputError(f"nothing was written to {path}")
    return digest_files({name: lambda file=file: open(file, "rb") for name, file in files.items()})  # type: ignore[misc]


def digest_files(files: Mapping[str, Callable[[], IO[bytes]]]) -> str:
    """Return a SHA-256 over the names and bytes of files, in order of names."""
    state = hashlib.sha256()
    for name, opened in sorted(files.items(), key=lambda pair: pair[0]):
        inner, size = hashlib.sha256(), 0
        with opened() as stream:
            while piece := stream.read(1 << 20):
                inner.update(piece)
                size += len(piece)
        state.update(f"{len(name.encode())} {name} {size} {inner.hexdigest()}\n".encode())
    return state.hexdigest()


def put_file(path: str | Path, content: bytes | None, mode: int = 0o666) -> None:
    """Write a file that readers see complete: an earlier one, or this one, on disk. Problems are an OSError.

    The draft next to it has a random name and is never a file or a link that existed before.

    Args:
        path: the file to write or replace.
        content: its bytes; None only tries, and leaves no trace.
        mode: who may read it, as far as the umask allows.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not os.path.lexists(path.parent):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
    draft = path.with_name(f".{os_entropy().take(16).tobytes().hex()}.part")
    handle = os.open(draft, _NEW_FILE, mode)
    try:
        with open(handle, "wb") as file:
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
    """Rename in one step of the kernel; raise FileExistsError if the target exists."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is not None:
        old, new = os.fsencode(source), os.fsencode(target)
        if renameat2(_AT_FDCWD, old, _AT_FDCWD, new, _RENAME_NOREPLACE) == 0:
            return
        problem = ctypes.get_errno()
        if problem not in (errno.EINVAL, errno.ENOSYS):  # these two: this file system does not support it
            raise OSError(problem, os.strerror(problem), str(target))
    if source.is_dir():
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        source.rename(target)  # still fails on a directory that is not empty
    else:
        os.link(source, target)
        source.unlink()


@contextlib.contextmanager
def output_errors(target: str | Path) -> Iterator[None]:
    """Turn an OSError into an `OutputError` about `target`."""
    try:
        yield
    except OSError as problem:  # those of Beam's file systems are OSErrors as well
        raise OutputError(_explain(target, problem)) from None


def nearest_directory(target: Path) -> Path:
    """Return the nearest existing path above `target`."""
    return next(parent for parent in target.absolute().parents if os.path.lexists(parent))


def _explain(target: str | Path, problem: OSError) -> str:
    if "://" not in str(target) and not (above := nearest_directory(Path(target))).is_dir():
        return f"output {target} cannot be written: {above} is not a directory; choose another name"
    if isinstance(problem, FileExistsError):
        return f"output {target} exists already; a release is never overwritten: remove it or choose another name"
    if isinstance(problem, FileNotFoundError) and problem.filename is not None:
        return f"output {target} cannot be written: {os.fsdecode(problem.filename)} no longer exists"
    return f"output {target} cannot be written: {problem.strerror or problem}"


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


# Temporary files


class PrivateDirectory:
    """A new directory (mode 0700) under TMPDIR, removed when it is closed; `with` gives its path."""

    def __init__(self) -> None:
        base = _temporary_base()
        try:
            _remove_abandoned(base)
            while True:
                self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
                handle = _lock(self.path / _LOCK, create=True)
                if handle is not None:  # else another process removed it between the two
                    break
        except OSError as problem:
            raise OutputError(
                f"temporary directory {base} cannot be written: {problem.strerror}; set TMPDIR to another one"
            ) from None
        self._handle: int | None = handle
        self._process = os.getpid()

    def close(self) -> None:
        """Remove it if this process created it; a forked child only closes its handle."""
        if self._handle is None:
            return
        if self._process == os.getpid():
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)
        self._handle = None

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


_turn = threading.Lock()
_open: list[PrivateDirectory] = []
_users = 0
_one_run = False


@contextlib.contextmanager
def run_directory() -> Iterator[Path]:
    """Yield the directory of this run; nested runs, and runs in other threads, share it."""
    global _users
    with _turn:
        if not _open:
            _open.append(PrivateDirectory())
        path, _users = _open[0].path, _users + 1
    try:
        yield path
    finally:
        with _turn:
            _users -= 1
            if not _users:
                _open.pop().close()


def active_directory() -> Path | None:
    """Return the directory of the run in progress, if any."""
    return _open[0].path if _open else None


def process_is_one_run() -> bool:
    """Return whether this process does nothing but the run in progress."""
    return _one_run


@contextlib.contextmanager
def temporary_files_of_a_run() -> Iterator[Path]:
    """Yield `run_directory` and put every temporary file of this process and its children there."""
    global _one_run
    with run_directory() as path:
        before = os.environ.get("TMPDIR"), tempfile.tempdir
        os.environ["TMPDIR"] = tempfile.tempdir = str(path)
        _one_run = True
        try:
            yield path
        finally:
            _one_run = False
            tempfile.tempdir = before[1]
            os.environ.pop("TMPDIR")
            if before[0] is not None:
                os.environ["TMPDIR"] = before[0]


def _temporary_base() -> Path:
    """Return TMPDIR if it is set (nobody expects exact data elsewhere), else the system's temporary directory."""
    named = os.environ.get("TMPDIR")
    if tempfile.tempdir is None and named:
        if not os.path.isdir(named):
            raise OutputError(
                f"temporary directory {named} (TMPDIR) is not a directory; set TMPDIR to another one"
            )
        return Path(named)
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        raise OutputError(
            "no temporary directory can be written (/tmp, /var/tmp); set TMPDIR to a directory that can"
        ) from None


def _remove_abandoned(base: Path) -> None:
    """Remove directories that killed processes of this user left."""
    for path in base.glob(f"{PREFIX}*"):
        try:
            found = path.lstat()
            if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
                continue  # another user's, or a link
            handle = _lock(path / _LOCK, create=False)
        except OSError:  # no lock yet, or already removed
            continue
        if handle is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(handle)


def _lock(path: Path, *, create: bool) -> int | None:
    """Return a handle that holds the lock, or None if another process has it."""
    handle = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle
