"""The two readers agree: on all golden sketches, and on random ones of every kind, encoding and noise."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import pytest
import zstandard

import hushgram as hg
from hushgram.contributions.keys import encode, hash_bytes
from tests.second_reader.reader import SecondReader, murmur
from tests.second_reader.zstd import decompress

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("sketches/*.sketch"))
KEYS = [f"{folder}/{i}" for folder in ("", "/page") for i in range(60)] + ["", "é", "x" * 100]


def agree(path: Path, keys: list[str]) -> None:
    sketch, second = hg.Sketch.open(path), SecondReader(path)
    encoded = encode(keys)
    if second.encoding is None:
        prints = hash_bytes(encoded.values)
        values, listed = sketch._heavy_values(prints, encoded.values)
        found = np.zeros((len(prints), 0), np.int64)
    else:
        values, listed, found = sketch._look_up(hash_bytes(encoded.values), encoded.values)
    for row, key in enumerate(encoded.values.to_pylist()):
        value, seen = second.look_up(key)
        assert value == (int(values[row]) if listed[row] else None), key
        assert seen == [int(x) for x in found[row]], key
    if second.encoding == "buckets-1":
        assert [sum(second.levels())] == list(second.sums)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_golden_sketches(path: Path) -> None:
    agree(path, KEYS)


def test_there_are_golden_sketches() -> None:
    plans = [SecondReader(path).plan for path in GOLDEN]
    kinds = {(plan["kind"], plan["encoding"]) for plan in plans}
    assert kinds >= {
        ("pure", "alp-1"), ("text", "alp-1"), ("weighted", "buckets-1"), ("weighted", None), ("pure", None)
    }  # fmt: skip
    assert {plan["encoding"] for plan in plans if "top" in plan} == {"alp-1", None}


def test_what_a_weighted_sketch_says_of_its_selection() -> None:
    """The numbers of FORMAT.md: weights in units of `weight`, one or two rounds, and counts of any value."""
    for path in GOLDEN:
        plan, second = SecondReader(path).plan, SecondReader(path)
        assert ("weighted_selection" in plan) == (plan["kind"] == "weighted")
        if plan["kind"] != "weighted":
            continue
        stated = plan["weighted_selection"]
        assert stated["weight"] == 4096
        assert len(stated["rounds"]) == plan["params"]["selection_rounds"]
        assert (stated["hopeless"] == 0) == (len(stated["rounds"]) == 1)
        assert all(each["threshold"] > 0 for each in stated["rounds"])
        assert all(isinstance(key, bytes) for key in second.heavy)
        assert second.heavy


def random_sketch(seed: int, path: Path) -> None:
    rng = random.Random(seed)
    rows = rng.choice([0, 1, 20, 400])
    users = [f"u{rng.randint(0, 40)}" for _ in range(rows)]
    keys = [f"/{int(rng.paretovariate(0.7)) % 60}" for _ in range(rows)]
    delta, encoding = rng.choice(["0", "1e-3", "1e-6"]), rng.choice(["alp", "buckets", "none"])
    most = rng.choice([1, 2, 5])
    asked: dict[str, Any] = {"delta": delta, "max_contributions": most, "encoding": encoding}
    if delta != "0":
        asked["noise"] = rng.choice(["auto", "laplace", "gaussian", *["truncated_geometric"] * (most == 1)])
        asked["max_keys_selection"] = rng.choice([1, 8, 30])
    more: dict[str, Any] = {}
    if rng.random() < 0.25:  # sums of values
        asked |= {"granularity": "0.25", "max_value": 1}
        more["values"] = np.array([rng.choice([0.0, 0.1, 0.25, 1.0, 3.5]) for _ in range(rows)], np.float64)
    params = hg.ReleaseParams(epsilon=rng.choice(["0.3", "1", "7"]), **asked)
    if rng.random() < 0.15:
        public = hg.ReleaseParams(epsilon="1", delta=rng.choice([0, "1e-6"]), max_contributions=most)
        hg.release_public(users, keys, [f"/{i}" for i in range(30)], public, path)
    else:
        hg.release(users if rng.random() < 0.8 else None, keys, params, path, **more)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.long
def test_random_sketches(seed: int, tmp_path: Path) -> None:
    """`python -m tests.second_reader 1000` looks at more."""
    random_sketch(seed, tmp_path / "random.sketch")
    agree(tmp_path / "random.sketch", KEYS)


def test_hash_and_decompression_are_those_of_their_standards() -> None:
    rng = random.Random(7)
    for size in (*range(40), 1000):
        key = rng.randbytes(size)
        assert murmur(key) == mmh3.hash64(key, 0, signed=False)[0]
        data = bytes(rng.choice(b"abcde/") for _ in range(size * 20))
        for level in (1, 19):
            assert decompress(zstandard.ZstdCompressor(level=level).compress(data)) == data


def test_it_needs_the_standard_library_alone() -> None:
    for name in ("reader", "parquet", "zstd"):
        text = Path(__file__).with_name(f"{name}.py").read_text()
        assert "numpy" not in text
        assert "pyarrow" not in text
        assert "import hushgram" not in text
        assert "from hushgram" not in text
