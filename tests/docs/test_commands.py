"""Commands of README and docs: those of the tutorial run as written and in order, all others exist as written."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hushgram.pipelines.cli import cli
from hushgram.pipelines.commands.example import EXAMPLES
from hushgram.pipelines.commands.examples import EXAMPLES as EXAMPLES_OF_HELP

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "configs").glob("*.yaml")),
]
COMMAND = re.compile(r"^[#\s]*(hushgram (?!is |does |on |has |writes |reads |draws )[^\n]+?)\s*$")


def commands(page: Path) -> list[str]:
    """Lines that are commands: indented or fenced, in a config behind #; comments after two spaces are left out."""
    out: list[str] = []
    fenced = False
    text = page.read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        shown = fenced or line.startswith("    ") or (page.suffix == ".yaml" and line.startswith("#   "))
        match = COMMAND.match(line)
        if shown and match:
            out.append(re.split(r"\s{2,}(?:#|[a-zδε(])|\s+# ", match.group(1))[0].strip())
    return out


def parse(text: str) -> None:
    """Refuses what the command line would refuse: unknown commands, options, missing arguments."""
    words = shlex.split(text)[1:]
    command: click.Command = cli
    context = click.Context(cli, info_name="hushgram")
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, f"{text}: there is no command {words[0]!r}"
        command, words = found, words[1:]
        context = click.Context(command, parent=context, info_name=command.name)
    command.make_context(command.name or "", words, parent=context.parent)


ALL = [(page.relative_to(ROOT).as_posix(), text) for page in PAGES for text in dict.fromkeys(commands(page))]


@pytest.mark.parametrize(("page", "text"), ALL, ids=[f"{page}: {text[:60]}" for page, text in ALL])
def test_every_command_in_the_docs_exists_as_written(page: str, text: str) -> None:
    try:
        parse(text)
    except click.exceptions.Exit:
        pass  # --help
    except click.ClickException as problem:
        pytest.fail(f"{page}: {text}: {problem.format_message()}")


def every_command(command: click.Command, words: str = "") -> list[str]:
    if not isinstance(command, click.Group):
        return [words.strip()]
    context = click.Context(command)
    parts = ((name, command.get_command(context, name)) for name in command.list_commands(context))
    return [each for name, part in parts if part for each in every_command(part, f"{words} {name}")]


@pytest.mark.parametrize("words", every_command(cli))
def test_the_help_of_every_command_ends_with_examples_that_exist(words: str) -> None:
    told = CliRunner().invoke(cli, [*words.split(), "--help"]).output
    assert "For example:" in told
    for rest in EXAMPLES_OF_HELP[words]:
        assert f"  hushgram {words} {rest}".rstrip() in told
        parse(f"hushgram {words} {rest}")


def test_the_docs_have_commands() -> None:
    assert len(ALL) > 40


def run(text: str, folder: Path) -> str:
    words = [sys.executable, "-m", "hushgram.pipelines", *shlex.split(text)[1:]]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_tutorial_runs_as_written(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    asked = commands(ROOT / "docs/tutorial.md")
    assert len(asked) >= 12
    for text in asked:
        if not text.startswith("hushgram explore"):
            run(text, tmp_path)
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_ready_config_runs_on_its_example(name: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    told = run(f"hushgram example {name} --rows 5000", tmp_path)
    then = told.rsplit("next", 1)[1].strip()
    run(f"{then} --quiet", tmp_path)
    assert list((tmp_path / "out").iterdir())
