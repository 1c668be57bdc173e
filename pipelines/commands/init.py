"""`hushgram init`: look at files, ask four questions, and write a commented config.

Nothing of the data but names of columns and formats goes into the config: bounds and noise must not depend on records.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from hushgram.errors import InputError, ParameterError
from hushgram.pipelines.terminal import (
    format_options,
    print_line,
    print_result,
    refuse_existing,
    replace_file,
)

__all__ = ["command"]

# Words in names of columns that identify a person, and of columns that are counted, the likelier first.
_USERS = (
    "user",
    "visitor",
    "customer",
    "account",
    "member",
    "person",
    "client",
    "device",
    "email",
    "session",
    "ip",
)
_KEYS = (
    "url",
    "uri",
    "path",
    "page",
    "query",
    "term",
    "product",
    "item",
    "host",
    "domain",
    "address",
    "event",
    "name",
)
# How often → ε and δ of one release (δ where keys have names): a year of them fits ε = 10, δ = 10⁻⁶ of a ledger.
_EVERY = {"once": ("1.0", "1e-6"), "day": ("0.1", "1e-9"), "week": ("0.25", "1e-8"), "month": ("0.8", "1e-8")}
_YAML_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
_DATES = ((re.compile(r"\d{4}-\d\d-\d\d"), "{date}"), (re.compile(r"(?<!\d)20\d{6}(?!\d)"), "{date:%Y%m%d}"))


@click.command("init")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--user", help="Column that identifies a person; 'record' protects each record by itself.")
@click.option("--key", help="Column that is counted, or a key expression such as [country, url].")
@click.option(
    "--names/--no-names", default=None, help="Release the text of keys (delta above 0), or fingerprints."
)
@click.option("--every", type=click.Choice(list(_EVERY)), help="How often these people's data are released.")
@click.option(
    "--yes", is_flag=True, help="Ask nothing: take the recommended answers where no option is given."
)
@click.option("--write", "written", metavar="CONFIG", help="Where the config goes; KEY.yaml by default.")
@format_options
def command(
    files: tuple[str, ...],
    user: str | None,
    key: str | None,
    names: bool | None,
    every: str | None,
    yes: bool,
    written: str | None,
    style: str,
    output: str | None,
) -> None:
    """Look at FILE (format, columns, a sample), ask four questions, and write a config with recommended settings.

    The questions: who is protected, what is counted, whether keys are released by name, how often. Spends no budget.
    """
    found = _listed(files)
    options, given, columns = _look(found[0])
    ask = style == "table" and not yes
    if ask:
        print_line(f"{found[0]}: {', '.join(columns)}")

    guess = _guess(columns, _USERS)
    if not ask and user is None and guess is None:
        raise ParameterError(
            "--user: no column looks like that of a person; name it, or protect each record by itself with"
            " --user record"
        )
    user = _answer(
        "--user", user, "1. Who is protected: the column of a person, or 'record'", guess or "record",
        ["record", *columns], ask,
    )  # fmt: skip
    others = [name for name in columns if name != user] or columns
    key = _answer(
        "--key", key, "2. What is counted: a column, or several as [a, b]", _guess(others, _KEYS) or others[0],
        columns, ask,
    )  # fmt: skip
    if names is None:
        question = "3. Release the text of keys (else only keys that are known can be looked up)"
        names = click.confirm(question, default=True) if ask else True
    if every is None:
        question, kinds = "4. How often are these people's data released", click.Choice(list(_EVERY))
        every = click.prompt(question, "once", type=kinds) if ask else "once"
    _try(found, tuple(dict.fromkeys((*(() if user == "record" else (user,)), key))), given)
    name = re.sub(r"[^A-Za-z0-9]+", "-", _columns_of(key)[-1]).strip("-").lower() or "keys"
    target = written or f"{name}.yaml"
    if not click.get_current_context().params["force"]:
        refuse_existing(target)
    text, next_lines = _config(name, target, _pattern(files, found), options, user, key, names, every)
    replace_file("--write", target, text.encode())
    row = {"config": target, "user": user, "key": key, "names": names, "every": every, "next": next_lines[0]}
    lines = [
        f"wrote   {target}",
        *(f"{'next' if not at else '':<8}{line}" for at, line in enumerate(next_lines)),
    ]
    print_result(row, lines, style, output)


def _answer(
    option: str, value: str | None, question: str, default: str, columns: Sequence[str], ask: bool
) -> str:
    """Return the value of an option, the answer to its question, or the default; its columns must be there."""
    from hushgram.inputs.columns import no_column

    def checked(text: str) -> str:
        for name in _columns_of(text):
            if name not in columns:
                raise click.UsageError(no_column(name, [each for each in columns if each != "record"]))
        return text

    if value is None:
        return str(click.prompt(question, default, value_proc=checked)) if ask else default
    try:
        return checked(value)
    except click.UsageError as problem:
        raise ParameterError(f"{option}: {problem.message}") from None


def _columns_of(key: str) -> tuple[str, ...]:
    from hushgram.inputs.key_expressions import parse_key_expression

    expression = parse_key_expression(key)
    return (key,) if expression is None else tuple(expression.columns)


def _listed(files: Sequence[str]) -> list[str]:
    """Return the local files that paths, patterns and folders name."""
    if any("://" in file for file in files):
        raise ParameterError(
            "init looks at local files; copy one here, and change input.path of the config afterwards"
        )
    found: dict[str, None] = {}
    for file in files:
        inside = (
            [str(path) for path in sorted(Path(file).rglob("*"))]
            if os.path.isdir(file)
            else glob.glob(file) or [file]
        )
        found |= dict.fromkeys(path for path in sorted(inside) if os.path.isfile(path))
    if not found:
        raise InputError(f"{files[0]}: no such file")
    return list(found)


def _look(path: str) -> tuple[dict[str, str], tuple[Any, ...], list[str]]:
    """Return the options that read a file (as config lines and as objects), and its columns."""
    from hushgram.inputs import Limits, Source, check_first_blocks, open_local, plan_inputs
    from hushgram.inputs.formats.csv import CsvOptions
    from hushgram.inputs.formats.log import PRESETS, LogOptions
    from hushgram.inputs.plan import format_of
    from hushgram.inputs.source import InputFile

    file = InputFile(path, os.path.getsize(path))
    blank = Source(ids=(), columns=("",))
    try:
        format, compression = format_of(path, blank)
    except InputError:
        format = None
    if format is None or format.name == "log":
        for preset in PRESETS:
            options: tuple[Any, ...] = (LogOptions(preset=preset),)
            try:
                format, compression = format_of(path, Source(ids=(), columns=("",), options=options))
                columns = list(
                    format.plan(
                        file, compression, Source(ids=(), columns=("",), options=options), open_local
                    ).columns
                )
                plan = plan_inputs([file], Source(ids=(columns[0],), options=options))
                check_first_blocks(plan, Limits())
            except InputError:
                continue
            return {"preset": preset}, options, columns
        raise InputError(
            f"{path}: is not Parquet, CSV, JSON lines or a log of a known server; rename it to .csv, .jsonl or"
            " .parquet, or write a config with input.pattern"
        )
    best: tuple[dict[str, str], tuple[Any, ...], list[str]] = ({}, (), [])
    for delimiter in (",", ";", "\t", "|") if format.name == "csv" else ("",):
        options = (CsvOptions(delimiter=delimiter),) if delimiter not in ("", ",") else ()
        source = Source(ids=(), columns=("",), options=options)
        try:
            columns = [name for name in format.plan(file, compression, source, open_local).columns if name]
        except InputError:
            if delimiter in ("", "|") and not best[2]:
                raise
            continue
        if len(columns) > len(best[2]):
            best = ({"csv": f"{{delimiter: {json.dumps(delimiter)}}}"} if options else {}, options, columns)
    if not best[2]:
        raise InputError(f"{path}: has no columns; is it empty?")
    return best


def _guess(columns: Sequence[str], words: Sequence[str]) -> str | None:
    """Return the first column whose name holds one of the words as a part."""
    parts = {
        name: re.split(r"[^a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()) for name in columns
    }
    found = ((name for name in columns if word in parts[name]) for word in words)
    return next((name for names in found for name in names), None)


def _try(files: Sequence[str], ids: tuple[str, ...], options: tuple[Any, ...]) -> None:
    """Read the beginning of the files as a job would; raise InputError if it would refuse them."""
    from hushgram.inputs import Limits, Source, check_first_blocks, plan_inputs
    from hushgram.inputs.source import InputFile

    listed = [InputFile(path, os.path.getsize(path)) for path in files]
    check_first_blocks(plan_inputs(listed, Source(ids=ids, options=options)), Limits())


def _pattern(given: Sequence[str], found: Sequence[str]) -> str:
    """Return the path or pattern for the config: what the shell expanded becomes a pattern again."""
    if len(given) == 1:
        return given[0]
    folder, endings = os.path.dirname(found[0]), {os.path.basename(path).partition(".")[2] for path in found}
    pattern = os.path.join(folder, f"*.{endings.pop()}") if len(endings) == 1 else os.path.join(folder, "*")
    if sorted(glob.glob(pattern)) == sorted(found):
        return pattern
    return f"[{', '.join(found)}]"


def _config(
    name: str, target: str, path: str, options: dict[str, str], user: str, key: str, names: bool, every: str
) -> tuple[str, list[str]]:
    """Return the text of the config, and the commands to run next."""
    epsilon, delta = _EVERY[every]
    date, dated = "", path
    if every != "once":
        date = "-{date}"
        for pattern, word in _DATES:
            dated = pattern.sub(lambda _, word=word: word, dated)  # type: ignore[misc]
    result = f"out/{name}{date}.sketch"
    more = "" if every == "once" else " --date yesterday"
    runs = [
        f"hushgram release {shlex.quote(target)}{more} --check",
        f"hushgram release {shlex.quote(target)}{more}",
    ]
    if every == "once":
        runs.append(f"hushgram report {result}")
    else:
        runs.insert(
            0, f"hushgram ledger init --dataset {name} --epsilon 10 --delta 1e-6 --ledger sqlite:///ledger.db"
        )
    lines = [
        f"# Counts {key} with differential privacy. Written by hushgram init; every field: docs/configuration.md"
    ]
    lines += [f"#   {run}" for run in runs]
    lines.append(f"release: {name}{date}")
    if every != "once":
        lines.append(f"dataset: {name}".ljust(37) + "# whose budget is charged")
        lines.append(
            "ledger: sqlite:///ledger.db".ljust(37) + f"# one {every} costs {epsilon} of its epsilon"
        )
    lines.append("input:")
    undated = every != "once" and dated == path
    lines.append(_field("path", dated, "put {date} where file names have their date" if undated else ""))
    lines += [f"  {option}: {value}" for option, value in options.items()]
    if user == "record":
        lines.append("  # user:".ljust(37) + "# none: each record is protected by itself")
    else:
        lines.append(_field("user", user, "who is protected: all records of one of these"))
    lines.append(_field("key", key, "what is counted"))
    lines.append("privacy:")
    lines.append(_field("epsilon", epsilon, "privacy loss; half of it means about twice the error"))
    lines.append(
        _field("delta", delta, "keys by name; keep it far below 1 / number of users")
        if names
        else _field("delta", "0", "fingerprints: you look up keys that you know")
    )
    if user != "record":
        lines.append(
            _field("max_contributions", "8", "records that count per user; hushgram plan compares others")
        )
    lines += ["output:", f"  path: {result}"]
    return "\n".join(lines) + "\n", runs


def _field(name: str, value: str, comment: str = "") -> str:
    if name in ("path", "user", "key") and not value.startswith("["):
        plain = re.fullmatch(r"[A-Za-z_][\w./*-]*", value) and value.lower() not in _YAML_WORDS
        value = value if plain else json.dumps(value, ensure_ascii=False)
    return f"  {name}: {value}".ljust(37) + f"# {comment}" if comment else f"  {name}: {value}"
