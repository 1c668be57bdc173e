"""The `hushgram` command. Each subcommand is imported only when it runs, so that lookups start fast.

A user's mistake ends with one line on standard error and the exit code of its class. Anything else is a bug and ends
with a traceback.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from types import FrameType

import click

from hushgram import __version__
from hushgram.errors import HushgramError, naming_extras, printable
from hushgram.pipelines.commands import COMMANDS, EXAMPLES, JOBS_WITH_MODULE
from hushgram.pipelines.commands.job import job_command
from hushgram.pipelines.jobs import JOBS
from hushgram.pipelines.run.logs import stopped_by
from hushgram.pipelines.terminal import EscapingFormatter, print_line

__all__ = ["cli", "main", "run"]


class LazyGroup(click.Group):
    """Import the module of a command only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*JOBS, *COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        if cmd_name in JOBS and cmd_name not in JOBS_WITH_MODULE:
            return _with_examples(job_command(cmd_name), cmd_name)
        module = import_module(f"hushgram.pipelines.commands.{cmd_name.replace('-', '_')}")
        assert isinstance(module.command, click.Command)
        return _with_examples(module.command, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the command that was probably meant."""
        known, name = self.list_commands(ctx), args[0] if args else ""
        close = difflib.get_close_matches(name, known, n=1) if not name.startswith("-") else []
        if close and name not in known:
            ctx.fail(f"No such command {name!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them: help must not import Beam either."""
        summaries = {name: line for name, (_, line) in JOBS.items()} | COMMANDS
        with formatter.section("Commands"):
            formatter.write_dl(list(summaries.items()))


def _with_examples(command: click.Command, name: str) -> click.Command:
    """Return the command with its examples at the end of its help; a group's commands get theirs."""
    if isinstance(command, click.Group):
        for part in command.commands.values():
            _with_examples(part, f"{name} {part.name}")
    elif name in EXAMPLES:
        lines = "\n".join(f"  hushgram {name} {arguments}".rstrip() for arguments in EXAMPLES[name])
        command.epilog = f"\b\nFor example:\n{lines}"
    return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hushgram")
def cli() -> None:
    """Release histograms over huge key domains, and answer queries, with differential privacy."""


def run() -> None:
    """Run the command as a process of its own.

    Commands other than jobs do not load pandas: pyarrow would load it, where it is installed, on its first conversion,
    which takes a third of a second.
    """
    if len(sys.argv) > 1 and sys.argv[1] not in JOBS:
        sys.meta_path.insert(0, _NoPandas())
    main()


class _NoPandas(MetaPathFinder):
    """Report that pandas is not installed. (None in sys.modules would not do: pyarrow takes it for the module.)"""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and end the process with its exit code."""
    _interrupt_on_signals()
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(EscapingFormatter())
    try:
        with naming_extras():
            code = cli.main(args=list(arguments) if arguments is not None else None, standalone_mode=False)
        sys.stdout.flush()
    except HushgramError as error:
        for number, line in enumerate(error.lines):
            print_line(line if number else f"error: {line}", err=True)
        sys.exit(error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        if isinstance(error, click.MissingParameter):  # which lists choices in lines of their own
            error = click.UsageError(" ".join(error.format_message().split()), error.ctx)
        error.message = printable(error.message)  # type: ignore[misc]  # click declares it final
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        print_line("stopped", err=True)
        sys.exit(128 + (stopped_by or [signal.SIGINT])[0])
    except BrokenPipeError:  # the reader of the output (head, less) has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)


def _interrupt_on_signals() -> None:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, once, so that a running job cleans up (`stopped_by`: which)."""
    stopped_by.clear()

    def stop(number: int, _: FrameType | None) -> None:
        for each in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)  # the cleanup is not interrupted
        stopped_by.append(number)
        raise KeyboardInterrupt

    with contextlib.suppress(ValueError):  # not the main thread: the process belongs to another program
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup it stays ignored
                signal.signal(number, stop)
