"""Text from elsewhere: which names are accepted, and how any text is shown on one line.

A name ends up on terminals, in logs, pages and error messages. Escape sequences, line breaks and characters that
reverse the direction of writing could make those say something else, so a name holds none of them, and whatever else
is shown (keys, paths, values of a config) is escaped by `printable` when it is shown.
"""

from __future__ import annotations

from hushgram.errors import ParameterError

__all__ = ["check_name", "is_name", "printable"]

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
