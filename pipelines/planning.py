"""What `hushgram plan` and ``--check`` say of a setting, and the config that a plan writes.

No record is read: sizes of files alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgram.errors import ParameterError
from hushgram.noise.laws import LaplaceLaw
from hushgram.numbers import counted, show
from hushgram.pipelines.terminal import EXACT, Private, file_size
from hushgram.planner import NamedKeys, Population, Prediction, bound_of, predict
from hushgram.planning import plan_settings, rows_of
from hushgram.publishing import run_directory
from hushgram.sparse_histogram.params import Params, ReleaseParams, Threshold

if TYPE_CHECKING:
    from hushgram.pipelines.jobs.metrics import MetricsConfig
    from hushgram.pipelines.jobs.release import ReleaseConfig, SizesConfig

__all__ = [
    "base_of", "config_text", "expected_lines", "expected_names", "metric_line", "plan_settings", "population_of",
    "prediction_lines", "release_config", "rows_of",
]  # fmt: skip

# Bytes of a record with a user and a URL, as seen in logs and exports; a guess that --records replaces.
_RECORD_BYTES = {".parquet": 15, ".pq": 15, ".csv": 60, ".tsv": 60, ".jsonl": 90, ".ndjson": 90, ".json": 90}
_LOG_BYTES = 200
_PACKED = {".gz": 8, ".gzip": 8, ".zst": 8, ".zstd": 8, ".bz2": 10, ".xz": 10}
# In URL logs a tenth of the records, or less, are the first of their key.
_RECORDS_A_KEY = 12
# An earlier release that knows its number of keys less well than this is said to.
_UNSURE = 0.05


def release_config(path: str) -> ReleaseConfig:
    """Return the config of a release."""
    from hushgram.pipelines.config.models import load_config
    from hushgram.pipelines.jobs.release import ReleaseConfig

    return load_config(path, (), ReleaseConfig)


def base_of(config: ReleaseConfig, params: ReleaseParams) -> ReleaseParams:
    """Return the parameters to predict with: where the config names no users, keys are not selected by weights."""
    if config.input.user is not None or params.delta == 0 or params.preset is not None:
        return params
    return params.changed(selection=Threshold())


def population_of(
    config: ReleaseConfig | MetricsConfig, records: int | None, keys: int | None, users: int | None
) -> Population:
    """Return the population to expect for a config: its stated sizes, or a guess from the sizes of its files."""
    sizes: SizesConfig | None = getattr(config, "sizes", None)
    if sizes is not None:
        records, keys = records or sizes.records, keys or sizes.keys
    if records is None:
        from hushgram.pipelines.run.job_runner import import_beam

        import_beam()  # without its warnings
        from hushgram.transforms.files import match_files

        found = match_files(config.input.path)
        records = max(round(sum(_records(file.path, file.size) for file in found)), 1)
    return Population.zipf(min(keys or max(records // _RECORDS_A_KEY, 1), records), records, users)


def prediction_lines(
    found: Prediction, population: Population, per: float = 1.0, what: str = "count"
) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of all that is predicted for one setting; a count stands for `per` and is called `what`."""
    yield "size", f"about {file_size(found.size)} ({found.size * 8 / population.keys:.1f} bits per key)"
    if found.kept < 1.0:
        yield "kept", f"about {found.kept:.0%} of the records; contribution bounding removes the rest"
    if found.named is not None:
        yield from _named_lines(found, found.named, population, per, what)
    else:
        yield _heavy_line(found, per, what)
    error, width = (",.1f", ",.0f") if per >= 1 else (",.3g", ",.3g")
    for at in found.at:
        if at.count > population.records:  # which no key can have
            continue
        yield (
            "error",
            f"at a {what} of {at.count * per:,.10g}: {at.error * per:{error}} (root mean square), intervals"
            f" {at.width * per:{width}} wide",
        )
    for total in found.totals:
        yield (
            "totals",
            f"over {total.keys:,} random keys: two of three are off by less than {total.error:.1%}, intervals are"
            f" {total.width:.1%} wide",
        )
    if population.unsure >= 1.0:
        yield (
            "uncertain",
            "the earlier release is too small to show its number of keys: all of this is a guess",
        )
    elif population.unsure >= _UNSURE:
        yield (
            "uncertain",
            f"the earlier release shows its number of keys to ± {population.unsure:.0%}; errors of totals, and"
            " at counts that its noise hides, can be off by two to three times as much",
        )
    yield from _size_lines(found.params, population.keys)
    if found.detection_limit is None:
        yield (
            "detection limit",
            "no key reaches it: of single keys nothing of this release can be used. Ask for totals, raise epsilon or"
            " lower max_contributions",
        )
    else:
        yield "detection limit", _limit(found, per, what)


def _size_lines(params: ReleaseParams, keys: int) -> Iterator[tuple[str, str]]:
    """Advise to state sizes where the noise on the number of keys is a large part of it."""
    size = params.resolve().split.size
    if size and params.max_contributions is not None:
        noise = LaplaceLaw(float(2 * params.max_contributions / size)).radius(0.95)
        if noise > keys / 4:
            yield (
                "sizes",
                f"the number of keys is released to ± {noise:,}, which is much of about {keys:,}: state sizes (records"
                " and keys, from public knowledge; a guess will do), and nothing is spent on them",
            )


def _heavy_line(found: Prediction, per: float, what: str) -> tuple[str, str]:
    others = "listed by fingerprint where that fits the room, and " if found.params.delta else ""
    return (
        "heavy keys",
        f"keys with a noisy {what} of {found.threshold * per:,.10g} or more; {_about(found.false_keys)} of them are"
        f" expected to be false, and {_about(found.missed_keys)} keys with such a {what} to be missed; all others are"
        f" {others}answered by the encoding",
    )


def _named_lines(
    found: Prediction, named: NamedKeys, population: Population, per: float, what: str
) -> Iterator[tuple[str, str]]:
    """Yield what is predicted of named keys; no release was simulated for it."""
    rounds = counted(named.rounds, "round")
    if found.params.resolve().choose_rounds:
        rounds += " (a run chooses the number from the histogram over users)"
    several = "" if named.max_keys == 1 else (
        f", about {named.threshold * named.max_keys**0.5:,.0f} if they have {named.max_keys} keys each"
    )  # fmt: skip
    yield (
        "key selection",
        f"by weights in {rounds}: a key needs about {named.threshold:,.0f} users if they have no other key"
        f"{several}",
    )
    yield (
        "named keys",
        f"about {named.number:,.0f} of {population.keys:,}, if {named.assumed}. This can be off by a third: it is"
        " not known which users share which keys",
    )
    yield "noise", f"standard deviation {named.noise * per:,.4g} on the {what} of each of them"
    yield (
        "ceiling",
        f"no method of this epsilon and delta names a key of fewer than {named.limit:,.1f} users with probability"
        f" 1/2 or more; at most about {named.most:,.0f} keys could be named by any",
    )
    yield "other keys", f"answered without a name, with an error of about {named.others * per:,.4g}"


def expected_names(named: NamedKeys, per: float) -> str:
    """Return how many keys are expected to be named, and the errors of their counts and of all others."""
    rest = f", about {named.others * per:,.4g} on other keys"
    return f"about {named.number:,.0f} named keys, standard deviation {named.noise * per:,.4g} on each{rest}"


def _limit(found: Prediction, per: float, what: str) -> str:
    assert found.detection_limit is not None
    limit, keys = found.detection_limit * per, found.keys_above_limit
    reach = "key reaches" if keys == 1 else "keys reach"
    return f"a {what} of about {limit:,.10g}, which about {keys:,} {reach}"


def _about(number: float) -> str:
    return f"about {number:,.0f}" if number >= 0.5 else "no"


def expected_lines(
    config: ReleaseConfig, params: ReleaseParams, rows: int | None = None
) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of what to expect of a release of this config, for ``--check``.

    Where the config states no sizes, all of it depends on the size of the input, and is `Private`.

    Args:
        config: The config of the release.
        params: Its parameters.
        rows: The number of rows of the input, where its files state it.
    """
    lines = _expected_lines(config, params, rows)
    yield from lines if config.sizes is not None else ((name, Private(text)) for name, text in lines)


def _expected_lines(
    config: ReleaseConfig, params: ReleaseParams, rows: int | None
) -> Iterator[tuple[str, str]]:
    if config.sizes is not None:
        rows, how = None, "as stated"
    elif rows is not None:
        how = f"rows as the files state them, {EXACT}, and keys guessed; see hushgram plan"
    else:
        how = "guessed from the sizes of the files; see hushgram plan"
    population = population_of(config, rows, None, None)
    per, what = float(params.granularity or 1), "count" if config.input.value is None else "sum"
    if config.input.value is not None and config.sizes is None:
        population = Population.zipf(population.keys, max(population.records * params.max_per_key // 4, 1))
        how = f"each value taken as a quarter of max_value; {how}"
    params = base_of(config, params).changed(granularity=None)
    with run_directory() as folder:
        found = predict(params, population, path=Path(folder, "prediction"))
    if config.input.value is None:
        yield "if", f"{counted(population.records, 'record')} of {counted(population.keys, 'key')} ({how})"
    else:
        yield (
            "if",
            f"a sum of {population.records * per:,.10g} over {counted(population.keys, 'key')} ({how})",
        )
    yield from prediction_lines(found, population, per, what)


def metric_line(config: MetricsConfig, params: Params, rows: int | None) -> str:
    """Return what to expect of one of several metrics; empty where a release would have to be simulated for that.

    It is `Private`, as in `expected_lines`.

    Args:
        config: The config of all metrics.
        params: The parameters of this one.
        rows: The number of rows of the input, where its files state it.
    """
    if not params.weighted:
        return ""
    sizes: tuple[int | None, int | None] = params.sizes or (None, None)
    population = population_of(config, sizes[0] or rows, sizes[1], None)
    if params.granularity is not None and params.sizes is None:
        population = Population.zipf(population.keys, max(population.records * params.max_per_key // 4, 1))
    stated = params.stated.changed(granularity=None)
    named = predict(stated, population, counts=(), set_sizes=(), shared=params.shared).named
    assert named is not None
    many = f"if there are {population.keys:,} keys and {named.assumed}" if named.assumed else ""
    text = ", ".join(filter(None, (expected_names(named, float(params.granularity or 1)), many)))
    return text if params.sizes else Private(text)


def _records(path: str, size: int) -> float:
    suffixes = Path(path).suffixes
    packed = _PACKED.get(suffixes[-1], 1) if suffixes else 1
    if packed > 1:
        suffixes = suffixes[:-1]
    return size * packed / _RECORD_BYTES.get(suffixes[-1] if suffixes else "", _LOG_BYTES)


def config_text(path: str | None, params: ReleaseParams) -> str:
    """Return the config at `path` with these parameters, or a new one to fill in."""
    import yaml

    document: dict[str, Any] = {
        "release": "urls",
        "input": {"path": "data/*.parquet", "user": "user_id", "key": "url"},
        "output": {"path": "out/urls.sketch"},
    }
    if path is not None:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    privacy = document.setdefault("privacy", {})
    if not isinstance(privacy, dict):
        raise ParameterError(f"{path}: privacy must be a group of fields")
    privacy |= {
        "epsilon": _number(show(params.epsilon)),
        "delta": _number(show(params.delta)),
        "max_contributions": bound_of(params),
        "max_per_key": params.max_per_key,
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _number(text: str) -> float | int:
    return int(text) if text.isdigit() else float(text)
