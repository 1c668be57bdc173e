"""Writes the golden sketches: `python -m tests.golden.make`. Existing ones are not written again: delete them first.

A golden sketch pins the format: the code must write it to the byte, read it and give the answers recorded beside it.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

import hushgram as hg
from hushgram.sketch import manifest

KEY = hg.ReleaseKey(bytes(range(32)))
WORDS = [f"/page/{i}" for i in range(60)]
USERS = [f"user{(i * 7919) % 40}" for i in range(1200)]
KEYS = [WORDS[(i * i) % 60] for i in range(1200)]
ASKED = [*WORDS[:8], "/never"]
#: What most of them state of the sizes.
SIZES = {"records": 320, "keys": 60}
SETTINGS = {
    "pure": hg.ReleaseParams(epsilon="4", max_contributions=8, max_per_key=2, sizes=SIZES),
    "text": hg.ReleaseParams(
        epsilon="16", delta="1e-2", max_contributions=8, max_per_key=2, sizes=SIZES, selection=hg.Threshold()
    ),
    "text-chain": hg.ReleaseParams(
        epsilon="4", delta="0.3", max_contributions=2, sizes=SIZES, selection=hg.Threshold()
    ),
    "sized": hg.ReleaseParams(epsilon="8", max_contributions=2, bits_per_key=1),
    "weighted": hg.ReleaseParams(
        epsilon="8", delta="1e-2", max_contributions=4, selection=hg.Weights(max_keys=8, rounds=2)
    ),
    "weighted-once": hg.ReleaseParams(
        epsilon="8", delta="1e-2", max_contributions=4, selection=hg.Weights(max_keys=8, rounds=1)
    ),
    "weighted-auto": hg.ReleaseParams(
        epsilon="16", delta="1e-2", max_contributions="auto", selection=hg.Weights(max_keys=8)
    ),
    "paper": hg.ReleaseParams(epsilon="12", max_contributions=4, sizes=SIZES, preset="paper"),
    "paper-text": hg.ReleaseParams(
        epsilon="12", delta="1e-2", max_contributions=4, sizes=SIZES, preset="paper"
    ),
    "auto": hg.ReleaseParams(epsilon="8", max_contributions="auto", max_per_key=2),
}
#: Of data with some large counts, which have two lists, and several files of listed keys.
OF_MANY = {
    "two-lists": hg.ReleaseParams(epsilon="1", max_contributions=1, bits_per_key=12),
    "names": hg.ReleaseParams(epsilon="1", delta="1e-6", max_contributions=1),
    "names-laplace": hg.ReleaseParams(
        epsilon="2", delta="1e-6", max_contributions=2, selection=hg.Threshold()
    ),
    "several-files": hg.ReleaseParams(epsilon="1", max_contributions=1),
    "several-names": hg.ReleaseParams(epsilon="1", delta="1e-6", max_contributions=1, bits_per_key=2),
    "several-named": hg.ReleaseParams(
        epsilon="8", delta="1e-2", max_contributions=1, selection=hg.Weights(max_keys=1, rounds=1)
    ),
}
MANY_KEYS = [f"/page/{rank}" for rank in range(3_000) for _ in range(max(3_000 // (rank + 1), 1))]
MANY_USERS = [f"user{i}" for i in range(len(MANY_KEYS))]
#: Listed keys in a file of the sketches that have several.
FEW = {"several-files": 512, "several-names": 512, "several-named": 128}
#: Every golden sketch by its name.
EVERY = SETTINGS | OF_MANY
HOME = Path(__file__).parent / "sketches"


def rows_of(name: str) -> tuple[list[str], list[str]]:
    """Users and keys of a golden sketch."""
    return (MANY_USERS, MANY_KEYS) if name in OF_MANY else (USERS, KEYS)


def keys_per_file(name: str) -> AbstractContextManager[Any]:
    """Set how many listed keys are written to a file: few in sketches that have several files for that reason alone."""
    return mock.patch.object(manifest, "KEYS_PER_FILE", FEW.get(name, manifest.KEYS_PER_FILE))


def main() -> None:
    """Write those that are not there yet."""
    for name, params in EVERY.items():
        if (HOME / f"{name}.json").exists():
            continue
        users, keys = rows_of(name)
        with keys_per_file(name):
            sketch = hg.release(
                users, keys, params, HOME / f"{name}.sketch", release_key=KEY, name=f"golden-{name}"
            )
        (HOME / f"{name}.json").write_text(json.dumps(answers(sketch), indent=1) + "\n")


def answers(sketch: hg.Sketch) -> dict[str, object]:
    """What the sketch says of a few keys, by the estimators whose definition never changes."""
    argmax = sketch.estimate(ASKED, estimator="argmax", interval=None)
    return {
        "argmax": argmax["estimate"].to_pylist(),
        "source": argmax["source"].to_pylist(),
        "unbiased": [
            round(v, 6)
            for v in sketch.estimate(ASKED, estimator="unbiased", interval=None)["estimate"].to_pylist()
        ],
        "heavy": sketch.heavy(all=True).num_rows,
    }


if __name__ == "__main__":
    main()
