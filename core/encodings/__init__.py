"""Encodings of the counts: one module each, found by the id that a manifest names.

An id is the encoding's word and its version, `alp-1`. Configs name the word and get its newest version; a sketch is
read by the very id that it names. A module here has one object `ENCODING` of class `Encoding`, and a new encoding is
that module and one line of `HOMES`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from hushgram.encodings.encoding import Demand, EncodedBlock, Encoding, Space
from hushgram.errors import ParameterError

__all__ = ["HOMES", "Demand", "EncodedBlock", "Encoding", "Space", "encoding_named", "encoding_of"]

#: The id of an encoding and the module that holds it; of one word the newest stands last.
HOMES = {"alp-1": "hushgram.encodings.alp", "buckets-1": "hushgram.encodings.buckets"}


@cache
def encoding_of(id: str) -> Encoding:
    """The encoding with this id."""
    if id not in HOMES:
        raise ParameterError(
            f"encoding {str(id)[:40]!r} is not known here ({', '.join(HOMES)} can be read); update hushgram"
        )
    found: Encoding = import_module(HOMES[id]).ENCODING
    return found


def encoding_named(word: str) -> Encoding:
    """The newest encoding of this word.

    >>> encoding_named("alp").id
    'alp-1'
    """
    ids = [id for id in HOMES if id.rpartition("-")[0] == word]
    if not ids:
        words = dict.fromkeys(id.rpartition("-")[0] for id in HOMES)
        raise ParameterError(
            f"ReleaseParams: encoding must be one of {', '.join(words)}, got {str(word)[:40]!r}"
        )
    return encoding_of(ids[-1])
