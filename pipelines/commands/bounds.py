"""`hushgram bounds`: private quantiles over users, for the bounds of a release that is yet to come."""

from __future__ import annotations

from typing import Any

import click

from hushgram.pipelines.commands.job import JobCommand, job_options, start

__all__ = ["command"]


@click.command("bounds", cls=JobCommand)
@job_options
@click.option("--epsilon", help="Privacy loss of this run, charged to the ledger. Default: 0.05.")
def command(epsilon: str | None, overrides: tuple[str, ...], **options: Any) -> None:
    """Suggest max_contributions, max_per_key and max_value for a release, from private quantiles over users.

    Shows how many keys, records per key, and records in total (or sums of values) users have, with intervals. CONFIG is
    the config of the release. Bounds in it have no effect, and --epsilon replaces its epsilon.
    """
    asked = () if epsilon is None else (f"privacy.epsilon={epsilon}",)
    start("bounds", overrides=("privacy.epsilon=0.05", *overrides, *asked), **options)
