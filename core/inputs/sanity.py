"""Input that cannot be meant: mostly bad records, or none at all. Refused before it is charged, or published.

    check_first_blocks(plan, limits, opener)        # before the charge: the beginning of the files
    check_counts(rows, bad, reasons, limits)        # before anything is published: all of it

A share above the limit is refused with the commonest reason; the first blocks also give a place to look at. What
these messages say depends on the data: they are for the operator, and no file of a release holds them. They hold no
counts and no records, since they may end up in a log.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from hushgram.errors import InputError, ParameterError
from hushgram.inputs.blocks import open_text
from hushgram.inputs.read import read_item
from hushgram.inputs.source import InputPlan, Opener, WorkItem, open_local

__all__ = ["Limits", "check_counts", "check_first_blocks"]

# Files whose first block is read; where there are more, so many of them are, spread over all.
_MAX_FILES = 64
_BLOCK_BYTES = 1 << 20
# Where a filter leaves out all of the first block, so many further ones are read.
_MAX_BLOCKS = 16


@dataclass(frozen=True)
class Limits:
    """What input must be like: at most this share of bad records, and at least so many good ones."""

    max_bad_share: Fraction = Fraction(1, 20)
    min_rows: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.max_bad_share <= 1:
            raise ParameterError(f"max_bad_share must be from 0 to 1, got {self.max_bad_share}")
        if self.min_rows < 0:
            raise ParameterError(f"min_rows must be at least 0, got {self.min_rows}")


def check_first_blocks(plan: InputPlan, limits: Limits, opener: Opener = open_local) -> None:
    """Reads the beginning of the files; an `InputError` where so much of it is bad, or there is too little."""
    first = {
        item.path: item for item in sorted(plan.items, key=lambda item: (-item.start, item.groups[::-1]))
    }
    paths = sorted(first)
    chosen = paths[:: max(1, -(-len(paths) // _MAX_FILES))]
    source = dataclasses.replace(plan.source, block_bytes=_BLOCK_BYTES)
    small = dataclasses.replace(plan, source=source)
    reasons: Counter[str] = Counter()
    places: dict[str, tuple[WorkItem, int]] = {}
    rows, whole = 0, len(first) == len(plan.items) and len(chosen) == len(paths)
    for path in chosen:
        read = 0
        for number, chunk in enumerate(read_item(first[path], small, opener)):
            rows += chunk.batch.num_rows
            read += chunk.size
            reasons.update(chunk.rejected)
            for reason, at in chunk.places.items():
                places.setdefault(reason, (first[path], at))
            if chunk.batch.num_rows or chunk.rejected or number >= _MAX_BLOCKS:
                whole = whole and read >= first[path].size
                break
    bad = sum(reasons.values())
    if bad > limits.max_bad_share * (rows + bad):
        reason = reasons.most_common(1)[0][0]
        where = f"{_place(*places[reason], opener)}: {reason}; "
        raise InputError(where + _too_many("the first records", limits, plan))
    known = plan.rows if plan.rows is not None else rows if whole else None
    if known is not None and known < limits.min_rows:
        raise InputError(_too_few(limits, [file.path for file in plan.files]))


def check_counts(
    rows: int, bad: int, reasons: Mapping[str, int], limits: Limits, plan: InputPlan | None = None
) -> None:
    """The same for all that was read; `reasons` say how often each record was set aside for what."""
    if bad > limits.max_bad_share * (rows + bad):
        common = max(reasons, key=lambda reason: reasons[reason], default="")
        why = f"{common}; " if common else ""
        raise InputError(f"input: {why}" + _too_many("the records", limits, plan))
    if rows < limits.min_rows:
        raise InputError(_too_few(limits, [] if plan is None else [file.path for file in plan.files]))


def _too_many(what: str, limits: Limits, plan: InputPlan | None) -> str:
    share = f"{float(limits.max_bad_share):.3g}"
    hint = "" if plan is None or plan.source.keep_bad else " (input.bad_records: FILE shows them)"
    return (
        f"more than input.max_bad_share ({share}) of {what} would be set aside for this and other reasons{hint}; "
        "mend the input or the options that read it, or raise input.max_bad_share"
    )


def _too_few(limits: Limits, paths: list[str]) -> str:
    shown = f"{paths[0]}{' and others' if len(paths) > 1 else ''}: " if paths else "input: "
    if limits.min_rows == 1:
        return f"{shown}no records; set input.min_rows to 0 where an empty input is meant"
    return f"{shown}fewer records than input.min_rows ({limits.min_rows:,}); lower it where that is meant"


def _place(item: WorkItem, at: int, opener: Opener) -> str:
    """Where a record is, for a person: file, line and byte of a text, row of a table."""
    if item.groups:
        return f"{item.path}, row {at + 1}"
    stream, raw = open_text(item.path, item.compression, opener)
    line, left = 1, at
    with raw, stream:
        while left > 0 and (piece := bytes(stream.read(min(left, 1 << 20)))):
            line += piece.count(b"\n")
            left -= len(piece)
    return f"{item.path}, line {line} (byte {at})"
