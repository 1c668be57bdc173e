"""Pages for people: a report of a sketch, a page to ask it, a plan. Released numbers alone; no network.

All text in them is escaped, as markup and for what is not visible, except charts that are made here.

A page holds one style and at most one script, each a file beside its template, and its policy names them by their
SHA-256: a browser runs nothing else, whatever a key or a name may hold.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgram import __version__
from hushgram.errors import OutputError, ParameterError, printable
from hushgram.publishing import output_errors, put_file

if TYPE_CHECKING:
    from hushgram.ledger import ReleaseRecord, Summary

__all__ = ["content_policy", "read_budget", "render", "write_page"]


_TEMPLATES = Path(__file__).parent / "templates"
_ASKING = ("explore",)  # pages that ask the server they come from
_SCRIPTS = {"over_time": "report"}  # pages with the script of another one


def render(page: str, **values: Any) -> str:
    """Return the page ``page`` with these values; markup in them is escaped unless it is `Markup`."""
    from markupsafe import Markup

    style, script = (Markup(text) for text in _inline(page))
    policy = content_policy(page)
    return str(
        _environment()
        .get_template(f"{page}.html")
        .render(version=__version__, style=style, script=script, policy=policy, **values)
    )


@functools.cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )


def content_policy(page: str) -> str:
    """Return the Content-Security-Policy of a page: its own style and script, and nothing from anywhere."""
    style, script = (f"'sha256-{_digest(text)}'" if text else "'none'" for text in _inline(page))
    asked = "'self'" if page in _ASKING else "'none'"
    return (
        f"default-src 'none'; style-src {style}; script-src {script}; connect-src {asked}; img-src data:; "
        f"form-action {asked}; base-uri 'none'"
    )


@functools.cache
def _inline(page: str) -> tuple[str, str]:
    """Return style and script of a page: the style of all pages and its own, and its script, if it has one."""

    def text(*names: str) -> str:
        files = [_TEMPLATES / name for name in names]
        return "".join(file.read_text("utf-8") for file in files if file.exists())

    return text("base.css", f"{page}.css"), text(f"{_SCRIPTS.get(page, page)}.js")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def write_page(path: str, text: str, *, replace: bool) -> int:
    """Write the page, and return its size in bytes."""
    target = Path(path)
    if target.is_dir() or (os.path.lexists(target) and not replace):
        raise OutputError(f"{target} already exists; choose another name, or replace it with --force")
    content = text.encode()
    with output_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        put_file(target, content)
    return len(content)


def read_budget(url: str, dataset: str | None) -> tuple[Summary, list[ReleaseRecord]]:
    """Return the summary and the history of one data set; the only one where none is named."""
    from hushgram.ledger import Ledger, summarise

    with Ledger(url) as ledger:
        names = [found.name for found in ledger.datasets()]
        if dataset is None:
            if len(names) != 1:
                raise ParameterError(
                    f"the ledger has {len(names)} data sets ({', '.join(names)}); name one with --dataset"
                )
            dataset = names[0]
        return summarise(ledger, dataset), ledger.history(dataset)
