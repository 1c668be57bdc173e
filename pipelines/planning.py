"""What `hushgram plan` takes from a config, and the config that it writes. No record is read: file sizes alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from hushgram.errors import ParameterError
from hushgram.numbers import show
from hushgram.pipelines.config import load_config
from hushgram.pipelines.release_config import ReleaseConfig
from hushgram.planner import Population
from hushgram.sparse_histogram.params import ReleaseParams

__all__ = ["config_text", "population_of", "release_config"]

# Bytes of a record with a user and a URL, as seen in logs and exports; a guess that --records replaces.
_RECORD_BYTES = {".parquet": 15, ".pq": 15, ".csv": 60, ".tsv": 60, ".jsonl": 90, ".ndjson": 90, ".json": 90}
_LOG_BYTES = 200
_PACKED = {".gz": 8, ".gzip": 8, ".zst": 8, ".zstd": 8, ".bz2": 10, ".xz": 10}
# In URL logs a tenth of the records, or less, are the first of their key.
_RECORDS_A_KEY = 12


def release_config(path: str) -> ReleaseConfig:
    """The config of a release."""
    return load_config(path, (), ReleaseConfig)


def population_of(
    config: ReleaseConfig, records: int | None, keys: int | None, users: int | None
) -> Population:
    """The population that a config will meet: its stated sizes, or a guess from the sizes of its files."""
    if config.sizes is not None:
        records, keys = records or config.sizes.records, keys or config.sizes.keys
    if records is None:
        from hushgram.transforms.read_records import match_files

        found = match_files(config.input.path)
        records = max(round(sum(_records(file.path, file.size) for file in found)), 1)
    return Population.zipf(min(keys or max(records // _RECORDS_A_KEY, 1), records), records, users)


def _records(path: str, size: int) -> float:
    suffixes = Path(path).suffixes
    packed = _PACKED.get(suffixes[-1], 1) if suffixes else 1
    if packed > 1:
        suffixes = suffixes[:-1]
    return size * packed / _RECORD_BYTES.get(suffixes[-1] if suffixes else "", _LOG_BYTES)


def config_text(path: str | None, params: ReleaseParams) -> str:
    """The config at `path` with these parameters, or a new one to fill in."""
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
        "max_contributions": params.max_contributions,
        "max_per_key": params.max_per_key,
        "encoding": params.encoding,
        "noise": params.noise,
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _number(text: str) -> float | int:
    return int(text) if text.isdigit() else float(text)
