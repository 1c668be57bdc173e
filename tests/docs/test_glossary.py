"""The glossary: its terms are used in code and docs, and the words they replace are gone from help, docs and names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hushgram.pipelines.cli import cli

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

#: words that must not occur in help, docs or public names → what to write instead
REPLACED = {
    r"set(ting)? aside": "rejected records",
    r"told apart": "significantly above 0",
    r"(?<!here )(is|are) no (?!longer|more|less)\w+": "is not a …",
    r"but for": "except",
    r"(doors?|houses?|rooms?|worth|anew)": "(plain words)",
    r"(bits|bytes|counters) a (key|cell|bit)": "bits per key",
    r"per cent": "%",
    r"made[- ]up": "synthetic",
    r"aftermath": "outcome",
    r"recipes?": "key expression",
    r"witness\w*": "rollback anchor",
    r"evidence": "likelihood",
    r"let[ _]go": "release",
    r"as_text": "to_dict",
    r"HOMES": "registry",
    r"rehears\w+": "dry run",
    r"but for a probability": "except with probability",
    r"known to its half": "half-width",
    r"copy it, publish it": "(plain words)",
    r"the way of a record": "how a record is processed",
}  # fmt: skip
#: public names that must not come back → their replacement
REPLACED_NAMES = {
    "as_text": "to_dict",
    "HOMES": "registry",
    "Finished": "JobResult",
    "say": "print_line",
    "stage_words": "steps_of",
    "human_bytes": "rich.filesize.decimal",
    "let_go": "release_lease",
    "aftermath": "outcome",
    "Evidence": "Likelihood",
    "Space": "Layout",
    "Demand": "LayoutSpec",
    "check_budget": "open_budget(…).dry_run",
    "publish_text": "publish",
}


#: names that are still to be replaced
PENDING_NAMES: set[str] = set()


def helps(command: click.Command, name: str = "hushgram") -> Iterator[tuple[str, str]]:
    """(command, text) of every text that --help shows."""
    yield name, command.help or ""
    for parameter in command.params:
        yield f"{name} {parameter.name}", getattr(parameter, "help", "") or ""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for part in command.list_commands(context):
            found = command.get_command(context, part)
            assert found is not None
            yield from helps(found, f"{name} {part}")


def public_names() -> Iterator[tuple[str, str]]:
    """(module, name) of everything in an `__all__`."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                    names = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
                    yield from ((path.relative_to(ROOT).as_posix(), str(name)) for name in names)


def lines_of(page: Path) -> list[tuple[str, str]]:
    where = page.relative_to(ROOT).as_posix()
    numbered = enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
    return [(f"{where}:{number}", line) for number, line in numbered]


HELP = list(helps(cli))
DOCS = [line for page in PAGES for line in lines_of(page)]
NAMES = list(public_names())


@pytest.mark.parametrize("word", REPLACED)
def test_replaced_words_are_gone_from_help_and_docs(word: str) -> None:
    found = [where for where, text in HELP + DOCS if re.search(rf"\b{word}\b", text)]
    assert not found, f"write {REPLACED[word]!r} instead"


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


def test_replaced_names_are_gone() -> None:
    found = [(where, name) for where, name in NAMES if name in REPLACED_NAMES]
    assert not found, "see REPLACED_NAMES"
    words = re.compile("|".join(rf"\b{word}\b" for word in REPLACED))
    found = [(where, name) for where, name in NAMES if words.search(name.replace("_", " ").lower())]
    assert {name for _, name in found} <= PENDING_NAMES, found


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


#: terms that some code does not use yet
PENDING: set[str] = set()


@pytest.mark.parametrize(
    "term", [pytest.param(t, marks=pytest.mark.xfail(strict=False)) if t in PENDING else t for t in terms()]
)
@pytest.mark.long
def test_every_term_is_used_in_code_and_docs(term: str) -> None:
    """One of its spellings: "heavy hitter (heavy key)", "prior, posterior"; in code with underscores, or as a class."""
    spellings = [
        re.sub(r"\W+", " ", part).strip().lower() for part in re.split(r"[(),]", term) if part.strip()
    ]
    for text in (TEXT_OF_CODE, TEXT_OF_DOCS):
        plain = re.sub(r"[\W_]+", " ", text)
        assert any(one in plain or one.replace(" ", "") in plain for one in spellings)
