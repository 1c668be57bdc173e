"""The glossary: its terms are used in code and docs; docstrings of functions begin with a verb."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "transforms", "pipelines")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "core/sketch/FORMAT.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "docs/notebook.ipynb",
]


def lines_of(page: Path) -> list[tuple[str, str]]:
    where = page.relative_to(ROOT).as_posix()
    numbered = enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
    return [(f"{where}:{number}", line) for number, line in numbered]


DOCS = [line for page in PAGES for line in lines_of(page)]

#: how a docstring of a function does not begin: with a noun phrase, or a question
NOT_A_VERB = ("What", "Who", "How", "Whether", "Where", "The", "A", "An", "About")
#: packages whose docstrings all begin with a verb
VERBS_FIRST = (
    "core/decoding", "core/encodings", "core/inputs", "core/contributions", "core/noise", "core/planner.py",
    "core/sketch/reader.py", "core/mechanisms/randomized_response", "pipelines", "transforms",
)  # fmt: skip


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield (function, docstring) of all functions of `VERBS_FIRST` except properties, which are nouns."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            where = path.relative_to(ROOT).as_posix()
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef) and where.startswith(VERBS_FIRST):
                    told = ast.get_docstring(node)
                    if told and not any("property" in ast.unparse(one) for one in node.decorator_list):
                        yield f"{where}:{node.lineno} {node.name}", told


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    assert not [where for where, told in docstrings() if told.split()[0].strip(".,:;") in NOT_A_VERB]


def terms() -> list[str]:
    rows = (ROOT / "docs/glossary.md").read_text(encoding="utf-8").splitlines()
    return [
        row.split("|")[1].strip()
        for row in rows
        if row.startswith("|") and not row.startswith(("|---", "| term"))
    ]


TEXT_OF_CODE = "\n".join(
    path.read_text(encoding="utf-8") for package in PACKAGES for path in (ROOT / package).rglob("*.py")
).lower()
TEXT_OF_DOCS = "\n".join(line for where, line in DOCS if not where.startswith("docs/glossary.md")).lower()


@pytest.mark.parametrize("term", terms())
@pytest.mark.long
def test_every_term_is_used_in_code_and_docs(term: str) -> None:
    """One of its spellings: "heavy hitter (heavy key)", "prior, posterior"; in code with underscores, or as a class."""
    spellings = [
        re.sub(r"\W+", " ", part).strip().lower() for part in re.split(r"[(),]", term) if part.strip()
    ]
    for text in (TEXT_OF_CODE, TEXT_OF_DOCS):
        plain = re.sub(r"[\W_]+", " ", text)
        assert any(one in plain or one.replace(" ", "") in plain for one in spellings)
