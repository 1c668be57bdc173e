"""What `hushgram plan` and ``--check`` say of a setting, and the config that a plan writes.

No record is read: sizes of files alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgram.errors import ParameterError
from hushgram.noise.laws import LaplaceLaw
from hushgram.numbers import counted, show
from hushgram.pipelines.terminal import EXACT, Private, file_size
from hushgram.planner import NamedKeys, Population, Prediction, bound_of, is_simulated, predict, settings
from hushgram.planning import plan_settings, rows_of
from hushgram.publishing import run_directory
from hushgram.sparse_histogram.params import ReleaseParams

if TYPE_CHECKING:
    from hushgram.pipelines.jobs.metrics import MetricsConfig
    from hushgram.pipelines.jobs.release import ReleaseConfig, SizesConfig

__all__ = [
    "config_text", "expected_lines", "expected_names", "metric_line", "plan_settings", "population_of",
    "prediction_lines", "release_config", "rows_of",
]  # fmt: skip

# Bytes of a record with a user and a URL, as seen in logs and exports; a guess that --records replaces.
_RECORD_BYTES = {".parquet": 15, ".pq": 15, ".csv": 60, ".tsv": 60, ".jsonl": 90, ".ndjson": 90, ".json": 90}
_LOG_BYTES = 200
_PACKED = {".gz": 8, ".gzip": 8, ".zst": 8, ".zstd": 8, ".bz2": 10, ".xz": 10}
# In URL logs a tenth of the records, or less, are the first of their key.
_RECORDS_A_KEY = 12
# Of what selection by weights has together with counts and buckets, its shares that a plan shows beside the one that
# is asked for.
_SELECTION_SHARES = tuple(Fraction(n, 8) for n in (2, 3, 4, 5))
# Of what selection leaves, that of counts, beside buckets.
_COUNT_SHARES = (Fraction(2, 5), Fraction(4, 5))
# Another encoding or noise is mentioned from this gain on.
_MUCH_SHARPER = 0.8
# An earlier release that knows its number of keys less well than this is said to.
_UNSURE = 0.05
_SHOWN_AT = 100  # the count at which two choices are compared


def release_config(path: str) -> ReleaseConfig:
    """Return the config of a release."""
    from hushgram.pipelines.config.models import load_config
    from hushgram.pipelines.jobs.release import ReleaseConfig

    return load_config(path, (), ReleaseConfig)


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
            "no key reaches it: of single keys nothing of this release can be used. Ask for totals (optimize: totals),"
            " raise epsilon or lower max_contributions",
        )
    else:
        yield "detection limit", _limit(found, per, what)


def _size_lines(params: ReleaseParams, keys: int) -> Iterator[tuple[str, str]]:
    """Advise to state sizes where the noise on the number of keys is a large part of it."""
    if params.split.size and not params.choose_contributions:
        noise = LaplaceLaw(float(2 * params.max_contributions / params.split.size)).radius(0.95)
        if noise > keys / 4:
            yield (
                "sizes",
                f"the number of keys is released to ± {noise:,}, which is much of about {keys:,}: state sizes (records"
                " and keys, from public knowledge; a guess will do), and nothing is spent on them",
            )


def _heavy_line(found: Prediction, per: float, what: str) -> tuple[str, str]:
    others = "listed by fingerprint where that fits the room, and " if found.params.lists_cells else ""
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
    if found.params.weighted:
        rounds = "one round" if named.rounds == 1 else "two rounds"
        if found.params.choose_rounds:
            rounds += " (chosen when users by keys are counted, if that is as assumed here)"
        several = "" if named.max_keys == 1 else (
            f", about {named.threshold * named.max_keys**0.5:,.0f} if they have {named.max_keys} keys each"
            " (users needed grow with the root of keys per user)"
        )  # fmt: skip
        yield (
            "key selection",
            f"by weights in {rounds}: a key needs about {named.threshold:,.0f} users if they have no other key"
            f"{several}",
        )
    else:
        yield "key selection", f"keys with a noisy {what} of {found.threshold * per:,.10g} or more"
    if found.params.weighted:
        yield (
            "named keys",
            f"about {named.number:,.0f} of {population.keys:,}, if {named.assumed}. This can be off by a third: it is"
            " not known which users share which keys",
        )
    else:
        false = f", of which {_about(found.false_keys)} false" if found.params.delta == 0 else ""
        kind = "listed keys" if found.params.delta == 0 else "named keys"
        yield kind, f"about {named.number:,.0f} of {population.keys:,}{false}"
    yield "noise", f"standard deviation {named.noise * per:,.4g} on the {what} of each of them"
    if named.limit:
        yield (
            "ceiling",
            f"no method of this epsilon and delta names a key of fewer than {named.limit:,.1f} users with probability"
            f" 1/2 or more; at most about {named.most:,.0f} keys could be named by any",
        )
    if found.params.weighted:
        yield from _choice_lines(found, population, per)
    if not found.params.encodes:
        yield "other keys", "encoding none: nothing is released of keys that are not listed"
    else:
        yield "other keys", f"answered by the encoding {found.params.encoding}, without a name"


def _choice_lines(found: Prediction, population: Population, per: float) -> Iterator[tuple[str, str]]:
    """Yield what this division of epsilon gives, and what others, and the other number of rounds, would."""
    params, named = found.params, found.named
    assert named is not None
    assert named.split is not None
    own, rounds = named.split.selection / params.epsilon, named.rounds
    whole = params.metric_shares.epsilon / params.epsilon
    counted = params.metric_shares.counted
    yield "choices", f"{_division(named, params)} (this one): {expected_names(named, per)}"
    tried: list[tuple[Fraction, int, Fraction | None]]
    tried = [(whole * share, rounds, None) for share in _SELECTION_SHARES if whole * share != own]
    if counted != params.split.counts:  # an encoding has the same noise
        tried += [(own, rounds, share) for share in _COUNT_SHARES]
    if params.max_keys_selection > 1:
        tried.append((own, 3 - rounds, None))
    for share, number, counts in tried:
        changed = params.with_selection(share, number, counts)
        other = predict(changed, population, counts=(), set_sizes=()).named
        assert other is not None
        what = _division(other, params) if number == rounds else f"selection_rounds {number}"
        yield "", f"{what}: {expected_names(other, per)}"


def _division(named: NamedKeys, params: ReleaseParams) -> str:
    assert named.split is not None
    names = ("selection", "counts", *(("encoding",) if params.encodes else ()))
    shares = {name: float(getattr(named.split, name) / params.epsilon) for name in names}
    words = {"encoding": params.encoding}
    return "split " + ", ".join(f"{words.get(name, name)} {share:.3g}" for name, share in shares.items())


def expected_names(named: NamedKeys, per: float) -> str:
    """Return how many keys are expected to be named, and the errors of their counts and of all others."""
    rest = "" if named.others is None else f", about {named.others * per:,.4g} on other keys"
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
    per, what = float(params.per_count), "count" if config.input.value is None else "sum"
    if config.input.value is not None and config.sizes is None:
        population = Population.zipf(population.keys, max(population.records * params.max_per_key // 4, 1))
        how = f"each value taken as a quarter of max_value; {how}"
    params = params.of_counts()
    with run_directory() as folder:
        found = predict(params, population, path=Path(folder, "prediction"))
        others = [
            predict(other, population, path=Path(folder, f"other-{i}"))
            for i, other in enumerate(_others(params))
        ]
    if config.input.value is None:
        yield "if", f"{counted(population.records, 'record')} of {counted(population.keys, 'key')} ({how})"
    else:
        yield (
            "if",
            f"a sum of {population.records * per:,.10g} over {counted(population.keys, 'key')} ({how})",
        )
    yield from prediction_lines(found, population, per, what)
    for other in others:
        if (other.params.encoding, other.params.noise) == (params.encoding, params.noise):
            yield "optimize", _optimize_line(found, other, per, what)
    best = min(others, key=lambda other: other.score, default=found)
    if best.score < _MUCH_SHARPER * found.score and best.detection_limit is not None:
        yield (
            "more accurate",
            f"encoding {best.params.encoding} with {best.params.noise} noise"
            f"{f' and optimize {best.params.optimize}' if best.params.divides else ''} has a detection limit of"
            f" {_limit(best, per, what)}",
        )


def metric_line(config: MetricsConfig, params: ReleaseParams, rows: int | None) -> str:
    """Return what to expect of one of several metrics; empty where a release would have to be simulated for that.

    It is `Private`, as in `expected_lines`.

    Args:
        config: The config of all metrics.
        params: The parameters of this one.
        rows: The number of rows of the input, where its files state it.
    """
    if is_simulated(params):
        return ""
    population = population_of(config, params.expected_records or rows, params.expected_keys, None)
    if params.granularity is not None and params.expected_records is None:
        population = Population.zipf(population.keys, max(population.records * params.max_per_key // 4, 1))
    named = predict(params.of_counts(), population, counts=(), set_sizes=()).named
    assert named is not None
    many = f"if there are {population.keys:,} keys and {named.assumed}" if named.assumed else ""
    text = ", ".join(filter(None, (expected_names(named, float(params.per_count)), many)))
    return text if params.expected_records else Private(text)


def _others(params: ReleaseParams) -> list[ReleaseParams]:
    """Describe the same privacy by the other encodings and noises."""
    return [
        other
        for other in settings(params, (bound_of(params),), (params.epsilon,))
        if (other.encoding, other.noise, other.optimize) != (params.encoding, params.noise, params.optimize)
    ]


def _optimize_line(found: Prediction, other: Prediction, per: float, what: str) -> str:
    """Return what each of the two choices costs: at a count of 100, and of a total over many keys."""

    def words(one: Prediction) -> str:
        at = next((a for a in one.at if a.count == _SHOWN_AT), one.at[0])
        total = (
            f", totals over {one.totals[-1].keys:,} random keys {one.totals[-1].error:.1%}"
            if one.totals
            else ""
        )
        return f"{one.params.optimize} is off by {at.error * per:,.3g} at a {what} of {at.count * per:,.10g}{total}"

    return f"{words(found)}; {words(other)}"


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
        "encoding": params.encoding,
        "noise": params.noise,
    }
    if params.divides:
        privacy["optimize"] = params.optimize
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _number(text: str) -> float | int:
    return int(text) if text.isdigit() else float(text)
