"""Every error that a person can cause, each with the exit code of the command line, and text that may be shown.

A message is one line: the field, the value, and what to do about it. Messages never hold an exact count
or a record: they may end up in a log.

A name ends up on terminals, in logs, pages and messages. Escape sequences, line breaks and characters that reverse the
direction of writing could make those say something else, so a name holds none of them, and whatever else is shown
(keys, paths, values of a config) is escaped by `printable` when it is shown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = [
    "EXTRAS", "BudgetExceeded", "FormatError", "HushgramError", "InputError", "LedgerError", "MissingPackage",
    "OutputError", "ParameterError", "check_name", "is_name", "is_unicode", "naming_extras", "printable",
]  # fmt: skip

#: package → the extra of hushgram that installs it
EXTRAS = {
    "apache_beam": "beam", "pydantic": "beam", "pydantic_core": "beam", "yaml": "beam", "zstandard": "beam",
    "dp_accounting": "ledger", "rich": "ledger", "sqlalchemy": "ledger", "psycopg": "postgres",
    "matplotlib": "plot", "jinja2": "pages", "markupsafe": "pages", "starlette": "pages", "uvicorn": "pages",
}  # fmt: skip


class HushgramError(Exception):
    """Base of all errors below; exit code 1."""

    exit_code = 1

    @property
    def lines(self) -> tuple[str, ...]:
        """The message as it is printed: one line, or for a config with several problems one for each."""
        return (str(self),)


class ParameterError(HushgramError):
    """A parameter or a line of a config is wrong; exit code 2."""

    exit_code = 2


class MissingPackage(ParameterError, ImportError):
    """A package is not installed; the message names the extra that installs it. Exit code 2."""


@contextlib.contextmanager
def naming_extras() -> Iterator[None]:
    """Turn the failed import of a package of `EXTRAS` into a `MissingPackage`."""
    try:
        yield
    except ModuleNotFoundError as problem:
        package = (problem.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise MissingPackage(
            f"this needs the package {package}, which is not installed; pip install 'hushgram[{EXTRAS[package]}]'"
        ) from None


class InputError(HushgramError):
    """Input data cannot be read as asked: no such file, missing column, torn Parquet; exit code 3."""

    exit_code = 3


class FormatError(HushgramError):
    """A sketch is truncated, altered, or of a version that this reader does not know; exit code 4."""

    exit_code = 4


class BudgetExceeded(HushgramError):
    """The privacy budget does not allow this release; exit code 5."""

    exit_code = 5


class LedgerError(HushgramError):
    """The ledger cannot be read or written, or refuses the request; exit code 6."""

    exit_code = 6


class OutputError(HushgramError):
    """The output cannot be written: it exists already, or the disk is full; exit code 7."""

    exit_code = 7


# Letters of the longest name.
_LONGEST = 250


def printable(text: str) -> str:
    r"""Return the text with every character escaped that is not a visible one or a space.

    >>> print(printable("a\x1b[31m\nb\u202ec"))
    a\x1b[31m\nb\u202ec
    >>> printable("ε = 1, naïve, 日本")
    'ε = 1, naïve, 日本'
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def is_unicode(text: str) -> bool:
    r"""Return whether a text can be written as UTF-8; half a surrogate pair, such as JSON's "\ud800", cannot.

    >>> is_unicode("ε"), is_unicode("\ud800")
    (True, False)
    """
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def is_name(text: object) -> bool:
    """Return whether this is a text of visible characters and spaces that is not too long."""
    return isinstance(text, str) and text.isprintable() and len(text) <= _LONGEST


def check_name(text: str, field: str) -> str:
    """Return ``text`` if it may be a name (or is empty); ``field`` says in the error whose."""
    if not is_name(text):
        raise ParameterError(
            f"{field} must be printable text of at most {_LONGEST} characters, got {text!r:.60}"
        )
    return text
