"""docs/documents.md and docs/architecture.md: every symbol, file, test and command that they name exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import click
import pytest

from hushgram.mechanisms.calculators import CALCULATORS
from hushgram.pipelines.cli import cli

ROOT = Path(__file__).parents[1]
NAMED = sorted(set(re.findall(r"`([^`]+)`", (ROOT / "docs/documents.md").read_text(encoding="utf-8"))))


def kind(prefix: str) -> list[str]:
    return [name for name in NAMED if name.startswith(prefix)]


@pytest.mark.parametrize("name", kind("hushgram.") + kind("benchmarks."))
def test_symbols_exist(name: str) -> None:
    module, _, symbol = name.rpartition(".")
    assert hasattr(importlib.import_module(module), symbol)


@pytest.mark.parametrize("name", kind("tests/"))
def test_tests_exist(name: str) -> None:
    assert (ROOT / name).is_file()


@pytest.mark.parametrize("name", kind("hushgram "))
def test_commands_exist(name: str) -> None:
    command, *more = name.split()[1:]
    assert command in cli.list_commands(click.Context(cli))
    if command == "calculate":
        assert more[0] in CALCULATORS


@pytest.mark.parametrize("name", kind("python -m "))
def test_benchmarks_exist(name: str) -> None:
    module = name.split()[2]
    part = " ".join(name.split()[3:])
    source = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    assert not part or part in source


def test_it_names_all_five_documents_and_every_calculator() -> None:
    text = (ROOT / "docs/documents.md").read_text(encoding="utf-8")
    for author in ("Kamath", "handwritten", "Wang", "Programming DP", "Aumüller"):
        assert author in text
    missing = [name for name in CALCULATORS if f"hushgram calculate {name}" not in text]
    assert missing == ["pure-to-zcdp"]  # of none of the five: it belongs to the two beside it


ARCHITECTURE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:core|transforms|pipelines)/[\w/]+\.py)`", ARCHITECTURE)))
)
def test_files_of_the_architecture_exist(path: str) -> None:
    """With the classes, functions and methods that the page says are in them."""
    if path.endswith("/NAME.py"):
        return
    text = (ROOT / path).read_text(encoding="utf-8")
    for name, method in re.findall(rf"`{re.escape(path)}`: `(\w+)`(?:, method `(\w+)`)?", ARCHITECTURE):
        assert re.search(rf"^(class|def) {name}\b", text, re.M), name
        assert not method or re.search(rf"^    def {method}\b", text, re.M), method
