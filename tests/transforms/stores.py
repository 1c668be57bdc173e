"""An object store for tests: Beam's file system for store://, kept in a local folder, without rename or directories."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from apache_beam.io.filesystem import CompressionTypes, FileMetadata, FileSystem

__all__ = ["StoreFileSystem"]


class StoreFileSystem(FileSystem):
    """store://NAME is the file NAME under ``root``; ``created`` lists what was written, in order."""

    root = ""
    created: list[str] = []

    @classmethod
    def scheme(cls) -> str:
        return "store"

    def _place(self, path: str) -> str:
        return os.path.join(type(self).root, path.removeprefix("store://").replace("/", "|"))

    def join(self, basepath: str, *paths: str) -> str:
        return "/".join([basepath.rstrip("/"), *paths])

    def split(self, path: str) -> tuple[str, str]:
        head, _, tail = path.rpartition("/")
        return head, tail

    def mkdirs(self, path: str) -> None:
        raise OSError("an object store has no directories")

    def has_dirs(self) -> bool:
        return False

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        for name in sorted(os.listdir(type(self).root)):
            path = "store://" + name.replace("|", "/")
            if path.startswith(dir_or_prefix):
                yield FileMetadata(path, self.size(path))

    def create(
        self, path: str, mime_type: str = "", compression_type: Any = CompressionTypes.AUTO
    ) -> BinaryIO:
        type(self).created.append(path)
        return open(self._place(path), "wb")

    def open(self, path: str, mime_type: str = "", compression_type: Any = CompressionTypes.AUTO) -> BinaryIO:
        return open(self._place(path), "rb")

    def copy(self, source_file_names: list[str], destination_file_names: list[str]) -> None:
        raise NotImplementedError

    def rename(self, source_file_names: list[str], destination_file_names: list[str]) -> None:
        raise OSError("an object store has no rename")

    def exists(self, path: str) -> bool:
        return os.path.exists(self._place(path))

    def size(self, path: str) -> int:
        return os.path.getsize(self._place(path))

    def last_updated(self, path: str) -> float:
        return os.path.getmtime(self._place(path))

    def checksum(self, path: str) -> str:
        return str(self.size(path))

    def metadata(self, path: str) -> FileMetadata:
        return FileMetadata(path, self.size(path))

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            os.unlink(self._place(path))
