"""`hushgram calculate`: every calculator as a command, without Beam."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from hushgram.errors import ParameterError
from hushgram.mechanisms.calculators import CALCULATORS
from hushgram.pipelines.commands.calculate import command


def call(*arguments):
    return CliRunner().invoke(command, list(arguments))


def test_bound_formula_theorem_and_exact_value():
    result = call("advanced-composition", "--epsilon", "0.1", "--steps", "100", "--delta", "1e-6")
    assert result.exit_code == 0, result.exception
    lines = result.output.splitlines()
    assert lines[0].split()[-1] == "6.30823"
    assert "ε√(2k ln(1/δ))" in lines[1]
    assert "Theorem 3.20" in lines[2]
    assert lines[3].split()[-1] == "4.77457"


def test_rows_for_programs():
    result = call("above-threshold", "--queries", "1000", "--epsilon", "1", "--format", "json")
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert rows[0]["value"] == 86.0
    assert "Theorem 2" in rows[0]["from"]
    assert rows[1]["value"] <= 86.0


@pytest.mark.parametrize("name", CALCULATORS)
def test_every_calculator_has_help_and_says_what_is_missing(name):
    assert call(name, "--help").exit_code == 0
    assert "Missing option" in call(name).output


def test_mistakes_are_one_line():
    result = call("zcdp", "--rho", "x", "--delta", "0.1")
    assert isinstance(result.exception, ParameterError)
    assert "\n" not in str(result.exception)


def test_beam_is_not_imported():
    code = (
        "import sys; from hushgram.pipelines.commands.calculate import command; "
        "command(['zcdp', '--rho', '1', '--delta', '0.1'], standalone_mode=False); "
        "sys.exit('apache_beam' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
