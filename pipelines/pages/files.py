"""Writing a page: whole or not at all, and not over something else unless asked."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hushgram.errors import OutputError

__all__ = ["write_page"]


def write_page(path: str, text: str, *, replace: bool) -> int:
    """Writes the page; returns its size in bytes."""
    target = Path(path)
    if target.is_dir() or (os.path.lexists(target) and not replace):
        raise OutputError(f"{target} exists already; choose another name with -o, or replace it with --force")
    content = text.encode()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(draft, 0o644)
            os.replace(draft, target)
        except BaseException:
            os.unlink(draft)
            raise
    except OSError as problem:
        raise OutputError(f"{target} cannot be written: {problem.strerror}") from None
    return len(content)
