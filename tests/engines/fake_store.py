"""gs:// without a cloud: an object store over a local directory, for jobs that must not know local paths."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any, ClassVar

from apache_beam.io.filesystem import BeamIOError, FileMetadata, FileSystem

__all__ = ["FakeStore"]


class FakeStore(FileSystem):
    """Objects by URL; no directories and no rename, as in a store. `root` is where they lie."""

    root: ClassVar[str] = ""

    @classmethod
    def scheme(cls) -> str:
        return "gs"

    def _local(self, path: str) -> str:
        assert path.startswith("gs://"), path
        return os.path.join(self.root, path.removeprefix("gs://"))

    def join(self, basepath: str, *paths: str) -> str:
        return "/".join([basepath.rstrip("/"), *(path.strip("/") for path in paths)])

    def split(self, path: str) -> tuple[str, str]:
        head, _, tail = path.rpartition("/")
        return head, tail

    def mkdirs(self, path: str) -> None:
        """A store has no directories."""

    def has_dirs(self) -> bool:
        return False

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        for folder, _, names in sorted(os.walk(self.root)):
            for name in sorted(names):
                local = os.path.join(folder, name)
                path = f"gs://{os.path.relpath(local, self.root)}"
                if path.startswith(dir_or_prefix):
                    yield FileMetadata(path, os.path.getsize(local), os.path.getmtime(local))

    def create(self, path: str, mime_type: str = "", compression_type: str = "") -> Any:
        local = self._local(path)
        os.makedirs(os.path.dirname(local), exist_ok=True)
        return open(local, "wb")

    def open(self, path: str, mime_type: str = "", compression_type: str = "") -> Any:
        try:
            return open(self._local(path), "rb")
        except OSError as error:
            raise BeamIOError(f"open {path}: {error}") from error

    def copy(self, source_file_names: list[str], destination_file_names: list[str]) -> None:
        for source, target in zip(source_file_names, destination_file_names, strict=True):
            os.makedirs(os.path.dirname(self._local(target)), exist_ok=True)
            shutil.copyfile(self._local(source), self._local(target))

    def rename(self, source_file_names: list[str], destination_file_names: list[str]) -> None:
        raise BeamIOError("a store has no rename")

    def exists(self, path: str) -> bool:
        return os.path.isfile(self._local(path))

    def size(self, path: str) -> int:
        return os.path.getsize(self._local(path))

    def last_updated(self, path: str) -> float:
        return os.path.getmtime(self._local(path))

    def checksum(self, path: str) -> str:
        return str(self.size(path))

    def metadata(self, path: str) -> FileMetadata:
        return FileMetadata(path, self.size(path), self.last_updated(path))

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            os.unlink(self._local(path))
