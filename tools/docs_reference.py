"""Generate the reference pages of the documentation site. mkdocs runs this file as a hook (`make docs`).

    reference/cli.md             every command with its options, from the click commands
    reference/config.md          every field of every job's config, from the pydantic models
    reference/api.md             public names of the Python package, for mkdocstrings to fill in
    reference/sketch-format.md   core/sketch/FORMAT.md
    contributing.md, changelog.md, security.md   the files of the same name at the root

Nothing is written to docs/: pages exist in the build alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import hushgram
from hushgram.pipelines.cli import cli
from hushgram.pipelines.jobs import JOBS, job_class

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
#: Modules of the API page, beside the names that `import hushgram` gives.
MODULES = (
    "hushgram.transforms",
    "hushgram.accounting",
    "hushgram.ledger",
    "hushgram.planner",
    "hushgram.planning",
    "hushgram.errors",
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages; mkdocs calls this once its own files are known."""
    from mkdocs.structure.files import File

    for name, make in PAGES.items():
        files.append(File.generated(config, name, content=make()))
    return files


def command_line() -> str:
    """Return the page of all commands."""
    return (
        "\n".join(["# Command line", "", "Each command prints this with `--help`.", *_commands(cli, ())])
        + "\n"
    )


def _commands(command: click.Command, words: tuple[str, ...]) -> Iterator[str]:
    context = click.Context(command, info_name=" ".join(("hushgram", *words)))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            part = command.get_command(context, name)
            assert part is not None
            yield from _commands(part, (*words, name))
        return
    yield from ("", f"## hushgram {' '.join(words)}", "", "```text", command.get_help(context), "```")


def configuration() -> str:
    """Return the page of all config fields: those that every job has, then those of each job."""
    jobs = {name: dict(_fields(job_class(name).Config, ())) for name in JOBS}
    common = {
        path: row
        for path, row in jobs["release"].items()
        if all(fields.get(path) == row for fields in jobs.values())
    }
    lines = [
        "# Configuration fields",
        "",
        "Generated from the models that check a config. [Configuration](../configuration.md) explains how the fields",
        "work together.",
        "",
        "## Every job",
        "",
        *_field_table(common),
    ]
    for name, fields in jobs.items():
        own = {path: row for path, row in fields.items() if path not in common}
        lines += ["", f"## hushgram {name}", "", JOBS[name][1], "", *_field_table(own)]
    return "\n".join(lines) + "\n"


def _fields(model: type[BaseModel], above: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield (dotted path, (default, meaning)) of each field, with those of nested models below it."""
    for name, field in model.model_fields.items():
        path = (*above, name)
        inside = _model_of(field.annotation)
        if inside is None or field.description:
            yield ".".join(path), (_default(field), field.description or "")
        if inside is not None:
            yield from _fields(inside, path if not _is_mapping(field.annotation) else (*path, "NAME"))


def _model_of(kind: Any) -> type[BaseModel] | None:
    """Return the model inside an annotation such as `Model | None` or `dict[str, Model]`."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    inside = (_model_of(part) for part in getattr(kind, "__args__", ()))
    return next((found for found in inside if found is not None), None)


def _is_mapping(kind: Any) -> bool:
    return getattr(kind, "__origin__", None) is dict


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None or value is PydanticUndefined or isinstance(value, BaseModel):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _field_table(rows: dict[str, tuple[str, str]]) -> Iterator[str]:
    yield from ("| field | default | meaning |", "|---|---|---|")
    for path, (default, meaning) in rows.items():
        yield f"| `{path}` | {default} | {meaning.replace('|', chr(92) + '|')} |"


def python_api() -> str:
    """Return the page that names every public function and class; mkdocstrings fills it in."""
    lines = [
        "# Python API",
        "",
        "`import hushgram as hg` gives the names of the first section.",
        "",
        "## hushgram",
    ]
    for name in hushgram.__all__:
        if not name.startswith("_") and not isinstance(getattr(hushgram, name), ModuleType):
            lines += ["", f"::: {_home(getattr(hushgram, name))}"]
    found = (getattr(hushgram, name, None) for name in dir(hushgram))
    modules = {each.__name__ for each in found if isinstance(each, ModuleType) and hasattr(each, "__all__")}
    for name in (*MODULES, *sorted(modules - set(MODULES))):
        lines += ["", f"## {name}", "", *_module(import_module(name))]
    return "\n".join(lines) + "\n"


def _module(module: ModuleType) -> Iterator[str]:
    yield (module.__doc__ or "").strip().splitlines()[0]
    for name in module.__all__:
        found = getattr(module, name)
        if (isinstance(found, type) or callable(found)) and hasattr(found, "__qualname__"):
            yield from ("", f"::: {_home(found)}")


def _home(found: Any) -> str:
    """Return where an object is defined: mkdocstrings reads source files and follows no lazy import."""
    return f"{found.__module__}.{found.__qualname__}"


def _file(path: str, base: str) -> str:
    """Return a file from outside docs/, with its links to docs/ made relative to the generated page."""
    text = (ROOT / path).read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/([^)]+)\)", rf"]({base}\1)", text)
    return re.sub(r"(?<![\w/(\[`])docs/([a-z-]+)\.md", rf"[\1]({base}\1.md)", text)


PAGES: dict[str, Callable[[], str]] = {
    "reference/cli.md": command_line,
    "reference/config.md": configuration,
    "reference/api.md": python_api,
    "reference/sketch-format.md": lambda: _file("core/sketch/FORMAT.md", "../"),
    "contributing.md": lambda: _file("CONTRIBUTING.md", ""),
    "changelog.md": lambda: _file("CHANGELOG.md", ""),
    "security.md": lambda: _file("SECURITY.md", ""),
}
