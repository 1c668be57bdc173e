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
    """Suggest max_contributions, max_per_key and max_value for the release of CONFIG, from private quantiles.

    Shows how many keys, records per key and records (or values) users have, with intervals. CONFIG is that of a
    release; bounds in it have no effect, and --epsilon takes the place of its epsilon.
    """
    asked = () if epsilon is None else (f"privacy.epsilon={epsilon}",)
    start("bounds", overrides=("privacy.epsilon=0.05", *overrides, *asked), **options)
