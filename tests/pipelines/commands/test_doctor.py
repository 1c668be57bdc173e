"""`hushgram doctor`: it says what is there, and fails only where every job would."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from hushgram.pipelines.commands import doctor


def test_this_machine_can_run_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUSHGRAM_LEDGER", raising=False)
    result = CliRunner().invoke(doctor.command)
    assert result.exit_code == 0, result.output
    assert "ok      apache-beam" in result.output
    assert "HUSHGRAM_LEDGER is not set" in result.output


def test_what_is_missing_comes_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doctor._EXTRAS, "no-such-package", ("nothing", "extra"))
    assert CliRunner().invoke(doctor.command).exit_code == 0  # an extra
    monkeypatch.setitem(doctor._PACKAGES, "no-such-package", "nothing")
    result = CliRunner().invoke(doctor.command)
    assert result.exit_code == 1
    assert "MISSING  no-such-package" in result.output
    assert "pip install hushgram" in result.output


def test_a_ledger_that_cannot_be_opened_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSHGRAM_LEDGER", "sqlite:////no/such/place.db")
    found = {finding.name: finding for finding in doctor.findings()}
    assert not found["ledger"].good
    assert "\n" not in found["ledger"].message
