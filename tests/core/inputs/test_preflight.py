"""What cannot be meant: reasons with their places, limits, and how much is read to find out."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from hushgram.errors import InputError, ParameterError
from hushgram.inputs import Check, Limits, RecordCounts, check_first_blocks, preflight, read_item
from hushgram.inputs.conditions import parse
from tests.core.inputs.helpers import plan_of, write


def test_the_commonest_reason_is_shown_with_line_and_byte(tmp_path: Path) -> None:
    text = "user,key\nu,/a\nx\n,/b\n,/c\n"
    plan = plan_of(write(tmp_path / "a.csv", text))
    place = rf"a\.csv, line 4 \(byte {text.index(',/b')}\): user is null; more than input.max_rejected_share \(0.05\)"
    with pytest.raises(InputError, match=place):
        check_first_blocks(plan, Limits())
    check_first_blocks(plan, Limits(Fraction(3, 4)))


def test_a_filter_that_leaves_out_the_beginning_does_not_read_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "_BLOCK_BYTES", 100)
    lines = "".join(f"u{i},/k\n" for i in range(5000))
    plan = plan_of(write(tmp_path / "a.csv", "user,key\n" + lines + "z,/k\n"), where=parse("user = 'z'"))
    read: list[int] = []
    real = preflight.read_item
    monkeypatch.setattr(preflight, "read_item", lambda *a: (read.append(1) or chunk for chunk in real(*a)))  # type: ignore[func-returns-value]
    check_first_blocks(plan, Limits())  # not known to be empty
    assert len(read) == 17
    small = plan_of(write(tmp_path / "b.csv", "user,key\nu,/k\n"), where=parse("user = 'z'"))
    with pytest.raises(InputError, match=r"no records; set input\.min_rows to 0"):
        check_first_blocks(small, Limits())


def test_counts_of_all_that_was_read() -> None:
    check = Check(Limits())
    check(RecordCounts(95, {"x": 5}))
    with pytest.raises(InputError, match=r"input: y; more than input\.max_rejected_share"):
        check(RecordCounts(94, {"x": 2, "y": 4}))
    with pytest.raises(InputError, match="no records"):
        check(RecordCounts())
    Check(Limits(min_rows=0))(RecordCounts())
    for wrong in ({"max_rejected_share": Fraction(2)}, {"min_rows": -1}):
        with pytest.raises(ParameterError):
            Limits(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("keep_rejected", [False, True])
def test_tallies_of_parts_add_up_and_the_first_place_is_shown(
    tmp_path: Path, keep_rejected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hushgram.inputs.source.MAX_REJECTED_SHOWN", 2)
    text = "user,key\n" + "u,/a\n" * 30 + "x\n" * 9 + ",/b\n" * 20
    plan = plan_of(
        [write(tmp_path / name, text) for name in ("b.csv", "a.csv.gz")],
        item_bytes=50,
        newlines_in_values=False,
        keep_rejected=keep_rejected,
    )
    whole = RecordCounts()
    for item in plan.items:
        part = RecordCounts()
        for chunk in read_item(item, plan):
            part.read(chunk, item)
        whole.add(part.rows, part.rejected, part.places)
    assert (whole.rows, whole.rejected) == (60, {"1 fields instead of 2": 18, "user is null": 40})
    place = rf"a\.csv\.gz, line 41 \(byte {text.index(',/b')}\): user is null; more than"
    with pytest.raises(InputError, match=place):
        Check.of(plan, Limits())(whole)


def test_reasons_without_end_are_told_together() -> None:
    tally = RecordCounts()
    for i in range(1005):
        tally.add(0, {f"{i} fields instead of 2": 1})
    assert (len(tally.rejected), tally.rejected["other reasons"]) == (1001, 5)
