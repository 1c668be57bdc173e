"""What a release tells its operator, before (``--check``) and after. Exact figures are marked as such."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from hushgram.numbers import show
from hushgram.pipelines.progress import EXACT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hushgram.inputs import InputPlan
    from hushgram.pipelines.expectation import Expectation
    from hushgram.pipelines.release import ReleaseResult
    from hushgram.pipelines.release_config import ReleaseConfig
    from hushgram.sketch.reader import Sketch
    from hushgram.sparse_histogram.params import ReleaseParams

__all__ = [
    "check_lines",
    "closing_lines",
    "expectation_lines",
    "guarantee_words",
    "human_bytes",
    "input_lines",
    "listed_lines",
]


def guarantee_words(params: ReleaseParams, user: str | None) -> str:
    """The guarantee in words, from what was asked."""
    pure = params.delta == 0
    loss = f"epsilon = {show(params.epsilon)}" + ("" if pure else f", delta = {show(params.delta)}")
    unit = f"any one user (column {user!r})" if user else "any one record"
    factor = f"by a factor of at most e^{show(params.epsilon)}"
    rest = "" if pure else f", but for a probability of {show(params.delta)}"
    bound = (
        f" A user counts at most {params.max_contributions} in all and {params.max_per_key} for one key."
        if user
        else ""
    )
    return (
        f"{loss}: whether {unit} is in the data or not changes the probability of any sketch "
        f"{factor}{rest}.{bound}"
    )


def check_lines(config: ReleaseConfig) -> Iterator[tuple[str, str]]:
    """(name, text) of everything that follows from the config alone."""
    params = config.params()
    yield "release", config.release
    yield "guarantee", guarantee_words(params, config.input.user)
    if config.privacy.domain is not None:
        yield "budget", f"all of it for Laplace noise on the keys of {config.privacy.domain.public_keys}"
    else:
        yield from _mechanism_lines(params)
    where = f"dataset {config.dataset}" if config.dataset else "none: nothing tracks what this release spends"
    yield "ledger", where
    yield "output", config.output.path
    yield "workers", str(config.workers)


def _mechanism_lines(params: ReleaseParams) -> Iterator[tuple[str, str]]:
    split = params.split
    parts = {"size": split.size, "threshold": split.threshold, params.encoding: split.encoding}
    yield "budget", ", ".join(f"{name} {show(part)}" for name, part in parts.items() if part)
    resolved = params.as_text()
    for name in ("alpha", "columns", "bits_per_key", "domain_bits", "false_keys", "width"):
        if resolved[name] is not None and not (name in ("domain_bits", "false_keys") and params.delta != 0):
            yield name, str(resolved[name])


def input_lines(plan: InputPlan) -> Iterator[tuple[str, str]]:
    """(name, text) of the files that were found."""
    files = f"{len(plan.files):,} file{'s' if len(plan.files) != 1 else ''} ({', '.join(plan.formats)})"
    rows = f", {plan.rows:,} rows ({EXACT})" if plan.rows is not None else ""
    yield "input", f"{files}, {human_bytes(plan.bytes)}{rows}"
    yield "columns", ", ".join(f"{field.name} {field.type}" for field in plan.schema)


def expectation_lines(expected: Expectation) -> Iterator[tuple[str, str]]:
    """(name, text) of size and error."""
    plan = expected.plan
    yield "if", f"{expected.records:,} records of {expected.keys:,} keys"
    texts = ", without the texts of listed keys" if plan.kind.texts else ""
    bits = expected.size * 8 / expected.keys
    yield "size", f"about {human_bytes(expected.size)} ({bits:.1f} bits a key{texts})"
    yield (
        "listed",
        f"keys with a noisy count of at least {plan.threshold:,}; the others are answered from bits",
    )
    for what, error, width in expected.errors:
        yield "error", f"{what}: root mean square {error:,.1f}, 95 % intervals about {width:,.0f} wide"


def listed_lines(params: ReleaseParams, keys: int) -> Iterator[tuple[str, str]]:
    """(name, text) of a release over a public list."""
    from hushgram.laplace_mechanism import LaplaceParams, max_error

    noise = LaplaceParams(params.epsilon, max_contributions=params.max_contributions)
    yield "listed", f"{keys:,} public keys, each with Laplace noise of scale {float(noise.scale):g}"
    yield "error", f"with probability 95 % no count is off by more than {max_error(keys, noise):,}"


def closing_lines(config: ReleaseConfig, sketch: Sketch, result: ReleaseResult) -> Iterator[tuple[str, str]]:
    """(name, text) after a release."""
    exact = result.exact
    if "rows" in exact:
        speed = f" in {result.seconds:,.1f} s" if result.seconds else ""
        yield "read", f"{exact['rows']:,} records{speed} ({EXACT})"
    if exact.get("bad"):
        reasons = {name[5:]: count for name, count in exact.items() if name.startswith("bad: ")}
        told = "; ".join(f"{reason}: {count:,}" for reason, count in sorted(reasons.items()))
        kept = f"; see {config.input.bad_records}" if config.input.bad_records else ""
        yield "set aside", f"{exact['bad']:,} bad records ({EXACT}): {told}{kept}"
    yield "guarantee", sketch.guarantee.sentence()
    yield "sketch", f"{config.output.path}, {human_bytes(sketch.size)}"
    sizes = sketch.plan.sizes
    if sketch.plan.space is None:
        yield from listed_lines(sketch.plan.params, sketch.plan.keys)
    else:
        kind = "released" if sizes.scale else "as stated in the config"
        yield "about", f"{sizes.records:,} records of {sizes.keys:,} keys ({kind}: may be published)"
    path = shlex.quote(config.output.path)
    yield "next", f"hushgram query {path} KEY"
    yield "", f"hushgram heavy {path}"
    yield "", f"hushgram inspect {path}"


def human_bytes(size: int) -> str:
    """A number of bytes as people say it."""
    value = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
