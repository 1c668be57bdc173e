"""Fence the doctests of docstrings for the documentation site: a griffe extension, named in mkdocs.yml.

Docstrings here show doctests as they are, which Markdown would read as nested quotations.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

#: a doctest: from >>> up to the next empty line
_DOCTEST = re.compile(r"^([ ]*)>>> .*(?:\n[ ]*\S.*)*", re.M)


class FenceDoctests(Extension):
    """Wrap every doctest of every docstring in a fenced block."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Rewrite the docstring once griffe has read it."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    r"""Return the docstring with its doctests in fences.

    >>> fenced("Double it.\n\n>>> double(2)\n4")
    'Double it.\n\n```pycon\n>>> double(2)\n4\n```'
    """
    return _DOCTEST.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)
