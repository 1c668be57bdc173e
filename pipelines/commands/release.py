"""`hushgram release`: from a config to a sketch, or with --check to what it would be."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from hushgram.errors import HushgramError, OutputError
from hushgram.noise.entropy import digest
from hushgram.pipelines.logs import JobLog, log_options

if TYPE_CHECKING:
    from hushgram.pipelines.release_config import ReleaseConfig

__all__ = ["check", "command", "execute"]

# Sizes for which --check shows what to expect where the config does not state them.
_EXAMPLES = ((1_000_000, 100_000), (100_000_000, 5_000_000))


@click.command("release", context_settings={"ignore_unknown_options": False})
@click.argument("config", type=click.Path())
@click.argument("beam_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- BEAM_OPTIONS]...")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Override a field, such as privacy.epsilon=0.5.",
)
@click.option(
    "--date", metavar="DATE", help="Date for {date} in the config: YYYY-MM-DD, today or yesterday (UTC)."
)
@click.option(
    "--check", "only_check", is_flag=True, help="Check everything, show what to expect, and run nothing."
)
@click.option("--quiet", is_flag=True, help="No progress and no summary.")
@log_options
def command(
    config: str,
    beam_options: tuple[str, ...],
    overrides: tuple[str, ...],
    date: str | None,
    only_check: bool,
    quiet: bool,
    log: str,
    metrics: str | None,
) -> None:
    """Release a histogram as a private sketch, as CONFIG says.

    Options after -- go to Beam: hushgram release urls.yaml -- --runner=FlinkRunner --flink_master=host:8081
    """
    from hushgram.pipelines.config import load_config
    from hushgram.pipelines.import_beam import import_beam
    from hushgram.pipelines.release_config import ReleaseConfig

    loaded = load_config(config, overrides, ReleaseConfig, date)
    import_beam()
    if only_check:
        check(loaded, beam_options)
    else:
        execute(loaded, beam_options, quiet=quiet or log == "json", log=log, metrics=metrics)


def check(config: ReleaseConfig, beam_options: Iterable[str] = ()) -> None:
    """Prints the guarantee, the parameters and what to expect; checks budget, output and input."""
    from hushgram.pipelines import summary
    from hushgram.pipelines.expectation import expect
    from hushgram.pipelines.runners import pipeline_options
    from hushgram.pipelines.source import plan_config

    params = config.params()
    pipeline_options(list(beam_options), config.workers)
    _print(summary.check_lines(config))
    released = _check_budget(config)
    if not released and os.path.lexists(config.output.path):
        raise OutputError(
            f"output.path {config.output.path} exists already; remove it or choose another name"
        )
    click.echo("")
    if config.privacy.domain is not None:
        from hushgram.pipelines.public_list import read_list

        _print(summary.listed_lines(params, len(read_list(config.privacy.domain.public_keys))))
        click.echo("")
    else:
        for records, keys in ((config.sizes.records, config.sizes.keys),) if config.sizes else _EXAMPLES:
            _print(summary.expectation_lines(expect(params, records, keys)))
            click.echo("")
    _print(summary.input_lines(plan_config(config.input)))
    click.echo("ok: nothing was run and no budget was spent")


def _check_budget(config: ReleaseConfig) -> bool:
    """Whether the ledger has this release already; `BudgetExceeded` where it would not fit. Charges nothing."""
    if config.dataset is None:
        return False
    from hushgram.ledger import Ledger

    with Ledger(config.ledger) as ledger:
        found = ledger.find(config.dataset, config.release)
        if found is not None and found.charged:
            _print(
                [("budget left", f"{config.release} is {found.status} in {ledger.where}: no further charge")]
            )
            return True
        ledger.check(config.dataset, _events(config), config.user_partition)
        _print([("budget left", f"enough for this release, in {ledger.where}")])
    return False


def execute(
    config: ReleaseConfig,
    beam_options: Iterable[str] = (),
    *,
    quiet: bool = False,
    log: str = "text",
    metrics: str | None = None,
) -> Any:
    """Runs the release: budget is reserved, inputs are checked, the job runs, the result is published.

    Returns the result of the job, or None where this release had been published before.
    """
    from hushgram.pipelines.budget import open_budget
    from hushgram.pipelines.public_list import read_list
    from hushgram.pipelines.release import key_from_environment, run_release
    from hushgram.pipelines.runners import pipeline_options
    from hushgram.pipelines.source import plan_config

    params = config.params()
    with JobLog("release", log, metrics, dataset=config.dataset, release=config.release) as out:
        options = pipeline_options(list(beam_options), config.workers)
        listed = None if config.privacy.domain is None else read_list(config.privacy.domain.public_keys)
        budget = open_budget(
            job="release",
            events=_events(config),
            target=config.output.path,
            dataset=config.dataset,
            ledger=config.ledger,
            release=config.release,
            parameters=_parameters(config, listed),
            inputs=config.input.path,
            users=config.user_partition,
        )
        with budget as run:
            # The first look at data: the budget is reserved by now, and given back if this fails.
            plan = None if run.done else plan_config(config.input)
            if not quiet or log == "json":
                out.notes(run.notes)
            if plan is None:
                out.result(summary=run.summary)
                return None
            result = run_release(
                params,
                plan,
                public_keys=listed,
                user=config.input.user,
                key=config.input.key,
                path=run.output,
                name=config.release,
                release_key=run.key if run.tracked else key_from_environment() or run.key,
                options=options,
                shards=config.shards,
                bad_records=config.input.bad_records,
                quiet=quiet,
            )
            run.publish()
            out.result(rows=result.exact.get("rows"), summary=run.summary)
        if not quiet:
            _close(config, result)
    return result


def _events(config: ReleaseConfig) -> list[Any]:
    """What the release spends, for the ledger."""
    from hushgram.accounting import Event
    from hushgram.pipelines.budget import release_events

    if config.privacy.domain is not None:
        return [Event("laplace", config.privacy.epsilon)]
    params = config.params()
    return release_events(params.split, params.delta)


def _parameters(config: ReleaseConfig, listed: list[bytes] | None) -> dict[str, Any]:
    """Every public choice that can change the sketch, for the ledger."""
    return {
        "privacy": config.params().as_text(),
        "input": config.input.model_dump(exclude={"path", "bad_records"}),
        "public_keys": None if listed is None else digest(*listed).hex(),
    }


def _close(config: ReleaseConfig, result: Any) -> None:
    from hushgram.pipelines import summary
    from hushgram.sketch.reader import Sketch

    if "://" in config.output.path:  # a remote sketch is copied before it is read
        click.echo(f"sketch  {config.output.path}")
        return
    try:
        _print(summary.closing_lines(config, Sketch.open(config.output.path), result))
    except HushgramError as problem:
        click.echo(f"warning: the sketch was written but cannot be opened here: {problem}", err=True)


def _print(lines: Iterable[tuple[str, str]]) -> None:
    import shutil
    import textwrap

    rows = list(lines)
    name_width = max([len(name) for name, _ in rows], default=0) + 2
    width = max(shutil.get_terminal_size((110, 20)).columns, 60)
    for name, text in rows:
        body = textwrap.wrap(text, width - name_width, break_long_words=False, break_on_hyphens=False) or [""]
        for number, part in enumerate(body):
            click.echo(f"{(name if number == 0 else '').ljust(name_width)}{part}".rstrip())
