"""Commands of README, docs and configs: each page runs as written and in order, in a folder with nothing but configs/;
all code of the pages that a newcomer follows runs in one folder.

Not run, but parsed: what needs an engine or a cloud (tests/engines starts what can be started), and what serves a page.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

from hushgram.pipelines.cli import cli
from hushgram.pipelines.commands import EXAMPLES as EXAMPLES_OF_HELP
from hushgram.pipelines.commands.example import EXAMPLES
from hushgram.pipelines.synthetic import PageViews

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "configs").glob("*.yaml")),
]
COMMAND = re.compile(r"^[#\s]*(hushgram (?!is |does |on |has |writes |reads |draws )[^\n]+?)\s*$")


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return ("python" | "yaml", block) and ("sh", command) of a page, in order.

    Commands are lines that are indented or fenced, in a config behind #; comments after them are left out.
    """
    out: list[tuple[str, str]] = []
    fence = None
    for line in page.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            fence = None if fence is not None else line[3:]
            out += [(fence, "")] if fence in ("python", "yaml") else []
        elif fence in ("python", "yaml"):
            out[-1] = fence, f"{out[-1][1]}{line}\n"
        else:
            shown = fence is not None or line.startswith("    ")
            match = COMMAND.match(line)
            if match and (shown or (page.suffix == ".yaml" and line.startswith("#   "))):
                out.append(("sh", re.split(r"\s{2,}(?:#|[a-zδε(])|\s+# ", match.group(1))[0].strip()))
    return out


def commands(page: Path) -> list[str]:
    """Return the commands of a page, in order."""
    return [text for kind, text in blocks(page) if kind == "sh"]


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
    return [
        each
        for name, part in parts
        if part and not part.hidden
        for each in every_command(part, f"{words} {name}")
    ]


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


#: needs an engine, a cloud or a config that is not here, or runs until it is interrupted
ELSEWHERE = re.compile(
    r"--runner=(Flink|Prism|Portable|Dataflow)Runner|configs/(flink|dataflow)\.yaml|hushgram explore|\bCONFIG\b|…"
)
#: what a config's own comments take for granted
BEFORE = {
    "demo": "hushgram demo --rows 20000 --keep demo",
    **{name: f"hushgram example {name} --rows 5000" for name in EXAMPLES},
}
#: what a newcomer follows in one folder; the first two need nothing of each other, so they are not run alone as well
WALK = [
    ROOT / "README.md",
    *(ROOT / f"docs/{name}.md" for name in ("tutorial", "svt", "answers", "ledger", "operations")),
]
RUN = [
    page
    for page in PAGES
    if page not in WALK[:2] and any(not ELSEWHERE.search(text) for text in commands(page))
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUSHGRAM_LEDGER", raising=False)
    return tmp_path


@pytest.mark.parametrize("page", RUN, ids=[page.relative_to(ROOT).as_posix() for page in RUN])
def test_every_page_runs_as_written(page: Path, folder: Path) -> None:
    asked = [text for text in commands(page) if not ELSEWHERE.search(text)]
    if page.suffix == ".yaml":
        asked.insert(0, BEFORE[page.stem])
    for text in asked:
        if "workers" in text:  # which fork: not from a process with the threads of other tests
            run(text, folder)
            continue
        done = CliRunner().invoke(cli, shlex.split(text)[1:])
        assert done.exit_code == 0, f"{text}\n{done.output}\n{done.exception!r}"


def test_all_code_of_the_first_pages_runs_in_order_in_one_folder(folder: Path) -> None:
    """Commands are run, Python blocks share the names of their page, and configs pass a dry run."""
    for page in WALK:
        names: dict[str, Any] = {"__name__": "__main__"}
        for number, (kind, text) in enumerate(blocks(page)):
            if kind == "python":
                exec(compile(text, f"{page.name}, block {number}", "exec"), names)
                continue
            if kind == "yaml":
                Path("shown.yaml").write_text(text, encoding="utf-8")
                date = "--date yesterday " if "{date}" in text else ""
                job = text.split(":")[0]
                text = f"hushgram {job} shown.yaml {date}--check --set output.path=out/shown-{number}"
                text += " --set release=shown" if job == "release" else ""
            if not ELSEWHERE.search(text):
                done = CliRunner().invoke(cli, shlex.split(text)[1:])
                assert done.exit_code == 0, f"{page.name}: {text}\n{done.output}\n{done.exception!r}"
    kept = {path.name for path in folder.rglob("*")}
    assert {"urls.sketch", "from-pandas.sketch", "from-beam.sketch", "report.html", "session-17.txt"} <= kept


#: keys that pages ask for because nobody has them
ABSENT = {"https://example.org/nobody"}


@pytest.mark.parametrize(
    "page", [*WALK, *sorted((ROOT / "configs").glob("*.yaml"))], ids=lambda page: page.name
)
def test_every_key_that_is_asked_for_exists(page: Path) -> None:
    views = PageViews(rows=100_000)
    known = set(views.url_texts(np.arange(views.url_count)).to_pylist())
    asked = set(re.findall(r"https://example\.org/[\w/]*\w", page.read_text(encoding="utf-8")))
    prefixes = {f"{url.rsplit('/', 1)[0]}" for url in known}
    assert not asked - known - prefixes - ABSENT


def test_systemd_retries_what_a_retry_can_mend() -> None:
    """The unit in docs/operations.md repeats no run that the table of exit codes calls final."""
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    final = {*re.search(r"RestartPreventExitStatus=([\d ]+)", text)[1].split()}  # type: ignore[index]
    told = {
        *re.findall(r"\((\d)\)", text[text.index("not fixed by a retry") : text.index("Missing input (3)")])
    }
    assert final == told
    again = re.findall(r"^\| ([\d, ]+) \|.*run (?:again|the same command again)", text, re.M)
    assert not final & {code for codes in again for code in codes.split(", ")}


def test_every_config_has_its_example() -> None:
    assert {path.stem for path in (ROOT / "configs").glob("*.yaml")} == set(EXAMPLES)


#: those whose own page does not run them
UNRUN = [
    name for name, (_, _, then) in EXAMPLES.items() if then not in commands(ROOT / f"configs/{name}.yaml")
]


@pytest.mark.parametrize("name", UNRUN)
def test_every_ready_config_runs_on_its_example(name: str, folder: Path) -> None:
    told = CliRunner().invoke(cli, ["example", name, "--rows", "5000"])
    then = told.output.rsplit("next", 1)[1].strip()
    done = CliRunner().invoke(cli, [*shlex.split(then)[1:], "--quiet"])
    assert done.exit_code == 0, f"{then}\n{done.exception!r}"
    assert list((folder / ("demo" if name == "demo" else "out")).iterdir())
