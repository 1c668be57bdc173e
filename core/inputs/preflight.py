"""Refuse input that cannot be meant: mostly rejected records, or none at all.

    check_first_blocks(plan, limits, opener)        # before the charge: the beginning of the files
    Check.of(plan, limits)(tally, opener)           # before anything is published: all of it

A share above the limit is refused with the commonest reason and a place to look at. What these messages say depends
on the data: they are for the operator, and no file of a release holds them. They hold no counts and no records, since
they may end up in a log.
"""

from __future__ import annotations

import dataclasses
import lzma
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from hushgram.errors import InputError, ParameterError
from hushgram.inputs.blocks import open_text
from hushgram.inputs.formats import format_named
from hushgram.inputs.plan import in_the_file
from hushgram.inputs.source import Chunk, InputPlan, Opener, WorkItem, first_line, no_memory, open_local

__all__ = ["Check", "Limits", "RecordCounts", "check_first_blocks", "read_item"]


def read_item(item: WorkItem, plan: InputPlan, opener: Opener = open_local) -> Iterator[Chunk]:
    """Yield the records of one item as batches of plan.schema, with the rejected records of each."""
    try:
        yield from format_named(item.format).read(item, in_the_file(item, plan), opener)
    except (OSError, EOFError, lzma.LZMAError) as problem:
        raise InputError(f"{item.path}: cannot be read: {first_line(problem)}") from None
    except MemoryError:
        raise no_memory(item.path) from None


# At most this many files have their first block read, spread over all files.
_MAX_FILES = 64
_THREADS = 8
_BLOCK_BYTES = 1 << 20
# If a filter leaves nothing of the first block, this many further ones are read.
_MAX_BLOCKS = 16
# Reasons hold numbers ("7 fields instead of 2"), so there could be many; at most this many are listed separately.
_MAX_REASONS = 1000


@dataclass(frozen=True)
class Limits:
    """Limits on the input: at most this share of rejected records, and at least this many accepted ones."""

    max_rejected_share: Fraction = Fraction(1, 20)
    min_rows: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.max_rejected_share <= 1:
            raise ParameterError(f"max_rejected_share must be from 0 to 1, got {self.max_rejected_share}")
        if self.min_rows < 0:
            raise ParameterError(f"min_rows must be at least 0, got {self.min_rows}")


class Place(NamedTuple):
    """Where a record begins: the byte of a text, or the row of a table."""

    path: str
    at: int
    compression: str | None
    row: bool

    def shown(self, opener: Opener) -> str:
        """Return the place for a person: file, line and byte, or row."""
        if self.row:
            return f"{self.path}, row {self.at + 1}"
        stream, raw = open_text(self.path, self.compression, opener)
        line, left = 1, self.at
        with raw, stream:
            while left > 0 and (piece := bytes(stream.read(min(left, 1 << 20)))):
                line += piece.count(b"\n")
                left -= len(piece)
        return f"{self.path}, line {line} (byte {self.at})"


@dataclass
class RecordCounts:
    """Count accepted records, and rejected ones by reason with a place of each. Exact and private; adds up."""

    rows: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)

    def read(self, chunk: Chunk, item: WorkItem) -> None:
        """Count a chunk of an item."""
        found = {
            r: Place(item.path, at, item.compression, bool(item.groups)) for r, at in chunk.places.items()
        }
        self.add(chunk.batch.num_rows, chunk.rejected, found)

    def add(self, rows: int, rejected: Mapping[str, int], places: Mapping[str, Place] | None = None) -> None:
        """Count more records."""
        self.rows += rows
        for reason, count in rejected.items():
            known = reason in self.rejected or len(self.rejected) < _MAX_REASONS
            name = reason if known else "other reasons"
            self.rejected[name] = self.rejected.get(name, 0) + count
            place = (places or {}).get(reason)
            if place is not None:
                self.places[name] = min(place, self.places.get(name, place))

    def __add__(self, other: RecordCounts) -> RecordCounts:
        whole = RecordCounts(self.rows, dict(self.rejected), dict(self.places))
        whole.add(other.rows, other.rejected, other.places)
        return whole


@dataclass(frozen=True)
class Check:
    """Limits, with the words for messages; calling it raises an `InputError` for counts beyond them."""

    limits: Limits
    subject: str = "input"
    hint: str = ""
    group: str = "input."  # the options' group in a config

    @classmethod
    def of(cls, plan: InputPlan, limits: Limits) -> Check:
        """Return the check for all files of a plan."""
        first = plan.files[0].path if plan.files else "input"
        # Where no column is counted, as in the local model, none of them are kept.
        kept = plan.source.keep_rejected or not plan.source.ids
        hint = "" if kept else " (input.rejected_records: FILE shows them)"
        return cls(limits, f"{first} and others" if len(plan.files) > 1 else first, hint)

    def __call__(self, tally: RecordCounts, opener: Opener = open_local, what: str = "the records") -> None:
        """Raise an `InputError` if too many records were rejected, or too few accepted."""
        self.check_rejected_share(tally, opener, what)
        self.check_rows(tally.rows)

    def check_rejected_share(self, tally: RecordCounts, opener: Opener, what: str) -> None:
        """Raise an `InputError` if too many records were rejected."""
        rejected, limits = sum(tally.rejected.values()), self.limits
        if rejected <= limits.max_rejected_share * (tally.rows + rejected):
            return
        reason = max(tally.rejected, key=lambda reason: (tally.rejected[reason], reason))
        where = tally.places[reason].shown(opener) if reason in tally.places else self.subject
        share, option = f"{float(limits.max_rejected_share):.3g}", f"{self.group}max_rejected_share"
        raise InputError(
            f"{where}: {reason}; more than {option} ({share}) of {what} would be rejected for this and other"
            f" reasons{self.hint}; correct the input or the options that read it, or raise {option}"
        )

    def check_rows(self, rows: int) -> None:
        """Raise an `InputError` if there are too few records."""
        least = self.limits.min_rows
        if rows >= least:
            return
        if least == 1:
            remedy = f"no records; set {self.group}min_rows to 0 where an empty input is meant"
        else:
            remedy = f"fewer records than {self.group}min_rows ({least:,}); lower it where that is meant"
        raise InputError(f"{self.subject}: {remedy}")


def check_first_blocks(plan: InputPlan, limits: Limits, opener: Opener = open_local) -> None:
    """Read the beginning of the files; raise an `InputError` if too much is rejected, or too little is there."""
    first = {
        item.path: item for item in sorted(plan.items, key=lambda item: (-item.start, item.groups[::-1]))
    }
    paths = sorted(first)
    chosen = paths[:: max(1, -(-len(paths) // _MAX_FILES))]
    source = dataclasses.replace(plan.source, block_bytes=_BLOCK_BYTES)
    small = dataclasses.replace(plan, source=source)
    tally, whole = RecordCounts(), len(first) == len(plan.items) and len(chosen) == len(paths)

    def begin(path: str) -> tuple[RecordCounts, bool]:
        """Return what the first blocks with records hold, and whether these are all blocks of the file."""
        counts, read = RecordCounts(), 0
        for number, chunk in enumerate(read_item(first[path], small, opener)):
            read += chunk.size
            counts.read(chunk, first[path])
            if chunk.batch.num_rows or chunk.rejected or number >= _MAX_BLOCKS:
                return counts, read >= first[path].size
        return counts, True

    with ThreadPoolExecutor(_THREADS) as pool:  # an object store answers many requests in the time of one
        begun = pool.map(begin, chosen) if "://" in "".join(chosen[:1]) else map(begin, chosen)
        for counts, ended in begun:
            tally, whole = tally + counts, whole and ended
    check = Check.of(plan, limits)
    check.check_rejected_share(tally, opener, "the first records")
    if plan.rows is not None or whole:
        check.check_rows(tally.rows if plan.rows is None else plan.rows)
