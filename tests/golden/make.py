"""Writes the golden sketches: `python -m tests.golden.make tests/golden/vN`. Existing ones are never written again.

A golden sketch pins the format: every later version must read it and give the answers recorded beside it.
"""

from __future__ import annotations

import json
import sys
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
SETTINGS = {
    "pure": hg.ReleaseParams(
        epsilon="4", max_contributions=8, max_per_key=2, expected_keys=60, expected_records=320
    ),
    "text": hg.ReleaseParams(
        epsilon="16",
        delta="1e-2",
        max_contributions=8,
        max_per_key=2,
        optimize="totals",
        expected_keys=60,
        expected_records=320,
        key_selection="threshold",
    ),
    "sized": hg.ReleaseParams(
        epsilon="8",
        max_contributions=2,
        bits_per_key=1,
        split={"size": "0.2", "threshold": "0.4", "alp": "0.4"},
    ),
    "weighted": hg.ReleaseParams(
        epsilon="8", delta="1e-2", max_contributions=4, max_keys_selection=8, selection_rounds=2
    ),
    "weighted-rounds": hg.ReleaseParams(
        epsilon="8", delta="1e-2", max_contributions=4, max_keys_selection=8, encoding="none"
    ),
    "weighted-list": hg.ReleaseParams(
        epsilon="8",
        delta="1e-2",
        max_contributions=4,
        max_keys_selection=8,
        selection_rounds=1,
        encoding="none",
    ),
    "pure-list": hg.ReleaseParams(
        epsilon="12", max_contributions=4, encoding="none", expected_keys=60, expected_records=320
    ),
}
#: Format version 3: listed keys without texts are packed. Those of version 2 are read, and not written any more.
VERSION_3 = {
    "keys": hg.ReleaseParams(epsilon="4", max_contributions=8, max_per_key=2),
    "list": hg.ReleaseParams(
        epsilon="12", max_contributions=4, encoding="none", expected_keys=60, expected_records=320
    ),
    "sized": SETTINGS["sized"],
    "kept": hg.ReleaseParams(epsilon="8", max_contributions=4, max_per_key=2, kept_share="0.25"),
    "paper": hg.ReleaseParams.paper(
        epsilon="12", max_contributions=4, expected_keys=60, expected_records=320
    ),
}
#: Format version 4: two lists, which data with some large counts have, and several files of listed keys.
VERSION_4 = {
    "two-lists": hg.ReleaseParams(epsilon="1", max_contributions=1, bits_per_key=12),
    "names": hg.ReleaseParams(epsilon="1", delta="1e-6", max_contributions=1),
    "two-lists-alone": hg.ReleaseParams(epsilon="1", max_contributions=1, encoding="none"),
    "several-files": hg.ReleaseParams(epsilon="1", max_contributions=1, encoding="none"),
    "several-named": hg.ReleaseParams(
        epsilon="8",
        delta="1e-2",
        max_contributions=1,
        max_keys_selection=1,
        selection_rounds=1,
        encoding="none",
    ),
}
MANY_KEYS = [f"/page/{rank}" for rank in range(3_000) for _ in range(max(3_000 // (rank + 1), 1))]
MANY_USERS = [f"user{i}" for i in range(len(MANY_KEYS))]
#: Every golden sketch: its folder, its name, and its parameters where it is still written as it is.
EVERY = [
    *(("v2", name, None if params.delta == 0 else params) for name, params in SETTINGS.items()),
    *(("v3", name, None if params.fits_list else params) for name, params in VERSION_3.items()),
    *(("v4", name, params) for name, params in VERSION_4.items()),
]


def rows_of(folder: str) -> tuple[list[str], list[str]]:
    """Users and keys of the golden sketches of a version."""
    return (MANY_USERS, MANY_KEYS) if folder == "v4" else (USERS, KEYS)


def keys_per_file(name: str) -> AbstractContextManager[Any]:
    """Set how many listed keys are written to a file: few in sketches that have several files for that reason alone."""
    few = 512 if name.startswith("several") else manifest.KEYS_PER_FILE
    return mock.patch.object(manifest, "KEYS_PER_FILE", few)


def main(root: Path) -> None:
    """Write those that are not there yet."""
    for folder, name, params in EVERY:
        if folder != root.name or params is None or (root / f"{name}.json").exists():
            continue
        users, keys = rows_of(folder)
        with keys_per_file(name):
            sketch = hg.release(
                users, keys, params, root / f"{name}.sketch", release_key=KEY, name=f"golden-{name}"
            )
        (root / f"{name}.json").write_text(json.dumps(answers(sketch), indent=1) + "\n")


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
    main(Path(sys.argv[1]))
