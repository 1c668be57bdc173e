r"""Which bytes of a CSV text are records: decided for each record by its own bytes.

A line ends with LF or CRLF; a byte-order mark at its beginning is no part of it. Its fields stand between
delimiters. A field that begins with a quote ends with one, followed by a delimiter or the line's end, and holds quotes
doubled; anywhere else a quote is text. A line that is not so (a quote never closed, text after a closing quote, a
carriage return inside) is set aside, and reading goes on with the next line.

Where values may hold newlines, a record may span lines, up to MAX_SPAN_BYTES. If no record in that reach begins with
a line (its quote is still open there, or at the end of the file), that line alone is set aside. What cannot be
promised then: the lines between an opening quote without its closing one and a quote further on that happens to
close it are one record, at most MAX_SPAN_BYTES of them. Writers that quote as above never make such a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hushgram.inputs.blocks import BOM
from hushgram.inputs.source import Rejects

__all__ = ["MAX_SPAN_BYTES", "Records"]

# A quote that is never closed costs at most so many bytes of other lines.
MAX_SPAN_BYTES = 1 << 20
_MARK = rb"(?:\xef\xbb\xbf)?+"


class Records:
    """The grammar for one delimiter and quote; `spans` where values may hold newlines."""

    def __init__(self, delimiter: str, quote: str, spans: bool) -> None:
        self.delimiter, self.quote, self.spans = delimiter.encode(), quote.encode(), spans and bool(quote)

    @cached_property
    def _field(self) -> str:
        """A field, for a pattern of bytes: in quotes, or plain."""
        d, q = re.escape(self.delimiter.decode()), re.escape(self.quote.decode())
        if not self.quote:
            return rf"[^{d}\r\n]*+"
        inside = rf"[^{q}]*+" if self.spans else rf"[^{q}\n]*+"
        return rf"(?:{q}{inside}(?:{q}{q}{inside})*+{q}(?!{q})|(?:[^{d}{q}\r\n][^{d}\r\n]*+)?)"

    @cached_property
    def _record(self) -> re.Pattern[bytes]:
        d = re.escape(self.delimiter.decode())
        return re.compile(_MARK + rf"{self._field}(?:{d}{self._field})*+\r?\n".encode())

    @cached_property
    def _last(self) -> re.Pattern[bytes]:
        d = re.escape(self.delimiter.decode())
        return re.compile(_MARK + rf"{self._field}(?:{d}{self._field})*+\r?\n?\Z".encode())

    @cached_property
    def _split(self) -> re.Pattern[bytes]:
        d, q = re.escape(self.delimiter.decode()), re.escape(self.quote.decode())
        return re.compile(rf"{q}((?:[^{q}]|{q}{q})*+){q}|([^{d}]*+)".encode())

    def good(self, data: bytes, at: int, final: bool, rejects: Rejects) -> tuple[list[bytes], int]:
        """(the records of `data` in pieces, how many bytes are decided); lines that are none are set aside.

        `data` are whole lines that begin with a record, at byte `at` of the text; `final` says that nothing
        comes after them.
        """
        quotes, end = self._quotes(data)
        if quotes is None:
            return [data] if data else [], len(data)
        if self.quote and end == len(data) and self._regular(data, quotes):
            last = self._last_even(data, quotes)
            if last is not None and (last == len(data) or (not final and len(data) - last <= MAX_SPAN_BYTES)):
                return [data[:last]] if last else [], last
        return self._one_by_one(data, at, final, rejects)

    def _quotes(self, data: bytes) -> tuple[NDArray[np.int64] | None, int]:
        """(positions of quotes, None where every line is plain; the length, 0 where a lone return is there)."""
        lone = b"\r" in data and data.count(b"\r") - data.endswith(b"\r") != data.count(b"\r\n")
        if not lone and (not self.quote or self.quote not in data):
            return None, len(data)
        if not self.quote or lone:
            return np.empty(0, np.int64), 0
        return np.flatnonzero(np.frombuffer(data, np.uint8) == self.quote[0]), len(data)

    def _regular(self, data: bytes, quotes: NDArray[np.int64]) -> bool:
        """Whether quotes open and close in turn: each opening one starts a field, each closing one ends it.

        (A doubled quote is a closing and an opening one.)
        """
        raw = np.frombuffer(data, np.uint8)
        edge = np.zeros(256, bool)
        edge[[self.delimiter[0], 10, 13, self.quote[0]]] = True
        opening, closing = quotes[::2], quotes[1::2]
        starts = edge[raw[np.maximum(opening - 1, 0)]] | (opening == 0)
        ends = edge[raw[np.minimum(closing + 1, len(raw) - 1)]] | (closing == len(raw) - 1)
        return bool(starts.all() and ends.all())

    def _last_even(self, data: bytes, quotes: NDArray[np.int64]) -> int | None:
        """Where the last record of regular data ends; None where a record is longer than may be."""
        lines = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
        even = np.searchsorted(quotes, lines) % 2 == 0
        if even.all():  # each line is a record; what is open behind them has no newline yet
            whole = len(quotes) % 2 == 0
            return len(data) if whole else None
        if not self.spans:
            return None
        ends = lines[even] + 1
        if np.diff(ends, prepend=0).max(initial=0) > MAX_SPAN_BYTES:
            return None
        last = int(ends[-1]) if len(ends) else 0
        if data.endswith(b"\n"):
            return last
        return len(data) if len(quotes) % 2 == 0 and len(data) - last <= MAX_SPAN_BYTES else None

    def _one_by_one(self, data: bytes, at: int, final: bool, rejects: Rejects) -> tuple[list[bytes], int]:
        """The same for lines of any kind; only those with a quote or a return are looked at one by one."""
        raw = np.frombuffer(data, np.uint8)
        returns = np.flatnonzero(raw == 13)
        events = returns[raw[np.minimum(returns + 1, len(raw) - 1)] != 10]
        if self.quote:
            events = np.sort(np.append(events, np.flatnonzero(raw == self.quote[0])))
        good: list[bytes] = []
        begun = here = index = 0  # begun: of the good bytes not yet taken
        while (index := int(np.searchsorted(events[index:], here)) + index) < len(events):
            start = max(here, data.rfind(b"\n", here, int(events[index])) + 1)
            stop = data.find(b"\n", start) + 1 or len(data)
            found = self._last.match(data, start, stop)
            if found is None and self.spans:
                found = self._record.match(data, start, min(len(data), start + MAX_SPAN_BYTES))
                if found is None and final and len(data) - start <= MAX_SPAN_BYTES:
                    found = self._last.match(data, start)
            if found is not None:
                here = found.end()
                continue
            if self.spans and not final and len(data) - start < MAX_SPAN_BYTES:
                return [*good, data[begun:start]], start  # not decided yet
            line = data[start:stop].rstrip(b"\r\n")
            rejects.add(self._problem(line), at + start, line)
            good.append(data[begun:start])
            begun = here = stop
        return [*good, data[begun:]], len(data)

    def _problem(self, line: bytes) -> str:
        return "quote is not closed" if self.quote and self.quote in line else "carriage return inside a line"

    def lines(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """(where it begins, record without its end) of good data; empty lines are no records."""
        at = 0
        while at < len(data):
            stop = data.find(b"\n", at) + 1 or len(data)
            if self.spans and self.quote in data[at:stop] and not self._last.match(data, at, stop):
                found = self._record.match(data, at)
                stop = found.end() if found else len(data)
            record = data[at:stop].removesuffix(b"\n").removesuffix(b"\r").removeprefix(BOM)
            if record:
                yield at, record
            at = stop

    def fields(self, record: bytes) -> list[bytes]:
        """The values of a record."""
        if not self.quote or self.quote not in record:
            return record.split(self.delimiter)
        values, at = [], 0
        while True:
            found = self._split.match(record, at)
            assert found is not None
            quoted = found.group(1)
            values.append(found.group(2) if quoted is None else quoted.replace(self.quote * 2, self.quote))
            if found.end() == len(record):
                return values
            at = found.end() + 1
