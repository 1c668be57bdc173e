"""The two readers agree: on all golden sketches, and on random ones of every selection, encoding and noise."""

from __future__ import annotations

import json
import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import pytest
import zstandard

import hushgram as hg
from hushgram.contributions.keys import encode, hash_bytes
from hushgram.key_selection.threshold import remainder, text_threshold
from hushgram.noise.laplace import NOISE
from hushgram.noise.noises import noise_of
from hushgram.sensitivity import Sensitivity
from tests.golden.make import ASKED
from tests.second_reader.reader import Noise, SecondReader, murmur, offset, passed_on
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


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_golden_answers(path: Path) -> None:
    """Answers that FORMAT.md defines, computed from it alone, are those that are recorded beside the sketch."""
    second, recorded = SecondReader(path), json.loads(path.with_suffix(".json").read_text())
    assert len(second.heavy) == recorded["heavy"]
    found = [second.answer(key.encode()) for key in ASKED]
    defined = second.encoding is None or second.passes
    assert all(each is not None for each in found) >= defined
    for place, each in enumerate(found):
        if each is not None:
            assert each[2] == recorded["source"][place]
            np.testing.assert_allclose(each[0], recorded["argmax"][place], atol=1e-9)
            np.testing.assert_allclose(each[1], recorded["unbiased"][place], atol=2e-5)


def answers_agree(path: Path, keys: list[str]) -> None:
    """The two readers give the same unbiased estimates where FORMAT.md defines them."""
    second = SecondReader(path)
    if not second.passes:
        return
    table = hg.Sketch.open(path).estimate(keys, estimator="unbiased", interval=None)
    per = float(Fraction(second.stated.get("granularity", 1)))
    for key, one, source in zip(
        keys, table["estimate"].to_pylist(), table["source"].to_pylist(), strict=True
    ):
        found = second.answer(key.encode())
        assert found is not None
        assert found[2] == source
        np.testing.assert_allclose(found[1] * per, one, atol=2e-4 * per)


LAPLACE = [(20, "3/2"), (7, "2"), (90, "200/197"), (40, "9"), (3, "1/8"), (2, "1"), (1, "1"), (400, "60")]
NAMED = [("1", "1e-6"), ("2", "1e-3"), ("1/4", "1e-9"), ("30", "1e-5"), ("1", "0.3")]


def agree_on_what_passes(threshold: int, one: Any, scale: Fraction, second: Noise, texts: bool) -> None:
    given = remainder(threshold, one, scale, texts=texts)
    counts = sorted({0, 1, 2, 3, threshold // 2, *range(max(threshold - 5, 0), threshold + 3)})
    exact = given(np.array(counts)) / 2**20
    mine = [passed_on(count, threshold, second, texts=texts) for count in counts]
    np.testing.assert_allclose(mine, exact, atol=1e-5 + 1e-6 * float(scale))
    np.testing.assert_allclose(offset(threshold, second, texts=texts), given.offset, atol=1e-5)
    assert given.most == max(math.ceil(exact[-1]), 1)


@pytest.mark.parametrize(("threshold", "text"), LAPLACE)
def test_what_passes_on(threshold: int, text: str) -> None:
    """g and the offset of FORMAT.md are those of the release."""
    scale = Fraction(text)
    for texts in (False, *[True] * (threshold > 1)):
        agree_on_what_passes(threshold, NOISE, scale, Noise.laplace(float(scale)), texts)


@pytest.mark.parametrize(("text", "delta"), NAMED)
def test_what_passes_on_of_names_with_truncated_geometric_noise(text: str, delta: str) -> None:
    scale, noise = Fraction(text), noise_of("truncated_geometric", Fraction(delta))
    threshold = text_threshold(Fraction(delta), noise, scale, Sensitivity(1, 1))
    second = Noise.truncated_geometric(float(scale), float(delta))
    agree_on_what_passes(threshold, noise, scale, second, True)


@pytest.mark.long
def test_what_passes_on_at_a_scale_where_steps_are_grouped() -> None:
    scale = Fraction(3 << 14)
    agree_on_what_passes(1_500_000, NOISE, scale, Noise.laplace(float(scale)), False)


def test_there_are_golden_sketches() -> None:
    every = [SecondReader(path) for path in GOLDEN]
    kinds = {(each.selection, each.encoding, each.passes) for each in every}
    assert kinds == {
        ("fingerprints", "alp-1", True), ("fingerprints", "alp-1", False), ("threshold", "alp-1", True),
        ("threshold", "alp-1", False), ("weights", "buckets-1", False),
    }  # fmt: skip
    chains = {(each.selection, each.plan["noise"], "top" in each.plan) for each in every if each.passes}
    assert chains == {
        ("fingerprints", "laplace", False), ("fingerprints", "laplace", True), ("threshold", "laplace", False),
        ("threshold", "laplace", True), ("threshold", "truncated_geometric", True),
    }  # fmt: skip


def test_what_a_weighted_sketch_says_of_its_selection() -> None:
    """The numbers of FORMAT.md: weights in units of `weight`, one to three rounds, and one vector of counts."""
    for path in GOLDEN:
        second = SecondReader(path)
        plan, weighted = second.plan, second.selection == "weights"
        assert ("weighted_selection" in plan) == weighted
        if not weighted:
            continue
        said, rounds = plan["weighted_selection"], second.stated["selection"]["weights"]["rounds"]
        assert said["weight"] == 4096
        assert len(said["rounds"]) == (rounds or plan["params"]["rounds"])
        assert len(said["hopeless"]) == len(said["rounds"]) - 1
        assert all(each["threshold"] > 0 for each in said["rounds"])
        assert all(isinstance(key, bytes) for key in second.heavy)
        assert second.heavy
        assert second.layout["scale"] == plan["scale"]


def test_what_a_sketch_says_of_users() -> None:
    """The cells that FORMAT.md names, wherever users are counted."""
    for path in GOLDEN:
        second = SecondReader(path)
        assert ("users" in second.plan["params"]) == ("preset" not in second.stated)
        if "users" not in second.plan["params"]:
            continue
        found, most = second.plan["params"]["users"], second.stated["max_contributions"]
        ends = [*range(1, 9), *(part << i for i in range(1, 20) for part in (5, 6, 7, 8))]
        last = 1024 if most == "auto" else 16 * most
        whole = next(i for i in range(7, len(ends), 4) if ends[i] >= last)
        assert found["at_most"] == ends[: whole + 1]
        assert len(found["users"]) == whole + 1
        parts = second.manifest["guarantee"]["parts"]
        assert Fraction(found["scale"]) * Fraction(parts["contributions"][0]) == 1


def random_sketch(seed: int, path: Path) -> None:
    rng = random.Random(seed)
    rows = rng.choice([0, 1, 20, 400])
    users = [f"u{rng.randint(0, 40)}" for _ in range(rows)]
    keys = [f"/{int(rng.paretovariate(0.7)) % 60}" for _ in range(rows)]
    delta, most = rng.choice(["0", "1e-3", "1e-6"]), rng.choice([1, 2, 5])
    asked: dict[str, Any] = {"delta": delta, "max_contributions": most}
    with_users, kind = rng.random() < 0.8, rng.choice(["usual", "threshold", "weights", "paper"])
    if kind == "paper":
        asked["preset"] = "paper"
    elif delta != "0" and kind == "threshold":
        asked["selection"] = hg.Threshold()
    elif delta != "0" and kind == "weights" and with_users:
        asked["selection"] = hg.Weights(rng.choice([1, 8, 30]), rng.choice([1, 2, 3, None]))
    more: dict[str, Any] = {}
    if rng.random() < 0.25:  # sums of values
        asked |= {"granularity": "0.25", "max_value": 1}
        more["values"] = np.array([rng.choice([0.0, 0.1, 0.25, 1.0, 3.5]) for _ in range(rows)], np.float64)
    params = hg.ReleaseParams(epsilon=rng.choice(["0.3", "1", "7"]), **asked)
    if rng.random() < 0.15:
        public = hg.ReleaseParams(epsilon="1", delta=rng.choice([0, "1e-6"]), max_contributions=most)
        hg.release_public(users, keys, [f"/{i}" for i in range(30)], public, path)
    else:
        hg.release(users if with_users else None, keys, params, path, **more)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.long
def test_random_sketches(seed: int, tmp_path: Path) -> None:
    """`python -m tests.second_reader 1000` looks at more."""
    random_sketch(seed, tmp_path / "random.sketch")
    agree(tmp_path / "random.sketch", KEYS)
    answers_agree(tmp_path / "random.sketch", KEYS)


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
