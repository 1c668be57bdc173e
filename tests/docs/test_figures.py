"""Figures of README and docs: each that a page shows is there and is a picture; a named command makes them again."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools.figures import FIGURES, FOLDER

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN = re.compile(r"!\[[^\]]+\]\(([^)]+)\)")


def test_every_picture_is_there_and_has_a_title() -> None:
    shown = {(page.parent / link).resolve() for page in PAGES for link in SHOWN.findall(page.read_text())}
    assert {FOLDER / f"{name}.svg" for name in FIGURES} <= shown
    for path in shown:
        assert path.exists(), path
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.svg")), ids=lambda path: path.name)
def test_every_viewer_shows_the_colours(path: Path) -> None:
    """Many viewers know neither style sheets nor custom properties, and show what has them in black."""
    text = path.read_text(encoding="utf-8")
    assert not [word for word in ("var(", "<style", "class=", "style=") if word in text]


@pytest.mark.parametrize("name", ["odds", "kept", "flow"])
def test_the_command_makes_the_same_bytes(name: str) -> None:
    assert FIGURES[name]() == (FOLDER / f"{name}.svg").read_text()
