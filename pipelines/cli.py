"""The `hushgram` command: each subcommand is imported only when it runs, so that lookups start fast.

A user's mistake ends in one line on standard error and the exit code of its class; anything else is a bug, and says so
with its traceback.
"""

from __future__ import annotations

import contextlib
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
from hushgram.errors import HushgramError
from hushgram.names import printable
from hushgram.pipelines.commands.examples import with_examples
from hushgram.pipelines.commands.job import job_command
from hushgram.pipelines.console import EscapingFormatter, say
from hushgram.pipelines.jobs import JOBS

__all__ = ["cli", "main", "run"]

# Beside the jobs: name → (module, one line for `hushgram --help`)
_COMMANDS = {
    "query": ("hushgram.pipelines.commands.query", "Look keys up in a sketch."),
    "total": ("hushgram.pipelines.commands.total", "Sum over many keys of a sketch, with an interval."),
    "heavy": ("hushgram.pipelines.commands.heavy", "List the heavy keys of a sketch."),
    "inspect": ("hushgram.pipelines.commands.inspect", "What a sketch is: guarantee, sizes, parameters."),
    "report": ("hushgram.pipelines.commands.report", "One page about a sketch, for people."),
    "explore": ("hushgram.pipelines.commands.explore", "Ask sketches in a browser, on this machine."),
    "verify": ("hushgram.pipelines.commands.verify", "Check every byte of a sketch."),
    "ledger": ("hushgram.pipelines.commands.ledger", "The privacy budget across releases."),
    "calculate": (
        "hushgram.pipelines.commands.calculate",
        "Bounds of the theory, each with its formula, theorem and exact value.",
    ),
    "plan": ("hushgram.pipelines.commands.plan", "Choose parameters before touching data."),
    "example": ("hushgram.pipelines.commands.example", "Make up data for the ready configs."),
    "doctor": ("hushgram.pipelines.commands.doctor", "What works on this machine, and what to do."),
    "demo": (
        "hushgram.pipelines.commands.demo",
        "Generate page views, release them, compare with the truth.",
    ),
}
# Jobs whose command does more than run them.
_OWN_COMMANDS = {
    "answer": "hushgram.pipelines.commands.answer",
    "randomized-response": "hushgram.pipelines.commands.randomized_response",
}


class LazyGroup(click.Group):
    """A group whose commands are modules, loaded by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*JOBS, *_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in JOBS and cmd_name not in _OWN_COMMANDS:
            return with_examples(job_command(cmd_name), cmd_name)
        if cmd_name not in self.list_commands(ctx):
            return None
        command = import_module(_OWN_COMMANDS.get(cmd_name) or _COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return with_examples(command, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table above: help must not import Beam either."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in {**JOBS, **_COMMANDS}.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hushgram")
def cli() -> None:
    """Differentially private histograms over huge key domains, and thresholded query streams."""


def run() -> None:
    """The command as a process of its own: a lookup does not wait for what it does not need.

    pyarrow loads pandas, where it is installed, on its first conversion: a third of a second for nothing.
    """
    if len(sys.argv) > 1 and sys.argv[1] not in JOBS:
        sys.meta_path.insert(0, _NoPandas())
    main()


class _NoPandas(MetaPathFinder):
    """Says that pandas is not there."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: runs a command and ends the process with its exit code."""
    signals = _end_as_by_ctrl_c()
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(EscapingFormatter())
    try:
        code = cli.main(args=list(arguments) if arguments is not None else None, standalone_mode=False)
        sys.stdout.flush()
    except HushgramError as error:
        for number, line in enumerate(error.lines):
            say(line if number else f"error: {line}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.message = printable(error.message)  # type: ignore[misc]  # click declares it final
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        say("stopped", err=True)
        sys.exit(128 + (signals or [signal.SIGINT])[0])
    except BrokenPipeError:  # the reader of our output (head, less) has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)


def _end_as_by_ctrl_c() -> list[int]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt, once, so that whatever is under way cleans up behind it.

    Returns a list that will hold the signal.
    """
    seen: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        for each in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)  # nobody interrupts the cleaning up
        seen.append(number)
        raise KeyboardInterrupt

    with contextlib.suppress(ValueError):  # not the main thread: somebody else's process
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup it stays ignored
                signal.signal(number, stop)
    return seen
