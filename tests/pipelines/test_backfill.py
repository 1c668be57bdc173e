"""`--from` and `--to`: a preview, one charge per date, and refusals before anything is charged."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from hushgram.errors import BudgetExceeded, HushgramError, InputError
from hushgram.ledger import Ledger
from hushgram.pipelines.cli import cli
from hushgram.sketch.reader import Sketch
from tests.pipelines.storm import _prepare_days

DATES = ("--from", "2026-11-01", "--to", "2026-11-03")


def backfill(folder: Path, *arguments: str) -> str:
    done = CliRunner().invoke(cli, ["release", str(folder / "config.yaml"), *arguments])
    if isinstance(done.exception, HushgramError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def charged(folder: Path) -> list[str]:
    with Ledger(f"sqlite:///{folder}/ledger.db") as ledger:
        return [row.name for row in ledger.history("views") if row.charged]


@pytest.mark.long
def test_preview_release_and_do_nothing_twice(tmp_path: Path) -> None:
    folder = tmp_path / "views"
    _prepare_days(folder, 3)
    said = backfill(folder, *DATES, "--check")
    assert "3, ε = 0.01 each" in said
    assert "it fits, and 97 more such releases would" in said
    assert charged(folder) == []
    backfill(folder, "--date", "2026-11-02", "--quiet")
    said = backfill(folder, *DATES)
    assert "released before  1" in said
    assert "2, ε = 0.01 each" in said
    assert sorted(charged(folder)) == [f"day-2026-11-0{day}" for day in (1, 2, 3)]
    for day in (1, 2, 3):
        assert Sketch.open(folder / "out" / f"day-2026-11-0{day}.sketch").verify()
    assert "to release       0" in backfill(folder, *DATES)


def test_nothing_is_charged_where_a_date_cannot_be_released(tmp_path: Path) -> None:
    folder = tmp_path / "views"
    _prepare_days(folder, 3)
    with pytest.raises(InputError, match=r"no input for 2026-11-04, 2026-11-05; .*nothing was charged"):
        backfill(folder, "--from", "2026-11-01", "--to", "2026-11-05")
    with pytest.raises(
        BudgetExceeded, match=r"3 releases of ε = 0.4 each do not fit .* 2 do; --to 2026-11-02"
    ):
        backfill(folder, *DATES, "--set", "privacy.epsilon=0.4")
    assert charged(folder) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "2026-11-03"), "--to needs --from"),
        (("--from", "2026-11-03", "--to", "2026-11-01"), "the first one first"),
        (("--from", "soon"), "must be YYYY-MM-DD"),
        ((*DATES, "--output", "x"), "--output goes with one release"),
        ((*DATES, "--set", "release=days"), "must contain the date"),
    ],
)
def test_wrong_dates_are_one_line(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    folder = tmp_path / "views"
    _prepare_days(folder, 1)
    with pytest.raises(HushgramError, match=said):
        backfill(folder, *arguments)
