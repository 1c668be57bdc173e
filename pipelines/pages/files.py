"""Writing a page: whole or not at all, and not over something else unless asked."""

from __future__ import annotations

import os
from pathlib import Path

from hushgram.errors import OutputError
from hushgram.publishing import output_errors, put_file

__all__ = ["write_page"]


def write_page(path: str, text: str, *, replace: bool) -> int:
    """Writes the page; returns its size in bytes."""
    target = Path(path)
    if target.is_dir() or (os.path.lexists(target) and not replace):
        raise OutputError(f"{target} exists already; choose another name, or replace it with --force")
    content = text.encode()
    with output_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        put_file(target, content)
    return len(content)
