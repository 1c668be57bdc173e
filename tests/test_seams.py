"""The seams of CONTRIBUTING.md: an addition is one module and one registry line, and a toy of each kind shows it.

Every toy goes through the command: ``--check`` and a run.
"""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("core", "transforms", "pipelines")

#: each seam, and the test that adds a toy to it and uses the toy as anybody would
TOYS = {
    "input format": "tests/core/inputs/formats/test_registry.py::test_a_format_is_one_file_and_one_line",
    "job": "tests/pipelines/test_toy_job.py::test_everything_comes_with_it",
    "kind of query in a sparse-vector stream": (
        "tests/core/mechanisms/svt/test_kinds.py::test_the_command_takes_a_toy_kind"
    ),
}


class Row(NamedTuple):
    """One row of the table: files by their paths, the registry with the name in it that takes the line."""

    kind: str
    new: list[str]
    registry: list[str]
    shapes: list[str]


def table() -> list[Row]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Where do I put")[2]
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [Row(kind, *(re.findall(r"`([^`]+)`", cell) for cell in rest)) for kind, *rest in cells]


ROWS = {row.kind: row for row in table()}
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def paths(names: list[str]) -> list[str]:
    return [name for name in names if "/" in name]


def registry_of(row: Row) -> list[str]:
    """The file of the registry: where it is not stated, that of the new class."""
    return paths(row.registry) or (paths(row.new) if row.registry else [])


def functions(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("kind", TOYS)
def test_every_seam_has_a_row_and_a_toy(kind: str) -> None:
    file, test = TOYS[kind].split("::")
    assert kind in ROWS
    assert test in functions(ROOT / file)
    source = (ROOT / file).read_text("utf-8")
    registries = set(re.findall(r"setitem\(([\w.]+),", source)) - {"sys.modules"}
    assert len(registries) == (
        0 if kind == "input format" else 1
    )  # the toy format is a file beside the others


@pytest.mark.parametrize("kind", ROWS)
def test_a_new_one_is_at_most_two_files_of_the_product(kind: str) -> None:
    row = ROWS[kind]
    if kind != "mechanism":  # a package of its own, not a line of a registry
        assert len(paths(row.new)) == 1
        assert len(registry_of(row)) == 1
    assert len(paths(row.new)) + len(paths(row.registry)) <= 2


@pytest.mark.parametrize("kind", ROWS)
def test_what_the_table_names_exists(kind: str) -> None:
    row = ROWS[kind]
    for name in paths(row.new):
        assert (ROOT / name).parent.is_dir()
    for name in registry_of(row):
        registry = importlib.import_module(module_of(ROOT / name))
        assert all(hasattr(registry, entry) for entry in row.registry if "/" not in entry)
    assert row.shapes
    for name in row.shapes:
        place = ROOT / paths(row.new)[0] if paths(row.new) else ROOT
        if "." in name or "/" in name:
            assert ((ROOT if "/" in name else place.parent) / name).exists()
        else:
            assert hasattr(importlib.import_module(module_of(place)), name)


@pytest.mark.parametrize("kind", [kind for kind in ROWS if ROWS[kind].registry])
def test_the_shape_to_follow_has_what_the_row_asks_for(kind: str) -> None:
    row = ROWS[kind]
    file = ROOT / paths(row.new)[0]
    if "." in row.shapes[0]:
        file = file.parent / row.shapes[0]
    module = importlib.import_module(module_of(file))
    (asked,) = (name for name in row.new if "/" not in name)
    kinds = [
        name for cls in vars(module).values() if isinstance(cls, type) for name in map(_name, cls.__mro__)
    ]
    assert hasattr(module, asked) or asked in kinds


def _name(cls: type) -> str:
    return cls.__name__


def module_of(path: Path) -> str:
    """The name under which a file of the product is imported."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    parts = parts[1:] if parts[0] == "core" else parts
    return ".".join(["hushgram", *(part for part in parts if part != "__init__")])


def test_every_folder_is_packaged() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["packages"]
    stated.remove("hushgram.configs")  # YAML files alone
    assert sorted(stated) == sorted({module_of(path.parent / "__init__.py") for path in FILES})
    for path in FILES:
        assert (path.parent / "__init__.py").is_file()
